/* program.h - a chain of element-wise operations as a small program
 *
 * Elements go through in blocks that stay in the first-level cache: every line of the
 * program runs over one block, then the next block follows.  What lies between two lines
 * never reaches memory. */
#ifndef PL_CPU_PROGRAM_H
#define PL_CPU_PROGRAM_H

#include "accelerators/plan/formulas.h"
#include "base/random.h"
#include "paceline.h"

#define PL_BLOCK 1024                                /* elements of a register, at most */
#define PL_PROGRAM_OPERANDS 64
#define PL_PROGRAM_LINES 96
#define PL_PROGRAM_DROPOUTS 8
#define PL_PROGRAM_TOTALS 4

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
