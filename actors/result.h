/* result.h - a run's outcome as the program gets it */
#ifndef PL_RESULT_H
#define PL_RESULT_H

#include "runtime/payload.h"

/* What came of a run. */
typedef struct pl_ending {
    pl_outcome_t *outcome;                                  /* counted  [it failed] */
    pl_error_t error;                                       /* without an outcome */
    /* As far as it has told while it ran: for a run without an outcome. */
    char *run_dir;                                          /* [none] */
    uint64_t global_step;
    uint32_t epoch;
    char *metrics;                                     /* JSON object  [none] */
    int64_t began;                                     /* ns; its loop  [0: it did not] */
    bool begun;                                        /* a batch has been through */
    double seconds;
} pl_ending_t;

/* Whether it says that a batch has been through. */
bool pl_report_has_begun(const pl_run_progress_t *report);
/* Keeps what a report says. */
void pl_ending_note(pl_ending_t *ending, const pl_run_progress_t *report);
/* The run has ended: with an outcome, which it keeps a reference to, or an error. */
void pl_ending_end(pl_ending_t *ending, pl_outcome_t *outcome, const pl_error_t *error);
void pl_ending_release(pl_ending_t *ending);

/* Calls on_done with what came of a run. */
void pl_result_tell(const pl_ending_t *ending, pl_trainer_t *trainer,
                    pl_on_done_t on_done, void *user);

#endif
