/* exec_products.c - matrix products and convolutions by the library, pools and attention
 * by our own kernels */
#include <string.h>

#include "accelerators/cpu/exec_op.h"
#include "accelerators/plan/fuse.h"
#include "accelerators/plan/view.h"
#include "base/alloc.h"
#include "base/error.h"
#include "tensor/windows.h"

/* ---- By the library ---- */

static void release_product(pl_exec_op_t *s)
{
    pl_slices_free(s->own);
}

static int keep_product(pl_exec_op_t *s, pl_slices_t *product)
{
    if (!product)
        return PL_ENOMEM;                              /* any failure; err has its code */
    s->own = product;
    s->release = release_product;
    s->scratch = pl_slices_scratch(product);
    return PL_OK;
}

/* The library has four arguments: the inputs in their order, then the result. */
static int run_product(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    void *argument[4] = {pl_in(s, f, 0), pl_in(s, f, 1), NULL, pl_out(s, f, 0)};
    if (s->op.input_count == 3)
        argument[2] = pl_in(s, f, 2);
    return pl_slices_run(s->own, f->pool, argument, f->scratch, err);
}

/* A matrix or a batch of matrices with `rank` axes, transposed or not; it repeats along
 * axes that are 1 or missing. */
static pl_matrix_t matrix_of(pl_shape_t shape, int rank, bool transposed)
{
    pl_matrix_t m = {{0}, {0}};
    const pl_view_t whole = pl_view_whole(0, shape);
    for (int i = 0; i < rank; i++) {
        const int k = i - (rank - shape.rank);
        m.dim[i] = k < 0 ? 1 : shape.dim[k];
        m.stride[i] = k < 0 ? pl_elements(shape) : whole.stride[k];
    }
    if (transposed) {
        const int64_t dim = m.dim[rank - 2], stride = m.stride[rank - 2];
        m.dim[rank - 2] = m.dim[rank - 1];
        m.stride[rank - 2] = m.stride[rank - 1];
        m.dim[rank - 1] = dim;
        m.stride[rank - 1] = stride;
    }
    return m;
}

static int prepare_matmul(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    const pl_shape_t y = pl_exec_op_out(b, s, 0);
    const bool linear = s->op.code == PL_OP_linear;
    const pl_matmul_t m = {
        .rank = y.rank,
        .a = matrix_of(pl_exec_op_in(b, s, 0), y.rank, s->op.attr.transpose_a),
        .b = matrix_of(pl_exec_op_in(b, s, 1), y.rank, linear || s->op.attr.transpose_b),
        .c = matrix_of(y, y.rank, false),
        .has_bias = s->op.input_count == 3,
        .halves = s->op.attr.dtype == PL_BF16,
    };
    s->run = run_product;
    return keep_product(s, pl_slices_matmul(b->library, b->kernels, b->threads, &m, err));
}

/* ---- Convolutions with kernels of 3 x 3 ---- */

static int64_t winograd_floats(const pl_winograd_job_t *job)
{
    return (16 * job->block + 1) * (job->channels + job->filters);
}

typedef struct winograd_call {
    const pl_winograd_job_t *job;
    pl_kernel_run_t *kernel;
} winograd_call_t;

static void winograd_piece(void *user, int64_t from, int64_t to, int part)
{
    const winograd_call_t *call = user;
    pl_winograd_job_t job = *call->job;
    job.scratch += part * winograd_floats(&job);
    call->kernel(&job, from, to);
}

static int run_winograd(const pl_exec_op_t *s, const pl_exec_context_t *f,
                        pl_error_t *err)
{
    (void)err;
    pl_winograd_job_t job = *(const pl_winograd_job_t *)s->own;
    winograd_call_t call = {&job, f->kernels->winograd};
    job.x = pl_in(s, f, 0);
    job.w = pl_in(s, f, 1);
    job.bias = s->op.input_count == 3 ? pl_in(s, f, 2) : NULL;
    job.y = pl_out(s, f, 0);
    job.packed = (float *)f->scratch;
    job.scratch = job.packed + 16 * job.channels * job.filters;
    pl_parallel_run(f->pool, f->threads, job.channels, 8, f->kernels->winograd_pack,
                    &job);
    pl_parallel_for(f->pool, f->threads, s->size[0], 8, winograd_piece, &call);
    return PL_OK;
}

/* Winograd's products are fewer, but their operands have to be turned.  Measured with
 * AVX2, a training of such layers by the library takes 0.9 times as long with 24
 * channels, 1.07 with 32, 1.2 with 64 and 1.35 with 128; with 256, the turned weights
 * leave the cache. */
static bool winograd_pays(const pl_convolution_t *c, const pl_builder_t *b)
{
    bool is_plain = c->kind != PL_CONVOLVE_GRAD_W && c->groups == 1 && c->in[0] == 1
                    && c->window.kernel[0] == 1 && !strcmp(b->kernels->name, "avx2");
    for (int k = 1; k < PL_SPACE; k++)
        is_plain &= c->window.kernel[k] == 3 && c->window.stride[k] == 1
                    && c->window.dilation[k] == 1 && c->window.before[k] <= 2;
    return is_plain && c->channels % 8 == 0 && c->filters % 8 == 0 && c->channels >= 32
           && c->filters >= 32 && c->channels * c->filters <= 128 * 128
           && c->batch * c->out[1] * c->out[2] >= 256;
}

static int prepare_winograd(pl_exec_op_t *s, const pl_convolution_t *c,
                            const pl_builder_t *b, pl_error_t *err)
{
    enum { CACHE = 3072 };                         /* floats of both kinds at a place */
    const bool turned = c->kind == PL_CONVOLVE_GRAD_X;
    const int64_t block = CACHE / (c->channels + c->filters) / 6 * 6;
    pl_winograd_job_t *job = s->own = pl_alloc(sizeof *job);
    if (!job)
        return pl_no_memory(err);
    *job = (pl_winograd_job_t){.channels = turned ? c->filters : c->channels,
                               .filters = turned ? c->channels : c->filters,
                               .block = block < 12 ? 12 : block,
                               .turned = turned};
    for (int k = 0; k < 2; k++) {
        const int64_t before = c->window.before[k + 1];
        job->in[k] = turned ? c->out[k + 1] : c->in[k + 1];
        job->out[k] = turned ? c->in[k + 1] : c->out[k + 1];
        job->before[k] = turned ? 2 - before : before;
        job->tiles[k] = (job->out[k] + 1) / 2;
    }
    s->size[0] = c->batch * job->tiles[0] * job->tiles[1];
    s->scratch = (size_t)(16 * job->channels * job->filters
                          + b->threads * winograd_floats(job))
                 * sizeof(float);
    s->run = run_winograd;
    return PL_OK;
}

/* x and y are [B, ..., C], w [filters, C / groups, ...]. */
static int prepare_convolution(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    const pl_shape_t first = pl_exec_op_in(b, s, 0), second = pl_exec_op_in(b, s, 1),
                     result = pl_exec_op_out(b, s, 0);
    pl_shape_t x = first, y = result;
    pl_convolution_t c = {.kind = PL_CONVOLVE, .has_bias = s->op.input_count == 3};
    if (s->op.code == PL_OP_conv_grad_x) {
        c = (pl_convolution_t){.kind = PL_CONVOLVE_GRAD_X};
        x = result, y = first;
    } else if (s->op.code == PL_OP_conv_grad_w) {
        c = (pl_convolution_t){.kind = PL_CONVOLVE_GRAD_W};
        x = second, y = first;
    }
    c.batch = x.dim[0], c.channels = x.dim[x.rank - 1], c.filters = y.dim[y.rank - 1];
    c.groups = s->op.attr.groups;
    c.window = s->op.attr.window;
    pl_space_of(x, 1, c.in);
    pl_space_of(y, 1, c.out);
    c.is_small = c.out[0] * c.out[1] * c.out[2] <= 4;
    c.may_unfold = c.is_small || strcmp(b->kernels->name, "avx512") != 0;
    if (winograd_pays(&c, b))
        return prepare_winograd(s, &c, b, err);
    s->run = run_product;
    return keep_product(s, pl_slices_convolution(b->library, b->threads, &c, err));
}

/* ---- Pools ---- */

static int run_pool(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    pl_pool_job_t job = *(const pl_pool_job_t *)s->own;
    pl_kernel_run_t *kernel = NULL;
    switch (s->op.code) {
    case PL_OP_avg_pool: kernel = f->kernels->average; break;
    case PL_OP_avg_pool_grad: kernel = f->kernels->average_grad; break;
    case PL_OP_max_pool:
        kernel = f->kernels->pool;
        job.where = pl_out(s, f, 1) ? pl_out(s, f, 1) : (int32_t *)f->scratch;
        break;
    default: kernel = f->kernels->pool_grad; job.where = pl_in(s, f, 1);
    }
    job.x = job.dy = pl_in(s, f, 0);
    job.y = job.dx = pl_out(s, f, 0);
    pl_parallel_run(f->pool, f->threads, job.batch, 1, kernel, &job);
    return PL_OK;
}

static int prepare_pool(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    const bool grad = s->op.code == PL_OP_max_pool_grad
                      || s->op.code == PL_OP_avg_pool_grad;
    const pl_shape_t first = pl_exec_op_in(b, s, 0), result = pl_exec_op_out(b, s, 0),
                     x = grad ? result : first, y = grad ? first : result;
    pl_pool_job_t *job = s->own = pl_alloc(sizeof *job);
    if (!job)
        return pl_no_memory(err);
    job->batch = x.dim[0];
    job->channels = x.dim[x.rank - 1];
    job->window = s->op.attr.window;
    job->adaptive = s->op.attr.adaptive;
    job->counts_padding = s->op.attr.counts_padding;
    pl_space_of(x, 1, job->in);
    pl_space_of(y, 1, job->out);
    if (s->op.code == PL_OP_max_pool
        && b->allocation[s->op.output[1]].kind == PL_ALLOCATION_NONE)
        s->scratch = (size_t)pl_elements(pl_exec_op_out(b, s, 1)) * sizeof(int32_t);
    s->run = run_pool;
    return PL_OK;
}

/* ---- Attention ---- */

typedef struct attention_side {
    pl_strides_t strides;                          /* without the address */
    int64_t offset;                                /* elements from the value's address */
} attention_side_t;

typedef struct attention_own {
    pl_attention_job_t job;                           /* without addresses */
    size_t part;                                      /* bytes of scratch for each part */
    attention_side_t in[PL_OP_INPUTS], out[PL_OP_OUTPUTS];
} attention_own_t;

typedef struct attention_call {
    pl_attention_job_t job;
    size_t part;
    pl_kernel_run_t *kernel;
} attention_call_t;

static void attention_piece(void *user, int64_t from, int64_t to, int part)
{
    const attention_call_t *call = user;
    pl_attention_job_t job = call->job;
    job.scratch += (size_t)part * call->part;
    call->kernel(&job, from, to);
}

static attention_side_t side_of(const pl_view_t *view)
{
    return (attention_side_t){{.batch = view->stride[0],
                               .head = view->stride[1],
                               .token = view->stride[2]},
                              view->offset};
}

static pl_strides_t strides_in(const pl_exec_op_t *s, const pl_exec_context_t *f, int k)
{
    const attention_side_t *side = &((const attention_own_t *)s->own)->in[k];
    pl_strides_t strides = side->strides;
    strides.at = (const float *)pl_in(s, f, k) + side->offset;
    return strides;
}

/* An unused gradient is written to scratch, after the scratch of the kernel. */
static pl_strides_t strides_out(const pl_exec_op_t *s, const pl_exec_context_t *f, int k)
{
    const attention_own_t *own = s->own;
    pl_strides_t strides = own->out[k].strides;
    strides.at = pl_out(s, f, k) ? (const float *)pl_out(s, f, k) + own->out[k].offset
                                 : (float *)(f->scratch + own->part * (size_t)f->threads);
    return strides;
}

/* The gradient has dy before q, k and v, and y after them; size[0]: the mask is a
 * bias. */
static int run_attention(const pl_exec_op_t *s, const pl_exec_context_t *f,
                         pl_error_t *err)
{
    (void)err;
    const bool grad = s->op.code == PL_OP_attention_grad;
    const int mask = grad ? 6 : 3;
    const attention_own_t *own = s->own;
    attention_call_t call = {own->job, own->part,
                             grad ? f->kernels->attention_grad : f->kernels->attention};
    call.job.scratch = f->scratch;
    call.job.dropout = pl_dropout_init(f->replay->seed, f->replay->step,
                                       f->replay->micro_batch, s->op.attr.stream,
                                       s->op.attr.b);
    call.job.q = strides_in(s, f, grad);
    call.job.k = strides_in(s, f, 1 + grad);
    call.job.v = strides_in(s, f, 2 + grad);
    if (grad) {
        call.job.dy = strides_in(s, f, 0);
        call.job.y = strides_in(s, f, 4);
        call.job.dq = strides_out(s, f, 0);
        call.job.dk = strides_out(s, f, 1);
        call.job.dv = strides_out(s, f, 2);
    } else {
        call.job.y = strides_out(s, f, 0);
    }
    const int last = s->op.input_count - (s->op.attr.axis > 0);
    if (last > mask && s->size[0])
        call.job.bias = strides_in(s, f, mask);
    else if (last > mask)
        call.job.mask = pl_in(s, f, mask);
    if (s->op.attr.axis)
        call.job.turns = pl_in(s, f, last);
    call.job.row_max = grad ? pl_in(s, f, 5) : pl_out(s, f, 1);
    if (call.job.row_max)
        call.job.sum = call.job.row_max
                       + call.job.batch * call.job.heads * call.job.tokens;
    pl_parallel_for(f->pool, f->threads, call.job.batch * call.job.heads, 1,
                    attention_piece, &call);
    return PL_OK;
}

/* Of [batch, tokens, heads, width]; the scores' maxima and sums have three axes. */
static attention_side_t side_of_tokens(const pl_view_t *view)
{
    static const int swap[] = {0, 2, 1, 3};
    const pl_view_t swapped = view->shape.rank == 4 ? pl_view_permute(view, swap) : *view;
    return side_of(&swapped);
}

void pl_attention_join(pl_exec_op_t *s, const pl_builder_t *b, const pl_op_t *concat)
{
    attention_own_t *own = s->own;
    const pl_view_t *view = &b->lowered->view[concat->attr.from];
    pl_view_t place;
    for (int k = 0; k < concat->input_count; k++)
        for (int i = 0; i < s->op.output_count; i++)
            if (s->op.output[i] == concat->input[k]
                && pl_concat_place(&b->lowered->graph, concat, view, k, &place)) {
                own->out[i] = side_of_tokens(&place);
                s->op.output[i] = concat->output[0];
                break;
            }
}

static int prepare_attention(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    const bool grad = s->op.code == PL_OP_attention_grad;
    const pl_view_t *strides = &b->lowered->view[s->op.attr.from];
    const pl_shape_t q = strides[grad].shape;
    attention_own_t *own = s->own = pl_alloc(sizeof *own);
    if (!own)
        return pl_no_memory(err);
    for (int k = 0; k < s->op.input_count; k++) {
        pl_view_t view = strides[k];
        if (k == (grad ? 6 : 3))
            s->size[0] = view.shape.rank == 4;
        for (int i = 0; i < 3 && k == (grad ? 6 : 3) && s->size[0]; i++)
            view.stride[i] = view.shape.dim[i] > 1 ? view.stride[i] : 0;
        own->in[k] = side_of(&view);
    }
    for (int k = 0; k < s->op.output_count; k++) {
        const pl_view_t view = pl_view_whole(s->op.output[k], pl_exec_op_out(b, s, k));
        own->out[k] = side_of_tokens(&view);
    }
    own->job = (pl_attention_job_t){.batch = q.dim[0],
                                    .heads = q.dim[1],
                                    .tokens = q.dim[2],
                                    .keys = strides[1 + grad].shape.dim[2],
                                    .width = q.dim[3],
                                    .scale = (float)s->op.attr.a,
                                    .causal = s->op.attr.causal,
                                    .apart = s->op.attr.axis,
                                    .window = s->op.attr.to};
    own->part = (b->kernels->attention_scratch(&own->job) + 63) / 64 * 64;
    s->scratch = own->part * (size_t)b->threads
                 + (size_t)(pl_elements(q) + pl_elements(strides[1 + grad].shape))
                       * sizeof(float);
    s->run = run_attention;
    return PL_OK;
}

const pl_prepare_t pl_prepare_products[PL_OPCODES] = {
    [PL_OP_attention] = prepare_attention,     [PL_OP_attention_grad] = prepare_attention,
    [PL_OP_avg_pool] = prepare_pool,           [PL_OP_avg_pool_grad] = prepare_pool,
    [PL_OP_conv] = prepare_convolution,        [PL_OP_conv_grad_w] = prepare_convolution,
    [PL_OP_conv_grad_x] = prepare_convolution, [PL_OP_linear] = prepare_matmul,
    [PL_OP_matmul] = prepare_matmul,           [PL_OP_max_pool] = prepare_pool,
    [PL_OP_max_pool_grad] = prepare_pool,
};
