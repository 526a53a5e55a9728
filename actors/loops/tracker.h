/* tracker.h - progress of a loop: counts of its epochs, batches or optimizer steps
 *
 * As Lightning's progress trackers count: over the whole run, also one that goes on from
 * a checkpoint. */
#ifndef PL_LOOPS_TRACKER_H
#define PL_LOOPS_TRACKER_H

#include <jansson.h>
#include <stdint.h>

typedef struct pl_tracker {
    uint64_t ready;                         /* could begin: a batch has been fetched */
    uint64_t started;                       /* were sent on */
    uint64_t processed;                     /* have come back */
    uint64_t completed;                     /* and what follows them is over: a checkpoint
                                               holds what they came to */
} pl_tracker_t;

/* A JSON object of the four; NULL without memory. */
json_t *pl_tracker_save(const pl_tracker_t *counts);
/* What was under way then begins anew: all are what was completed. */
void pl_tracker_load(pl_tracker_t *counts, const json_t *kept);

/* A number by its bits: JSON has no word for what is not finite, and they must come back
 * as they were. */
json_t *pl_number_save(double value);
double pl_number_load(const json_t *kept);

/* Why a loop was asked to stop, from its state  [""]; borrowed. */
const char *pl_stop_request_load(const json_t *kept);

#endif
