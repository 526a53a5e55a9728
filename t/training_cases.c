/* training_cases.c - small trainings whose every loss PyTorch has computed too
 * (t/data/make_training.py) */
#include "training_cases.h"

#include <math.h>
#include <string.h>

#include "base/option.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formula.h"
#include "tap.h"
#include "tensor/precision.h"

/* The example modules, each under a name of its own in this program. */
const pl_registration_t *mlp_plugin(void);
const pl_registration_t *cnn_plugin(void);
const pl_registration_t *gpt_plugin(void);

/* ---- A network with batch norm, over images and over vectors ---- */

typedef struct bn_cnn {
    int64_t classes;
} bn_cnn_t;

static const pl_option_t bn_cnn_options[] = {
    PL_INT(bn_cnn_t, classes, "\"auto\"", "1..", "classes to tell apart"),
    PL_OPTIONS_END,
};

static void bn_cnn_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)stage;
    const bn_cnn_t *m = self;
    const pl_conv_options_t conv = {.kernel = 3,
                                    .stride = 2,
                                    .padding = 1,
                                    .no_bias = true};
    pl_node_t x = pl_conv2d(g, "conv1", pl_input(g, "x"), 5, &conv);
    x = pl_relu(g, pl_batch_norm(g, "bn1", x, 0.1, 1e-5));
    x = pl_linear(g, "fc1", pl_flatten(g, x, 1), 12);
    x = pl_tanh(g, pl_batch_norm(g, "bn2", x, 0.1, 1e-5));
    x = pl_linear(g, "fc2", x, m->classes);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static const pl_registration_t *bn_cnn_plugin(void)
{
    static const pl_module_ops_t module = {.name = "bn_cnn",
                                           .size = sizeof(bn_cnn_t),
                                           .options = bn_cnn_options,
                                           .step = bn_cnn_step};
    static const pl_registration_t components[] = {{"module", &module},
                                                   PL_REGISTRATIONS_END};
    return components;
}

/* ---- The table ---- */

#define SGD \
    &pl_sgd_optimizer, \
        "{\"lr\": 0.05, \"momentum\": 0.9, \"nesterov\": true, " \
        "\"weight_decay\": 0.001}", \
        0
#define ADAMW \
    &pl_adamw_optimizer, "{\"lr\": 0.003, \"beta2\": 0.99, \"weight_decay\": 0.1}", 0.25
#define AMSGRAD \
    &pl_adam_optimizer, "{\"lr\": 0.003, \"amsgrad\": true, \"weight_decay\": 0.01}", 0
#define ADAGRAD &pl_adagrad_optimizer, "{\"lr\": 0.02}", 0
#define RMSPROP \
    &pl_rmsprop_optimizer, \
        "{\"lr\": 0.002, \"alpha\": 0.9, \"eps\": 1e-4, \"momentum\": 0.5, " \
        "\"centered\": true}", \
        0
#define LION &pl_lion_optimizer, "{\"lr\": 0.0009765625, \"weight_decay\": 0.1}", 0
#define MUON(clip) \
    &pl_muon_optimizer, "{\"lr\": 0.015625, \"adam_lr\": 0.003, \"weight_decay\": 0.1}", \
        clip
#define MLP mlp_plugin, "{\"hidden\": [24, 16], \"activation\": \"gelu\", \"classes\": 5}"
#define CNN cnn_plugin, "{\"channels\": [4, 6], \"hidden\": 16, \"classes\": 4}"
#define BN_CNN bn_cnn_plugin, "{\"classes\": 4}"
#define GPT \
    gpt_plugin, "{\"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 10, " \
                "\"vocabulary_size\": 11, \"bias\": true}"

const training_case_t training_cases[] = {
    {"mlp, sgd", MLP, SGD, false, PL_SHAPE(16, 20), 5, NULL, NULL},
    {"mlp, adamw", MLP, ADAMW, false, PL_SHAPE(16, 20), 5, NULL, NULL},
    {"cnn, sgd", CNN, SGD, false, PL_SHAPE(6, 1, 10, 10), 4, NULL, NULL},
    {"cnn, adamw", CNN, ADAMW, false, PL_SHAPE(6, 1, 10, 10), 4, NULL, NULL},
    {"cnn with batch norm, sgd", BN_CNN, SGD, false, PL_SHAPE(6, 2, 9, 9), 4, NULL, NULL},
    {"cnn with batch norm, adamw", BN_CNN, ADAMW, false, PL_SHAPE(6, 2, 9, 9), 4, NULL,
     NULL},
    {"gpt, sgd", GPT, SGD, true, PL_SHAPE(3, 8), 11, NULL, NULL},
    {"gpt, adamw", GPT, ADAMW, true, PL_SHAPE(3, 8), 11, NULL, NULL},
    {"mlp, amsgrad", MLP, AMSGRAD, false, PL_SHAPE(16, 20), 5, NULL, NULL},
    {"mlp, adagrad", MLP, ADAGRAD, false, PL_SHAPE(16, 20), 5, NULL, NULL},
    {"mlp, rmsprop", MLP, RMSPROP, false, PL_SHAPE(16, 20), 5, NULL, NULL},
    {"mlp, lion", MLP, LION, false, PL_SHAPE(16, 20), 5, NULL, NULL},
    {"cnn, muon", CNN, MUON(0), false, PL_SHAPE(6, 1, 10, 10), 4, NULL, NULL},
    {"gpt, muon", GPT, MUON(0.25), true, PL_SHAPE(3, 8), 11, NULL, NULL},
};
const int training_case_count = sizeof training_cases / sizeof *training_cases;

/* ---- Options from JSON ---- */

/* Texts must outlive the part: the few that cases use are kept here. */
static const char *kept_text(const char *text)
{
    static const char *const known[] = {"relu", "gelu", "tanh", "val_loss"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(text, known[i]))
            return known[i];
    return "";
}

#define AS_TEXT (JSON_COMPACT | JSON_ENCODE_ANY)

/* behind: memory for the value of an option that is JSON, which lives with the struct. */
static void option_set(const pl_option_t *option, char *self, const json_t *value,
                       char **behind)
{
    void *field = self + option->offset;
    switch (option->type) {
    case PL_OPTION_INT: *(int64_t *)field = json_integer_value(value); break;
    case PL_OPTION_FLOAT: *(double *)field = json_number_value(value); break;
    case PL_OPTION_BOOL: *(bool *)field = json_is_true(value); break;
    case PL_OPTION_TEXT:
        *(const char **)field = kept_text(json_string_value(value));
        break;
    case PL_OPTION_JSON: {
        const size_t length = json_dumpb(value, NULL, 0, AS_TEXT);
        json_dumpb(value, *behind, length, AS_TEXT);
        *(const char **)field = *behind;
        *behind += length + 1;
        break;
    }
    case PL_OPTION_WORD: pl_option_read(option, value, field, NULL); break;
    case PL_OPTION_AMOUNT:
        *(pl_amount_t *)field = (pl_amount_t){.value = json_number_value(value),
                                              .is_share = json_is_real(value)};
        break;
    case PL_OPTION_INTS:
        ((pl_ints_t *)field)->count = (int)json_array_size(value);
        for (size_t i = 0; i < json_array_size(value); i++)
            ((pl_ints_t *)field)->value[i] = json_integer_value(json_array_get(value, i));
        break;
    default: break;
    }
}

/* -> the value of an option as a new reference; NULL: it has none */
static json_t *option_value(const pl_option_t *option, const json_t *given)
{
    json_t *value = json_object_get(given, option->name);
    if (value)
        return json_incref(value);
    return option->fallback ? json_loads(option->fallback, JSON_DECODE_ANY, NULL) : NULL;
}

void *training_component(const pl_component_t *component, const char *options)
{
    json_t *given = json_loads(options, JSON_REJECT_DUPLICATES, NULL);
    size_t size = component->size;
    for (const pl_option_t *o = component->options; o->type != PL_OPTION_END; o++) {
        json_t *value = o->type == PL_OPTION_JSON ? option_value(o, given) : NULL;
        size += value ? json_dumpb(value, NULL, 0, AS_TEXT) + 1 : 0;
        json_decref(value);
    }
    char *self = given ? pl_alloc(size) : NULL,
         *behind = self ? self + component->size : NULL;
    for (const pl_option_t *o = component->options; self && o->type != PL_OPTION_END;
         o++) {
        json_t *value = option_value(o, given);
        option_set(o, self, value, &behind);
        json_decref(value);
    }
    json_decref(given);
    return self;
}

/* ---- A training ---- */

static int describe(training_t *t, pl_error_t *err)
{
    const training_case_t *c = t->of;
    const pl_module_ops_t *module = c->plugin()->table;
    pl_field_t fields[2] = {{.name = "x", .dtype = c->tokens ? PL_I64 : PL_F32},
                            {.name = "y", .dtype = PL_I64}};
    for (int i = 1; i < c->shape.rank; i++)
        fields[0].shape.dim[fields[0].shape.rank++] = c->shape.dim[i];
    if (c->tokens)
        fields[1].shape = fields[0].shape;
    t->nominal = (double)(c->tokens ? pl_elements(c->shape) : c->shape.dim[0]);
    if (c->nominal > 0)
        t->nominal = c->nominal;
    t->step = pl_graph_new(t->model, PL_TRAIN, fields, 2, c->shape.dim[0], err);
    if (!t->step)
        return PL_ENOMEM;
    module->step(t->step, t->module, PL_TRAIN);
    int code = pl_graph_gradients(t->step, t->nominal, false, err);
    if (code != PL_OK)
        return code;
    code = pl_graph_cast(t->step, t->model->precision, err);
    if (code != PL_OK)
        return code;
    pl_graph_prune(t->step);
    t->update =
        pl_optimizer_graph(&(pl_optimizer_t){.ops = c->optimizer, .self = t->options},
                           t->model, t->nominal, c->clip, err);
    return t->update ? PL_OK : PL_EINVAL;
}

int training_init(training_t *t, const training_case_t *of, pl_error_t *err)
{
    const size_t n = (size_t)pl_elements(of->shape);
    *t = (training_t){.of = of};
    t->module = training_component((const pl_component_t *)of->plugin()->table,
                                   of->options);
    t->options = training_component((const pl_component_t *)of->optimizer,
                                    of->optimizer_options);
    t->model = pl_model_new(err);
    t->x_samples = pl_alloc_array(n, sizeof *t->x_samples);
    t->x_tokens = pl_alloc_array(n, sizeof *t->x_tokens);
    t->y = pl_alloc_array(n, sizeof *t->y);
    if (t->model && of->precision)
        t->model->precision = of->precision;
    if (t->model)
        t->model->scaling = of->scaling, t->model->micro_batches = of->micro_batches;
    bool whole = t->module && t->options && t->model && t->x_samples && t->x_tokens
                 && t->y;
    int code = whole ? describe(t, err) : pl_no_memory(err);
    if (code != PL_OK)
        training_release(t);
    return code;
}

void training_release(training_t *t)
{
    pl_graph_free(t->step);
    pl_graph_free(t->update);
    pl_model_free(t->model);
    pl_free(t->module);
    pl_free(t->options);
    pl_free(t->x_samples);
    pl_free(t->x_tokens);
    pl_free(t->y);
    *t = (training_t){0};
}

/* How many parameters have a name before this one's. */
static int place_of(const pl_model_t *model, const char *name)
{
    int place = 0;
    for (int i = 0; i < model->count; i++)
        place += model->tensor[i].region == PL_REGION_PARAMS
                 && strcmp(model->tensor[i].name, name) < 0;
    return place;
}

static void parameter_fill(const training_t *t, const pl_tensor_info_t *p, double *data)
{
    const bool vector = p->shape.rank == 1, scale = vector && strstr(p->name, "weight");
    const double bound = vector ? 0.1 : 1 / sqrt((double)(p->count / p->shape.dim[0])),
                 centre = scale ? 1 : 0;
    formula_wave(p->count, place_of(t->model, p->name), centre - bound, centre + bound,
                 data + p->offset);
}

void training_fill(const training_t *t, pl_region_t region, double *data)
{
    for (int i = 0; i < t->model->count; i++) {
        const pl_tensor_info_t *p = &t->model->tensor[i];
        if (p->region == region && region == PL_REGION_PARAMS)
            parameter_fill(t, p, data);
        for (int64_t k = 0;
             k < p->count && p->region == region && region == PL_REGION_STATE; k++)
            data[p->offset + k] = p->init.kind == PL_INIT_CONSTANT ? p->init.a : 0;
    }
}

void training_batch(training_t *t, int step, const void *input[2])
{
    const int64_t n = pl_elements(t->of->shape), classes = t->of->classes;
    input[0] = t->of->tokens ? (const void *)t->x_tokens : t->x_samples;
    input[1] = t->y;
    if (t->of->tokens) {
        for (int64_t i = 0; i < n; i++) {
            t->x_tokens[i] = (i * i + step) % classes;
            t->y[i] = i % 7 == 3 ? -1 : (i * i + 2 * i + 1 + step) % classes;
        }
        return;
    }
    for (int64_t i = 0; i < t->of->shape.dim[0]; i++)
        t->y[i] = (3 * i + step * step) % classes;
    double *x = pl_alloc_array((size_t)n, sizeof *x);
    if (!x)
        return;
    formula_wave(n, 100 + step, -1, 1, x);
    for (int64_t i = 0; i < n; i++)
        t->x_samples[i] = (float)x[i];
    pl_free(x);
}

void training_scalars(const training_t *t, int step, double scalar[PL_STEP_SCALARS])
{
    const pl_optimizer_t optimizer = {.ops = t->of->optimizer, .self = t->options};
    pl_optimizer_scalars(&optimizer, 1, (uint64_t)step + 1, scalar);
}

/* What a tensor that should be nothing is measured by, as a bias before a batch norm. */
static double floor_of(const json_t *want)
{
    double largest = 0;
    const char *name;
    json_t *digest;
    json_object_foreach((json_t *)want, name, digest)
        largest = fmax(largest, json_number_value(json_array_get(digest, 0)));
    return largest / 1000;
}

double training_distance(const training_t *t, pl_region_t of, const double *region,
                         double factor, const json_t *want)
{
    const double floor = floor_of(want);
    double worst = 0;
    size_t found = 0;
    for (int i = 0; i < t->model->count; i++) {
        const pl_tensor_info_t *p = &t->model->tensor[i];
        const json_t *w = p->region == of ? json_object_get(want, p->name) : NULL;
        if (!w)
            continue;
        const digest_t d = digest_of(region + p->offset, p->count);
        const digest_t got = {d.norm * factor, d.sine * factor, d.cosine * factor},
                       wanted = {json_number_value(json_array_get(w, 0)),
                                 json_number_value(json_array_get(w, 1)),
                                 json_number_value(json_array_get(w, 2))};
        worst = tap_larger(worst, digest_distance(got, wanted, floor));
        found++;
    }
    return found == json_object_size(want) ? worst : INFINITY;
}
