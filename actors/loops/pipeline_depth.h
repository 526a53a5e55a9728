/* pipeline_depth.h - how many batches a loop keeps in flight */
#ifndef PL_LOOPS_PIPELINE_DEPTH_H
#define PL_LOOPS_PIPELINE_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pl_pipeline_depth {
    bool is_fixed;
    int batches;                                           /* batches under way at most */
    int ended;                                             /* since `since` */
    int64_t since;
} pl_pipeline_depth_t;

/* fixed: trainer.depth; 0: by the time batches take. */
void pl_pipeline_depth_begin(pl_pipeline_depth_t *depth, int64_t fixed);
/* A batch came back. */
void pl_pipeline_depth_batch_done(pl_pipeline_depth_t *depth);
/* Nothing is under way any more: the time until the next batch begins is not theirs. */
void pl_pipeline_depth_pause(pl_pipeline_depth_t *depth);

#endif
