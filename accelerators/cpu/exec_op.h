/* exec_op.h - one kernel call of a plan: what a file of exec_*.c makes of an operation
 *
 * It is prepared once, when the plan is compiled, with all that running it needs;
 * running it allocates nothing.  Values are named by number; where each lies is looked up
 * in the context when the call runs, because arenas and regions may move between two
 * replays and batches always do. */
#ifndef PL_CPU_EXEC_OP_H
#define PL_CPU_EXEC_OP_H

#include "accelerators/accelerator.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/library.h"
#include "accelerators/plan/lower.h"
#include "accelerators/cpu/parallel.h"
#include "tensor/memory_plan.h"

/* What a call returns beside PL_OK and errors: the rest does not happen. */
#define PL_EXEC_NON_FINITE 1                    /* the value of a guard was not finite */
#define PL_EXEC_SKIPPED 2                       /* nothing to update, which is no fault */
#define PL_EXEC_YIELD 3                         /* it runs when the replay continues */

/* What a running call sees. */
typedef struct pl_exec_context {
    char *const *at;                 /* [values] where each lies; NULL: nobody wants it */
    char *scratch;
    const pl_kernels_t *kernels;
    pl_pool_t *pool;
    int threads;                                            /* of the pool */
    const pl_replay_t *replay;
} pl_exec_context_t;

typedef struct pl_exec_op pl_exec_op_t;
struct pl_exec_op {
    int (*run)(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err);
    void (*release)(pl_exec_op_t *s);  /* what `own` holds  [pl_free(own)] */
    pl_op_t op;                        /* inputs and outputs are numbers for the context's
                                          at[] */
    int64_t size[8];                   /* as the call's file says */
    pl_dtype_t dtype;                  /* of indices or of what is moved */
    size_t scratch;                    /* bytes that running it needs */
    void *own;
};

/* What preparing a call may ask. */
typedef struct pl_builder {
    const pl_lowered_t *lowered;
    const pl_allocation_t *allocation;   /* [values] */
    const bool *done;                    /* [operations] assigns that have nothing left to
                                            do */
    pl_library_t *library;
    const pl_kernels_t *kernels;
    int threads;
} pl_builder_t;

/* Fills in size, scratch, own and run; code, inputs, outputs and path are there. */
typedef int (*pl_prepare_t)(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err);

/* By opcode; each holds the operators of its file. */
extern const pl_prepare_t pl_prepare_moves[PL_OPCODES];
extern const pl_prepare_t pl_prepare_products[PL_OPCODES];
extern const pl_prepare_t pl_prepare_reductions[PL_OPCODES];
extern const pl_prepare_t pl_prepare_rows[PL_OPCODES];

/* For rows against indices; size is rows, width, bins.  A wrong index is an error that
 * names the operation; one to be ignored is fine. */
int64_t pl_index_at(const void *indices, pl_dtype_t dtype, int64_t i);
int pl_check_indices(const pl_exec_op_t *s, const void *indices, int64_t n, int64_t below,
                     pl_error_t *err);
int pl_run_confusion(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err);
int pl_run_score_bins(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err);

/* The one operator whose kernel is not the device's own: a user's. */
int pl_prepare_apply(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err);

/* The call for a unit of element-wise operations [from, to) of the lowered graph; see
 * fuse.h. */
struct pl_fusion;
int pl_prepare_program(pl_exec_op_t *s, const pl_builder_t *b,
                       const struct pl_fusion *fusion, int from, int to, pl_error_t *err);

/* Shape of input k and output k. */
static inline pl_shape_t pl_exec_op_in(const pl_builder_t *b, const pl_exec_op_t *s,
                                       int k)
{
    return b->lowered->graph.value[s->op.input[k]].shape;
}

static inline pl_shape_t pl_exec_op_out(const pl_builder_t *b, const pl_exec_op_t *s,
                                        int k)
{
    return b->lowered->graph.value[s->op.output[k]].shape;
}

/* Where input and output k lie. */
static inline void *pl_in(const pl_exec_op_t *s, const pl_exec_context_t *f, int k)
{
    return f->at[s->op.input[k]];
}

static inline void *pl_out(const pl_exec_op_t *s, const pl_exec_context_t *f, int k)
{
    return f->at[s->op.output[k]];
}

#endif
