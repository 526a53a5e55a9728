/* host.c - the engine as the program sees it: a control thread below, notifications above
 *
 * The program's side posts commands to the control thread and gets notifications by one
 * eventfd; nothing else crosses. On the control thread the program is an actor like
 * others, the highest: its calls are what the program asked for. */
#include "actors/api/host.h"

#include <event2/event.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "actors/launchers/worker_pool.h"
#include "actors/request.h"
#include "actors/result.h"
#include "actors/trainer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "base/utf8.h"
#include "runtime/payload.h"
#include "runtime/monitor.h"
#include "runtime/reactor.h"
#include "telemetry/control.h"
#include "telemetry/dashboard.h"

typedef struct host {
    pl_engine_t *engine;
} host_t;

static const pl_actor_ops_t host_ops = {.name = "host",
                                        .help = "the program",
                                        .size = sizeof(host_t),
                                        .level = PL_LEVEL_HOST,
                                        .handlers = (pl_handler_t[]){PL_HANDLERS_END}};

/* ---- the control thread ---- */

static void run_ended(pl_trainer_t *trainer, pl_outcome_t *outcome,
                      const pl_error_t *error)
{
    pl_notification_t *notification = trainer->done;
    pl_run_view_end(trainer->engine->view, trainer->run);
    trainer->run = 0;
    pl_orders_end(trainer);
    if (trainer->attached)
        trainer->attached->ended(trainer->attached, error);
    pl_ending_end(&notification->ending, outcome, error);
    pl_notifications_push(&trainer->engine->notifications, notification);
}

static void run_reported(pl_trainer_t *trainer, const pl_run_progress_t *report)
{
    trainer->standing.has_begun |= report->global_step > 0;
    if (report->event == PL_RUN_EVENT_TRAIN)      /* one that began anew does not pause */
        trainer->standing.is_paused = false;
    pl_run_view_report(trainer->engine->view, trainer->run, report);
    pl_ending_note(&trainer->done->ending, report);
    if (trainer->attached)
        trainer->attached->reported(trainer->attached, report);
    else if (report->event != PL_RUN_EVENT_ALIVE)
        pl_notifications_report(&trainer->engine->notifications, &trainer->reports,
                                trainer, report);
}

static void run_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_trainer_t *trainer = answer->context;
    if (answer->kind == PL_ANSWER_PROGRESS)
        run_reported(trainer, &answer->body->run_progress);
    else if (answer->kind == PL_ANSWER_REPLY)
        run_ended(trainer, (pl_outcome_t *)answer->body->run_reply.outcome, NULL);
    else if (answer->kind == PL_ANSWER_ERROR)
        run_ended(trainer, NULL, answer->error);
}

static void engine_end(void *argument)
{
    pl_engine_t *engine = argument;
    if (!engine->ending || engine->living
        || pl_worker_pool_ends(&engine->runtime, engine_end, engine))
        return;
    pl_requests_close(&engine->requests);
    pl_control_close(engine->desk);
    engine->desk = NULL;
    pl_reactor_leave(engine->reactor);
    pl_notifications_push(&engine->notifications, &engine->closed_notification);
}

static void trainer_ended(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_trainer_t *trainer = answer->context;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    trainer->life = 0;
    pl_orders_end(trainer);
    *trainer->living_pprev = trainer->next_living;
    if (trainer->next_living)
        trainer->next_living->living_pprev = trainer->living_pprev;
    pl_engine_t *engine = trainer->engine;        /* the trainer may be gone after that */
    if (trainer->leaving)
        pl_notifications_push(&engine->notifications, &trainer->gone);
    engine_end(engine);
}

static bool trainer_spawn(pl_trainer_t *trainer, pl_error_t *err)
{
    pl_how_t how = {.on_answer = trainer_ended, .context = trainer};
    if (trainer->life)
        return true;
    pl_engine_t *engine = trainer->engine;
    trainer->life = pl_spawn(engine->host, &pl_trainer_actor, PL_SAME_THREAD,
                             &(pl_start_t){.options = ""}, how, &trainer->actor, err);
    if (!trainer->life)
        return false;
    trainer->next_living = engine->living;
    trainer->living_pprev = &engine->living;
    if (engine->living)
        engine->living->living_pprev = &trainer->next_living;
    engine->living = trainer;
    return true;
}

/* What a posted command needs; freed by the command. */
typedef struct command {
    pl_trainer_t *trainer;
    pl_job_t *job;
    char *reason;
} command_t;

static void command_free(command_t *command)
{
    pl_object_unref(command->job);
    pl_free(command->reason);
    pl_free(command);
}

static void command_run(void *argument)
{
    command_t *command = argument;
    pl_trainer_t *trainer = command->trainer;
    pl_error_t err = {0};
    pl_how_t how = {.on_answer = run_answered, .context = trainer};
    trainer->standing = (pl_standing_t){.is_fit = pl_job_is_training(command->job)};
    if (trainer->engine->ending)
        pl_fail(&err, PL_ECANCELLED, "the engine is closing");
    else if (trainer_spawn(trainer, &err))
        trainer->run = pl_call_run(trainer->engine->host, trainer->actor,
                                   &(pl_run_t){.job = &command->job->object}, how, &err);
    if (trainer->run)
        pl_run_view_begin(trainer->engine->view, trainer->run);
    else
        run_ended(trainer, NULL, &err);
    command_free(command);
}

/* Whoever hears the reason has room for so much of it, and takes it as it is. */
int pl_trainer_tell_stop(pl_trainer_t *trainer, const char *reason, pl_error_t *err)
{
    char received[128];
    const pl_stop_t stop = {.reason = pl_utf8_show(reason, received, sizeof received)};
    trainer->standing.is_stopping = true;
    return pl_call_stop(trainer->engine->host, trainer->actor, &stop, (pl_how_t){0}, err)
               ? PL_OK
               : err->code;
}

static void command_stop(void *argument)
{
    command_t *command = argument;
    pl_error_t err;
    if (command->trainer->run)
        pl_trainer_tell_stop(command->trainer, command->reason, &err);
    command_free(command);
}

static void command_leave(void *argument)
{
    pl_trainer_t *trainer = argument;
    trainer->leaving = true;
    if (trainer->life)
        pl_cancel(trainer->engine->host, trainer->life);
    else
        pl_notifications_push(&trainer->engine->notifications, &trainer->gone);
}

static void command_close(void *argument)
{
    pl_engine_t *engine = argument;
    engine->ending = true;
    for (pl_trainer_t *trainer = engine->living; trainer; trainer = trainer->next_living)
        pl_cancel(engine->host, trainer->life);
    engine_end(engine);
}

/* ---- engines ---- */

static void engine_readable(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_engine_dispatch(user);
}

static int engine_open(pl_engine_t *engine, struct event_base *base, pl_error_t *err)
{
    if (pl_notifications_init(&engine->notifications, err) != PL_OK)
        return PL_EBUSY;
    if (base) {
        engine->readable = event_new(base, engine->notifications.fd, EV_READ | EV_PERSIST,
                                     engine_readable, engine);
        if (!engine->readable || event_add(engine->readable, NULL) != 0)
            return pl_no_memory(err);
    }
    engine->reactor = pl_reactor_new(&engine->runtime, -1, err);
    if (!engine->reactor)
        return PL_ENOMEM;
    int code = pl_actor_root(engine->reactor, &host_ops, &engine->host, err);
    if (code != PL_OK)
        return code;
    ((host_t *)engine->host)->engine = engine;
    return pl_reactor_start(engine->reactor, "paceline", err);
}

static void engine_release(pl_engine_t *engine)
{
    if (engine->readable)
        event_free(engine->readable);
    pl_dashboard_stop(engine->dashboard);
    pl_reactor_free(engine->reactor);
    pl_notifications_release(&engine->notifications);
    pl_monitor_stop(&engine->runtime);
    pl_dashboard_free(engine->dashboard);
    if (__atomic_load_n(&engine->runtime.stuck, __ATOMIC_ACQUIRE))
        return;                          /* a thread that cannot be ended still uses it */
    pl_runtime_release(&engine->runtime);
    pl_requests_release(&engine->requests);
    pl_run_view_free(engine->view);
    pl_free(engine);
}

pl_engine_t *pl_engine_new(struct event_base *base, pl_error_t *err)
{
    pl_engine_t *engine = pl_alloc(sizeof *engine);
    if (!engine || pl_runtime_init(&engine->runtime, err) != PL_OK) {
        if (!engine)
            pl_no_memory(err);
        pl_free(engine);
        return NULL;
    }
    pl_worker_pool_enter(&engine->runtime);
    pl_requests_init(&engine->requests);
    engine->view = pl_run_view_new(engine->runtime.began, err);
    engine->closed_notification.kind = PL_NOTIFICATION_CLOSED;
    if (engine->view && engine_open(engine, base, err) == PL_OK)
        return engine;
    engine_release(engine);
    return NULL;
}

pl_runtime_t *pl_engine_runtime(pl_engine_t *engine)
{
    return &engine->runtime;
}

pl_inside_t pl_trainer_attach(pl_trainer_t *trainer, pl_attached_t *attached)
{
    pl_engine_t *engine = trainer->engine;
    trainer->attached = attached;
    return (pl_inside_t){engine, engine->reactor, engine->host, &engine->notifications};
}

int pl_engine_fd(const pl_engine_t *engine)
{
    return engine ? engine->notifications.fd : -1;
}

int pl_engine_is_open(const pl_engine_t *engine, pl_error_t *err)
{
    const int code = pl_require(engine, "an engine", err);
    return code == PL_OK && engine->closing
               ? pl_fail(err, PL_ESTATE, "the engine is closing")
               : code;
}

/* For what must not fail: memory may be out for a moment. */
static void post_surely(pl_engine_t *engine, void (*command)(void *), void *argument)
{
    while (pl_reactor_post(engine->reactor, command, argument, NULL) != PL_OK)
        usleep(1000);
}

void pl_engine_close(pl_engine_t *engine, void (*on_closed)(pl_engine_t *, void *),
                     void *user)
{
    if (!engine || engine->closing)
        return;
    engine->closing = true;
    engine->calls++;
    pl_dashboard_closing(engine->dashboard);
    engine->on_closed = on_closed;
    engine->closed_user = user;
    post_surely(engine, command_close, engine);
}

/* ---- trainers ---- */

static void trainer_release(pl_trainer_t *trainer)
{
    *trainer->pprev = trainer->next;
    if (trainer->next)
        trainer->next->pprev = trainer->pprev;
    if (trainer->done)
        pl_notification_free(trainer->done);
    if (trainer->attached)
        trainer->attached->release(trainer->attached);
    pl_options_free(trainer->options);
    pl_free(trainer);
}

pl_trainer_t *pl_trainer_new(pl_engine_t *engine, const pl_options_t *options,
                             pl_error_t *err)
{
    if (pl_engine_is_open(engine, err) != PL_OK
        || pl_options_check(options, err) != PL_OK)
        return NULL;
    pl_trainer_t *trainer = pl_alloc(sizeof *trainer);
    pl_options_t *copy = trainer ? pl_options_clone(options, err) : NULL;
    if (!copy) {
        if (!trainer)
            pl_no_memory(err);
        pl_free(trainer);
        return NULL;
    }
    *trainer = (pl_trainer_t){.gone = {.kind = PL_NOTIFICATION_GONE, .trainer = trainer},
                              .engine = engine,
                              .number = ++engine->trainers_made,
                              .options = copy,
                              .next = engine->trainers,
                              .pprev = &engine->trainers};
    if (engine->trainers)
        engine->trainers->pprev = &trainer->next;
    engine->trainers = trainer;
    return trainer;
}

void pl_trainer_free(pl_trainer_t *trainer)
{
    if (!trainer || trainer->freed)
        return;
    trainer->freed = true;
    if (!trainer->engine->closing)
        post_surely(trainer->engine, command_leave, trainer);  /* otherwise it goes
                                                                  with the engine */
}

void pl_trainer_on_progress(pl_trainer_t *trainer, pl_on_progress_t on_progress,
                            void *user)
{
    if (!trainer)
        return;
    trainer->on_progress = on_progress;
    trainer->progress_user = user;
}

int pl_trainer_begin(pl_trainer_t *trainer, pl_job_t *job, pl_on_done_t on_done,
                     void *user, pl_error_t *err)
{
    command_t *command = pl_alloc(sizeof *command);
    pl_notification_t *done = pl_alloc(sizeof *done);
    int code = command && done ? pl_request_check(job, err) : pl_no_memory(err);
    if (code == PL_OK) {
        *command = (command_t){.trainer = trainer, .job = job};
        *done = (pl_notification_t){.kind = PL_NOTIFICATION_DONE, .trainer = trainer};
        trainer->done = done;
        trainer->trains = pl_job_is_training(job);
        code = pl_reactor_post(trainer->engine->reactor, command_run, command, err);
    }
    if (code != PL_OK) {
        trainer->done = NULL;
        pl_free(done);
        pl_free(command);
        pl_object_unref(job);
        return code;
    }
    trainer->on_done = on_done;
    trainer->done_user = user;
    trainer->running = true;
    trainer->engine->calls += !trainer->attached;
    return PL_OK;
}

int pl_trainer_stop(pl_trainer_t *trainer, const char *reason, pl_error_t *err)
{
    if (pl_require(trainer, "a trainer", err) != PL_OK)
        return PL_EINVAL;
    if (!trainer->running || trainer->engine->closing)
        return pl_fail(err, PL_ESTATE,
                       "this trainer is not running: there is nothing to stop");
    command_t *command = pl_alloc(sizeof *command);
    if (!command)
        return pl_no_memory(err);
    *command = (command_t){.trainer = trainer,
                           .reason = pl_strdup(
                               reason && *reason ? reason : "requested by the program")};
    if (command->reason
        && pl_reactor_post(trainer->engine->reactor, command_stop, command, err) == PL_OK)
        return PL_OK;
    command_free(command);
    return pl_no_memory(err);
}

/* ---- dispatch ---- */

static void command_reported(const pl_notification_t *notification)
{
    pl_command_result_t result = notification->result;
    if (!result.checkpoint)
        result.checkpoint = "";
    notification->on_command(notification->trainer, &result, notification->user);
}

static void ending_free(void *user)
{
    pl_notification_free(user);
}

/* With it may go the last reference to a run's weights, whose pages take the system a
 * while: not the program's. */
static void ending_give_back(pl_engine_t *engine, pl_notification_t *notification)
{
    if (engine->closing
        || pl_reactor_post(engine->reactor, ending_free, notification, NULL) != PL_OK)
        pl_notification_free(notification);
}

static void notification_deliver(pl_engine_t *engine, pl_notification_t *notification)
{
    pl_trainer_t *trainer = notification->trainer;
    switch (notification->kind) {
    case PL_NOTIFICATION_PROGRESS:
        if (!trainer->freed && trainer->on_progress)
            trainer->on_progress(trainer, &notification->progress,
                                 trainer->progress_user);
        pl_notification_free(notification);
        return;
    case PL_NOTIFICATION_DONE:
        if (trainer->attached && !engine->closing
            && trainer->attached->waits(trainer->attached)) {
            pl_notifications_push(&engine->notifications, notification);
            return;
        }
        engine->calls -= !trainer->attached;
        trainer->running = false;            /* a new run may begin from inside on_done */
        trainer->done = NULL;
        if (!trainer->freed && trainer->on_done)
            pl_result_tell(&notification->ending, trainer, trainer->on_done,
                           trainer->done_user);
        ending_give_back(engine, notification);
        return;
    case PL_NOTIFICATION_COMMAND:
        engine->calls--;
        if (!trainer->freed && notification->on_command)
            command_reported(notification);
        pl_notification_free(notification);
        return;
    case PL_NOTIFICATION_GONE: trainer_release(trainer); return;
    case PL_NOTIFICATION_CALLBACK:
        notification->tell(notification, !trainer->freed);
        return;
    case PL_NOTIFICATION_CLOSED:
        pl_reactor_join(engine->reactor);         /* the dashboard may still ask for it */
        engine->closed = true;
        engine->calls--;
        engine->is_reporting = false;
        if (engine->on_closed)
            engine->on_closed(engine, engine->closed_user);  /* may free the engine */
        return;
    }
}

/* Delivers what waits. True: on_closed has come, and may have freed the engine. */
static bool engine_deliver(pl_engine_t *engine)
{
    const bool was_reporting = engine->is_reporting;
    engine->is_reporting = true;
    int left = pl_notifications_quiet(&engine->notifications);
    for (pl_notification_t *notification;
         left-- > 0 && (notification = pl_notifications_take(&engine->notifications));) {
        const bool has_closed = notification->kind == PL_NOTIFICATION_CLOSED;
        notification_deliver(engine, notification);
        if (has_closed)
            return true;
    }
    engine->is_reporting = was_reporting;
    return false;
}

void pl_engine_dispatch(pl_engine_t *engine)
{
    if (engine)
        engine_deliver(engine);
}

static bool engine_wait(pl_engine_t *engine)
{
    struct pollfd readable = {.fd = engine->notifications.fd, .events = POLLIN};
    poll(&readable, 1, -1);
    return engine_deliver(engine);
}

int pl_engine_run_until(pl_engine_t *engine, const bool *done, pl_error_t *err)
{
    if (pl_require(engine, "an engine", err) != PL_OK)
        return PL_EINVAL;
    if (engine->readable)
        return pl_fail(
            err, PL_ESTATE,
            "the loop of the engine's event base delivers its notifications: run that "
            "loop");
    if (engine->is_reporting)
        return pl_fail(err, PL_ESTATE,
                       "a notification must not wait for others: return from it first");
    const bool was_closing = engine->closing;
    bool has_closed = false;
    while (!has_closed && engine->calls && !(done && *done))
        has_closed = engine_wait(engine);
    if (done ? *done : was_closing || !has_closed)
        return PL_OK;
    if (has_closed)
        return pl_fail(err, PL_ECANCELLED, "a notification closed the engine");
    return pl_fail(err, PL_ESTATE,
                   "no call is under way, so no notification can set *done");
}

void pl_engine_free(pl_engine_t *engine)
{
    if (!engine)
        return;
    for (pl_trainer_t *trainer = engine->trainers; trainer; trainer = trainer->next)
        trainer->freed = true;                              /* no more notifications */
    engine->on_closed = NULL;
    pl_engine_close(engine, NULL, NULL);
    while (!engine->closed)
        engine_wait(engine);
    while (engine->trainers)
        trainer_release(engine->trainers);
    engine_release(engine);
}
