/* measure.c - the measure loop: one evaluation of given weights, as a run of its own
 * (validate, test) */
#include "actors/loops/hooks.h"
#include "actors/loops/metrics.h"
#include "actors/loops/loops.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

typedef struct measure_loop {
    pl_stage_t stage;
    int64_t global_step, epoch;                             /* options: of the weights */
    pl_address_t evaluate;
    pl_hooks_t hooks;
    json_t *metrics;
    pl_call_t *call;                                        /* the run  [idle] */
    uint64_t evaluating;                                    /* the call of evaluate */
    int64_t began;
    bool stopping;
    pl_outcome_t *outcome;
} measure_loop_t;

static const pl_option_t measure_options[] = {
    PL_INT(measure_loop_t, global_step, "0", "0..",
           "optimizer steps that made the weights"),
    PL_INT(measure_loop_t, epoch, "0", "0..", "epochs"),
    PL_OPTIONS_END,
};

static int measure_start(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    (void)call;
    measure_loop_t *m = self;
    m->stage = ((const pl_job_t *)body->start.context)->stage;
    m->evaluate = pl_peer(self, "evaluate");
    pl_hooks_init(&m->hooks, self);
    m->metrics = json_object();
    if (!m->metrics)
        return pl_no_memory(err);
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- one call after the other: hooks in use, start hook, evaluate, end hook ---- */

static void measure_end(measure_loop_t *m)
{
    pl_error_t err = {0};
    pl_call_t *call = m->call;
    m->outcome->stopped = m->stopping;
    m->outcome->global_step = (uint64_t)m->global_step;
    m->outcome->epoch = (uint32_t)m->epoch;
    m->outcome->seconds = (double)(pl_now() - m->began) / 1e9;
    m->outcome->metrics = pl_metrics_text(m->metrics, &err);
    if (!m->outcome->metrics) {
        pl_loop_fail(&m->call, &err);
        return;
    }
    m->call = NULL;
    pl_reply_run(call, &(pl_run_reply_t){.outcome = &m->outcome->object});
}

static bool measure_hook(measure_loop_t *m, pl_hook_t point, pl_on_answer_t then,
                         pl_error_t *err)
{
    pl_run_hook_t msg = {.point = point,
                         .epoch = (uint32_t)m->epoch,
                         .global_step = (uint64_t)m->global_step};
    return pl_hooks_run(m, &m->hooks, &msg, m->metrics, (pl_how_t){.on_answer = then},
                        err)
           != 0;
}

static void measure_end_hooked(void *self, const pl_answer_t *answer)
{
    measure_loop_t *m = self;
    pl_error_t err = {0};
    const pl_run_hook_t msg = {.epoch = (uint32_t)m->epoch,
                               .global_step = (uint64_t)m->global_step};
    if (pl_loop_no_reply(&m->call, answer))
        return;
    if (pl_hooks_log(m, &m->hooks, &msg, &answer->body->run_hook_reply, m->metrics, &err)
        == PL_OK)
        measure_end(m);
    else
        pl_loop_fail(&m->call, &err);
}

/* Metrics of a part of the data cannot be compared: after a stop there are none. */
static void measured(void *self, const pl_answer_t *answer)
{
    measure_loop_t *m = self;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_PROGRESS && m->call) {
        const pl_evaluate_progress_t *p = &answer->body->evaluate_progress;
        pl_progress_run(m->call, &(pl_run_progress_t){.event = p->event,
                                                      .batch = p->batch,
                                                      .batches = p->batches,
                                                      .metrics = ""});
    }
    if (answer->kind == PL_ANSWER_ERROR
        && (m->stopping || !pl_is_nobody(m->hooks.coordinator))
        && answer->error->code == PL_ECANCELLED) {
        m->stopping = true;
        measure_end(m);
        return;
    }
    if (pl_loop_no_reply(&m->call, answer))
        return;
    const pl_log_metrics_t log = {.epoch = (uint32_t)m->epoch,
                                  .global_step = (uint64_t)m->global_step,
                                  .metrics = answer->body->evaluate_reply.metrics};
    if (pl_metrics_merge(m->metrics, log.metrics, &err) != PL_OK
        || (!pl_is_nobody(m->hooks.logger)
            && !pl_call_log_metrics(m, m->hooks.logger, &log, (pl_how_t){0}, &err))
        || !measure_hook(m,
                         m->stage == PL_TEST ? PL_HOOK_TEST_END : PL_HOOK_VALIDATION_END,
                         measure_end_hooked, &err))
        pl_loop_fail(&m->call, &err);
}

/* Several ranks stop together, during the evaluation. */
static void measure_start_hooked(void *self, const pl_answer_t *answer)
{
    measure_loop_t *m = self;
    pl_error_t err = {0};
    if (pl_loop_no_reply(&m->call, answer))
        return;
    const pl_run_hook_reply_t *request = &answer->body->run_hook_reply;
    const bool alone = pl_is_nobody(m->hooks.coordinator);
    m->stopping = (m->stopping && alone) || request->stop || request->skip;
    if (m->stopping) {
        measure_end(m);
        return;
    }
    const pl_evaluate_t msg = {.stage = m->stage,
                               .epoch = (uint32_t)m->epoch,
                               .global_step = (uint64_t)m->global_step};
    m->evaluating = pl_call_evaluate(m, m->evaluate, &msg,
                                     (pl_how_t){.on_answer = measured}, &err);
    if (!m->evaluating)
        pl_loop_fail(&m->call, &err);
}

static void measure_hooks_known(void *self, const pl_answer_t *answer)
{
    measure_loop_t *m = self;
    pl_error_t err = {0};
    if (pl_loop_no_reply(&m->call, answer))
        return;
    m->hooks.points = answer->body->callback_hooks_reply.points;
    if (!measure_hook(m,
                      m->stage == PL_TEST ? PL_HOOK_TEST_START : PL_HOOK_VALIDATION_START,
                      measure_start_hooked, &err))
        pl_loop_fail(&m->call, &err);
}

static int measure_run(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)body;
    measure_loop_t *m = self;
    if (m->outcome)
        return pl_fail(err, PL_EBUSY, "the loop has already run");
    m->outcome = pl_outcome_new(err);
    if (!m->outcome
        || !pl_hooks_query(m, &m->hooks, (pl_how_t){.on_answer = measure_hooks_known},
                           err))
        return err->code;
    m->began = pl_now();
    m->call = call;
    return PL_OK;
}

static int measure_stop(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)body, (void)err;
    measure_loop_t *m = self;
    m->stopping = true;
    if (!pl_is_nobody(m->hooks.coordinator))
        pl_call_request_sync(m, m->hooks.coordinator, &(pl_request_sync_t){0},
                             (pl_how_t){0}, NULL);
    else
        pl_cancel(m, m->evaluating);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void measure_release(void *self)
{
    measure_loop_t *m = self;
    pl_hooks_release(&m->hooks);
    json_decref(m->metrics);
    pl_object_unref(m->outcome);
}

static const pl_handler_t measure_handlers[] = {
    PL_ON(start, measure_start),
    PL_ON(run, measure_run),
    PL_ON(stop, measure_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_measure_loop = {
    .name = "measure",
    .help = "evaluates given weights once: validate, test",
    .size = sizeof(measure_loop_t),
    .options = measure_options,
    .role = "loop",
    .level = PL_LEVEL_FIT_LOOP,
    .handlers = measure_handlers,
    .release = measure_release,
};
