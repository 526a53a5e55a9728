/* notes.c - notifications on their way from the control thread to the program's thread
 *
 * One queue for an engine, in order.  The program may not look for a long time: then a
 * trainer's newest report takes the place of its last one of the same sort, and of all
 * others only so many wait.  What ends something is never dropped. */
#include "actors/notes.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

enum { REPORTS_MOST = 256 };                                /* of a trainer */

int pl_notes_init(pl_notes_t *notes, pl_error_t *err)
{
    pthread_mutex_init(&notes->lock, NULL);
    notes->first = NULL;
    notes->last = &notes->first;
    notes->waiting = 0;
    notes->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (notes->fd >= 0)
        return PL_OK;
    return pl_fail(err, PL_EBUSY,
                   "no descriptor is left for an engine: raise the limit of open files "
                   "(ulimit -n)");
}

void pl_notes_release(pl_notes_t *notes)
{
    if (!notes->last)
        return;
    if (notes->fd >= 0)
        close(notes->fd);
    pthread_mutex_destroy(&notes->lock);
}

void pl_note_free(pl_note_t *note)
{
    pl_ending_release(&note->ending);
    pl_free((char *)note->progress.event);
    pl_free((char *)note->progress.metrics);
    pl_free((char *)note->told.checkpoint);
    pl_free(note);
}

/* ---- In ---- */

static void wake(const pl_notes_t *notes)
{
    const uint64_t one = 1;
    while (write(notes->fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

/* Under lock. */
static void append(pl_notes_t *notes, pl_note_t *note)
{
    note->next = NULL;
    *notes->last = note;
    notes->last = &note->next;
    notes->waiting++;
}

void pl_notes_push(pl_notes_t *notes, pl_note_t *note)
{
    pthread_mutex_lock(&notes->lock);
    append(notes, note);
    pthread_mutex_unlock(&notes->lock);
    wake(notes);
}

/* Pieces of text are all wanted; they end with what the program asked for. */
static bool is_text(const pl_note_t *note)
{
    return !strcmp(note->progress.event, "text");
}

/* What an epoch or a validation came to, which nothing later says again. */
static bool is_result(const pl_note_t *note)
{
    return !strcmp(note->progress.event, "validated")
           || !strcmp(note->progress.event, "epoch");
}

static bool replaces(const pl_note_t *old, const pl_note_t *new)
{
    return old && !strcmp(old->progress.event, new->progress.event) && !is_text(new)
           && !is_result(new);
}

/* The trainer's oldest report, out of the queue.  Under lock. */
static pl_note_t *drop_oldest(pl_notes_t *notes, const pl_reports_t *reports)
{
    pl_note_t **next = &notes->first, *old;
    while ((old = *next) && (old->reports != reports || is_text(old)))
        next = &old->next;
    if (!old)
        return NULL;
    *next = old->next;
    if (notes->last == &old->next)
        notes->last = link;
    notes->waiting--;
    return old;
}

/* The note that is to be freed, or NULL.  Under lock. */
static pl_note_t *add(pl_notes_t *notes, pl_note_t *note)
{
    pl_reports_t *reports = note->reports;
    pl_note_t *dropped = NULL;
    if (replaces(reports->newest, note)) {
        const pl_progress_t older = reports->newest->progress;
        reports->newest->progress = note->progress;
        note->progress = older;
        return note;
    }
    if (!is_text(note) && reports->unread == REPORTS_MOST)
        dropped = drop_oldest(notes, reports);
    else
        reports->unread += !is_text(note);
    append(notes, note);
    reports->newest = note;
    return dropped;
}

static pl_note_t *note_of(const pl_run_progress_t *p)
{
    pl_note_t *note = pl_alloc(sizeof *note);
    if (!note)
        return NULL;
    note->progress = (pl_progress_t){.event = pl_strdup(p->event),
                                     .global_step = p->global_step,
                                     .total_steps = p->total_steps,
                                     .epoch = p->epoch,
                                     .batch = p->batch,
                                     .batches = p->batches,
                                     .metrics = pl_strdup(p->metrics)};
    if (note->progress.event && note->progress.metrics)
        return note;
    pl_note_free(note);
    return NULL;
}

void pl_notes_report(pl_notes_t *notes, pl_reports_t *reports, pl_trainer_t *trainer,
                     const pl_run_progress_t *report)
{
    pl_note_t *note = note_of(report);
    if (!note)
        return;
    note->trainer = trainer;
    note->reports = reports;
    pthread_mutex_lock(&notes->lock);
    pl_note_t *dropped = add(notes, note);
    pthread_mutex_unlock(&notes->lock);
    if (dropped)
        pl_note_free(dropped);
    wake(notes);
}

/* ---- Out ---- */

/* Counted after it is quiet: a note that comes later than that wakes it again. */
int pl_notes_quiet(pl_notes_t *notes)
{
    uint64_t count;
    while (read(notes->fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
    pthread_mutex_lock(&notes->lock);
    const int waiting = notes->waiting;
    pthread_mutex_unlock(&notes->lock);
    return waiting;
}

pl_note_t *pl_notes_take(pl_notes_t *notes)
{
    pthread_mutex_lock(&notes->lock);
    pl_note_t *note = notes->first;
    if (note) {
        notes->first = note->next;
        notes->waiting--;
        if (!notes->first)
            notes->last = &notes->first;
    }
    pl_reports_t *reports = note ? note->reports : NULL;
    if (reports) {
        reports->unread -= !is_text(note);
        if (reports->newest == note)
            reports->newest = NULL;
    }
    pthread_mutex_unlock(&notes->lock);
    return note;
}
