/* freeze.c - parameters that are not trained, for a while or for the whole run
 *
 * No gradient of them is computed and no optimizer updates them: the plans that train
 * are made again without them, between two steps. Calls that arrive in between wait. */
#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/pattern.h"
#include "base/run.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"

/* ---- which ---- */

/* Takes over the frozen flags of all tensors; *changes: whether some changed. Each
 * objective needs a parameter to train: a step without parameters would have nothing
 * to do. */
static int frozen_take(pl_replica_t *r, const bool *frozen, bool *changes,
                       pl_error_t *err)
{
    *changes = false;
    for (int k = 0; k < r->objectives; k++) {
        const pl_module_objective_t *objective = r->objective[k].table;
        bool left = false;
        for (int i = 0; i < r->model->count && !left; i++)
            left = r->model->tensor[i].region == PL_REGION_PARAMS
                   && r->model->tensor[i].objective == k && !frozen[i];
        if (!left && r->model->params)
            return pl_fail(err, PL_EINVAL,
                           "all parameters%s%s%s are frozen: leave at least one to train",
                           objective ? " of objective \"" : "",
                           objective ? objective->name : "", objective ? "\"" : "");
    }
    for (int i = 0; i < r->model->count; i++) {
        *changes |= r->model->tensor[i].frozen != frozen[i];
        r->model->tensor[i].frozen = frozen[i];
    }
    return PL_OK;
}

static int patterns_take(pl_replica_t *r, const char *freeze, const char *unfreeze,
                         const char *whose, bool *changes, pl_error_t *err)
{
    int code = pl_replica_check_patterns(r->model, freeze, whose, err);
    if (code == PL_OK)
        code = pl_replica_check_patterns(r->model, unfreeze, whose, err);
    bool *frozen = code == PL_OK ? pl_alloc_array((size_t)r->model->count, sizeof *frozen)
                                 : NULL;
    if (!frozen)
        return code == PL_OK ? pl_no_memory(err) : code;
    for (int i = 0; i < r->model->count; i++) {
        const pl_tensor_info_t *t = &r->model->tensor[i];
        frozen[i] = t->region == PL_REGION_PARAMS
                    && (t->frozen || pl_patterns_match(freeze, t->name))
                    && !pl_patterns_match(unfreeze, t->name);
    }
    code = frozen_take(r, frozen, changes, err);
    pl_free(frozen);
    return code;
}

int pl_replica_freeze_first(pl_replica_t *r, pl_error_t *err)
{
    bool changes;
    const char *patterns = r->job->trainer->freeze;
    if (r->job->stage != PL_TRAIN || !*patterns)
        return PL_OK;
    return patterns_take(r, patterns, "", "\"trainer.freeze\"", &changes, err);
}

/* ---- in the middle of a run ---- */

static int remake(pl_replica_t *r, pl_error_t *err);

static void remade(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_replica_compiled(r, answer);
    const bool succeeded = pl_replica_all_ended(&r->freezing, answer);
    if (succeeded) {
        /* The plans are there; a request that came in between is done with them next. */
        pl_error_t err = {0};
        const bool again = r->freezes_again;
        r->freezes_again = false;
        if (!again || remake(r, &err) != PL_OK)
            pl_train_release(r, again ? &err : NULL);
    } else if (!r->freezing.pending && answer->kind != PL_ANSWER_PROGRESS)
        pl_train_release(r, &r->freezing.failure);
}

static int remake(pl_replica_t *r, pl_error_t *err)
{
    return pl_replica_made_all(&r->freezing, pl_replica_recompile(r, remade, err), err);
}

/* Steps wait until it is done; other calls do not. */
static int remake_begin(pl_replica_t *r, pl_error_t *err)
{
    int code = PL_OK;
    if (r->freezing.pending) {
        r->freezes_again = true;
        return PL_OK;
    }
    if ((code = pl_train_hold(r, err)) == PL_OK)
        code = pl_replica_begin_calls(&r->freezing, NULL, err);
    return code == PL_OK ? remake(r, err) : code;
}

/* After a failure training must not continue as if it were done: the next step fails,
 * too. */
int pl_replica_freeze(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_replica_t *r = self;
    const pl_freeze_t *msg = &body->freeze;
    bool changes = false;
    int code = patterns_take(r, msg->freeze, msg->unfreeze, "the patterns to freeze",
                             &changes, err);
    if (code == PL_OK && changes)
        code = remake_begin(r, err);
    if (code != PL_OK) {
        pl_train_release(r, err);
        return code;
    }
    pl_freeze_reply_t reply = {.trained = 0};
    for (int i = 0; i < r->model->count; i++) {
        const pl_tensor_info_t *t = &r->model->tensor[i];
        if (t->region == PL_REGION_PARAMS && !t->frozen)
            reply.trained += (uint64_t)t->count;
    }
    return pl_reply_freeze(call, &reply);
}

/* ---- in checkpoints: {"frozen": ["fc1.weight", …]}, next to the other state ---- */

int pl_replica_save_frozen(const pl_replica_t *r, json_t *into, pl_error_t *err)
{
    bool is_needed = *r->job->trainer->freeze;
    for (int i = 0; i < r->model->count; i++)
        is_needed |= r->model->tensor[i].frozen;
    if (!is_needed)
        return PL_OK;
    json_t *frozen = json_array();
    int failed = json_object_set_new(into, "frozen", frozen);
    for (int i = 0; i < r->model->count && !failed; i++)
        if (r->model->tensor[i].frozen)
            failed = json_array_append_new(frozen, json_string(r->model->tensor[i].name));
    return failed ? pl_no_memory(err) : PL_OK;
}

int pl_replica_restore_frozen(pl_replica_t *r, const json_t *from, pl_error_t *err)
{
    size_t k;
    json_t *name;
    const json_t *names = json_object_get(from, "frozen");
    int code = PL_OK;
    bool changes = false,
         *frozen = names ? pl_alloc_array((size_t)r->model->count, sizeof *frozen) : NULL;
    if (!names)
        return PL_OK;
    if (!frozen)
        return pl_no_memory(err);
    json_array_foreach(names, k, name) {
        const char *text = json_string_value(name);
        const pl_tensor_info_t *t = text ? pl_model_find(r->model, text) : NULL;
        if (!t && code == PL_OK)
            code = pl_fail(err, PL_EFORMAT,
                           "the state of the checkpoint freezes \"%s\", which the module "
                           "does not have",
                           text ? text : "");
        if (t)
            frozen[t - r->model->tensor] = true;
    }
    if (code == PL_OK)
        code = frozen_take(r, frozen, &changes, err);
    pl_free(frozen);
    return code == PL_OK && changes ? remake_begin(r, err) : code;
}
