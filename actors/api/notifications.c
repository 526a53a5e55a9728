/* notifications.c - notifications on their way from the control thread to the
 * program's thread
 *
 * One queue for an engine, in order.  The program may not look for a long time: then a
 * trainer's newest report takes the place of its last one of the same sort, and of all
 * others only so many wait.  What ends something is never dropped. */
#include "actors/api/notifications.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

enum { REPORTS_MAX = 256 };                                 /* of a trainer */

int pl_notifications_init(pl_notifications_t *notifications, pl_error_t *err)
{
    pthread_mutex_init(&notifications->lock, NULL);
    notifications->first = NULL;
    notifications->last = &notifications->first;
    notifications->waiting = 0;
    notifications->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (notifications->fd >= 0)
        return PL_OK;
    return pl_fail(err, PL_EBUSY,
                   "no descriptor is left for an engine: raise the limit of open files "
                   "(ulimit -n)");
}

void pl_notifications_release(pl_notifications_t *notifications)
{
    if (!notifications->last)
        return;
    if (notifications->fd >= 0)
        close(notifications->fd);
    pthread_mutex_destroy(&notifications->lock);
}

void pl_notification_free(pl_notification_t *notification)
{
    pl_ending_release(&notification->ending);
    pl_free((char *)notification->progress.metrics);
    pl_free((char *)notification->result.checkpoint);
    pl_free(notification);
}

/* ---- In ---- */

static void wake(const pl_notifications_t *notifications)
{
    const uint64_t one = 1;
    while (write(notifications->fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

/* Under lock. */
static void append(pl_notifications_t *notifications, pl_notification_t *notification)
{
    notification->next = NULL;
    *notifications->last = notification;
    notifications->last = &notification->next;
    notifications->waiting++;
}

void pl_notifications_push(pl_notifications_t *notifications,
                           pl_notification_t *notification)
{
    pthread_mutex_lock(&notifications->lock);
    append(notifications, notification);
    pthread_mutex_unlock(&notifications->lock);
    wake(notifications);
}

/* Pieces of text are all wanted; they end with what the program asked for. */
static bool is_text(const pl_notification_t *notification)
{
    return notification->event == PL_RUN_EVENT_TEXT;
}

/* What an epoch or a validation came to, which nothing later says again. */
static bool is_result(const pl_notification_t *notification)
{
    return notification->event == PL_RUN_EVENT_VALIDATED
           || notification->event == PL_RUN_EVENT_EPOCH;
}

static bool replaces(const pl_notification_t *old, const pl_notification_t *new)
{
    return old && old->event == new->event && !is_text(new) && !is_result(new);
}

/* The trainer's oldest report, out of the queue.  Under lock. */
static pl_notification_t *drop_oldest(pl_notifications_t *notifications,
                                      const pl_reports_t *reports)
{
    pl_notification_t **next = &notifications->first, *old;
    while ((old = *next) && (old->reports != reports || is_text(old)))
        next = &old->next;
    if (!old)
        return NULL;
    *next = old->next;
    if (notifications->last == &old->next)
        notifications->last = next;
    notifications->waiting--;
    return old;
}

/* The note that is to be freed, or NULL.  Under lock. */
static pl_notification_t *add(pl_notifications_t *notifications,
                              pl_notification_t *notification)
{
    pl_reports_t *reports = notification->reports;
    pl_notification_t *dropped = NULL;
    if (replaces(reports->newest, notification)) {
        const pl_progress_t older = reports->newest->progress;
        reports->newest->progress = notification->progress;
        notification->progress = older;
        return notification;
    }
    if (!is_text(notification) && reports->unread == REPORTS_MAX)
        dropped = drop_oldest(notifications, reports);
    else
        reports->unread += !is_text(notification);
    append(notifications, notification);
    reports->newest = notification;
    return dropped;
}

static pl_notification_t *notification_of(const pl_run_progress_t *p)
{
    pl_notification_t *notification = pl_alloc(sizeof *notification);
    if (!notification)
        return NULL;
    notification->event = p->event;
    notification->progress = (pl_progress_t){.event = pl_run_event_names[p->event],
                                             .global_step = p->global_step,
                                             .total_steps = p->total_steps,
                                             .epoch = p->epoch,
                                             .batch = p->batch,
                                             .batches = p->batches,
                                             .metrics = pl_strdup(p->metrics)};
    if (notification->progress.metrics)
        return notification;
    pl_notification_free(notification);
    return NULL;
}

void pl_notifications_report(pl_notifications_t *notifications, pl_reports_t *reports,
                             pl_trainer_t *trainer, const pl_run_progress_t *report)
{
    pl_notification_t *notification = notification_of(report);
    if (!notification)
        return;
    notification->trainer = trainer;
    notification->reports = reports;
    pthread_mutex_lock(&notifications->lock);
    pl_notification_t *dropped = add(notifications, notification);
    pthread_mutex_unlock(&notifications->lock);
    if (dropped)
        pl_notification_free(dropped);
    wake(notifications);
}

/* ---- Out ---- */

/* Counted after it is quiet: a note that comes later than that wakes it again. */
int pl_notifications_quiet(pl_notifications_t *notifications)
{
    uint64_t count;
    while (read(notifications->fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
    pthread_mutex_lock(&notifications->lock);
    const int waiting = notifications->waiting;
    pthread_mutex_unlock(&notifications->lock);
    return waiting;
}

pl_notification_t *pl_notifications_take(pl_notifications_t *notifications)
{
    pthread_mutex_lock(&notifications->lock);
    pl_notification_t *notification = notifications->first;
    if (notification) {
        notifications->first = notification->next;
        notifications->waiting--;
        if (!notifications->first)
            notifications->last = &notifications->first;
    }
    pl_reports_t *reports = notification ? notification->reports : NULL;
    if (reports) {
        reports->unread -= !is_text(notification);
        if (reports->newest == notification)
            reports->newest = NULL;
    }
    pthread_mutex_unlock(&notifications->lock);
    return notification;
}
