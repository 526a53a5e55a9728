/* payload.c - the objects that messages hand over */
#include "runtime/payload.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "base/options.h"
#include "runtime/message.h"

const char *const pl_timing_names[PL_TIMINGS] = {
    [PL_TIMING_DATA] = "data",           [PL_TIMING_FORWARD] = "forward",
    [PL_TIMING_BACKWARD] = "backward",   [PL_TIMING_COLLECTIVE] = "collective",
    [PL_TIMING_OPTIMIZER] = "optimizer", [PL_TIMING_ABSENT] = "absent"};

/* A zeroed object of that size, counted once; NULL with PL_ENOMEM. */
static void *object_make(size_t size, void (*release)(pl_object_t *), pl_error_t *err)
{
    pl_object_t *object = pl_alloc(size);
    if (object)
        pl_object_init(object, release);
    else
        pl_no_memory(err);
    return object;
}

struct pl_pulse {
    _Atomic uint64_t put, ended;
    _Atomic int64_t at;
};

void pl_pulse_beat(pl_pulse_t *pulse, uint64_t put, uint64_t ended, int64_t at)
{
    atomic_store(&pulse->put, put);
    atomic_store(&pulse->ended, ended);
    atomic_store(&pulse->at, at);
}

int64_t pl_pulse_last(const pl_pulse_t *pulse, uint64_t *put, uint64_t *ended)
{
    *put = atomic_load(&pulse->put);
    *ended = atomic_load(&pulse->ended);
    return atomic_load(&pulse->at);
}

/* A job with what its options are bound to. */
typedef struct bound_job {
    pl_job_t job;
    pl_trainer_options_t trainer;
    pl_data_options_t data;
    pl_module_options_t module;
    pl_pulse_t pulse;
    pl_binding_t *trainer_binding, *data_binding, *module_binding;  /* own the texts */
} bound_job_t;

static void job_release(pl_object_t *object)
{
    bound_job_t *bound = (bound_job_t *)object;
    pl_options_free(bound->job.options);
    pl_binding_free(bound->trainer_binding);
    pl_binding_free(bound->data_binding);
    pl_binding_free(bound->module_binding);
    pl_free(bound->job.checkpoint);
    pl_free(bound->job.resume);
    pl_free(bound->job.again);
    pl_free(bound->job.rollback);
    pl_free(bound->job.prompt);
    pl_free(bound->job.manual_data_info);
    pl_object_unref(bound->job.manual_signature);
    pl_text_free(bound->job.host);
    if (bound->job.key)
        explicit_bzero(bound->job.key, PL_KEY_BYTES);
    pl_free(bound->job.key);
    pl_free(bound);
}

pl_job_t *pl_job_new(const pl_options_t *options, pl_stage_t stage, pl_error_t *err)
{
    bound_job_t *bound = object_make(sizeof *bound, job_release, err);
    if (!bound)
        return NULL;
    pl_job_t *job = &bound->job;
    job->stage = stage;
    job->trainer = &bound->trainer;
    job->data = &bound->data;
    job->module = &bound->module;
    job->pulse = &bound->pulse;
    job->options = pl_options_clone(options, err);
    if (job->options
        && pl_options_trainer(options, &bound->trainer, &bound->trainer_binding, err)
               == PL_OK
        && pl_options_general(options, "data", pl_data_table, &bound->data,
                              &bound->data_binding, err)
               == PL_OK
        && pl_options_general(options, "module", pl_module_table, &bound->module,
                              &bound->module_binding, err)
               == PL_OK) {
        pl_trainer_expand(&bound->trainer, &bound->data);
        return job;
    }
    pl_object_unref(job);
    return NULL;
}

/* Copies a text, or NULL; false: out of memory. */
static bool text_copy(char **to, const char *from)
{
    *to = from ? pl_strdup(from) : NULL;
    return !from || *to;
}

bool pl_job_is_training(const pl_job_t *job)
{
    return job->stage == PL_TRAIN && !job->tuning.num_training && !job->rollback;
}

pl_job_t *pl_job_again(const pl_job_t *job, const char *run_dir, int devices, int nodes,
                       pl_error_t *err)
{
    char text[16];
    pl_options_t *options = pl_options_clone(job->options, err);
    pl_job_t *copy = NULL;
    const pl_span_t *given = &job->trainer->devices;
    const bool same = given->min == given->max
                      && (given->max ? given->max : 1) == devices;
    int code = options ? PL_OK : err->code;
    snprintf(text, sizeof text, "%d", devices);
    if (code == PL_OK && !same)
        code = pl_options_set(options, "trainer.devices", text, err);
    snprintf(text, sizeof text, "%d", nodes);
    if (code == PL_OK && nodes > 1)
        code = pl_options_set(options, "trainer.num_nodes", text, err);
    if (code == PL_OK)
        copy = pl_job_new(options, job->stage, err);
    pl_options_free(options);
    if (!copy)
        return NULL;
    copy->tuning = job->tuning;
    copy->resumes = job->resumes;
    copy->tokens = job->tokens;
    copy->temperature = job->temperature;
    copy->top_k = job->top_k;
    copy->no_cache = job->no_cache;
    copy->manual_signature = pl_object_ref(job->manual_signature);
    copy->enable_checkpointing = job->enable_checkpointing;
    if (text_copy(&copy->manual_data_info, job->manual_data_info)
        && text_copy(&copy->checkpoint, job->checkpoint)
        && text_copy(&copy->resume, job->resume)
        && text_copy(&copy->rollback, job->rollback)
        && text_copy(&copy->prompt, job->prompt)
        && text_copy(&copy->again,
                     run_dir && pl_job_is_training(job) ? run_dir : job->again))
        return copy;
    pl_object_unref(copy);
    pl_no_memory(err);
    return NULL;
}

static void outcome_release(pl_object_t *object)
{
    pl_outcome_t *outcome = (pl_outcome_t *)object;
    pl_free(outcome->metrics);
    pl_free(outcome->run_dir);
    pl_free(outcome->callbacks);
    pl_free(outcome->best);
    pl_free(outcome->text);
    pl_free(outcome->rollback);
    pl_object_unref(outcome->weights);
    pl_object_unref(outcome->outputs);
    pl_free(outcome);
}

pl_outcome_t *pl_outcome_new(pl_error_t *err)
{
    return object_make(sizeof(pl_outcome_t), outcome_release, err);
}

pl_run_status_t pl_outcome_status(const pl_outcome_t *outcome)
{
    return outcome->error.code != PL_OK ? PL_RUN_STATUS_FAILED
           : outcome->stopped           ? PL_RUN_STATUS_STOPPED
                                        : PL_RUN_STATUS_OK;
}

pl_batch_signature_t *pl_batch_signature_new(pl_error_t *err)
{
    return object_make(sizeof(pl_batch_signature_t), NULL, err);
}

static void dataset_release(pl_object_t *object)
{
    pl_dataset_t *dataset = (pl_dataset_t *)object;
    const pl_dataset_ops_t *ops = dataset->component.ops;
    if (dataset->opened && ops->close)
        ops->close(dataset->component.self);
    pl_text_free(dataset->info.data_info);
    pl_free(dataset->length);
    pl_free(dataset->target);
    pl_free(dataset->data_info);
    pl_instance_release(&dataset->component);
    pl_free(dataset);
}

pl_dataset_t *pl_dataset_new(pl_instance_t *component, const pl_data_request_t *request,
                             pl_error_t *err)
{
    char *data_info = request->data_info ? pl_strdup(request->data_info) : NULL;
    pl_dataset_t *dataset = NULL;
    if (request->data_info && !data_info)
        pl_no_memory(err);
    else
        dataset = object_make(sizeof *dataset, dataset_release, err);
    if (dataset) {
        dataset->component = *component;
        dataset->request = *request;
        dataset->request.data_info = dataset->data_info = data_info;
    } else {
        pl_instance_release(component);
        pl_free(data_info);
    }
    *component = (pl_instance_t){0};
    return dataset;
}

/* Bytes of an element in memory. */
size_t pl_element_bytes(pl_dtype_t dtype)
{
    return dtype == PL_F64 ? sizeof(double) : sizeof(float);
}

static int tensor_fill(pl_output_t *tensor, const char *name, pl_shape_t shape,
                       pl_dtype_t dtype, const void *data, pl_error_t *err)
{
    int64_t elements = pl_elements(shape);
    const size_t width = pl_element_bytes(dtype);
    void *copy = elements < 0 ? NULL : pl_alloc_array((size_t)elements, width);
    if (!copy)
        return pl_no_memory(err);
    if (data)
        memcpy(copy, data, (size_t)elements * width);
    *tensor = (pl_output_t){.shape = shape, .dtype = dtype, .data = copy};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    return PL_OK;
}

static void outputs_release(pl_object_t *object)
{
    pl_outputs_t *outputs = (pl_outputs_t *)object;
    for (int k = 0; k < outputs->count; k++)
        pl_free(outputs->output[k].data);
    pl_free(outputs);
}

pl_outputs_t *pl_outputs_new(pl_error_t *err)
{
    return object_make(sizeof(pl_outputs_t), outputs_release, err);
}

int pl_outputs_add(pl_outputs_t *outputs, const char *name, pl_shape_t shape,
                   pl_error_t *err)
{
    if (outputs->count == PL_FIELDS)
        return pl_fail(err, PL_EBUSY, "more than %d outputs; leave out \"%s\"", PL_FIELDS,
                       name);
    int code = tensor_fill(&outputs->output[outputs->count], name, shape, PL_F32, NULL,
                           err);
    if (code == PL_OK)
        outputs->count++;
    return code;
}

static void floats_release(pl_object_t *object)
{
    pl_floats_t *floats = (pl_floats_t *)object;
    pl_free(floats->memory);
    pl_free(floats);
}

pl_floats_t *pl_floats_new(pl_dtype_t dtype, size_t count, pl_error_t *err)
{
    pl_floats_t *floats = object_make(sizeof *floats, floats_release, err);
    void *data = NULL;
    if (!floats)
        return NULL;
    floats->count = count;
    floats->dtype = dtype;
    if (count <= SIZE_MAX / pl_element_bytes(dtype))
        floats->memory = pl_alloc_large(count * pl_element_bytes(dtype), &data);
    floats->data = data;
    if (data)
        return floats;
    pl_fail(err, PL_ENOMEM, "out of memory: %zu values of %zu bytes", count,
            pl_element_bytes(dtype));
    pl_object_unref(floats);
    return NULL;
}

static void pages_release(pl_object_t *object)
{
    pl_pages_t *pages = (pl_pages_t *)object;
    pl_free(pages->memory);
    pl_free(pages);
}

pl_pages_t *pl_pages_new(size_t bytes, pl_error_t *err)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    pl_pages_t *pages = object_make(sizeof *pages, pages_release, err);
    if (!pages)
        return NULL;
    pages->bytes = (bytes + page - 1) / page * page;
    pages->memory = pl_alloc(pages->bytes + page);
    if (!pages->memory) {
        pl_object_unref(pages);
        pl_no_memory(err);
        return NULL;
    }
    pages->data = (char *)pages->memory + (page - (uintptr_t)pages->memory % page) % page;
    return pages;
}

void pl_floats_fill(pl_floats_t *floats, int64_t offset, const pl_output_t *from)
{
    const int64_t count = pl_elements(from->shape);
    const bool wide = floats->dtype == PL_F64;
    if (wide == (from->dtype == PL_F64)) {
        memcpy(wide ? (void *)(floats->wide + offset) : floats->data + offset, from->data,
               (size_t)count * pl_element_bytes(floats->dtype));
        return;
    }
    for (int64_t i = 0; i < count; i++)
        if (wide)
            floats->wide[offset + i] = from->data[i];
        else
            floats->data[offset + i] = (float)from->wide[i];
}

static void weights_release(pl_object_t *object)
{
    pl_weights_t *weights = (pl_weights_t *)object;
    for (int k = 0; k < weights->count; k++)
        if (!weights->tensor[k].borrowed)
            pl_free(weights->tensor[k].data);
    for (int k = 0; k < PL_REGIONS; k++)
        pl_object_unref(weights->block[k]);
    pl_free(weights->state);
    pl_free(weights->tensor);
    pl_free(weights->module);
    pl_free(weights->data_info);
    pl_free(weights);
}

pl_weights_t *pl_weights_new(pl_error_t *err)
{
    return object_make(sizeof(pl_weights_t), weights_release, err);
}

int pl_weights_add(pl_weights_t *weights, const char *name, pl_shape_t shape,
                   pl_dtype_t dtype, const void *data, pl_error_t *err)
{
    if (PL_GROW(weights->tensor, weights->count, weights->capacity) != PL_OK)
        return pl_no_memory(err);
    int code = tensor_fill(&weights->tensor[weights->count], name, shape, dtype, data,
                           err);
    if (code == PL_OK)
        weights->count++;
    return code;
}

int pl_weights_borrow(pl_weights_t *weights, pl_region_t region, const char *name,
                      pl_shape_t shape, int64_t offset, pl_error_t *err)
{
    if (PL_GROW(weights->tensor, weights->count, weights->capacity) != PL_OK)
        return pl_no_memory(err);
    pl_output_t *tensor = &weights->tensor[weights->count++];
    const pl_floats_t *block = weights->block[region];
    *tensor = (pl_output_t){.shape = shape,
                            .dtype = block->dtype,
                            .region = region,
                            .borrowed = true};
    if (block->dtype == PL_F64)
        tensor->wide = block->wide + offset;
    else
        tensor->data = block->data + offset;
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    return PL_OK;
}

const pl_output_t *pl_weights_find(const pl_weights_t *weights, pl_region_t region,
                                   const char *name, int near)
{
    for (int i = 0; i < weights->count; i++) {
        const pl_output_t *tensor = &weights->tensor[(near + i) % weights->count];
        /* Only the module knows whether a tensor of a file is a parameter or state. */
        const bool same = tensor->region == region
                          || (tensor->region < PL_REGION_SLOT0
                              && region < PL_REGION_SLOT0);
        if (same && !strcmp(tensor->name, name))
            return tensor;
    }
    return NULL;
}

bool pl_tensors_view(const pl_output_t *tensor, int count, pl_result_tensor_t *view)
{
    bool whole = true;
    for (int k = 0; k < count; k++) {
        view[k] = (pl_result_tensor_t){tensor[k].name, tensor[k].shape, tensor[k].data};
        if (tensor[k].dtype != PL_F64)
            continue;
        const int64_t elements = pl_elements(tensor[k].shape);
        float *data = pl_alloc_array((size_t)elements, sizeof *data);
        for (int64_t i = 0; i < elements && data; i++)
            data[i] = (float)tensor[k].wide[i];
        view[k].data = data;
        whole = whole && data;
    }
    return whole;
}

void pl_tensors_release(const pl_output_t *tensor, int count,
                        const pl_result_tensor_t *view)
{
    for (int k = 0; k < count; k++)
        if (tensor[k].dtype == PL_F64)
            pl_free((void *)view[k].data);
}

static void holder_release(pl_object_t *object)
{
    pl_graph_free(((pl_graph_holder_t *)object)->graph);
    pl_free(object);
}

pl_graph_holder_t *pl_graph_hold(pl_graph_t **graph_p, pl_error_t *err)
{
    pl_graph_holder_t *holder = object_make(sizeof *holder, holder_release, err);
    if (holder)
        holder->graph = *graph_p;
    else
        pl_graph_free(*graph_p);
    *graph_p = NULL;
    return holder;
}

/* ---- objects in flight ---- */

/* A slot's number is generation << 32 | index + 1: an old number does not find a new
 * object. */
typedef struct slot {
    pl_object_t *object;                                    /* NULL: free */
    uint32_t generation;
    int next_free;
} slot_t;

static pthread_mutex_t flight_lock = PTHREAD_MUTEX_INITIALIZER;
static slot_t *slots;
static int slot_count, slot_capacity, first_free = -1, in_flight;

static slot_t *slot_of(uint64_t number)
{
    uint32_t index = (uint32_t)number - 1;
    if (!number || index >= (uint32_t)slot_count)
        return NULL;
    slot_t *slot = &slots[index];
    return slot->object && slot->generation == (uint32_t)(number >> 32) ? slot : NULL;
}

uint64_t pl_flight_enter(pl_object_t *object, pl_error_t *err)
{
    if (!object)
        return 0;
    uint64_t number = 0;
    pthread_mutex_lock(&flight_lock);
    int index = first_free;
    if (index >= 0)
        first_free = slots[index].next_free;
    else if (PL_GROW(slots, slot_count, slot_capacity) == PL_OK) {
        index = slot_count++;
        slots[index] = (slot_t){0};
    }
    if (index >= 0) {
        slots[index].object = pl_object_ref(object);
        slots[index].generation++;
        number = (uint64_t)slots[index].generation << 32 | (uint64_t)(index + 1);
        in_flight++;
    }
    pthread_mutex_unlock(&flight_lock);
    if (!number)
        pl_no_memory(err);
    return number;
}

pl_object_t *pl_flight_find(uint64_t number)
{
    pthread_mutex_lock(&flight_lock);
    slot_t *slot = slot_of(number);
    pl_object_t *object = slot ? slot->object : NULL;
    pthread_mutex_unlock(&flight_lock);
    return object;
}

void pl_flight_leave(uint64_t number)
{
    pl_object_t *object = NULL;
    pthread_mutex_lock(&flight_lock);
    slot_t *slot = slot_of(number);
    if (slot) {
        object = slot->object;
        slot->object = NULL;
        slot->next_free = first_free;
        first_free = (int)(slot - slots);
        in_flight--;
    }
    pthread_mutex_unlock(&flight_lock);
    pl_object_unref(object);
}

int pl_flight_count(void)
{
    pthread_mutex_lock(&flight_lock);
    int count = in_flight;
    pthread_mutex_unlock(&flight_lock);
    return count;
}
