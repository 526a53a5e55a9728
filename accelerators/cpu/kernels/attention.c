/* attention.c - softmax(q k^T) v and its gradients, a head at a time
 *
 * Queries go in blocks, for which the weights of all keys they see fit into the second-level cache; what a causal head
 * does not see is not computed.  Products of blocks are done here, by tiles of vector registers: they are too small
 * for the library.  k and v are turned once a head where a product needs them with keys as neighbours.  Backward makes
 * the weights again from the logarithm of their sum: Dao et al., "FlashAttention", 2022, section 3. */
#include "accelerators/cpu/kernels/dropout.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/vectors.h"

#define BLOCK 32

/* ---- Small products ---- */

/* Element (i, k) of a factor is at[i row + k step]. */
typedef struct factor {
    const float *at;
    int64_t row, step;
} factor_t;

/* `rows` rows and `vectors` vectors of c (+)= a b, b [depth, …] in rows `b_row` apart. */
PL_INLINE void tile(int rows, int vectors, int64_t depth, factor_t a, const float *b, int64_t b_row, float *c,
                    int64_t c_row, bool add)
{
    lanes_t sum[TILE_ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = add ? *(const lanes_t *)(c + i * c_row + v * LANES) : (lanes_t){0};
    for (int64_t k = 0; k < depth; k++) {
        lanes_t right[2];
        for (int v = 0; v < vectors; v++)
            right[v] = *(const lanes_t *)(b + k * b_row + v * LANES);
        for (int i = 0; i < rows; i++) {
            const float left = a.at[i * a.row + k * a.step];
            for (int v = 0; v < vectors; v++)
                sum[i][v] += left * right[v];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            *(lanes_t *)(c + i * c_row + v * LANES) = sum[i][v];
}

/* The tiles of one strip of columns; constants, so that sums stay in registers. */
PL_INLINE void strip(int vectors, int64_t rows, int64_t depth, factor_t a, const float *b, int64_t b_row, float *c,
                     int64_t c_row, bool add)
{
    int64_t i = 0;
    for (; i + TILE_ROWS <= rows; i += TILE_ROWS)
        tile(TILE_ROWS, vectors, depth, (factor_t){a.at + i * a.row, a.row, a.step}, b, b_row, c + i * c_row, c_row,
             add);
    for (; i < rows; i++)
        tile(1, vectors, depth, (factor_t){a.at + i * a.row, a.row, a.step}, b, b_row, c + i * c_row, c_row, add);
}

/* c [rows, columns] (+)= a [rows, depth] b [depth, columns]; columns is a multiple of LANES. */
static void product(int64_t rows, int64_t columns, int64_t depth, factor_t a, const float *b, int64_t b_row, float *c,
                    int64_t c_row, bool add)
{
    int64_t j = 0;
    for (; j + 2 * LANES <= columns; j += 2 * LANES)
        strip(2, rows, depth, a, b + j, b_row, c + j, c_row, add);
    if (j < columns)
        strip(1, rows, depth, a, b + j, b_row, c + j, c_row, add);
}

/* ---- One head ---- */

static int64_t padded(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* A head's tensors as products take them: rows `row` apart, padded with zeros to whole vectors. */
typedef struct side {
    float *at;
    int64_t row;
} side_t;

typedef struct head {
    const pl_attention_job_t *job;
    int64_t index, tokens, width, columns;                  /* columns: width padded */
    int64_t keys;                                           /* tokens padded: the row of what has keys as columns */
    side_t q, k, v, y, dy, dq, dk, dv;
    float *k_turned, *v_turned;                             /* [width, keys] */
    float *weight, *slope;                                  /* [BLOCK, keys] */
    float *factor;                                          /* [keys] of dropout */
    float *free;                                            /* scratch not yet used */
} head_t;

static float *head_take(head_t *h, int64_t floats)
{
    float *at = h->free;
    h->free += padded(floats);
    return at;
}

static float *look_at(const head_t *h, const pl_look_t *look)
{
    return (float *)look->at + h->index / h->job->heads * look->batch + h->index % h->job->heads * look->head;
}

/* The tensor itself when its width fills vectors, else a padded copy. */
static side_t side_in(head_t *h, const pl_look_t *look)
{
    float *from = look_at(h, look);
    if (h->width == h->columns)
        return (side_t){from, look->token};
    float *copy = head_take(h, h->tokens * h->columns);
    for (int64_t t = 0; t < h->tokens; t++) {
        memcpy(copy + t * h->columns, from + t * look->token, (size_t)h->width * sizeof *copy);
        memset(copy + t * h->columns + h->width, 0, (size_t)(h->columns - h->width) * sizeof *copy);
    }
    return (side_t){copy, h->columns};
}

static side_t side_out(head_t *h, const pl_look_t *look)
{
    if (h->width == h->columns)
        return (side_t){look_at(h, look), look->token};
    return (side_t){head_take(h, h->tokens * h->columns), h->columns};
}

static void side_clear(const head_t *h, side_t side)
{
    for (int64_t t = 0; t < h->tokens; t++)
        memset(side.at + t * side.row, 0, (size_t)h->columns * sizeof *side.at);
}

/* Puts what was computed into a padded copy where it belongs. */
static void side_finish(const head_t *h, side_t side, const pl_look_t *look)
{
    float *to = look_at(h, look);
    for (int64_t t = 0; t < h->tokens && h->width != h->columns; t++)
        memcpy(to + t * look->token, side.at + t * side.row, (size_t)h->width * sizeof *to);
}

/* side [tokens, width] on its side, [width, keys], zeros beyond the last token. */
static float *turn(head_t *h, side_t side)
{
    float *to = head_take(h, h->width * h->keys);
    for (int64_t e = 0; e < h->width && h->keys > h->tokens; e++)
        memset(to + e * h->keys + h->tokens, 0, (size_t)(h->keys - h->tokens) * sizeof *to);
    transpose_matrix(side.at, side.row, to, h->keys, h->tokens, h->width);
    return to;
}

static head_t head_start(const pl_attention_job_t *job, int64_t index, float *scratch)
{
    head_t h = {.job = job, .index = index, .tokens = job->tokens, .width = job->width, .columns = padded(job->width),
                .keys = padded(job->tokens), .free = scratch};
    h.weight = head_take(&h, BLOCK * h.keys);
    h.slope = head_take(&h, BLOCK * h.keys);
    h.factor = head_take(&h, h.keys);
    h.q = side_in(&h, &job->q);
    h.k = side_in(&h, &job->k);
    h.v = side_in(&h, &job->v);
    h.k_turned = turn(&h, h.k);
    return h;
}

size_t KERNEL(attention_scratch)(const pl_attention_job_t *job)
{
    int64_t keys = padded(job->tokens), columns = padded(job->width);
    int64_t floats = (2 * BLOCK + 1) * keys + 8 * padded(job->tokens * columns) + 2 * padded(job->width * keys);
    return (size_t)floats * sizeof(float);
}

/* How many keys query i sees. */
static int64_t seen_by(const head_t *h, int64_t i)
{
    return h->job->causal ? i + 1 : h->tokens;
}

static void row_factors(const head_t *h, int64_t i, int64_t seen)
{
    if (h->job->dropout.p > 0.0)
        dropout_factors(&h->job->dropout, (uint64_t)((h->index * h->tokens + i) * h->tokens), seen, h->factor);
}

/* ---- Forward ---- */

/* Scores of query i become weights; those of keys it does not see become 0. */
static void weights_of(const head_t *h, int64_t i, float *score, int64_t columns)
{
    const int64_t seen = seen_by(h, i);
    row_scale(score, h->job->scale, seen);
    const float most = row_max(score, seen), sum = row_exp(score, score, most, seen);
    if (h->job->lse)
        h->job->lse[h->index * h->tokens + i] = most + logf(sum);
    row_scale(score, 1.0f / sum, seen);
    row_factors(h, i, seen);
    for (int64_t j = 0; j < seen && h->job->dropout.p > 0.0; j++)
        score[j] *= h->factor[j];
    memset(score + seen, 0, (size_t)(columns - seen) * sizeof *score);
}

static void forward_block(const head_t *h, int64_t from, int64_t to)
{
    const int64_t keys = seen_by(h, to - 1), columns = padded(keys);
    product(to - from, columns, h->width, (factor_t){h->q.at + from * h->q.row, h->q.row, 1}, h->k_turned, h->keys,
            h->weight, h->keys, false);
    for (int64_t i = from; i < to; i++)
        weights_of(h, i, h->weight + (i - from) * h->keys, columns);
    product(to - from, h->columns, keys, (factor_t){h->weight, h->keys, 1}, h->v.at, h->v.row,
            h->y.at + from * h->y.row, h->y.row, false);
}

/* Queries at a time: small ones waste less of a causal head. */
static int64_t block_of(const head_t *h)
{
    return h->tokens < 256 ? BLOCK / 2 : BLOCK;
}

/* Heads [from, to) of batch × heads. */
void KERNEL(attention)(const pl_attention_job_t *job, int64_t from, int64_t to)
{
    for (int64_t index = from; index < to; index++) {
        head_t h = head_start(job, index, (float *)job->scratch);
        h.y = side_out(&h, &job->y);
        for (int64_t i = 0; i < h.tokens; i += block_of(&h))
            forward_block(&h, i, i + block_of(&h) < h.tokens ? i + block_of(&h) : h.tokens);
        side_finish(&h, h.y, &job->y);
    }
}

/* ---- Backward ---- */

/* From scores and d(weights) of query i: the weights P (masked) and d(scores) = P (mask dP - dy . y), scaled. */
static void slopes_of(const head_t *h, int64_t i, float *score, float *slope, int64_t columns)
{
    const int64_t seen = seen_by(h, i);
    const float lse = h->job->lse[h->index * h->tokens + i], scale = h->job->scale;
    const float inner = (float)row_dot(h->dy.at + i * h->dy.row, h->y.at + i * h->y.row, h->width);
    const float *factor = h->factor;
    row_factors(h, i, seen);
    if (h->job->dropout.p > 0.0)
        for (int64_t j = 0; j < seen; j++) {
            float p = pl_expf(score[j] * scale - lse);
            slope[j] = p * (slope[j] * factor[j] - inner) * scale;
            score[j] = p * factor[j];
        }
    else
        for (int64_t j = 0; j < seen; j++) {
            float p = pl_expf(score[j] * scale - lse);
            slope[j] = p * (slope[j] - inner) * scale;
            score[j] = p;
        }
    memset(score + seen, 0, (size_t)(columns - seen) * sizeof *score);
    memset(slope + seen, 0, (size_t)(columns - seen) * sizeof *slope);
}

static void backward_block(const head_t *h, int64_t from, int64_t to)
{
    const int64_t rows = to - from, keys = seen_by(h, to - 1), columns = padded(keys);
    const float *q = h->q.at + from * h->q.row, *dy = h->dy.at + from * h->dy.row;
    product(rows, columns, h->width, (factor_t){q, h->q.row, 1}, h->k_turned, h->keys, h->weight, h->keys, false);
    product(rows, columns, h->width, (factor_t){dy, h->dy.row, 1}, h->v_turned, h->keys, h->slope, h->keys, false);
    for (int64_t i = from; i < to; i++)
        slopes_of(h, i, h->weight + (i - from) * h->keys, h->slope + (i - from) * h->keys, columns);
    product(rows, h->columns, keys, (factor_t){h->slope, h->keys, 1}, h->k.at, h->k.row, h->dq.at + from * h->dq.row,
            h->dq.row, false);
    product(keys, h->columns, rows, (factor_t){h->weight, 1, h->keys}, dy, h->dy.row, h->dv.at, h->dv.row, true);
    product(keys, h->columns, rows, (factor_t){h->slope, 1, h->keys}, q, h->q.row, h->dk.at, h->dk.row, true);
}

void KERNEL(attention_grad)(const pl_attention_job_t *job, int64_t from, int64_t to)
{
    for (int64_t index = from; index < to; index++) {
        head_t h = head_start(job, index, (float *)job->scratch);
        h.y = side_in(&h, &job->y);
        h.dy = side_in(&h, &job->dy);
        h.v_turned = turn(&h, h.v);
        h.dq = side_out(&h, &job->dq);
        h.dk = side_out(&h, &job->dk);
        h.dv = side_out(&h, &job->dv);
        side_clear(&h, h.dk);
        side_clear(&h, h.dv);
        for (int64_t i = 0; i < h.tokens; i += block_of(&h))
            backward_block(&h, i, i + block_of(&h) < h.tokens ? i + block_of(&h) : h.tokens);
        side_finish(&h, h.dq, &job->dq);
        side_finish(&h, h.dk, &job->dk);
        side_finish(&h, h.dv, &job->dv);
    }
}
