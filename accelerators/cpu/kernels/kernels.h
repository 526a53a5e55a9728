/* kernels.h - the kernels of one instruction set
 *
 * The sources are compiled once for each set, under names that end in the set's name, and
 * collected in one table per set; opening the device selects a table.  Kernels are plain
 * loops over float32 in row-major order and know no graphs, plans or threads: the caller
 * divides the work and passes [from, to). */
#ifndef PL_CPU_KERNELS_H
#define PL_CPU_KERNELS_H

#include "accelerators/plan/formulas.h"
#include "base/random.h"
#include "tensor/graph.h"

/* KERNEL(softmax) is pl_softmax_avx512 in the files compiled with -DKERNEL_SET=avx512. */
#define PL_KERNEL_JOIN(name, set) pl_##name##_##set
#define PL_KERNEL_NAME(name, set) PL_KERNEL_JOIN(name, set)
#define KERNEL(name) PL_KERNEL_NAME(name, KERNEL_SET)

/* ---- Programs: chains of element-wise operations ----
 *
 * Elements are processed in blocks that stay in the first-level cache: every line of the
 * program runs over one block, then the next block follows.  Intermediate values never
 * reach memory. */

#define PL_BLOCK 1024                                /* elements of a register, at most */
#define PL_PROGRAM_OPERANDS 64
#define PL_PROGRAM_LINES 96
#define PL_PROGRAM_DROPOUTS 8
#define PL_PROGRAM_TOTALS 4

typedef struct pl_line {
    uint8_t code, to, x, y, z;                              /* operands by number */
    float f, h;
} pl_line_t;

typedef struct pl_operand {
    enum { PL_OPERAND_REGISTER, PL_OPERAND_LINEAR, PL_OPERAND_REPEATED } kind;
    int slot;                                     /* job->at[slot]: its start  [registers
                                                     have none] */
    int reg;                                      /* its register  [linear ones have
                                                     none] */
    int64_t period;                               /* repeated: number of elements after
                                                     which the values recur */
    int rank;                                     /* repeated: element (i, j, …) of the
                                                     result is */
    int64_t size[PL_DIMS], stride[PL_DIMS];       /* at i stride[0] + j stride[1] + … */
} pl_operand_t;

typedef struct pl_program {
    int64_t count;                                /* elements of each result */
    int block;                                    /* elements at a time, up to PL_BLOCK */
    int operand_count, line_count, registers;
    bool fetch_ahead;                                 /* more data than the caches hold */
    pl_operand_t operand[PL_PROGRAM_OPERANDS];
    pl_line_t line[PL_PROGRAM_LINES];
} pl_program_t;

/* One run: addresses of the operands, dropout masks, scratch of registers × PL_BLOCK
 * floats for this thread, and [blocks] partial sums of each total. */
typedef struct pl_program_job {
    const pl_program_t *program;
    char *const *at;
    const pl_dropout_t *dropout;
    float *scratch;
    double *partial[PL_PROGRAM_TOTALS];
} pl_program_job_t;

/* ---- Jobs of the other kernels ---- */

typedef struct pl_softmax_job {
    int64_t width;
    const float *x, *dy;                      /* [rows, width]; for the gradient x is y */
    float *to;                                /* y or dx */
} pl_softmax_job_t;

/* Each row has `channels` weights, each for `run` elements; row r has those of set
 * r % sets. */
typedef struct pl_layer_norm_job {
    int64_t width, channels, run, sets;
    float epsilon;
    bool is_rms;                        /* the mean counts as 0 */
    const float *x, *dy, *w, *b;        /* [rows, width], [sets, channels] */
    float *y, *dx;                      /* [rows, width] */
    float *mean, *rstd;                 /* [rows] */
    float *dw, *db;                     /* [sets, channels] of the caller's part; sums are
                                           added */
} pl_layer_norm_job_t;

typedef struct pl_batch_norm_job {
    int64_t batch, channels, inner;      /* x [batch, channels, inner]; inner 1: also with
                                            channels last, positions counted in batch */
    float epsilon;
    const float *x, *dy, *w, *b;
    float *y, *dx;
    float *mean, *var;                           /* [channels] */
    float *dw, *db;                              /* [channels] */
    const float *p, *q, *r;                      /* [channels] factors; see the kernels */
} pl_batch_norm_job_t;

typedef struct pl_cross_entropy_job {
    int64_t classes;
    const float *logits;                                    /* [rows, classes] */
    const void *targets;                                    /* [rows], of type `dtype` */
    pl_dtype_t dtype;
    bool has_ignore;
    int64_t ignore;
    int64_t top;                        /* correct if fewer logits precede the target's */
    float *row_max, *sum;               /* [rows] the largest logit, the sum of
                                           e^(logit - row_max)  [not stored] */
    const float *class_weight;          /* [classes]  [all 1] */
    const float *row_weight;            /* [rows]; set if class_weight is */
    bool one_class_weight, one_row_weight;  /* the weight is one number */
    bool of_logs;                       /* logits are logarithms of probabilities */
    float smoothing;                    /* share of a target that all classes have */
    float *row, *counted;               /* [rows] loss, or 1 if the guess is correct; the
                                           weight, 0 for an ignored row */
    const float *dsum;                  /* [] */
    float *dlogits;                     /* [rows, classes] */
} pl_cross_entropy_job_t;

/* x [outer, n, inner], reduced along n. */
typedef struct pl_max_job {
    int64_t n, inner;
    const float *x, *dy;
    float *to;                                              /* largest; dx */
    int32_t *index;
} pl_max_job_t;

/* Windows of x [batch, in..., channels]; `where` numbers the largest in its window. */
typedef struct pl_pool_job {
    int64_t batch, channels, in[PL_SPACE], out[PL_SPACE];
    pl_window_t window;
    bool adaptive, counts_padding;
    const float *x, *dy;
    float *y, *dx;
    int32_t *where;
} pl_pool_job_t;

/* A convolution of x [batch, in..., channels] with a kernel of 3 x 3, each in pieces of
 * `block` tiles of 2 x 2 of y [batch, out..., filters], which is whole vectors. */
typedef struct pl_winograd_job {
    int64_t channels, filters, in[2], out[2], before[2], tiles[2], block;
    bool turned;                    /* of a gradient: w [channels, filters, 3, 3] is taken
                                       back to front  [w is [filters, channels, 3, 3]] */
    const float *w, *x, *bias;                              /* bias [filters]  [none] */
    float *y, *packed;                                      /* [16, channels, filters] */
    float *scratch;                /* of a thread, [16 block + 1, channels + filters] */
} pl_winograd_job_t;

/* Copies elements of `size` bytes from x to y, both with strides in elements. */
typedef struct pl_move_job {
    int rank, size;
    int64_t dim[PL_DIMS], from[PL_DIMS], to[PL_DIMS];
    const char *x;
    char *y;
} pl_move_job_t;

/* Along the middle axis of a table [outer, rows, inner] at indices [outer or 1, n, inner
 * or 1] of type `dtype`: gather copies elements of `size` bytes from the table x to y
 * [outer, n, inner], scatter adds float32 x [outer, n, inner] to a table y of zeros. */
typedef struct pl_gather_job {
    int64_t rows, n, inner;
    int64_t outer_step, index_inner;           /* n or 0; the inner size of the indices */
    pl_dtype_t dtype;
    size_t size;
    const void *indices, *x;
    void *y;
} pl_gather_job_t;

/* Sums of x [outer, n, inner] along n; falls: from the end. */
typedef struct pl_cumsum_job {
    int64_t n, inner;
    bool falls;
    const float *x;
    float *y;
} pl_cumsum_job_t;

typedef struct pl_random_job {
    pl_dropout_t bits;
    bool is_normal;
    float *to;
} pl_random_job_t;

/* Elements of another type; truth: 1 where x is not 0, else 0. */
typedef struct pl_convert_job {
    pl_dtype_t from, to;
    bool truth;
    const void *x;
    void *y;
} pl_convert_job_t;

/* -1, 0 or 1: the order of x and y; a step of 0 repeats the first element. */
typedef struct pl_order_job {
    const int64_t *x, *y;
    int64_t x_step, y_step;
    float *to;
} pl_order_job_t;

typedef struct pl_interpolate_term {
    int32_t source;
    float weight;
} pl_interpolate_term_t;

/* x [outer, size, inner] -> y [outer, count, inner]: element j is the sum of the terms
 * [first[j], first[j + 1]), in order. */
typedef struct pl_interpolate_job {
    int64_t size, count, inner;
    pl_interpolate_term_t *term;
    int32_t *first;
    const float *x;
    float *y;
} pl_interpolate_job_t;

/* Adds x, summed over some of its dims, to y; [from, to) is a range of dim `split`. */
typedef struct pl_sum_job {
    int rank, split;
    int64_t dim[PL_DIMS];
    bool summed[PL_DIMS];
    const float *x;
    float *y;
} pl_sum_job_t;

/* A tensor of attention [batch, heads, tokens, width] with strides in elements; the
 * stride of the width is 1. */
typedef struct pl_strides {
    const float *at;
    int64_t batch, head, token;
} pl_strides_t;

typedef struct pl_attention_job {
    int64_t batch, heads, tokens, keys, width;              /* tokens: queries */
    float scale;
    bool causal;
    int64_t window;                  /* keys less than so many positions away  [0: all] */
    pl_dropout_t dropout;            /* p 0: none */
    pl_strides_t q, k, v, y, dy, dq, dk, dv;
    const float *mask;          /* [batch, keys]: 0 if queries ignore the key  [no key
                                   is ignored] */
    pl_strides_t bias;          /* added to scaled scores, keys side by side; strides may
                                   be 0  [at NULL: none] */
    const float *turns;         /* [tokens + keys, width]: cosines and sines of the angles
                                   of queries, then of keys  [NULL: none] */
    int64_t apart;              /* of the numbers of a pair that is turned: 1, width/2 */
    float *row_max, *sum;       /* [batch, heads, tokens] the largest score, not scaled;
                                   the sum of e^(scale (score - row_max))  [not stored] */
    char *scratch;
} pl_attention_job_t;

/* Columns of a packed weight that lie next to each other; whole vectors of each set. */
#define PL_RECURRENT_STRIP 32

/* An LSTM (4 gates) or GRU (3) in one direction; see operators.def.  `packed` has the
 * weight [gates hidden, hidden] in strips, turned for forward: [gates, strips, hidden]
 * or, with dstates, [strips, gates hidden] rows of PL_RECURRENT_STRIP. */
typedef struct pl_recurrent_job {
    int64_t batch, steps, hidden;
    int gates;
    bool back;                          /* from the last step to the first */
    const void *lengths;                /* [batch], of type `dtype`  [all have steps] */
    pl_dtype_t dtype;
    const float *x, *w, *b, *first;     /* x [batch, steps, gates hidden] */
    float *states, *kept;               /* [1 or 2, batch, steps + 1, hidden]; the gates
                                           [batch, steps, 4 hidden]  [not stored] */
    const float *dstates;               /* [forward] */
    float *dx, *dfirst, *dproducts;     /* [not stored] */
    float *packed, *scratch;            /* scratch: [batch] rows, of gates times the
                                           hidden size in whole strips, and of two of
                                           these for the gradient */
} pl_recurrent_job_t;

/* Connectionist temporal classification of samples of `steps` steps, some of which have
 * fewer.  A logarithm of 0 is PL_CTC_NONE. */
#define PL_CTC_NONE (-1e30f)
typedef struct pl_ctc_job {
    int64_t steps, classes, labels, blank;
    bool zero_infinity;
    const float *x;                             /* [batch, steps, classes] */
    const int32_t *targets, *lengths[2];     /* [batch, labels]; [batch] steps, labels */
    float *alphas, *losses;                  /* [batch, steps, 2 labels + 1]; [batch] */
    const float *dy;                            /* [batch] */
    float *dx, *scratch;                        /* as x; [batch, 2, 2 labels + 1] */
} pl_ctc_job_t;

/* Computes items [from, to) of a job. */
typedef void pl_kernel_run_t(const void *job, int64_t from, int64_t to);

/* X(name, type of its job). */
#define PL_KERNELS(X) \
    X(attention, pl_attention_job_t) \
    X(attention_grad, pl_attention_job_t) \
    X(average, pl_pool_job_t) \
    X(average_grad, pl_pool_job_t) \
    X(batch_norm, pl_batch_norm_job_t) \
    X(batch_norm_grad, pl_batch_norm_job_t) \
    X(batch_norm_statistics, pl_batch_norm_job_t) \
    X(batch_norm_sums, pl_batch_norm_job_t) \
    X(convert, pl_convert_job_t) \
    X(correct, pl_cross_entropy_job_t) \
    X(cross_entropy, pl_cross_entropy_job_t) \
    X(cross_entropy_grad, pl_cross_entropy_job_t) \
    X(ctc, pl_ctc_job_t) \
    X(ctc_grad, pl_ctc_job_t) \
    X(cumsum, pl_cumsum_job_t) \
    X(gather, pl_gather_job_t) \
    X(interpolate, pl_interpolate_job_t) \
    X(layer_norm, pl_layer_norm_job_t) \
    X(layer_norm_grad, pl_layer_norm_job_t) \
    X(max, pl_max_job_t) \
    X(max_grad, pl_max_job_t) \
    X(move, pl_move_job_t) \
    X(order, pl_order_job_t) \
    X(pool, pl_pool_job_t) \
    X(pool_grad, pl_pool_job_t) \
    X(program, pl_program_job_t) \
    X(random, pl_random_job_t) \
    X(recurrent, pl_recurrent_job_t) \
    X(recurrent_grad, pl_recurrent_job_t) \
    X(recurrent_pack, pl_recurrent_job_t) \
    X(scatter, pl_gather_job_t) \
    X(softmax, pl_softmax_job_t) \
    X(softmax_grad, pl_softmax_job_t) \
    X(sum, pl_sum_job_t) \
    X(winograd, pl_winograd_job_t) \
    X(winograd_pack, pl_winograd_job_t)

typedef struct pl_kernels {
    const char *name;                                       /* "avx512" */
#define PL_X(name, type) pl_kernel_run_t *name;
    PL_KERNELS(PL_X)
#undef PL_X
    void (*add)(float *to, const float *from, int64_t n);   /* to += from */
    size_t (*attention_scratch)(const pl_attention_job_t *job);  /* bytes */
} pl_kernels_t;

extern const pl_kernels_t pl_kernels_portable, pl_kernels_avx2, pl_kernels_avx512;

#ifdef KERNEL_SET
#define PL_X(name, type) pl_kernel_run_t KERNEL(name);
PL_KERNELS(PL_X)
#undef PL_X
void KERNEL(add)(float *to, const float *from, int64_t n);
size_t KERNEL(attention_scratch)(const pl_attention_job_t *job);
#endif

#endif
