/* replica_weights.c - a replica's tensors to the host and back
 *
 * A region comes as one block, and the weights lend their tensors from it: between the
 * device and a file nothing is copied twice. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica_calls.h"
#include "strategies/weights_match.h"
#include "strategies/replica_parts.h"
#include "tensor/model.h"

/* ---- which regions there are ---- */

/* The elements of a region that an export has. */
static int64_t region_count(const pl_replica_t *r, int region, bool whole)
{
    if (region == PL_REGION_PARAMS)
        return r->model->params;
    if (region == PL_REGION_STATE)
        return r->model->state;
    if (region < PL_REGION_SLOT0 || !whole || r->job->stage != PL_TRAIN)
        return 0;
    if (region == PL_REGION_SCALING)
        return r->model->scaling ? PL_SCALING_COUNT : 0;
    if (region == PL_REGION_AVERAGE)
        return r->averaging.ops ? r->model->params : 0;
    return region - PL_REGION_SLOT0 < pl_optimizer_slots(r->optimizer) ? r->model->params
                                                                       : 0;
}

pl_region_t pl_replica_region_of(const pl_replica_t *r, int region)
{
    if (r->averaging.ops && region == PL_REGION_PARAMS)
        return PL_REGION_AVERAGE;
    if (r->averaging.ops && region == PL_REGION_AVERAGE)
        return PL_REGION_PARAMS;
    return (pl_region_t)region;
}

/* Whether a tensor of the module has its like in a region. */
static bool is_in(const pl_tensor_info_t *tensor, int region)
{
    return tensor->region
           == (region == PL_REGION_STATE ? PL_REGION_STATE : PL_REGION_PARAMS);
}

/* ---- export ---- */

static int region_lend(const pl_replica_t *r, pl_weights_t *weights, int region,
                       pl_error_t *err)
{
    int code = PL_OK;
    weights->block[region] = pl_object_ref(r->read[region]);
    for (int k = 0; k < r->model->count && code == PL_OK; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (is_in(t, region))
            code = pl_weights_lend(weights, region, t->name, t->shape, t->offset, err);
    }
    return code;
}

/* What a whole export has besides tensors: {} when that is nothing. */
static int state_keep(const pl_replica_t *r, char **text_p, pl_error_t *err)
{
    json_t *state = json_object();
    int code = state ? pl_replica_keep_schedule(r, state, err) : pl_no_memory(err);
    if (code == PL_OK && r->read[PL_REGION_SCALING])
        code = pl_replica_keep_scaling(r->read[PL_REGION_SCALING], state, err);
    if (code == PL_OK && !(*text_p = pl_json_write(state, PL_JSON_COMPACT)))
        code = pl_no_memory(err);
    json_decref(state);
    return code;
}

static int weights_collect(const pl_replica_t *r, pl_weights_t *weights, pl_error_t *err)
{
    int code = r->exports_whole ? state_keep(r, &weights->state, err) : PL_OK;
    for (int region = 0; region < PL_REGIONS && code == PL_OK; region++)
        if (r->read[region] && region != PL_REGION_SCALING)
            code = region_lend(r, weights, region, err);
    weights->facts = pl_strdup(r->facts);
    weights->module = pl_options_get(r->job->options, "module");
    return code == PL_OK && !(weights->facts && weights->module) ? pl_no_memory(err)
                                                                 : code;
}

static void blocks_drop(pl_replica_t *r)
{
    for (int k = 0; k < PL_REGIONS; k++) {
        pl_object_unref(r->read[k]);
        r->read[k] = NULL;
    }
}

/* Answers `export_weights` when all regions are here. */
static void read_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_floats_t **into = answer->context;
    if (answer->kind == PL_ANSWER_REPLY)
        *into = pl_object_ref(answer->body->read_region_reply.floats);
    if (!pl_replica_all_ended(r, answer))
        return;
    pl_error_t err = {0};
    pl_weights_t *weights = pl_weights_new(&err);
    if (weights && weights_collect(r, weights, &err) == PL_OK)
        pl_reply_export_weights(r->waiting, &(pl_export_weights_reply_t){
                                                .weights = &weights->object});
    else
        pl_call_fail(r->waiting, &err);
    blocks_drop(r);
    pl_object_unref(weights);
}

int pl_replica_export(pl_replica_t *r, pl_call_t *call, bool whole, pl_error_t *err)
{
    int code = pl_replica_begin_calls(r, call, err);
    if (code != PL_OK)
        return code;
    blocks_drop(r);
    r->exports_whole = whole;
    for (int region = 0; region < PL_REGIONS && code == PL_OK; region++) {
        pl_read_region_t msg = {.region = pl_replica_region_of(r, region),
                                .count = (uint64_t)region_count(r, region, whole)};
        pl_how_t how = {.on_answer = read_answered, .context = &r->read[region]};
        if (msg.count)
            code = pl_replica_made_call(
                r, pl_call_read_region(r, r->accelerator, &msg, how, err), err);
    }
    return pl_replica_made_all(r, code, err);
}

/* ---- import ---- */

static void import_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    if (pl_replica_all_ended(r, answer))
        pl_reply_import_weights(r->waiting, &(pl_import_weights_reply_t){0});
}

static int tensor_fill(const pl_weights_t *weights, const pl_tensor_info_t *t, int region,
                       int near, pl_floats_t *into, pl_error_t *err)
{
    char have[64], want[64];
    const pl_output_t *found = pl_weights_find(weights, region, t->name, near);
    if (!found)
        return pl_fail(err, PL_EFORMAT,
                       "the weights have no tensor \"%s\"%s: they are of another %s",
                       t->name, region < PL_REGION_SLOT0 ? "" : " of the optimizer",
                       region < PL_REGION_SLOT0 ? "module" : "optimizer");
    if (!pl_same_shape(found->shape, t->shape))
        return pl_fail(err, PL_EFORMAT,
                       "tensor \"%s\" of the weights is %s, the module's is %s", t->name,
                       pl_shape_text(found->shape, have), pl_shape_text(t->shape, want));
    memcpy(into->data + t->offset, found->data, (size_t)t->count * sizeof(float));
    return PL_OK;
}

static int region_fill(const pl_replica_t *r, const pl_weights_t *weights, int region,
                       int *taken, pl_floats_t *into, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < r->model->count && code == PL_OK; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (is_in(t, region))
            code = tensor_fill(weights, t, region, (*taken)++, into, err);
    }
    return code;
}

/* All of it is there and fits, before anything is written. */
static int import_fill(const pl_replica_t *r, const pl_weights_t *weights, bool whole,
                       pl_floats_t *into[PL_REGIONS], pl_error_t *err)
{
    int taken = 0, code = PL_OK;
    for (int region = 0; region < PL_REGIONS && code == PL_OK; region++) {
        int64_t count = region_count(r, region, whole);
        if (!count || region == PL_REGION_SCALING)
            continue;
        into[region] = pl_floats_new((size_t)count, err);
        code = into[region] ? region_fill(r, weights, region, &taken, into[region], err)
                            : PL_ENOMEM;
    }
    if (code == PL_OK && weights->count > taken)
        code = pl_fail(
            err, PL_EFORMAT,
            "the weights have %d tensors, the module %d: they are of another module",
            weights->count, taken);
    return code;
}

static int call_write(pl_replica_t *r, pl_region_t region, pl_floats_t *from,
                      pl_error_t *err)
{
    const pl_write_region_t msg = {.region = region, .floats = &from->object};
    const pl_how_t how = {.on_answer = import_answered};
    return pl_replica_made_call(r,
                                pl_call_write_region(r, r->accelerator, &msg, how, err),
                                err);
}

/* Weights alone are the start of an average, too. */
static int import_write(pl_replica_t *r, pl_floats_t *const from[PL_REGIONS], bool whole,
                        pl_error_t *err)
{
    int code = PL_OK;
    for (int region = 0; region < PL_REGIONS && code == PL_OK; region++)
        if (from[region])
            code = call_write(r, pl_replica_region_of(r, region), from[region], err);
    if (code == PL_OK && from[PL_REGION_STATE] && pl_replica_keeps_state(r))
        code = call_write(r, PL_REGION_KEPT, from[PL_REGION_STATE], err);
    if (code == PL_OK && !whole && r->averaging.ops && from[PL_REGION_PARAMS])
        code = call_write(r, PL_REGION_PARAMS, from[PL_REGION_PARAMS], err);
    return pl_replica_made_all(r, code, err);
}

static int state_restore(pl_replica_t *r, const char *text, pl_error_t *err)
{
    json_t *state = text ? pl_json_value(text, strlen(text), err) : json_object();
    int code = state ? pl_replica_restore_schedule(r, state, err) : PL_EFORMAT;
    if (code == PL_OK)
        code = pl_replica_restore_scaling(r, state, import_answered, err);
    json_decref(state);
    return code;
}

int pl_replica_import(pl_replica_t *r, pl_call_t *call, pl_weights_t *weights, bool whole,
                      pl_error_t *err)
{
    pl_floats_t *into[PL_REGIONS] = {0};
    pl_weights_t *ours = pl_weights_adopt(&r->module, weights, err);
    int code = ours ? pl_weights_match(r->model, ours, err) : err->code;
    if (code == PL_OK)
        code = import_fill(r, ours, whole, into, err);
    if (code == PL_OK)
        code = pl_replica_begin_calls(r, call, err);
    if (code == PL_OK && whole && r->job->stage == PL_TRAIN)
        code = state_restore(r, weights->state, err);
    if (code == PL_OK)
        code = import_write(r, into, whole, err);
    for (int region = 0; region < PL_REGIONS; region++)
        pl_object_unref(into[region]);
    pl_object_unref(ours);
    return code;
}
