/* commands.c - commands of the program and of others to the runs of an engine
 *
 * Each becomes a call of the trainer, on the control thread. The answer to a command of
 * the program is a notification; the answer to a request in JSON is a text
 * (json_commands.c). */
#include <float.h>
#include <string.h>

#include "actors/connectors/checkpoint_io.h"
#include "actors/api/host.h"
#include "base/alloc.h"
#include "base/error.h"

/* ---- The control thread ---- */

/* Consumes the command. If memory is out the result lacks the path of the checkpoint. */
static void command_end(pl_command_t *command, const pl_error_t *error,
                        uint64_t global_step, const char *checkpoint)
{
    const char *run_dir = command->call ? command->trainer->done->ending.run_dir : NULL;
    pl_command_result_t result = {.command = pl_run_command_names[command->what.command],
                                  .error = error ? *error : (pl_error_t){0},
                                  .global_step = global_step};
    if (command->pprev) {
        *command->pprev = command->next;
        if (command->next)
            command->next->pprev = command->pprev;
    }
    if (*checkpoint && run_dir)
        result.checkpoint = pl_text("%s/" PL_CHECKPOINTS_FOLDER "/%s", run_dir,
                                    checkpoint);
    command->answer(command, &result);
    pl_free(command);
}

static void command_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_command_t *command = answer->context;
    pl_trainer_t *trainer = command->trainer;
    const pl_run_command_t name = command->what.command;
    if (answer->kind == PL_ANSWER_ERROR)
        command_end(command, answer->error, 0, "");
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const pl_control_reply_t *reply = &answer->body->control_reply;
    pl_ending_t *now = &trainer->done->ending;
    if (now->global_step < reply->global_step)
        now->global_step = reply->global_step;
    if (name == PL_RUN_COMMAND_PAUSE || name == PL_RUN_COMMAND_CONTINUE) {
        trainer->state.is_paused = name == PL_RUN_COMMAND_PAUSE;
        pl_run_view_pause(trainer->engine->view, trainer->run, trainer->state.is_paused,
                          reply->global_step);
    }
    command_end(command, NULL, reply->global_step, reply->checkpoint);
}

void pl_command_send(void *argument)
{
    pl_command_t *command = argument;
    pl_trainer_t *trainer = command->trainer;
    const pl_how_t how = {.on_answer = command_answered, .context = command};
    pl_error_t err = {0};
    command->what.optimizer = command->optimizer;
    command->what.name = command->name;
    if (!trainer->run || !trainer->state.is_fit)
        pl_fail(&err, PL_ESTATE, "no fit is active");
    else
        command->call = pl_call_control(trainer->engine->host, trainer->actor,
                                        &command->what, how, &err);
    if (!command->call) {
        command_end(command, &err, 0, "");
        return;
    }
    command->next = trainer->commands;
    command->pprev = &trainer->commands;
    if (trainer->commands)
        trainer->commands->pprev = &command->next;
    trainer->commands = command;
}

void pl_commands_end(pl_trainer_t *trainer)
{
    pl_error_t err;
    pl_fail(&err, PL_ESTATE, "the run has ended");
    while (trainer->commands) {
        pl_abandon(trainer->engine->host, trainer->commands->call);
        command_end(trainer->commands, &err, 0, "");
    }
}

/* ---- Any thread ---- */

int pl_command_check(const pl_command_t *command, pl_error_t *err)
{
    if (!(command->what.value >= 0 && command->what.value <= FLT_MAX))
        return pl_fail(err, PL_EINVAL,
                       "the %s %g is not possible: give a number of at least 0 that "
                       "fits a float32",
                       command->what.is_factor ? "learning-rate factor" : "learning rate",
                       command->what.value);
    return PL_OK;
}

int pl_command_set_optimizer(pl_command_t *command, const char *optimizer,
                             pl_error_t *err)
{
    const size_t length = optimizer ? strlen(optimizer) : 0;
    if (length >= sizeof command->optimizer)
        return pl_fail(err, PL_EINVAL,
                       "the name of an optimizer has %zu bytes: no optimizer has such a "
                       "long name",
                       length);
    memcpy(command->optimizer, optimizer ? optimizer : "", length + 1);
    return PL_OK;
}

/* '=' is not allowed: the names of other checkpoints contain it. */
int pl_command_set_name(pl_command_t *command, const char *name, pl_error_t *err)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789_-.";
    const size_t length = name ? strlen(name) : 0;
    if (name
        && (!length || length >= sizeof command->name || strspn(name, allowed) < length))
        return pl_fail(err, PL_EINVAL,
                       "\"%.80s\" cannot be the name of a checkpoint: use 1 to %zu "
                       "letters, digits, '_', '-' and '.'",
                       name, sizeof command->name - 1);
    memcpy(command->name, name ? name : "", length + 1);
    return PL_OK;
}

/* ---- The program's thread ---- */

/* The notification was made with the command, so the answer cannot get lost. */
static void notify(pl_command_t *command, const pl_command_result_t *result)
{
    command->notification->result = *result;
    pl_notifications_push(&command->trainer->engine->notifications,
                          command->notification);
}

static int command_post(pl_trainer_t *trainer, const pl_control_t *what,
                        pl_on_command_t on_command, void *user, pl_error_t *err)
{
    if (pl_require(trainer, "a trainer", err) != PL_OK)
        return PL_EINVAL;
    if (!trainer->is_running || !trainer->trains || trainer->is_freed
        || trainer->engine->is_closing)
        return pl_fail(err, PL_ESTATE,
                       "this trainer is not training: commands apply to a fit that "
                       "runs");
    pl_command_t *command = pl_alloc(sizeof *command);
    pl_notification_t *notification = pl_alloc(sizeof *notification);
    int code = command && notification ? PL_OK : pl_no_memory(err);
    if (code == PL_OK) {
        *notification = (pl_notification_t){.kind = PL_NOTIFICATION_COMMAND,
                                            .trainer = trainer,
                                            .on_command = on_command,
                                            .user = user};
        *command = (pl_command_t){.trainer = trainer,
                                  .what = *what,
                                  .answer = notify,
                                  .notification = notification};
        code = pl_command_check(command, err);
    }
    if (code == PL_OK)
        code = pl_command_set_optimizer(command, what->optimizer, err);
    if (code == PL_OK)
        code = pl_command_set_name(command, what->name, err);
    if (code == PL_OK)
        code = pl_reactor_post(trainer->engine->reactor, pl_command_send, command, err);
    if (code == PL_OK) {
        trainer->engine->calls++;
        return PL_OK;
    }
    pl_free(notification);
    pl_free(command);
    return code;
}

int pl_trainer_pause(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                     pl_error_t *err)
{
    return command_post(trainer, &(pl_control_t){.command = PL_RUN_COMMAND_PAUSE},
                        on_command, user, err);
}

int pl_trainer_continue(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                        pl_error_t *err)
{
    return command_post(trainer, &(pl_control_t){.command = PL_RUN_COMMAND_CONTINUE},
                        on_command, user, err);
}

int pl_trainer_save(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                    pl_error_t *err)
{
    return pl_trainer_save_as(trainer, NULL, on_command, user, err);
}

int pl_trainer_save_as(pl_trainer_t *trainer, const char *name,
                       pl_on_command_t on_command, void *user, pl_error_t *err)
{
    return command_post(trainer,
                        &(pl_control_t){.command = PL_RUN_COMMAND_SAVE, .name = name},
                        on_command, user, err);
}

int pl_trainer_set_lr(pl_trainer_t *trainer, double lr, const char *optimizer,
                      pl_on_command_t on_command, void *user, pl_error_t *err)
{
    const pl_control_t what = {.command = PL_RUN_COMMAND_SET_LR,
                               .value = lr,
                               .optimizer = optimizer};
    return command_post(trainer, &what, on_command, user, err);
}

int pl_trainer_scale_lr(pl_trainer_t *trainer, double factor, const char *optimizer,
                        pl_on_command_t on_command, void *user, pl_error_t *err)
{
    const pl_control_t what = {.command = PL_RUN_COMMAND_SET_LR,
                               .value = factor,
                               .is_factor = true,
                               .optimizer = optimizer};
    return command_post(trainer, &what, on_command, user, err);
}
