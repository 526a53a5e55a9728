/* sums.c - sums over ranks on a card, in the order of a tree
 *
 * A kernel adds the elements of up to 32 ranks; the elements of more ranks are added
 * subtree by subtree.  A sum of ranks has no product, so a compiler has nothing to
 * contract. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/cuda/sums.h"

#include "base/alloc.h"
#include "base/error.h"

enum { WIDE = 32, THREADS = 256, GROUPS = 2048, COUNTS = 512, TEXT = 8192, BLOCKS = 32 };

/* Of float32, float64 and int64. */
enum { KINDS = 3 };

typedef struct kernel {
    CUmodule module;
    CUfunction function;                                    /* [not compiled yet] */
} kernel_t;

struct cuda_sums {
    const cuda_driver_t *call;
    pl_device_memory_t device;                             /* its module_new() compiles */
    int ranks;
    int (*left)(int n);
    kernel_t kernel[KINDS][2][WIDE + 1];
    CUdeviceptr block[BLOCKS];                /* only the last: see cuda_sums_staging() */
    int blocks;
    /* Numbers of elements, which kernels read on the card; `known`: the numbers of the
     * last table. */
    CUdeviceptr table[BLOCKS];
    int tables;
    int64_t known[COUNTS];                                  /* [counts] */
    int counts;
    CUstream upload;                                        /* only for these numbers */
    size_t bytes;                                           /* of the last block */
    /* [ranks] Elements of each rank, and the memory into which elements of others are
     * received. */
    CUdeviceptr *in, *staging;
};

static int check(const cuda_sums_t *s, cu_result_t result, const char *what,
                 pl_error_t *err)
{
    return cuda_driver_check(s->call, s->device.ordinal, result, what, err);
}

cuda_sums_t *cuda_sums_new(const cuda_library_t *driver, const pl_device_memory_t *device,
                           int ranks, int (*left)(int n), pl_error_t *err)
{
    cuda_sums_t *s = pl_alloc(sizeof *s);
    if (!s) {
        pl_no_memory(err);
        return NULL;
    }
    *s = (cuda_sums_t){.call = driver ? &driver->call : NULL,
                       .device = *device,
                       .ranks = ranks,
                       .left = left,
                       .in = pl_alloc_array((size_t)ranks, sizeof *s->in),
                       .staging = pl_alloc_array((size_t)ranks, sizeof *s->staging)};
    if (s->in && s->staging)
        return s;
    pl_no_memory(err);
    cuda_sums_free(s);
    return NULL;
}

void cuda_sums_free(cuda_sums_t *s)
{
    if (!s)
        return;
    kernel_t *kernel = &s->kernel[0][0][0];
    for (size_t k = 0; k < sizeof s->kernel / sizeof *kernel; k++)
        if (kernel[k].module)
            s->call->module_free(kernel[k].module);
    while (s->blocks)
        s->call->memory_free(s->block[--s->blocks]);
    while (s->tables)
        s->call->memory_free(s->table[--s->tables]);
    if (s->upload)
        s->call->stream_free(s->upload);
    pl_free(s->in);
    pl_free(s->staging);
    pl_free(s);
}

/* ---- Memory ---- */

/* Blocks that were too small stay until the end, also when a fence shows that no
 * kernel uses them any more.  Freeing memory waits for all kernels on the card, also
 * for kernels of NCCL, and these wait for other ranks: if one of them has ended, this
 * thread has to abort the communicator, and could not.  As each block has twice the
 * bytes of the one before, all old ones together have fewer than the newest, unless
 * the card is nearly full. */
CUdeviceptr cuda_sums_staging(cuda_sums_t *s, size_t apart, pl_error_t *err)
{
    const cuda_driver_t *call = s->call;
    const size_t bytes = (size_t)s->ranks * apart;
    size_t got = bytes > 2 * s->bytes ? bytes : 2 * s->bytes;
    if (bytes <= s->bytes)
        return s->block[s->blocks - 1];
    if (s->blocks == BLOCKS) {
        pl_fail(err, PL_ENOMEM,
                "out of memory on cuda:%d: sums over ranks have grown %d times; set the "
                "strategy's bucket_mb lower",
                s->device.ordinal, BLOCKS);
        return 0;
    }
    cu_result_t result = call->memory_new(&s->block[s->blocks], got);
    if (result == CU_OUT_OF_MEMORY && got > bytes)
        result = call->memory_new(&s->block[s->blocks], got = bytes);
    if (result == CU_OUT_OF_MEMORY) {
        size_t left = 0, all = 0;
        call->memory_info(&left, &all);
        pl_fail(err, PL_ENOMEM,
                "out of memory on cuda:%d: %zu MiB requested for sums over ranks, %zu of "
                "%zu MiB free; set the strategy's bucket_mb lower",
                s->device.ordinal, (bytes >> 20) + 1, left >> 20, all >> 20);
        return 0;
    }
    if (check(s, result, "allocating memory for sums over ranks", err) != PL_OK)
        return 0;
    s->bytes = got;
    return s->block[s->blocks++];
}

/* ---- Kernels ---- */

typedef struct kernel_source {
    char at[TEXT];
    size_t length;
} kernel_source_t;

static void put(kernel_source_t *t, const char *format, ...) PL_PRINTF(2, 3);
static void put(kernel_source_t *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    t->length += (size_t)vsnprintf(t->at + t->length, TEXT - t->length, format, args);
    va_end(args);
}

static void put_tree(kernel_source_t *t, const cuda_sums_t *s, int first, int count)
{
    if (count == 1) {
        put(t, "a%d[i]", first);
        return;
    }
    const int left = s->left(count);
    put(t, "joined(");
    put_tree(t, s, first, left);
    put(t, ", ");
    put_tree(t, s, first + left, count - left);
    put(t, ")");
}

static int kernel_make(cuda_sums_t *s, kernel_t *kernel, int kind, bool is_max, int ranks,
                       pl_error_t *err)
{
    static const char *const types[] = {"float", "double", "int64_t"};
    static const char *const joins[][2] = {{"a + b", "a > b || a != a ? a : b"},
                                           {"a + b", "a > b || a != a ? a : b"},
                                           {"(int64_t)((uint64_t)a + (uint64_t)b)",
                                            "a > b ? a : b"}};
    const cuda_driver_t *call = s->call;
    const char *type = types[kind];
    kernel_source_t text = {.length = 0};
    void *module = NULL;
    CUfunction function = NULL;
    put(&text,
        "#include \"accelerators/gpu/kernels/dialect.h\"\n"
        "FN %s joined(%s a, %s b)\n{\n    return %s;\n}\n"
        "KERNEL void BOUNDS(%d) ranks(GLOBAL const int64_t *count, GLOBAL %s *to",
        type, type, type, joins[kind][is_max], THREADS, type);
    for (int k = 0; k < ranks; k++)
        put(&text, ", GLOBAL const %s *a%d", type, k);
    put(&text, ")\n{\n"
               "    for (int64_t i = GROUP * THREADS + THREAD; i < *count;\n"
               "         i += GROUPS * THREADS)\n"
               "        to[i] = ");
    put_tree(&text, s, 0, ranks);
    put(&text, ";\n}\nENTER(ranks");
    for (int k = 0; k < ranks + 2; k++)
        put(&text, ", (void *)a[%d]", k);
    put(&text, ")\n");
    const int failed = s->device.ops->module_new(s->device.device, text.at, &module, err);
    if (failed != PL_OK || !module)
        return failed;
    const cu_result_t result = call->module_function(&function, module, "ranks");
    if (result == CU_OK)
        *kernel = (kernel_t){module, function};
    else
        call->module_free(module);
    return check(s, result, "loading a kernel", err);
}

static int kind_of(pl_dtype_t dtype)
{
    return dtype == PL_F32 ? 0 : dtype == PL_F64 ? 1 : 2;
}

/* Whether the tree of `count` ranks needs the kernel for so many `ranks`. */
static bool is_needed(const cuda_sums_t *s, int count, int ranks)
{
    if (count <= WIDE)
        return count == ranks;
    const int left = s->left(count);
    return ranks == 2 || is_needed(s, left, ranks) || is_needed(s, count - left, ranks);
}

/* ---- Adding ---- */

typedef struct card_sum {
    CUstream stream;
    CUdeviceptr count;                                      /* int64, on the card */
    uint64_t elements;
    int kind;
    bool is_max;
} card_sum_t;

static int launch(cuda_sums_t *s, const card_sum_t *sum, CUdeviceptr to,
                  const CUdeviceptr *in, int ranks, pl_error_t *err)
{
    kernel_t *kernel = &s->kernel[sum->kind][sum->is_max][ranks];
    CUdeviceptr address[WIDE + 2] = {sum->count, to};
    void *argument[WIDE + 2];
    const int code = kernel->function
                         ? PL_OK
                         : kernel_make(s, kernel, sum->kind, sum->is_max, ranks, err);
    if (code != PL_OK)
        return code;
    memcpy(address + 2, in, (size_t)ranks * sizeof *in);
    for (int k = 0; k < ranks + 2; k++)
        argument[k] = &address[k];
    const uint64_t groups = (sum->elements + THREADS - 1) / THREADS;
    const cu_result_t result =
        s->call->launch(kernel->function, (unsigned)(groups < GROUPS ? groups : GROUPS),
                        1, 1, THREADS, 1, 1, 0, sum->stream, argument, NULL);
    return check(s, result, "launching a kernel", err);
}

/* A subtree that is too wide puts the sums of its halves where the elements of their
 * first rank were received, and the sum of both in `to`. */
static int add_tree(cuda_sums_t *s, const card_sum_t *sum, CUdeviceptr to, int first,
                    int count, pl_error_t *err)
{
    if (count <= WIDE)
        return launch(s, sum, to, s->in + first, count, err);
    const int left = s->left(count);
    const CUdeviceptr half[2] = {s->staging[first], s->staging[first + left]};
    int code = add_tree(s, sum, half[0], first, left, err);
    if (code == PL_OK)
        code = add_tree(s, sum, half[1], first + left, count - left, err);
    return code == PL_OK ? launch(s, sum, to, half, 2, err) : code;
}

int cuda_sums_prepare(cuda_sums_t *s, pl_dtype_t dtype, bool is_max, pl_error_t *err)
{
    const int kind = kind_of(dtype);
    int code = PL_OK;
    for (int ranks = 2; ranks <= WIDE && code == PL_OK; ranks++) {
        kernel_t *kernel = &s->kernel[kind][is_max][ranks];
        if (is_needed(s, s->ranks, ranks) && !kernel->function)
            code = kernel_make(s, kernel, kind, is_max, ranks, err);
    }
    return code;
}

/* The address of that number on the card.  A copy from memory that is not pinned may wait
 * for the work on its stream, so it has a stream of its own.  0: an error. */
static CUdeviceptr count_upload(cuda_sums_t *s, uint64_t count, pl_error_t *err)
{
    const cuda_driver_t *call = s->call;
    cu_result_t result = CU_OK;
    int at = 0;
    while (at < s->counts && s->known[at] != (int64_t)count)
        at++;
    if (at < s->counts)
        return s->table[s->tables - 1] + (size_t)at * sizeof(int64_t);
    if (!s->upload)
        result = call->stream_new(&s->upload, CU_STREAM_APART);
    if (result == CU_OK && (!s->tables || s->counts == COUNTS)) {
        if (s->tables == BLOCKS) {
            pl_fail(err, PL_EUNSUPPORTED, "sums of more than %d sizes", BLOCKS * COUNTS);
            return 0;
        }
        result = call->memory_new(&s->table[s->tables], sizeof s->known);
        s->tables += result == CU_OK;
        s->counts = 0;
    }
    const CUdeviceptr place =
        s->tables ? s->table[s->tables - 1] + (size_t)s->counts * sizeof(int64_t) : 0;
    s->known[s->counts] = (int64_t)count;
    if (result == CU_OK)
        result = call->copy_in(place, &s->known[s->counts], sizeof(int64_t), s->upload);
    if (result == CU_OK)
        result = call->stream_finish(s->upload);
    s->counts += result == CU_OK;
    return check(s, result, "copying a number", err) == PL_OK ? place : 0;
}

int cuda_sums_add(cuda_sums_t *s, const cuda_sum_t *of, CUstream stream, pl_error_t *err)
{
    const CUdeviceptr count = count_upload(s, of->count, err);
    const card_sum_t sum = {stream, count, of->count, kind_of(of->dtype), of->is_max};
    if (!count)
        return PL_EIO;
    for (int rank = 0; rank < s->ranks; rank++) {
        s->staging[rank] = s->block[s->blocks - 1] + (size_t)rank * of->apart;
        s->in[rank] = rank == of->rank ? of->own : s->staging[rank];
    }
    return add_tree(s, &sum, of->own, 0, s->ranks, err);
}
