/* library_onednn.c - matrix products and convolutions by oneDNN 2.6 and later 2.x
 *
 * Each product is a sequence of primitives: the computation, for convolutions a reorder
 * of the weights from or to the layout that the library prefers, and for bfloat16
 * products a conversion of both factors.  Memory objects are bound to addresses before
 * each run.  The caller owns the scratchpad: with oneDNN's own, a primitive made on one
 * thread crashes on another. */
#include "accelerators/cpu/library.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define CALLS_MAX 3
#define MEMORIES 12
#define HALVES_MIN (1 << 20)          /* multiplications that are worth the conversions */
#define FROM_SCRATCH (-1)

struct pl_library {
    dnnl_engine_t engine;
};

typedef struct primitive_call {
    dnnl_primitive_t primitive;
    int count;
    dnnl_exec_arg_t arg[6];
} primitive_call_t;

/* A memory object and the place of its data: an argument of the run, or an offset in the
 * scratch. */
typedef struct binding {
    dnnl_memory_t memory;
    int argument;
    size_t offset;
} binding_t;

struct pl_cpu_product {
    pl_library_t *library;
    dnnl_stream_t stream;                              /* threads cannot share a stream */
    int calls, bindings;
    primitive_call_t call[CALLS_MAX];
    binding_t binding[MEMORIES];
    size_t scratch;
};

char *pl_library_name(char text[static 64])
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, 64, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

/* Converts a status of the library; `what` names the object it made or ran. */
static int answer(dnnl_status_t status, const char *what, pl_error_t *err)
{
    if (status == dnnl_success)
        return PL_OK;
    if (status == dnnl_out_of_memory)
        return pl_no_memory(err);
    if (status == dnnl_unimplemented)
        return pl_fail(err, PL_EUNSUPPORTED, "oneDNN has no %s for these sizes", what);
    return pl_fail(err, PL_EBUG, "oneDNN refused a %s (status %d)", what, (int)status);
}

pl_library_t *pl_library_new(pl_error_t *err)
{
    pl_library_t *library = pl_alloc(sizeof *library);
    if (!library) {
        pl_no_memory(err);
        return NULL;
    }
    dnnl_status_t status = dnnl_engine_create(&library->engine, dnnl_cpu, 0);
    if (answer(status, "engine", err) == PL_OK)
        return library;
    pl_library_free(library);
    return NULL;
}

void pl_library_free(pl_library_t *library)
{
    if (!library)
        return;
    if (library->engine)
        dnnl_engine_destroy(library->engine);
    pl_free(library);
}

/* ---- Building a product ---- */

static pl_cpu_product_t *product_done(pl_cpu_product_t *p, dnnl_status_t status,
                                      const char *what, pl_error_t *err)
{
    if (answer(status, what, err) == PL_OK)
        return p;
    pl_cpu_product_free(p);
    return NULL;
}

static pl_cpu_product_t *product_new(pl_library_t *library, pl_error_t *err)
{
    pl_cpu_product_t *p = pl_alloc(sizeof *p);
    if (!p) {
        pl_no_memory(err);
        return NULL;
    }
    /* The library takes its number of threads from the calling thread. */
    omp_set_num_threads(1);
    p->library = library;
    dnnl_status_t status = dnnl_stream_create(&p->stream, library->engine,
                                              dnnl_stream_default_flags);
    return product_done(p, status, "stream", err);
}

/* Makes a memory object of `md`, bound to an argument or to a piece of the scratch
 * (FROM_SCRATCH). */
static dnnl_status_t bind(pl_cpu_product_t *p, const dnnl_memory_desc_t *md, int argument,
                          dnnl_memory_t *memory)
{
    binding_t *b = &p->binding[p->bindings];
    dnnl_status_t status = dnnl_memory_create(&b->memory, md, p->library->engine,
                                              DNNL_MEMORY_NONE);
    if (status != dnnl_success)
        return status;
    p->bindings++;
    b->argument = argument;
    if (argument == FROM_SCRATCH) {
        b->offset = p->scratch;
        p->scratch += (dnnl_memory_desc_get_size(md) + 63) / 64 * 64;
    }
    *memory = b->memory;
    return dnnl_success;
}

static dnnl_status_t give(pl_cpu_product_t *p, primitive_call_t *s, int name,
                          const dnnl_memory_desc_t *md, int argument)
{
    s->arg[s->count].arg = name;
    return bind(p, md, argument, &s->arg[s->count++].memory);
}

static void give_bound(primitive_call_t *s, int name, dnnl_memory_t memory)
{
    s->arg[s->count++] = (dnnl_exec_arg_t){name, memory};
}

static const dnnl_memory_desc_t *description(dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

/* Makes the primitive of a call and gives it its scratchpad. */
static dnnl_status_t call_make(pl_cpu_product_t *p, primitive_call_t *s,
                               dnnl_primitive_desc_t pd)
{
    dnnl_status_t status = dnnl_primitive_create(&s->primitive, pd);
    const dnnl_memory_desc_t *scratchpad = description(pd, dnnl_query_scratchpad_md);
    if (status != dnnl_success || dnnl_memory_desc_get_size(scratchpad) == 0)
        return status;
    return give(p, s, DNNL_ARG_SCRATCHPAD, scratchpad, FROM_SCRATCH);
}

/* The attributes of all our primitives: the caller owns the scratchpad, and the result
 * may be added to the output. */
static dnnl_status_t attributes(bool accumulate, dnnl_primitive_attr_t *attr)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(*attr,
                                                         dnnl_scratchpad_mode_user);
    if (status != dnnl_success || !accumulate)
        return status;
    status = dnnl_post_ops_create(&ops);
    if (status == dnnl_success)
        status = dnnl_post_ops_append_sum(ops, 1.0f);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*attr, ops);
    dnnl_post_ops_destroy(ops);
    return status;
}

/* Describes the library's primitive whose name begins with `name`  [NULL, or it has none:
 * its first choice]. */
static dnnl_status_t choose(const_dnnl_op_desc_t of, dnnl_primitive_attr_t attr,
                            dnnl_engine_t engine, const char *name,
                            dnnl_primitive_desc_t *pd)
{
    dnnl_primitive_desc_iterator_t next = NULL;
    dnnl_status_t status = dnnl_primitive_desc_create(pd, of, attr, engine, NULL);
    if (status == dnnl_success && name)
        status = dnnl_primitive_desc_iterator_create(&next, of, attr, engine, NULL);
    for (bool found = !next; status == dnnl_success && !found;) {
        dnnl_primitive_desc_t one = dnnl_primitive_desc_iterator_fetch(next);
        const char *its = "";
        dnnl_primitive_desc_query(one, dnnl_query_impl_info_str, 0, &its);
        found = strncmp(its, name, strlen(name)) == 0;
        dnnl_primitive_desc_destroy(found ? *pd : one);
        if (found)
            *pd = one;
        else if (dnnl_primitive_desc_iterator_next(next) != dnnl_success)
            break;
    }
    if (next)
        dnnl_primitive_desc_iterator_destroy(next);
    return status;
}

/* ---- Matrices ---- */

static dnnl_status_t matrix_describe(int rank, const pl_matrix_t *m,
                                     dnnl_memory_desc_t *md)
{
    dnnl_dims_t dim, stride;
    for (int i = 0; i < rank; i++) {
        dim[i] = m->dim[i];
        stride[i] = m->stride[i];
    }
    return dnnl_memory_desc_init_by_strides(md, rank, dim, dnnl_f32, stride);
}

/* Converts an argument to bfloat16 in the library's layout, in scratch. */
static dnnl_status_t convert(pl_cpu_product_t *p, primitive_call_t *product, int name,
                             const dnnl_memory_desc_t *plain,
                             const dnnl_memory_desc_t *wanted, int argument)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_engine_t engine = p->library->engine;
    primitive_call_t *s = &p->call[p->calls++];
    dnnl_memory_t memory = NULL;
    dnnl_status_t status = attributes(false, &attr);
    if (status == dnnl_success)
        status = dnnl_reorder_primitive_desc_create(&pd, plain, engine, wanted, engine,
                                                    attr);
    if (status == dnnl_success)
        status = call_make(p, s, pd);
    if (status == dnnl_success)
        status = give(p, s, DNNL_ARG_FROM, plain, argument);
    if (status == dnnl_success)
        status = bind(p, wanted, FROM_SCRATCH, &memory);
    if (status == dnnl_success) {
        give_bound(s, DNNL_ARG_TO, memory);
        give_bound(product, name, memory);
    }
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status;
}

/* A factor of 16 bits in any layout. */
static dnnl_status_t halves_describe(int rank, const pl_matrix_t *m,
                                     dnnl_memory_desc_t *md)
{
    dnnl_dims_t dim;
    for (int i = 0; i < rank; i++)
        dim[i] = m->dim[i];
    return dnnl_memory_desc_init_by_tag(md, rank, dim, dnnl_bf16, dnnl_format_tag_any);
}

/* On processors with AVX512-FP16 only the products of AMX are faster: AVX512-BF16's have
 * half the speed of float32's there (110 to 225 GFLOP/s on a core of Sapphire Rapids). */
bool pl_library_has_halves(void)
{
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    bool faster = isa == dnnl_cpu_isa_avx512_core_amx;
#if defined(__x86_64__)
    faster |= isa == dnnl_cpu_isa_avx512_core_bf16
              && !__builtin_cpu_supports("avx512fp16");
#endif
    return faster;
}

static bool uses_halves(const pl_matmul_t *m)
{
    double work = (double)m->a.dim[m->rank - 1];
    for (int i = 0; i < m->rank; i++)
        work *= (double)m->c.dim[i];
    return m->halves && work >= HALVES_MIN && pl_library_has_halves();
}

/* Whether the library's product of packed blocks is the faster one, which with AVX-512 is
 * not its first choice.  By measurements of 80 products of 128 to 3072 rows and columns
 * it is up to 1.8 times as fast if neither factor lies on its side, or only the first
 * and the result is wide or not high.  If only the second does it is 1.05 to 1.09 times
 * as fast, but not with a bias, which it adds in a pass of its own. */
static bool is_for_blocks(const pl_matmul_t *m)
{
    const int row = m->rank - 2, column = m->rank - 1;
    const int64_t high = m->c.dim[row], wide = m->c.dim[column];
    if (m->rank != 2 || m->a.dim[column] < 128)
        return false;
    if (m->b.stride[column] != 1)
        return m->a.stride[column] == 1 && !m->has_bias;
    return m->a.stride[column] == 1 || high <= 768 || high <= 3 * wide || wide >= 640;
}

pl_cpu_product_t *pl_cpu_product_matmul(pl_library_t *library, const pl_matmul_t *m,
                                        pl_error_t *err)
{
    pl_cpu_product_t *p = product_new(library, err);
    if (!p)
        return NULL;
    dnnl_memory_desc_t plain[3], bias, half[2];
    const pl_matrix_t *matrix[3] = {&m->a, &m->b, &m->c};
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    primitive_call_t product = {0};
    const bool halves = uses_halves(m);
    const int64_t n = m->c.dim[m->rank - 1];
    pl_matrix_t row = {.dim = {1, 1, 1, 1, 1}, .stride = {n, n, n, n, n}};  /* the bias */
    row.dim[m->rank - 1] = n;
    row.stride[m->rank - 1] = 1;
    dnnl_status_t status = attributes(m->accumulate, &attr);
    for (int k = 0; k < 3 && status == dnnl_success; k++)
        status = matrix_describe(m->rank, matrix[k], &plain[k]);
    for (int k = 0; k < 2 && status == dnnl_success && halves; k++)
        status = halves_describe(m->rank, matrix[k], &half[k]);
    if (status == dnnl_success && m->has_bias)
        status = matrix_describe(m->rank, &row, &bias);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&matmul, halves ? &half[0] : &plain[0],
                                       halves ? &half[1] : &plain[1],
                                       m->has_bias ? &bias : NULL, &plain[2]);
    if (status == dnnl_success)
        status = choose(&matmul, attr, library->engine,
                        !halves && is_for_blocks(m) ? "gemm:jit" : NULL, &pd);
    if (status == dnnl_success && halves)
        status = convert(p, &product, DNNL_ARG_SRC, &plain[0],
                         description(pd, dnnl_query_src_md), 0);
    else if (status == dnnl_success)
        status = give(p, &product, DNNL_ARG_SRC, &plain[0], 0);
    if (status == dnnl_success && halves)
        status = convert(p, &product, DNNL_ARG_WEIGHTS, &plain[1],
                         description(pd, dnnl_query_weights_md), 1);
    else if (status == dnnl_success)
        status = give(p, &product, DNNL_ARG_WEIGHTS, &plain[1], 1);
    if (status == dnnl_success)
        status = call_make(p, &product, pd);
    if (status == dnnl_success && m->has_bias)
        status = give(p, &product, DNNL_ARG_BIAS, &bias, 2);
    if (status == dnnl_success)
        status = give(p, &product, DNNL_ARG_DST, &plain[2], 3);
    p->call[p->calls++] = product;
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    if (halves && status == dnnl_unimplemented) {
        pl_matmul_t wide = *m;
        wide.halves = false;
        pl_cpu_product_free(p);
        return pl_cpu_product_matmul(library, &wide, err);
    }
    return product_done(p, status, "matrix product", err);
}

/* ---- Convolutions ---- */

typedef struct convolution {
    dnnl_memory_desc_t x, w, bias, y;       /* w in any layout that the library prefers */
    dnnl_memory_desc_t plain;               /* w in the graph's layout */
    dnnl_dims_t stride, dilation, padding, padding_end;  /* dilation: less 1; end: behind
                                                            the last element */
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t forward, own;         /* own: of a gradient; it needs forward */
} convolution_t;

/* Describes the operands.  With one or two axes of space they are pictures, with three
 * volumes; weights of several groups have the group as their first axis. */
static dnnl_status_t operands_describe(const pl_convolution_t *c, convolution_t *v)
{
    static const dnnl_format_tag_t pictures[] = {dnnl_nhwc, dnnl_ndhwc},
                                   filters[2][2] = {{dnnl_oihw, dnnl_goihw},
                                                    {dnnl_oidhw, dnnl_goidhw}};
    const bool deep = c->in[0] > 1 || c->out[0] > 1 || c->window.kernel[0] > 1,
               grouped = c->groups > 1;
    const int axes = deep ? 3 : 2, first = PL_SPACE - axes;
    dnnl_dims_t x = {c->batch, c->channels}, y = {c->batch, c->filters},
                w = {c->groups, c->filters / c->groups, c->channels / c->groups};
    const dnnl_dims_t bias = {c->filters};
    dnnl_dim_t *of_w = grouped ? w : w + 1;
    for (int i = 0; i < axes; i++) {
        const int k = first + i;
        x[2 + i] = c->in[k];
        y[2 + i] = c->out[k];
        w[3 + i] = c->window.kernel[k];
        v->stride[i] = c->window.stride[k];
        v->dilation[i] = c->window.dilation[k] - 1;
        v->padding[i] = c->window.before[k];
        v->padding_end[i] = (c->out[k] - 1) * c->window.stride[k]
                            + (w[3 + i] - 1) * c->window.dilation[k] + 1 - c->in[k]
                            - c->window.before[k];
    }
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&v->x, 2 + axes, x, dnnl_f32,
                                                        pictures[deep]);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&v->w, 2 + axes + grouped, of_w, dnnl_f32,
                                              dnnl_format_tag_any);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&v->plain, 2 + axes + grouped, of_w,
                                              dnnl_f32, filters[deep][grouped]);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&v->bias, 1, bias, dnnl_f32, dnnl_a);
    return status == dnnl_success ? dnnl_memory_desc_init_by_tag(&v->y, 2 + axes, y,
                                                                 dnnl_f32, pictures[deep])
                                  : status;
}

/* Describes the operands, the forward primitive, and the gradient, if it is one. */
static dnnl_status_t convolution_describe(const pl_convolution_t *c, convolution_t *v,
                                          dnnl_engine_t engine)
{
    dnnl_convolution_desc_t d;
    dnnl_status_t status = operands_describe(c, v);
    if (status == dnnl_success)
        status = dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training,
                                                            dnnl_convolution_direct,
                                                            &v->x, &v->w,
                                                            c->has_bias ? &v->bias : NULL,
                                                            &v->y, v->stride, v->dilation,
                                                            v->padding, v->padding_end);
    /* For images of 2 x 2 the first choice with AVX-512 takes 3.5 times as long. */
    if (status == dnnl_success)
        status = choose(&d, v->attr, engine, c->is_small ? "jit:" : NULL, &v->forward);
    if (status != dnnl_success || c->kind == PL_CONVOLVE)
        return status;
    status = c->kind == PL_CONVOLVE_GRAD_X
                 ? dnnl_dilated_convolution_backward_data_desc_init(
                     &d, dnnl_convolution_direct, &v->x, &v->w, &v->y, v->stride,
                     v->dilation, v->padding, v->padding_end)
                 : dnnl_dilated_convolution_backward_weights_desc_init(
                     &d, dnnl_convolution_direct, &v->x, &v->w, NULL, &v->y, v->stride,
                     v->dilation, v->padding, v->padding_end);
    return status == dnnl_success
               ? dnnl_primitive_desc_create(&v->own, &d, v->attr, engine, v->forward)
               : status;
}

/* Makes the call that reorders argument `argument`: it packs plain weights for the
 * library, or unpacks them. */
static dnnl_status_t reorder_make(pl_cpu_product_t *p, const convolution_t *v,
                                  const dnnl_memory_desc_t *packed,
                                  dnnl_memory_t packed_memory, int argument, bool packs)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_engine_t engine = p->library->engine;
    primitive_call_t *s = &p->call[p->calls++];
    dnnl_status_t status =
        dnnl_reorder_primitive_desc_create(&pd, packs ? &v->plain : packed, engine,
                                           packs ? packed : &v->plain, engine, v->attr);
    if (status == dnnl_success)
        status = call_make(p, s, pd);
    if (status == dnnl_success)
        status = give(p, s, packs ? DNNL_ARG_FROM : DNNL_ARG_TO, &v->plain, argument);
    if (status == dnnl_success)
        give_bound(s, packs ? DNNL_ARG_TO : DNNL_ARG_FROM, packed_memory);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return status;
}

/* Forward and gradient of x: the first call packs the weights. */
static dnnl_status_t make_with_weights(pl_cpu_product_t *p, const pl_convolution_t *c,
                                       const convolution_t *v)
{
    const bool forward = c->kind == PL_CONVOLVE;
    dnnl_primitive_desc_t pd = forward ? v->forward : v->own;
    const dnnl_memory_desc_t *packed = description(pd, dnnl_query_weights_md);
    dnnl_memory_t weights;
    dnnl_status_t status = bind(p, packed, FROM_SCRATCH, &weights);
    if (status == dnnl_success)
        status = reorder_make(p, v, packed, weights, 1, true);
    primitive_call_t *s = &p->call[p->calls++];
    if (status == dnnl_success)
        status = call_make(p, s, pd);
    if (status != dnnl_success)
        return status;
    give_bound(s, DNNL_ARG_WEIGHTS, weights);
    status = forward ? give(p, s, DNNL_ARG_SRC, &v->x, 0)
                     : give(p, s, DNNL_ARG_DIFF_DST, &v->y, 0);
    if (status == dnnl_success && c->has_bias && forward)
        status = give(p, s, DNNL_ARG_BIAS, &v->bias, 2);
    if (status != dnnl_success)
        return status;
    return forward ? give(p, s, DNNL_ARG_DST, &v->y, 3)
                   : give(p, s, DNNL_ARG_DIFF_SRC, &v->x, 3);
}

/* Gradient of the weights: the last call unpacks them. */
static dnnl_status_t make_of_weights(pl_cpu_product_t *p, const convolution_t *v)
{
    const dnnl_memory_desc_t *packed = description(v->own, dnnl_query_diff_weights_md);
    primitive_call_t *s = &p->call[p->calls++];
    dnnl_memory_t weights;
    dnnl_status_t status = bind(p, packed, FROM_SCRATCH, &weights);
    if (status == dnnl_success)
        status = call_make(p, s, v->own);
    if (status != dnnl_success)
        return status;
    give_bound(s, DNNL_ARG_DIFF_WEIGHTS, weights);
    status = give(p, s, DNNL_ARG_DIFF_DST, &v->y, 0);
    if (status == dnnl_success)
        status = give(p, s, DNNL_ARG_SRC, &v->x, 1);
    return status == dnnl_success ? reorder_make(p, v, packed, weights, 3, false)
                                  : status;
}

pl_cpu_product_t *pl_cpu_product_convolution(pl_library_t *library,
                                             const pl_convolution_t *c, pl_error_t *err)
{
    pl_cpu_product_t *p = product_new(library, err);
    if (!p)
        return NULL;
    convolution_t v = {0};
    dnnl_status_t status = attributes(false, &v.attr);
    if (status == dnnl_success)
        status = convolution_describe(c, &v, library->engine);
    if (status == dnnl_success)
        status = c->kind == PL_CONVOLVE_GRAD_W ? make_of_weights(p, &v)
                                               : make_with_weights(p, c, &v);
    if (v.own)
        dnnl_primitive_desc_destroy(v.own);
    if (v.forward)
        dnnl_primitive_desc_destroy(v.forward);
    if (v.attr)
        dnnl_primitive_attr_destroy(v.attr);
    return product_done(p, status, "convolution", err);
}

/* ---- Running ---- */

size_t pl_cpu_product_scratch(const pl_cpu_product_t *product)
{
    return product->scratch;
}

int pl_cpu_product_run(pl_cpu_product_t *p, void *const argument[4], void *scratch,
                       pl_error_t *err)
{
    dnnl_status_t status = dnnl_success;
    omp_set_num_threads(1);
    for (int i = 0; i < p->bindings && status == dnnl_success; i++) {
        const binding_t *b = &p->binding[i];
        void *at = b->argument == FROM_SCRATCH ? (char *)scratch + b->offset
                                               : argument[b->argument];
        status = dnnl_memory_set_data_handle(b->memory, at);
    }
    for (int i = 0; i < p->calls && status == dnnl_success; i++)
        status = dnnl_primitive_execute(p->call[i].primitive, p->stream, p->call[i].count,
                                        p->call[i].arg);
    return answer(status, "product", err);
}

void pl_cpu_product_free(pl_cpu_product_t *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->calls; i++)
        if (p->call[i].primitive)
            dnnl_primitive_destroy(p->call[i].primitive);
    for (int i = 0; i < p->bindings; i++)
        dnnl_memory_destroy(p->binding[i].memory);
    if (p->stream)
        dnnl_stream_destroy(p->stream);
    pl_free(p);
}
