/* measure.c - the measure loop: one evaluation of given weights, as a run of its own:
 * validate, test */
#include "actors/loops/loops.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

typedef struct measure {
    pl_stage_t stage;
    pl_address_t evaluate;
    pl_call_t *call;                                        /* the run  [idle] */
    uint64_t evaluating;                                    /* the call */
    int64_t began;
    bool stopping;
    pl_outcome_t *outcome;
} measure_t;

static int measure_start(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    (void)call, (void)err;
    measure_t *m = self;
    m->stage = ((const pl_job_t *)body->start.context)->stage;
    m->evaluate = pl_peer(self, "evaluate");
    pl_actor_ready(self);
    return PL_OK;
}

static void measure_report(measure_t *m, const pl_evaluate_progress_t *p)
{
    pl_progress_run(m->call, &(pl_run_progress_t){.event = p->event,
                                                  .batch = p->batch,
                                                  .batches = p->batches,
                                                  .metrics = ""});
}

/* A part of the data gives no figure that could be compared: a stop leaves none. */
static void measure_end(measure_t *m, const char *metrics)
{
    pl_call_t *call = m->call;
    pl_error_t err;
    m->call = NULL;
    m->outcome->stopped = m->stopping;
    m->outcome->seconds = (double)(pl_now() - m->began) / 1e9;
    m->outcome->metrics = pl_strdup(metrics);
    if (m->outcome->metrics) {
        pl_reply_run(call, &(pl_run_reply_t){.outcome = &m->outcome->object});
        return;
    }
    pl_no_memory(&err);
    pl_call_fail(call, &err);
}

static void measured(void *self, const pl_answer_t *answer)
{
    measure_t *m = self;
    if (answer->kind == PL_ANSWER_PROGRESS)
        measure_report(m, &answer->body->evaluate_progress);
    if (answer->kind == PL_ANSWER_REPLY)
        measure_end(m, answer->body->evaluate_reply.metrics);
    if (answer->kind != PL_ANSWER_ERROR)
        return;
    if (m->stopping && answer->error->code == PL_ECANCELLED) {
        measure_end(m, "{}");
        return;
    }
    pl_call_t *call = m->call;
    m->call = NULL;
    pl_call_fail(call, answer->error);
}

static int measure_run(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)body;
    measure_t *m = self;
    pl_evaluate_t msg = {.stage = m->stage};
    pl_how_t how = {.on_answer = measured};
    if (m->outcome)
        return pl_fail(err, PL_EBUSY, "it evaluates once");
    m->outcome = pl_outcome_new(err);
    if (!m->outcome)
        return PL_ENOMEM;
    m->began = pl_now();
    m->evaluating = pl_call_evaluate(m, m->evaluate, &msg, how, err);
    if (!m->evaluating)
        return err->code;
    m->call = call;
    return PL_OK;
}

static int measure_stop(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)body, (void)err;
    measure_t *m = self;
    m->stopping = true;
    pl_cancel(m, m->evaluating);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void measure_release(void *self)
{
    pl_object_unref(((measure_t *)self)->outcome);
}

static const pl_handler_t measure_handlers[] = {
    PL_ON(start, measure_start),
    PL_ON(run, measure_run),
    PL_ON(stop, measure_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_measure_loop = {
    .name = "measure",
    .help = "one evaluation of given weights: validate, test",
    .size = sizeof(measure_t),
    .role = "loop",
    .level = PL_LEVEL_FIT_LOOP,
    .handlers = measure_handlers,
    .release = measure_release,
};
