/* host.h - the inside of an engine, for the files that implement paceline.h and for tests
 *
 * "Program's thread" is the thread that creates the engine and receives notifications.
 * The control thread is the engine's own; the program is an actor there, the highest. */
#ifndef PL_API_HOST_H
#define PL_API_HOST_H

#include <pthread.h>

#include "actors/result.h"
#include "runtime/payload.h"
#include "runtime/reactor.h"
#include "telemetry/commander.h"
#include "telemetry/dashboard.h"
#include "telemetry/run_view.h"

struct event;

/* ---- Notifications, from the control thread to the program's ---- */

typedef enum pl_notification_kind {
    PL_NOTIFICATION_PROGRESS,
    PL_NOTIFICATION_DONE,
    PL_NOTIFICATION_COMMAND,
    PL_NOTIFICATION_GONE,
    PL_NOTIFICATION_LOOP,
    PL_NOTIFICATION_CLOSED
} pl_notification_kind_t;

typedef struct pl_notification {
    pl_notification_kind_t kind;
    pl_trainer_t *trainer;
    struct pl_reports *reports;        /* of PROGRESS */
    pl_run_event_t event;              /* of PROGRESS */
    pl_progress_t progress;            /* metrics are the notification's own */
    pl_ending_t ending;                /* of DONE; filled in during the run */
    pl_command_result_t result;        /* of COMMAND; the checkpoint is the notification's
                                          own  [NULL: ""] */
    pl_on_command_t on_command;
    void *user;
    /* Of LOOP: calls the program if it is still interested, and frees the object that the
     * notification is part of. */
    void (*deliver)(struct pl_notification *notification, bool is_wanted);
    struct pl_notification *next;
} pl_notification_t;

/* A trainer's progress that the program has not read yet; under the queue's lock. */
typedef struct pl_reports {
    pl_notification_t *newest;                              /* [all are read] */
    int unread;                                             /* without texts */
} pl_reports_t;

typedef struct pl_notifications {
    pthread_mutex_t lock;
    pl_notification_t *first, **last;
    int waiting;                                 /* notifications in the queue */
    int fd;                                      /* eventfd: readable when there is one */
} pl_notifications_t;

/* ---- Commands ---- */

/* A request in JSON; the queue of those that are not carried out yet. */
typedef struct pl_request pl_request_t;

typedef struct pl_requests {
    pthread_mutex_t lock;
    pl_request_t *first, **last;
    bool closed;
} pl_requests_t;

/* A command to a run, until it is answered. */
typedef struct pl_command pl_command_t;

struct pl_command {
    pl_command_t *next, **pprev;                   /* list of the trainer's [not in it] */
    pl_trainer_t *trainer;
    pl_control_t what;
    char optimizer[128], name[65];
    uint64_t call;                                          /* [not made] */
    /* Receives the result, and takes ownership of its checkpoint. */
    void (*answer)(pl_command_t *command, const pl_command_result_t *result);
    pl_notification_t *notification;                        /* [of a JSON request] */
    pl_request_t *request;                                  /* [of the program] */
};

/* ---- Trainers and engines ---- */

/* What a manual loop adds to the run behind it. */
typedef struct pl_attached {
    /* Control thread: a report of the run; its end [NULL: without an error]. */
    void (*reported)(struct pl_attached *self, const pl_run_progress_t *report);
    void (*ended)(struct pl_attached *self, const pl_error_t *error);
    void (*release)(struct pl_attached *self);    /* program's thread, with the trainer */
    /* Program's thread: requests under way; their notifications come before the end of
     * the run. */
    int requests;
} pl_attached_t;

/* The state of a run, for `list` and for checks. */
typedef struct pl_run_state {
    bool is_fit, has_begun, is_paused, is_stopping;
} pl_run_state_t;

struct pl_trainer {
    pl_engine_t *engine;
    uint32_t number;                                        /* in the engine, from 1 */
    pl_options_t *options;
    pl_attached_t *attached;                                /* [none] */
    /* Program's thread. */
    pl_trainer_t *next, **pprev;                            /* list of the engine's */
    bool is_running, is_freed;
    bool trains;                                            /* the run is a fit */
    pl_on_done_t on_done;
    void *done_user;
    pl_on_progress_t on_progress;
    void *progress_user;
    /* Made beforehand, so that neither can fail: the end of the run; the end of the actor
     * after a free. */
    pl_notification_t *done;
    pl_notification_t gone;
    pl_reports_t reports;
    /* Control thread. */
    pl_address_t actor;                          /* [before the first run] */
    uint64_t life, run;                          /* open calls, 0 none */
    bool is_leaving;                             /* the program has freed it */
    pl_trainer_t *next_living, **living_pprev;   /* list of trainers that have an actor */
    pl_command_t *commands;                      /* under way */
    pl_run_state_t state;
};

struct pl_engine {
    pl_runtime_t runtime;
    pl_reactor_t *reactor;
    void *host;                                  /* the program's actor; control thread */
    pl_notifications_t notifications;
    pl_requests_t requests;
    pl_run_view_t *view;
    pl_dashboard_t *dashboard;                    /* [none] */
    struct pl_control_server *control_server;     /* accepts commands by ZeroMQ  [none] */
    /* Program's thread. */
    struct event *readable;                                 /* [no event base] */
    pl_trainer_t *trainers;
    uint32_t trainers_made;
    int calls;                                    /* calls whose notification has not been
                                                     delivered */
    bool is_closing, has_closed;
    bool is_delivering;                               /* the thread is in notifications */
    void (*on_closed)(pl_engine_t *engine, void *user);
    void *closed_user;
    pl_notification_t closed_notification;
    /* Control thread. */
    pl_trainer_t *living;
    bool is_ending;
};

/* ---- host.c ---- */

/* PL_EINVAL: there is no engine; PL_ESTATE: it is closing, and no notification might come
 * any more. */
int pl_engine_is_open(const pl_engine_t *engine, pl_error_t *err);
/* Runs a job, which it consumes, also on failure; the trainer must be idle. */
int pl_trainer_begin(pl_trainer_t *trainer, pl_job_t *job, pl_on_done_t on_done,
                     void *user, pl_error_t *err);
/* Control thread: stops the run under way. */
int pl_trainer_send_stop(pl_trainer_t *trainer, const char *reason, pl_error_t *err);
/* Program's thread: the actor has ended. */
void pl_trainer_release(pl_trainer_t *trainer);

/* ---- notifications.c ---- */

/* Cannot fail, so that no answer is lost: the notification is made beforehand. */
void pl_notifications_push(pl_notifications_t *notifications,
                           pl_notification_t *notification);
/* Queues a copy of the report, unless memory is out. */
void pl_notifications_report(pl_notifications_t *notifications, pl_trainer_t *trainer,
                             const pl_run_progress_t *report);
void pl_notification_free(void *notification);
/* Waits for notifications and delivers them. True: on_closed has come, and may have freed
 * the engine. */
bool pl_engine_wait(pl_engine_t *engine);

/* ---- commands.c ---- */

/* Any thread: checks the value; sets the objective whose optimizer is meant [NULL: all];
 * sets the name of a save [NULL: named after its step]. */
int pl_command_check(const pl_command_t *command, pl_error_t *err);
int pl_command_set_optimizer(pl_command_t *command, const char *optimizer,
                             pl_error_t *err);
int pl_command_set_name(pl_command_t *command, const char *name, pl_error_t *err);
/* Control thread: sends a command, which it consumes, to its run. */
void pl_command_send(void *command);
/* Control thread: the run has ended; answers its commands with an error. */
void pl_commands_end(pl_trainer_t *trainer);

/* ---- json_commands.c ---- */

/* Through which the runs take commands from other programs and the page. */
pl_commander_t pl_engine_commander(pl_engine_t *engine);
/* Control thread: answers all requests with an error; later ones are refused. */
void pl_requests_close(pl_engine_t *engine);

#endif
