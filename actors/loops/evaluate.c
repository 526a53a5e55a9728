/* evaluate.c - the evaluate loop: forwards all batches of a stage and adds up the sums of
 * their metrics */
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
    pl_metrics_t sums;                                      /* of the current source */
    json_t *metrics;                                        /* of the sources before it */
    uint32_t batches;
    pl_tracker_t whole;                         /* of complete evaluations */
    bool tries;                                 /* a sanity check, which is not counted */
} evaluate_t;

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

/* One source after the other; then the reply. */
static void evaluate_end(pl_forward_loop_t *loop, pl_call_t *call)
{
    evaluate_t *e = (evaluate_t *)loop;
    pl_error_t err = {0};
    /* The metrics of the current source; with several sources each has a number:
     * "val_loss/dataloader_idx_1".  A value that is not finite is a warning: validation
     * changes nothing, but a callback may choose weights by that metric. */
    const pl_batch_iter_t *iter = &e->loop.iter;
    char longer[128];
    const char *name;
    json_t *value, *own = json_object();
    int code = own ? pl_metrics_put(&e->sums, PL_METRICS_OF_PASS, own, &err)
                   : pl_no_memory(&err);
    json_object_foreach(own, name, value) {
        snprintf(longer, sizeof longer, "%s/dataloader_idx_%u", name, iter->loader);
        if (code == PL_OK
            && json_object_set(e->metrics, iter->loaders > 1 ? longer : name, value) != 0)
            code = pl_no_memory(&err);
        if (json_is_null(value))
            pl_log_line(
                PL_LOG_WARNING, pl_actor_rank(e), pl_actor_name(e),
                "%s is not finite after step %llu: check the data and the weights", name,
                (unsigned long long)e->global_step);
    }
    e->batches += iter->done;
    json_decref(own);
    if (code != PL_OK) {
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
    char *text = pl_metrics_text(e->metrics, &err);
    if (text)
        pl_reply_evaluate(call,
                          &(pl_evaluate_reply_t){.metrics = text, .batches = e->batches});
    else
        pl_call_fail(call, &err);
    pl_free(text);
}

static int evaluate_evaluate(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    static const pl_forward_loop_ops_t ops = {.report = evaluate_report,
                                              .end = evaluate_end};
    evaluate_t *e = self;
    pl_forward_loop_t *loop = &e->loop;
    int code = pl_batch_iter_is_idle(&loop->iter, err);
    if (code != PL_OK)
        return code;
    if (!e->metrics && !(e->metrics = json_object()))
        return pl_no_memory(err);
    e->global_step = body->evaluate.global_step;
    loop->iter.counts = e->whole;
    pl_metrics_clear(&e->sums);
    loop->ops = &ops;
    loop->sums = &e->sums;
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

/* ---- the state for a checkpoint ---- */

static int evaluate_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    (void)body;
    const evaluate_t *e = self;
    char *text = pl_json_to_text(json_pack("{s:{s:o}}", "counts", "val_batches",
                                           pl_tracker_save(&e->whole)),
                                 err);
    if (!text)
        return err->code;
    int code = pl_reply_get_state(call, &(pl_get_state_reply_t){.state = text});
    pl_text_free(text);
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

static void evaluate_release(void *self)
{
    evaluate_t *e = self;
    pl_metrics_release(&e->sums);
    json_decref(e->metrics);
}

static const pl_handler_t evaluate_handlers[] = {
    PL_ON(start, pl_forward_loop_start),
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
