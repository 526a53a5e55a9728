/* setup.c - the worker's lower half: weights from a checkpoint or a file, data,
 * and the strategy set up for them */
#include <inttypes.h>
#include <string.h>

#include "accelerators/auto_select.h"
#include "actors/loops/loops.h"
#include "actors/monitors.h"
#include "actors/worker/parts.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"
#include "base/run.h"
#include "tensor/graph.h"
#include "tensor/operators.h"

/* ---- All ranks have the same data ----
 *
 * Each rank opens its own data. If a file differs between machines, the ranks would make
 * different numbers of steps, of different sizes, and only their collective would
 * fail. */

/* Takes the text over. */
static char *text_add(char *text, const char *more)
{
    char *longer = text && more ? pl_text("%s%s", text, more) : NULL;
    pl_text_free(text);
    return longer;
}

static char *stage_add(char *text, const pl_batch_signature_t *signature,
                       pl_stage_t stage)
{
    char *more = pl_text("%s data of %" PRId64 " samples with", pl_stages[stage].source,
                         signature->stage[stage].samples);
    text = text_add(text, more);
    pl_text_free(more);
    for (int k = 0; k < signature->stage[stage].field_count; k++) {
        const pl_field_t *field = &signature->stage[stage].field[k];
        char shape[64];
        more = pl_text("%s %s %s %s", k ? "," : "", field->name,
                       pl_dtype_name(field->dtype), pl_shape_text(field->shape, shape));
        text = text_add(text, more);
        pl_text_free(more);
    }
    return text_add(text, "\n");
}

/* Samples and fields of each stage, one a line; pl_text_free(); NULL: out of memory. */
static char *data_describe(const pl_batch_signature_t *signature)
{
    char *text = pl_text("%s", "");
    for (int stage = 0; stage <= PL_PREDICT; stage++)
        if (signature->stage[stage].present)
            text = stage_add(text, signature, (pl_stage_t)stage);
    return text;
}

/* Compares the description of this rank's data with that of rank 0. */
static int data_check(const char *own, const char *first, int rank, pl_error_t *err)
{
    size_t a = strcspn(own, "\n"), b = strcspn(first, "\n");
    while (*own && *first && a == b && !strncmp(own, first, a)) {
        own += a + 1;
        first += b + 1;
        a = strcspn(own, "\n");
        b = strcspn(first, "\n");
    }
    if (!*own && !*first)
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "rank %d found other data than rank 0: %.*s; rank 0: %.*s; give all "
                   "ranks the same files",
                   rank, *own ? (int)a : 4, *own ? own : "none", *first ? (int)b : 4,
                   *first ? first : "none");
}

/* ---- The sequence ---- */

/* The strategy says that it goes on. */
static void phase_goes_on(pl_worker_t *w, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_PROGRESS)
        pl_watchdog_reset(&w->watchdog);
}

/* ---- weights from a file, the strategy, the data ---- */

/* The device has them; what they say besides is asked for by who answers a prompt. */
static void weights_let_go(pl_worker_t *w)
{
    if (w->job->prompt)
        return;
    pl_object_unref(w->weights);
    w->weights = NULL;
}

static void weights_imported(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    phase_goes_on(w, answer);
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_error_t err = *answer->error;
        pl_error_prefix(&err, "%s",
                        w->resume.manifest ? w->resume.path
                                           : pl_first_weights_path(w->job));
        pl_worker_fail(w, &err);
    } else if (!pl_worker_failed(w, answer)) {
        weights_let_go(w);
        pl_worker_go_on(w);
    }
}

/* That later runs find what was compiled: it was for them alone. */
static int plans_check(json_t *plans, const char *cache, pl_error_t *err)
{
    size_t k;
    json_t *plan;
    json_int_t pieces = 0, stored = 0;
    json_array_foreach(plans, k, plan) {
        pieces += json_integer_value(json_object_get(plan, "pieces"));
        stored += json_integer_value(json_object_get(plan, "stored"));
    }
    if (stored == pieces)
        return PL_OK;
    return pl_fail(err, PL_EIO,
                   "kept %lld of %lld pieces of kernels in %.256s, which cannot be "
                   "written to: set the accelerator's option cache_dir",
                   (long long)stored, (long long)pieces, cache);
}

static void plans_described(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_PROGRESS || !w->job->compiles
        || pl_worker_failed(w, answer))
        return;
    const pl_describe_plans_reply_t *reply = &answer->body->describe_plans_reply;
    pl_outcome_t *outcome = pl_outcome_new(&err);
    json_t *plans = json_loads(reply->plans, 0, NULL);
    if (outcome && !*reply->cache)
        pl_fail(&err, PL_EUNSUPPORTED,
                "the accelerator \"%s\" keeps no compiled kernels here: there is nothing "
                "to compile; set its options cache and cache_dir, or HOME",
                pl_options_choice(w->job->options, "trainer.accelerator",
                                  pl_accelerator_auto(w->job->options)));
    else if (outcome)
        plans_check(plans, reply->cache, &err);
    if (outcome && err.code == PL_OK) {
        json_t *text = json_pack("{s:s,s:O}", "cache", reply->cache, "plans", plans);
        outcome->seconds = (double)(pl_now() - w->set_up) / 1e9;
        outcome->metrics = pl_strdup("{}");
        outcome->text = text ? pl_json_write(text, PL_JSON_COMPACT) : NULL;
        json_decref(text);
        if (!outcome->text || !outcome->metrics)
            pl_no_memory(&err);
    }
    json_decref(plans);
    pl_call_t *call = w->run;
    if (err.code != PL_OK) {
        pl_worker_fail(w, &err);
    } else {
        w->run = NULL;
        pl_reply_run(call, &(pl_run_reply_t){.outcome = &outcome->object});
    }
    pl_object_unref(outcome);
}

/* For viewers and for pl_trainer_compile(), which waits for it. */
static void describe_plans(pl_worker_t *w)
{
    pl_error_t err = {0};
    const pl_how_t how = {.on_answer = plans_described};
    if (w->describes)
        pl_worker_sent(w,
                       pl_call_describe_plans(w, w->accelerator,
                                              &(pl_describe_plans_t){0}, how, &err),
                       &err);
}

static void strategy_set_up(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    phase_goes_on(w, answer);
    if (pl_worker_failed(w, answer))
        return;
    describe_plans(w);
    if (w->job->compiles)
        return;
    pl_show_model_t shown = {.model = answer->body->setup_reply.model,
                             .device_flops = w->device_flops,
                             .validates = w->validates
                                          && w->job->trainer->limit_val_batches.value
                                                 > 0};
    if (w->does_io && w->job->stage == PL_TRAIN && !w->job->manual_signature
        && !w->job->tuning.num_training
        && pl_monitors_find(w->job, answer->body->setup_reply.train_metrics,
                            shown.validates ? answer->body->setup_reply.val_metrics : "",
                            &err)
               != PL_OK) {
        pl_worker_fail(w, &err);
        return;
    }
    if (!pl_is_nobody(w->callback)
        && !pl_call_show_model(w, w->callback, &shown,
                               (pl_how_t){.on_answer = pl_worker_component_ended},
                               &err)) {
        pl_worker_fail(w, &err);
        return;
    }
    if (!w->weights) {
        pl_worker_go_on(w);
        return;
    }
    pl_import_weights_t msg = {.weights = &w->weights->object,
                               .whole = w->resume.manifest != NULL,
                               .take_ownership = true};
    const pl_how_t how = {.on_answer = weights_imported};
    pl_worker_phase(w, "importing weights");
    pl_worker_sent(w, pl_call_import_weights(w, w->strategy, &msg, how, &err), &err);
}

static void set_up(pl_worker_t *w, pl_batch_signature_t *signature, const char *data_info)
{
    pl_error_t err = {0};
    pl_setup_t msg = {.job = &w->job->object,
                      .data_info = data_info,
                      .signature = &signature->object,
                      .accumulates = w->accumulates,
                      .imports = w->weights && !pl_first_weights_partly(w->job)};
    const pl_how_t how = {.on_answer = strategy_set_up};
    pl_worker_phase(w, "compiling the module's objectives");
    w->set_up = pl_now();
    w->validates = signature->stage[PL_VALIDATE].present;
    pl_worker_sent(w, pl_call_setup(w, w->strategy, &msg, how, &err), &err);
}

/* What the module was made for goes before, unless it trains on. */
static void data_found(pl_worker_t *w, pl_batch_signature_t *signature,
                       const char *data_info)
{
    const bool known = w->weights && w->weights->data_info && w->job->stage != PL_TRAIN;
    set_up(w, signature, known ? w->weights->data_info : data_info);
}

static void data_compared(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    if (pl_worker_failed(w, answer))
        return;
    const char *first = answer->body->decide_reply.text;
    if (data_check(w->found, first, pl_actor_rank(w), &err) == PL_OK)
        data_found(w, w->signature, w->data_info);
    else
        pl_worker_fail(w, &err);
}

/* Before anything is made for them: what does not fit together is said in its own
 * words. */
static void data_compare(pl_worker_t *w, pl_batch_signature_t *signature,
                         const char *data_info)
{
    pl_error_t err = {0};
    const pl_how_t how = {.on_answer = data_compared};
    w->signature = pl_object_ref(signature);
    w->data_info = pl_strdup(data_info);
    w->found = data_describe(signature);
    if (!w->data_info || !w->found) {
        pl_no_memory(&err);
        pl_worker_fail(w, &err);
        return;
    }
    const pl_decide_t msg = {.text = w->found};
    pl_worker_phase_of_all(w, "comparing the data with rank 0");
    pl_worker_sent(w, pl_call_decide(w, w->hooks.coordinator, &msg, how, &err), &err);
}

static void data_opened(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    if (pl_worker_failed(w, answer))
        return;
    const pl_open_data_reply_t *reply = &answer->body->open_data_reply;
    pl_batch_signature_t *signature = (pl_batch_signature_t *)reply->signature;
    pl_error_t err = {0};
    w->content = pl_strdup(reply->content);
    if (!w->content || pl_resume_data(&w->resume, w->job, w->content, &err) != PL_OK) {
        if (!w->content)
            pl_no_memory(&err);
        pl_worker_fail(w, &err);
        return;
    }
    if (pl_is_nobody(w->hooks.coordinator))
        data_found(w, signature, reply->data_info);
    else
        data_compare(w, signature, reply->data_info);
}

/* What the batches will look like: the data say, or, when text goes on from a prompt,
 * what the weights bring along of the data they were trained on. */
static void find_layout(pl_worker_t *w)
{
    pl_error_t err = {0};
    pl_open_data_t msg = {.stage = w->job->stage,
                          .partition = w->partition,
                          .partitions = w->partitions,
                          .micro_shards = w->micro_shards,
                          .even = w->even,
                          .data_info = w->weights && w->weights->data_info
                                           ? w->weights->data_info
                                           : ""};
    const pl_how_t how = {.on_answer = data_opened};
    if (w->job->manual_signature) {
        data_found(w, w->job->manual_signature, w->job->manual_data_info);
        return;
    }
    if (!w->job->prompt) {
        pl_worker_phase(w, "opening the data");
        pl_worker_sent(w, pl_call_open_data(w, w->data, &msg, how, &err), &err);
        return;
    }
    pl_batch_signature_t *signature = pl_generate_signature(w->weights->data_info, &err);
    if (signature)
        set_up(w, signature, w->weights->data_info);
    else
        pl_worker_fail(w, &err);
    pl_object_unref(signature);
}

static void weights_read(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    if (pl_worker_failed(w, answer))
        return;
    w->weights = pl_object_ref(answer->body->read_weights_reply.weights);
    pl_first_weights_made(w->weights, w->made);
    if (pl_first_weights_check(w, w->job, w->weights, &err) == PL_OK)
        find_layout(w);
    else
        pl_worker_fail(w, &err);
}

static void begin_afresh(pl_worker_t *w)
{
    pl_error_t err = {0};
    const pl_read_weights_t msg = {.path = pl_first_weights_path(w->job)};
    const pl_how_t how = {.on_answer = weights_read};
    pl_worker_phase(w, "reading the first weights");
    if (msg.path)
        pl_worker_sent(w, pl_call_read_weights(w, w->writer, &msg, how, &err), &err);
    else
        find_layout(w);
}

/* ---- a checkpoint to go on from ---- */

static void resume_coordinated(void *self, const pl_answer_t *answer);

static void resume_go_on(pl_worker_t *w)
{
    if (w->weights)
        find_layout(w);
    else
        begin_afresh(w);
}

/* All ranks go on from the checkpoint that the first of them has found. */
static void agree_on(pl_worker_t *w, const char *path)
{
    pl_error_t err = {0};
    const pl_how_t how = {.on_answer = resume_coordinated};
    pl_worker_phase_of_all(w, "waiting until all ranks agree on a checkpoint");
    pl_worker_sent(w,
                   pl_call_decide(w, w->hooks.coordinator, &(pl_decide_t){.text = path},
                                  how, &err),
                   &err);
}

static void checkpoint_found(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    if (pl_worker_failed(w, answer))
        return;
    const pl_find_checkpoint_reply_t *found = &answer->body->find_checkpoint_reply;
    if (pl_resume_take(&w->resume, w->job, w, found, &err) != PL_OK) {
        pl_worker_fail(w, &err);
        return;
    }
    w->weights = pl_object_ref(found->weights);
    if (w->does_io && !pl_is_nobody(w->hooks.coordinator))
        agree_on(w, found->path);
    else
        resume_go_on(w);
}

/* The one that was agreed on  [NULL: to be looked for]. */
static void find_checkpoint(pl_worker_t *w, const char *agreed)
{
    pl_error_t err = {0};
    pl_find_checkpoint_t msg;
    const pl_how_t how = {.on_answer = checkpoint_found};
    pl_worker_phase(w, "finding the checkpoint");
    const bool known = pl_resume_is_requested(w->job, agreed, &msg, &err) == PL_OK;
    pl_worker_sent(w, known ? pl_call_find_checkpoint(w, w->keeper, &msg, how, &err) : 0,
                   &err);
}

static void resume_coordinated(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    if (pl_worker_failed(w, answer))
        return;
    const char *path = answer->body->decide_reply.text;
    if (w->does_io || !*path)
        resume_go_on(w);
    else
        find_checkpoint(w, path);
}

static void resume(pl_worker_t *w)
{
    if (w->does_io || pl_is_nobody(w->hooks.coordinator))
        find_checkpoint(w, NULL);
    else
        agree_on(w, "");
}

void pl_worker_begin(pl_worker_t *w)
{
    if (w->job->resumes || w->job->again)
        resume(w);
    else
        begin_afresh(w);
}
