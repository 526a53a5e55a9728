/* program.h - a chain of element-wise operations as a small program
 *
 * Elements go through in blocks that stay in the first-level cache: every line of the
 * program runs over one block, then the next block follows.  What lies between two lines
 * never reaches memory. */
#ifndef PL_CPU_PROGRAM_H
#define PL_CPU_PROGRAM_H

#include "base/random.h"
#include "paceline.h"

#define PL_BLOCK 1024                                /* elements of a register, at most */
#define PL_PROGRAM_OPERANDS 64
#define PL_PROGRAM_LINES 96
#define PL_PROGRAM_DROPOUTS 8
#define PL_PROGRAM_TOTALS 4

/* X(name, what it writes): x and y stand for its operands, f for its number. */
#define PL_LINES(X) \
    X(copy, x) \
    X(add, x + y) \
    X(sub, x - y) \
    X(mul, x *y) \
    X(div, x / y) \
    X(minimum, x < y || x != x ? x : y) \
    X(neg, -x) \
    X(scale, x *f) \
    X(exp, pl_expf(x)) \
    X(log, pl_logf(x)) \
    X(sqrt, sqrtf(x)) \
    X(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x) \
    X(relu, x < 0.0f ? 0.0f : x) \
    X(gelu, pl_geluf(x)) \
    X(gelu_tanh, pl_gelu_tanhf(x)) \
    X(sigmoid, pl_sigmoidf(x)) \
    X(tanh, pl_tanhf(x)) \
    X(round_bf16, pl_round_bf16(x)) \
    X(round_f16, pl_round_f16(x)) \
    X(relu_grad, y <= 0.0f ? 0.0f : x) \
    X(gelu_grad, x *pl_gelu_slopef(y)) \
    X(gelu_tanh_grad, x *pl_gelu_tanh_slopef(y)) \
    X(sigmoid_grad, x *y *(1.0f - y)) \
    X(tanh_grad, x *(1.0f - y * y))

typedef enum pl_line_code {
#define PL_X(name, value) PL_LINE_##name,
    PL_LINES(PL_X)
#undef PL_X
        PL_LINE_dropout,              /* of x, by job->dropout[(int)f] */
    PL_LINE_total,                    /* of x over the block, into job->partial[(int)f] */
    PL_LINE_squares,                  /* the same of x^2, in float64 */
} pl_line_code_t;

typedef struct pl_line {
    uint8_t code, to, x, y;                                 /* operands by number */
    float f;
} pl_line_t;

typedef struct pl_operand {
    enum { PL_OPERAND_REGISTER, PL_OPERAND_LINEAR, PL_OPERAND_REPEATED } kind;
    int slot;                                   /* job->at[slot]: where it starts, but for
                                                   registers */
    int reg;                                    /* its register, but for linear ones */
    int64_t period;                             /* repeated: after how many elements it is
                                                   the same again */
    int rank;                                   /* and how it repeats: element (i, j, …)
                                                   of the result is */
    int64_t size[PL_DIMS], stride[PL_DIMS];     /* at i stride[0] + j stride[1] + … */
} pl_operand_t;

typedef struct pl_program {
    int64_t count;                                /* elements of each result */
    int block;                                    /* elements at a time, up to PL_BLOCK */
    int operand_count, line_count, registers;
    bool fetch_ahead;                                 /* more data than the caches hold */
    pl_operand_t operand[PL_PROGRAM_OPERANDS];
    pl_line_t line[PL_PROGRAM_LINES];
} pl_program_t;

/* One run: where operands lie, masks, a scratch of registers × PL_BLOCK floats for this
 * thread, and [blocks] partial sums of each total. */
typedef struct pl_program_job {
    const pl_program_t *program;
    char *const *at;
    const pl_dropout_t *dropout;
    float *scratch;
    double *partial[PL_PROGRAM_TOTALS];
} pl_program_job_t;

#endif
