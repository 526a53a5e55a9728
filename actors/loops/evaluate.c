/* evaluate.c - the evaluate loop: forward all batches of a stage, sum the sums */
#include <stdio.h>
#include <string.h>

#include "actors/loops/metrics.h"
#include "actors/loops/loops.h"
#include "actors/loops/forward_loop.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/run.h"

typedef struct evaluate {
    pl_forward_loop_t loop;                                /* first: see forward_loop.h */
    uint64_t global_step;
    pl_metrics_t sums;                                      /* of the source at hand */
    json_t *metrics;                                        /* of those before */
    uint32_t batches;
    pl_tracker_t whole;                       /* of measurements that came to their end */
    bool tries;                               /* which counts for nothing */
} evaluate_t;

static void evaluate_names(pl_forward_loop_t *loop, const char *names)
{
    pl_metrics_name(&((evaluate_t *)loop)->sums, pl_stages[loop->iter.stage].prefix,
                    names);
}

static void evaluate_batch(pl_forward_loop_t *loop,
                           const pl_evaluate_batch_reply_t *reply)
{
    pl_metrics_add(&((evaluate_t *)loop)->sums, reply->metrics);
}

static void evaluate_report(pl_forward_loop_t *loop)
{
    static const pl_run_event_t events[] = {
        [PL_VALIDATE] = PL_RUN_EVENT_VALIDATE, [PL_TEST] = PL_RUN_EVENT_TEST};
    pl_evaluate_progress_t progress = {.event = events[loop->iter.stage],
                                       .global_step = ((evaluate_t *)loop)->global_step,
                                       .epoch = loop->iter.epoch,
                                       .batch = loop->iter.done,
                                       .batches = loop->iter.batches,
                                       .metrics = ""};
    pl_progress_evaluate(loop->iter.call, &progress);
}

/* Validation changes nothing, so the run goes on; but who chooses weights by such a
 * metric should know. */
static void evaluate_warn(evaluate_t *e, const json_t *metrics)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)metrics, name, value) {
        if (json_is_null(value))
            pl_log_line(
                PL_LOG_WARNING, pl_actor_rank(e), pl_actor_name(e),
                "%s is not finite after step %llu: check the data and the weights", name,
                (unsigned long long)e->global_step);
    }
}

/* Of several sources each has sums of its own: "val_loss/dataloader_idx_1". */
static int metrics_add(json_t *all, const json_t *own, const pl_batch_iter_t *iter,
                       pl_error_t *err)
{
    char longer[128];
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)own, name, value) {
        snprintf(longer, sizeof longer, "%s/dataloader_idx_%u", name, iter->loader);
        if (json_object_set(all, iter->loaders > 1 ? longer : name, value) != 0)
            return pl_no_memory(err);
    }
    return PL_OK;
}

static int evaluate_keep(evaluate_t *e, pl_error_t *err)
{
    json_t *own = json_object();
    int code = own ? pl_metrics_put(&e->sums, PL_METRICS_OF_PASS, own, err)
                   : pl_no_memory(err);
    if (code == PL_OK)
        code = metrics_add(e->metrics, own, &e->loop.iter, err);
    evaluate_warn(e, own);
    e->batches += e->loop.iter.done;
    json_decref(own);
    return code;
}

static void evaluate_reply(evaluate_t *e, pl_call_t *call)
{
    pl_error_t err = {0};
    char *text = pl_metrics_text(e->metrics, &err);
    if (text)
        pl_reply_evaluate(call,
                          &(pl_evaluate_reply_t){.metrics = text, .batches = e->batches});
    else
        pl_call_fail(call, &err);
    pl_free(text);
}

/* One source after the other. */
static void evaluate_end(pl_forward_loop_t *loop, pl_call_t *call)
{
    evaluate_t *e = (evaluate_t *)loop;
    pl_error_t err = {0};
    if (evaluate_keep(e, &err) != PL_OK) {
        pl_call_fail(call, &err);
        return;
    }
    pl_metrics_clear(&e->sums);
    if (++loop->iter.loader < loop->iter.loaders) {
        pl_forward_loop_begin(loop, call);
        return;
    }
    if (!e->tries)
        e->whole = loop->iter.counts;
    evaluate_reply(e, call);
}

static int evaluate_evaluate(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    static const pl_forward_loop_ops_t ops = {.on_batch = evaluate_batch,
                                              .report = evaluate_report,
                                              .end = evaluate_end,
                                              .on_names = evaluate_names};
    evaluate_t *e = self;
    pl_forward_loop_t *loop = &e->loop;
    int code = pl_batch_iter_is_idle(&loop->iter, err);
    if (code != PL_OK)
        return code;
    e->global_step = body->evaluate.global_step;
    loop->iter.counts = e->whole;
    pl_metrics_clear(&e->sums);
    loop->ops = &ops;
    loop->iter.known = loop->iter.known && loop->iter.stage == body->evaluate.stage;
    loop->iter.stage = body->evaluate.stage;
    loop->iter.loader = e->batches = 0;
    json_object_clear(e->metrics);
    loop->iter.epoch = body->evaluate.epoch;
    loop->limit = loop->iter.stage == PL_TEST ? loop->iter.options->limit_test_batches
                                              : loop->iter.options->limit_val_batches;
    e->tries = body->evaluate.max_batches != 0;
    loop->max = e->tries ? body->evaluate.max_batches : UINT32_MAX;
    snprintf(loop->what, sizeof loop->what, "the %s after step %llu",
             loop->iter.stage == PL_TEST ? "test" : "validation",
             (unsigned long long)e->global_step);
    pl_forward_loop_begin(loop, call);
    return PL_OK;
}

/* ---- what a checkpoint keeps ---- */

static int evaluate_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    (void)body;
    const evaluate_t *e = self;
    json_t *kept = json_pack("{s:{s:o}}", "counts", "val_batches",
                             pl_tracker_save(&e->whole));
    char *text = kept ? pl_metrics_text(kept, err) : (pl_no_memory(err), NULL);
    json_decref(kept);
    if (!text)
        return err->code;
    int code = pl_reply_get_state(call, &(pl_get_state_reply_t){.state = text});
    pl_free(text);
    return code;
}

static int evaluate_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    evaluate_t *e = self;
    const char *text = body->set_state.state;
    json_t *kept = pl_json_read(text, strlen(text), "the evaluate loop's state", err);
    if (!kept)
        return err->code;
    const json_t *counts = json_object_get(kept, "counts");
    pl_tracker_load(&e->whole, json_object_get(counts, "val_batches"));
    json_decref(kept);
    return pl_reply_set_state(call, &(pl_set_state_reply_t){0});
}

/* ---- the actor ---- */

static void evaluate_cancel(void *self, pl_call_t *call)
{
    evaluate_t *e = self;
    if (pl_is_life(self, call))
        pl_actor_end(self, NULL);
    else if (call == e->loop.iter.call)
        pl_forward_loop_cancel(&e->loop);
}

static int evaluate_start(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    evaluate_t *e = self;
    e->metrics = json_object();
    return e->metrics ? pl_forward_loop_start(self, call, body, err) : pl_no_memory(err);
}

static void evaluate_release(void *self)
{
    evaluate_t *e = self;
    pl_metrics_release(&e->sums);
    json_decref(e->metrics);
}

static const pl_handler_t evaluate_handlers[] = {
    PL_ON(start, evaluate_start),
    PL_ON(evaluate, evaluate_evaluate),
    PL_ON(get_state, evaluate_get_state),
    PL_ON(set_state, evaluate_set_state),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_evaluate_loop = {
    .name = "evaluate",
    .help = "forwards all batches of a stage",
    .size = sizeof(evaluate_t),
    .role = "loop",
    .level = PL_LEVEL_EVAL_LOOP,
    .handlers = evaluate_handlers,
    .on_cancel = evaluate_cancel,
    .release = evaluate_release,
};
