/* exec_axis.c - operators along one axis: gather, scatter, sort, cumulative sums; and
 * random numbers
 *
 * Threads share the results, so that each result is computed by one of them, in the order
 * of positions. */
#include <math.h>
#include <string.h>

#include "accelerators/cpu/exec_op.h"
#include "accelerators/cpu/parallel.h"
#include "base/error.h"

static int threads_for(const pl_exec_context_t *f, int64_t elements)
{
    return elements < PL_PARALLEL_MIN ? 1 : f->threads;
}

/* ---- gather and scatter: size is outer, rows, n, inner, outer and inner size of the
 * indices ---- */

static int run_gather(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    const bool scatters = s->op.code == PL_OP_scatter;
    const int64_t *size = s->size, indices = size[4] * size[2] * size[5];
    const pl_gather_job_t job = {.rows = size[1],
                                 .n = size[2],
                                 .inner = size[3],
                                 .outer_step = size[4] > 1 ? size[2] : 0,
                                 .index_inner = size[5],
                                 .dtype = s->dtype,
                                 .size = (size_t)size[6],
                                 .indices = pl_in(s, f, !scatters),
                                 .x = pl_in(s, f, scatters),
                                 .y = pl_out(s, f, 0)};
    int code = pl_check_indices(s, job.indices, indices, size[1], err);
    if (code != PL_OK)
        return code;
    const int threads = threads_for(f, size[0] * size[2] * size[3]);
    if (scatters)                          /* whole tables, if there are enough of them */
        pl_parallel_run(f->pool, threads, size[0] * size[1],
                        size[0] >= threads ? size[1] : 1, f->kernels->scatter, &job);
    else
        pl_parallel_run(f->pool, threads, size[0] * size[2], 16, f->kernels->gather,
                        &job);
    return PL_OK;
}

static int prepare_gather(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const bool scatters = s->op.code == PL_OP_scatter;
    const pl_shape_t table = scatters ? pl_exec_op_out(b, s, 0) : pl_exec_op_in(b, s, 0),
                     indices = pl_exec_op_in(b, s, !scatters);
    const pl_graph_t *g = &b->lowered->graph;
    s->size[0] = table.dim[0];
    s->size[1] = table.dim[1];
    s->size[2] = indices.dim[1];
    s->size[3] = table.dim[2];
    s->size[4] = indices.dim[0];
    s->size[5] = indices.dim[2];
    s->size[6] = (int64_t)pl_dtype_size(g->value[s->op.output[0]].dtype);
    s->dtype = g->value[s->op.input[!scatters]].dtype;
    s->run = run_gather;
    return PL_OK;
}

/* ---- sort: size is outer, n, inner, count ----
 *
 * A key has the order of a number in its upper half and its position in the lower one: so
 * keys differ, and equal numbers stay in their order. */

static uint64_t key_of(float x, int64_t position, bool falls)
{
    uint32_t bits;
    const float positive = x + 0.0f;                        /* -0 is 0 */
    memcpy(&bits, &positive, sizeof bits);
    bits = isnan(x) ? UINT32_MAX : bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)(falls ? ~bits : bits) << 32 | (uint64_t)position;
}

static void sort_few(uint64_t *key, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const uint64_t x = key[i];
        int64_t to = i;
        for (; to > 0 && key[to - 1] > x; to--)
            key[to] = key[to - 1];
        key[to] = x;
    }
}

/* By the bytes of the upper half, the lowest first; positions rise from the start, or the
 * lower half is sorted too. */
static void sort_keys(uint64_t *key, uint64_t *spare, int64_t n, int first_byte)
{
    if (n <= 32) {
        sort_few(key, n);
        return;
    }
    for (int byte = first_byte; byte < 8; byte++) {
        int64_t start[257] = {0};
        for (int64_t i = 0; i < n; i++)
            start[(key[i] >> (8 * byte) & 255) + 1]++;
        for (int k = 0; k < 256; k++)
            start[k + 1] += start[k];
        for (int64_t i = 0; i < n; i++)
            spare[start[key[i] >> (8 * byte) & 255]++] = key[i];
        uint64_t *const sorted = spare;
        spare = key;
        key = sorted;
    }
}

/* Puts a key on top of a heap of n, whose largest key is on top. */
static void heap_put(uint64_t *heap, int64_t n, uint64_t key)
{
    int64_t at = 0;
    for (int64_t below; (below = 2 * at + 1) < n; at = below) {
        below += below + 1 < n && heap[below + 1] > heap[below];
        if (heap[below] <= key)
            break;
        heap[at] = heap[below];
    }
    heap[at] = key;
}

typedef struct sort_call {
    const pl_exec_op_t *s;
    const float *x;
    int32_t *to;
    uint64_t *scratch;                                      /* [parts][2][n] */
} sort_call_t;

/* The smallest `count` of n keys, in order; n / 8 or fewer are kept in a heap. */
static void sort_piece(void *user, int64_t from, int64_t to, int part)
{
    const sort_call_t *c = user;
    const int64_t n = c->s->size[1], inner = c->s->size[2], count = c->s->size[3];
    const bool falls = c->s->op.attr.keep;
    uint64_t *key = c->scratch + 2 * n * part, *spare = key + n;
    for (int64_t at = from; at < to; at++) {
        const float *x = c->x + at / inner * n * inner + at % inner;
        int32_t *y = c->to + at / inner * count * inner + at % inner;
        const int64_t kept = count * 8 <= n ? count : n;
        for (int64_t i = 0; i < kept; i++)
            key[i] = key_of(x[i * inner], i, falls);
        if (kept < n) {
            memset(spare, 255, (size_t)kept * sizeof *spare);
            for (int64_t i = 0; i < n; i++) {
                const uint64_t next = key_of(x[i * inner], i, falls);
                if (next < spare[0])
                    heap_put(spare, kept, next);
            }
            memcpy(key, spare, (size_t)kept * sizeof *key);
        }
        sort_keys(key, spare, kept, kept < n ? 0 : 4);
        for (int64_t i = 0; i < count; i++)
            y[i * inner] = (int32_t)(uint32_t)key[i];
    }
}

static int run_sort(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    sort_call_t c = {s, pl_in(s, f, 0), pl_out(s, f, 0), (uint64_t *)f->scratch};
    pl_parallel_for(f->pool, threads_for(f, s->size[0] * s->size[1] * s->size[2]),
                    s->size[0] * s->size[2], 1, sort_piece, &c);
    return PL_OK;
}

/* ---- cumsum: size is outer, n, inner ---- */

static int run_cumsum(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    const pl_cumsum_job_t job = {.n = s->size[1],
                                 .inner = s->size[2],
                                 .falls = s->op.attr.keep,
                                 .x = pl_in(s, f, 0),
                                 .y = pl_out(s, f, 0)};
    pl_parallel_run(f->pool, threads_for(f, s->size[0] * s->size[1] * s->size[2]),
                    s->size[0] * s->size[2], 16, f->kernels->cumsum, &job);
    return PL_OK;
}

static int prepare_axis(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const bool sorts = s->op.code == PL_OP_sort;
    for (int k = 0; k < 3; k++)
        s->size[k] = pl_exec_op_in(b, s, 0).dim[k];
    s->size[3] = s->op.attr.to;
    s->scratch = sorts ? 2 * (size_t)s->size[1] * (size_t)b->threads * sizeof(uint64_t)
                       : 0;
    s->run = sorts ? run_sort : run_cumsum;
    return PL_OK;
}

/* ---- random: size is the elements ---- */

static int run_random(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    const pl_random_job_t job = {.bits = pl_dropout_init(f->replay->seed, f->replay->step,
                                                         f->replay->micro_batch,
                                                         s->op.attr.stream, 0),
                                 .is_normal = s->op.attr.keep,
                                 .to = pl_out(s, f, 0)};
    pl_parallel_run(f->pool, threads_for(f, s->size[0]), s->size[0], 64,
                    f->kernels->random, &job);
    return PL_OK;
}

static int prepare_random(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    s->size[0] = pl_elements(pl_exec_op_out(b, s, 0));
    s->run = run_random;
    return PL_OK;
}

const pl_prepare_t pl_prepare_axes[PL_OPCODES] = {
    [PL_OP_cumsum] = prepare_axis,   [PL_OP_gather] = prepare_gather,
    [PL_OP_random] = prepare_random, [PL_OP_scatter] = prepare_gather,
    [PL_OP_sort] = prepare_axis,
};
