/* offline.c - a card that is not there, for which plans are compiled ahead
 *
 * NVRTC compiles for any kind of card, so a machine without a card can fill the cache of
 * compiled kernels.  Memory has addresses and no content, and streams run nothing: the
 * accelerator refuses to train on this machine.  cuBLASLt chooses its algorithms only on
 * a card.  So if it is installed, this backend assumes that it computes each product, and
 * if cuDNN is installed, that it computes each layer that fits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "accelerators/cuda/cuda.h"
#include "accelerators/cuda/dnn.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

#define MEMORY ((size_t)1 << 40)

struct pl_binary {
    bool was_kept, is_stored;
};

/* ---- Open and close ---- */

static int offline_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    cuda_t *cuda = self;
    const char *name = cuda->compile_for;
    char *end = NULL;
    cuda->descriptor = -1;
    const cuda_compiler_t *compiler = cuda->compiler = cuda_compiler_open(0, err);
    if (!compiler)
        return PL_EUNSUPPORTED;
    const long arch = strncmp(name, "sm_", 3) ? 0 : strtol(name + 3, &end, 10);
    int k = 0;
    while (k < compiler->archs && compiler->arch[k] != arch)
        k++;
    if (!end || *end || k == compiler->archs)
        return pl_fail(err, PL_EINVAL,
                       "NVRTC %d.%d compiles for sm_%d to sm_%d, not for \"%.40s\": an "
                       "A100 is sm_80, an L4 or L40S sm_89, an H100 or H200 sm_90, a "
                       "B200 sm_100; others by their compute capability, 8.6 is sm_86",
                       compiler->major, compiler->minor, compiler->arch[0],
                       compiler->arch[compiler->archs - 1], name);
    cuda->card = (cuda_card_t){.major = (int)arch / 10, .minor = (int)arch % 10};
    snprintf(cuda->card.name, sizeof cuda->card.name, "%s", name);
    cuda->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cuda->descriptor < 0)
        return pl_fail(err, PL_EBUSY, "no descriptor for the device");
    cuda_cache_open(cuda);
    info->devices = info->local_rank + 1;
    info->device = info->device >= 0 ? info->device : info->local_rank;
    info->threads = 1;
    info->memory = info->memory_free = MEMORY;
    snprintf(info->model, sizeof info->model, "%.16s, which need not be there",
             cuda->card.name);
    snprintf(info->library, sizeof info->library, "NVRTC %d.%d", cuda->compiler->major,
             cuda->compiler->minor);
    return PL_OK;
}

static void offline_close(void *self)
{
    cuda_t *cuda = self;
    cuda_cache_free(cuda->store);
    cuda->store = NULL;
    if (cuda->descriptor >= 0)
        close(cuda->descriptor);
    cuda->descriptor = -1;
    cuda->products = (cuda_products_t){0};
    cuda->layers = (cuda_layers_t){0};
}

static int descriptor(const void *self)
{
    return ((const cuda_t *)self)->descriptor;
}

/* ---- Memory without content, streams that run nothing ---- */

static int memory_new(void *self, size_t bytes, pl_device_ptr_t *address, pl_error_t *err)
{
    cuda_t *cuda = self;
    (void)err;
    *address = cuda->next += 256;
    cuda->next += (bytes + 255) / 256 * 256;
    return PL_OK;
}

static void memory_free(void *self, pl_device_ptr_t address)
{
    (void)self, (void)address;
}

static int copy_in(void *self, pl_stream_t stream, pl_device_ptr_t to, const void *host,
                   size_t bytes, pl_error_t *err)
{
    (void)self, (void)stream, (void)to, (void)host, (void)bytes, (void)err;
    return PL_OK;
}

/* Strategies read first weights, which are zeros here. */
static int copy_out(void *self, pl_stream_t stream, void *host, pl_device_ptr_t from,
                    size_t bytes, pl_error_t *err)
{
    (void)self, (void)stream, (void)from, (void)err;
    memset(host, 0, bytes);
    return PL_OK;
}

static int copy(void *self, pl_stream_t stream, pl_device_ptr_t to, pl_device_ptr_t from,
                size_t bytes, pl_error_t *err)
{
    (void)self, (void)stream, (void)to, (void)from, (void)bytes, (void)err;
    return PL_OK;
}

static int zero(void *self, pl_stream_t stream, pl_device_ptr_t to, size_t bytes,
                pl_error_t *err)
{
    (void)self, (void)stream, (void)to, (void)bytes, (void)err;
    return PL_OK;
}

static int finish(void *self, pl_stream_t stream, pl_error_t *err)
{
    (void)self, (void)stream, (void)err;
    return PL_OK;
}

static int call(void *self, pl_stream_t stream, void (*function)(void *user), void *user,
                pl_error_t *err)
{
    (void)self, (void)stream, (void)function, (void)user, (void)err;
    return PL_OK;
}

static int event_new(void *self, pl_event_t **event, pl_error_t *err)
{
    (void)err;
    *event = self;
    return PL_OK;
}

static void event_free(void *self, pl_event_t *event)
{
    (void)self, (void)event;
}

static int event_record(void *self, pl_event_t *event, pl_stream_t stream,
                        pl_error_t *err)
{
    (void)self, (void)event, (void)stream, (void)err;
    return PL_OK;
}

static int event_passed(void *self, pl_event_t *event, bool *passed, pl_error_t *err)
{
    (void)self, (void)event, (void)err;
    *passed = true;
    return PL_OK;
}

static double event_seconds(void *self, pl_event_t *from, pl_event_t *to)
{
    (void)self, (void)from, (void)to;
    return 0;
}

static int notify(void *self, pl_event_t *event, pl_stream_t stream, bool soon,
                  pl_error_t *err)
{
    (void)event, (void)stream, (void)soon;
    const uint64_t one = 1;
    return write(descriptor(self), &one, sizeof one) == sizeof one
               ? PL_OK
               : pl_fail(err, PL_EIO, "the device's descriptor cannot be written to");
}

/* ---- Kernels and products ---- */

static int module_new(void *self, const char *text, void **module, pl_error_t *err)
{
    cuda_code_t made = {0};
    const int failed = cuda_build(self, text, false, &made, err);
    pl_free(made.image);
    *module = NULL;
    return failed;
}

static int code_new(void *self, const char *text, pl_binary_t **code, pl_error_t *err)
{
    cuda_code_t made = {0};
    const int failed = cuda_build(self, text, false, &made, err);
    pl_free(made.image);
    pl_binary_t *fresh = failed == PL_OK ? pl_alloc(sizeof *fresh) : NULL;
    if (!fresh)
        return failed == PL_OK ? pl_no_memory(err) : failed;
    fresh->was_kept = made.was_kept;
    fresh->is_stored = made.is_stored;
    *code = fresh;
    return PL_OK;
}

static void code_free(void *self, pl_binary_t *code)
{
    (void)self;
    pl_free(code);
}

static bool code_cached(const pl_binary_t *code, bool *is_stored)
{
    *is_stored = code->is_stored;
    return code->was_kept;
}

static const pl_entry_t *code_entry(void *self, pl_binary_t *code, const char *name,
                                    pl_error_t *err)
{
    (void)self, (void)name, (void)err;
    return (const pl_entry_t *)code;
}

static int launch(void *self, pl_stream_t stream, const pl_kernel_launch_t *l,
                  pl_error_t *err)
{
    (void)self, (void)stream, (void)l, (void)err;
    return PL_OK;
}

static int product_new(void *self, const pl_product_t *product,
                       pl_product_plan_t **prepared, size_t *workspace, pl_error_t *err)
{
    cuda_t *cuda = self;
    (void)err;
    const bool is_first = !cuda->products.is_tried;
    cuda->products.is_tried = true;
    if (is_first && cuda->cublas && !cuda->strict
        && !(cuda->products.library = cuda_multiplier_open(0, &cuda->products.why)))
        pl_log_line(PL_LOG_INFO, -1, "",
                    "kernels are compiled for a machine without cuBLASLt: %s",
                    cuda->products.why.text);
    if (!cuda->products.library || !cuda_product_is_asked(product))
        return PL_EUNSUPPORTED;
    *prepared = self;
    *workspace = 0;
    return PL_OK;
}

static int product_run(void *self, pl_stream_t stream, const pl_product_plan_t *prepared,
                       const pl_device_ptr_t address[PL_PRODUCT_ADDRESSES],
                       pl_error_t *err)
{
    (void)self, (void)stream, (void)prepared, (void)address, (void)err;
    return PL_OK;
}

static int layer_new(void *self, const pl_layer_t *layer, pl_layer_plan_t **plan,
                     pl_error_t *err)
{
    cuda_t *cuda = self;
    cuda_layers_t *layers = &cuda->layers;
    (void)err;
    if (!dnn_fits(layer) || !cuda->cudnn || cuda->strict)
        return PL_EUNSUPPORTED;
    if (!layers->is_tried && !(layers->library = cuda_dnn_open(0, &layers->why)))
        pl_log_line(PL_LOG_INFO, -1, "",
                    "kernels are compiled for a machine without cuDNN: %s",
                    layers->why.text);
    layers->is_tried = true;
    if (!layers->library)
        return PL_EUNSUPPORTED;
    *plan = self;
    return PL_OK;
}

static int layer_build(void *self, pl_layer_plan_t *plan, size_t *workspace,
                       pl_error_t *err)
{
    (void)self, (void)plan, (void)err;
    *workspace = 0;
    return PL_OK;
}

static int layer_run(void *self, pl_stream_t stream, pl_layer_plan_t *plan,
                     const pl_device_ptr_t address[PL_LAYER_ADDRESSES], pl_error_t *err)
{
    (void)self, (void)stream, (void)plan, (void)address, (void)err;
    return PL_OK;
}

const pl_gpu_backend_ops_t cuda_offline_backend = {
    .name = "cuda",
    .open = offline_open,
    .close = offline_close,
    .memory_new = memory_new,
    .memory_free = memory_free,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy,
    .zero = zero,
    .call = call,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_record,
    .event_passed = event_passed,
    .event_seconds = event_seconds,
    .notify = notify,
    .descriptor = descriptor,
    .finish = finish,
    .code_new = code_new,
    .code_free = code_free,
    .code_cached = code_cached,
    .module_new = module_new,
    .cache = cuda_cache_used,
    .code_entry = code_entry,
    .launch = launch,
    .product_new = product_new,
    .product_run = product_run,
    .epilogues = cuda_epilogues,
    .layer_new = layer_new,
    .layer_build = layer_build,
    .layer_run = layer_run,
};
