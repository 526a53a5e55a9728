/* result.h - the outcome of a run, for the program */
#ifndef PL_RESULT_H
#define PL_RESULT_H

#include "runtime/payload.h"

/* The end of a run. */
typedef struct pl_ending {
    pl_outcome_t *outcome;                                  /* counted  [it failed] */
    pl_error_t error;                                       /* without an outcome */
    /* From reports during the run, for a run without an outcome. */
    char *run_dir;                                          /* [none] */
    uint64_t global_step;
    uint32_t epoch;
    char *metrics;                             /* JSON object  [none] */
    int64_t began;                             /* pl_now(); of its loop  [0: not begun] */
    bool begun;                                /* a batch is done */
    double seconds;
} pl_ending_t;

/* Whether the report shows that a batch is done. */
bool pl_report_has_begun(const pl_run_progress_t *report);
/* Keeps the values of a report. */
void pl_ending_note(pl_ending_t *ending, const pl_run_progress_t *report);
/* The run has ended: with an outcome, of which it keeps a reference, or an error. */
void pl_ending_end(pl_ending_t *ending, pl_outcome_t *outcome, const pl_error_t *error);
void pl_ending_release(pl_ending_t *ending);

/* Calls on_done with the result of a run. */
void pl_result_tell(const pl_ending_t *ending, pl_trainer_t *trainer,
                    pl_on_done_t on_done, void *user);

#endif
