/* notes.h - notifications on their way from the control thread to the program's thread */
#ifndef PL_NOTES_H
#define PL_NOTES_H

#include <pthread.h>

#include "actors/result.h"

typedef enum pl_note_kind {
    PL_NOTE_PROGRESS,
    PL_NOTE_DONE,
    PL_NOTE_COMMAND,
    PL_NOTE_GONE,
    PL_NOTE_TOLD,
    PL_NOTE_CLOSED
} pl_note_kind_t;

typedef struct pl_note {
    pl_note_kind_t kind;
    pl_trainer_t *trainer;
    struct pl_reports *reports;             /* of PROGRESS */
    pl_progress_t progress;                 /* its texts are the note's own */
    pl_ending_t ending;                     /* of DONE; filled in while the run goes on */
    pl_command_result_t told;               /* of COMMAND; the checkpoint is the note's
                                               own  [NULL: ""] */
    pl_on_command_t on_command;
    void *user;
    /* Of TOLD: tells the program, unless nobody wants to know, and frees what the note is
     * part of. */
    void (*tell)(struct pl_note *note, bool wanted);
    struct pl_note *next;
} pl_note_t;

/* A trainer's progress that the program has not read yet; under the queue's lock. */
typedef struct pl_reports {
    pl_note_t *newest;                                      /* [all are read] */
    int unread;                                             /* but for texts */
} pl_reports_t;

typedef struct pl_notes {
    pthread_mutex_t lock;
    pl_note_t *first, **last;
    int waiting;                              /* notes in the queue */
    int fd;                                   /* eventfd: readable when there is a note */
} pl_notes_t;

/* Release may follow a failed init, or a zeroed struct. */
int pl_notes_init(pl_notes_t *notes, pl_error_t *err);
void pl_notes_release(pl_notes_t *notes);

/* Cannot fail, so that what must be told is told: the note is made beforehand. */
void pl_notes_push(pl_notes_t *notes, pl_note_t *note);
/* A copy of the report; when memory is out it is missed. */
void pl_notes_report(pl_notes_t *notes, pl_reports_t *reports, pl_trainer_t *trainer,
                     const pl_run_progress_t *report);

/* Program's thread: the descriptor is not readable until the next note comes, and so many
 * wait already; the oldest note, or NULL. */
int pl_notes_quiet(pl_notes_t *notes);
pl_note_t *pl_notes_take(pl_notes_t *notes);

void pl_note_free(pl_note_t *note);

#endif
