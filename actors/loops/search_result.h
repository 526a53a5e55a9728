/* search_result.h - how a search ends: its suggestion, and the trials behind it */
#ifndef PL_LOOPS_SEARCH_RESULT_H
#define PL_LOOPS_SEARCH_RESULT_H

#include <jansson.h>

#include "runtime/payload.h"

typedef struct pl_search_result {
    json_t *metrics;                                    /* an object: what is suggested */
    json_t *trials;                                     /* a list */
    int64_t began;                                      /* pl_now() */
    bool stopped;
} pl_search_result_t;

/* A batch size that was tried. */
typedef struct pl_size_trial {
    int64_t size, memory;              /* memory: bytes in use behind it  [0: no more than
                                          behind another] */
    double rate, noise;                /* samples a second; of it, as a share */
    bool fits;
} pl_size_trial_t;

/* The smallest of those that are as quick as any, as far as can be told; NULL: none
 * fits. */
const pl_size_trial_t *pl_size_fastest(const pl_size_trial_t *trial, int64_t count);

/* The smallest that is within a tenth of the most samples a second, of those that leave
 * an epoch of that many samples [0: unknown] enough steps; NULL: none fits. */
const pl_size_trial_t *pl_size_suggested(const pl_size_trial_t *trial, int64_t count,
                                         int64_t samples);

/* Fills in the outcome and answers the run with it; takes both JSON values over, each of
 * which may be NULL for want of memory: then, as whenever it lacks, the run fails. */
void pl_search_end(pl_call_t *run, pl_outcome_t *outcome,
                   const pl_search_result_t *found);

#endif
