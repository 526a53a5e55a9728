/* program.c - runs programs of element-wise operations, block by block
 *
 * A line is a loop over one block; operands may be the same memory, but only element
 * by element: the ivdep below depends on that. */
#include <float.h>

#include "accelerators/cpu/kernels/functions.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/vectors.h"
#include "base/half.h"

/* The addresses of the operands of a line, for the current block. */
typedef struct line_operands {
    float *at[PL_PROGRAM_OPERANDS];
    int64_t from, next;                          /* next: elements to where the next is */
    int n;
} line_operands_t;

/* One function for each kind of line, so the compiler optimizes each loop on its own. */
#define LETTERS_value const float x = p[i], y = q[i], z = s[i];
#define LETTERS_slope const float d = p[i], x = q[i], r = q[i], y = s[i];
#define UNUSED_value (void)x, (void)y, (void)z;
#define UNUSED_slope (void)d, (void)x, (void)r, (void)y;
#define LINE(name, form, value) \
    static void line_##name(float *to, const float *p, const float *q, const float *s, \
                            float f, float h, int n) \
    { \
        (void)f, (void)h; \
        _Pragma("GCC ivdep") for (int i = 0; i < n; i++) \
        { \
            LETTERS_##form UNUSED_##form to[i] = value; \
        } \
    }
LINE(copy, value, x)
LINE(round_bf16, value, pl_round_bf16(x))
LINE(round_f16, value, pl_round_f16(x))
#define PL_ELEMENT(name, inputs, precision, rounding, form, value, meaning) \
    LINE(name, form, value)
#include "tensor/elementwise.def"

typedef void (*line_run_t)(float *to, const float *p, const float *q, const float *s,
                           float f, float h, int n);

static const line_run_t lines[] = {
    [PL_FORMULA_copy] = line_copy,
    [PL_FORMULA_round_bf16] = line_round_bf16,
    [PL_FORMULA_round_f16] = line_round_f16,
#define PL_ELEMENT(name, inputs, precision, rounding, form, value, meaning) \
    [PL_FORMULA_##name] = line_##name,
#include "tensor/elementwise.def"
};

static void line_dropout(float *to, const float *x, const pl_dropout_t *d, int64_t from,
                         int n)
{
    float factor[PL_BLOCK];
    dropout_factors(d, (uint64_t)from, n, factor);
#pragma GCC ivdep
    for (int i = 0; i < n; i++)
        to[i] = factor[i] == 0.0f ? 0.0f : x[i] * factor[i];
}

/* In several chains: one would wait for each addition. */
enum { CHAINS = 8 };

static float chains_total(lanes_t chain[CHAINS])
{
    float sum = 0.0f;
    for (int half = CHAINS / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            chain[k] += chain[k + half];
    for (int k = 0; k < LANES; k++)
        sum += chain[0][k];
    return sum;
}

static double line_total(const float *x, int n)
{
    lanes_t chain[CHAINS] = {{0}};
    int i = 0;
    for (; i + CHAINS * LANES <= n; i += CHAINS * LANES)
        for (int k = 0; k < CHAINS; k++)
            chain[k] += *(const lanes_t *)(x + i + k * LANES);
    float sum = chains_total(chain);
    for (; i < n; i++)
        sum += x[i];
    return (double)sum;
}

/* In float64 where the sum exceeds float32. */
static double line_squares(const float *x, int n)
{
    lanes_t chain[CHAINS] = {{0}};
    int i = 0;
    for (; i + CHAINS * LANES <= n; i += CHAINS * LANES)
        for (int k = 0; k < CHAINS; k++) {
            const lanes_t element = *(const lanes_t *)(x + i + k * LANES);
            chain[k] += element * element;
        }
    float sum = chains_total(chain);
    for (; i < n; i++)
        sum += x[i] * x[i];
    if (sum <= FLT_MAX)
        return (double)sum;
    double large = 0.0;
    for (i = 0; i < n; i++)
        large += (double)x[i] * (double)x[i];
    return large;
}

/* The offset of element `index` of a repeated operand, and its place in each
 * dimension. */
static int64_t repeated_find(const pl_operand_t *o, int64_t index, int64_t place[PL_DIMS])
{
    int64_t offset = 0;
    for (int d = o->rank - 1; d >= 0; d--) {
        place[d] = index % o->size[d];
        index /= o->size[d];
        offset += place[d] * o->stride[d];
    }
    return offset;
}

static void repeated_run(float *to, const float *x, int64_t stride, int64_t n)
{
    if (stride == 0)
        for (int64_t i = 0; i < n; i++)
            to[i] = *x;
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = x[i * stride];
}

/* Elements [from, from + n) of a repeated operand, as if it were broadcast. */
static void repeated_load(const pl_operand_t *o, const float *x, float *to, int64_t from,
                          int64_t n)
{
    int64_t place[PL_DIMS], last = o->rank - 1, offset = repeated_find(o, from, place);
    while (n > 0) {
        int64_t run = o->size[last] - place[last];
        if (run > n)
            run = n;
        repeated_run(to, x + offset, o->stride[last], run);
        to += run;
        n -= run;
        from += run;
        offset = n > 0 ? repeated_find(o, from, place) : 0;
    }
}

/* An operand that repeats with the block is loaded once for all blocks. */
static void operands_start(const pl_program_job_t *job, line_operands_t *block, int n)
{
    const pl_program_t *p = job->program;
    for (int k = 0; k < p->operand_count; k++) {
        const pl_operand_t *o = &p->operand[k];
        if (o->kind != PL_OPERAND_LINEAR)
            block->at[k] = job->scratch + o->reg * PL_BLOCK;
        if (o->kind == PL_OPERAND_REPEATED && p->block % o->period == 0)
            repeated_load(o, (const float *)job->at[o->slot], block->at[k], block->from,
                          n);
    }
}

/* The operands of the next block are prefetched while this one is computed, a few
 * cache lines after each line of the program. The hardware prefetcher does not follow
 * so many short runs, and a prefetch of the whole block at once would exceed the
 * misses that a processor can have in flight. */
typedef struct ahead {
    int operand, at;                   /* the next to prefetch: elements into its block */
    int share;                         /* cache lines at a time */
} ahead_t;

#define CACHE_LINE 16                                       /* elements */

static ahead_t ahead_start(const pl_program_t *p)
{
    int linear = 0;
    for (int k = 0; k < p->operand_count; k++)
        linear += p->operand[k].kind == PL_OPERAND_LINEAR;
    const int all = linear * (p->block / CACHE_LINE);
    return (ahead_t){.share = p->fetch_ahead ? (all + p->line_count - 1) / p->line_count
                                             : 0};
}

static void ahead_ask(const pl_program_t *p, const line_operands_t *block, ahead_t *ahead)
{
    for (int left = ahead->share; left > 0 && ahead->operand < p->operand_count;) {
        if (p->operand[ahead->operand].kind != PL_OPERAND_LINEAR
            || ahead->at >= p->block) {
            ahead->operand++;
            ahead->at = 0;
            continue;
        }
        __builtin_prefetch(block->at[ahead->operand] + block->next + ahead->at, 0, 3);
        ahead->at += CACHE_LINE;
        left--;
    }
}

static void operands_load(const pl_program_job_t *job, line_operands_t *block)
{
    const pl_program_t *p = job->program;
    for (int k = 0; k < p->operand_count; k++) {
        const pl_operand_t *o = &p->operand[k];
        if (o->kind == PL_OPERAND_LINEAR)
            block->at[k] = (float *)job->at[o->slot] + block->from;
        else if (o->kind == PL_OPERAND_REPEATED && p->block % o->period != 0)
            repeated_load(o, (const float *)job->at[o->slot], block->at[k], block->from,
                          block->n);
    }
}

static void block_run(const pl_program_job_t *job, const line_operands_t *block)
{
    const pl_program_t *p = job->program;
    float *const *at = block->at;
    ahead_t ahead = ahead_start(p);
    for (int k = 0; k < p->line_count; k++) {
        const pl_line_t *l = &p->line[k];
        if (l->code == PL_FORMULA_dropout)
            line_dropout(at[l->to], at[l->x], &job->dropout[(int)l->f], block->from,
                         block->n);
        else if (l->code == PL_FORMULA_total || l->code == PL_FORMULA_squares)
            job->partial[(int)l->f][block->from / p->block] =
                l->code == PL_FORMULA_total ? line_total(at[l->x], block->n)
                                            : line_squares(at[l->x], block->n);
        else
            lines[l->code](at[l->to], at[l->x], at[l->y], at[l->z], l->f, l->h, block->n);
        ahead_ask(p, block, &ahead);
    }
}

static bool has_total(const pl_program_t *p)
{
    for (int k = 0; k < p->line_count; k++)
        if (p->line[k].code == PL_FORMULA_total || p->line[k].code == PL_FORMULA_squares)
            return true;
    return false;
}

/* [from, to): elements; from is a multiple of the block.  Totals, such as the
 * gradients' norm, run from the end to the beginning: their operands were just written
 * from the beginning on, so the caches still hold the end. */
void KERNEL(program)(const void *of, int64_t from, int64_t to)
{
    const pl_program_job_t *job = of;
    const pl_program_t *p = job->program;
    const int64_t last = from + (to - from - 1) / p->block * p->block;
    const bool falls = has_total(p);
    line_operands_t block = {.from = from, .next = falls ? -p->block : p->block};
    operands_start(job, &block, (int)(to - from < p->block ? to - from : p->block));
    for (block.from = falls ? last : from; block.from >= from && block.from < to;
         block.from += block.next) {
        block.n = (int)(to - block.from < p->block ? to - block.from : p->block);
        operands_load(job, &block);
        block_run(job, &block);
    }
}
