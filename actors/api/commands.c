/* commands.c - commands to the runs of an engine, on its control thread
 *
 * Each becomes a call of the trainer; its answer is a notification when the program
 * asked, and a text when somebody else did, through the engine's commander
 * (json_commands.c). */
#include <float.h>
#include <string.h>

#include "actors/connectors/checkpoint_io.h"
#include "actors/api/host.h"
#include "base/alloc.h"
#include "base/error.h"

/* ---- answers ---- */

/* Consumes the order. */
static void order_tell(pl_order_t *order, const pl_error_t *error, uint64_t global_step,
                       const char *checkpoint)
{
    const char *run_dir = order->call ? order->trainer->done->ending.run_dir : NULL;
    pl_command_result_t result = {.command = pl_run_command_names[order->what.command],
                                  .error = error ? *error : (pl_error_t){0},
                                  .global_step = global_step};
    if (order->pprev) {
        *order->pprev = order->next;
        if (order->next)
            order->next->pprev = order->pprev;
    }
    if (*checkpoint && run_dir)                  /* without memory it is not told where */
        result.checkpoint = pl_text("%s/" PL_CHECKPOINTS_FOLDER "/%s", run_dir,
                                    checkpoint);
    order->answer(order, &result);
    pl_free(order);
}

static void order_refuse(pl_order_t *order, pl_code_t code, const char *why)
{
    pl_error_t err = {0};
    pl_fail(&err, code, "%s", why);
    order_tell(order, &err, 0, "");
}

static void order_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_order_t *order = answer->context;
    const pl_run_command_t command = order->what.command;
    if (answer->kind == PL_ANSWER_ERROR)
        order_tell(order, answer->error, 0, "");
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const pl_control_reply_t *reply = &answer->body->control_reply;
    pl_ending_t *now = &order->trainer->done->ending;
    if (now->global_step < reply->global_step)
        now->global_step = reply->global_step;
    if (command == PL_RUN_COMMAND_PAUSE || command == PL_RUN_COMMAND_CONTINUE) {
        order->trainer->standing.is_paused = command == PL_RUN_COMMAND_PAUSE;
        pl_run_view_pause(order->trainer->engine->view, order->trainer->run,
                          order->trainer->standing.is_paused, reply->global_step);
    }
    order_tell(order, NULL, reply->global_step, reply->checkpoint);
}

/* ---- the control thread ---- */

static void order_enlist(pl_order_t *order)
{
    pl_trainer_t *trainer = order->trainer;
    order->next = trainer->orders;
    order->pprev = &trainer->orders;
    if (trainer->orders)
        trainer->orders->pprev = &order->next;
    trainer->orders = order;
}

void pl_order_give(void *argument)
{
    pl_order_t *order = argument;
    pl_trainer_t *trainer = order->trainer;
    const pl_how_t how = {.on_answer = order_answered, .context = order};
    pl_error_t err = {0};
    order->what.optimizer = order->optimizer;
    order->what.name = order->name;
    if (!trainer->run || !trainer->standing.is_fit) {
        order_refuse(order, PL_ESTATE, "no fit is active");
        return;
    }
    order->call = pl_call_control(trainer->engine->host, trainer->actor, &order->what,
                                  how, &err);
    if (order->call)
        order_enlist(order);
    else
        order_tell(order, &err, 0, "");
}

void pl_orders_end(pl_trainer_t *trainer)
{
    while (trainer->orders) {
        pl_abandon(trainer->engine->host, trainer->orders->call);
        order_refuse(trainer->orders, PL_ESTATE, "the run has ended");
    }
}

int pl_order_check(const pl_order_t *order, pl_error_t *err)
{
    if (!(order->what.value >= 0 && order->what.value <= FLT_MAX))
        return pl_fail(err, PL_EINVAL,
                       "the %s %g is not possible: give a number of at least 0 that "
                       "fits a float32",
                       order->what.is_factor ? "learning-rate factor" : "learning rate",
                       order->what.value);
    return PL_OK;
}

/* ---- the program's thread ---- */

/* The notification was made with the order, so that the answer can always be told. */
static void notification_answer(pl_order_t *order, const pl_command_result_t *result)
{
    pl_notification_t *notification = order->notification;
    notification->result = *result;
    pl_notifications_push(&order->trainer->engine->notifications, notification);
}

static int order_post(pl_trainer_t *trainer, const pl_control_t *what,
                      pl_on_command_t on_command, void *user, pl_error_t *err)
{
    if (pl_require(trainer, "a trainer", err) != PL_OK)
        return PL_EINVAL;
    if (!trainer->running || !trainer->trains || trainer->freed
        || trainer->engine->closing)
        return pl_fail(err, PL_ESTATE,
                       "this trainer is not training: commands apply to a fit that "
                       "runs");
    pl_order_t *order = pl_alloc(sizeof *order);
    pl_notification_t *notification = pl_alloc(sizeof *notification);
    int code = order && notification ? PL_OK : pl_no_memory(err);
    if (code == PL_OK) {
        *notification = (pl_notification_t){.kind = PL_NOTIFICATION_COMMAND,
                                            .trainer = trainer,
                                            .on_command = on_command,
                                            .user = user};
        *order = (pl_order_t){.trainer = trainer,
                              .what = *what,
                              .answer = notification_answer,
                              .notification = notification};
        code = pl_order_check(order, err);
    }
    if (code == PL_OK)
        code = pl_order_optimizer(order, what->optimizer, err);
    if (code == PL_OK)
        code = pl_order_name(order, what->name, err);
    if (code == PL_OK)
        code = pl_reactor_post(trainer->engine->reactor, pl_order_give, order, err);
    if (code == PL_OK) {
        trainer->engine->calls++;
        return PL_OK;
    }
    pl_free(notification);
    pl_free(order);
    return code;
}

int pl_order_optimizer(pl_order_t *order, const char *optimizer, pl_error_t *err)
{
    const size_t length = optimizer ? strlen(optimizer) : 0;
    if (length >= sizeof order->optimizer)
        return pl_fail(err, PL_EINVAL,
                       "the name of an optimizer has %zu bytes: no optimizer has such a "
                       "long name",
                       length);
    memcpy(order->optimizer, optimizer ? optimizer : "", length + 1);
    return PL_OK;
}

/* A folder's name; "step=N" are those that have none. */
int pl_order_name(pl_order_t *order, const char *name, pl_error_t *err)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789_-.";
    const size_t length = name ? strlen(name) : 0;
    if (name
        && (!length || length >= sizeof order->name || strspn(name, allowed) < length))
        return pl_fail(err, PL_EINVAL,
                       "\"%.80s\" cannot be the name of a checkpoint: use 1 to %zu "
                       "letters, digits, '_', '-' and '.'",
                       name, sizeof order->name - 1);
    memcpy(order->name, name ? name : "", length + 1);
    return PL_OK;
}

int pl_trainer_pause(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                     pl_error_t *err)
{
    return order_post(trainer, &(pl_control_t){.command = PL_RUN_COMMAND_PAUSE},
                      on_command, user, err);
}

int pl_trainer_continue(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                        pl_error_t *err)
{
    return order_post(trainer, &(pl_control_t){.command = PL_RUN_COMMAND_CONTINUE},
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
    return order_post(trainer,
                      &(pl_control_t){.command = PL_RUN_COMMAND_SAVE, .name = name},
                      on_command, user, err);
}

int pl_trainer_set_lr(pl_trainer_t *trainer, double lr, const char *optimizer,
                      pl_on_command_t on_command, void *user, pl_error_t *err)
{
    const pl_control_t what = {.command = PL_RUN_COMMAND_SET_LR,
                               .value = lr,
                               .optimizer = optimizer};
    return order_post(trainer, &what, on_command, user, err);
}

int pl_trainer_scale_lr(pl_trainer_t *trainer, double factor, const char *optimizer,
                        pl_on_command_t on_command, void *user, pl_error_t *err)
{
    const pl_control_t what = {.command = PL_RUN_COMMAND_SET_LR,
                               .value = factor,
                               .is_factor = true,
                               .optimizer = optimizer};
    return order_post(trainer, &what, on_command, user, err);
}
