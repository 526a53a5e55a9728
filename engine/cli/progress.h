/* progress.h - the progress of a run, on standard error */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <paceline.h>
#include <stdio.h>

typedef struct cli_progress {
    bool bar;                                  /* one line is redrawn; otherwise lines are
                                                  printed */
    int64_t max_epochs;                        /* 0: unknown */
    int64_t began, drawn, reported;            /* ns, monotonic; 0: not yet */
    uint64_t first_step;                       /* the step at `began` */
    uint64_t newest_step;
    uint64_t result_step;                              /* of the newest line of results */
    int64_t rate_time;                                 /* when rate_batch was */
    uint64_t rate_batch;
    uint32_t rate_epoch;
    double rate;                                         /* batches/s; 0: not known yet */
} cli_progress_t;

void cli_progress_begin(cli_progress_t *progress, const pl_options_t *options);
void cli_progress_show(cli_progress_t *progress, const pl_progress_t *now);

#endif
