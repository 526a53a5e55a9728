/* memory.c - data in the memory of the program
 *
 * A run file cannot contain a pointer, so a program first registers its data under a
 * name. A source lives until its name is removed and no data set has it open:
 * replacing one during training is safe. */
#include <pthread.h>
#include <string.h>

#include "actors/connectors/datasets/datasets.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/array.h"
#include "tensor/graph.h"

typedef struct memory_source {
    struct memory_source *next;
    char *name, *data_info;
    pl_memory_data_t data;
    pl_arrays_t arrays;                    /* for pl_arrays_read()  [the user's read] */
    int users;                             /* data sets that have it open, and the list */
} memory_source_t;

typedef struct memory_dataset {
    const char *name;
    memory_source_t *source;
} memory_dataset_t;

static const pl_option_t memory_options[] = {
    {"source", PL_OPTION_TEXT, offsetof(memory_dataset_t, name), NULL, NULL,
     "name given to pl_memory_data()"},
    PL_OPTIONS_END,
};

static pthread_mutex_t sources_lock = PTHREAD_MUTEX_INITIALIZER;
static memory_source_t *sources;

static void source_free(memory_source_t *source)
{
    pl_free(source->name);
    pl_free(source->data_info);
    pl_free(source);
}

/* Called with the lock held. */
static void source_unref(memory_source_t *source)
{
    if (--source->users == 0)
        source_free(source);
}

/* Called with the lock held: the link to the source of that name, or the list's end. */
static memory_source_t **source_find(const char *name)
{
    memory_source_t **at = &sources;
    while (*at && strcmp((*at)->name, name))
        at = &(*at)->next;
    return at;
}

static memory_source_t *source_new(const char *name, const pl_memory_data_t *data,
                                   pl_error_t *err)
{
    memory_source_t *source = pl_alloc(sizeof *source);
    if (source) {
        source->name = pl_strdup(name);
        source->data_info = data->data_info ? pl_strdup(data->data_info) : NULL;
    }
    if (!source || !source->name || (data->data_info && !source->data_info)) {
        if (source)
            source_free(source);
        pl_no_memory(err);
        return NULL;
    }
    source->data = *data;
    source->data.data_info = source->data_info;
    source->users = 1;
    return source;
}

/* Replaces the source of that name  [NULL: removes it]. */
static void source_replace(const char *name, memory_source_t *source)
{
    pthread_mutex_lock(&sources_lock);
    memory_source_t **at = source_find(name), *old = *at;
    if (old) {
        *at = old->next;
        source_unref(old);
    }
    if (source) {
        source->next = sources;
        sources = source;
    }
    pthread_mutex_unlock(&sources_lock);
}

static bool varies(const pl_field_t *field)
{
    return field->shape.rank > 0 && field->shape.dim[0] == PL_VARIES;
}

/* The bytes of a sample, or of one step; false: the shape is impossible. */
static bool field_bytes(const pl_field_t *field, size_t *bytes)
{
    pl_shape_t shape = field->shape;
    int64_t count;
    if (shape.rank < 0 || shape.rank > PL_DIMS - 1)
        return false;
    if (varies(field))
        shape.dim[0] = 1;
    return pl_array_size(field->dtype, &shape, &count, bytes);
}

static int source_check(const char *name, const pl_memory_data_t *data, pl_error_t *err)
{
    if (data->samples < 1)
        return pl_fail(err, PL_EINVAL, "memory data '%s': %lld samples; 1 is the least",
                       name, (long long)data->samples);
    if (data->field_count < 1 || data->field_count > PL_FIELDS)
        return pl_fail(err, PL_EINVAL,
                       "memory data '%s': %d fields; 1 to %d are possible", name,
                       data->field_count, PL_FIELDS);
    if (!data->read)
        return pl_fail(err, PL_EINVAL, "memory data '%s': read is missing", name);
    for (int i = 0; i < data->field_count; i++) {
        const pl_field_t *field = &data->field[i];
        size_t bytes;
        if (!field->name[0] || !memchr(field->name, '\0', sizeof field->name))
            return pl_fail(err, PL_EINVAL,
                           "memory data '%s': field %d needs a name of at most %zu bytes",
                           name, i, sizeof field->name - 1);
        if (varies(field) && !data->length)
            return pl_fail(err, PL_EINVAL,
                           "memory data '%s': field '%s' varies, so the source needs "
                           "the lengths of the samples",
                           name, field->name);
        if (!field_bytes(field, &bytes) || bytes == 0)
            return pl_fail(
                err, PL_EINVAL,
                "memory data '%s': field '%s' needs a shape of at most %d axes, none of "
                "them 0",
                name, field->name, PL_DIMS - 1);
    }
    return PL_OK;
}

int pl_memory_data(const char *name, const pl_memory_data_t *data, pl_error_t *err)
{
    if (pl_require(name, "a name", err) != PL_OK)
        return PL_EINVAL;
    if (!data) {
        source_replace(name, NULL);
        return PL_OK;
    }
    int code = source_check(name, data, err);
    if (code)
        return code;
    memory_source_t *source = source_new(name, data, err);
    if (!source)
        return PL_ENOMEM;
    source_replace(name, source);
    return PL_OK;
}

static int64_t arrays_length(void *user, int64_t index)
{
    const pl_arrays_t *arrays = user;
    return arrays->offset[index + 1] - arrays->offset[index];
}

int pl_memory_arrays(const char *name, const pl_arrays_t *arrays, pl_error_t *err)
{
    if (pl_require(name, "a name", err) != PL_OK
        || pl_require(arrays, "arrays", err) != PL_OK)
        return PL_EINVAL;
    pl_memory_data_t data = {.samples = arrays->samples,
                             .field_count = arrays->field_count,
                             .data_info = arrays->data_info,
                             .read = pl_arrays_read,
                             .length = arrays->offset ? arrays_length : NULL};
    memcpy(data.field, arrays->field, sizeof data.field);
    memcpy(data.padding, arrays->padding, sizeof data.padding);
    int code = source_check(name, &data, err);
    for (int i = 0; i < data.field_count && !code; i++)
        if (!arrays->data[i])
            code = pl_fail(err, PL_EINVAL, "memory data '%s': field '%s' has no array",
                           name, arrays->field[i].name);
    if (code)
        return code;
    memory_source_t *source = source_new(name, &data, err);
    if (!source)
        return PL_ENOMEM;
    source->arrays = *arrays;
    source->arrays.data_info = source->data_info;
    source->data.user = &source->arrays;
    source_replace(name, source);
    return PL_OK;
}

/* All samples have at most the requested steps. */
static bool steps_fit(const pl_arrays_t *arrays, const pl_read_request_t *request)
{
    for (int i = 0; i < request->count; i++) {
        const int64_t *at = &arrays->offset[request->index[i]];
        if (at[0] < 0 || at[1] < at[0] || at[1] - at[0] > request->length)
            return false;
    }
    return true;
}

/* The program may call pl_arrays_read() with arrays and requests of its own. */
static int arrays_check(const pl_arrays_t *arrays, const pl_read_request_t *request,
                        void *const field[], pl_error_t *err)
{
    if (pl_require(arrays, "arrays", err) != PL_OK
        || pl_require(request, "a request", err) != PL_OK
        || pl_require(field, "a place for each field", err) != PL_OK)
        return PL_EINVAL;
    if (request->count < 0 || (request->count && !request->index))
        return pl_fail(err, PL_EINVAL, "arrays: %d samples are requested, %s",
                       request->count,
                       request->index ? "but the number must be 0 or more"
                                      : "without their indices");
    if (arrays->field_count < 1 || arrays->field_count > PL_FIELDS)
        return pl_fail(err, PL_EINVAL, "arrays: %d fields; 1 to %d are possible",
                       arrays->field_count, PL_FIELDS);
    for (int i = 0; i < request->count; i++)
        if (request->index[i] < 0 || request->index[i] >= arrays->samples)
            return pl_fail(err, PL_EINVAL, "arrays: there is no sample %lld of %lld",
                           (long long)request->index[i], (long long)arrays->samples);
    int code = PL_OK;
    for (int k = 0; k < arrays->field_count && code == PL_OK; k++) {
        size_t bytes;
        if (!arrays->data[k] || !field[k])
            code = pl_fail(err, PL_EINVAL,
                           "arrays: field %d needs an array, and a place to be read to",
                           k);
        else if (!field_bytes(&arrays->field[k], &bytes))
            code = pl_fail(err, PL_EINVAL,
                           "arrays: field %d needs a type, and a shape of at most %d "
                           "axes that memory can have",
                           k, PL_DIMS - 1);
        else if (varies(&arrays->field[k])
                 && (!arrays->offset || !steps_fit(arrays, request)))
            code = pl_fail(err, PL_EINVAL,
                           "arrays: field %d varies: it needs offsets, and samples of at "
                           "most the %lld requested steps",
                           k, (long long)request->length);
    }
    return code;
}

int pl_arrays_read(void *user, const pl_read_request_t *request, void *const field[],
                   pl_error_t *err)
{
    const pl_arrays_t *arrays = user;
    int code = arrays_check(arrays, request, field, err);
    if (code)
        return code;
    for (int k = 0; k < arrays->field_count; k++) {
        const bool of_steps = varies(&arrays->field[k]);
        const char *in = arrays->data[k];
        char *out = field[k];
        size_t bytes = 0;
        field_bytes(&arrays->field[k], &bytes);
        for (int i = 0; i < request->count; i++) {
            int64_t at = request->index[i], steps = 1, apart = 1;
            if (of_steps) {
                steps = arrays->offset[at + 1] - arrays->offset[at];
                at = arrays->offset[at];
                apart = request->length;
            }
            memcpy(out + (size_t)i * (size_t)apart * bytes, in + (size_t)at * bytes,
                   (size_t)steps * bytes);
        }
    }
    return PL_OK;
}

static int arrays_values(const void *user, int64_t first, size_t count, float *value,
                         pl_error_t *err)
{
    const float *const *y = user;
    (void)err;
    memcpy(value, *y + first, count * sizeof *value);
    return PL_OK;
}

/* Arrays can be read twice, so the scale of floats [samples] or [samples, targets] of "y"
 * is found; a read function may belong to a stream.  Replaces *data_info_p  [none]. */
static int scale_add(const memory_source_t *source, const pl_data_request_t *request,
                     char **data_info_p, pl_error_t *err)
{
    const pl_arrays_t *arrays = &source->arrays;
    for (int k = 0; k < arrays->field_count; k++) {
        const pl_field_t *field = &arrays->field[k];
        if (strcmp(field->name, "y") || field->dtype != PL_F32 || varies(field)
            || field->shape.rank > 1)
            continue;
        const pl_values_t values = {arrays->samples, pl_elements(field->shape),
                                    arrays_values, &arrays->data[k]};
        if (!*data_info_p && !(*data_info_p = pl_text("{}")))
            return pl_no_memory(err);
        return pl_dataset_scale_add(request, &values, data_info_p, err);
    }
    return PL_OK;
}

static int memory_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                       pl_error_t *err)
{
    memory_dataset_t *memory = self;
    pthread_mutex_lock(&sources_lock);
    memory_source_t *source = *source_find(memory->name);
    if (source)
        source->users++;
    pthread_mutex_unlock(&sources_lock);
    if (!source)
        return pl_fail(
            err, PL_ENOTFOUND,
            "no memory data '%s' in this process: call pl_memory_data() first, in each "
            "process of the run",
            memory->name);
    memory->source = source;
    pl_data_info_t found = {.samples = source->data.samples,
                            .field_count = source->data.field_count};
    memcpy(found.field, source->data.field, sizeof found.field);
    memcpy(found.padding, source->data.padding, sizeof found.padding);
    found.data_info = source->data_info ? pl_text("%s", source->data_info) : NULL;
    if (source->data_info && !found.data_info)
        return pl_no_memory(err);
    if (scale_add(source, request, &found.data_info, err) != PL_OK) {
        pl_text_free(found.data_info);
        return err->code;
    }
    *info = found;
    return PL_OK;
}

static int memory_read(const void *self, const pl_read_request_t *request,
                       void *const field[], pl_error_t *err)
{
    const memory_dataset_t *memory = self;
    const pl_memory_data_t *data = &memory->source->data;
    pl_error_t own = {0};
    if (!data->read(data->user, request, field, &own))
        return PL_OK;
    return pl_fail(err, PL_EUSER, "memory data '%s': %s", memory->name,
                   own.text[0] ? own.text : "its read function failed");
}

static int64_t memory_length(const void *self, int64_t index)
{
    const pl_memory_data_t *data = &((const memory_dataset_t *)self)->source->data;
    return data->length(data->user, index);
}

static void memory_close(void *self)
{
    memory_dataset_t *memory = self;
    pthread_mutex_lock(&sources_lock);
    if (memory->source)
        source_unref(memory->source);
    pthread_mutex_unlock(&sources_lock);
    memory->source = NULL;
}

const pl_dataset_ops_t pl_memory_dataset = {
    .name = "memory",
    .help = "data that the program registered with pl_memory_data()",
    .size = sizeof(memory_dataset_t),
    .options = memory_options,
    .open = memory_open,
    .read = memory_read,
    .close = memory_close,
    .length = memory_length,
};
