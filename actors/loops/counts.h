/* counts.h - how often a loop has turned: its epochs, batches or optimizer steps
 *
 * As Lightning's progress trackers count: over the whole run, also one that goes on from
 * a checkpoint. */
#ifndef PL_LOOPS_COUNTS_H
#define PL_LOOPS_COUNTS_H

#include <jansson.h>
#include <stdint.h>

typedef struct pl_counts {
    uint64_t ready;                         /* could begin: a batch has been fetched */
    uint64_t started;                       /* were sent on */
    uint64_t processed;                     /* have come back */
    uint64_t completed;                     /* and what follows them is over: a checkpoint
                                               holds what they came to */
} pl_counts_t;

/* A JSON object of the four; NULL without memory. */
json_t *pl_counts_keep(const pl_counts_t *counts);
/* What was under way then begins anew: all are what was completed. */
void pl_counts_restore(pl_counts_t *counts, const json_t *kept);

/* A number by its bits: JSON has no word for what is not finite, and they must come back
 * as they were. */
json_t *pl_number_keep(double value);
double pl_number_of(const json_t *kept);

/* Why a loop was asked to stop, from its state  [""]; borrowed. */
const char *pl_stop_request_of(const json_t *kept);

#endif
