/* gradients.c - the gradients of an objective to the program of a manual loop, and back
 *
 * On the device they are those of sum/nominal, so that those of several batches add up
 * (gradients.c of engine/tensor).  The program sees those of the mean over the samples of
 * this rank, which the optimizer makes of them with one rank.  The weight of these
 * samples lies behind the gradients.  So it is read before the gradients are set, too. */
#include <string.h>

#include "base/error.h"
#include "base/suggestion.h"
#include "base/run.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

static double element(const pl_floats_t *floats, size_t k)
{
    return floats->dtype == PL_F64 ? floats->wide[k] : (double)floats->data[k];
}

static void tensor_scale(pl_floats_t *floats, const pl_tensor_info_t *t, double factor)
{
    const size_t first = (size_t)t->offset, end = first + (size_t)t->count;
    for (size_t k = first; k < end && floats->dtype == PL_F64; k++)
        floats->wide[k] *= factor;
    for (size_t k = first; k < end && floats->dtype != PL_F64; k++)
        floats->data[k] = (float)(floats->data[k] * factor);
}

/* The gradients that were read, as means; borrowed from the block. */
static int gradients_reply(pl_replica_t *r, pl_call_t *call, pl_floats_t *floats,
                           double weight, pl_error_t *err)
{
    pl_weights_t *weights = pl_weights_new(err);
    int code = weights ? PL_OK : PL_ENOMEM;
    if (weights)
        weights->block[PL_REGION_PARAMS] = pl_object_ref(floats);
    for (int k = 0; k < r->model->count && code == PL_OK; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (!pl_is_trained(t, r->gradients_of))
            continue;
        tensor_scale(floats, t, r->nominal / weight);
        code = pl_weights_borrow(weights, PL_REGION_PARAMS, t->name, t->shape, t->offset,
                                 err);
    }
    if (code == PL_OK)
        code = pl_reply_gradients(call,
                                  &(pl_gradients_reply_t){.weights = &weights->object});
    pl_object_unref(weights);
    return code;
}

static void set_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    if (pl_replica_all_ended(&r->calls, answer))
        pl_reply_gradients(r->calls.waiting, &(pl_gradients_reply_t){0});
}

/* The parameter that a given gradient belongs to, or NULL with an error. */
static const pl_tensor_info_t *tensor_of(const pl_replica_t *r, const pl_output_t *given,
                                         pl_error_t *err)
{
    char text[PL_SUGGESTION_TEXT];
    pl_suggestion_t nearest;
    const pl_tensor_info_t *t = pl_model_find(r->model, given->name);
    if (t && pl_is_trained(t, r->gradients_of) && pl_same_shape(t->shape, given->shape))
        return t;
    if (t && pl_is_trained(t, r->gradients_of)) {
        pl_fail(err, PL_EINVAL,
                "the gradient of \"%s\" has shape %s, but the parameter has %s",
                given->name, PL_TEXT_OF(given->shape), PL_TEXT_OF(t->shape));
        return NULL;
    }
    pl_suggestion_init(&nearest, given->name);
    for (int k = 0; k < r->model->count; k++)
        if (pl_is_trained(&r->model->tensor[k], r->gradients_of))
            pl_suggestion_offer(&nearest, r->model->tensor[k].name);
    pl_fail(err, PL_EINVAL, "the objective trains no parameter \"%s\": %s", given->name,
            pl_suggestion_text(&nearest, text));
    return NULL;
}

/* All are checked before the first is set. */
static int gradients_set(pl_replica_t *r, pl_floats_t *floats, double weight,
                         pl_error_t *err)
{
    const pl_weights_t *given = r->gradients;
    const pl_how_t how = {.on_answer = set_answered};
    int code = PL_OK;
    for (int k = 0; k < given->count && code == PL_OK; k++)
        code = tensor_of(r, &given->tensor[k], err) ? PL_OK : err->code;
    for (int k = 0; k < given->count && code == PL_OK; k++) {
        const pl_tensor_info_t *t = pl_model_find(r->model, given->tensor[k].name);
        pl_floats_fill(floats, t->offset, &given->tensor[k]);
        tensor_scale(floats, t, weight / r->nominal);
        const pl_write_region_t msg = {.region = PL_REGION_GRADS,
                                       .offset = (uint64_t)t->offset,
                                       .first = (uint64_t)t->offset,
                                       .count = (uint64_t)t->count,
                                       .floats = &floats->object,
                                       .after = pl_replica_reduced_fence(r)};
        code = pl_replica_made_call(
            &r->calls, pl_call_write_region(r, r->accelerator, &msg, how, err), err);
    }
    if (code == PL_OK && !r->calls.pending)
        return pl_reply_gradients(r->calls.waiting, &(pl_gradients_reply_t){0});
    return pl_replica_made_all(&r->calls, code, err);
}

static void read_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_error_t err = {0};
    if (!pl_replica_all_ended(&r->calls, answer))
        return;
    pl_call_t *call = r->calls.waiting;
    pl_floats_t *floats = (pl_floats_t *)answer->body->read_region_reply.floats;
    const double weight =
        element(floats, (size_t)r->model->params + 2 * (size_t)r->gradients_of + 1);
    int code = PL_OK;
    if (!(weight > 0))
        code =
            pl_fail(&err, PL_EINVAL,
                    "the samples that the gradients are of have weight %g: there is no "
                    "mean over them",
                    weight);
    else if (!r->gradients)
        code = gradients_reply(r, call, floats, weight, &err);
    else
        code = gradients_set(r, floats, weight, &err);
    if (code != PL_OK)
        pl_call_fail(call, &err);
}

int pl_replica_gradients_of(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err)
{
    pl_replica_t *r = self;
    const pl_how_t how = {.on_answer = read_answered};
    int code = pl_replica_begin_calls(&r->calls, call, err);
    if (code != PL_OK)
        return code;
    r->gradients_of = (int)body->gradients.objective;
    r->gradients = (const pl_weights_t *)body->gradients.weights;
    const pl_read_region_t msg = {.region = PL_REGION_GRADS,
                                  .count = (uint64_t)r->model->params
                                           + 2 * (uint64_t)r->objectives,
                                  .after = pl_replica_reduced_fence(r)};
    return pl_replica_made_call(&r->calls,
                                pl_call_read_region(r, r->accelerator, &msg, how, err),
                                err);
}
