/* program.c - programs of element-wise operations, which run block by block, and
 * reductions: sums over any axes, the largest along one, and along rows softmax,
 * cross-entropy and hits
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

/* ---- Sums ---- */

#define STRIP 128
#define STRIP_ROWS 256

/* y += sums of the columns of x [rows, width], strip by strip: sums of 256 rows in
 * float32, of those in float64. */
static void sum_columns(const float *x, int64_t rows, int64_t width, int64_t from,
                        int64_t to, float *y)
{
    for (int64_t c = from; c < to; c += STRIP) {
        const int n = to - c < STRIP ? (int)(to - c) : STRIP;
        double total[STRIP] = {0};
        for (int64_t r = 0; r < rows; r += STRIP_ROWS) {
            float sum[STRIP] = {0};
            const int64_t end = r + STRIP_ROWS < rows ? r + STRIP_ROWS : rows;
            for (int64_t i = r; i < end; i++)
                for (int k = 0; k < n; k++)
                    sum[k] += x[i * width + c + k];
            for (int k = 0; k < n; k++)
                total[k] += (double)sum[k];
        }
        for (int k = 0; k < n; k++)
            y[c + k] += (float)total[k];
    }
}

/* Dims from d on, of which dim `split` runs over [from, to) only. */
static void sum_from(const pl_sum_job_t *job, int d, const float *x, float *y,
                     int64_t from, int64_t to)
{
    const int last = job->rank - 1;
    const int64_t low = d == job->split ? from : 0,
                  high = d == job->split ? to : job->dim[d];
    if (d == last && job->summed[d]) {
        *y += (float)row_sum(x + low, 0.0f, high - low);
    } else if (d == last) {
        for (int64_t i = low; i < high; i++)
            y[i] += x[i];
    } else if (d == last - 1 && job->summed[d]) {
        const int64_t width = job->dim[last], left = job->split == last ? from : 0;
        sum_columns(x + low * width, high - low, width, left,
                    job->split == last ? to : width, y);
    } else {
        int64_t step = 1, y_step = job->summed[d] ? 0 : 1;
        for (int k = d + 1; k < job->rank; k++) {
            step *= job->dim[k];
            y_step *= job->summed[k] ? 1 : job->dim[k];
        }
        for (int64_t i = low; i < high; i++)
            sum_from(job, d + 1, x + i * step, y + i * y_step, from, to);
    }
}

void KERNEL(sum)(const void *of, int64_t from, int64_t to)
{
    const pl_sum_job_t *job = of;
    sum_from(job, 0, job->x, job->y, from, to);
}

void KERNEL(add)(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* ---- Maxima; a NaN is larger than anything, as in PyTorch ---- */

static bool is_larger(float x, float best)
{
    return x > best || (x != x && best == best);
}

/* [from, to) of the outer × inner results. */
void KERNEL(max)(const void *of, int64_t from, int64_t to)
{
    const pl_max_job_t *job = of;
    for (int64_t k = from; k < to; k++) {
        const float *x = job->x + k / job->inner * job->n * job->inner + k % job->inner;
        int64_t best = 0;
        for (int64_t i = 1; i < job->n; i++)
            if (is_larger(x[i * job->inner], x[best * job->inner]))
                best = i;
        if (job->to)
            job->to[k] = x[best * job->inner];
        if (job->index)
            job->index[k] = (int32_t)best;
    }
}

void KERNEL(max_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_max_job_t *job = of;
    for (int64_t k = from; k < to; k++) {
        int64_t start = k / job->inner * job->n * job->inner + k % job->inner, best = 0;
        const float *x = job->x + start;
        for (int64_t i = 1; i < job->n; i++)
            if (is_larger(x[i * job->inner], x[best * job->inner]))
                best = i;
        for (int64_t i = 0; i < job->n; i++)
            job->to[start + i * job->inner] = i == best ? job->dy[k] : 0.0f;
    }
}

/* ---- Softmax and cross-entropy ---- */

void KERNEL(softmax)(const void *of, int64_t from, int64_t to)
{
    const pl_softmax_job_t *job = of;
    const int64_t n = job->width;
    for (int64_t r = from; r < to; r++) {
        const float *x = job->x + r * n;
        float *y = job->to + r * n, sum = row_exp(x, y, row_max(x, n), n);
        row_scale(y, 1.0f / sum, n);
    }
}

/* dx may be dy or y. */
void KERNEL(softmax_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_softmax_job_t *job = of;
    const int64_t n = job->width;
    for (int64_t r = from; r < to; r++) {
        const float *dy = job->dy + r * n, *y = job->x + r * n;
        float *dx = job->to + r * n, mean = (float)row_dot(dy, y, n);
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++)
            dx[i] = y[i] * (dy[i] - mean);
    }
}

/* The target of a row, or -1 when it counts nothing.  A target that is no class counts
 * nothing either: data are checked where they are read, and memory beyond the row is
 * never touched. */
static int64_t target_of(const pl_cross_entropy_job_t *job, int64_t row)
{
    int64_t target = job->dtype == PL_I64   ? ((const int64_t *)job->targets)[row]
                     : job->dtype == PL_I32 ? ((const int32_t *)job->targets)[row]
                                            : ((const uint8_t *)job->targets)[row];
    bool counts = !(job->has_ignore && target == job->ignore) && target >= 0
                  && target < job->classes;
    return counts ? target : -1;
}

/* What a row counts. */
static float weight_of(const pl_cross_entropy_job_t *job, int64_t row, int64_t target)
{
    if (target < 0 || !job->class_weight)
        return target >= 0;
    return job->class_weight[job->one_class_weight ? 0 : target]
           * job->row_weight[job->one_row_weight ? 0 : row];
}

typedef struct wide_sums {
    double a, b;
} wide_sums_t;

/* The sum of e^(x - shift), x left as it is. */
static float exp_sum(const float *x, float shift, int64_t n)
{
    double total = 0.0;
    ROW_ADD(total, pl_expf(x[i] - shift))
    return (float)total;
}

/* The share of a target that each class of a row has, times the weight of the row. */
static float share_of(const pl_cross_entropy_job_t *job, int64_t row)
{
    const float share = job->smoothing / (float)job->classes;
    return job->class_weight ? share * job->row_weight[job->one_row_weight ? 0 : row]
                             : share;
}

/* The sums over classes of their weights, and of weight times max - x. */
static wide_sums_t weighted_sums(const pl_cross_entropy_job_t *job, const float *x,
                                 float max)
{
    const int64_t n = job->classes;
    const float *w = job->class_weight;
    wide_sums_t total = {0.0, 0.0};
    if (!w || job->one_class_weight) {
        const double all = w ? (double)w[0] : 1.0;
        return (wide_sums_t){all * (double)n, -all * row_sum(x, max, n)};
    }
    for (int64_t k = 0; k < n; k += ROW_PIECE) {
        const int64_t end = k + ROW_PIECE < n ? k + ROW_PIECE : n;
        float a = 0.0f, b = 0.0f;
#pragma omp simd reduction(+ : a, b)
        for (int64_t i = k; i < end; i++) {
            a += w[i];
            b += w[i] * (max - x[i]);
        }
        total.a += (double)a;
        total.b += (double)b;
    }
    return total;
}

void KERNEL(cross_entropy)(const void *of, int64_t from, int64_t to)
{
    const pl_cross_entropy_job_t *job = of;
    for (int64_t r = from; r < to; r++) {
        const float *x = job->logits + r * job->classes;
        int64_t target = target_of(job, r);
        const float max = job->of_logs ? 0.0f : row_max(x, job->classes),
                    sum = job->of_logs ? 1.0f : exp_sum(x, max, job->classes);
        if (job->row_max) {
            job->row_max[r] = max;
            job->sum[r] = sum;
        }
        float weight = weight_of(job, r, target);
        job->row[r] = target < 0 ? 0.0f : weight * (logf(sum) - (x[target] - max));
        job->counted[r] = weight;
        if (target < 0 || job->smoothing == 0.0f)
            continue;
        const wide_sums_t all = weighted_sums(job, x, max);
        job->row[r] = (1.0f - job->smoothing) * job->row[r]
                      + share_of(job, r) * (float)(all.a * (double)logf(sum) + all.b);
    }
}

/* dlogits may be logits. */
void KERNEL(cross_entropy_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_cross_entropy_job_t *job = of;
    for (int64_t r = from; r < to; r++) {
        const float *x = job->logits + r * job->classes;
        float *dx = job->dlogits + r * job->classes;
        const int64_t target = target_of(job, r);
        if (target < 0) {
            memset(dx, 0, (size_t)job->classes * sizeof *dx);
            continue;
        }
        const float dsum = *job->dsum * weight_of(job, r, target)
                           * (1.0f - job->smoothing),
                    share = *job->dsum * share_of(job, r), max = job->row_max[r];
        float all = dsum;
        if (share != 0.0f)
            all += share * (float)weighted_sums(job, x, max).a;
        const int64_t step = job->class_weight && !job->one_class_weight,
                      exponentials = job->of_logs ? 0 : job->classes;
        const float factor = all / job->sum[r], one = 1.0f,
                    *w = job->class_weight ? job->class_weight : &one;
        if (job->of_logs)
            memset(dx, 0, (size_t)job->classes * sizeof *dx);
#pragma GCC ivdep
        for (int64_t i = 0; i < exponentials; i++)
            dx[i] = pl_expf(x[i] - max) * factor;
        for (int64_t i = 0; i < job->classes && share != 0.0f; i++)
            dx[i] -= share * w[i * step];
        dx[target] -= dsum;
    }
}

/* A NaN is larger than anything, as in PyTorch. */
static int64_t first_largest(const float *x, int64_t n)
{
    const float max = row_max(x, n);
    int64_t best = n;
    for (int64_t i = n - 1; i >= 0; i--)
        best = x[i] != x[i] ? i : best;
    if (best < n)
        return best;
    for (best = 0; best < n - 1 && x[best] != max; best++)
        ;
    return best;
}

/* How many are larger than x[target], or as large and earlier; any two NaN are as
 * large. */
static int64_t before(const float *x, int64_t n, int64_t target)
{
    const float max = x[target];
    int64_t count = 0;
    for (int64_t i = 0; i < target; i++)
        count += x[i] >= max || x[i] != x[i];
    for (int64_t i = target + 1; i < n && max == max; i++)
        count += x[i] > max || x[i] != x[i];
    return count;
}

void KERNEL(correct)(const void *of, int64_t from, int64_t to)
{
    const pl_cross_entropy_job_t *job = of;
    for (int64_t r = from; r < to; r++) {
        int64_t target = target_of(job, r);
        job->counted[r] = target >= 0;
        const float *x = job->logits + r * job->classes;
        job->row[r] = target >= 0
                      && (job->top == 1 ? first_largest(x, job->classes) == target
                                        : before(x, job->classes, target) < job->top);
    }
}
