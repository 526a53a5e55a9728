/* model.c - inference with a trained module on samples in memory, without a trainer
 *
 * It needs no actor: the accelerator's table is called on the caller's thread. Few
 * compiled plans serve any number of samples. A plan takes a power of two of them, and
 * the results of its unused rows are dropped. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "actors/connectors/weights.h"
#include "actors/connectors/datasets/datasets.h"
#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/array.h"
#include "runtime/payload.h"
#include "strategies/replica/weights_match.h"
#include "tensor/graph.h"
#include "tensor/model.h"
#include "tensor/narrow.h"
#include "tensor/operators.h"

enum { SIZES = 7, SAMPLES_MAX = 1 << (SIZES - 1) };         /* 1, 2, 4, … 64 */

/* ---- Samples in the form of the training ----
 *
 * The data set of the training may have standardized the numbers of its files. Its data
 * info says how, so programs pass samples as the files have them. */

/* How "x" is standardized. */
typedef struct inputs {
    pl_moments_t *moments;                         /* [count], of each number or of all */
    int count;                                     /* [0: not at all] */
} inputs_t;

/* From the data info of the weights  [NULL: none]. */
static int inputs_init(inputs_t *inputs, const char *data_info, pl_error_t *err)
{
    if (!data_info || !*data_info)
        return PL_OK;
    json_t *known = pl_json_value(data_info, strlen(data_info), err);
    const json_t *list = json_object_get(known, PL_MOMENTS);
    const size_t count = json_array_size(list);
    int code = known ? PL_OK : err->code, bad = -1;
    if (code == PL_OK && count) {
        inputs->moments = pl_alloc_array(count, sizeof *inputs->moments);
        code = inputs->moments ? PL_OK : pl_no_memory(err);
    }
    if (code == PL_OK && count) {
        inputs->count = (int)count;
        bad = pl_moments_read(list, inputs->moments);
    }
    if (bad >= 0)
        code = pl_fail(err, PL_EFORMAT,
                       "the file of the weights has no mean and factor for feature %d",
                       bad);
    json_decref(known);
    return code;
}

static bool is_number(pl_dtype_t dtype)
{
    return dtype == PL_F32 || dtype == PL_F64 || dtype == PL_U8;
}

static bool is_standardized(const inputs_t *inputs, const pl_field_t *given)
{
    return inputs->count && !strcmp(given->name, "x") && is_number(given->dtype);
}

/* Writes `samples` samples of the given field, from sample `at` on, in that form. */
static void inputs_fill(const inputs_t *inputs, const pl_field_t *given, const void *data,
                        int64_t at, int64_t samples, void *out)
{
    const int64_t per_sample = pl_elements(given->shape);
    const char *from = (const char *)data
                       + (size_t)(at * per_sample) * pl_array_width(given->dtype);
    if (!is_standardized(inputs, given)) {
        pl_convert(given->dtype, from, is_number(given->dtype) ? PL_F32 : given->dtype,
                   out, (size_t)(samples * per_sample));
        return;
    }
    for (int64_t i = 0; i < samples * per_sample; i++) {
        const pl_moments_t *moments =
            &inputs->moments[inputs->count == 1 ? 0 : i % per_sample];
        const double number = given->dtype == PL_F64  ? ((const double *)from)[i]
                              : given->dtype == PL_U8 ? ((const uint8_t *)from)[i]
                                                      : ((const float *)from)[i];
        ((float *)out)[i] = pl_moments_apply(moments, number);
    }
}

/* ---- The model ---- */

typedef struct model_output {
    char name[48];
    pl_shape_t shape;                                       /* [size, …] */
    bool is_int;                                            /* int32; else float32 */
} model_output_t;

/* The plan for one number of samples. */
typedef struct sized {
    pl_plan_t *plan;                                        /* NULL: not yet */
    int answers;
    model_output_t answer[PL_FIELDS];
    void *input[PL_FIELDS], *output[PL_FIELDS];             /* of one replay */
} sized_t;

struct pl_loaded_model {
    pl_instance_t module, accelerator;
    const pl_accelerator_ops_t *ops;                        /* accelerator's */
    bool opened;
    pl_weights_t *weights;                                  /* counted; until placed */
    pl_model_t *model;
    inputs_t inputs;
    int field_count;                                        /* that plans are made for */
    pl_field_t field[PL_FIELDS];
    sized_t sized[SIZES];
    int given;                                         /* outputs of the newest answers */
    pl_result_tensor_t given_output[PL_FIELDS];
    char given_name[PL_FIELDS][48];
};

/* ---- Loading ---- */

static int component_make(pl_instance_t *instance, const char *role, const char *text,
                          const char *data_info, pl_error_t *err)
{
    json_t *value = pl_json_parse_lenient(text, err);
    json_t *known = data_info && *data_info
                        ? pl_json_value(data_info, strlen(data_info), NULL)
                        : NULL;
    pl_instance_request_t request = {.role = role, .value = value, .auto_values = known};
    int code = value ? pl_instance_make(instance, &request, err) : err->code;
    json_decref(value);
    json_decref(known);
    return code;
}

pl_loaded_model_t *pl_model_load(const char *checkpoint, int threads, pl_error_t *err)
{
    pl_error_t local;
    if (!err)
        err = &local;
    if (pl_require(checkpoint, "a checkpoint", err) != PL_OK)
        return NULL;
    pl_loaded_model_t *m = pl_alloc(sizeof *m);
    if (!m) {
        pl_no_memory(err);
        return NULL;
    }
    char device[64];
    pl_device_info_t info = {0};
    snprintf(device, sizeof device, "{\"name\": \"cpu\", \"threads\": %d}",
             threads > 0 ? threads : 1);
    m->weights = pl_weights_read(checkpoint, err);
    int code = m->weights ? PL_OK : err->code;
    if (code == PL_OK && (!m->weights->module || !strcmp(m->weights->module, "{}")))
        code = pl_fail(err, PL_EFORMAT,
                       "%s does not name its module: load it into a run with "
                       "\"module.init_from\"",
                       checkpoint);
    if (code == PL_OK)
        code = component_make(&m->module, "module", m->weights->module,
                              m->weights->data_info, err);
    if (code == PL_OK)
        code = component_make(&m->accelerator, "accelerator", device, NULL, err);
    if (code == PL_OK)
        code = inputs_init(&m->inputs, m->weights->data_info, err);
    if (code == PL_OK) {
        m->ops = m->accelerator.ops;
        m->opened = true;
        code = m->ops->open(m->accelerator.self, &info, err);
    }
    if (code == PL_OK)
        return m;
    pl_model_unload(m);
    return NULL;
}

/* ---- Unloading ---- */

static void buffers_free(sized_t *sized)
{
    for (int k = 0; k < PL_FIELDS; k++) {
        pl_free(sized->input[k]);
        pl_free(sized->output[k]);
    }
    *sized = (sized_t){0};
}

static void plans_drop(pl_loaded_model_t *m)
{
    for (int k = 0; k < SIZES; k++) {
        if (m->sized[k].plan)
            m->ops->discard(m->accelerator.self, m->sized[k].plan);
        buffers_free(&m->sized[k]);
    }
}

static void given_drop(pl_loaded_model_t *m)
{
    for (int k = 0; k < m->given; k++)
        pl_free((void *)m->given_output[k].data);
    m->given = 0;
}

void pl_model_unload(pl_loaded_model_t *m)
{
    if (!m)
        return;
    given_drop(m);
    if (m->opened) {
        plans_drop(m);
        m->ops->close(m->accelerator.self);
    }
    pl_model_free(m->model);
    pl_free(m->inputs.moments);
    pl_object_unref(m->weights);
    pl_instance_release(&m->accelerator);
    pl_instance_release(&m->module);
    pl_free(m);
}

/* ---- Compiling ---- */

static int region_place(pl_loaded_model_t *m, pl_region_t region, int64_t count,
                        pl_error_t *err)
{
    pl_floats_t *floats = pl_floats_new(PL_F32, (size_t)count, err);
    if (!floats)
        return PL_ENOMEM;
    for (int k = 0; k < m->model->count; k++) {
        const pl_tensor_info_t *t = &m->model->tensor[k];
        if (t->region == region)
            pl_floats_fill(floats, t->offset,
                           pl_weights_find(m->weights, region, t->name, k));
    }
    int code = m->ops->region(m->accelerator.self, region, PL_F32, (size_t)count, err);
    if (code == PL_OK)
        code = m->ops->write(m->accelerator.self, region, 0, floats->data, floats->count,
                             err);
    pl_object_unref(floats);
    return code;
}

/* Once, when the first graph has described the tensors.  The weights come from this
 * module, so only another shape of the samples changes the shape of a tensor. */
static int weights_place(pl_loaded_model_t *m, pl_error_t *err)
{
    if (!m->weights)
        return PL_OK;
    pl_model_freeze(m->model);
    pl_error_t why = {0};
    int code = pl_weights_match(m->model, &m->module, m->weights, NULL, true, &why);
    for (int k = 0; code != PL_OK && k < m->model->count; k++) {
        const pl_tensor_info_t *t = &m->model->tensor[k];
        const pl_output_t *have = pl_weights_find(m->weights, t->region, t->name, k);
        if (have && have->shape.rank == t->shape.rank
            && !pl_same_shape(have->shape, t->shape))
            return pl_fail(err, PL_EINVAL,
                           "samples with \"%s\" of shape %s do not fit: \"%s\" of the "
                           "module has shape %s, but these samples need %s",
                           m->field[0].name, PL_TEXT_OF(m->field[0].shape), t->name,
                           PL_TEXT_OF(have->shape), PL_TEXT_OF(t->shape));
    }
    if (code != PL_OK)
        pl_fail(err, why.code, "%s", why.text);
    if (code == PL_OK)
        code = region_place(m, PL_REGION_PARAMS, m->model->params, err);
    if (code == PL_OK)
        code = region_place(m, PL_REGION_STATE, m->model->state, err);
    if (code != PL_OK)
        return code;
    pl_object_unref(m->weights);
    m->weights = NULL;
    return PL_OK;
}

static int answers_keep(sized_t *sized, const pl_graph_t *g, pl_error_t *err)
{
    for (int k = 0; k < g->fetch_count; k++) {
        const pl_value_t *value = &g->value[g->fetch[k].value];
        if (g->fetch[k].kind != PL_FETCH_OUTPUT)
            continue;
        if (sized->answers == PL_FIELDS)
            return pl_fail(err, PL_EUNSUPPORTED, "more than %d outputs", PL_FIELDS);
        if (value->dtype != PL_F32 && value->dtype != PL_I32)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "output \"%s\" is neither float32 nor int32",
                           g->fetch[k].name);
        if (value->shape.rank < 1 || value->shape.dim[0] != g->batch_size)
            return pl_fail(
                err, PL_EUNSUPPORTED,
                "the first axis of output \"%s\" must have the %lld samples of "
                "a batch, but its shape is %s",
                g->fetch[k].name, (long long)g->batch_size, PL_TEXT_OF(value->shape));
        model_output_t *answer = &sized->answer[sized->answers++];
        snprintf(answer->name, sizeof answer->name, "%s", g->fetch[k].name);
        answer->shape = value->shape;
        answer->is_int = value->dtype == PL_I32;
    }
    return sized->answers ? PL_OK
                          : pl_fail(err, PL_EUNSUPPORTED,
                                    "the module has no output in the stage predict");
}

static int sized_compile(pl_loaded_model_t *m, sized_t *sized, int64_t size,
                         pl_error_t *err)
{
    if (m->weights) {                     /* an earlier attempt may have failed halfway */
        pl_model_free(m->model);
        m->model = pl_model_new(err);
    }
    if (!m->model)
        return err->code;
    pl_graph_t *g = pl_graph_new(m->model, PL_PREDICT, m->field, m->field_count, size,
                                 err);
    if (!g)
        return err->code;
    ((const pl_module_ops_t *)m->module.ops)->step(g, m->module.self, PL_PREDICT);
    int code = pl_graph_check(g, err);
    if (code == PL_OK)
        code = answers_keep(sized, g, err);
    if (code == PL_OK)
        code = weights_place(m, err);
    if (code == PL_OK) {
        bool failed = false;
        for (int k = 0; k < m->field_count; k++) {
            size_t bytes = (size_t)(size * pl_elements(m->field[k].shape))
                           * pl_dtype_size(m->field[k].dtype);
            sized->input[k] = pl_alloc(bytes);
            failed = failed || !sized->input[k];
            if (sized->input[k])
                memset(sized->input[k], 0, bytes);
        }
        for (int k = 0; k < sized->answers; k++) {
            sized->output[k] =
                pl_alloc((size_t)pl_elements(sized->answer[k].shape) * sizeof(float));
            failed = failed || !sized->output[k];
        }
        code = failed ? pl_no_memory(err) : PL_OK;
    }
    pl_graph_narrow(g);
    pl_graph_prune(g);
    if (code == PL_OK)
        code = pl_graph_check(g, err);
    if (code == PL_OK)
        code = m->ops->compile(m->accelerator.self, g, &sized->plan, err);
    pl_graph_free(g);
    return code;
}

/* ---- Running ---- */

typedef struct model_run {
    pl_replay_t replay;                                   /* first: done() gets it back */
    bool ended;
    pl_error_t error;
} model_run_t;

static void run_done(pl_replay_t *replay, const pl_error_t *err)
{
    model_run_t *run = (model_run_t *)replay;
    run->ended = true;
    if (err)
        run->error = *err;
}

static int replay(pl_loaded_model_t *m, sized_t *sized, pl_error_t *err)
{
    model_run_t run = {.replay = {.done = run_done}};
    memcpy(run.replay.input, sized->input, sizeof sized->input);
    memcpy(run.replay.output, sized->output, sizeof sized->output);
    int code = m->ops->replay(m->accelerator.self, sized->plan, &run.replay, err);
    while (code == PL_OK && !run.ended) {
        struct pollfd done = {.fd = m->ops->descriptor(m->accelerator.self),
                              .events = POLLIN};
        poll(&done, 1, -1);
        m->ops->collect(m->accelerator.self);
    }
    if (code == PL_OK && run.error.code != PL_OK && err)
        *err = run.error;
    return code == PL_OK ? run.error.code : code;
}

static int given_reserve(pl_loaded_model_t *m, const sized_t *sized, int64_t samples,
                         pl_error_t *err)
{
    given_drop(m);
    for (int k = 0; k < sized->answers; k++) {
        pl_shape_t shape = sized->answer[k].shape;
        shape.dim[0] = samples;
        float *data = pl_alloc((size_t)pl_elements(shape) * sizeof *data);
        if (!data)
            return pl_no_memory(err);
        memcpy(m->given_name[k], sized->answer[k].name, sizeof m->given_name[k]);
        m->given_output[m->given++] = (pl_result_tensor_t){m->given_name[k], shape, data};
    }
    return PL_OK;
}

/* The plan for 1 to SAMPLES_MAX samples. */
static sized_t *sized_for(pl_loaded_model_t *m, int64_t samples, pl_error_t *err)
{
    int k = 0;
    while (1 << k < samples)
        k++;
    sized_t *sized = &m->sized[k];
    if (sized->plan || sized_compile(m, sized, 1 << k, err) == PL_OK)
        return sized;
    buffers_free(sized);
    return NULL;
}

/* Takes the fields that the module receives: bytes and doubles become float32. If they
 * differ from the previous ones, drops the plans. */
static int fields_take(pl_loaded_model_t *m, const pl_arrays_t *samples, pl_error_t *err)
{
    pl_field_t field[PL_FIELDS];
    const int count = samples->field_count;
    bool is_same = m->field_count == count;
    for (int k = 0; k < count; k++) {
        const pl_field_t *given = &samples->field[k];
        const int64_t numbers = pl_elements(given->shape);
        if (is_standardized(&m->inputs, given) && m->inputs.count != 1
            && m->inputs.count != numbers)
            return pl_fail(
                err, PL_EINVAL,
                "a sample of \"x\" has %lld numbers, but the training data had "
                "%d features",
                (long long)numbers, m->inputs.count);
        field[k] = *given;
        field[k].dtype = is_number(given->dtype) ? PL_F32 : given->dtype;
        is_same = is_same && !strcmp(m->field[k].name, field[k].name)
                  && m->field[k].dtype == field[k].dtype
                  && pl_same_shape(m->field[k].shape, field[k].shape);
    }
    if (is_same)
        return PL_OK;
    plans_drop(m);
    m->field_count = count;
    memcpy(m->field, field, (size_t)count * sizeof *field);
    return PL_OK;
}

static int samples_check(const pl_arrays_t *samples, pl_error_t *err)
{
    if (samples->samples < 1 || samples->field_count < 1
        || samples->field_count > PL_FIELDS)
        return pl_fail(err, PL_EINVAL,
                       "%lld samples of %d fields: give at least one sample, and 1 to "
                       "%d fields",
                       (long long)samples->samples, samples->field_count, PL_FIELDS);
    for (int k = 0; k < samples->field_count; k++)
        if (!samples->data[k])
            return pl_fail(err, PL_EINVAL, "field \"%.31s\" of the samples has no data",
                           samples->field[k].name);
        else if (!pl_field_is_whole(&samples->field[k]))
            return pl_fail(
                err, PL_EINVAL,
                "field \"%.31s\" of the samples needs a name, one of the types "
                "of data and at most %d sizes, each 1 or more",
                samples->field[k].name, PL_DIMS - 1);
    return PL_OK;
}

int pl_model_run(pl_loaded_model_t *m, const pl_arrays_t *samples, pl_answers_t *answers,
                 pl_error_t *err)
{
    pl_error_t local;
    if (!err)
        err = &local;
    if (pl_require(m, "a model", err) != PL_OK
        || pl_require(samples, "samples", err) != PL_OK
        || pl_require(answers, "where the answers go", err) != PL_OK)
        return PL_EINVAL;
    int code = samples_check(samples, err);
    if (code == PL_OK)
        code = fields_take(m, samples, err);
    for (int64_t at = 0; at < samples->samples && code == PL_OK; at += SAMPLES_MAX) {
        int64_t left = samples->samples - at;
        const int64_t count = left < SAMPLES_MAX ? left : SAMPLES_MAX;
        sized_t *sized = sized_for(m, count, err);
        code = sized ? PL_OK : err->code;
        if (code == PL_OK && at == 0)
            code = given_reserve(m, sized, samples->samples, err);
        for (int k = 0; k < m->field_count && code == PL_OK; k++)
            inputs_fill(&m->inputs, &samples->field[k], samples->data[k], at, count,
                        sized->input[k]);
        if (code == PL_OK)
            code = replay(m, sized, err);
        for (int k = 0; code == PL_OK && k < m->given; k++) {
            const pl_shape_t shape = sized->answer[k].shape;
            const int64_t row = pl_elements(shape) / shape.dim[0], numbers = count * row;
            float *into = (float *)m->given_output[k].data + at * row;
            if (!sized->answer[k].is_int)
                memcpy(into, sized->output[k], (size_t)numbers * sizeof *into);
            for (int64_t i = 0; sized->answer[k].is_int && i < numbers; i++)
                into[i] = (float)((const int32_t *)sized->output[k])[i];
        }
    }
    if (code == PL_OK)
        *answers = (pl_answers_t){m->given, m->given_output};
    return code;
}
