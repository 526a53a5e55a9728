/* model.c - the module of a replica and its precision: how the device keeps the model,
 * and the model info for users and for numbers of speed
 *
 * The first graph is described: the graph of training batches, if there is one. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/options.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/precision.h"

/* ---- the module ---- */

/* "classes" is missing if the target is a value: then the module is the wrong one. */
int pl_replica_bind_module(pl_replica_t *r, pl_error_t *err)
{
    const pl_options_t *options = r->job->options;
    const pl_component_request_t module = {.role = "module",
                                           .path = "module",
                                           .data_info = r->data_info};
    pl_error_t why = {0};
    const pl_field_t *target = NULL;
    if (pl_options_component(options, &module, &r->module, &why) == PL_OK)
        return PL_OK;
    for (int stage = 0; stage <= PL_PREDICT; stage++)
        for (int k = 0; k < r->signature->stage[stage].field_count && !target; k++)
            if (!strcmp(r->signature->stage[stage].field[k].name, "y"))
                target = &r->signature->stage[stage].field[k];
    if (!strstr(why.text, "needs \"classes\"") || !target || target->dtype != PL_F32)
        return pl_options_fail(err, why.code, options, "module", "%s", why.text);
    const char *name = pl_options_component_name(options, "module");
    return pl_options_fail(err, why.code, options, "module",
                           "module \"%s\" needs \"classes\", but the target is a value, "
                           "and module %s classifies; module mlp predicts values, too "
                           "(\"Models for values\" in doc/modules.md)",
                           name, name);
}

int pl_replica_report_model(pl_replica_t *r, const pl_graph_t *g,
                            const double step_bytes[2], pl_error_t *err)
{
    json_t *layers = pl_graph_layers(g, r->model, err);
    json_int_t parameters = 0, state = 0, frozen = 0, tokens = 0;
    if (!layers)
        return err->code;
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        parameters += t->region == PL_REGION_PARAMS ? t->count : 0;
        state += t->region == PL_REGION_STATE ? t->count : 0;
        frozen += t->frozen ? t->count : 0;
    }
    /* The length of samples that are sequences of whole numbers; otherwise 0. */
    for (int k = 0; k < g->field_count && !tokens; k++)
        if (g->field[k].dtype != PL_F32 && g->field[k].shape.rank == 1)
            tokens = g->field[k].shape.dim[0];
    json_t *object =
        json_pack("{s:o, s:I, s:I, s:I, s:f, s:I}", "layers", layers, "parameters",
                  parameters, "frozen", frozen, "state", state, "train_flops",
                  3 * pl_graph_flops(g) / (double)g->batch_size, "tokens", tokens);
    for (int k = 0; k < 2 && step_bytes[0] > 0; k++)
        object = pl_json_with(object, k ? "step_bytes_kept" : "step_bytes",
                              json_real(step_bytes[k]));
    r->reported = object ? pl_json_write(object, PL_JSON_COMPACT) : NULL;
    json_decref(object);
    return r->reported ? PL_OK : pl_no_memory(err);
}

/* ---- the precision ---- */

int pl_replica_bind_precision(pl_replica_t *r, pl_error_t *err)
{
    const pl_component_request_t request = {.role = "precision",
                                            .path = "trainer.precision",
                                            .automatic = pl_precision_32_true.name};
    int code = pl_options_component(r->job->options, &request, &r->precision, err);
    if (code != PL_OK)
        return code;
    r->model->precision = r->precision.ops;
    if (r->model->precision->scales)
        r->model->scaling = r->precision.self;
    r->model->micro_batches = (int)r->job->trainer->accumulate_grad_batches;
    return PL_OK;
}

int64_t pl_replica_region_count(const pl_replica_t *r, pl_region_t region)
{
    const pl_model_t *model = r->model;
    const bool trains = r->job->stage == PL_TRAIN;
    switch (region) {
    case PL_REGION_PARAMS: return model->params;
    case PL_REGION_STATE: return model->state;
    case PL_REGION_GRADS: return trains ? model->params + 2 * r->objectives : 0;
    case PL_REGION_STATE_BACKUP:
        return trains && pl_replica_backs_up_state(r) ? model->state : 0;
    case PL_REGION_AVERAGE: return trains && r->averaging.ops ? model->params : 0;
    case PL_REGION_MASTER:
        return trains && pl_has_master(model->precision) ? model->params : 0;
    case PL_REGION_COLLECTIVE: return pl_replica_collectives_end(r);
    case PL_REGION_CACHE: return r->cache;
    case PL_REGION_SCALING: return trains && model->scaling ? PL_SCALING_COUNT : 0;
    default: break;
    }
    const int own = (int)region - PL_REGION_STRATEGY0;
    if (own >= 0 && own < PL_STRATEGY_REGIONS)
        return trains && r->sync_hooks && r->sync_hooks->region
                   ? r->sync_hooks->region(r, own)
                   : 0;
    return trains && (int)region - PL_REGION_SLOT0 < pl_replica_slots(r)
               ? pl_replica_partition(r)
               : 0;
}

/* ---- the factor of the loss ---- */

static int call_write(pl_replica_t *r, const float value[PL_SCALING_COUNT],
                      pl_on_answer_t on_answer, pl_error_t *err)
{
    pl_floats_t *floats = pl_floats_new(PL_F32, PL_SCALING_COUNT, err);
    if (!floats)
        return PL_ENOMEM;
    for (int k = 0; k < PL_SCALING_COUNT; k++)
        floats->data[k] = value[k];
    const pl_write_region_t msg = {.region = PL_REGION_SCALING,
                                   .floats = &floats->object,
                                   .count = PL_SCALING_COUNT};
    const pl_how_t how = {.on_answer = on_answer};
    int code = pl_replica_made_call(
        &r->calls, pl_call_write_region(r, r->accelerator, &msg, how, err), err);
    pl_object_unref(floats);
    return code;
}

int pl_replica_begin_scaling(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err)
{
    if (!pl_replica_region_count(r, PL_REGION_SCALING))
        return PL_OK;
    const float first[PL_SCALING_COUNT] = {
        [PL_SCALING_FACTOR] = (float)r->model->scaling->init_scale};
    return call_write(r, first, on_answer, err);
}

/* ---- in checkpoints: {"loss_scale": 65536, "good_steps": 7, "skipped_steps": 2} ---- */

static const char *const keys[PL_SCALING_COUNT] = {
    [PL_SCALING_FACTOR] = "loss_scale",
    [PL_SCALING_GOOD] = "good_steps",
    [PL_SCALING_SKIPPED] = "skipped_steps",
};

int pl_replica_save_scaling(const pl_floats_t *floats, json_t *into, pl_error_t *err)
{
    int failed = 0;
    for (int k = 0; k < PL_SCALING_COUNT && !failed; k++)
        failed = json_object_set_new(into, keys[k], json_real((double)floats->data[k]));
    return failed ? pl_no_memory(err) : PL_OK;
}

int pl_replica_restore_scaling(pl_replica_t *r, const json_t *from,
                               pl_on_answer_t on_answer, pl_error_t *err)
{
    float value[PL_SCALING_COUNT];
    bool whole = true;
    if (!r->model->scaling)
        return PL_OK;
    for (int k = 0; k < PL_SCALING_COUNT; k++) {
        const json_t *number = json_object_get(from, keys[k]);
        value[k] = (float)json_number_value(number);
        whole = whole && json_is_number(number) && isfinite(value[k]) && value[k] >= 0;
    }
    if (!whole || value[PL_SCALING_FACTOR] == 0)
        return pl_fail(err, PL_EFORMAT,
                       "the state of the checkpoint has no usable scale of the loss");
    return call_write(r, value, on_answer, err);
}
