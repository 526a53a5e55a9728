/* search_result.h - how a search ends: its suggestion, and the trials behind it */
#ifndef PL_LOOPS_SEARCH_RESULT_H
#define PL_LOOPS_SEARCH_RESULT_H

#include <jansson.h>

#include "runtime/payload.h"

typedef struct pl_search_result {
    json_t *metrics;                                       /* an object: the suggestion */
    json_t *trials;                                        /* a list */
    int64_t began;                                         /* pl_now() */
    bool stopped;
} pl_search_result_t;

/* A batch size that was tried. */
typedef struct pl_size_trial {
    int64_t size, memory;               /* memory: bytes in use after it  [0: no more than
                                           after another trial] */
    double rate, noise;                 /* samples per second; its noise, as a share */
    bool fits;
} pl_size_trial_t;

/* The smallest size that is as fast as any other, within the noise; NULL: none fits. */
const pl_size_trial_t *pl_size_fastest(const pl_size_trial_t *trial, int64_t count);

/* The smallest size within a tenth of the highest rate, of those that leave enough steps
 * in an epoch of that many samples [0: unknown]; NULL: none fits. */
const pl_size_trial_t *pl_size_suggested(const pl_size_trial_t *trial, int64_t count,
                                         int64_t samples);

/* Fills in the outcome and answers the run with it.  Consumes both JSON values; NULL: out
 * of memory, and the run fails. */
void pl_search_end(pl_call_t *run, pl_outcome_t *outcome,
                   const pl_search_result_t *found);

#endif
