/* notifications.c - the queue of notifications, and their delivery on the program's
 * thread
 *
 * One queue for an engine, in order. The program may not read it for a long time. Then a
 * trainer's newest report replaces the previous one of the same event, and only a limited
 * number of others stay in the queue. An answer to a call is never dropped. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "actors/api/host.h"
#include "base/alloc.h"
#include "base/error.h"

enum { REPORTS_MAX = 256 };                                 /* of a trainer */

/* Any thread; notifications of loops are freed by deliver(). */
void pl_notification_free(void *self)
{
    pl_notification_t *notification = self;
    pl_ending_release(&notification->ending);
    pl_free((char *)notification->progress.metrics);
    pl_free((char *)notification->result.checkpoint);
    pl_free(notification);
}

/* ---- Control thread ---- */

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

/* Under lock. Returns a notification to free, or NULL: an older report of the trainer
 * that this one replaces. No later report repeats the result of an epoch, a validation
 * or a trial, so these are replaced only when there are too many. Pieces of text are
 * never dropped. */
static pl_notification_t *report_append(pl_notifications_t *notifications,
                                        pl_notification_t *notification)
{
    pl_reports_t *reports = notification->reports;
    const pl_run_event_t event = notification->event;
    const bool is_text = event == PL_RUN_EVENT_TEXT,
               is_result = event == PL_RUN_EVENT_VALIDATED || event == PL_RUN_EVENT_EPOCH
                           || event == PL_RUN_EVENT_TRIAL;
    pl_notification_t *newest = reports->newest, *dropped = NULL;
    if (newest && !is_text && !is_result && newest->event == event) {
        const pl_progress_t older = newest->progress;
        newest->progress = notification->progress;
        notification->progress = older;
        return notification;
    }
    if (!is_text && reports->unread == REPORTS_MAX) {
        pl_notification_t **at = &notifications->first;
        while ((dropped = *at)
               && (dropped->reports != reports || dropped->event == PL_RUN_EVENT_TEXT))
            at = &dropped->next;
        if (dropped) {
            *at = dropped->next;
            if (notifications->last == &dropped->next)
                notifications->last = at;
            notifications->waiting--;
        }
    } else {
        reports->unread += !is_text;
    }
    append(notifications, notification);
    reports->newest = notification;
    return dropped;
}

void pl_notifications_report(pl_notifications_t *notifications, pl_trainer_t *trainer,
                             const pl_run_progress_t *report)
{
    pl_notification_t *notification = pl_alloc(sizeof *notification);
    if (!notification)
        return;
    *notification =
        (pl_notification_t){.kind = PL_NOTIFICATION_PROGRESS,
                            .trainer = trainer,
                            .reports = &trainer->reports,
                            .event = report->event,
                            .progress = {.event = pl_run_event_names[report->event],
                                         .global_step = report->global_step,
                                         .total_steps = report->total_steps,
                                         .epoch = report->epoch,
                                         .batch = report->batch,
                                         .batches = report->batches,
                                         .metrics = pl_strdup(report->metrics)}};
    pl_notification_t *dropped = notification;
    if (notification->progress.metrics) {
        pthread_mutex_lock(&notifications->lock);
        dropped = report_append(notifications, notification);
        pthread_mutex_unlock(&notifications->lock);
        wake(notifications);
    }
    if (dropped)
        pl_notification_free(dropped);
}

/* ---- Program's thread ---- */

static void deliver(pl_engine_t *engine, pl_notification_t *notification)
{
    pl_trainer_t *trainer = notification->trainer;
    switch (notification->kind) {
    case PL_NOTIFICATION_PROGRESS:
        if (!trainer->is_freed && trainer->on_progress)
            trainer->on_progress(trainer, &notification->progress,
                                 trainer->progress_user);
        pl_notification_free(notification);
        return;
    case PL_NOTIFICATION_DONE:
        if (trainer->attached && trainer->attached->requests && !engine->is_closing) {
            pl_notifications_push(&engine->notifications, notification);
            return;
        }
        engine->calls -= !trainer->attached;
        trainer->is_running = false;         /* a new run may begin from inside on_done */
        trainer->done = NULL;
        if (!trainer->is_freed && trainer->on_done)
            pl_result_tell(&notification->ending, trainer, trainer->on_done,
                           trainer->done_user);
        /* This may be the last reference to a run's weights. The system takes a while to
         * free their pages, so another thread does it. */
        if (engine->is_closing
            || pl_reactor_post(engine->reactor, pl_notification_free, notification, NULL)
                   != PL_OK)
            pl_notification_free(notification);
        return;
    case PL_NOTIFICATION_COMMAND:
        engine->calls--;
        if (!trainer->is_freed && notification->on_command) {
            pl_command_result_t result = notification->result;
            if (!result.checkpoint)
                result.checkpoint = "";
            notification->on_command(trainer, &result, notification->user);
        }
        pl_notification_free(notification);
        return;
    case PL_NOTIFICATION_GONE: pl_trainer_release(trainer); return;
    case PL_NOTIFICATION_LOOP:
        notification->deliver(notification, !trainer->is_freed);
        return;
    case PL_NOTIFICATION_CLOSED:
        pl_reactor_join(engine->reactor);            /* the dashboard may still call it */
        engine->has_closed = true;
        engine->calls--;
        engine->is_delivering = false;
        if (engine->on_closed)
            engine->on_closed(engine, engine->closed_user);  /* may free the engine */
        return;
    }
}

/* Delivers the notifications that wait. True: as pl_engine_wait(). */
static bool deliver_all(pl_engine_t *engine)
{
    pl_notifications_t *notifications = &engine->notifications;
    const bool was_delivering = engine->is_delivering;
    uint64_t count;
    engine->is_delivering = true;
    /* Counts after the descriptor is reset: a later notification makes it readable. */
    while (read(notifications->fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
    pthread_mutex_lock(&notifications->lock);
    int left = notifications->waiting;
    pthread_mutex_unlock(&notifications->lock);
    for (; left > 0; left--) {
        pthread_mutex_lock(&notifications->lock);
        pl_notification_t *notification = notifications->first;
        pl_reports_t *reports = notification ? notification->reports : NULL;
        if (notification) {
            notifications->first = notification->next;
            notifications->waiting--;
            if (!notifications->first)
                notifications->last = &notifications->first;
        }
        if (reports) {
            reports->unread -= notification->event != PL_RUN_EVENT_TEXT;
            if (reports->newest == notification)
                reports->newest = NULL;
        }
        pthread_mutex_unlock(&notifications->lock);
        if (!notification)
            break;
        const bool has_closed = notification->kind == PL_NOTIFICATION_CLOSED;
        deliver(engine, notification);
        if (has_closed)
            return true;
    }
    engine->is_delivering = was_delivering;
    return false;
}

void pl_engine_dispatch(pl_engine_t *engine)
{
    if (engine)
        deliver_all(engine);
}

bool pl_engine_wait(pl_engine_t *engine)
{
    struct pollfd readable = {.fd = engine->notifications.fd, .events = POLLIN};
    poll(&readable, 1, -1);
    return deliver_all(engine);
}

int pl_engine_run_until(pl_engine_t *engine, const bool *done, pl_error_t *err)
{
    if (pl_require(engine, "an engine", err) != PL_OK)
        return PL_EINVAL;
    if (engine->readable)
        return pl_fail(err, PL_ESTATE,
                       "the loop of the engine's event base delivers its notifications: "
                       "run that loop");
    if (engine->is_delivering)
        return pl_fail(err, PL_ESTATE,
                       "a notification must not wait for others: return from it first");
    const bool was_closing = engine->is_closing;
    bool has_closed = false;
    while (!has_closed && engine->calls && !(done && *done))
        has_closed = pl_engine_wait(engine);
    if (done ? *done : was_closing || !has_closed)
        return PL_OK;
    if (has_closed)
        return pl_fail(err, PL_ECANCELLED, "a notification closed the engine");
    return pl_fail(err, PL_ESTATE,
                   "no call is under way, so no notification can set *done");
}
