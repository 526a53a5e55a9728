/* tuner.c - the tuner: finds a learning rate by training with one that grows
 *
 * The range test of Smith, "Cyclical learning rates for training neural networks", 2017,
 * like Lightning's lr_find: the rate grows exponentially from step to step, the loss is
 * smoothed, and the rate is good where it falls most steeply.  The trained weights are
 * dropped. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/loops/loops.h"
#include "actors/loops/batch_iter.h"
#include "actors/loops/search_result.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"

enum { SKIP_BEGIN = 10, SKIP_END = 1 };                     /* trials that are not used */
#define SMOOTHING 0.98
#define REPORT_EVERY (INT64_C(1000000000) / 10)             /* ns */

typedef struct trial {
    double lr, loss;                                        /* loss: smoothed */
} trial_t;

typedef struct tuner {
    pl_batch_iter_t iter;                                   /* first: see batch_iter.h */
    pl_job_t *job;                                          /* counted */
    const pl_tuning_t *tuning;                              /* of the job */
    trial_t *trial;                                         /* [num_training] */
    uint32_t sent, kept;
    double average, best;
    bool ended;
    int64_t began, reported;
    pl_outcome_t *outcome;
} tuner_t;

/* ---- trials ---- */

static double rate_at(const pl_tuning_t *what, uint32_t step)
{
    double share = step ? (step + 1) / (double)what->num_training : 0;
    return what->min_lr * pow(what->max_lr / what->min_lr, share);
}

/* ---- the result ---- */

/* The rate at which the loss falls most from one trial to the next, by central
 * differences; NaN: there are too few trials. */
static double steepest(const tuner_t *t)
{
    const int last = (int)t->kept - 1 - SKIP_END;
    double min = INFINITY, lr = NAN;
    for (int k = SKIP_BEGIN; k <= last && last > SKIP_BEGIN; k++) {
        const int before = k > SKIP_BEGIN ? k - 1 : k, behind = k < last ? k + 1 : k;
        const double slope = (t->trial[behind].loss - t->trial[before].loss)
                             / (behind - before);
        if (!(slope < min))
            continue;
        min = slope;
        lr = t->trial[k].lr;
    }
    return lr;
}

/* ---- the iteration ---- */

static uint32_t tuner_begun(pl_batch_iter_t *iter, uint32_t there)
{
    const tuner_t *t = (tuner_t *)iter;
    const uint32_t left = (uint32_t)t->tuning->num_training - t->sent;
    if (there == 0)
        pl_fail(&iter->failure, PL_EINVAL, "there are no training batches to tune with");
    return there < left ? there : left;
}

static bool tuner_may_fetch(const pl_batch_iter_t *iter)
{
    const tuner_t *t = (const tuner_t *)iter;
    return !t->ended && !t->iter.stopping && !pl_batch_iter_is_sync_point(iter);
}

/* Reports the newest rate and its loss. */
static void tuner_report(tuner_t *t)
{
    const trial_t *newest = t->kept ? &t->trial[t->kept - 1] : NULL;
    char *metrics =
        newest ? pl_json_to_text(json_pack("{s:o, s:o}", "lr", pl_json_number(newest->lr),
                                           "train_loss", pl_json_number(newest->loss)),
                                 NULL)
               : NULL;
    if (!metrics)
        return;
    t->reported = pl_now();
    pl_progress_run(t->iter.call,
                    &(pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN,
                                         .global_step = t->kept,
                                         .total_steps = (uint64_t)t->tuning->num_training,
                                         .epoch = t->iter.epoch,
                                         .batch = t->iter.done,
                                         .batches = t->iter.batches,
                                         .metrics = metrics});
    pl_text_free(metrics);
}

/* Keeps the mean of all losses so far, in which newer ones have more weight, without the
 * bias of its start at 0.  The test ends when the loss explodes; a rate at which nothing
 * is finite any more ends it without an error. */
static void step_answered(void *self, const pl_answer_t *answer)
{
    tuner_t *t = self;
    double loss[2] = {0};
    if (answer->kind == PL_ANSWER_ERROR && t->kept > 0
        && (t->ended || answer->error->code == PL_ENAN)) {
        t->ended = true;
        t->iter.pending--;
        pl_batch_iter_continue(&t->iter);
        return;
    }
    if (pl_batch_iter_no_reply(&t->iter, answer))
        return;
    const pl_bytes_t metrics = answer->body->train_batch_reply.metrics;
    if (metrics.size >= sizeof loss)
        memcpy(loss, metrics.data, sizeof loss);
    if (!t->ended) {
        const double newest = loss[1] > 0 ? loss[0] / loss[1] : 0,
                     stop = t->tuning->early_stop_threshold;
        const uint32_t k = t->kept++;
        t->average = SMOOTHING * t->average + (1 - SMOOTHING) * newest;
        double smooth = t->average / (1 - pow(SMOOTHING, k + 1));
        t->trial[k] = (trial_t){rate_at(t->tuning, k), smooth};
        if (!isfinite(newest) || (stop > 0 && k > 1 && smooth > stop * t->best))
            t->ended = true;
        if (k == 0 || smooth < t->best)
            t->best = smooth;
    }
    pl_batch_iter_batch_done(&t->iter, answer->body->train_batch_reply.halt);
    if (pl_now() - t->reported >= REPORT_EVERY)
        tuner_report(t);
    pl_batch_iter_continue(&t->iter);
}

/* The job's own rate is 1 and has no schedule, so the factor is the rate. */
static uint64_t tuner_send(pl_batch_iter_t *iter, const pl_fetch_batch_reply_t *batch)
{
    tuner_t *t = (tuner_t *)iter;
    const pl_train_batch_t msg = {.global_step = t->sent + 1,
                                  .step_due = true,
                                  .lr_factor = rate_at(t->tuning, t->sent),
                                  .batch = batch->batch};
    t->sent++;
    return pl_call_train_batch(iter, iter->strategy, &msg,
                               (pl_how_t){.on_answer = step_answered}, &iter->failure);
}

/* The data ended, or the search does. */
static void tuner_rest(pl_batch_iter_t *iter)
{
    tuner_t *t = (tuner_t *)iter;
    t->iter.stopping |= pl_batch_iter_is_sync_point(iter);
    if (!t->ended && !t->iter.stopping && t->sent < t->tuning->num_training) {
        iter->epoch++;
        pl_batch_iter_begin(iter, pl_batch_iter_take_call(iter));
        return;
    }
    json_t *trials = json_array();
    for (uint32_t k = 0; k < t->kept; k++)
        trials = pl_json_append(trials, json_pack("{s:o, s:o}", "lr",
                                                  pl_json_number(t->trial[k].lr), "loss",
                                                  pl_json_number(t->trial[k].loss)));
    t->outcome->global_step = t->kept;
    pl_search_end(pl_batch_iter_take_call(&t->iter), t->outcome,
                  &(pl_search_result_t){
                      .metrics =
                          json_pack("{s:o}", "lr",
                                    pl_json_number(t->iter.stopping ? NAN : steepest(t))),
                      .trials = trials,
                      .began = t->began,
                      .stopped = t->iter.stopping});
}

static void tuner_what(const pl_batch_iter_t *iter, char text[160])
{
    snprintf(text, 160, "step %u of the search for a learning rate",
             ((const tuner_t *)iter)->kept + 1);
}

/* ---- the run ---- */

static int tuner_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    static const pl_batch_iter_ops_t ops = {.on_begun = tuner_begun,
                                            .may_fetch = tuner_may_fetch,
                                            .send = tuner_send,
                                            .rest = tuner_rest,
                                            .what = tuner_what};
    (void)call, (void)err;
    tuner_t *t = self;
    t->job = pl_object_ref(body->start.context);
    t->tuning = &t->job->tuning;
    pl_batch_iter_init(&t->iter, &ops, body);
    pl_actor_ready(self);
    return PL_OK;
}

static int tuner_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)body;
    tuner_t *t = self;
    if (t->outcome)
        return pl_fail(err, PL_EBUSY, "the tuner has already run");
    t->trial = pl_alloc_array((size_t)t->tuning->num_training, sizeof *t->trial);
    t->outcome = t->trial ? pl_outcome_new(err) : NULL;
    if (!t->outcome)
        return pl_no_memory(err);
    t->began = pl_now();
    t->iter.stage = PL_TRAIN;
    pl_batch_iter_begin(&t->iter, call);
    return PL_OK;
}

static void tuner_release(void *self)
{
    tuner_t *t = self;
    pl_object_unref(t->outcome);
    pl_free(t->trial);
    pl_object_unref(t->job);
}

static const pl_handler_t tuner_handlers[] = {
    PL_ON(start, tuner_start),
    PL_ON(run, tuner_run),
    PL_ON(stop, pl_batch_iter_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_tuner = {
    .name = "tuner",
    .help = "finds a learning rate",
    .size = sizeof(tuner_t),
    .role = "loop",
    .level = PL_LEVEL_TUNER,
    .handlers = tuner_handlers,
    .release = tuner_release,
};
