/* host.h - the inside of an engine: first what tests and the manual loop use, then what
 * the files of the host share */
#ifndef PL_API_HOST_H
#define PL_API_HOST_H

#include "actors/api/notifications.h"
#include "runtime/payload.h"
#include "runtime/reactor.h"
#include "telemetry/commander.h"
#include "telemetry/dashboard.h"
#include "telemetry/run_view.h"

/* What all threads of an engine share.  To be changed only before its first trainer
 * runs. */
pl_runtime_t *pl_engine_runtime(pl_engine_t *engine);

/* Through which its runs take commands from elsewhere, such as a page's buttons. */
pl_commander_t pl_engine_commander(pl_engine_t *engine);

/* Receives the reports of a trainer's run in the program's place. */
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

/* ---- Among the files of the host ---- */

struct event;

/* A request in JSON; the list of those not yet read. */
typedef struct pl_request pl_request_t;

typedef struct pl_requests {
    pthread_mutex_t lock;
    pl_request_t *first, **last;
    bool closed;
} pl_requests_t;

/* A command to a run, until it is answered. */
typedef struct pl_order pl_order_t;

struct pl_order {
    pl_order_t *next, **pprev;                     /* list of the trainer's [not in it] */
    pl_trainer_t *trainer;
    pl_control_t what;
    char optimizer[128], name[65];
    uint64_t call;                                          /* [not made] */
    /* With what came of it, whose checkpoint is the callee's to free. */
    void (*answer)(pl_order_t *order, const pl_command_result_t *result);
    pl_notification_t *notification;                 /* of the program's  [a request's] */
    pl_request_t *request;
};

/* The state of a run, for `list` and for checks. */
typedef struct pl_standing {
    bool is_fit, has_begun, is_paused, is_stopping;
} pl_standing_t;

struct pl_trainer {
    pl_engine_t *engine;
    uint32_t number;                                        /* in the engine, from 1 */
    pl_options_t *options;
    pl_trainer_t *next, **pprev;       /* list of the engine's; host's thread */
    bool running, freed;               /* host's thread */
    pl_notification_t *done;           /* made with the run, so that its end can always be
                                          told */
    pl_notification_t gone;            /* the actor has ended after a free */
    pl_reports_t reports;
    pl_on_done_t on_done;
    void *done_user;
    pl_on_progress_t on_progress;
    void *progress_user;
    pl_address_t actor;                         /* control thread; nobody before the
                                                   first run */
    uint64_t life, run;                         /* control thread: open calls, 0 none */
    bool leaving;                               /* control thread: freed by the host */
    pl_attached_t *attached;                    /* [none] */
    pl_trainer_t *next_living, **living_pprev;  /* control thread: list of those with an
                                                   actor */
    bool trains;                                /* host's thread: it is a fit that runs */
    pl_order_t *orders;                         /* control thread: commands under way */
    pl_standing_t standing;                     /* control thread */
};

struct pl_engine {
    pl_runtime_t runtime;
    pl_reactor_t *reactor;
    void *host;                             /* the host actor; control thread */
    pl_trainer_t *trainers;                 /* host's thread */
    bool closing, closed;                   /* host's thread */
    bool is_reporting;                      /* host's thread, which is in notifications */
    int calls;                              /* host's thread: the program's calls whose
                                               notification has not been delivered */
    pl_trainer_t *living;                   /* control thread */
    bool ending;                            /* control thread */
    void (*on_closed)(pl_engine_t *engine, void *user);
    void *closed_user;
    pl_notification_t closed_notification;
    pl_notifications_t notifications;
    struct event *readable;
    pl_dashboard_t *dashboard;                              /* [none] */
    uint32_t trainers_made;                                 /* host's thread */
    pl_requests_t requests;
    pl_run_view_t *view;
    struct pl_control_desk *desk;                           /* [none requested] */
};

/* ---- host.c ---- */

/* Control thread: of a run that is under way. */
int pl_trainer_tell_stop(pl_trainer_t *trainer, const char *reason, pl_error_t *err);

/* ---- commands.c ---- */

/* Any thread: whether its value is one; the name of a step's optimizer [NULL: all]; what
 * it is saved as [NULL: after its step]. */
int pl_order_check(const pl_order_t *order, pl_error_t *err);
int pl_order_optimizer(pl_order_t *order, const char *optimizer, pl_error_t *err);
int pl_order_name(pl_order_t *order, const char *name, pl_error_t *err);
/* Control thread: consumes the order. */
void pl_order_give(void *order);
/* Control thread: the run has ended, and what was not answered is, with that. */
void pl_orders_end(pl_trainer_t *trainer);

/* ---- json_commands.c ---- */

void pl_requests_init(pl_requests_t *requests);
/* Control thread: none is taken any more. */
void pl_requests_close(pl_requests_t *requests);
/* Of a zeroed one, too. */
void pl_requests_release(pl_requests_t *requests);

#endif
