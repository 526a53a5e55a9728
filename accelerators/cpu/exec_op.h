/* exec_op.h - a kernel call of a plan, which the files exec_*.c make from an operation
 *
 * A call is prepared once, when the plan is compiled; running it allocates nothing.  It
 * refers to values by number.  The context gives their addresses when the call runs,
 * because arenas and regions may move between two replays and batches always do. */
#ifndef PL_CPU_EXEC_OP_H
#define PL_CPU_EXEC_OP_H

#include "accelerators/accelerator.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/library.h"
#include "accelerators/plan/lower.h"
#include "accelerators/cpu/parallel.h"
#include "tensor/memory_plan.h"

/* Results of a call other than PL_OK and errors: the calls after it do not run now. */
#define PL_EXEC_NON_FINITE 1                     /* the value of a guard was not finite */
#define PL_EXEC_SKIPPED 2                        /* there is nothing to update */
#define PL_EXEC_YIELD 3                          /* they run when the replay continues */

/* The context of a running call. */
typedef struct pl_exec_context {
    char *const *at;                 /* [values] addresses; NULL: the value is not used */
    char *scratch;
    const pl_kernels_t *kernels;
    pl_pool_t *pool;
    int threads;                                            /* of the pool */
    const pl_replay_t *replay;
} pl_exec_context_t;

typedef struct pl_exec_op pl_exec_op_t;
struct pl_exec_op {
    int (*run)(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err);
    void (*release)(pl_exec_op_t *s);         /* frees `own`  [pl_free(own)] */
    pl_op_t op;                               /* inputs and outputs are indices of at[] */
    int64_t size[8];                          /* their meaning: in the file of the call */
    pl_dtype_t dtype;                         /* of indices or of moved elements */
    size_t scratch;                           /* bytes that the call needs */
    void *own;                                /* data of the call's file */
};

/* The context in which calls are prepared. */
typedef struct pl_builder {
    const pl_lowered_t *lowered;
    const pl_allocation_t *allocation;     /* [values] */
    const bool *done;                      /* [operations] assigns whose value is computed
                                              in place */
    pl_library_t *library;
    const pl_kernels_t *kernels;
    int threads;
} pl_builder_t;

/* Sets size, scratch, own and run; op is set already. */
typedef int (*pl_prepare_t)(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err);

/* By opcode; each table has the operators of its file. */
extern const pl_prepare_t pl_prepare_axes[PL_OPCODES];
extern const pl_prepare_t pl_prepare_moves[PL_OPCODES];
extern const pl_prepare_t pl_prepare_products[PL_OPCODES];
extern const pl_prepare_t pl_prepare_reductions[PL_OPCODES];
extern const pl_prepare_t pl_prepare_rows[PL_OPCODES];
extern const pl_prepare_t pl_prepare_steps[PL_OPCODES];

/* An operator of a user, with its kernel. */
int pl_prepare_apply(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err);

/* Lets a prepared gradient of attention write what a concat of its unit would copy. */
void pl_attention_join(pl_exec_op_t *s, const pl_builder_t *b, const pl_op_t *concat);

/* PL_OK when n indices of type s->dtype are in [0, below); an ignored one is valid. */
int pl_check_indices(const pl_exec_op_t *s, const void *indices, int64_t n, int64_t below,
                     pl_error_t *err);

/* A unit of element-wise operations [from, to) of the lowered graph; see fuse.h. */
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

/* Addresses of input k and output k. */
static inline void *pl_in(const pl_exec_op_t *s, const pl_exec_context_t *f, int k)
{
    return f->at[s->op.input[k]];
}

static inline void *pl_out(const pl_exec_op_t *s, const pl_exec_context_t *f, int k)
{
    return f->at[s->op.output[k]];
}

#endif
