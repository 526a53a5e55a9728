/* attention.c - softmax(q k^T) v and its gradients, a head at a time
 *
 * Queries are computed in blocks of one or two vectors; scores of a block lie [keys,
 * queries], so softmax runs along the keys of all lanes at once and never adds across
 * lanes. Keys that are later than every query of a causal block are left out.
 * Products of blocks are done here, by tiles of vector registers: they are too small
 * for the library.  Backward makes the weights again from the largest score and the
 * sum of exponentials: Dao et al., "FlashAttention", 2022, section 3, but for the
 * logarithm of the sum, in which large scores leave no digits. */
#include "accelerators/cpu/kernels/functions.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/products.h"

#define BLOCK (2 * LANES)                                 /* queries at a time, at most */

/* ---- One head ---- */

static int64_t padded(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

typedef struct attention_head {
    const pl_attention_job_t *job;
    int64_t index, tokens, keys, width, columns;     /* columns: width in whole vectors */
    int64_t block;                                   /* queries at a time */
    const float *mask;                               /* [keys]  [all keys are seen] */
    const float *bias;                               /* of the head  [none] */
    int64_t first;                                   /* key that the mask shows */
    side_t q, k, v, y, dy, dq, dk, dv;
    float *turned;                                  /* [width, block] of q or dy */
    float *weight, *slope;                          /* [keys, block] */
    float *factor, *row;                            /* [keys, block] of dropout, [keys] */
    float *free;                                    /* scratch not yet used */
} attention_head_t;

static float *head_take(attention_head_t *h, int64_t floats)
{
    float *at = h->free;
    h->free += padded(floats);
    return at;
}

static float *strides_apply(const attention_head_t *h, const pl_strides_t *strides)
{
    return (float *)strides->at + h->index / h->job->heads * strides->batch
           + h->index % h->job->heads * strides->head;
}

/* Whether a head is used where it lies: its tokens of whole vectors each, one after the
 * other, or far apart and used a block at a time.  All rows, far apart, would throw each
 * other out of the first-level cache, and so would those of a block whose addresses
 * differ by multiples of a power of two. */
static bool is_in_place(const attention_head_t *h, const pl_strides_t *strides,
                        bool by_blocks)
{
    return h->width == h->columns
           && (strides->token == h->width || (by_blocks && strides->token % 256 != 0));
}

/* Rows of whole vectors from one place to another; calls of memcpy() would cost more. */
static void copy_rows(const float *from, int64_t from_row, float *to, int64_t to_row,
                      int64_t rows, int64_t columns)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t e = 0; e < columns; e += LANES)
            *(lanes_t *)(to + t * to_row + e) =
                *(const lanes_t *)(from + t * from_row + e);
}

/* Turns the pairs of each row by its angles, or, with a sign of -1, back: Su et al.,
 * "RoFormer", 2021, section 3.4.2.  `to` may be `from`. */
static void turn_rows(const attention_head_t *h, side_t from, side_t to, int64_t rows,
                      const float *turns, float sign)
{
    const int64_t half = h->width / 2;
    for (int64_t t = 0; t < rows; t++) {
        const float *x = from.at + t * from.row, *cosine = turns + t * h->width,
                    *sine = cosine + half;
        float *y = to.at + t * to.row;
        if (h->job->apart == 1) {
#pragma GCC ivdep
            for (int64_t i = 0; i < half; i++) {
                const float a = x[2 * i], b = x[2 * i + 1], s = sign * sine[i];
                y[2 * i] = a * cosine[i] - b * s;
                y[2 * i + 1] = b * cosine[i] + a * s;
            }
            continue;
        }
#pragma GCC ivdep
        for (int64_t i = 0; i < half; i++) {
            const float a = x[i], b = x[half + i], s = sign * sine[i];
            y[i] = a * cosine[i] - b * s;
            y[half + i] = b * cosine[i] + a * s;
        }
    }
}

/* The angles of queries, or of keys; NULL: nothing is turned. */
static const float *turns_of(const attention_head_t *h, bool keys)
{
    return h->job->turns && keys ? h->job->turns + h->tokens * h->width : h->job->turns;
}

/* The tensor itself, of so many rows, or a padded copy: turned, if it has turns. */
static side_t side_in(attention_head_t *h, const pl_strides_t *strides, int64_t rows,
                      bool by_blocks, const float *turns)
{
    float *from = strides_apply(h, strides);
    if (is_in_place(h, strides, by_blocks) && !turns)
        return (side_t){from, strides->token};
    float *copy = head_take(h, rows * h->columns);
    if (turns) {
        turn_rows(h, (side_t){from, strides->token}, (side_t){copy, h->columns}, rows,
                  turns, 1.0f);
        for (int64_t t = 0; t < rows && h->width != h->columns; t++)
            memset(copy + t * h->columns + h->width, 0,
                   (size_t)(h->columns - h->width) * sizeof *copy);
        return (side_t){copy, h->columns};
    }
    if (h->width == h->columns)
        copy_rows(from, strides->token, copy, h->columns, rows, h->columns);
    for (int64_t t = 0; t < rows && h->width != h->columns; t++) {
        memcpy(copy + t * h->columns, from + t * strides->token,
               (size_t)h->width * sizeof *copy);
        memset(copy + t * h->columns + h->width, 0,
               (size_t)(h->columns - h->width) * sizeof *copy);
    }
    return (side_t){copy, h->columns};
}

static side_t side_out(attention_head_t *h, const pl_strides_t *strides, int64_t rows,
                       bool by_blocks)
{
    if (is_in_place(h, strides, by_blocks))
        return (side_t){strides_apply(h, strides), strides->token};
    return (side_t){head_take(h, rows * h->columns), h->columns};
}

static void side_clear(const attention_head_t *h, side_t side, int64_t rows)
{
    for (int64_t t = 0; t < rows; t++)
        memset(side.at + t * side.row, 0, (size_t)h->columns * sizeof *side.at);
}

/* Moves the results from the copy to their place: turned back, if they have turns. */
static void side_finish(const attention_head_t *h, side_t side,
                        const pl_strides_t *strides, int64_t rows, const float *turns)
{
    float *to = strides_apply(h, strides);
    if (turns) {
        turn_rows(h, side, (side_t){to, strides->token}, rows, turns, -1.0f);
        return;
    }
    if (side.at == to)
        return;
    if (h->width == h->columns)
        copy_rows(side.at, side.row, to, strides->token, rows, h->columns);
    for (int64_t t = 0; t < rows && h->width != h->columns; t++)
        memcpy(to + t * strides->token, side.at + t * side.row,
               (size_t)h->width * sizeof *to);
}

/* Small blocks waste less of a short causal head, two vectors feed the multipliers
 * better; where vectors are short, two are small enough. */
static int64_t block_of(const pl_attention_job_t *job)
{
    return LANES == 16 && job->tokens < 256 ? LANES : BLOCK;
}

static attention_head_t head_start(const pl_attention_job_t *job, int64_t index)
{
    attention_head_t h = {.job = job,
                          .index = index,
                          .tokens = job->tokens,
                          .keys = job->keys,
                          .width = job->width,
                          .columns = padded(job->width),
                          .block = block_of(job),
                          .free = (float *)job->scratch};
    h.mask = job->mask ? job->mask + index / job->heads * job->keys : NULL;
    h.bias = job->bias.at ? strides_apply(&h, &job->bias) : NULL;
    while (h.mask && h.first < h.keys && h.mask[h.first] == 0.0f)
        h.first++;
    h.turned = head_take(&h, h.width * h.block);
    h.weight = head_take(&h, h.keys * h.block);
    h.slope = head_take(&h, h.keys * h.block);
    h.factor = head_take(&h, h.keys * h.block);
    h.row = head_take(&h, h.keys);
    h.q = side_in(&h, &job->q, h.tokens, true, turns_of(&h, false));
    h.k = side_in(&h, &job->k, h.keys, false, turns_of(&h, true));
    h.v = side_in(&h, &job->v, h.keys, false, NULL);
    return h;
}

size_t KERNEL(attention_scratch)(const pl_attention_job_t *job)
{
    const int64_t block = block_of(job), tokens = job->tokens, keys = job->keys,
                  columns = padded(job->width);
    const int64_t floats = padded(job->width * block) + 3 * padded(keys * block)
                           + padded(keys) + 4 * padded(tokens * columns)
                           + 4 * padded(keys * columns);
    return (size_t)floats * sizeof(float);
}

/* A block of queries [from, to), and the first and the number of the keys that they use:
 * at least one. */
typedef struct query_block {
    int64_t from, to, first, keys;
} query_block_t;

static query_block_t block_at(const attention_head_t *h, int64_t from)
{
    const int64_t to = from + h->block < h->tokens ? from + h->block : h->tokens,
                  window = h->job->window;
    int64_t first = window && from >= window ? from - window + 1 : 0, end = h->keys;
    if (window && to - 1 + window < end)
        end = to - 1 + window;
    if (h->job->causal && to < end)
        end = to;
    if (first >= h->keys)
        first = h->keys - 1;
    return (query_block_t){from, to, first, end - first};
}

/* to [keys, block] = rows of `side` times rows of `of` for each query of the block. */
static void scores(const attention_head_t *h, query_block_t b, side_t side, side_t of,
                   float *to)
{
    const side_t turned = {h->turned, h->block};
    if (b.to - b.from < h->block)
        memset(h->turned, 0, (size_t)(h->width * h->block) * sizeof *h->turned);
    transpose_matrix(of.at + b.from * of.row, of.row, h->turned, h->block, b.to - b.from,
                     h->width);
    product(b.keys, h->block, h->width,
            (factor_t){side.at + b.first * side.row, side.row, 1}, turned,
            (side_t){to, h->block}, false);
}

/* Adds the bias to scores that are not scaled. */
static void add_bias(const attention_head_t *h, query_block_t b)
{
    const float factor = 1.0f / h->job->scale;
    for (int64_t i = b.from; i < b.to; i++) {
        const float *bias = h->bias + i * h->job->bias.token + b.first;
        float *to = h->weight + (i - b.from);
        for (int64_t j = 0; j < b.keys; j++)
            to[j * h->block] += bias[j] * factor;
    }
}

/* Writes `value` where a query does not see a key: the mask hides it, the query comes
 * before it, or it is outside the window. */
static void hide(const attention_head_t *h, query_block_t b, float *at, float value)
{
    const int64_t end = b.first + b.keys, window = h->job->window;
    at -= b.first * h->block;
    for (int64_t j = b.first; j < end && h->mask; j++)
        for (int64_t i = 0; i < h->block && h->mask[j] == 0.0f; i++)
            at[j * h->block + i] = value;
    for (int64_t j = b.first > b.from ? b.first : b.from + 1; j < end && h->job->causal;
         j++)
        for (int64_t i = 0; i < j - b.from; i++)
            at[j * h->block + i] = value;
    for (int64_t j = b.first; j < end && window; j++)
        for (int64_t i = 0; i < h->block; i++)
            if (b.from + i - j >= window || j - b.from - i >= window)
                at[j * h->block + i] = value;
}

/* Whether no key is seen, by the largest score of the query. */
static bool sees_nothing(const attention_head_t *h, int64_t query, float largest)
{
    if (h->bias || h->job->window)
        return largest == -INFINITY;
    return h->first > (h->job->causal && query < h->keys ? query : h->keys - 1);
}

/* The factors of dropout, [keys, block] too. */
static void drop(const attention_head_t *h, query_block_t b)
{
    for (int64_t i = b.from; i < b.to; i++) {
        const int64_t row = (h->index * h->tokens + i) * h->keys + b.first;
        dropout_factors(&h->job->dropout, (uint64_t)row, b.keys, h->row);
        for (int64_t j = 0; j < b.keys; j++)
            h->factor[j * h->block + (i - b.from)] = h->row[j];
    }
    for (int64_t i = b.to; i < b.from + h->block; i++)
        for (int64_t j = 0; j < b.keys; j++)
            h->factor[j * h->block + (i - b.from)] = 0.0f;
}

PL_INLINE void multiply(float *x, const float *by, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        x[i] *= by[i];
}

/* ---- Forward ---- */

/* In each lane the largest of a column of scores, and their sum.  A NaN stays NaN by way
 * of the exponentials. */
PL_INLINE lanes_t largest(const float *score, int64_t keys, int64_t row)
{
    lanes_t row_max = *(const lanes_t *)score;
    for (int64_t j = 1; j < keys; j++) {
        const lanes_t x = *(const lanes_t *)(score + j * row);
        row_max = (lanes_t)choose(x > row_max, (lane_numbers_t)x,
                                  (lane_numbers_t)row_max);
    }
    return row_max;
}

PL_INLINE lanes_t sum_of(const float *score, int64_t keys, int64_t row)
{
    lanes_t sum = {0};
    for (int64_t j = 0; j < keys; j++)
        sum += *(const lanes_t *)(score + j * row);
    return sum;
}

/* score = e^(scale (score - row_max)) [factor], a number of each lane; exactly 1 for the
 * largest. */
PL_INLINE void exponentials(float *score, int64_t keys, int64_t row, float scale,
                            const float *row_max, const float *factor)
{
    for (int64_t j = 0; j < keys; j++) {
        float *s = score + j * row;
#pragma GCC ivdep
        for (int i = 0; i < LANES; i++) {
            const float e = pl_expf((s[i] - row_max[i]) * scale);
            s[i] = factor ? e * factor[i] : e;
        }
    }
}

/* Scores become weights, all but for a factor for each query. */
static void weigh(const attention_head_t *h, query_block_t b, float *factor)
{
    const float scale = h->job->scale;
    const bool may_be_empty = h->first > 0 || h->bias || h->job->window;
    float row_max[BLOCK], sum[BLOCK];
    for (int64_t v = 0; v < h->block; v += LANES) {
        *(lanes_t *)(row_max + v) = largest(h->weight + v, b.keys, h->block);
        for (int64_t i = v; i < v + LANES && may_be_empty; i++)
            row_max[i] = sees_nothing(h, b.from + i, row_max[i]) ? 0.0f : row_max[i];
        exponentials(h->weight + v, b.keys, h->block, scale, row_max + v, NULL);
        *(lanes_t *)(sum + v) = sum_of(h->weight + v, b.keys, h->block);
    }
    for (int64_t i = 0; i < b.to - b.from; i++)
        factor[i] = sum[i] == 0.0f ? 0.0f : 1.0f / sum[i];
    if (!h->job->row_max)
        return;
    const int64_t at = h->index * h->tokens + b.from;
    memcpy(h->job->row_max + at, row_max, (size_t)(b.to - b.from) * sizeof *row_max);
    memcpy(h->job->sum + at, sum, (size_t)(b.to - b.from) * sizeof *sum);
}

static void forward_block(const attention_head_t *h, query_block_t b)
{
    float factor[BLOCK];
    const side_t y = side_at(h->y, b.from, 0);
    scores(h, b, h->k, h->q, h->weight);
    if (h->bias)
        add_bias(h, b);
    hide(h, b, h->weight, -INFINITY);
    weigh(h, b, factor);
    if (h->job->dropout.p > 0.0) {
        drop(h, b);
        multiply(h->weight, h->factor, b.keys * h->block);
    }
    product(b.to - b.from, h->columns, b.keys, (factor_t){h->weight, 1, h->block},
            side_at(h->v, b.first, 0), y, false);
    for (int64_t i = 0; i < b.to - b.from; i++)
        for (int64_t e = 0; e < h->columns; e += LANES)
            *(lanes_t *)(y.at + i * y.row + e) *= factor[i];
}

/* Heads [from, to) of batch × heads. */
void KERNEL(attention)(const void *of, int64_t from, int64_t to)
{
    const pl_attention_job_t *job = of;
    for (int64_t index = from; index < to; index++) {
        attention_head_t h = head_start(job, index);
        h.y = side_out(&h, &job->y, h.tokens, true);
        for (int64_t i = 0; i < h.tokens; i += h.block)
            forward_block(&h, block_at(&h, i));
        side_finish(&h, h.y, &job->y, h.tokens, NULL);
    }
}

/* ---- Backward ---- */

/* From weights P and masked dP: d(scores) = P (dP - sum(P dP)), scaled; lanes alone. */
PL_INLINE void slopes(const float *weight, float *slope, int64_t keys, int64_t row,
                      float scale)
{
    lanes_t inner = {0};
    for (int64_t j = 0; j < keys; j++)
        inner += *(const lanes_t *)(weight + j * row) * *(lanes_t *)(slope + j * row);
    for (int64_t j = 0; j < keys; j++) {
        lanes_t *s = (lanes_t *)(slope + j * row);
        *s = *(const lanes_t *)(weight + j * row) * (*s - inner) * scale;
    }
}

static void backward_block(const attention_head_t *h, query_block_t b)
{
    const int64_t rows = b.to - b.from, row = h->block;
    const side_t q = side_at(h->q, b.from, 0), dy = side_at(h->dy, b.from, 0);
    const bool drops = h->job->dropout.p > 0.0;
    const int64_t at = h->index * h->tokens + b.from;
    float row_max[BLOCK] = {0}, factor[BLOCK] = {0};
    memcpy(row_max, h->job->row_max + at, (size_t)rows * sizeof *row_max);
    for (int64_t i = 0; i < rows; i++)
        factor[i] = h->job->sum[at + i] == 0.0f ? 0.0f : 1.0f / h->job->sum[at + i];
    scores(h, b, h->k, h->q, h->weight);
    if (h->bias)
        add_bias(h, b);
    hide(h, b, h->weight, -INFINITY);
    scores(h, b, h->v, h->dy, h->slope);
    hide(h, b, h->slope, 0.0f);                             /* hidden keys get none */
    if (drops) {
        drop(h, b);
        multiply(h->slope, h->factor, b.keys * row);
    }
    for (int64_t v = 0; v < row; v += LANES) {
        exponentials(h->weight + v, b.keys, row, h->job->scale, row_max + v, factor + v);
        slopes(h->weight + v, h->slope + v, b.keys, row, h->job->scale);
    }
    if (drops)
        multiply(h->weight, h->factor, b.keys * row);
    product(rows, h->columns, b.keys, (factor_t){h->slope, 1, row},
            side_at(h->k, b.first, 0), side_at(h->dq, b.from, 0), false);
    product(b.keys, h->columns, rows, (factor_t){h->weight, row, 1}, dy,
            side_at(h->dv, b.first, 0), true);
    product(b.keys, h->columns, rows, (factor_t){h->slope, row, 1}, q,
            side_at(h->dk, b.first, 0), true);
}

void KERNEL(attention_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_attention_job_t *job = of;
    for (int64_t index = from; index < to; index++) {
        attention_head_t h = head_start(job, index);
        h.dy = side_in(&h, &job->dy, h.tokens, true, NULL);
        h.dq = side_out(&h, &job->dq, h.tokens, !job->turns);
        h.dk = side_out(&h, &job->dk, h.keys, false);
        h.dv = side_out(&h, &job->dv, h.keys, false);
        side_clear(&h, h.dk, h.keys);
        side_clear(&h, h.dv, h.keys);
        for (int64_t i = 0; i < h.tokens; i += h.block)
            backward_block(&h, block_at(&h, i));
        side_finish(&h, h.dq, &job->dq, h.tokens, turns_of(&h, false));
        side_finish(&h, h.dk, &job->dk, h.keys, turns_of(&h, true));
        side_finish(&h, h.dv, &job->dv, h.keys, NULL);
    }
}
