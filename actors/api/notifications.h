/* notifications.h - notifications on their way from the control thread to the
 * program's thread */
#ifndef PL_NOTIFICATIONS_H
#define PL_NOTIFICATIONS_H

#include <pthread.h>

#include "actors/result.h"

typedef enum pl_notification_kind {
    PL_NOTIFICATION_PROGRESS,
    PL_NOTIFICATION_DONE,
    PL_NOTIFICATION_COMMAND,
    PL_NOTIFICATION_GONE,
    PL_NOTIFICATION_CALLBACK,
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
    /* Of CALLBACK: calls the program, unless it gave no function, and frees what the
     * notification is part of. */
    void (*tell)(struct pl_notification *notification, bool wanted);
    struct pl_notification *next;
} pl_notification_t;

/* A trainer's progress that the program has not read yet; under the queue's lock. */
typedef struct pl_reports {
    pl_notification_t *newest;                              /* [all are read] */
    int unread;                                             /* but for texts */
} pl_reports_t;

typedef struct pl_notifications {
    pthread_mutex_t lock;
    pl_notification_t *first, **last;
    int waiting;                                 /* notifications in the queue */
    int fd;                                      /* eventfd: readable when there is one */
} pl_notifications_t;

/* Release may follow a failed init, or a zeroed struct. */
int pl_notifications_init(pl_notifications_t *notifications, pl_error_t *err);
void pl_notifications_release(pl_notifications_t *notifications);

/* Cannot fail, so that nothing is lost that must be reported: the notification is made
 * beforehand. */
void pl_notifications_push(pl_notifications_t *notifications,
                           pl_notification_t *notification);
/* A copy of the report; when memory is out it is missed. */
void pl_notifications_report(pl_notifications_t *notifications, pl_reports_t *reports,
                             pl_trainer_t *trainer, const pl_run_progress_t *report);

/* Program's thread: the descriptor is not readable until the next notification comes,
 * and so many wait already; the oldest notification, or NULL. */
int pl_notifications_quiet(pl_notifications_t *notifications);
pl_notification_t *pl_notifications_take(pl_notifications_t *notifications);

void pl_notification_free(pl_notification_t *notification);

#endif
