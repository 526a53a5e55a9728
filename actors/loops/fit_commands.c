/* fit_commands.c - carries out commands to a fit: pause, continue, save, set_lr
 *
 * They wait until the epoch loop halts between two steps.  Then all ranks do what rank 0
 * has received, and rank 0 answers.  A paused fit waits here with nothing else in flight:
 * the other ranks for the next commands of rank 0, and rank 0 for its caller. */
#include <stdio.h>
#include <string.h>

#include "actors/commands.h"
#include "actors/loops/fit.h"
#include "actors/loops/loops.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

static const char last_step_made[] = "the run has made its last step",
                  has_failed[] = "the run has failed: if it is started again, send the "
                                 "command again";

static void commands_agree(pl_fit_t *fit);

/* ---- answers ---- */

/* call  [NULL: this rank did not receive the command] */
static void command_reply(const pl_fit_t *fit, pl_call_t *call)
{
    if (call)
        pl_reply_control(call, &(pl_control_reply_t){.global_step = fit->global_step,
                                                     .checkpoint = ""});
}

void pl_fit_commands_saved(pl_fit_t *fit, uint64_t serial, bool safe)
{
    pl_commands_t *c = &fit->commands;
    int left = 0;
    for (int k = 0; k < c->saves; k++) {
        const pl_waiting_save_t *save = &c->save[k];
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

/* ---- carrying out ---- */

/* The line of the log, until the strategy has accepted the rate; on the rank that
 * received the command. */
typedef struct rate_change {
    pl_call_t *call;
    char text[200];
} rate_change_t;

static void rate_set(void *self, const pl_answer_t *answer)
{
    rate_change_t *change = answer->context;
    if (!change || (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR))
        return;
    if (answer->kind == PL_ANSWER_REPLY) {
        pl_log_line(PL_LOG_INFO, pl_actor_rank(self), pl_actor_name(self), "%s",
                    change->text);
        command_reply(self, change->call);
    } else {
        pl_call_fail(change->call, answer->error);
    }
}

static void set_lr_carry_out(pl_fit_t *fit, const pl_control_t *what, pl_call_t *call)
{
    const pl_set_rate_t msg = {.value = what->value,
                               .is_factor = what->is_factor,
                               .optimizer = what->optimizer};
    pl_error_t err = {0};
    rate_change_t *change = call ? pl_alloc(sizeof *change) : NULL;
    if (change) {
        change->call = call;
        snprintf(change->text, sizeof change->text,
                 "after step %llu: the learning rate%s%.80s is set to %g%s",
                 (unsigned long long)fit->global_step, *what->optimizer ? " of " : "",
                 what->optimizer, what->value,
                 what->is_factor ? " times the schedule's value" : "");
    } else if (call) {
        pl_no_memory(&err);
    }
    const pl_how_t how = {.on_answer = rate_set, .context = change};
    const uint64_t number = pl_call_set_rate(fit, fit->strategy, &msg, how, &err);
    if (number && (change || !call)) {
        pl_give_context(fit, number);
        return;
    }
    if (call)
        pl_call_fail(call, &err);
    pl_free(change);
}

/* The next checkpoint that is made; the answer comes when it is on disk. */
static void save_carry_out(pl_fit_t *fit, const pl_control_t *what, pl_call_t *call)
{
    pl_commands_t *c = &fit->commands;
    pl_error_t err = {0};
    pl_waiting_save_t save = {.call = call,
                              .global_step = fit->global_step,
                              .serial = fit->serial + 1};
    if (*what->name)
        snprintf(save.name, sizeof save.name, "asked-%s", what->name);
    else
        snprintf(save.name, sizeof save.name, "asked-step=%llu",
                 (unsigned long long)fit->global_step);
    const int code = c->saves == PL_COMMANDS_MAX
                         ? pl_fail(&err, PL_EBUSY, "too many checkpoints are being saved")
                         : pl_checkpoint_requests_add(&fit->checkpoint_requests,
                                                      save.name, "", &err);
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
                    pauses ? "paused after" : "continues after",
                    (unsigned long long)fit->global_step);
    c->paused = pauses;
    command_reply(fit, call);
}

/* ---- the halt ---- */

/* A pause continues: rank 0 waits for its caller, and other ranks for rank 0.  Its time
 * does not count as time of the run. */
static void commands_done(pl_fit_t *fit)
{
    pl_commands_t *c = &fit->commands;
    if (c->paused && !*c->stop) {
        if (!c->paused_at)
            c->paused_at = pl_now();
        c->waits = true;
        if ((!pl_is_nobody(fit->hooks.coordinator) && pl_actor_rank(fit) > 0) || c->count
            || *c->pending_stop)
            commands_agree(fit);
        return;
    }
    if (c->paused_at)
        fit->began += pl_now() - c->paused_at;
    c->paused_at = 0;
    c->paused = false;
    c->then(fit);
}

/* Carries out what rank 0 sends: a stop, if one is pending, and its commands.  The
 * context is the number of this rank's commands among them, its oldest; newer ones
 * wait for the next halt. */
static void commands_agreed(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_commands_t *c = &fit->commands;
    const int own = (int)(intptr_t)answer->context;
    pl_waiting_command_t waiting[PL_COMMANDS_MAX];
    pl_error_t err = {0};
    pl_call_t *call;                                        /* of this rank  [NULL] */
    pl_message_t message;
    pl_body_t body;
    bool is_reply;
    int taken = 0;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_fit_fail(fit, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || !fit->call)
        return;
    pl_bytes_t left = answer->body->decide_reply.messages;
    memcpy(waiting, c->waiting, sizeof waiting);
    c->count -= own;
    memmove(c->waiting, c->waiting + own, (size_t)c->count * sizeof *c->waiting);
    *c->stop = '\0';
    while (left.size) {
        if (pl_messages_take(&left, &message, &is_reply, &body, &err) != PL_OK) {
            pl_fit_fail(fit, &err);
            return;
        }
        if (message == PL_MESSAGE_stop) {
            snprintf(c->stop, sizeof c->stop, "%s", body.stop.reason);
            c->stop_kind = body.stop.kind;
        } else if (message == PL_MESSAGE_control) {
            call = taken < own ? waiting[taken].call : NULL;
            taken++;
            switch (body.control.command) {
            case PL_RUN_COMMAND_PAUSE: pause_carry_out(fit, true, call); break;
            case PL_RUN_COMMAND_CONTINUE: pause_carry_out(fit, false, call); break;
            case PL_RUN_COMMAND_SAVE: save_carry_out(fit, &body.control, call); break;
            case PL_RUN_COMMAND_SET_LR: set_lr_carry_out(fit, &body.control, call); break;
            }
        }
    }
    pl_fit_checkpoint(fit, commands_done);
}

static void commands_agree(pl_fit_t *fit)
{
    pl_commands_t *c = &fit->commands;
    pl_error_t err = {0};
    pl_messages_t messages = {0};
    const int own = c->count;
    const pl_how_t how = {.on_answer = commands_agreed, .context = (void *)(intptr_t)own};
    const pl_stop_t stop = {.reason = c->pending_stop, .kind = c->pending_kind};
    int code = *c->pending_stop
                   ? pl_messages_add(&messages, PL_MESSAGE_stop, false, &stop, &err)
                   : PL_OK;
    for (int k = 0; k < own && code == PL_OK; k++)
        code = pl_messages_add(&messages, PL_MESSAGE_control, false, &c->waiting[k].what,
                               &err);
    c->waits = false;
    const pl_decide_t msg = {.messages = pl_messages_bytes(&messages)};
    if (code != PL_OK || !pl_loop_agree(fit, fit->hooks.coordinator, &msg, how, &err))
        pl_fit_fail(fit, &err);
    pl_messages_release(&messages);
}

void pl_fit_commands_run(pl_fit_t *fit, void (*then)(pl_fit_t *fit))
{
    fit->commands.then = then;
    commands_agree(fit);
}

/* ---- calls from the worker ---- */

/* The command waits for a halt, which the epoch loop makes; in a pause it is carried out
 * at once. */
int pl_fit_control(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_fit_t *fit = self;
    pl_commands_t *c = &fit->commands;
    const pl_control_t *what = &body->control;
    if (!fit->call)
        return pl_fail(err, PL_ESTATE, "%s",
                       fit->failure.code != PL_OK ? has_failed : "the run has ended");
    if (c->over)
        return pl_fail(err, PL_ESTATE, last_step_made);
    if (*c->pending_stop)
        return pl_fail(err, PL_ESTATE, "the run is stopping");
    if (c->count == PL_COMMANDS_MAX)
        return pl_fail(err, PL_EBUSY,
                       "%d commands are already waiting: send the next after an answer",
                       PL_COMMANDS_MAX);
    if (what->command == PL_RUN_COMMAND_SAVE
        && (!fit->saves || !fit->options->enable_checkpointing))
        return pl_fail(err, PL_ESTATE,
                       "this run saves no checkpoints: trainer.enable_checkpointing is "
                       "false");
    c->waiting[c->count++] = (pl_waiting_command_t){call, *what};
    if (c->waits) {
        commands_agree(fit);
        return PL_OK;
    }
    if (pl_call_control(fit, fit->epoch, what, (pl_how_t){0}, err))
        return PL_OK;
    c->count--;
    return err->code;
}

bool pl_fit_commands_stop(pl_fit_t *fit, const pl_stop_t *stop)
{
    pl_commands_t *c = &fit->commands;
    snprintf(c->pending_stop, sizeof c->pending_stop, "%s",
             *stop->reason ? stop->reason : "requested by the program");
    c->pending_kind = stop->kind;
    if (!c->waits)
        return false;
    commands_agree(fit);
    return true;
}
