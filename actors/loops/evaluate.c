/* evaluate.c - the evaluate loop: forward all batches of a stage, sum the figures */
#include <stdio.h>

#include "actors/loops/figures.h"
#include "actors/loops/loops.h"
#include "actors/loops/walk.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

typedef struct evaluate {
    pl_walk_t walk;                                         /* first: see walk.h */
    uint64_t global_step;
    pl_figures_t figures;
} evaluate_t;

static void evaluate_names(pl_walk_t *walk, const char *names)
{
    static const char *const prefixes[] = {"train_", "val_", "test_", "predict_"};
    pl_figures_name(&((evaluate_t *)walk)->figures, prefixes[walk->pass.stage], names);
}

static void evaluate_batch(pl_walk_t *walk, const pl_evaluate_batch_reply_t *reply,
                           int64_t samples)
{
    (void)samples;
    pl_figures_add(&((evaluate_t *)walk)->figures, reply->figures);
}

static void evaluate_report(pl_walk_t *walk)
{
    pl_evaluate_progress_t progress = {.event = walk->pass.stage == PL_TEST ? "test"
                                                                            : "validate",
                                       .global_step = ((evaluate_t *)walk)->global_step,
                                       .epoch = walk->pass.epoch,
                                       .batch = walk->pass.done,
                                       .batches = walk->pass.batches,
                                       .metrics = ""};
    pl_progress_evaluate(walk->pass.call, &progress);
}

/* Validation changes nothing, so the run goes on; but who chooses weights by such a
 * figure should know. */
static void evaluate_warn(evaluate_t *e, const json_t *metrics)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)metrics, name, value)
    {
        if (json_is_null(value))
            pl_log_line(
                PL_LOG_WARNING, pl_actor_rank(e), pl_actor_name(e),
                "%s is not finite after step %llu: look at the data and the weights",
                name, (unsigned long long)e->global_step);
    }
}

static void evaluate_end(pl_walk_t *walk, pl_call_t *call)
{
    evaluate_t *e = (evaluate_t *)walk;
    pl_error_t err = {0};
    json_t *metrics = json_object();
    char *text = NULL;
    if (metrics
        && pl_figures_put(&e->figures, PL_FIGURES_OF_PASS, metrics, &err) == PL_OK)
        text = pl_metrics_text(metrics, &err);
    else if (!metrics)
        pl_no_memory(&err);
    evaluate_warn(e, metrics);
    json_decref(metrics);
    if (text)
        pl_reply_evaluate(call, &(pl_evaluate_reply_t){.metrics = text,
                                                       .batches = walk->pass.done});
    else
        pl_call_fail(call, &err);
    pl_free(text);
}

static int evaluate_evaluate(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    static const pl_walk_ops_t ops = {.on_batch = evaluate_batch,
                                      .report = evaluate_report,
                                      .end = evaluate_end,
                                      .on_names = evaluate_names};
    evaluate_t *e = self;
    pl_walk_t *walk = &e->walk;
    int code = pl_pass_is_idle(&walk->pass, err);
    if (code != PL_OK)
        return code;
    e->global_step = body->evaluate.global_step;
    pl_figures_clear(&e->figures);
    walk->ops = &ops;
    walk->pass.known = walk->pass.known && walk->pass.stage == body->evaluate.stage;
    walk->pass.stage = body->evaluate.stage;
    walk->pass.epoch = body->evaluate.epoch;
    walk->limit = walk->pass.stage == PL_TEST ? walk->pass.options->limit_test_batches
                                              : walk->pass.options->limit_val_batches;
    snprintf(walk->what, sizeof walk->what, "the %s after step %llu",
             walk->pass.stage == PL_TEST ? "test" : "validation",
             (unsigned long long)e->global_step);
    pl_walk_begin(walk, call);
    return PL_OK;
}

static void evaluate_cancel(void *self, pl_call_t *call)
{
    evaluate_t *e = self;
    if (pl_is_life(self, call))
        pl_actor_end(self, NULL);
    else if (call == e->walk.pass.call)
        pl_walk_cancel(&e->walk);
}

static void evaluate_release(void *self)
{
    pl_figures_release(&((evaluate_t *)self)->figures);
}

static const pl_handler_t evaluate_handlers[] = {
    PL_ON(start, pl_walk_start),
    PL_ON(evaluate, evaluate_evaluate),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_evaluate_loop = {
    .name = "evaluate",
    .help = "forward all batches of a stage",
    .size = sizeof(evaluate_t),
    .role = "loop",
    .level = PL_LEVEL_EVAL_LOOP,
    .handlers = evaluate_handlers,
    .on_cancel = evaluate_cancel,
    .release = evaluate_release,
};
