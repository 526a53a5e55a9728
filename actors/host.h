/* host.h - what is inside an engine, for tests and what is started with one: programs see
 * paceline.h only */
#ifndef PL_ACTORS_HOST_H
#define PL_ACTORS_HOST_H

#include "actors/notifications.h"
#include "runtime/payload.h"
#include "runtime/reactor.h"
#include "telemetry/commander.h"

/* What all threads of an engine share.  To be changed only before its first trainer
 * runs. */
pl_runtime_t *pl_engine_runtime(pl_engine_t *engine);

/* Through which its runs take commands from elsewhere, such as a page's buttons. */
pl_commander_t pl_engine_commander(pl_engine_t *engine);

/* Who hears of a trainer's run in the program's place. */
typedef struct pl_attached {
    /* Control thread: each report, and that the run is over [NULL: it went well]. */
    void (*reported)(struct pl_attached *self, const pl_run_progress_t *report);
    void (*ended)(struct pl_attached *self, const pl_error_t *error);
    /* Program's thread: whether the end of the run is to be told later, as something
     * else is to be told first. */
    bool (*waits)(const struct pl_attached *self);
    void (*release)(struct pl_attached *self);    /* program's thread, with the trainer */
} pl_attached_t;

/* What it needs to make calls of its own. */
typedef struct pl_inside {
    const pl_engine_t *engine;
    pl_reactor_t *reactor;                                /* of the control thread */
    void *host;                                           /* the actor there that calls */
    pl_notifications_t *notifications;
} pl_inside_t;

/* PL_EINVAL: there is no engine; PL_ESTATE: it is closing, and what is asked for might
 * never be told of. */
int pl_engine_is_open(const pl_engine_t *engine, pl_error_t *err);

/* Before the trainer runs; once. */
pl_inside_t pl_trainer_attach(pl_trainer_t *trainer, pl_attached_t *attached);
/* Runs a job, which it consumes, also on failure; the trainer must be idle. */
int pl_trainer_begin(pl_trainer_t *trainer, pl_job_t *job, pl_on_done_t on_done,
                     void *user, pl_error_t *err);

#endif
