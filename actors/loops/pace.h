/* pace.h - how many batches a loop keeps under way */
#ifndef PL_LOOPS_PACE_H
#define PL_LOOPS_PACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pl_pace {
    bool is_fixed;
    int depth;                                             /* batches under way at most */
    int ended;                                             /* since `since` */
    int64_t since;
} pl_pace_t;

/* depth: trainer.depth; 0: by the time batches take. */
void pl_pace_begin(pl_pace_t *pace, int64_t depth);
/* A batch came back. */
void pl_pace_ended(pl_pace_t *pace);
/* Nothing is under way any more: the time until the next batch begins is not theirs. */
void pl_pace_paused(pl_pace_t *pace);

#endif
