/* kernels.h - the kernels of one instruction set
 *
 * Their sources are compiled once for each set, under names that end in the set's, and
 * met again in one table; which table is used is decided when the device is opened.
 * Kernels are plain loops over float32 in row-major order; they know nothing of graphs,
 * plans or threads: the caller cuts the work and passes [from, to). */
#ifndef PL_CPU_KERNELS_H
#define PL_CPU_KERNELS_H

#include "accelerators/cpu/kernels/program.h"

/* KERNEL(softmax) is pl_softmax_avx512 in the files compiled with -DKERNEL_SET=avx512. */
#define PL_KERNEL_JOIN(name, set) pl_##name##_##set
#define PL_KERNEL_NAME(name, set) PL_KERNEL_JOIN(name, set)
#define KERNEL(name) PL_KERNEL_NAME(name, KERNEL_SET)

typedef struct pl_softmax_job {
    int64_t width;
    const float *x, *dy;                      /* [rows, width]; for the gradient x is y */
    float *to;                                /* y or dx */
} pl_softmax_job_t;

typedef struct pl_layer_norm_job {
    int64_t width;
    float epsilon;
    const float *x, *dy, *w, *b;              /* [rows, width], [width] */
    float *y, *dx;                            /* [rows, width] */
    float *mean, *rstd;                       /* [rows] */
    float *dw, *db;                           /* [width] of the caller's part, added to */
} pl_layer_norm_job_t;

typedef struct pl_batch_norm_job {
    int64_t batch, channels, inner;     /* x [batch, channels, inner]; inner 1: also with
                                           channels last, batch counting the places too */
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
    int64_t top;                       /* right with fewer than these before the target */
    float *row_max, *sum;              /* [rows] the largest logit, the sum of
                                          e^(logit - row_max)  [not wanted] */
    const float *class_weight;         /* [classes]  [all 1] */
    const float *row_weight;           /* [rows]; there when the other is */
    bool one_class_weight, one_row_weight;  /* it is [] */
    float *row, *counted;              /* [rows] loss or whether the guess is right; the
                                          weight, 0 when it does not count */
    const float *dsum;                 /* [] */
    float *dlogits;                    /* [rows, classes] */
} pl_cross_entropy_job_t;

/* x [outer, n, inner], reduced along n. */
typedef struct pl_max_job {
    int64_t n, inner;
    const float *x, *dy;
    float *to;                                              /* largest; dx */
    int32_t *index;
} pl_max_job_t;

/* Windows of x [batch, height, width, channels]; `where` numbers the largest within its
 * window. */
typedef struct pl_pool_job {
    int64_t batch, height, width, channels, out_height, out_width, kernel, stride,
        padding;
    const float *x, *dy;
    float *y, *dx;
    int32_t *where;
} pl_pool_job_t;

/* Elements of `size` bytes of x into y, each by strides in elements. */
typedef struct pl_move_job {
    int rank, size;
    int64_t dim[PL_DIMS], from[PL_DIMS], to[PL_DIMS];
    const char *x;
    char *y;
} pl_move_job_t;

/* Adds x, summed over some of its dims, to y; [from, to) is along dim `split`. */
typedef struct pl_sum_job {
    int rank, split;
    int64_t dim[PL_DIMS];
    bool summed[PL_DIMS];
    const float *x;
    float *y;
} pl_sum_job_t;

/* q, k, v, y and their gradients [batch, heads, tokens, width] by strides in elements,
 * the width's being 1. */
typedef struct pl_strides {
    const float *at;
    int64_t batch, head, token;
} pl_strides_t;

typedef struct pl_attention_job {
    int64_t batch, heads, tokens, width;
    float scale;
    bool causal;
    pl_dropout_t dropout;                                   /* p 0: none */
    pl_strides_t q, k, v, y, dy, dq, dk, dv;
    const float *mask;          /* [batch, tokens]: 0 where no query sees the key  [all
                                   are seen] */
    float *row_max, *sum;       /* [batch, heads, tokens] the largest score, not scaled;
                                   the sum of e^(scale (score - row_max))  [not wanted] */
    char *scratch;
} pl_attention_job_t;

/* X(name, type of its job): void name(const type *job, int64_t from, int64_t to). */
#define PL_KERNELS(X) \
    X(attention, pl_attention_job_t) \
    X(attention_grad, pl_attention_job_t) \
    X(batch_norm, pl_batch_norm_job_t) \
    X(batch_norm_grad, pl_batch_norm_job_t) \
    X(batch_norm_statistics, pl_batch_norm_job_t) \
    X(batch_norm_sums, pl_batch_norm_job_t) \
    X(correct, pl_cross_entropy_job_t) \
    X(cross_entropy, pl_cross_entropy_job_t) \
    X(cross_entropy_grad, pl_cross_entropy_job_t) \
    X(layer_norm, pl_layer_norm_job_t) \
    X(layer_norm_grad, pl_layer_norm_job_t) \
    X(max, pl_max_job_t) \
    X(max_grad, pl_max_job_t) \
    X(move, pl_move_job_t) \
    X(pool, pl_pool_job_t) \
    X(pool_grad, pl_pool_job_t) \
    X(program, pl_program_job_t) \
    X(softmax, pl_softmax_job_t) \
    X(softmax_grad, pl_softmax_job_t) \
    X(sum, pl_sum_job_t)

typedef struct pl_kernels {
    const char *name;                                       /* "avx512" */
#define PL_X(name, type) void (*name)(const type *job, int64_t from, int64_t to);
    PL_KERNELS(PL_X)
#undef PL_X
    void (*add)(float *to, const float *from, int64_t n);   /* to += from */
    size_t (*attention_scratch)(const pl_attention_job_t *job);  /* bytes it needs */
} pl_kernels_t;

extern const pl_kernels_t pl_kernels_portable, pl_kernels_avx2, pl_kernels_avx512;

#ifdef KERNEL_SET
#define PL_X(name, type) void KERNEL(name)(const type *job, int64_t from, int64_t to);
PL_KERNELS(PL_X)
#undef PL_X
void KERNEL(add)(float *to, const float *from, int64_t n);
size_t KERNEL(attention_scratch)(const pl_attention_job_t *job);
#endif

#endif
