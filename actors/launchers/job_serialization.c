/* job_serialization.c - jobs and outcomes as bytes, for another process
 *
 * A JSON object with its length before it, then the elements of the tensors that it
 * lists, each tensor at a multiple of 16. */
#include "actors/launchers/forwarding.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/options.h"
#include "base/plugin.h"
#include "base/utf8.h"

typedef struct job_header {
    uint64_t magic, length;                                 /* of the JSON behind it */
} job_header_t;

static const uint64_t MAGIC = UINT64_C(0x316c637261506c50);

static size_t aligned(size_t size)
{
    return (size + 15) & ~(size_t)15;
}

/* ---- JSON, and the bytes after it ---- */

static pl_blob_t *blob_write(const json_t *object, size_t more, size_t *at,
                             pl_error_t *err)
{
    char *text = object ? pl_json_write(object, PL_JSON_COMPACT) : NULL;
    if (!text) {
        pl_no_memory(err);
        return NULL;
    }
    const job_header_t head = {MAGIC, strlen(text)};
    *at = aligned(sizeof head + (size_t)head.length);
    pl_blob_t *blob = pl_blob_new(*at + more, err);
    if (blob) {
        memcpy(blob->data, &head, sizeof head);
        memcpy(blob->data + sizeof head, text, (size_t)head.length);
    }
    pl_text_free(text);
    return blob;
}

static json_t *blob_read(const pl_blob_t *blob, size_t *at, pl_error_t *err)
{
    job_header_t head = {0};
    if (blob->size >= sizeof head)
        memcpy(&head, blob->data, sizeof head);
    if (head.magic != MAGIC || head.length > blob->size - sizeof head) {
        pl_fail(err, PL_EPROTOCOL, "%zu bytes are not a serialized job or result",
                blob->size);
        return NULL;
    }
    *at = aligned(sizeof head + (size_t)head.length);
    return pl_json_read((const char *)blob->data + sizeof head, (size_t)head.length,
                        "serialized object", err);
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* ---- Texts ---- */

/* JSON is UTF-8, but a path need not be: then its bytes are the code points of a text
 * in a list. */
static json_t *text_pack(const char *text)
{
    char character[4];
    const size_t length = text ? strlen(text) : 0;
    if (!text)
        return json_null();
    if (pl_utf8_ok(text, length))
        return json_string(text);
    char *wide = pl_alloc(2 * length);
    size_t at = 0;
    for (size_t k = 0; wide && k < length; k++) {
        int bytes = pl_utf8_put((unsigned char)text[k], character);
        memcpy(wide + at, character, (size_t)bytes);
        at += (size_t)bytes;
    }
    json_t *list = wide ? json_pack("[s%]", wide, at) : NULL;
    pl_free(wide);
    return list;
}

/* A copy of a text  [NULL: there is none]; false: out of memory. */
static bool text_unpack(char **text, const json_t *object, const char *key)
{
    const char *there = text_of(object, key);
    const json_t *list = json_object_get(object, key);
    const char *wide = json_string_value(json_array_get(list, 0));
    size_t left = wide ? strlen(wide) : 0, at = 0;
    *text = there ? pl_strdup(there) : wide ? pl_alloc(left + 1) : NULL;
    uint32_t byte;
    for (int bytes; *text && (bytes = pl_utf8_get(wide, left, &byte)); at++) {
        (*text)[at] = (char)byte;
        wide += bytes;
        left -= (size_t)bytes;
    }
    return *text || !(there || wide);
}

/* A text of a struct, up to a NULL key. */
typedef struct text_field {
    const char *key;
    size_t at;
} text_field_t;

static const text_field_t job_texts[] = {{"checkpoint", offsetof(pl_job_t, checkpoint)},
                                         {"resume", offsetof(pl_job_t, resume)},
                                         {"again", offsetof(pl_job_t, again)},
                                         {"rollback", offsetof(pl_job_t, rollback)},
                                         {"prompt", offsetof(pl_job_t, prompt)},
                                         {NULL, 0}},
                          outcome_texts[] = {{"metrics", offsetof(pl_outcome_t, metrics)},
                                             {"run_dir", offsetof(pl_outcome_t, run_dir)},
                                             {"callbacks",
                                              offsetof(pl_outcome_t, callbacks)},
                                             {"best", offsetof(pl_outcome_t, best)},
                                             {"text", offsetof(pl_outcome_t, text)},
                                             {"rollback",
                                              offsetof(pl_outcome_t, rollback)},
                                             {NULL, 0}},
                          weights_texts[] = {{"module", offsetof(pl_weights_t, module)},
                                             {"data_info",
                                              offsetof(pl_weights_t, data_info)},
                                             {"state", offsetof(pl_weights_t, state)},
                                             {NULL, 0}};

static json_t *texts_pack(const text_field_t *field, const void *from)
{
    json_t *texts = json_object();
    for (; texts && field->key; field++) {
        const char *text = *(char *const *)(const void *)((const char *)from + field->at);
        if (json_object_set_new(texts, field->key, text_pack(text)) != 0) {
            json_decref(texts);
            return NULL;
        }
    }
    return texts;
}

static int texts_unpack(const text_field_t *field, void *to, const json_t *texts,
                        pl_error_t *err)
{
    for (; field->key; field++)
        if (!text_unpack((char **)(void *)((char *)to + field->at), texts, field->key))
            return pl_no_memory(err);
    return PL_OK;
}

/* ---- Jobs ---- */

pl_blob_t *pl_job_pack(const pl_job_t *job, pl_error_t *err)
{
    size_t at;
    const pl_tuning_t *t = &job->tuning;
    char *run = pl_options_text(job->options, err);
    if (!run)
        return NULL;
    json_t *object =
        json_pack("{s:s,s:o,s:o,s:O,s:o,s:i,s:o,s:b,s:b,s:I,s:f,s:I,"
                  "s:b,s:{s:f,s:f,s:I,s:f,s:s?,s:I,s:I,s:I,s:I}}",
                  "run", run, "file", text_pack(job->options->name), "text",
                  text_pack(job->options->text), "set", job->options->set, "plugins",
                  pl_plugins_loaded(), "stage", (int)job->stage, "texts",
                  texts_pack(job_texts, job), "compiles", (int)job->compiles, "resumes",
                  (int)job->resumes, "tokens", (json_int_t)job->tokens, "temperature",
                  job->temperature, "top_k", (json_int_t)job->top_k, "no_cache",
                  (int)job->no_cache, "tuning", "min_lr", t->min_lr, "max_lr", t->max_lr,
                  "num_training", (json_int_t)t->num_training, "early_stop_threshold",
                  t->early_stop_threshold, "batch_size", t->batch_size, "steps_per_trial",
                  (json_int_t)t->steps_per_trial, "init_val", (json_int_t)t->init_val,
                  "max_trials", (json_int_t)t->max_trials, "max_memory",
                  (json_int_t)t->max_memory);
    pl_blob_t *blob = blob_write(object, 0, &at, err);
    json_decref(object);
    pl_text_free(run);
    return blob;
}

static int64_t integer_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Errors of a rank name places of the run file, as those of the launcher do. */
static pl_options_t *options_unpack(const json_t *fields, pl_error_t *err)
{
    pl_options_t *options = pl_options_parse(text_of(fields, "run"), "run", err);
    char *name = NULL, *text = NULL;
    json_t *set = options ? pl_json_copy(json_object_get(fields, "set")) : NULL;
    if (options
        && (!set || !text_unpack(&name, fields, "file")
            || !text_unpack(&text, fields, "text"))) {
        json_decref(set);
        pl_free(name);
        pl_options_free(options);
        pl_no_memory(err);
        return NULL;
    }
    if (!options)
        return NULL;
    json_decref(options->set);
    pl_free(options->name);
    pl_free(options->text);
    options->set = set;
    options->name = name;
    options->text = text;
    options->length = text ? strlen(text) : 0;
    return options;
}

/* The names of a search's modes must live as long as the process. */
pl_job_t *pl_job_unpack(const pl_blob_t *blob, pl_error_t *err)
{
    size_t at;
    json_t *fields = blob_read(blob, &at, err);
    const json_t *tuning = json_object_get(fields, "tuning");
    const char *mode = text_of(tuning, "batch_size");
    const int64_t stage = integer_of(fields, "stage");
    const bool is_job = text_of(fields, "run") && stage >= PL_TRAIN
                        && stage <= PL_PREDICT;
    pl_options_t *options = NULL;
    pl_job_t *job = NULL;
    if (fields && !is_job)
        pl_fail(err, PL_EPROTOCOL, "the serialized job has no run");
    else if (fields && pl_plugins_load(json_object_get(fields, "plugins"), err) == PL_OK)
        options = options_unpack(fields, err);
    if (options && pl_options_check(options, err) == PL_OK)
        job = pl_job_new(options, (pl_stage_t)stage, err);
    pl_options_free(options);
    if (job) {
        job->tuning =
            (pl_tuning_t){.min_lr = number_of(tuning, "min_lr"),
                          .max_lr = number_of(tuning, "max_lr"),
                          .num_training = integer_of(tuning, "num_training"),
                          .early_stop_threshold = number_of(tuning,
                                                            "early_stop_threshold"),
                          .batch_size = !mode                   ? NULL
                                        : strcmp(mode, "power") ? "binsearch"
                                                                : "power",
                          .steps_per_trial = integer_of(tuning, "steps_per_trial"),
                          .init_val = integer_of(tuning, "init_val"),
                          .max_trials = integer_of(tuning, "max_trials"),
                          .max_memory = integer_of(tuning, "max_memory")};
        job->compiles = json_is_true(json_object_get(fields, "compiles"));
        job->resumes = json_is_true(json_object_get(fields, "resumes"));
        job->tokens = integer_of(fields, "tokens");
        job->temperature = number_of(fields, "temperature");
        job->top_k = integer_of(fields, "top_k");
        job->no_cache = json_is_true(json_object_get(fields, "no_cache"));
        if (texts_unpack(job_texts, job, json_object_get(fields, "texts"), err)
            != PL_OK) {
            pl_object_unref(job);
            job = NULL;
        }
    }
    json_decref(fields);
    return job;
}

/* ---- Tensors ---- */

static size_t tensor_bytes(const pl_output_t *tensor)
{
    return (size_t)pl_elements(tensor->shape) * pl_element_bytes(tensor->dtype);
}

static json_t *tensors_list(const pl_output_t *tensor, int count, size_t *bytes)
{
    json_t *list = json_array();
    for (int k = 0; list && k < count; k++) {
        json_t *one =
            json_pack("{s:s,s:i,s:i,s:o}", "name", tensor[k].name, "dtype",
                      (int)tensor[k].dtype, "region", (int)tensor[k].region, "shape",
                      pl_json_integers(tensor[k].shape.dim, tensor[k].shape.rank));
        if (!one || json_array_append_new(list, one) != 0) {
            json_decref(list);
            return NULL;
        }
        *bytes += aligned(tensor_bytes(&tensor[k]));
    }
    return list;
}

static void tensors_copy(pl_blob_t *blob, size_t *at, const pl_output_t *tensor,
                         int count)
{
    for (int k = 0; k < count; k++) {
        memcpy(blob->data + *at, tensor[k].data, tensor_bytes(&tensor[k]));
        *at += aligned(tensor_bytes(&tensor[k]));
    }
}

/* A tensor of a list; its elements lie in the blob from *at on. */
static int tensor_read(const json_t *fields, const pl_blob_t *blob, size_t *at,
                       pl_output_t *tensor, pl_error_t *err)
{
    const char *name = text_of(fields, "name");
    const json_t *shape = json_object_get(fields, "shape");
    const int64_t dtype = integer_of(fields, "dtype"),
                  region = integer_of(fields, "region");
    const size_t left = *at < blob->size ? blob->size - *at : 0;
    bool fits = name && strlen(name) < sizeof tensor->name
                && json_array_size(shape) <= PL_DIMS && dtype >= 0 && dtype <= PL_F16
                && region >= 0 && region < PL_REGIONS;
    *tensor = (pl_output_t){.dtype = (pl_dtype_t)dtype, .region = (pl_region_t)region};
    int64_t elements = 1;
    for (size_t d = 0; fits && d < json_array_size(shape); d++) {
        json_int_t dim = json_integer_value(json_array_get(shape, d));
        fits = dim >= 0 && !__builtin_mul_overflow(elements, (int64_t)dim, &elements)
               && elements <= (int64_t)left;
        tensor->shape.dim[tensor->shape.rank++] = dim;
    }
    if (!fits || tensor_bytes(tensor) > left)
        return pl_fail(err, PL_EPROTOCOL,
                       "a tensor does not fit into the serialized result");
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->data = (float *)(void *)(blob->data + *at);
    *at += aligned(tensor_bytes(tensor));
    return PL_OK;
}

/* Reads all tensors of a list into weights or outputs. */
static int tensors_unpack(const json_t *list, const pl_blob_t *blob, size_t *at,
                          pl_weights_t *weights, pl_outputs_t *outputs, pl_error_t *err)
{
    size_t k;
    json_t *one;
    pl_output_t tensor;
    json_array_foreach(list, k, one) {
        int code = tensor_read(one, blob, at, &tensor, err);
        if (code == PL_OK && weights)
            code = pl_weights_add(weights, tensor.name, tensor.shape, tensor.dtype,
                                  tensor.data, err);
        else if (code == PL_OK)
            code = pl_outputs_add(outputs, tensor.name, tensor.shape, err);
        if (code != PL_OK)
            return code;
        if (weights)
            weights->tensor[weights->count - 1].region = tensor.region;
        else
            memcpy(outputs->output[outputs->count - 1].data, tensor.data,
                   (size_t)pl_elements(tensor.shape) * sizeof(float));
    }
    return PL_OK;
}

/* ---- Outcomes ---- */

pl_blob_t *pl_outcome_pack(const pl_outcome_t *o, pl_error_t *err)
{
    size_t bytes = 0, at;
    const pl_weights_t *w = o->weights;
    json_t *weights = w ? json_pack("{s:o,s:o}", "texts", texts_pack(weights_texts, w),
                                    "tensors", tensors_list(w->tensor, w->count, &bytes))
                        : json_null();
    json_t *outputs = o->outputs
                          ? tensors_list(o->outputs->output, o->outputs->count, &bytes)
                          : json_null();
    json_t *error = o->error.code != PL_OK
                        ? json_pack("{s:i,s:s,s:s}", "code", o->error.code, "where",
                                    o->error.where, "text", o->error.text)
                        : json_null();
    json_t *object =
        json_pack("{s:b,s:s,s:s,s:o,s:I,s:I,s:f,s:o,s:o,s:o}", "stopped", (int)o->stopped,
                  "stop_kind", pl_stop_kind_names[o->stop_kind], "reason", o->reason,
                  "error", error, "global_step", (json_int_t)o->global_step, "epoch",
                  (json_int_t)o->epoch, "seconds", o->seconds, "texts",
                  texts_pack(outcome_texts, o), "weights", weights, "outputs", outputs);
    pl_blob_t *blob = blob_write(object, bytes, &at, err);
    json_decref(object);
    if (blob && w)
        tensors_copy(blob, &at, w->tensor, w->count);
    if (blob && o->outputs)
        tensors_copy(blob, &at, o->outputs->output, o->outputs->count);
    return blob;
}

static int outcome_fill(pl_outcome_t *o, const json_t *fields, const pl_blob_t *blob,
                        size_t at, pl_error_t *err)
{
    const json_t *weights = json_object_get(fields, "weights"),
                 *outputs = json_object_get(fields, "outputs"),
                 *error = json_object_get(fields, "error");
    const char *reason = text_of(fields, "reason"), *where = text_of(error, "where"),
               *text = text_of(error, "text");
    const char *kind = text_of(fields, "stop_kind");
    const int stop_kind = pl_enum_find(pl_stop_kind_names, kind ? kind : "");
    o->stopped = json_is_true(json_object_get(fields, "stopped"));
    o->stop_kind = stop_kind < 0 ? PL_STOP_KIND_END : (pl_stop_kind_t)stop_kind;
    snprintf(o->reason, sizeof o->reason, "%s", reason ? reason : "");
    o->error.code = (int)integer_of(error, "code");
    snprintf(o->error.where, sizeof o->error.where, "%s", where ? where : "");
    snprintf(o->error.text, sizeof o->error.text, "%s", text ? text : "");
    o->global_step = (uint64_t)integer_of(fields, "global_step");
    o->epoch = (uint32_t)integer_of(fields, "epoch");
    o->seconds = number_of(fields, "seconds");
    int code = texts_unpack(outcome_texts, o, json_object_get(fields, "texts"), err);
    if (code == PL_OK && json_is_object(weights)) {
        o->weights = pl_weights_new(err);
        code = o->weights ? texts_unpack(weights_texts, o->weights,
                                         json_object_get(weights, "texts"), err)
                          : err->code;
    }
    if (code == PL_OK && o->weights)
        code = tensors_unpack(json_object_get(weights, "tensors"), blob, &at, o->weights,
                              NULL, err);
    if (code == PL_OK && json_is_array(outputs)) {
        o->outputs = pl_outputs_new(err);
        code = o->outputs ? tensors_unpack(outputs, blob, &at, NULL, o->outputs, err)
                          : err->code;
    }
    return code;
}

pl_outcome_t *pl_outcome_unpack(const pl_blob_t *blob, pl_error_t *err)
{
    size_t at;
    json_t *fields = blob_read(blob, &at, err);
    pl_outcome_t *outcome = fields ? pl_outcome_new(err) : NULL;
    if (outcome && outcome_fill(outcome, fields, blob, at, err) != PL_OK) {
        pl_object_unref(outcome);
        outcome = NULL;
    }
    json_decref(fields);
    return outcome;
}
