/* job_serialization.c - jobs and outcomes as bytes, for another process
 *
 * A JSON object with its length before it, then the elements of the tensors that it
 * lists, each tensor at a multiple of 16. */
#include "actors/launchers/job_serialization.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/options.h"
#include "base/plugin.h"
#include "base/utf8.h"

typedef struct head {
    uint64_t magic, length;                                 /* of the JSON behind it */
} head_t;

static const uint64_t MAGIC = UINT64_C(0x316c637261506c50);

static size_t aligned(size_t size)
{
    return (size + 15) & ~(size_t)15;
}

/* ---- JSON and what lies behind it ---- */

static pl_blob_t *blob_write(const json_t *object, size_t more, size_t *at,
                             pl_error_t *err)
{
    char *text = object ? pl_json_write(object, PL_JSON_COMPACT) : NULL;
    if (!text) {
        pl_no_memory(err);
        return NULL;
    }
    const head_t head = {MAGIC, strlen(text)};
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
    head_t head = {0};
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

/* A path need not be UTF-8, as what is in JSON must: its bytes are then the code points
 * of a text in a list. */
static json_t *text_say(const char *text)
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

/* A copy of a text that may be missing; false: out of memory. */
static bool text_take(char **text, const json_t *object, const char *key)
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

/* ---- jobs ---- */

static json_t *tuning_pack(const pl_tuning_t *t)
{
    return json_pack("{s:f,s:f,s:I,s:f,s:s?,s:I,s:I,s:I,s:I}", "min_lr", t->min_lr,
                     "max_lr", t->max_lr, "num_training", (json_int_t)t->num_training,
                     "early_stop_threshold", t->early_stop_threshold, "batch_size",
                     t->batch_size, "steps_per_trial", (json_int_t)t->steps_per_trial,
                     "init_val", (json_int_t)t->init_val, "max_trials",
                     (json_int_t)t->max_trials, "max_memory", (json_int_t)t->max_memory);
}

/* The names of a search's modes are those of pl_tuning_defaults(), which live for
 * ever. */
static void tuning_unpack(pl_tuning_t *t, const json_t *fields)
{
    const char *mode = text_of(fields, "batch_size");
    *t = (pl_tuning_t){
        .min_lr = json_number_value(json_object_get(fields, "min_lr")),
        .max_lr = json_number_value(json_object_get(fields, "max_lr")),
        .num_training = json_integer_value(json_object_get(fields, "num_training")),
        .early_stop_threshold =
            json_number_value(json_object_get(fields, "early_stop_threshold")),
        .batch_size = !mode                   ? NULL
                      : strcmp(mode, "power") ? "binsearch"
                                              : "power",
        .steps_per_trial = json_integer_value(json_object_get(fields, "steps_per_trial")),
        .init_val = json_integer_value(json_object_get(fields, "init_val")),
        .max_trials = json_integer_value(json_object_get(fields, "max_trials")),
        .max_memory = json_integer_value(json_object_get(fields, "max_memory"))};
}

pl_blob_t *pl_job_pack(const pl_job_t *job, pl_error_t *err)
{
    size_t at;
    char *run = pl_options_text(job->options, err);
    if (!run)
        return NULL;
    json_t *object =
        json_pack("{s:s,s:o,s:o,s:O,s:o,s:i,s:o,s:b,s:o,s:b,s:s?,s:s?,s:s?,s:o,s:I,s:f,"
                  "s:I}",
                  "run", run, "file", text_say(job->options->name), "text",
                  text_say(job->options->text), "set", job->options->set, "plugins",
                  pl_plugins_loaded(), "stage", (int)job->stage, "tuning",
                  tuning_pack(&job->tuning), "compiles", (int)job->compiles, "checkpoint",
                  text_say(job->checkpoint), "resumes", (int)job->resumes, "resume",
                  job->resume, "again", job->again, "back", job->rollback, "prompt",
                  text_say(job->prompt), "tokens", (json_int_t)job->tokens, "temperature",
                  job->temperature, "top_k", (json_int_t)job->top_k);
    pl_blob_t *blob = blob_write(object, 0, &at, err);
    json_decref(object);
    pl_text_free(run);
    return blob;
}

/* Errors of a rank name places of the run file, as those of the launcher do. */
static int origin_take(pl_options_t *options, const json_t *fields, pl_error_t *err)
{
    char *name = NULL, *text = NULL;
    json_t *set = pl_json_copy(json_object_get(fields, "set"));
    if (!set || !text_take(&name, fields, "file") || !text_take(&text, fields, "text")) {
        json_decref(set);
        pl_free(name);
        return pl_no_memory(err);
    }
    json_decref(options->set);
    pl_free(options->name);
    pl_free(options->text);
    options->set = set;
    options->name = name;
    options->text = text;
    options->length = text ? strlen(text) : 0;
    return PL_OK;
}

static pl_job_t *job_make(const json_t *fields, pl_error_t *err)
{
    const char *run = text_of(fields, "run");
    json_int_t stage = json_integer_value(json_object_get(fields, "stage"));
    if (!run || stage < PL_TRAIN || stage > PL_PREDICT) {
        pl_fail(err, PL_EPROTOCOL, "the serialized job has no run");
        return NULL;
    }
    pl_options_t *options = pl_options_parse(run, "run", err);
    if (options && origin_take(options, fields, err) != PL_OK) {
        pl_options_free(options);
        return NULL;
    }
    pl_job_t *job = options && pl_options_check(options, err) == PL_OK
                        ? pl_job_new(options, (pl_stage_t)stage, err)
                        : NULL;
    pl_options_free(options);
    return job;
}

pl_job_t *pl_job_unpack(const pl_blob_t *blob, pl_error_t *err)
{
    size_t at;
    json_t *fields = blob_read(blob, &at, err);
    pl_job_t *job = NULL;
    if (fields && pl_plugins_load(json_object_get(fields, "plugins"), err) == PL_OK)
        job = job_make(fields, err);
    if (job) {
        tuning_unpack(&job->tuning, json_object_get(fields, "tuning"));
        job->compiles = json_is_true(json_object_get(fields, "compiles"));
        job->resumes = json_is_true(json_object_get(fields, "resumes"));
        job->tokens = json_integer_value(json_object_get(fields, "tokens"));
        job->temperature = json_number_value(json_object_get(fields, "temperature"));
        job->top_k = json_integer_value(json_object_get(fields, "top_k"));
        if (!text_take(&job->checkpoint, fields, "checkpoint")
            || !text_take(&job->resume, fields, "resume")
            || !text_take(&job->again, fields, "again")
            || !text_take(&job->rollback, fields, "back")
            || !text_take(&job->prompt, fields, "prompt")) {
            pl_no_memory(err);
            pl_object_unref(job);
            job = NULL;
        }
    }
    json_decref(fields);
    return job;
}

/* ---- tensors ---- */

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

/* What a list says of a tensor, whose elements lie in the blob from *at on. */
static int tensor_read(const json_t *fields, const pl_blob_t *blob, size_t *at,
                       pl_output_t *tensor, pl_error_t *err)
{
    const char *name = text_of(fields, "name");
    const json_t *shape = json_object_get(fields, "shape");
    json_int_t dtype = json_integer_value(json_object_get(fields, "dtype")),
               region = json_integer_value(json_object_get(fields, "region"));
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

/* ---- outcomes ---- */

static json_t *weights_say(const pl_weights_t *weights, size_t *bytes)
{
    if (!weights)
        return json_null();
    return json_pack("{s:s?,s:s?,s:s?,s:o}", "module", weights->module, "facts",
                     weights->data_info, "state", weights->state, "tensors",
                     tensors_list(weights->tensor, weights->count, bytes));
}

static json_t *outputs_say(const pl_outputs_t *outputs, size_t *bytes)
{
    return outputs ? tensors_list(outputs->output, outputs->count, bytes) : json_null();
}

static json_t *error_say(const pl_error_t *error)
{
    if (error->code == PL_OK)
        return json_null();
    return json_pack("{s:i,s:s,s:s}", "code", error->code, "where", error->where, "text",
                     error->text);
}

pl_blob_t *pl_outcome_pack(const pl_outcome_t *o, pl_error_t *err)
{
    size_t bytes = 0, at;
    json_t *object =
        json_pack("{s:b,s:s,s:o,s:I,s:I,s:f,s:s?,s:s?,s:s?,s:s?,s:s?,s:s?,s:o,s:o}",
                  "stopped", (int)o->stopped, "reason", o->reason, "error",
                  error_say(&o->error), "global_step", (json_int_t)o->global_step,
                  "epoch", (json_int_t)o->epoch, "seconds", o->seconds, "metrics",
                  o->metrics, "run_dir", o->run_dir, "callbacks", o->callbacks, "best",
                  o->best, "text", o->text, "back", o->rollback, "weights",
                  weights_say(o->weights, &bytes), "outputs",
                  outputs_say(o->outputs, &bytes));
    pl_blob_t *blob = blob_write(object, bytes, &at, err);
    json_decref(object);
    if (blob && o->weights)
        tensors_copy(blob, &at, o->weights->tensor, o->weights->count);
    if (blob && o->outputs)
        tensors_copy(blob, &at, o->outputs->output, o->outputs->count);
    return blob;
}

typedef int (*tensor_put_t)(void *to, const pl_output_t *tensor, pl_error_t *err);

/* Takes over what it was given; NULL when one of them could not be read or put there. */
static void *tensors_take(const json_t *list, const pl_blob_t *blob, size_t *at,
                          tensor_put_t put, pl_object_t *to, pl_error_t *err)
{
    size_t k;
    json_t *one;
    pl_output_t tensor;
    bool taken = to != NULL;
    json_array_foreach(list, k, one)
        taken = taken && tensor_read(one, blob, at, &tensor, err) == PL_OK
                && put(to, &tensor, err) == PL_OK;
    if (taken)
        return to;
    pl_object_unref(to);
    return NULL;
}

static int weight_put(void *to, const pl_output_t *tensor, pl_error_t *err)
{
    pl_weights_t *weights = to;
    int code = pl_weights_add(weights, tensor->name, tensor->shape, tensor->dtype,
                              tensor->data, err);
    if (code == PL_OK)
        weights->tensor[weights->count - 1].region = tensor->region;
    return code;
}

static pl_weights_t *weights_take(const json_t *fields, const pl_blob_t *blob, size_t *at,
                                  pl_error_t *err)
{
    pl_weights_t *weights = pl_weights_new(err);
    if (weights
        && !(text_take(&weights->module, fields, "module")
             && text_take(&weights->data_info, fields, "facts")
             && text_take(&weights->state, fields, "state"))) {
        pl_no_memory(err);
        pl_object_unref(weights);
        return NULL;
    }
    return tensors_take(json_object_get(fields, "tensors"), blob, at, weight_put,
                        (pl_object_t *)weights, err);
}

static int output_put(void *to, const pl_output_t *tensor, pl_error_t *err)
{
    pl_outputs_t *outputs = to;
    int code = pl_outputs_add(outputs, tensor->name, tensor->shape, err);
    if (code == PL_OK)
        memcpy(outputs->output[outputs->count - 1].data, tensor->data,
               (size_t)pl_elements(tensor->shape) * sizeof(float));
    return code;
}

static pl_outputs_t *outputs_take(const json_t *fields, const pl_blob_t *blob, size_t *at,
                                  pl_error_t *err)
{
    return tensors_take(fields, blob, at, output_put, (pl_object_t *)pl_outputs_new(err),
                        err);
}

static void error_take(pl_error_t *error, const json_t *fields)
{
    const char *where = text_of(fields, "where"), *text = text_of(fields, "text");
    if (!json_is_object(fields))
        return;
    error->code = (int)json_integer_value(json_object_get(fields, "code"));
    snprintf(error->where, sizeof error->where, "%s", where ? where : "");
    snprintf(error->text, sizeof error->text, "%s", text ? text : "");
}

static int outcome_fill(pl_outcome_t *o, const json_t *fields, const pl_blob_t *blob,
                        size_t at, pl_error_t *err)
{
    const json_t *weights = json_object_get(fields, "weights"),
                 *outputs = json_object_get(fields, "outputs");
    const char *reason = text_of(fields, "reason");
    o->stopped = json_is_true(json_object_get(fields, "stopped"));
    snprintf(o->reason, sizeof o->reason, "%s", reason ? reason : "");
    error_take(&o->error, json_object_get(fields, "error"));
    o->global_step = (uint64_t)json_integer_value(json_object_get(fields, "global_step"));
    o->epoch = (uint32_t)json_integer_value(json_object_get(fields, "epoch"));
    o->seconds = json_number_value(json_object_get(fields, "seconds"));
    if (!text_take(&o->metrics, fields, "metrics")
        || !text_take(&o->run_dir, fields, "run_dir")
        || !text_take(&o->callbacks, fields, "callbacks")
        || !text_take(&o->best, fields, "best") || !text_take(&o->text, fields, "text")
        || !text_take(&o->rollback, fields, "back"))
        return pl_no_memory(err);
    if (json_is_object(weights) && !(o->weights = weights_take(weights, blob, &at, err)))
        return err->code;
    if (json_is_array(outputs) && !(o->outputs = outputs_take(outputs, blob, &at, err)))
        return err->code;
    return PL_OK;
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
