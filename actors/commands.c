/* commands.c - commands to a run: how levels forward them, and their arguments as JSON */
#include "actors/commands.h"

#include "base/error.h"
#include "base/json_path.h"

static void forwarded(void *self, const pl_answer_t *answer)
{
    (void)self;
    switch (answer->kind) {
    case PL_ANSWER_PROGRESS: pl_progress(answer->context, answer->body); break;
    case PL_ANSWER_REPLY: pl_reply(answer->context, answer->body); break;
    case PL_ANSWER_ERROR: pl_call_fail(answer->context, answer->error); break;
    case PL_ANSWER_LATE: break;
    }
}

int pl_forward(void *self, pl_call_t *call, pl_address_t to, pl_message_t message,
               const pl_body_t *body, pl_error_t *err)
{
    const pl_how_t how = {.on_answer = forwarded, .context = call};
    return pl_call(self, to, message, body, how, err) ? PL_OK : err->code;
}

void pl_command_fail(pl_call_t *call, pl_code_t code, const char *why)
{
    pl_error_t err;
    if (!call)
        return;
    pl_fail(&err, code, "%s", why);
    pl_call_fail(call, &err);
}

/* ---- arguments ---- */

const pl_command_argument_t pl_command_arguments[] = {
    {"lr", PL_RUN_COMMAND_SET_LR, true},
    {"factor", PL_RUN_COMMAND_SET_LR, true},
    {"optimizer", PL_RUN_COMMAND_SET_LR, false},
    {"name", PL_RUN_COMMAND_SAVE, false},
    {0},
};

json_t *pl_control_to_json(const pl_control_t *what)
{
    json_t *json = json_pack("{s:s}", "command", pl_run_command_names[what->command]);
    if (what->command == PL_RUN_COMMAND_SET_LR)
        json = pl_json_with(json, what->is_factor ? "factor" : "lr",
                            json_real(what->value));
    if (*what->optimizer)
        json = pl_json_with(json, "optimizer", json_string(what->optimizer));
    if (*what->name)
        json = pl_json_with(json, "name", json_string(what->name));
    return json;
}

pl_control_t pl_control_from_json(pl_run_command_t command, const json_t *json)
{
    const json_t *factor = json_object_get(json, "factor");
    return (
        pl_control_t){.command = command,
                      .value = json_number_value(factor ? factor
                                                        : json_object_get(json, "lr")),
                      .is_factor = factor != NULL,
                      .optimizer = json_string_value(json_object_get(json, "optimizer")),
                      .name = json_string_value(json_object_get(json, "name"))};
}
