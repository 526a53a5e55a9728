/* host.c - engines and trainers: the program's side and the control thread's
 *
 * The program's side posts functions to the control thread and receives notifications
 * (notifications.c); nothing else crosses. On the control thread the program is an actor
 * like others, the highest: its calls are those that the program requested. */
#include "actors/api/host.h"

#include <event2/event.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/launchers/bootstrap.h"
#include "actors/launchers/supervisor.h"
#include "actors/request.h"
#include "actors/trainer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "base/utf8.h"
#include "runtime/monitor.h"
#include "telemetry/control.h"

/* Its calls have no state: the answers have the trainer as context. */
static const pl_actor_ops_t host_ops = {.name = "host",
                                        .help = "the program",
                                        .size = 1,
                                        .level = PL_LEVEL_HOST,
                                        .handlers = (pl_handler_t[]){PL_HANDLERS_END}};

/* ---- The control thread ---- */

static void run_ended(pl_trainer_t *trainer, pl_outcome_t *outcome,
                      const pl_error_t *error)
{
    pl_notification_t *notification = trainer->done;
    pl_run_view_end(trainer->engine->view, trainer->run);
    trainer->run = 0;
    pl_commands_end(trainer);
    if (trainer->attached)
        trainer->attached->ended(trainer->attached, error);
    pl_ending_end(&notification->ending, outcome, error);
    pl_notifications_push(&trainer->engine->notifications, notification);
}

static void run_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_trainer_t *trainer = answer->context;
    pl_engine_t *engine = trainer->engine;
    if (answer->kind == PL_ANSWER_REPLY)
        run_ended(trainer, (pl_outcome_t *)answer->body->run_reply.outcome, NULL);
    if (answer->kind == PL_ANSWER_ERROR)
        run_ended(trainer, NULL, answer->error);
    if (answer->kind != PL_ANSWER_PROGRESS)
        return;
    const pl_run_progress_t *report = &answer->body->run_progress;
    trainer->state.has_begun |= report->global_step > 0;
    if (report->event == PL_RUN_EVENT_TRAIN)       /* ranks that restart are not paused */
        trainer->state.is_paused = false;
    pl_run_view_report(engine->view, trainer->run, report);
    pl_ending_note(&trainer->done->ending, report);
    if (trainer->attached)
        trainer->attached->reported(trainer->attached, report);
    else if (report->event != PL_RUN_EVENT_ALIVE)
        pl_notifications_report(&engine->notifications, trainer, report);
}

/* Ends the control thread when everything on it has ended. */
static void engine_end(void *argument)
{
    pl_engine_t *engine = argument;
    if (!engine->is_ending || engine->living
        || pl_worker_pool_ends(&engine->runtime, engine_end, engine))
        return;
    pl_requests_close(engine);
    pl_control_close(engine->control_server);
    engine->control_server = NULL;
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
    pl_commands_end(trainer);
    *trainer->living_pprev = trainer->next_living;
    if (trainer->next_living)
        trainer->next_living->living_pprev = trainer->living_pprev;
    pl_engine_t *engine = trainer->engine;
    if (trainer->is_leaving)             /* then the program's thread frees the trainer */
        pl_notifications_push(&engine->notifications, &trainer->gone);
    engine_end(engine);
}

/* What the program's thread posts to the control thread for a trainer. */
typedef struct posted {
    pl_trainer_t *trainer;
    pl_job_t *job;                                          /* to run */
    char *reason;                                           /* to stop for */
} posted_t;

static void posted_free(posted_t *posted)
{
    pl_object_unref(posted->job);
    pl_free(posted->reason);
    pl_free(posted);
}

static void run_posted(void *argument)
{
    posted_t *posted = argument;
    pl_trainer_t *trainer = posted->trainer;
    pl_engine_t *engine = trainer->engine;
    pl_error_t err = {0};
    const pl_run_t msg = {.job = &posted->job->object};
    const pl_how_t how = {.on_answer = run_answered, .context = trainer},
                   life_how = {.on_answer = trainer_ended, .context = trainer};
    trainer->state = (pl_run_state_t){.is_fit = pl_job_is_training(posted->job)};
    if (engine->is_ending) {
        pl_fail(&err, PL_ECANCELLED, "the engine is closing");
    } else if (!trainer->life) {                            /* its first run */
        trainer->life = pl_spawn(engine->host, &pl_trainer_actor, PL_SAME_THREAD,
                                 &(pl_start_t){.options = ""}, life_how, &trainer->actor,
                                 &err);
        if (trainer->life) {
            trainer->next_living = engine->living;
            trainer->living_pprev = &engine->living;
            if (engine->living)
                engine->living->living_pprev = &trainer->next_living;
            engine->living = trainer;
        }
    }
    if (err.code == PL_OK)
        trainer->run = pl_call_run(engine->host, trainer->actor, &msg, how, &err);
    if (trainer->run)
        pl_run_view_begin(engine->view, trainer->run);
    else
        run_ended(trainer, NULL, &err);
    posted_free(posted);
}

int pl_trainer_send_stop(pl_trainer_t *trainer, const char *reason, pl_error_t *err)
{
    char shown[128];           /* receivers have as much capacity, and do not change it */
    const pl_stop_t stop = {.reason = pl_utf8_show(reason, shown, sizeof shown)};
    trainer->state.is_stopping = true;
    return pl_call_stop(trainer->engine->host, trainer->actor, &stop, (pl_how_t){0}, err)
               ? PL_OK
               : err->code;
}

static void stop_posted(void *argument)
{
    posted_t *posted = argument;
    pl_error_t err;
    if (posted->trainer->run)
        pl_trainer_send_stop(posted->trainer, posted->reason, &err);
    posted_free(posted);
}

static void free_posted(void *argument)
{
    pl_trainer_t *trainer = argument;
    trainer->is_leaving = true;
    if (trainer->life)
        pl_cancel(trainer->engine->host, trainer->life);
    else
        pl_notifications_push(&trainer->engine->notifications, &trainer->gone);
}

static void close_posted(void *argument)
{
    pl_engine_t *engine = argument;
    engine->is_ending = true;
    for (pl_trainer_t *trainer = engine->living; trainer; trainer = trainer->next_living)
        pl_cancel(engine->host, trainer->life);
    engine_end(engine);
}

/* ---- Engines ---- */

static void engine_readable(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_engine_dispatch(user);
}

static void engine_release(pl_engine_t *engine)
{
    if (engine->readable)
        event_free(engine->readable);
    pl_dashboard_stop(engine->dashboard);
    pl_reactor_free(engine->reactor);
    if (engine->notifications.fd >= 0)
        close(engine->notifications.fd);
    pthread_mutex_destroy(&engine->notifications.lock);
    pl_monitor_stop(&engine->runtime);
    pl_dashboard_free(engine->dashboard);
    if (__atomic_load_n(&engine->runtime.stuck, __ATOMIC_ACQUIRE))
        return;                          /* a thread that cannot be ended still uses it */
    pl_runtime_release(&engine->runtime);
    pthread_mutex_destroy(&engine->requests.lock);
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
    const pl_bootstrap_t *script = pl_bootstrap_in_script();
    if (script)                 /* its threads and part of the stream are the program's */
        pl_bootstrap_enter(script, &engine->runtime);
    pthread_mutex_init(&engine->requests.lock, NULL);
    engine->requests.last = &engine->requests.first;
    pthread_mutex_init(&engine->notifications.lock, NULL);
    engine->notifications.last = &engine->notifications.first;
    engine->notifications.fd = -1;
    engine->closed_notification.kind = PL_NOTIFICATION_CLOSED;
    engine->view = pl_run_view_new(engine->runtime.began, err);
    int code = engine->view ? PL_OK : PL_ENOMEM;
    if (code == PL_OK) {
        engine->notifications.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (engine->notifications.fd < 0)
            code = pl_fail(err, PL_EBUSY,
                           "no descriptor is left for an engine: raise the limit of open "
                           "files (ulimit -n)");
    }
    if (code == PL_OK && base) {
        engine->readable = event_new(base, engine->notifications.fd, EV_READ | EV_PERSIST,
                                     engine_readable, engine);
        if (!engine->readable || event_add(engine->readable, NULL) != 0)
            code = pl_no_memory(err);
    }
    if (code == PL_OK && !(engine->reactor = pl_reactor_new(&engine->runtime, -1, err)))
        code = PL_ENOMEM;
    if (code == PL_OK)
        code = pl_actor_root(engine->reactor, &host_ops, &engine->host, err);
    if (code == PL_OK)
        code = pl_reactor_start(engine->reactor, "paceline", err);
    if (code == PL_OK)
        return engine;
    engine_release(engine);
    return NULL;
}

int pl_engine_fd(const pl_engine_t *engine)
{
    return engine ? engine->notifications.fd : -1;
}

int pl_engine_is_open(const pl_engine_t *engine, pl_error_t *err)
{
    const int code = pl_require(engine, "an engine", err);
    return code == PL_OK && engine->is_closing
               ? pl_fail(err, PL_ESTATE, "the engine is closing")
               : code;
}

/* For functions that cannot fail: memory may be out for a moment. */
static void post_surely(pl_engine_t *engine, void (*function)(void *), void *argument)
{
    while (pl_reactor_post(engine->reactor, function, argument, NULL) != PL_OK)
        usleep(1000);
}

void pl_engine_close(pl_engine_t *engine, void (*on_closed)(pl_engine_t *, void *),
                     void *user)
{
    if (!engine || engine->is_closing)
        return;
    engine->is_closing = true;
    engine->calls++;
    pl_dashboard_closing(engine->dashboard);
    engine->on_closed = on_closed;
    engine->closed_user = user;
    post_surely(engine, close_posted, engine);
}

void pl_engine_free(pl_engine_t *engine)
{
    if (!engine)
        return;
    for (pl_trainer_t *trainer = engine->trainers; trainer; trainer = trainer->next)
        trainer->is_freed = true;                           /* no more notifications */
    engine->on_closed = NULL;
    pl_engine_close(engine, NULL, NULL);
    while (!engine->has_closed)
        pl_engine_wait(engine);
    while (engine->trainers)
        pl_trainer_release(engine->trainers);
    engine_release(engine);
}

/* ---- Trainers ---- */

void pl_trainer_release(pl_trainer_t *trainer)
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

/* The trainers of an engine that is closing are freed with it. */
void pl_trainer_free(pl_trainer_t *trainer)
{
    if (!trainer || trainer->is_freed)
        return;
    trainer->is_freed = true;
    if (!trainer->engine->is_closing)
        post_surely(trainer->engine, free_posted, trainer);
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
    posted_t *posted = pl_alloc(sizeof *posted);
    pl_notification_t *done = pl_alloc(sizeof *done);
    int code = posted && done ? pl_request_check(job, err) : pl_no_memory(err);
    if (code == PL_OK) {
        *posted = (posted_t){.trainer = trainer, .job = job};
        *done = (pl_notification_t){.kind = PL_NOTIFICATION_DONE, .trainer = trainer};
        trainer->done = done;
        trainer->trains = pl_job_is_training(job);
        code = pl_reactor_post(trainer->engine->reactor, run_posted, posted, err);
    }
    if (code != PL_OK) {
        trainer->done = NULL;
        pl_free(done);
        pl_free(posted);
        pl_object_unref(job);
        return code;
    }
    trainer->on_done = on_done;
    trainer->done_user = user;
    trainer->is_running = true;
    trainer->engine->calls += !trainer->attached;
    return PL_OK;
}

int pl_trainer_stop(pl_trainer_t *trainer, const char *reason, pl_error_t *err)
{
    if (pl_require(trainer, "a trainer", err) != PL_OK)
        return PL_EINVAL;
    if (!trainer->is_running || trainer->engine->is_closing)
        return pl_fail(err, PL_ESTATE,
                       "this trainer is not running: there is nothing to stop");
    posted_t *posted = pl_alloc(sizeof *posted);
    if (!posted)
        return pl_no_memory(err);
    *posted = (posted_t){.trainer = trainer,
                         .reason = pl_strdup(
                             reason && *reason ? reason : "requested by the program")};
    if (posted->reason
        && pl_reactor_post(trainer->engine->reactor, stop_posted, posted, err) == PL_OK)
        return PL_OK;
    posted_free(posted);
    return pl_no_memory(err);
}
