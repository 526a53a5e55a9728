/* commands.c - commands to a run: forwarded from level to level, and their arguments as
 * JSON */
#include "actors/commands.h"

#include "base/error.h"
#include "base/json_path.h"

void pl_command_fail(pl_call_t *call, pl_code_t code, const char *why)
{
    pl_error_t err;
    if (!call)
        return;
    pl_fail(&err, code, "%s", why);
    pl_call_fail(call, &err);
}

static void passed(void *self, const pl_answer_t *answer)
{
    (void)self;
    if (answer->kind == PL_ANSWER_REPLY)
        pl_reply_control(answer->context, &answer->body->control_reply);
    if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(answer->context, answer->error);
}

int pl_command_pass(void *self, pl_call_t *call, pl_address_t to,
                    const pl_control_t *what, pl_error_t *err)
{
    const pl_how_t how = {.on_answer = passed, .context = call};
    return pl_call_control(self, to, what, how, err) ? PL_OK : err->code;
}

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

pl_control_t pl_control_from_json(const json_t *json)
{
    const char *command = json_string_value(json_object_get(json, "command")),
               *optimizer = json_string_value(json_object_get(json, "optimizer")),
               *name = json_string_value(json_object_get(json, "name"));
    const json_t *factor = json_object_get(json, "factor");
    const int known = pl_enum_find(pl_run_command_names, command ? command : "");
    return (pl_control_t){.command = known < 0 ? PL_RUN_COMMAND_CONTINUE
                                               : (pl_run_command_t)known,
                          .value = json_number_value(
                              factor ? factor : json_object_get(json, "lr")),
                          .is_factor = factor != NULL,
                          .optimizer = optimizer ? optimizer : "",
                          .name = name ? name : ""};
}

int pl_held_add(pl_held_t *held, pl_call_t *call, const pl_control_t *what,
                pl_error_t *err)
{
    if (held->count == PL_HELD_MAX)
        return pl_fail(err, PL_EBUSY,
                       "%d commands already wait for the start of the run: send the "
                       "next when it has started",
                       PL_HELD_MAX);
    held->command[held->count].call = call;
    held->command[held->count++].what = *what;
    return PL_OK;
}

void pl_held_pass(pl_held_t *held, void *self,
                  int (*pass)(void *, pl_call_t *, const pl_control_t *, pl_error_t *))
{
    for (int k = 0; k < held->count; k++) {
        pl_error_t err = {0};
        pl_call_t *call = held->command[k].call;
        if (pass(self, call, &held->command[k].what, &err) != PL_OK)
            pl_call_fail(call, &err);
    }
    held->count = 0;
}

void pl_held_fail(pl_held_t *held, const char *why)
{
    for (int k = 0; k < held->count; k++)
        pl_command_fail(held->command[k].call, PL_ESTATE, why);
    held->count = 0;
}
