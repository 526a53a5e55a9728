/* products.c - products of matrices by cuBLASLt
 *
 * cuBLASLt's matrices are column-major: a row-major matrix is the transpose of the
 * column-major one in the same memory.  So c = a b is requested as c' = b' a', with the
 * operands swapped, and nothing is moved.
 *
 * Equal operands give equal bits: cuBLASLt may cut a long sum into parts only if their
 * sums are kept in the workspace and added up in order.  The core's kernels compute the
 * products that cuBLASLt refuses, and all products if it is not installed. */
#include "accelerators/cuda/cuda.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

enum { FOUND_MAX = 8 };
static const size_t workspace_max = (size_t)32 << 20;

struct pl_product_plan {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
    bool has_bias, has_aux, wide, adds;
};

/* ---- The library ---- */

static void *library_read(void *user)
{
    cuda_t *cuda = user;
    cuda->products.library = cuda_multiplier_open(cuda->library->version,
                                                  &cuda->products.why);
    return NULL;
}

static bool is_enabled(const cuda_t *cuda)
{
    return cuda->cublas && !cuda->strict;
}

void cuda_products_open(cuda_t *cuda)
{
    cuda_products_t *products = &cuda->products;
    products->is_reading = is_enabled(cuda)
                           && pthread_create(&products->reader, NULL, library_read, cuda)
                                  == 0;
    products->is_read = products->is_reading;
}

static void reading_end(cuda_t *cuda)
{
    if (cuda->products.is_reading)
        pthread_join(cuda->products.reader, NULL);
    cuda->products.is_reading = false;
}

const cuda_multiplier_t *cuda_products_library(cuda_t *cuda)
{
    reading_end(cuda);
    if (!cuda->products.is_read && is_enabled(cuda))
        library_read(cuda);
    cuda->products.is_read = true;
    return cuda->products.library;
}

void cuda_products_close(cuda_t *cuda)
{
    reading_end(cuda);
    if (cuda->products.handle)
        cuda->products.library->call.close(cuda->products.handle);
    cuda->products = (cuda_products_t){0};
}

/* The error of the card, if it is lost, which a library does not report; else the
 * status. */
static int fail(cuda_t *cuda, cu_result_t status, const char *what, pl_error_t *err)
{
    const int code = cuda_check_alive(cuda, err);
    if (code != PL_OK)
        return code;
    return pl_fail(err, PL_EIO, "cuda:%d (%s): %s: cuBLASLt failed: %s (%u)",
                   cuda->card.number, cuda->card.name, what,
                   cuda->products.library->call.status_name(status), status);
}

/* Opens the library once; false: the core's kernels compute all products. */
static bool library_is_open(cuda_t *cuda)
{
    cuda_products_t *products = &cuda->products;
    if (!is_enabled(cuda) || products->is_tried)
        return products->handle;
    products->is_tried = true;
    if (cuda_products_library(cuda)) {
        const cu_result_t status = products->library->call.open(&products->handle);
        if (status == LT_OK)
            return true;
        products->handle = NULL;
        fail(cuda, status, "opening it", &products->why);
    }
    pl_log_line(PL_LOG_WARNING, -1, "",
                "products of matrices are computed by kernels of Paceline, which are "
                "slower: %s",
                products->why.text);
    return false;
}

/* ---- Descriptions ---- */

typedef struct matrix {                                     /* in the terms of cuBLASLt */
    int64_t rows, columns, leading, batch;
} matrix_t;

static cu_result_t layout_new(const cuda_lt_t *lt, cublasLtMatrixLayout_t *layout,
                              pl_dtype_t dtype, const matrix_t *m, int64_t batches)
{
    const int32_t count = (int32_t)batches;
    const cu_choice_t type = dtype == PL_F64    ? LT_F64
                             : dtype == PL_BF16 ? LT_BF16
                             : dtype == PL_F16  ? LT_F16
                                                : LT_F32;
    cu_result_t status = lt->layout_new(layout, type, (uint64_t)m->rows,
                                        (uint64_t)m->columns, m->leading);
    if (status == LT_OK && count > 1)
        status = lt->signature_set_size(*layout, LT_LAYOUT_BATCHES, &count, sizeof count);
    if (status == LT_OK && count > 1)
        status = lt->signature_set_size(*layout, LT_LAYOUT_STRIDE, &m->batch,
                                        sizeof m->batch);
    return status;
}

/* A matrix that is `rows` by `columns` in the memory of this engine. */
static matrix_t swapped(int64_t rows, int64_t columns, int64_t row, int64_t batch)
{
    return (matrix_t){.rows = columns, .columns = rows, .leading = row, .batch = batch};
}

static cu_result_t layouts_new(const cuda_lt_t *lt, pl_product_plan_t *made,
                               const pl_product_t *p)
{
    const matrix_t first = swapped(p->transpose_b ? p->n : p->k,
                                   p->transpose_b ? p->k : p->n, p->row_b, p->batch_b),
                   second = swapped(p->transpose_a ? p->k : p->m,
                                    p->transpose_a ? p->m : p->k, p->row_a, p->batch_a),
                   result = swapped(p->m, p->n, p->row_c, p->batch_c);
    cu_result_t status = layout_new(lt, &made->a, p->in, &first, p->batches);
    if (status == LT_OK)
        status = layout_new(lt, &made->b, p->in, &second, p->batches);
    return status == LT_OK ? layout_new(lt, &made->c, p->out, &result, p->batches)
                           : status;
}

static cu_result_t product_describe(const cuda_t *cuda, pl_product_plan_t *made,
                                    const pl_product_t *p)
{
    const cuda_lt_t *lt = &cuda->products.library->call;
    const int32_t transposed = LT_TRANSPOSED;
    const bool tf32 = cuda->tf32 && p->in == PL_F32;
    /* The function and the bias are bits, and cuBLASLt's second operand is the first
     * here. */
    const cu_choice_t bias = p->has_bias ? LT_EPILOGUE_BIAS : 0,
                      aux = p->has_aux ? LT_EPILOGUE_AUX : 0,
                      epilogue =
                          p->epilogue == PL_EPILOGUE_GELU ? LT_EPILOGUE_GELU | bias | aux
                          : p->epilogue == PL_EPILOGUE_GELU_GRAD ? LT_EPILOGUE_GELU_GRAD
                          : p->epilogue == PL_EPILOGUE_BIAS_GRAD ? LT_EPILOGUE_BIAS_GRAD
                          : bias                                 ? bias
                                                                 : LT_EPILOGUE_NONE;
    /* The value of this address shows how memory will be aligned. */
    const void *const somewhere = (const void *)(uintptr_t)PL_PRODUCT_ALIGNMENT;
    cu_result_t status = lt->product_new(&made->product,
                                         p->in == PL_F64 ? LT_COMPUTE_F64
                                         : tf32          ? LT_COMPUTE_TF32
                                                         : LT_COMPUTE_F32,
                                         p->in == PL_F64 ? LT_F64 : LT_F32);
    if (status == LT_OK && p->transpose_b)
        status = lt->product_set(made->product, LT_DESC_TRANS_A, &transposed,
                                 sizeof transposed);
    if (status == LT_OK && p->transpose_a)
        status = lt->product_set(made->product, LT_DESC_TRANS_B, &transposed,
                                 sizeof transposed);
    if (status == LT_OK)
        status = lt->product_set(made->product, LT_DESC_EPILOGUE, &epilogue,
                                 sizeof epilogue);
    if (status == LT_OK && made->has_bias)
        status = lt->product_set(made->product, LT_DESC_BIAS, &somewhere,
                                 sizeof somewhere);
    if (status == LT_OK && made->has_aux)
        status = lt->product_set(made->product, LT_DESC_AUX, &somewhere,
                                 sizeof somewhere);
    if (status == LT_OK && made->has_aux)
        status = lt->product_set(made->product, LT_DESC_AUX_ROW, &p->row_c,
                                 sizeof p->row_c);
    return status;
}

/* ---- Algorithms ---- */

/* Takes the deterministic one that cuBLASLt expects to be the fastest. */
static cu_result_t algorithm_find(const cuda_t *cuda, pl_product_plan_t *made)
{
    const cuda_lt_t *lt = &cuda->products.library->call;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[FOUND_MAX];
    const uint32_t reduction = LT_REDUCTION_COMPUTE, alignment = PL_PRODUCT_ALIGNMENT;
    int count = 0;
    cu_result_t status = lt->preference_new(&preference);
    if (status == LT_OK)
        status = lt->preference_set(preference, LT_PREF_WORKSPACE, &workspace_max,
                                    sizeof workspace_max);
    if (status == LT_OK)
        status = lt->preference_set(preference, LT_PREF_REDUCTION, &reduction,
                                    sizeof reduction);
    for (cu_choice_t n = LT_PREF_ALIGN_A; n <= LT_PREF_ALIGN_D && status == LT_OK; n++)
        status = lt->preference_set(preference, n, &alignment, sizeof alignment);
    if (status == LT_OK)
        status = lt->find(cuda->products.handle, made->product, made->a, made->b, made->c,
                          made->c, preference, FOUND_MAX, found, &count);
    if (preference)
        lt->preference_free(preference);
    for (int k = 0; k < count && status == LT_OK; k++) {
        uint32_t sums = LT_REDUCTION_INPLACE;
        size_t written = 0;
        if (found[k].state != LT_OK || found[k].workspaceSize > workspace_max
            || lt->algorithm_get(&found[k].algo, LT_ALGO_REDUCTION, &sums, sizeof sums,
                                 &written)
                   != LT_OK
            || (sums != LT_REDUCTION_NONE && sums != LT_REDUCTION_COMPUTE))
            continue;
        made->algorithm = found[k].algo;
        made->workspace = found[k].workspaceSize;
        return LT_OK;
    }
    return status == LT_OK ? LT_NOT_SUPPORTED : status;
}

static void prepared_free(const cuda_lt_t *lt, pl_product_plan_t *made)
{
    cublasLtMatrixLayout_t const layouts[] = {made->a, made->b, made->c};
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++)
        if (layouts[k])
            lt->layout_free(layouts[k]);
    if (made->product)
        lt->product_free(made->product);
    pl_free(made);
}

bool cuda_product_is_asked(const pl_product_t *product)
{
    const bool is_gelu = product->epilogue == PL_EPILOGUE_GELU
                         || product->epilogue == PL_EPILOGUE_GELU_GRAD;
    if (is_gelu && product->in == PL_F64)
        return false;                                   /* on an H100 its error is 1e-9 */
    return product->batches <= INT32_MAX && !(product->has_aux && product->row_c % 8);
}

int cuda_product_new(void *self, const pl_product_t *product,
                     pl_product_plan_t **prepared, size_t *workspace, pl_error_t *err)
{
    cuda_t *cuda = self;
    const bool plain = product->epilogue == PL_EPILOGUE_NONE && !product->adds;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    if (!cuda_product_is_asked(product) || !library_is_open(cuda))
        return PL_EUNSUPPORTED;
    const cuda_lt_t *lt = &cuda->products.library->call;
    pl_product_plan_t *made = pl_alloc(sizeof *made);
    if (!made)
        return pl_no_memory(err);
    made->has_bias = product->has_bias || product->epilogue == PL_EPILOGUE_BIAS_GRAD;
    made->has_aux = product->has_aux;
    made->adds = product->adds;
    made->wide = product->in == PL_F64;
    cu_result_t status = product_describe(cuda, made, product);
    if (status == LT_OK)
        status = layouts_new(lt, made, product);
    if (status == LT_OK)
        status = algorithm_find(cuda, made);
    if (status != LT_OK) {
        prepared_free(lt, made);
        if (plain && !cuda->products.is_logged) {           /* one line for each device */
            pl_log_line(PL_LOG_INFO, -1, "",
                        "cuBLASLt does not compute a product of [%lld, %lld] and [%lld, "
                        "%lld] (%s): a kernel of Paceline does",
                        (long long)product->m, (long long)product->k,
                        (long long)product->k, (long long)product->n,
                        lt->status_name(status));
            cuda->products.is_logged = true;
        }
        return PL_EUNSUPPORTED;
    }
    *prepared = made;
    *workspace = made->workspace;
    return PL_OK;
}

unsigned cuda_epilogues(const void *self)
{
    const cuda_t *cuda = self;
    return (unsigned)cuda->fuse_gelu << PL_EPILOGUE_GELU
           | (unsigned)cuda->fuse_gelu_grad << PL_EPILOGUE_GELU_GRAD
           | (unsigned)cuda->fuse_bias_grad << PL_EPILOGUE_BIAS_GRAD;
}

void cuda_product_free(void *self, pl_product_plan_t *prepared)
{
    const cuda_t *cuda = self;
    prepared_free(&cuda->products.library->call, prepared);
}

/* ---- Runs ---- */

static void *pointer(pl_device_ptr_t address)
{
    return (void *)(uintptr_t)address;
}

int cuda_product_run(void *self, pl_stream_t stream, const pl_product_plan_t *prepared,
                     const pl_device_ptr_t address[PL_PRODUCT_ADDRESSES], pl_error_t *err)
{
    static const float factors[2] = {0, 1};
    static const double wide_factors[2] = {0, 1};
    cuda_t *cuda = self;
    const cuda_lt_t *lt = &cuda->products.library->call;
    const pl_product_plan_t *p = prepared;
    void *const c = pointer(address[PL_PRODUCT_C]);
    const void *const bias = pointer(address[PL_PRODUCT_BIAS]),
                      *const aux = pointer(address[PL_PRODUCT_AUX]);
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    cu_result_t status = p->has_bias ? lt->product_set(p->product, LT_DESC_BIAS, &bias,
                                                       sizeof bias)
                                     : LT_OK;
    if (status == LT_OK && p->has_aux)
        status = lt->product_set(p->product, LT_DESC_AUX, &aux, sizeof aux);
    if (status == LT_OK)
        status = lt->multiply(cuda->products.handle, p->product,
                              p->wide ? (const void *)&wide_factors[1] : &factors[1],
                              pointer(address[PL_PRODUCT_B]), p->a,
                              pointer(address[PL_PRODUCT_A]), p->b,
                              p->wide ? (const void *)&wide_factors[p->adds]
                                      : &factors[p->adds],
                              c, p->c, c, p->c, &p->algorithm,
                              pointer(address[PL_PRODUCT_WORKSPACE]), p->workspace,
                              cuda->stream[stream]);
    return status == LT_OK ? PL_OK : fail(cuda, status, "a product of matrices", err);
}
