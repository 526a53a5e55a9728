/* dnn.c - attention and convolution by cuDNN
 *
 * Equal layers share one plan.  The threads that compile kernels make it, and it is
 * kept on disk with the kernels.  The core's kernels compute the layers that cuDNN
 * refuses, and all layers if it is not installed; also, with a warning, a layer whose
 * plan cuDNN fails to make.  But a lost card, and a host without memory, are errors.
 *
 * The gradient of an attention with additions in a fixed order takes workspace of 2 bytes
 * for each pair of tokens.  So that it does not grow with batches and heads, these are
 * computed in parts.  In any order (option "any_order") it takes workspace for the
 * gradients of queries. */
#include "accelerators/cuda/dnn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/cuda/cuda.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

enum { WIDTH_STEP = 8, WIDTH_MAX = 256 };
int64_t dnn_part_max = (int64_t)256 << 20;

struct pl_layer_plan {
    pl_layer_plan_t *next;
    pl_layer_t part;
    int64_t batches, heads;                          /* parts */
    int64_t step[PL_LAYER_WORKSPACE][2];             /* bytes from one part to the next */
    char text[DNN_TEXT];
    enum { NEW, BUILDING, READY, REFUSED } state;
    dnn_plan_t plan;
};

/* The lock of all plans, and the condition for threads that build the same one. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER,
                       open_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* ---- Layers and their parts ---- */

bool dnn_fits(const pl_layer_t *layer)
{
    const bool half = layer->dtype == PL_BF16 || layer->dtype == PL_F16;
    const __typeof__(layer->attention) *a = &layer->attention;
    if (layer->kind >= PL_LAYER_CONVOLUTION)
        return half || layer->dtype == PL_F32;
    bool fits = half && a->width % WIDTH_STEP == 0 && a->width <= WIDTH_MAX;
    for (int k = 0; k < PL_LAYER_WORKSPACE; k++)
        for (int i = 0; i < 3 && k != PL_ATTENTION_SUMS; i++)
            fits &= a->stride[k][i] % WIDTH_STEP == 0;
    return fits;
}

/* The largest divisor of n that is at most `max`, or 1. */
static int64_t divisor(int64_t n, int64_t max)
{
    int64_t d = max < n ? max : n;
    while (d > 1 && n % d)
        d--;
    return d < 1 ? 1 : d;
}

pl_layer_t dnn_part(const pl_layer_t *layer, dnn_rules_t rules, int64_t *batches,
                    int64_t *heads)
{
    pl_layer_t part = *layer;
    *batches = *heads = 1;
    if (layer->kind != PL_LAYER_ATTENTION_GRAD || rules.any_order)
        return part;
    const __typeof__(layer->attention) *a = &layer->attention;
    const int64_t head = 2 * a->tokens * a->tokens;
    part.attention.batches = divisor(a->batches, dnn_part_max / (head * a->heads));
    if (part.attention.batches == 1)
        part.attention.heads = divisor(a->heads, dnn_part_max / head);
    *batches = a->batches / part.attention.batches;
    *heads = a->heads / part.attention.heads;
    return part;
}

/* " stride 2", or " stride 2x1"; nothing if both are the usual number.  Returns the
 * length. */
static int numbers_print(char text[DNN_TEXT], int at, const char *name,
                         const int64_t number[2], int64_t usual)
{
    const size_t left = (size_t)(DNN_TEXT - at);
    if (number[0] == number[1])
        return number[0] == usual
                   ? 0
                   : snprintf(text + at, left, " %s %lld", name, (long long)number[0]);
    return snprintf(text + at, left, " %s %lldx%lld", name, (long long)number[0],
                    (long long)number[1]);
}

void dnn_text(const pl_layer_t *layer, char text[DNN_TEXT])
{
    static const char *const kinds[] = {"attention", "attention_grad", "convolution",
                                        "convolution_grad_x", "convolution_grad_w"};
    const __typeof__(layer->attention) *a = &layer->attention;
    const __typeof__(layer->convolution) *c = &layer->convolution;
    int at = snprintf(text, DNN_TEXT, "%s %s", kinds[layer->kind],
                      layer->dtype == PL_BF16  ? "bf16"
                      : layer->dtype == PL_F16 ? "f16"
                                               : "f32");
    if (layer->kind >= PL_LAYER_CONVOLUTION) {
        at += snprintf(text + at, (size_t)(DNN_TEXT - at),
                       " [%lld, %lld, %lld, %lld] by [%lld, %lld, %lld, %lld]",
                       (long long)c->batches, (long long)c->height, (long long)c->width,
                       (long long)c->channels, (long long)c->filters,
                       (long long)(c->channels / c->groups), (long long)c->kernel[0],
                       (long long)c->kernel[1]);
        at += numbers_print(text, at, "stride", c->stride, 0);
        at += numbers_print(text, at, "padding", c->before, -1);
        if (c->behind[0] != c->before[0] || c->behind[1] != c->before[1])
            at += numbers_print(text, at, "behind", c->behind, -1);
        at += numbers_print(text, at, "dilation", c->dilation, 1);
        snprintf(text + at, (size_t)(DNN_TEXT - at), "%s", c->has_bias ? " bias" : "");
        return;
    }
    at += snprintf(text + at, (size_t)(DNN_TEXT - at), " [%lld, %lld, %lld, %lld]%s",
                   (long long)a->batches, (long long)a->heads, (long long)a->tokens,
                   (long long)a->width, a->causal ? " causal" : "");
    at += snprintf(text + at, (size_t)(DNN_TEXT - at), " scale %a strides", a->scale);
    for (int k = 0; k < PL_LAYER_WORKSPACE && at < DNN_TEXT; k++)
        at += snprintf(text + at, (size_t)(DNN_TEXT - at), " %lld,%lld,%lld",
                       (long long)a->stride[k][0], (long long)a->stride[k][1],
                       (long long)a->stride[k][2]);
}

/* ---- The library on a device ---- */

static void log_without(const pl_error_t *why)
{
    pl_log_line(PL_LOG_WARNING, -1, "",
                "attention and convolution are computed by kernels of Paceline, which "
                "are slower: %s",
                why->text);
}

void cuda_layers_name(const cuda_t *cuda, pl_device_info_t *info)
{
    const size_t length = strlen(info->library);
    const cuda_dnn_library_t *library = info->computes && cuda->cudnn && !cuda->strict
                                            ? cuda_dnn_open(cuda->library->version, NULL)
                                            : NULL;
    if (library)
        snprintf(info->library + length, sizeof info->library - length, ", cuDNN %d.%d",
                 library->version / 10000, library->version / 100 % 100);
}

/* PL_OK, or an error that is not cuDNN's own: the card is lost, which a library does not
 * report, or the host has no memory. */
static int check_others(cuda_t *cuda, cu_result_t status, pl_error_t *err)
{
    const int code = cuda_check_alive(cuda, err);
    return code == PL_OK && status == DNN_NO_MEMORY ? pl_no_memory(err) : code;
}

static int fail(cuda_t *cuda, cu_result_t status, const char *what, pl_error_t *err)
{
    const cuda_dnn_t *call = &cuda->layers.library->call;
    char last[256] = "";
    const int code = check_others(cuda, status, err);
    if (code != PL_OK)
        return code;
    call->last_error(last, sizeof last);
    return pl_fail(err, PL_EIO, "cuda:%d (%s): %s: cuDNN failed: %s (%u)%s%.160s",
                   cuda->card.number, cuda->card.name, what, call->status_name(status),
                   status, *last ? ": " : "", last);
}

/* Opens cuDNN once, on the first thread that builds a plan: it takes half a second.
 * PL_EUNSUPPORTED: it cannot be used, which is logged. */
static int handle_open(cuda_t *cuda, pl_error_t *err)
{
    cuda_layers_t *layers = &cuda->layers;
    const cuda_dnn_t *call = &layers->library->call;
    int code = PL_OK;
    pthread_mutex_lock(&open_lock);
    if (!layers->device && !layers->is_open_tried) {
        pl_error_t why = {0};
        cu_result_t status = layers->handle ? DNN_OK : call->open(&layers->handle);
        if (status != DNN_OK)
            layers->handle = NULL;
        else
            layers->device = dnn_device_new(call, layers->handle, NULL, &status);
        if (!layers->device)
            code = check_others(cuda, status, err);
        layers->is_open_tried = code == PL_OK;
        if (!layers->device && code == PL_OK) {
            fail(cuda, status, "opening it", &why);
            log_without(&why);
        }
    }
    if (!layers->device && code == PL_OK)
        code = PL_EUNSUPPORTED;
    pthread_mutex_unlock(&open_lock);
    return code;
}

void cuda_layers_close(cuda_t *cuda)
{
    cuda_layers_t *layers = &cuda->layers;
    while (layers->first) {
        pl_layer_plan_t *plan = layers->first;
        layers->first = plan->next;
        if (plan->state == READY)
            dnn_plan_release(&plan->plan);
        pl_free(plan);
    }
    if (layers->device)
        layers->library->call.descriptor_free(layers->device);
    if (layers->handle)
        layers->library->call.close(layers->handle);
    *layers = (cuda_layers_t){0};
}

/* ---- Plans ---- */

static dnn_rules_t rules_of(const cuda_t *cuda)
{
    return (dnn_rules_t){.tf32 = cuda->tf32, .any_order = cuda->any_order};
}

int cuda_layer_new(void *self, const pl_layer_t *layer, pl_layer_plan_t **plan,
                   pl_error_t *err)
{
    cuda_t *cuda = self;
    cuda_layers_t *layers = &cuda->layers;
    char text[DNN_TEXT];
    if (!dnn_fits(layer))
        return PL_EUNSUPPORTED;
    if (cuda->cudnn && !cuda->strict && !layers->is_tried) {
        layers->is_tried = true;
        layers->library = cuda_dnn_open(cuda->library ? cuda->library->version : 0,
                                        &layers->why);
        if (!layers->library)
            log_without(&layers->why);
    }
    if (!layers->library)                     /* it is not used, or it is not installed */
        return PL_EUNSUPPORTED;
    dnn_text(layer, text);
    pthread_mutex_lock(&lock);
    pl_layer_plan_t *found = layers->first;
    while (found && strcmp(found->text, text) != 0)
        found = found->next;
    const bool is_refused = found && found->state == REFUSED;
    pthread_mutex_unlock(&lock);
    if (is_refused)
        return PL_EUNSUPPORTED;
    if (!found) {
        found = pl_alloc(sizeof *found);
        if (!found)
            return pl_no_memory(err);
        found->part = dnn_part(layer, rules_of(cuda), &found->batches, &found->heads);
        const __typeof__(found->part.attention) *a = &found->part.attention;
        for (int k = 0; k < PL_LAYER_WORKSPACE; k++) {
            const int64_t width = k == PL_ATTENTION_SUMS ? 4 : 2;
            found->step[k][0] = a->stride[k][0] * a->batches * width;
            found->step[k][1] = a->stride[k][1] * a->heads * width;
        }
        snprintf(found->text, sizeof found->text, "%s", text);
        found->next = layers->first;
        layers->first = found;
    }
    *plan = found;
    return PL_OK;
}

/* Plans stay for the next graph with such a layer. */

/* One line for each device, and one of failures. */
static void log_refused(cuda_t *cuda, const pl_layer_plan_t *plan, cu_result_t status)
{
    cuda_layers_t *layers = &cuda->layers;
    const cuda_dnn_t *call = &layers->library->call;
    const int length = (int)strcspn(plan->text, "]") + 1;
    char last[256] = "";
    if (dnn_is_unsupported(status)) {
        if (!__atomic_exchange_n(&layers->is_logged, true, __ATOMIC_RELAXED))
            pl_log_line(PL_LOG_INFO, -1, "",
                        "cuDNN does not compute %.*s (%s): kernels of Paceline do",
                        length, plan->text, call->status_name(status));
        return;
    }
    call->last_error(last, sizeof last);
    if (!__atomic_exchange_n(&layers->is_warned, true, __ATOMIC_RELAXED))
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "cuDNN failed to plan %.*s, and kernels of Paceline, which are "
                    "slower, compute it: %s (%u)%s%s",
                    length, plan->text, call->status_name(status), status,
                    *last ? ": " : "", last);
}

/* Takes the plan from the cache, or makes it and keeps it there. */
static int plan_build(cuda_t *cuda, pl_layer_plan_t *plan, pl_error_t *err)
{
    const cuda_layers_t *layers = &cuda->layers;
    const dnn_rules_t rules = rules_of(cuda);
    int code = handle_open(cuda, err);
    if (code != PL_OK)
        return code;
    /* The key contains everything that a plan depends on. */
    enum { KEY_TEXT = 2 * DNN_TEXT };
    const cuda_dnn_t *call = &layers->library->call;
    char *key = cuda->store ? pl_alloc(KEY_TEXT) : NULL, *text = NULL, part[DNN_TEXT];
    void *kept = NULL;
    size_t bytes = 0;
    int multiprocessors = 0;
    cuda->call->device_attribute(&multiprocessors, CU_MULTIPROCESSORS, cuda->card.device);
    dnn_text(&plan->part, part);
    if (key)
        snprintf(key, KEY_TEXT,
                 "cuDNN %d CUDA %d driver %d %.64s sm_%d%d %d multiprocessors%s%s\n%s",
                 layers->library->version, (int)call->runtime(), cuda->library->version,
                 cuda->card.name, cuda->card.major, cuda->card.minor, multiprocessors,
                 rules.tf32 ? " TF32" : "", rules.any_order ? " in any order" : "", part);
    const bool was_kept = key && cuda_cache_get(cuda->store, key, &kept, &bytes)
                          && dnn_plan_load(&plan->plan, call, layers->device, &plan->part,
                                           rules, kept, bytes)
                                 == DNN_OK;
    const cu_result_t status = was_kept
                                   ? DNN_OK
                                   : dnn_plan_make(&plan->plan, call, layers->device,
                                                   &plan->part, rules, &text, &bytes);
    if (text && key)
        cuda_cache_put(cuda->store, key, text, bytes);
    pl_free(text);
    pl_free(kept);
    pl_free(key);
    if (status == DNN_OK)
        return PL_OK;
    code = check_others(cuda, status, err);
    if (code != PL_OK)
        return code;
    log_refused(cuda, plan, status);
    return PL_EUNSUPPORTED;
}

/* After an error the next call tries again. */
int cuda_layer_build(void *self, pl_layer_plan_t *plan, size_t *workspace,
                     pl_error_t *err)
{
    cuda_t *cuda = self;
    int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    pthread_mutex_lock(&lock);
    while (plan->state == BUILDING)
        pthread_cond_wait(&changed, &lock);
    code = plan->state == REFUSED ? PL_EUNSUPPORTED : PL_OK;
    if (plan->state == NEW) {
        plan->state = BUILDING;
        pthread_mutex_unlock(&lock);
        code = plan_build(cuda, plan, err);
        pthread_mutex_lock(&lock);
        plan->state = code == PL_OK ? READY : code == PL_EUNSUPPORTED ? REFUSED : NEW;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    *workspace = code == PL_OK ? (size_t)plan->plan.workspace : 0;
    return code;
}

/* ---- Runs ---- */

cu_result_t dnn_plan_run(const dnn_plan_t *plan, cudnnHandle_t handle,
                         const pl_layer_t *layer,
                         const pl_device_ptr_t address[PL_LAYER_ADDRESSES])
{
    static const float min = -INFINITY, one = 1;
    const cuda_dnn_t *call = plan->graph.call;
    const bool attention = layer->kind < PL_LAYER_CONVOLUTION;
    const float scale = (float)layer->attention.scale;
    const pl_device_ptr_t sums = address[PL_LAYER_WORKSPACE]
                                 + (pl_device_ptr_t)plan->rows,
                          workspace = sums + (pl_device_ptr_t)plan->sums;
    const void *at[DNN_OPERANDS];
    int64_t id[DNN_OPERANDS];
    int count = 0;
    cudnnBackendDescriptor_t pack = NULL;
    for (int k = 0; k < PL_LAYER_WORKSPACE; k++)
        if (attention ? layer->attention.stride[k][2] != 0
                      : k < PL_CONVOLUTION_BIAS + layer->convolution.has_bias)
            id[count] = k + 1, at[count++] = (const void *)(uintptr_t)address[k];
    if (attention)
        id[count] = DNN_ID_SCALE, at[count++] = &scale;
    if (attention && layer->attention.causal)
        id[count] = DNN_ID_MIN, at[count++] = &min;
    if (layer->kind == PL_LAYER_ATTENTION_GRAD)
        id[count] = DNN_ID_ONE, at[count++] = &one;
    if (plan->rows)
        id[count] = DNN_ID_ROWS,
        at[count++] = (const void *)(uintptr_t)address[PL_LAYER_WORKSPACE];
    if (plan->sums)
        id[count] = DNN_ID_SUMS, at[count++] = (const void *)(uintptr_t)sums;
    cu_result_t status = call->descriptor_new(DNN_PACK, &pack);
    if (status == DNN_OK)
        status = call->set(pack, DNN_PACK_IDS, DNN_TYPE_INT64, count, id);
    if (status == DNN_OK)
        status = call->set(pack, DNN_PACK_POINTERS, DNN_TYPE_POINTER, count, at);
    if (status == DNN_OK)
        status = call->set(pack, DNN_PACK_WORKSPACE, DNN_TYPE_POINTER, 1, &workspace);
    if (status == DNN_OK)
        status = call->finalize(pack);
    if (status == DNN_OK)
        status = call->execute(handle, plan->plan, pack);
    if (pack)
        call->descriptor_free(pack);
    return status;
}

int cuda_layer_run(void *self, pl_stream_t stream, pl_layer_plan_t *plan,
                   const pl_device_ptr_t address[PL_LAYER_ADDRESSES], pl_error_t *err)
{
    cuda_t *cuda = self;
    const cuda_layers_t *layers = &cuda->layers;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    cu_result_t status = layers->library->call.use_stream(layers->handle,
                                                          cuda->stream[stream]);
    for (int64_t b = 0; b < plan->batches && status == DNN_OK; b++)
        for (int64_t h = 0; h < plan->heads && status == DNN_OK; h++) {
            pl_device_ptr_t part[PL_LAYER_ADDRESSES];
            for (int k = 0; k < PL_LAYER_ADDRESSES; k++)
                part[k] = address[k]
                          + (k < PL_LAYER_WORKSPACE
                                 ? (pl_device_ptr_t)(b * plan->step[k][0]
                                                     + h * plan->step[k][1])
                                 : 0);
            const dnn_plan_t *of = &plan->plan;
            const cu_result_t zeroed =
                of->sums ? cuda->call->fill(address[PL_LAYER_WORKSPACE]
                                                + (pl_device_ptr_t)of->rows,
                                            0, (size_t)of->sums, cuda->stream[stream])
                         : CU_OK;
            if (zeroed != CU_OK)
                return cuda_check(cuda, err, zeroed, "zeroing sums of an attention");
            status = dnn_plan_run(of, layers->handle, &plan->part, part);
        }
    return status == DNN_OK
               ? PL_OK
               : fail(cuda, status,
                      plan->part.kind < PL_LAYER_CONVOLUTION ? "attention"
                                                             : "a convolution",
                      err);
}
