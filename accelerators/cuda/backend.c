/* backend.c - a card of NVIDIA as a backend of the GPU core, by CUDA's driver
 *
 * The backend uses the primary context of a card, as NVIDIA's other libraries do, so they
 * share memory and streams with the engine.  A context belongs to a thread: each function
 * makes it current first, which costs some ten nanoseconds when it is current already. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accelerators/cuda/cuda.h"
#include "base/alloc.h"
#include "base/error.h"

#define MIB ((size_t)1 << 20)

struct pl_binary {
    CUmodule module;
    bool was_kept, is_stored;
    pl_entry_t *entries;                                    /* a list */
};

struct pl_entry {
    pl_entry_t *next;
    CUfunction function;
    char name[48];
};

/* ---- Errors ---- */

static pthread_mutex_t lost_lock = PTHREAD_MUTEX_INITIALIZER;

/* Results after which the driver refuses every call of this process. */
static bool is_end(cu_result_t result)
{
    switch (result) {
    case CU_ECC_UNCORRECTABLE:
    case CU_NVLINK_UNCORRECTABLE:
    case CU_ILLEGAL_ADDRESS:
    case CU_LAUNCH_TIMEOUT:
    case CU_CONTEXT_IS_DESTROYED:
    case CU_ASSERT:
    case CU_HARDWARE_STACK_ERROR:
    case CU_ILLEGAL_INSTRUCTION:
    case CU_MISALIGNED_ADDRESS:
    case CU_INVALID_ADDRESS_SPACE:
    case CU_INVALID_PC:
    case CU_LAUNCH_FAILED:
    case CU_UNKNOWN: return true;
    default: return false;
    }
}

int cuda_check(cuda_t *cuda, pl_error_t *err, cu_result_t result, const char *what, ...)
{
    char doing[160];
    const char *name = NULL, *text = NULL;
    pl_error_t failure = {0};
    va_list args;
    if (result == CU_OK)
        return PL_OK;
    va_start(args, what);
    vsnprintf(doing, sizeof doing, what, args);
    va_end(args);
    cuda->call->error_name(result, &name);
    cuda->call->error_text(result, &text);
    pl_fail(&failure, PL_EIO, "cuda:%d (%s): %s failed: %s (%s)%s", cuda->card.number,
            cuda->card.name, doing, text ? text : "unknown error", name ? name : "?",
            is_end(result) ? "; this process cannot use the card any more" : "");
    if (is_end(result)) {
        pthread_mutex_lock(&lost_lock);
        if (cuda->lost.code == PL_OK)
            cuda->lost = failure;
        failure = cuda->lost;
        pthread_mutex_unlock(&lost_lock);
    }
    return pl_fail(err, failure.code, "%s", failure.text);
}

int cuda_check_alive(cuda_t *cuda, pl_error_t *err)
{
    size_t left, all;
    return cuda_check(cuda, err, cuda->call->memory_info(&left, &all), "the card's work");
}

int cuda_enter(void *self, pl_error_t *err)
{
    cuda_t *cuda = self;
    if (!cuda->context)
        return pl_fail(err, PL_ESTATE, "the card is not open");
    pthread_mutex_lock(&lost_lock);
    const pl_error_t lost = {.code = cuda->lost.code};
    if (lost.code != PL_OK)
        pl_fail(err, cuda->lost.code, "%s", cuda->lost.text);
    pthread_mutex_unlock(&lost_lock);
    if (lost.code != PL_OK)
        return lost.code;
    return cuda_check(cuda, err, cuda->call->context_use(cuda->context),
                      "using the card");
}

/* ---- The card ---- */

/* By trainer.devices, or one card for each rank of this machine. */
static int card_choose(cuda_t *cuda, pl_device_info_t *info, pl_error_t *err)
{
    int count = 0;
    const bool is_listed = info->device >= 0;
    const int number = is_listed ? info->device : info->local_rank;
    const cu_result_t result = cuda->call->device_count(&count);
    if (result != CU_OK)
        return cuda_check(cuda, err, result, "counting the cards");
    if (count < 1)
        return pl_fail(err, PL_EUNSUPPORTED, "NVIDIA's driver finds no GPU");
    if (number >= count && is_listed)
        return pl_fail(err, PL_EINVAL,
                       "trainer.devices lists device %d, and this machine has %d GPU%s, "
                       "numbered from 0",
                       number, count, pl_plural(count));
    if (number >= count)
        return pl_fail(err, PL_EINVAL,
                       "rank %d of this machine has no GPU: there %s %d, and each rank "
                       "needs one of its own; set trainer.devices to %d",
                       number, count == 1 ? "is" : "are", count, count);
    info->devices = count;
    return cuda_card_describe(cuda->call, number, &cuda->card, err);
}

static int machine_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    cuda_t *cuda = self;
    cuda->library = cuda_library_open(err);
    if (!cuda->library)
        return err ? err->code : PL_EUNSUPPORTED;
    cuda->call = &cuda->library->call;
    int code = card_choose(cuda, info, err);
    if (code != PL_OK)
        return code;
    cuda->compiler = cuda_compiler_open(cuda->library->version, err);
    if (!cuda->compiler)
        return PL_EUNSUPPORTED;
    if (info->computes)
        cuda_products_open(cuda);
    /* The driver refuses the flags if another part of the process uses the card; then
     * waiting for it polls. */
    cuda->call->context_flags(cuda->card.device, CU_SCHEDULE_BLOCKING);
    CUcontext context;
    cu_result_t result = cuda->call->context_retain(&context, cuda->card.device);
    if (result != CU_OK)
        return cuda_check(cuda, err, result, "opening the card");
    cuda->context = context;
    code = cuda_enter(cuda, err);
    for (int k = 0; k < PL_STREAMS && code == PL_OK; k++) {
        result = cuda->call->stream_new(&cuda->stream[k], CU_STREAM_APART);
        code = cuda_check(cuda, err, result, "making a stream");
    }
    if (code != PL_OK)
        return code;
    cuda->notifier = cuda_notifier_new(cuda, err);
    if (!cuda->notifier)
        return PL_EBUSY;
    cuda_cache_open(cuda);
    const cuda_multiplier_t *products = info->computes ? cuda_products_library(cuda)
                                                       : NULL;
    size_t left = 0, all = cuda->card.memory;
    cuda->call->memory_info(&left, &all);
    info->device = cuda->card.number;
    info->threads = 1;
    info->emulated = 0;
    info->memory = all;
    info->memory_free = left;
    /* For tests, NCCL_HOSTID lets processes on different "machines" share a card. */
    if (!getenv("NCCL_HOSTID"))
        memcpy(info->uuid, cuda->card.uuid.bytes, sizeof info->uuid);
    snprintf(info->model, sizeof info->model, "%.48s, sm_%d%d", cuda->card.name,
             cuda->card.major, cuda->card.minor);
    snprintf(info->library, sizeof info->library, "CUDA %d.%d, NVRTC %d.%d",
             cuda->library->version / 1000, cuda->library->version / 10 % 100,
             cuda->compiler->major, cuda->compiler->minor);
    const size_t length = strlen(info->library);
    if (products)
        snprintf(info->library + length, sizeof info->library - length,
                 ", cuBLASLt %d.%d", products->major, products->minor);
    cuda_layers_name(cuda, info);
    return PL_OK;
}

static void machine_close(void *self)
{
    cuda_t *cuda = self;
    cuda_cache_free(cuda->store);
    cuda_notifier_free(cuda->notifier);
    if (cuda->context)
        cuda->call->context_use(cuda->context);
    cuda_products_close(cuda);               /* its thread reads also without a context */
    if (cuda->context) {
        cuda_layers_close(cuda);
        for (int k = 0; k < PL_STREAMS; k++)
            if (cuda->stream[k])
                cuda->call->stream_free(cuda->stream[k]);
        cuda->call->context_use(NULL);
        cuda->call->context_release(cuda->card.device);
    }
    cuda->store = NULL;
    cuda->notifier = NULL;
    cuda->context = NULL;
    memset(cuda->stream, 0, sizeof cuda->stream);
    cuda->lost = (pl_error_t){0};
    cuda->stats = (cuda_stats_t){0};
}

/* ---- Memory ---- */

int cuda_fail_memory(cuda_t *cuda, size_t bytes, pl_error_t *err)
{
    size_t left = 0, all = 0;
    cuda->call->memory_info(&left, &all);
    return pl_fail(
        err, PL_ENOMEM,
        "out of memory on cuda:%d (%s): %zu MiB requested, %zu of %zu MiB free",
        cuda->card.number, cuda->card.name, (bytes + MIB - 1) / MIB, left / MIB,
        all / MIB);
}

static int memory_new(void *self, size_t bytes, pl_device_ptr_t *address, pl_error_t *err)
{
    cuda_t *cuda = self;
    CUdeviceptr at = 0;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    const cu_result_t result = cuda->call->memory_new(&at, bytes);
    if (result == CU_OUT_OF_MEMORY)
        return cuda_fail_memory(cuda, bytes, err);
    if (result != CU_OK)
        return cuda_check(cuda, err, result, "allocating %zu bytes", bytes);
    *address = at;
    return PL_OK;
}

static void memory_free(void *self, pl_device_ptr_t address)
{
    cuda_t *cuda = self;
    cuda->call->context_use(cuda->context);
    cuda->call->memory_free(address);
}

static void memory_left(void *self, size_t *left, size_t *all)
{
    cuda_t *cuda = self;
    cuda->call->context_use(cuda->context);
    *left = *all = 0;
    cuda->call->memory_info(left, all);
}

static void *host_new(void *self, size_t bytes, pl_error_t *err)
{
    cuda_t *cuda = self;
    void *host = NULL;
    if (cuda_enter(cuda, err) != PL_OK)
        return NULL;
    const cu_result_t result = cuda->call->host_new(&host, bytes, CU_HOST_FOR_ALL);
    if (result == CU_OK)
        return host;
    if (result == CU_OUT_OF_MEMORY)
        pl_fail(err, PL_ENOMEM, "out of memory: %zu MiB of pinned host memory requested",
                (bytes + MIB - 1) / MIB);
    else
        cuda_check(cuda, err, result, "pinning %zu bytes of host memory", bytes);
    return NULL;
}

static void host_free(void *self, void *host)
{
    cuda_t *cuda = self;
    cuda->call->context_use(cuda->context);
    cuda->call->host_free(host);
}

/* The driver registers whole pages.  Memory that begins within a page is not pinned, and
 * copies of it are slower. */
static int host_pin(void *self, void *host, size_t bytes, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK || (uintptr_t)host % (size_t)sysconf(_SC_PAGESIZE))
        return code;
    return cuda_check(cuda, err, cuda->call->host_pin(host, bytes, CU_HOST_FOR_ALL),
                      "pinning %zu bytes of host memory", bytes);
}

static void host_unpin(void *self, void *host)
{
    cuda_t *cuda = self;
    cuda->call->context_use(cuda->context);
    if ((uintptr_t)host % (size_t)sysconf(_SC_PAGESIZE) == 0)
        cuda->call->host_unpin(host);
}

static int call(void *self, pl_stream_t stream, void (*function)(void *user), void *user,
                pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    return cuda_check(cuda, err,
                      cuda->call->host_call(cuda->stream[stream], function, user),
                      "calling a function of the host");
}

/* ---- Copies ---- */

static int copy_in(void *self, pl_stream_t stream, pl_device_ptr_t to, const void *host,
                   size_t bytes, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK || !bytes)
        return code;
    return cuda_check(cuda, err,
                      cuda->call->copy_in(to, host, bytes, cuda->stream[stream]),
                      "copying %zu bytes to the card", bytes);
}

static int copy_out(void *self, pl_stream_t stream, void *host, pl_device_ptr_t from,
                    size_t bytes, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK || !bytes)
        return code;
    return cuda_check(cuda, err,
                      cuda->call->copy_out(host, from, bytes, cuda->stream[stream]),
                      "copying %zu bytes from the card", bytes);
}

static int copy(void *self, pl_stream_t stream, pl_device_ptr_t to, pl_device_ptr_t from,
                size_t bytes, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK || !bytes)
        return code;
    return cuda_check(cuda, err, cuda->call->copy(to, from, bytes, cuda->stream[stream]),
                      "copying %zu bytes on the card", bytes);
}

static int zero(void *self, pl_stream_t stream, pl_device_ptr_t to, size_t bytes,
                pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK || !bytes)
        return code;
    return cuda_check(cuda, err, cuda->call->fill(to, 0, bytes, cuda->stream[stream]),
                      "zeroing %zu bytes", bytes);
}

static int finish(void *self, pl_stream_t stream, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    return cuda_check(cuda, err, cuda->call->stream_finish(cuda->stream[stream]),
                      "the card's work");
}

/* ---- Events ---- */

static int event_new(void *self, pl_event_t **event, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    pl_event_t *fresh = pl_alloc(sizeof *fresh);
    if (!fresh)
        return pl_no_memory(err);
    const cu_result_t result = cuda->call->event_new(&fresh->event, CU_EVENT_BLOCKING);
    if (result != CU_OK) {
        pl_free(fresh);
        return cuda_check(cuda, err, result, "making an event");
    }
    *event = fresh;
    return PL_OK;
}

static int event_record(void *self, pl_event_t *event, pl_stream_t stream,
                        pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    __atomic_add_fetch(&event->records, 1, __ATOMIC_RELAXED);
    return cuda_check(cuda, err,
                      cuda->call->event_record(event->event, cuda->stream[stream]),
                      "recording an event");
}

static int event_wait(void *self, pl_event_t *event, pl_stream_t stream, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    return cuda_check(cuda, err,
                      cuda->call->stream_wait(cuda->stream[stream], event->event, 0),
                      "waiting for an event");
}

static int event_passed(void *self, pl_event_t *event, bool *passed, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    const cu_result_t result = cuda->call->event_query(event->event);
    if (result != CU_OK && result != CU_NOT_READY)
        return cuda_check(cuda, err, result, "the card's work");
    *passed = result == CU_OK;
    return PL_OK;
}

static double event_seconds(void *self, pl_event_t *from, pl_event_t *to)
{
    cuda_t *cuda = self;
    float ms = 0;
    cuda->call->context_use(cuda->context);
    return cuda->call->event_between(&ms, from->event, to->event) == CU_OK ? ms / 1e3 : 0;
}

/* ---- Kernels ---- */

static int code_new(void *self, const char *text, pl_binary_t **code, pl_error_t *err)
{
    cuda_code_t made;
    pl_binary_t *fresh = pl_alloc(sizeof *fresh);
    const int failed = fresh ? cuda_module_load(self, text, &fresh->module, &made, err)
                             : pl_no_memory(err);
    if (failed == PL_OK) {
        fresh->was_kept = made.was_kept;
        fresh->is_stored = made.is_stored;
    }
    if (failed == PL_OK)
        *code = fresh;
    else
        pl_free(fresh);
    return failed;
}

static bool code_cached(const pl_binary_t *code, bool *is_stored)
{
    *is_stored = code->is_stored;
    return code->was_kept;
}

static void code_free(void *self, pl_binary_t *code)
{
    cuda_t *cuda = self;
    cuda->call->context_use(cuda->context);
    cuda->call->module_free(code->module);
    while (code->entries) {
        pl_entry_t *next = code->entries->next;
        pl_free(code->entries);
        code->entries = next;
    }
    pl_free(code);
}

static const pl_entry_t *code_entry(void *self, pl_binary_t *code, const char *name,
                                    pl_error_t *err)
{
    cuda_t *cuda = self;
    if (cuda_enter(cuda, err) != PL_OK)
        return NULL;
    pl_entry_t *entry = pl_alloc(sizeof *entry);
    if (!entry) {
        pl_no_memory(err);
        return NULL;
    }
    const cu_result_t result = cuda->call->module_function(&entry->function, code->module,
                                                           name);
    if (result != CU_OK) {
        pl_free(entry);
        cuda_check(cuda, err, result, "finding kernel %s", name);
        return NULL;
    }
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->next = code->entries;
    code->entries = entry;
    return entry;
}

static int launch(void *self, pl_stream_t stream, const pl_kernel_launch_t *l,
                  pl_error_t *err)
{
    cuda_t *cuda = self;
    void *argument[PL_LAUNCH_ADDRESSES];
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    if (l->groups < 1 || l->groups > INT_MAX)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "kernel %s has %lld groups: a GPU runs 1 to %d", l->entry->name,
                       (long long)l->groups, INT_MAX);
    for (int k = 0; k < l->count; k++)
        argument[k] = (void *)&l->address[k];
    return cuda_check(cuda, err,
                      cuda->call->launch(l->entry->function, (unsigned)l->groups, 1, 1,
                                         (unsigned)l->threads, 1, 1, 0,
                                         cuda->stream[stream], argument, NULL),
                      "launching kernel %s", l->entry->name);
}

#define MACHINE \
    .name = "cuda", .open = machine_open, .close = machine_close, \
    .memory_new = memory_new, .memory_free = memory_free, .memory_left = memory_left, \
    .host_new = host_new, .host_free = host_free, .host_pin = host_pin, \
    .host_unpin = host_unpin, .call = call, .copy_in = copy_in, .copy_out = copy_out, \
    .copy = copy, .zero = zero, .event_new = event_new, .event_free = cuda_event_free, \
    .event_record = event_record, .event_wait = event_wait, \
    .event_passed = event_passed, .event_seconds = event_seconds, .notify = cuda_notify, \
    .descriptor = cuda_descriptor, .finish = finish, .stream = cuda_stream, \
    .enter = cuda_enter, .stream_new = cuda_stream_new, .stream_free = cuda_stream_free, \
    .stream_record = cuda_stream_record, .stream_wait = cuda_stream_wait, \
    .module_new = cuda_module_new, .code_new = code_new, .code_free = code_free, \
    .code_cached = code_cached, .cache = cuda_cache_used, .code_entry = code_entry, \
    .launch = launch, .product_new = cuda_product_new, .product_run = cuda_product_run, \
    .product_free = cuda_product_free, .epilogues = cuda_epilogues, \
    .layer_new = cuda_layer_new, .layer_build = cuda_layer_build, \
    .layer_run = cuda_layer_run

const pl_gpu_backend_ops_t cuda_backend = {MACHINE, .record_begin = cuda_record_begin,
                                           .record_end = cuda_record_end,
                                           .recording_run = cuda_recording_run,
                                           .recording_free = cuda_recording_free};
const pl_gpu_backend_ops_t cuda_backend_without_recordings = {MACHINE};
