/* cublaslt.c - a replacement of cuBLASLt, libcublasLt.so.13, by loops on the streams
 * of the replacement of the driver
 *
 * It refuses some calls that cuBLASLt accepts: an attribute of another size, an operand
 * that is aligned less than declared or lies beyond an allocation, an algorithm for
 * another product, and a workspace that is too small are errors.  The workspace is filled
 * with NaN when a product runs.  The first algorithm that it finds adds up in no order,
 * unless the preferences exclude that, and the second one has a failed state.
 *
 * STAND_IN has: "no_cublas" (it cannot be opened), "find=3:15" (the third search for an
 * algorithm fails with status 15), "multiply=2:13" (the second product fails with status
 * 13).  Counts begin when it is opened. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "t/stand_in/cuda.h"
#include "t/stand_in/gelu.h"

#define LT(member, symbol, result, parameters) API result symbol parameters;
#include "accelerators/cuda/names.def"

enum { SPLIT_WORKSPACE = 1024, ALGORITHM = 0x5eed };

struct cublasLtContext {
    int searches, products;
    int (*fact)(const char *word, int without, int *more);
    __typeof__(stand_in_put) *put;
    __typeof__(stand_in_memory) *memory;
};

struct cublasLtMatmulDescOpaque {
    uint32_t compute, scale, epilogue;
    int32_t transposed[2];
    int64_t aux_row;
    const void *bias, *aux;
};

struct cublasLtMatrixLayoutOpaque {
    uint32_t type;
    int32_t batches;
    int64_t rows, columns, leading, stride;
};

struct cublasLtMatmulPreferenceOpaque {
    uint64_t workspace;
    uint32_t reduction, alignment[4];
};

typedef struct cublasLtMatmulDescOpaque product_t;
typedef struct cublasLtMatrixLayoutOpaque layout_t;
typedef struct cublasLtMatmulPreferenceOpaque preference_t;

/* Products that were put on a stream or recorded, those of them with an epilogue other
 * than a bias, and what was made and not freed: for tests. */
API int stand_in_multiplied, stand_in_followed, stand_in_lt_left;

static void *thing_new(size_t bytes)
{
    __atomic_add_fetch(&stand_in_lt_left, 1, __ATOMIC_RELAXED);
    return calloc(1, bytes);
}

static cu_result_t thing_free(void *thing)
{
    __atomic_sub_fetch(&stand_in_lt_left, 1, __ATOMIC_RELAXED);
    free(thing);
    return LT_OK;
}

API size_t cublasLtGetVersion(void)
{
    return 139900;
}

API const char *cublasLtGetStatusName(cu_result_t status)
{
    switch (status) {
    case LT_OK: return "CUBLAS_STATUS_SUCCESS";
    case LT_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case LT_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case LT_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
}

/* ---- The driver, which must be the stand-in ---- */

API cu_result_t cublasLtCreate(cublasLtHandle_t *handle)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    cublasLtHandle_t h = thing_new(sizeof *h);
    if (driver) {
        *(void **)&h->fact = dlsym(driver, "stand_in_fact");
        *(void **)&h->put = dlsym(driver, "stand_in_put");
        *(void **)&h->memory = dlsym(driver, "stand_in_memory");
    }
    if (driver && h->fact && h->put && h->memory && !h->fact("no_cublas", 0, NULL)) {
        *handle = h;
        return LT_OK;
    }
    thing_free(h);
    return LT_NOT_INITIALIZED;
}

API cu_result_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return thing_free(handle);
}

/* ---- Descriptions ---- */

API cu_result_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product,
                                         cu_choice_t compute, cu_choice_t scale)
{
    product_t *p = *product = thing_new(sizeof *p);
    *p = (product_t){.compute = compute, .scale = scale, .epilogue = 1};
    return LT_OK;
}

API cu_result_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    return thing_free(product);
}

static cu_result_t set(void *to, size_t size, const void *value, size_t bytes)
{
    if (!to || size != bytes)
        return LT_INVALID_VALUE;
    memcpy(to, value, bytes);
    return LT_OK;
}

API cu_result_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t p,
                                               cu_choice_t attribute, const void *value,
                                               size_t bytes)
{
    switch (attribute) {
    case LT_DESC_TRANS_A: return set(&p->transposed[0], 4, value, bytes);
    case LT_DESC_TRANS_B: return set(&p->transposed[1], 4, value, bytes);
    case LT_DESC_EPILOGUE: return set(&p->epilogue, 4, value, bytes);
    case LT_DESC_BIAS: return set(&p->bias, sizeof p->bias, value, bytes);
    case LT_DESC_AUX: return set(&p->aux, sizeof p->aux, value, bytes);
    case LT_DESC_AUX_ROW: return set(&p->aux_row, sizeof p->aux_row, value, bytes);
    default: return LT_INVALID_VALUE;
    }
}

API cu_result_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout,
                                           cu_choice_t type, uint64_t rows,
                                           uint64_t columns, int64_t leading)
{
    layout_t *l = *layout = thing_new(sizeof *l);
    *l = (layout_t){.type = type,
                    .batches = 1,
                    .rows = (int64_t)rows,
                    .columns = (int64_t)columns,
                    .leading = leading};
    return LT_OK;
}

API cu_result_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return thing_free(layout);
}

API cu_result_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                 cu_choice_t attribute, const void *value,
                                                 size_t bytes)
{
    switch (attribute) {
    case LT_LAYOUT_BATCHES: return set(&l->batches, 4, value, bytes);
    case LT_LAYOUT_STRIDE: return set(&l->stride, 8, value, bytes);
    default: return LT_INVALID_VALUE;
    }
}

API cu_result_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    preference_t *p = *preference = thing_new(sizeof *p);
    *p = (preference_t){.reduction = 7, .alignment = {256, 256, 256, 256}};
    return LT_OK;
}

API cu_result_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return thing_free(preference);
}

API cu_result_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                     cu_choice_t attribute,
                                                     const void *value, size_t bytes)
{
    switch (attribute) {
    case LT_PREF_WORKSPACE: return set(&p->workspace, 8, value, bytes);
    case LT_PREF_REDUCTION: return set(&p->reduction, 4, value, bytes);
    default:
        if (attribute < LT_PREF_ALIGN_A || attribute > LT_PREF_ALIGN_D)
            return LT_INVALID_VALUE;
        return set(&p->alignment[attribute - LT_PREF_ALIGN_A], 4, value, bytes);
    }
}

/* ---- Computation ---- */

/* Columns of the matrices are in order; d is n by m there. */
typedef struct work {
    product_t product;
    layout_t a, b, d;
    double alpha, beta;
    const char *from_a, *from_b;
    char *bias, *aux, *to;
    void *workspace;
    size_t bytes;
} work_t;

static size_t width(uint32_t type)
{
    return type == LT_F64 ? 8 : type == LT_F32 ? 4 : 2;
}

static double load(const char *from, uint32_t type, int64_t i)
{
    switch (type) {
    case LT_F64: return ((const double *)from)[i];
    case LT_F32: return (double)((const float *)from)[i];
    case LT_BF16: return (double)pl_bf16_float(((const uint16_t *)from)[i]);
    default: return (double)pl_f16_float(((const uint16_t *)from)[i]);
    }
}

static void store(char *to, uint32_t type, int64_t i, double x)
{
    switch (type) {
    case LT_F64: ((double *)to)[i] = x; break;
    case LT_F32: ((float *)to)[i] = (float)x; break;
    case LT_BF16: ((uint16_t *)to)[i] = pl_bf16_bits((float)x); break;
    default: ((uint16_t *)to)[i] = pl_f16_bits((float)x); break;
    }
}

/* Of op(matrix); TF32 has 10 bits of mantissa. */
static double element(const work_t *w, int operand, int64_t batch, int64_t row,
                      int64_t column)
{
    const layout_t *l = operand ? &w->b : &w->a;
    const bool transposed = w->product.transposed[operand];
    const int64_t i = transposed ? column : row, j = transposed ? row : column;
    const double x = load(operand ? w->from_b : w->from_a, l->type,
                          batch * l->stride + j * l->leading + i);
    if (w->product.compute != LT_COMPUTE_TF32)
        return x;
    const float half = (float)x;
    uint32_t bits;
    memcpy(&bits, &half, sizeof bits);
    bits = (bits + 0x1000) & ~0x1fffu;
    float rounded;
    memcpy(&rounded, &bits, sizeof rounded);
    return (double)rounded;
}

static double beta_of(const work_t *w, int64_t at)
{
    return w->beta != 0 ? w->beta * load(w->to, w->d.type, at) : 0;
}

static double epilogue_of(const work_t *w, double x, int64_t row, int64_t column)
{
    const uint32_t epilogue = w->product.epilogue, type = w->d.type;
    const int64_t at = column * w->product.aux_row + row;
    if (epilogue == LT_EPILOGUE_GELU_GRAD)
        return x * gelu_slope_at(load(w->aux, type, at));
    if (epilogue & LT_EPILOGUE_BIAS)
        x += load(w->bias, type, row);
    if (w->aux)
        store(w->aux, type, at, x);
    return epilogue & LT_EPILOGUE_GELU ? gelu_of(x) : x;
}

/* Of each column of op(b). */
static void sum_bias(const work_t *w, int64_t inner)
{
    for (int64_t column = 0; column < w->d.columns; column++) {
        double sum = 0;
        for (int64_t k = 0; k < inner; k++)
            sum += element(w, 1, 0, k, column);
        store(w->bias, w->d.type, column, sum);
    }
}

static int work_run(void *data)
{
    const work_t *w = data;
    const layout_t *d = &w->d;
    const int64_t inner = w->product.transposed[0] ? w->a.rows : w->a.columns;
    memset(w->workspace, 0xff, w->bytes);
    for (int64_t batch = 0; batch < d->batches; batch++)
        for (int64_t column = 0; column < d->columns; column++)
            for (int64_t row = 0; row < d->rows; row++) {
                const int64_t at = batch * d->stride + column * d->leading + row;
                double sum = 0;
                for (int64_t k = 0; k < inner; k++)
                    sum += element(w, 0, batch, row, k) * element(w, 1, batch, k, column);
                store(w->to, d->type, at,
                      epilogue_of(w, w->alpha * sum + beta_of(w, at), row, column));
            }
    if (w->product.epilogue == LT_EPILOGUE_BIAS_GRAD)
        sum_bias(w, inner);
    return 0;
}

/* ---- Whether it is ---- */

static bool has_bias(const product_t *p)
{
    return p->epilogue & (LT_EPILOGUE_BIAS | LT_EPILOGUE_BIAS_GRAD);
}

static bool has_aux(const product_t *p)
{
    return p->epilogue & LT_EPILOGUE_AUX;
}

static cu_result_t check(const product_t *p, const layout_t *a, const layout_t *b,
                         const layout_t *d)
{
    const bool is_wide = p->compute == LT_COMPUTE_F64;
    const int64_t m = p->transposed[0] ? a->columns : a->rows,
                  k = p->transposed[0] ? a->rows : a->columns,
                  n = p->transposed[1] ? b->rows : b->columns;
    if ((p->transposed[1] ? b->columns : b->rows) != k || d->rows != m || d->columns != n
        || a->leading < a->rows || b->leading < b->rows || d->leading < d->rows
        || a->batches != d->batches || b->batches != d->batches
        || p->scale != (is_wide ? LT_F64 : LT_F32) || (has_bias(p) && !p->bias)
        || (has_aux(p) && (!p->aux || p->aux_row % 8 || p->aux_row < d->rows)))
        return LT_INVALID_VALUE;
    if (a->type != b->type || is_wide != (a->type == LT_F64)
        || (d->type != a->type && (is_wide || d->type != LT_F32))
        || (p->compute == LT_COMPUTE_TF32 && a->type != LT_F32)
        || (p->epilogue != LT_EPILOGUE_NONE && (is_wide || d->batches > 1)
            && p->epilogue != LT_EPILOGUE_BIAS))
        return LT_NOT_SUPPORTED;
    return is_wide && has_bias(p) ? LT_NOT_SUPPORTED : LT_OK;
}

static uint64_t mixed(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t k = 0; k < bytes; k++)
        hash = (hash ^ ((const unsigned char *)data)[k]) * 0x100000001b3u;
    return hash;
}

/* Of all but where the operands are. */
static uint64_t hash_of(const product_t *p, const layout_t *a, const layout_t *b,
                        const layout_t *d)
{
    const size_t bytes = offsetof(product_t, transposed) + sizeof p->transposed;
    return mixed(mixed(mixed(mixed(ALGORITHM, p, bytes), a, sizeof *a), b, sizeof *b), d,
                 sizeof *d);
}

static void found_add(cublasLtMatmulHeuristicResult_t *to, int *count, uint64_t hash,
                      uint32_t reduction, uint64_t workspace, const preference_t *wanted)
{
    to[(*count)++] = (cublasLtMatmulHeuristicResult_t){
        .algo = {{ALGORITHM, hash, reduction, workspace, wanted->alignment[0],
                  wanted->alignment[1], wanted->alignment[3]}},
        .workspaceSize = workspace};
}

API cu_result_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t wanted, int max, cublasLtMatmulHeuristicResult_t *found,
    int *count)
{
    int more = 0;
    *count = 0;
    if (++handle->searches == handle->fact("find", 0, &more))
        return (cu_result_t)more;
    const cu_result_t result = c == d && max >= 4 ? check(product, a, b, d)
                                                  : LT_INVALID_VALUE;
    if (result != LT_OK)
        return result;
    const uint64_t hash = hash_of(product, a, b, d);
    if (wanted->reduction & LT_REDUCTION_INPLACE)
        found_add(found, count, hash, LT_REDUCTION_INPLACE, 0, wanted);
    found_add(found, count, hash, LT_REDUCTION_NONE, 0, wanted);
    found[*count - 1].state = LT_NOT_SUPPORTED;
    if (wanted->reduction & LT_REDUCTION_COMPUTE && wanted->workspace >= SPLIT_WORKSPACE)
        found_add(found, count, hash, LT_REDUCTION_COMPUTE, SPLIT_WORKSPACE, wanted);
    found_add(found, count, hash, LT_REDUCTION_NONE, 0, wanted);
    return LT_OK;
}

API cu_result_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algorithm, cu_choice_t attribute, void *value,
    size_t bytes, size_t *written)
{
    const uint32_t reduction = (uint32_t)algorithm->data[2];
    if (attribute != LT_ALGO_REDUCTION || bytes != sizeof reduction)
        return LT_INVALID_VALUE;
    memcpy(value, &reduction, sizeof reduction);
    *written = sizeof reduction;
    return LT_OK;
}

/* ---- Products ---- */

/* NULL: it is not aligned, or not all of it is in one allocation. */
static void *operand(cublasLtHandle_t handle, const void *at, const layout_t *l,
                     uint64_t alignment)
{
    const int64_t elements = (l->batches - 1) * l->stride + (l->columns - 1) * l->leading
                             + l->rows;
    if ((uintptr_t)at % alignment)
        return NULL;
    return handle->memory((CUdeviceptr)(uintptr_t)at, (size_t)elements * width(l->type));
}

static double factor(const void *at, uint32_t scale)
{
    return scale == LT_F64 ? *(const double *)at : (double)*(const float *)at;
}

static cu_result_t refused(const char *why)
{
    fprintf(stderr, "stand-in: a product is refused: %s\n", why);
    return LT_INVALID_VALUE;
}

API cu_result_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                               const void *alpha, const void *a,
                               cublasLtMatrixLayout_t a_layout, const void *b,
                               cublasLtMatrixLayout_t b_layout, const void *beta,
                               const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                               cublasLtMatrixLayout_t d_layout,
                               const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                               size_t bytes, CUstream stream)
{
    int more = 0;
    if (++handle->products == handle->fact("multiply", 0, &more))
        return (cu_result_t)more;
    const cu_result_t result = check(product, a_layout, b_layout, d_layout);
    if (result != LT_OK)
        return result;
    const uint64_t *facts = algorithm->data;
    if (facts[0] != ALGORITHM
        || facts[1] != hash_of(product, a_layout, b_layout, d_layout))
        return refused("the algorithm is one for another product");
    if (c != d || c_layout != d_layout)
        return refused("it is not in place");
    if (bytes < facts[3] || (uintptr_t)workspace % 256)
        return refused("the workspace is too small, or not aligned");
    const bool sums = product->epilogue == LT_EPILOGUE_BIAS_GRAD;
    const layout_t bias = {.type = d_layout->type,
                           .batches = 1,
                           .rows = sums ? d_layout->columns : d_layout->rows,
                           .columns = 1},
                   aux = {.type = d_layout->type,
                          .batches = 1,
                          .rows = d_layout->rows,
                          .columns = d_layout->columns,
                          .leading = product->aux_row};
    work_t work = {.product = *product,
                   .a = *a_layout,
                   .b = *b_layout,
                   .d = *d_layout,
                   .alpha = factor(alpha, product->scale),
                   .beta = factor(beta, product->scale),
                   .from_a = operand(handle, a, a_layout, facts[4]),
                   .from_b = operand(handle, b, b_layout, facts[5]),
                   .to = operand(handle, d, d_layout, facts[6]),
                   .bias = has_bias(product) ? operand(handle, product->bias, &bias, 16)
                                             : NULL,
                   .aux = has_aux(product) ? operand(handle, product->aux, &aux, 16)
                                           : NULL,
                   .workspace = handle->memory((CUdeviceptr)(uintptr_t)workspace, bytes),
                   .bytes = bytes};
    if (!work.from_a || !work.from_b || !work.to || (has_bias(product) && !work.bias)
        || (has_aux(product) && !work.aux) || (bytes && !work.workspace))
        return refused("an operand is not aligned, or not in device memory");
    __atomic_add_fetch(&stand_in_multiplied, 1, __ATOMIC_RELAXED);
    if (product->epilogue != LT_EPILOGUE_NONE && product->epilogue != LT_EPILOGUE_BIAS)
        __atomic_add_fetch(&stand_in_followed, 1, __ATOMIC_RELAXED);
    return handle->put(stream, work_run, &work, sizeof work) == CU_OK
               ? LT_OK
               : LT_EXECUTION_FAILED;
}
