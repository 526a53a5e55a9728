/* fit_commands.c - commands to a fit under way: pause, go on, save, another learning rate
 *
 * They wait until the epoch loop halts between two steps; then all ranks do what rank
 * zero was told, and it answers.  A paused fit waits here, where nothing is under way:
 * the other ranks for what rank zero says next, and rank zero for the next command. */
#include <stdio.h>
#include <string.h>

#include "actors/commands.h"
#include "actors/loops/fit.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"

static const char last_step_made[] = "the run has made its last step",
                  has_failed[] = "the run has failed: if it is started again, send the "
                                 "command again";

static void commands_coordinate(pl_fit_t *fit);

/* ---- answers ---- */

static void command_answer(pl_fit_t *fit, pl_call_t *call, const char *checkpoint)
{
    if (call)
        pl_reply_control(call, &(pl_control_reply_t){.global_step = fit->global_step,
                                                     .checkpoint = checkpoint});
}

static void save_name(const pl_control_t *what, uint64_t global_step,
                      char name[PL_CHECKPOINT_NAME])
{
    if (*what->name)
        snprintf(name, PL_CHECKPOINT_NAME, "asked-%s", what->name);
    else
        snprintf(name, PL_CHECKPOINT_NAME, "asked-step=%llu",
                 (unsigned long long)global_step);
}

void pl_fit_commands_saved(pl_fit_t *fit, uint64_t serial, bool safe)
{
    pl_commands_t *c = &fit->commands;
    int left = 0;
    for (int k = 0; k < c->saves; k++) {
        const pl_save_asked_t *save = &c->save[k];
        if (save->serial != serial)
            c->save[left++] = *save;
        else if (safe)
            pl_reply_control(save->call,
                             &(pl_control_reply_t){.global_step = save->global_step,
                                                   .checkpoint = save->name});
        else
            pl_command_fail(save->call, PL_EIO,
                            "the checkpoint could not be saved: the log has the reason");
    }
    c->saves = left;
}

void pl_fit_commands_over(pl_fit_t *fit)
{
    pl_commands_t *c = &fit->commands;
    const int count = c->count;
    const bool failed = fit->failure.code != PL_OK;
    c->over = true;
    c->count = 0;
    for (int k = 0; k < count; k++)
        pl_command_fail(c->waiting[k].call, PL_ESTATE,
                        failed ? has_failed : last_step_made);
}

void pl_fit_commands_end(pl_fit_t *fit)
{
    pl_commands_t *c = &fit->commands;
    const int saves = c->saves;
    c->saves = 0;
    pl_fit_commands_over(fit);
    for (int k = 0; k < saves; k++)
        pl_command_fail(c->save[k].call, PL_ESTATE,
                        fit->failure.code != PL_OK
                            ? "the run failed before the checkpoint was on disk"
                            : "the run ended before the checkpoint was on disk");
}

/* ---- one after the other ---- */

/* One that rank zero was told, while the strategy sees whether it can be set; and what
 * the log says when it was. */
typedef struct rate_asked {
    pl_call_t *call;
    char text[200];
} rate_asked_t;

static rate_asked_t *rate_ask(const pl_fit_t *fit, const pl_control_t *what,
                              pl_call_t *call, pl_error_t *err)
{
    rate_asked_t *asked = pl_alloc(sizeof *asked);
    if (!asked) {
        pl_no_memory(err);
        return NULL;
    }
    asked->call = call;
    snprintf(asked->text, sizeof asked->text,
             "after step %llu: the learning rate%s%.80s is set to %g%s",
             (unsigned long long)fit->global_step, *what->optimizer ? " of " : "",
             what->optimizer, what->value,
             what->is_factor ? " times the schedule's value" : "");
    return asked;
}

static void rate_set(void *self, const pl_answer_t *answer)
{
    rate_asked_t *asked = answer->context;
    if (!asked || (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR))
        return;
    if (answer->kind == PL_ANSWER_REPLY) {
        pl_log_line(PL_LOG_INFO, pl_actor_rank(self), pl_actor_name(self), "%s",
                    asked->text);
        command_answer(self, asked->call, "");
    } else {
        pl_call_fail(asked->call, answer->error);
    }
    pl_free(asked);
}

static void rate_carry_out(pl_fit_t *fit, const pl_control_t *what, pl_call_t *call)
{
    const pl_set_rate_t msg = {.value = what->value,
                               .is_factor = what->is_factor,
                               .optimizer = what->optimizer};
    pl_error_t err = {0};
    rate_asked_t *asked = call ? rate_ask(fit, what, call, &err) : NULL;
    const pl_how_t how = {.on_answer = rate_set, .context = asked};
    if (pl_call_set_rate(fit, fit->strategy, &msg, how, &err) && (asked || !call))
        return;
    if (call)
        pl_call_fail(call, &err);
    pl_free(asked);
}

/* It is answered when it is durable: the next that is made. */
static void save_carry_out(pl_fit_t *fit, const pl_control_t *what, pl_call_t *call)
{
    pl_commands_t *c = &fit->commands;
    pl_error_t err = {0};
    pl_save_asked_t save = {.call = call,
                            .global_step = fit->global_step,
                            .serial = fit->serial + 1};
    save_name(what, fit->global_step, save.name);
    int code = c->saves == PL_COMMANDS_MAX
                   ? pl_fail(&err, PL_EBUSY, "too many checkpoints are being saved")
                   : pl_checkpoint_requests_add(&fit->checkpoint_requests, save.name, "",
                                                &err);
    if (code == PL_OK && call)
        c->save[c->saves++] = save;
    else if (call)
        pl_call_fail(call, &err);
}

static void pause_carry_out(pl_fit_t *fit, bool pauses, pl_call_t *call)
{
    pl_commands_t *c = &fit->commands;
    if (pauses && *c->stop) {
        pl_command_fail(call, PL_ESTATE, "the run is stopping");
        return;
    }
    if (call && pauses != c->paused)
        pl_log_line(PL_LOG_INFO, pl_actor_rank(fit), pl_actor_name(fit), "%s step %llu",
                    pauses ? "paused after" : "resumed after",
                    (unsigned long long)fit->global_step);
    c->paused = pauses;
    command_answer(fit, call, "");
}

static void command_carry_out(pl_fit_t *fit, const pl_control_t *what, pl_call_t *call)
{
    if (what->command == PL_RUN_COMMAND_SET_LR)
        rate_carry_out(fit, what, call);
    else if (what->command == PL_RUN_COMMAND_SAVE)
        save_carry_out(fit, what, call);
    else
        pause_carry_out(fit, what->command == PL_RUN_COMMAND_PAUSE, call);
}

/* ---- what rank zero was told, as a text for all ---- */

static json_t *command_write(const pl_control_t *what)
{
    return json_pack("{s:s, s:f, s:b, s:s, s:s}", "command",
                     pl_run_command_names[what->command], "value", what->value,
                     "is_factor", (int)what->is_factor, "optimizer", what->optimizer,
                     "name", what->name);
}

static char *commands_write(const pl_fit_t *fit, pl_error_t *err)
{
    const pl_commands_t *c = &fit->commands;
    json_t *list = json_array();
    bool whole = list != NULL;
    for (int k = 0; k < c->count && whole; k++)
        whole = json_array_append_new(list, command_write(&c->waiting[k].what)) == 0;
    json_t *all = whole
                      ? json_pack("{s:s, s:O}", "stop", c->pending_stop, "commands", list)
                      : NULL;
    char *text = all ? pl_json_write(all, PL_JSON_COMPACT) : NULL;
    json_decref(all);
    json_decref(list);
    if (!text)
        pl_no_memory(err);
    return text;
}

static void command_read(pl_fit_t *fit, const json_t *one, pl_call_t *call)
{
    const char *command = json_string_value(json_object_get(one, "command")),
               *optimizer = json_string_value(json_object_get(one, "optimizer")),
               *name = json_string_value(json_object_get(one, "name"));
    const int known = pl_enum_find(pl_run_command_names, command ? command : "");
    const pl_control_t what = {.command = known < 0 ? PL_RUN_COMMAND_CONTINUE
                                                    : (pl_run_command_t)known,
                               .value = json_number_value(json_object_get(one, "value")),
                               .is_factor =
                                   json_is_true(json_object_get(one, "is_factor")),
                               .optimizer = optimizer ? optimizer : "",
                               .name = name ? name : ""};
    command_carry_out(fit, &what, call);
}

/* ---- the halt ---- */

static void pause_begin(pl_fit_t *fit)
{
    pl_commands_t *c = &fit->commands;
    if (!c->paused_at)
        c->paused_at = pl_now();
    c->waits = true;
    if (!pl_is_nobody(fit->hooks.coordinator) && pl_actor_rank(fit) > 0)
        commands_coordinate(fit);
    else if (c->count || *c->pending_stop)
        commands_coordinate(fit);
}

/* A pause is no time of the run's. */
static void commands_done(pl_fit_t *fit)
{
    pl_commands_t *c = &fit->commands;
    if (c->paused && !*c->stop) {
        pause_begin(fit);
        return;
    }
    if (c->paused_at)
        fit->began += pl_now() - c->paused_at;
    c->paused_at = 0;
    c->paused = false;
    c->then(fit);
}

/* Those that have come since then wait for the next time. */
static void commands_carry_out(pl_fit_t *fit, const json_t *all, int own)
{
    pl_commands_t *c = &fit->commands;
    pl_waiting_t waiting[PL_COMMANDS_MAX];
    const char *stop = json_string_value(json_object_get(all, "stop"));
    size_t k;
    json_t *one;
    memcpy(waiting, c->waiting, sizeof waiting);
    c->count -= own;
    memmove(c->waiting, c->waiting + own, (size_t)c->count * sizeof *c->waiting);
    snprintf(c->stop, sizeof c->stop, "%s", stop ? stop : "");
    json_array_foreach(json_object_get(all, "commands"), k, one)
        command_read(fit, one, (int)k < own ? waiting[k].call : NULL);
    pl_fit_checkpoint(fit, commands_done);
}

static void commands_read(pl_fit_t *fit, const char *text, int own)
{
    pl_error_t err = {0};
    json_t *all = pl_json_read(text, strlen(text), "the commands of rank 0", &err);
    if (all)
        commands_carry_out(fit, all, own);
    else
        pl_fit_fail(fit, &err);
    json_decref(all);
}

static void commands_coordinated(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_fit_fail(fit, answer->error);
    if (answer->kind == PL_ANSWER_REPLY && fit->call)
        commands_read(fit, answer->body->decide_reply.text,
                      (int)(intptr_t)answer->context);
}

static void commands_coordinate(pl_fit_t *fit)
{
    pl_commands_t *c = &fit->commands;
    pl_error_t err = {0};
    const int own = c->count;
    const pl_how_t how = {.on_answer = commands_coordinated,
                          .context = (void *)(intptr_t)own};
    char *text = commands_write(fit, &err);
    c->waits = false;
    if (text && pl_is_nobody(fit->hooks.coordinator))
        commands_read(fit, text, own);
    else if (!text
             || !pl_call_decide(fit, fit->hooks.coordinator, &(pl_decide_t){.text = text},
                                how, &err))
        pl_fit_fail(fit, &err);
    pl_text_free(text);
}

void pl_fit_commands_run(pl_fit_t *fit, void (*then)(pl_fit_t *fit))
{
    fit->commands.then = then;
    commands_coordinate(fit);
}

/* ---- from above ---- */

static int command_check(const pl_fit_t *fit, const pl_control_t *what, pl_error_t *err)
{
    if (!fit->call)
        return pl_fail(err, PL_ESTATE, "%s",
                       fit->failure.code != PL_OK ? has_failed : "the run has ended");
    if (fit->commands.over)
        return pl_fail(err, PL_ESTATE, last_step_made);
    if (*fit->commands.pending_stop)
        return pl_fail(err, PL_ESTATE, "the run is stopping");
    if (fit->commands.count == PL_COMMANDS_MAX)
        return pl_fail(err, PL_EBUSY,
                       "%d commands are already waiting: send the next after an answer",
                       PL_COMMANDS_MAX);
    if (what->command == PL_RUN_COMMAND_SAVE
        && (!fit->saves || !fit->options->enable_checkpointing))
        return pl_fail(err, PL_ESTATE,
                       "this run saves no checkpoints: trainer.enable_checkpointing is "
                       "false");
    return PL_OK;
}

int pl_fit_control(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_fit_t *fit = self;
    pl_commands_t *c = &fit->commands;
    int code = command_check(fit, &body->control, err);
    if (code != PL_OK)
        return code;
    c->waiting[c->count++] = (pl_waiting_t){call, body->control};
    if (c->waits) {
        commands_coordinate(fit);
        return PL_OK;
    }
    if (pl_call_control(fit, fit->epoch, &body->control, (pl_how_t){0}, err))
        return PL_OK;
    c->count--;
    return err->code;
}

bool pl_fit_commands_stop(pl_fit_t *fit, const char *reason)
{
    pl_commands_t *c = &fit->commands;
    snprintf(c->pending_stop, sizeof c->pending_stop, "%s",
             *reason ? reason : "requested by the program");
    if (!c->waits)
        return false;
    commands_coordinate(fit);
    return true;
}
