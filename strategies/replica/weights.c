/* weights.c - a replica's tensors to the host and back
 *
 * A region comes as one block, and the weights borrow their tensors from it: nothing
 * is copied twice between the device and a file. It returns as one block if the
 * tensors lie in the block as in the region, and may then stay there: fresh memory
 * takes longer to get than to fill. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/options.h"
#include "strategies/replica/weights_match.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/precision.h"

/* ---- which regions there are ---- */

/* The number of elements of a region in an export. */
static int64_t region_count(const pl_replica_t *r, int region, bool whole)
{
    const bool module = region == PL_REGION_PARAMS || region == PL_REGION_STATE;
    const bool own = region >= PL_REGION_STRATEGY0
                     && region < PL_REGION_STRATEGY0 + PL_STRATEGY_REGIONS;
    if (region == PL_REGION_GRADS || region == PL_REGION_STATE_BACKUP || own
        || region == PL_REGION_COLLECTIVE || region == PL_REGION_CACHE
        || !(whole || module))
        return 0;
    return pl_replica_region_count(r, (pl_region_t)region);
}

/* The region of the device that holds a region of an export: weights are read as the
 * average, if there is one. */
static pl_region_t region_of(const pl_replica_t *r, int region)
{
    if (r->averaging.ops && region == PL_REGION_PARAMS)
        return PL_REGION_AVERAGE;
    if (r->averaging.ops && region == PL_REGION_AVERAGE)
        return PL_REGION_PARAMS;
    return (pl_region_t)region;
}

/* Whether a region has elements for a tensor of the module. */
static bool is_in(const pl_tensor_info_t *tensor, int region)
{
    return tensor->region
           == (region == PL_REGION_STATE ? PL_REGION_STATE : PL_REGION_PARAMS);
}

/* ---- export ---- */

/* The state of a whole export besides tensors, in order. */
static const struct {
    int (*save)(const pl_replica_t *r, json_t *into, pl_error_t *err);
    int (*restore)(pl_replica_t *r, const json_t *from, pl_error_t *err);
} saved[] = {
    {pl_replica_save_schedule, pl_replica_restore_schedule},
    {pl_replica_save_frozen, pl_replica_restore_frozen},
    {pl_replica_save_rates, pl_replica_restore_rates},
    {pl_replica_save_counts, pl_replica_restore_counts},
};

enum { SAVED = sizeof saved / sizeof *saved };

static int weights_collect(const pl_replica_t *r, pl_weights_t *weights, pl_error_t *err)
{
    json_t *state = json_object();
    int code = state ? PL_OK : pl_no_memory(err);
    for (int k = 0; k < SAVED && r->exports_whole && code == PL_OK; k++)
        code = saved[k].save(r, state, err);
    if (code == PL_OK && r->exports_whole)
        code = pl_replica_save_plans(r, state, err);
    if (code == PL_OK && r->exports_whole && r->read[PL_REGION_SCALING])
        code = pl_replica_save_scaling(r->read[PL_REGION_SCALING], state, err);
    if (code == PL_OK && r->exports_whole
        && !(weights->state = pl_json_write(state, PL_JSON_COMPACT)))
        code = pl_no_memory(err);
    json_decref(state);
    for (int region = 0; region < PL_REGIONS && code == PL_OK; region++) {
        if (!r->read[region] || region == PL_REGION_SCALING)
            continue;
        weights->block[region] = pl_object_ref(r->read[region]);
        for (int k = 0; k < r->model->count && code == PL_OK; k++) {
            const pl_tensor_info_t *t = &r->model->tensor[k];
            if (is_in(t, region))
                code = pl_weights_borrow(weights, region, t->name, t->shape, t->offset,
                                         err);
        }
    }
    weights->data_info = pl_strdup(r->data_info);
    weights->module = pl_options_get(r->job->options, "module");
    return code == PL_OK && !(weights->data_info && weights->module) ? pl_no_memory(err)
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
    if (!pl_replica_all_ended(&r->calls, answer))
        return;
    pl_error_t err = {0};
    pl_weights_t *weights = pl_weights_new(&err);
    if (weights && weights_collect(r, weights, &err) == PL_OK)
        pl_reply_export_weights(r->calls.waiting, &(pl_export_weights_reply_t){
                                                      .weights = &weights->object});
    else
        pl_call_fail(r->calls.waiting, &err);
    blocks_drop(r);
    pl_object_unref(weights);
}

int pl_replica_export(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_replica_t *r = self;
    const bool whole = body->export_weights.whole;
    int code = pl_replica_begin_calls(&r->calls, call, err);
    if (code != PL_OK)
        return code;
    blocks_drop(r);
    r->exports_whole = whole;
    for (int k = 0; whole && k < pl_replica_slots(r) && pl_replica_is_partitioned(r);
         k++) {
        pl_floats_t *slot = r->sync_hooks->take_slot(r, k);
        if (!slot)
            return pl_fail(err, PL_ESTATE,
                           "each rank keeps a partition of the optimizer's state, and "
                           "the ranks have not gathered it: it cannot be saved");
        r->read[PL_REGION_SLOT0 + k] = slot;
    }
    for (int region = 0; region < PL_REGIONS && code == PL_OK; region++) {
        pl_read_region_t msg = {.region = region_of(r, region),
                                .count = (uint64_t)region_count(r, region, whole),
                                .after = pl_replica_reduced_fence(r)};
        pl_how_t how = {.on_answer = read_answered, .context = &r->read[region]};
        if (msg.count && !r->read[region])
            code = pl_replica_made_call(
                &r->calls, pl_call_read_region(r, r->accelerator, &msg, how, err), err);
    }
    return pl_replica_made_all(&r->calls, code, err);
}

static void prepare_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    if (answer->kind == PL_ANSWER_REPLY)
        pl_reply_prepare_export(answer->context, &(pl_prepare_export_reply_t){0});
    else if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(answer->context, answer->error);
}

int pl_replica_prepare_export(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    pl_replica_t *r = self;
    (void)body;
    uint64_t count[PL_REGIONS] = {0};
    for (int region = 0; region < PL_REGIONS; region++)
        if (region_count(r, region, true))
            count[region_of(r, region)] = (uint64_t)region_count(r, region, true);
    const pl_prepare_reads_t msg = {.counts = {count, sizeof count}};
    const pl_how_t how = {.on_answer = prepare_answered, .context = call};
    return pl_call_prepare_reads(r, r->accelerator, &msg, how, err) ? PL_OK : err->code;
}

/* ---- import ---- */

static void import_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    if (pl_replica_all_ended(&r->calls, answer))
        pl_reply_import_weights(r->calls.waiting, &(pl_import_weights_reply_t){0});
}

/* An import, and what was found of it. */
typedef struct import {
    const pl_weights_t *weights;
    bool whole;
    bool gives;                          /* it owns the only reference */
    bool partly;                         /* tensors that do not fit are left out */
    bool writes;                         /* false: only checks that everything is there */
    int taken;
} import_t;

/* The block that a tensor is borrowed from, if its elements have the region's type and
 * begin at *first; NULL: they must be copied. */
static pl_floats_t *tensor_block(const pl_weights_t *weights, const pl_output_t *tensor,
                                 pl_dtype_t dtype, uint64_t *first)
{
    const bool wide = dtype == PL_F64;
    pl_floats_t *block = tensor->borrowed ? weights->block[tensor->region] : NULL;
    if (!block || wide != (block->dtype == PL_F64))
        return NULL;
    *first = (uint64_t)(wide ? tensor->wide - block->wide : tensor->data - block->data);
    return block;
}

static int floats_write(pl_replica_t *r, pl_write_region_t msg, pl_floats_t *floats,
                        pl_error_t *err)
{
    const pl_how_t how = {.on_answer = import_answered};
    msg.floats = &floats->object;
    msg.after = pl_replica_reduced_fence(r);
    return pl_replica_made_call(&r->calls,
                                pl_call_write_region(r, r->accelerator, &msg, how, err),
                                err);
}

/* Writes the elements of a tensor that lie in a piece of the parameters, from the
 * piece's slots on. */
static int piece_write(pl_replica_t *r, pl_write_region_t msg, const pl_piece_t *piece,
                       const pl_tensor_info_t *t, pl_floats_t *floats, pl_error_t *err)
{
    const int64_t last = piece->first + piece->count,
                  from = t->offset > piece->first ? t->offset : piece->first,
                  end = t->offset + t->count < last ? t->offset + t->count : last;
    msg.offset = (uint64_t)(piece->slot + from - piece->first);
    msg.count = (uint64_t)(end - from);
    msg.first += (uint64_t)(from - t->offset);
    return from < end ? floats_write(r, msg, floats, err) : PL_OK;
}

static int tensor_write(pl_replica_t *r, const pl_weights_t *weights,
                        const pl_output_t *from, const pl_tensor_info_t *t,
                        pl_region_t region, pl_error_t *err)
{
    const pl_dtype_t dtype = pl_region_dtype(r->model->precision, region);
    const bool is_slot = region >= PL_REGION_SLOT0 && region < PL_REGION_SLOT0 + PL_SLOTS;
    pl_piece_t piece = {t->offset, t->count, t->offset};
    pl_write_region_t msg = {.region = region};
    pl_floats_t *block = tensor_block(weights, from, dtype, &msg.first), *copy = NULL;
    if (!block && !(copy = pl_floats_new(dtype, (size_t)t->count, err)))
        return err->code;
    if (copy)
        pl_floats_fill(copy, 0, from);
    pl_floats_t *floats = block ? block : copy;
    int code = is_slot ? PL_OK : piece_write(r, msg, &piece, t, floats, err);
    for (int k = 0; is_slot && code == PL_OK && pl_replica_own_piece(r, k, &piece); k++)
        code = piece_write(r, msg, &piece, t, floats, err);
    pl_object_unref(copy);
    return code;
}

/* A further region for a region's elements: the backup of the state; weights
 * without optimizer state are also the start of an average. */
static pl_region_t second_region(const pl_replica_t *r, const import_t *import,
                                 int region)
{
    if (region == PL_REGION_STATE && pl_replica_backs_up_state(r))
        return PL_REGION_STATE_BACKUP;
    if (region == PL_REGION_PARAMS && !import->whole && r->averaging.ops)
        return PL_REGION_PARAMS;
    return region_of(r, region);
}

static int tensor_import(pl_replica_t *r, const import_t *import,
                         const pl_output_t *found, const pl_tensor_info_t *t, int region,
                         pl_error_t *err)
{
    const pl_region_t to = region_of(r, region),
                      second = second_region(r, import, region);
    char have[64], want[64];
    if (!found)
        return pl_fail(err, PL_EFORMAT,
                       "the weights have no tensor \"%s\"%s: they are of another %s",
                       t->name, region < PL_REGION_SLOT0 ? "" : " of the optimizer",
                       region < PL_REGION_SLOT0 ? "module" : "optimizer");
    if (!pl_same_shape(found->shape, t->shape))
        return pl_fail(err, PL_EFORMAT,
                       "tensor \"%s\" of the weights is %s, the module's is %s", t->name,
                       pl_shape_text(found->shape, have), pl_shape_text(t->shape, want));
    int code = PL_OK;
    if (import->writes)
        code = tensor_write(r, import->weights, found, t, to, err);
    if (code == PL_OK && import->writes && second != to)
        code = tensor_write(r, import->weights, found, t, second, err);
    return code;
}

/* The block that holds all tensors of a region, from *first on, as the region does, so
 * that they can be written at once; NULL: there is none. */
static pl_floats_t *region_block(const pl_replica_t *r, const import_t *import,
                                 int region, int *near, uint64_t *first)
{
    const pl_dtype_t dtype = pl_region_dtype(r->model->precision, region_of(r, region));
    const uint64_t count = (uint64_t)region_count(r, region, true);
    pl_floats_t *block = NULL;
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        uint64_t at = 0;
        if (!is_in(t, region))
            continue;
        pl_floats_t *from =
            tensor_block(import->weights,
                         pl_weights_find(import->weights, region, t->name, (*near)++),
                         dtype, &at);
        if (!block)
            *first = at - (uint64_t)t->offset;
        if (!from || (block && from != block) || at != *first + (uint64_t)t->offset)
            return NULL;
        block = from;
    }
    if (!block || *first > block->count || count > block->count - *first)
        return NULL;
    return block;
}

static int region_import(pl_replica_t *r, import_t *import, int region, pl_error_t *err)
{
    /* Weights alone come without a master copy: it begins with the same. */
    const bool alone = region == PL_REGION_MASTER && !import->whole;
    int own = 0, near = import->taken, code = PL_OK;
    int *taken = alone ? &own : &import->taken;
    pl_floats_t *block = NULL;
    uint64_t first = 0;
    /* Slots are imported even if this rank keeps none. */
    const int slot = region - PL_REGION_SLOT0;
    const bool is_imported = slot >= 0 && slot < PL_SLOTS
                                 ? import->whole && r->job->stage == PL_TRAIN
                                       && slot < pl_replica_slots(r)
                                 : region_count(r, region, import->whole || alone) > 0;
    if (!is_imported || region == PL_REGION_SCALING)
        return PL_OK;
    if (import->writes && !import->partly && !alone && !pl_replica_is_partitioned(r))
        block = region_block(r, import, region, &near, &first);
    if (block) {
        import->taken = near;
        /* A block for two regions cannot be given to both. */
        const pl_region_t to = region_of(r, region),
                          second = second_region(r, import, region);
        pl_write_region_t msg = {.region = to,
                                 .first = first,
                                 .count = (uint64_t)region_count(r, region, true),
                                 .take_ownership = import->gives && second == to};
        code = floats_write(r, msg, block, err);
        msg.region = second;
        return code == PL_OK && second != to ? floats_write(r, msg, block, err) : code;
    }
    for (int k = 0; k < r->model->count && code == PL_OK; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (is_in(t, region) && !(import->partly && !pl_weights_fit(import->weights, t)))
            code = tensor_import(r, import,
                                 pl_weights_find(import->weights,
                                                 alone ? PL_REGION_PARAMS : region,
                                                 t->name, (*taken)++),
                                 t, region, err);
    }
    return code;
}

static int regions_import(pl_replica_t *r, import_t import, pl_error_t *err)
{
    int code = PL_OK;
    for (int region = 0; region < PL_REGIONS && code == PL_OK; region++)
        code = region_import(r, &import, region, err);
    if (code == PL_OK && import.whole && import.weights->count > import.taken)
        code = pl_fail(
            err, PL_EFORMAT,
            "the weights have %d tensor%s, the module has %d: they are of another module",
            import.weights->count, pl_plural(import.weights->count), import.taken);
    return code;
}

static int state_restore(pl_replica_t *r, const char *text, pl_error_t *err)
{
    json_t *state = text ? pl_json_value(text, strlen(text), err) : json_object();
    int code = state ? PL_OK : PL_EFORMAT;
    for (int k = 0; k < SAVED && code == PL_OK; k++)
        code = saved[k].restore(r, state, err);
    if (code == PL_OK)
        code = pl_replica_restore_scaling(r, state, import_answered, err);
    if (code == PL_OK)
        pl_replica_compare_plans(r, state);
    json_decref(state);
    return code;
}

/* The weights may fit partly, if that is allowed: a fit may start from those that do, and
 * the rest begins with its first values, which a warning reports. */
static int import_check(pl_replica_t *r, const import_t *import, const pl_weights_t *file,
                        pl_error_t *err)
{
    pl_error_t why = {0};
    int fits = 0;
    const int code = pl_weights_match(r->model, &r->module, import->weights, file,
                                      r->job->stage == PL_PREDICT, &why);
    if (code == PL_OK)
        return PL_OK;
    for (int k = 0; k < r->model->count; k++)
        fits += pl_weights_fit(import->weights, &r->model->tensor[k]);
    if (!import->partly || !fits)
        return pl_fail(err, code, "%s%s",
                       import->partly ? "none of the tensors fits: " : "", why.text);
    pl_log_line(PL_LOG_WARNING, pl_actor_rank(r), pl_actor_name(r),
                "%d of %d tensors are used, because module.init_strict is off: the "
                "others keep their first values (%s)",
                fits, r->model->count, why.text);
    return PL_OK;
}

/* Checks that everything is there and fits before anything is written. */
int pl_replica_import(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_replica_t *r = self;
    const pl_import_weights_t *msg = &body->import_weights;
    pl_weights_t *weights = (pl_weights_t *)msg->weights,
                 *ours = pl_weights_import(&r->module, weights, err);
    import_t import = {.weights = ours,
                       .whole = msg->whole,
                       .gives = msg->take_ownership,
                       .partly = !msg->whole && r->job->stage == PL_TRAIN
                                 && !r->job->module->init_strict};
    int code = ours ? import_check(r, &import, weights, err) : err->code;
    if (code == PL_OK)
        code = regions_import(r, import, err);
    if (code == PL_OK)
        code = pl_replica_begin_calls(&r->calls, call, err);
    if (code == PL_OK && msg->whole && r->job->stage == PL_TRAIN)
        code = state_restore(r, weights->state, err);
    if (code == PL_OK) {
        import.writes = true;
        code = pl_replica_made_all(&r->calls, regions_import(r, import, err), err);
    }
    pl_object_unref(ours);
    return code;
}
