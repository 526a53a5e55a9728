/* batch_size.c - the batch-size finder: tries larger and larger batches until memory ends
 *
 * Like Lightning's BatchSizeFinder it makes a few steps with batches of a size, then with
 * twice as many samples, until the memory or the samples end.  A binary search follows,
 * between the largest size that fits and the smallest that does not.  If the first size
 * does not fit, it halves the size until one fits.
 *
 * Linux promises more memory than there is and kills a process that uses it, so the need
 * of the next size is estimated from earlier ones.  Where the device has memory of its
 * own, that is measured, and a size that does not fit there fails with an error.  The
 * trained weights are dropped.
 *
 * The speed of a size is the median of several timings.  Each begins and ends with
 * nothing in flight, and is long enough that the clock and the messages do not matter.
 * Sizes are equally fast if they differ by less than the timings of one size, within
 * limits.
 *
 * Several ranks do the same at once.  Each measures its own time and memory, but rank 0
 * decides what comes next, and a size fits only if it fits on all ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/loops/loops.h"
#include "actors/loops/batch_iter.h"
#include "actors/loops/search_result.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/median.h"
#include "base/memory.h"

static const double MEMORY_SHARE = 0.9;      /* of the host's free memory, unless given */
static const int64_t TIMING = PL_SECOND / 25;  /* at least */

/* The calls of a trial, in order.  Between the last two the steps are trained. */
typedef enum trial_step {
    COUNT_BEFORE,                    /* the memory in use, once, before the first trial */
    RELOAD,                          /* the data, with batches of the size */
    SIGNATURE,                       /* plans for such batches */
    POLL,                            /* all ranks: does it fit? */
    COUNT,                           /* the memory in use */
    DECIDE,                          /* the next size, for all ranks */
} trial_step_t;

typedef struct finder {
    pl_batch_iter_t iter;        /* first: see batch_iter.h */
    pl_job_t *job;               /* counted */
    const pl_tuning_t *tuning;   /* of the job */
    bool halves;                 /* a binary search follows */
    pl_call_t *run;              /* while no iteration runs  [NULL] */
    trial_step_t step;           /* whose call is open */
    pl_object_t *signature;      /* for SIGNATURE, of the reply to RELOAD; borrowed */
    bool fits;                   /* for POLL: the last call did not run out of memory */
    pl_next_trial_t next;        /* for DECIDE */
    pl_size_trial_t *trial;      /* [max_trials] */
    int64_t tried, size, max;    /* max: samples of the data  [0: unknown] */
    int64_t low, high;           /* fits; does not fit  [0: not known yet] */
    bool warm, ends, runs;       /* of the trial: one step is done; the timing is to
                                    end; its clock runs */
    int64_t since, spent, samples;  /* of the timing: start of its clock; time before */
    double *rate;                /* [steps_per_trial]: of the timings, samples a second */
    int64_t timings;
    uint32_t sent;                  /* steps of the trial */
    int64_t memory, peak;           /* bytes in use, by the device or this process: before
                                       the first trial; the highest so far */
    int64_t limit;                  /* of their growth  [0: none] */
    int64_t began;
    bool stopping;
    pl_outcome_t *outcome;
} finder_t;

/* ---- the result ---- */

static json_t *size_or_null(int64_t size)
{
    return size ? json_integer((json_int_t)size) : json_null();
}

static json_t *trial_json(const finder_t *f, const pl_size_trial_t *trial)
{
    const int64_t grown = trial->memory > f->memory ? trial->memory - f->memory : 0;
    return json_pack("{s:I, s:b, s:o, s:o}", "batch_size", (json_int_t)trial->size,
                     "fits", trial->fits, "samples_per_second",
                     trial->fits ? json_real(trial->rate) : json_null(), "memory",
                     trial->memory ? json_integer((json_int_t)grown) : json_null());
}

/* Reports the size that is tried now, or what came of it; consumes the metrics. */
static void finder_report(finder_t *f, pl_run_event_t event, json_t *metrics)
{
    char *text = pl_json_to_text(metrics, NULL);
    if (text && f->run)
        pl_progress_run(f->run, &(pl_run_progress_t){.event = event,
                                                     .global_step = (uint64_t)f->tried,
                                                     .total_steps =
                                                         (uint64_t)f->tuning->max_trials,
                                                     .metrics = text});
    pl_text_free(text);
}

/* ---- which size comes next ---- */

/* Estimates the need of a size by a line through the two largest that fit. */
static bool is_too_much(const finder_t *f, int64_t size)
{
    const pl_size_trial_t *a = NULL, *b = NULL;
    for (int64_t k = 0; k < f->tried; k++)
        if (f->trial[k].fits && f->trial[k].memory
            && (!b || f->trial[k].size > b->size)) {
            a = b;
            b = &f->trial[k];
        }
    if (!a || !f->limit || b->memory <= a->memory)
        return false;
    const double per_sample = (double)(b->memory - a->memory)
                              / (double)(b->size - a->size);
    return (double)(b->memory - f->memory) + per_sample * (double)(size - b->size)
           > (double)f->limit;
}

static void trial_keep(finder_t *f, const pl_size_trial_t *trial)
{
    if (f->tried == f->tuning->max_trials)                  /* not on rank 0 */
        return;
    f->trial[f->tried++] = *trial;
    finder_report(f, PL_RUN_EVENT_TRIAL, trial_json(f, trial));
    if (trial->fits)
        f->low = trial->size;
    else
        f->high = trial->size;
}

/* 0: the search is over. */
static int64_t size_after(const finder_t *f)
{
    const bool whole = f->max && f->low == f->max;
    if (f->stopping || f->tried >= f->tuning->max_trials || (whole && !f->high)
        || (f->high && ((f->low && !f->halves) || f->high - f->low <= 1)))
        return 0;
    const int64_t size = f->high ? f->low + (f->high - f->low) / 2 : f->low * 2;
    return f->max && size > f->max ? f->max : size;
}

/* The next size to try, or the end; sizes that need too much count as tried. */
static pl_next_trial_t trial_after(finder_t *f)
{
    int64_t size = size_after(f);
    for (; size && is_too_much(f, size); size = size_after(f))
        trial_keep(f, &(pl_size_trial_t){.size = size});
    return (pl_next_trial_t){.decision = size ? PL_TRIAL_DECISION_SIZE
                                              : PL_TRIAL_DECISION_END,
                             .batch_size = (uint64_t)size};
}

/* ---- a trial ---- */

static void trial_answered(void *self, const pl_answer_t *answer);

/* Makes the call of a step; a call that is not made ends the search.  All ranks do what
 * rank 0 decides. */
static void trial_call(finder_t *f, trial_step_t step)
{
    const pl_reload_data_t reload = {.batch_size = (uint64_t)f->size};
    const pl_set_signature_t set = {.signature = f->signature};
    const pl_decide_t poll = {.polls = true, .objects = !f->fits};
    const pl_decision_t decision = {.message = PL_MESSAGE_next_trial,
                                    .fields = &f->next,
                                    .announced = true};
    const pl_how_t how = {.on_answer = trial_answered};
    pl_address_t strategy = f->iter.strategy, coordinator = f->iter.coordinator;
    pl_error_t err = {0};
    uint64_t call = 0;
    f->step = step;
    switch (step) {
    case COUNT_BEFORE:
    case COUNT:
        call = pl_call_count_memory(f, strategy, &(pl_count_memory_t){0}, how, &err);
        break;
    case RELOAD:
        finder_report(f, PL_RUN_EVENT_TRAIN,
                      json_pack("{s:I}", "batch_size", (json_int_t)f->size));
        call = pl_call_reload_data(f, f->iter.data, &reload, how, &err);
        break;
    case SIGNATURE: call = pl_call_set_signature(f, strategy, &set, how, &err); break;
    case POLL: call = pl_loop_agree(f, coordinator, &poll, how, &err); break;
    case DECIDE: call = pl_loop_decide(f, coordinator, &decision, how, &err); break;
    }
    if (!call)
        pl_loop_fail(&f->run, &err);
}

/* The result has the largest size that fits, the fastest, and the suggested one. */
static void trial_decided(finder_t *f, const pl_next_trial_t *next)
{
    pl_batch_iter_t *iter = &f->iter;
    pl_call_t *call = f->run;
    iter->halts_at = 0;
    if (!call)
        return;
    if (next->decision == PL_TRIAL_DECISION_SIZE) {
        f->size = (int64_t)next->batch_size;
        trial_call(f, RELOAD);
    } else if (next->decision == PL_TRIAL_DECISION_END) {
        const pl_size_trial_t *quickest = pl_size_fastest(f->trial, f->tried),
                              *suggested = pl_size_suggested(f->trial, f->tried, f->max);
        json_t *trials = json_array();
        for (const pl_size_trial_t *t = f->trial; t < f->trial + f->tried; t++)
            trials = pl_json_append(trials, trial_json(f, t));
        f->run = NULL;
        pl_search_end(call, f->outcome,
                      &(pl_search_result_t){
                          .metrics =
                              json_pack("{s:o, s:o, s:o}", "batch_size",
                                        size_or_null(f->low), "quickest_batch_size",
                                        size_or_null(quickest ? quickest->size : 0),
                                        "suggested_batch_size",
                                        size_or_null(suggested ? suggested->size : 0)),
                          .trials = trials,
                          .began = f->began,
                          .stopped = f->stopping});
    } else {
        f->run = NULL;
        iter->epoch += iter->fetched == iter->batches;
        if (iter->fetched < iter->batches)
            pl_batch_iter_resume(iter, call);
        else
            pl_batch_iter_begin(iter, call);
    }
}

/* Trains the steps of the trial if the size fits on all ranks. */
static void trial_train(finder_t *f, bool fits)
{
    if (!fits) {
        trial_keep(f, &(pl_size_trial_t){.size = f->size});
        f->next = trial_after(f);
        trial_call(f, DECIDE);
        return;
    }
    f->sent = 0;
    f->warm = f->ends = f->runs = false;
    f->spent = f->samples = f->timings = 0;
    f->iter.epoch = 0;
    pl_call_t *call = f->run;
    f->run = NULL;
    pl_batch_iter_begin(&f->iter, call);
}

static void trial_end(finder_t *f, int64_t memory)
{
    const bool grown = memory > f->peak;
    f->peak = grown ? memory : f->peak;
    pl_size_trial_t trial = {.size = f->size,
                             .memory = grown ? memory : 0,
                             .rate = pl_median(f->rate, (size_t)f->timings),
                             .fits = !grown || !f->limit
                                     || memory - f->memory <= f->limit};
    for (int64_t k = 0; k < f->timings; k++)
        f->rate[k] = fabs(f->rate[k] / trial.rate - 1);
    trial.noise = 2 * pl_median(f->rate, (size_t)f->timings);
    trial_keep(f, &trial);
    f->next = trial_after(f);
    trial_call(f, DECIDE);
}

/* The largest batch: with several ranks each has a part of the samples. */
static int64_t max_of(const pl_batch_signature_t *signature, int64_t size)
{
    int64_t largest = 0;
    for (int k = 0; k < signature->stage[PL_TRAIN].size_count; k++)
        if (signature->stage[PL_TRAIN].size[k].count > largest)
            largest = signature->stage[PL_TRAIN].size[k].count;
    return largest < size ? largest : signature->stage[PL_TRAIN].samples;
}

/* The search looks for PL_ENOMEM; any other error ends it.  The host's memory ends
 * without an error, so it has a limit. */
static void trial_answered(void *self, const pl_answer_t *answer)
{
    finder_t *f = self;
    pl_error_t err = {0};
    pl_body_t body;
    f->fits = answer->kind == PL_ANSWER_REPLY;
    if (answer->kind == PL_ANSWER_ERROR && answer->error->code == PL_ENOMEM
        && (f->step == RELOAD || f->step == SIGNATURE)) {
        trial_call(f, POLL);
        return;
    }
    if (answer->kind == PL_ANSWER_ERROR)
        pl_loop_fail(&f->run, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const pl_body_t *reply = answer->body;
    int64_t held = 0, memory = 0;
    if (f->step == COUNT_BEFORE || f->step == COUNT) {
        held = (int64_t)reply->count_memory_reply.bytes;
        memory = held ? held : pl_memory_used();
    }
    switch (f->step) {
    case COUNT_BEFORE:
        f->memory = f->peak = memory;
        f->limit = f->tuning->max_memory;
        if (!f->limit && !held)
            f->limit = (int64_t)((double)pl_memory_free() * MEMORY_SHARE);
        trial_call(f, RELOAD);
        break;
    case RELOAD:
        f->signature = reply->reload_data_reply.signature;
        f->max = max_of((const pl_batch_signature_t *)f->signature, f->size);
        f->size = f->size > f->max ? f->max : f->size;
        trial_call(f, SIGNATURE);
        break;
    case SIGNATURE: trial_call(f, POLL); break;
    case POLL: trial_train(f, !reply->decide_reply.objected); break;
    case COUNT: trial_end(f, memory); break;
    case DECIDE:
        if (pl_loop_decided(&reply->decide_reply, PL_MESSAGE_next_trial, false, &body,
                            &err)
            == PL_OK)
            trial_decided(f, &body.next_trial);
        else
            pl_loop_fail(&f->run, &err);
    }
}

/* ---- the steps of a trial ---- */

/* The first step of a size is alone in flight and not timed, because it takes memory into
 * use. */
static bool finder_may_fetch(const pl_batch_iter_t *iter)
{
    const finder_t *f = (const finder_t *)iter;
    if (!f->warm)
        return iter->pending == 0;
    return pl_is_nobody(iter->coordinator) ? !f->ends && !f->stopping
                                           : !pl_batch_iter_is_sync_point(iter);
}

static void step_answered(void *self, const pl_answer_t *answer)
{
    finder_t *f = self;
    if (pl_batch_iter_no_reply(&f->iter, answer))
        return;
    if (f->runs)
        f->samples += (intptr_t)answer->context;
    f->warm = true;
    const bool ended = f->ends;
    f->ends = f->runs && f->spent + pl_now() - f->since >= TIMING;
    if (f->ends && !ended)
        pl_batch_iter_request_sync(&f->iter);
    pl_batch_iter_batch_done(&f->iter, answer->body->train_batch_reply.halt);
    pl_batch_iter_continue(&f->iter);
}

static uint64_t finder_send(pl_batch_iter_t *iter, const pl_fetch_batch_reply_t *batch)
{
    finder_t *f = (finder_t *)iter;
    const pl_train_batch_t msg = {.global_step = ++f->sent,
                                  .step_due = true,
                                  .may_skip = true,
                                  .batch = batch->batch};
    const pl_how_t how = {.on_answer = step_answered,
                          .context = (void *)(intptr_t)batch->samples};
    if (f->warm && !f->runs) {
        f->runs = true;
        f->since = pl_now();
    }
    return pl_call_train_batch(iter, iter->strategy, &msg, how, &iter->failure);
}

/* Nothing is in flight: the clock stops, and a timing that is long enough is kept.  A
 * stopped search reports nothing about a size without a timing. */
static void finder_rest(pl_batch_iter_t *iter)
{
    finder_t *f = (finder_t *)iter;
    const int64_t timings = f->tuning->steps_per_trial;
    if (f->runs)
        f->spent += pl_now() - f->since;
    f->runs = false;
    if (f->spent >= TIMING && f->timings < timings) {
        f->rate[f->timings++] = (double)f->samples / ((double)f->spent / 1e9);
        f->spent = f->samples = 0;
        f->ends = false;
    }
    f->run = pl_batch_iter_take_call(iter);
    if (f->timings == timings || (f->stopping && f->timings)) {
        trial_call(f, COUNT);
        return;
    }
    f->next = f->stopping ? trial_after(f)
                          : (pl_next_trial_t){.decision = PL_TRIAL_DECISION_AGAIN};
    trial_call(f, DECIDE);
}

/* Several ranks do not coordinate again after one has failed in a step. */
static void finder_failed(pl_batch_iter_t *iter)
{
    finder_t *f = (finder_t *)iter;
    f->run = pl_batch_iter_take_call(iter);
    if (iter->failure.code == PL_ENOMEM && pl_is_nobody(iter->coordinator))
        trial_train(f, false);
    else
        pl_loop_fail(&f->run, &iter->failure);
}

static void finder_what(const pl_batch_iter_t *iter, char text[160])
{
    snprintf(text, 160, "a step with batches of %lld samples",
             (long long)((const finder_t *)iter)->size);
}

/* ---- the run ---- */

static int finder_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    static const pl_batch_iter_ops_t ops = {.may_fetch = finder_may_fetch,
                                            .send = finder_send,
                                            .rest = finder_rest,
                                            .fail = finder_failed,
                                            .what = finder_what};
    (void)call, (void)err;
    finder_t *f = self;
    f->job = pl_object_ref(body->start.context);
    f->tuning = &f->job->tuning;
    pl_batch_iter_init(&f->iter, &ops, body);
    pl_actor_ready(self);
    return PL_OK;
}

static int finder_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)body;
    finder_t *f = self;
    if (f->outcome)
        return pl_fail(err, PL_EBUSY, "the tuner has already run");
    f->trial = pl_alloc_array((size_t)f->tuning->max_trials, sizeof *f->trial);
    f->rate = pl_alloc_array((size_t)f->tuning->steps_per_trial, sizeof *f->rate);
    f->outcome = f->trial && f->rate ? pl_outcome_new(err) : NULL;
    if (!f->outcome)
        return pl_no_memory(err);
    f->began = pl_now();
    f->halves = !strcmp(f->tuning->batch_size, "binsearch");
    f->run = call;
    f->size = f->tuning->init_val;
    f->iter.stage = PL_TRAIN;
    trial_call(f, COUNT_BEFORE);
    return PL_OK;
}

static int finder_stop(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)body, (void)err;
    finder_t *f = self;
    f->stopping = true;
    pl_batch_iter_request_sync(&f->iter);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void finder_release(void *self)
{
    finder_t *f = self;
    pl_object_unref(f->outcome);
    pl_free(f->trial);
    pl_free(f->rate);
    pl_object_unref(f->job);
}

static const pl_handler_t finder_handlers[] = {
    PL_ON(start, finder_start),
    PL_ON(run, finder_run),
    PL_ON(stop, finder_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_batch_size_finder = {
    .name = "batch_size",
    .help = "finds a batch size",
    .size = sizeof(finder_t),
    .role = "loop",
    .level = PL_LEVEL_TUNER,
    .handlers = finder_handlers,
    .release = finder_release,
};
