/* batch_size.c - the batch-size finder: tries larger and larger batches until memory ends
 *
 * As Lightning's BatchSizeFinder does it: a few steps with batches of a size, then of
 * twice as many samples, until there is no memory for them or no more samples; a binary
 * search then goes on between the largest that fits and the smallest that does not.
 * Where the first does not fit, half as many samples are next, until some do.
 * Linux promises more memory than there is and ends who takes it, so what the next size
 * would need is estimated from those before.  Where the device has memory of its own,
 * that is what is measured, and a size that it has no memory for fails by itself.  What
 * is trained is this run's own and ends with it.
 *
 * The speed of a size is the median of several timings, each from nothing under way to
 * nothing under way, and long enough that the clock and the messages do not matter.
 * Sizes that differ by less than the timings of one do, within limits, are as quick as
 * each other.
 *
 * Several ranks do the same at once.  Each looks at its own clock and memory, but what
 * comes next is what rank zero says; a size fits when none has no memory for it. */
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
#include "base/memory.h"

enum { END = 0, AGAIN = -1 };               /* what comes next, instead of a size */
static const double MEMORY_SHARE = 0.9;     /* of the host's that is free, unless given */
static const int64_t TIMING = PL_SECOND / 25;  /* at least, unless one step is longer */

typedef struct finder {
    pl_batch_iter_t iter;        /* first: see batch_iter.h */
    pl_job_t *job;               /* counted */
    pl_call_t *run;              /* while no iteration is under way  [NULL] */
    pl_size_trial_t *trial;      /* [max_trials] */
    int64_t tried, size, max;    /* max: samples there are  [0: unknown] */
    int64_t low, high;           /* fits, does not  [0: not known yet] */
    bool warm, ends, runs;       /* of the trial under way: one step is done; the timing
                                    is to end; its clock runs */
    int64_t since, spent, samples;  /* of the timing: since its clock runs, before that */
    double *rate;                /* [steps_per_trial]: of the timings, samples a second */
    int64_t timings;
    uint32_t sent;                 /* steps of the trial */
    int64_t memory, peak;          /* bytes in use before the first; at most so far, which
                                      stay: of the device, or of this process */
    int64_t limit;                 /* by which they may grow; 0: none */
    int64_t began;
    bool stopping;
    pl_outcome_t *outcome;
} finder_t;

static const pl_tuning_t *what_of(const finder_t *f)
{
    return &f->job->tuning;
}

/* ---- the result ---- */

static json_t *trial_json(const finder_t *f, const pl_size_trial_t *t)
{
    const int64_t grown = t->memory > f->memory ? t->memory - f->memory : 0;
    return json_pack("{s:I, s:b, s:o, s:o}", "batch_size", (json_int_t)t->size, "fits",
                     t->fits, "samples_per_second",
                     t->fits ? json_real(t->rate) : json_null(), "memory",
                     t->memory ? json_integer((json_int_t)grown) : json_null());
}

static json_t *trials_json(const finder_t *f)
{
    json_t *trials = json_array();
    for (int64_t k = 0; k < f->tried; k++)
        trials = pl_json_append(trials, trial_json(f, &f->trial[k]));
    return trials;
}

static json_t *size_or_null(int64_t size)
{
    return size ? json_integer((json_int_t)size) : json_null();
}

static void finder_fail(finder_t *f, const pl_error_t *error)
{
    pl_call_t *call = f->run;
    f->run = NULL;
    if (call)
        pl_call_fail(call, error);
}

/* The largest that fits, the quickest, and the one to take. */
static void finder_end(finder_t *f)
{
    const pl_size_trial_t *quickest = pl_size_fastest(f->trial, f->tried),
                          *suggested = pl_size_suggested(f->trial, f->tried, f->max);
    pl_call_t *call = f->run;
    f->run = NULL;
    pl_search_end(call, f->outcome,
                  &(pl_search_result_t){
                      .metrics = json_pack("{s:o, s:o, s:o}", "batch_size",
                                           size_or_null(f->low), "quickest_batch_size",
                                           size_or_null(quickest ? quickest->size : 0),
                                           "suggested_batch_size",
                                           size_or_null(suggested ? suggested->size : 0)),
                      .trials = trials_json(f),
                      .began = f->began,
                      .stopped = f->stopping});
}

/* ---- which size comes next ---- */

/* What a size would need: a line through the two largest that fit. */
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
    if (f->tried == what_of(f)->max_trials)           /* of a rank that does not decide */
        return;
    f->trial[f->tried++] = *trial;
    if (trial->fits)
        f->low = trial->size;
    else
        f->high = trial->size;
}

static int64_t size_after(const finder_t *f)
{
    const bool halves = !strcmp(what_of(f)->batch_size, "binsearch");
    const bool whole = f->max && f->low == f->max;
    if (f->stopping || f->tried >= what_of(f)->max_trials || (whole && !f->high)
        || (f->high && ((f->low && !halves) || f->high - f->low <= 1)))
        return END;
    const int64_t size = f->high ? f->low + (f->high - f->low) / 2 : f->low * 2;
    return f->max && size > f->max ? f->max : size;
}

/* The next size to be tried, or the end. */
static int64_t next_of(finder_t *f)
{
    int64_t size = size_after(f);
    for (; size != END && is_too_much(f, size); size = size_after(f))
        trial_keep(f, &(pl_size_trial_t){.size = size});
    return size;
}

/* ---- what all ranks do next ---- */

static void trial_begin(finder_t *f);

static void go_on(finder_t *f, int64_t next)
{
    pl_batch_iter_t *iter = &f->iter;
    pl_call_t *call = f->run;
    iter->halts_at = 0;
    if (!call)
        return;
    if (next > 0) {
        f->size = next;
        trial_begin(f);
    } else if (next == END) {
        finder_end(f);
    } else {
        f->run = NULL;
        iter->epoch += iter->fetched == iter->batches;
        if (iter->fetched < iter->batches)
            pl_batch_iter_resume(iter, call);
        else
            pl_batch_iter_begin(iter, call);
    }
}

static void said(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        finder_fail(self, answer->error);
    else if (answer->kind == PL_ANSWER_REPLY)
        go_on(self, strtoll(answer->body->decide_reply.text, NULL, 10));
}

/* The only rank does it at once. */
static void agree(finder_t *f, int64_t next)
{
    char text[24];
    pl_error_t err = {0};
    const pl_decide_t msg = {.text = text, .announced = true};
    if (pl_is_nobody(f->iter.coordinator)) {
        go_on(f, next);
        return;
    }
    snprintf(text, sizeof text, "%lld", (long long)next);
    if (!pl_call_decide(f, f->iter.coordinator, &msg, (pl_how_t){.on_answer = said},
                        &err))
        finder_fail(f, &err);
}

static void does_not_fit(finder_t *f)
{
    trial_keep(f, &(pl_size_trial_t){.size = f->size});
    agree(f, next_of(f));
}

static void trial_report(finder_t *f)
{
    pl_progress_run(f->run,
                    &(pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN,
                                         .global_step = (uint64_t)f->tried,
                                         .total_steps = (uint64_t)what_of(f)->max_trials,
                                         .metrics = ""});
}

/* ---- the iteration ---- */

static void finder_named(pl_batch_iter_t *iter, const char *names)
{
    (void)iter, (void)names;
}

static uint32_t finder_begun(pl_batch_iter_t *iter, uint32_t there)
{
    (void)iter;
    return there;
}

/* The first step of a size goes alone and is not timed: memory is taken into use. */
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

/* ---- timings ---- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *value, int64_t count)
{
    if (!count)
        return 0;
    qsort(value, (size_t)count, sizeof *value, by_size);
    return (value[(count - 1) / 2] + value[count / 2]) / 2;
}

/* Nothing is under way: the clock stops, and a timing that is long enough is kept. */
static void timing_stop(finder_t *f)
{
    if (f->runs)
        f->spent += pl_now() - f->since;
    f->runs = false;
    if (f->spent < TIMING || f->timings == what_of(f)->steps_per_trial)
        return;
    f->rate[f->timings++] = (double)f->samples / ((double)f->spent / 1e9);
    f->spent = f->samples = 0;
    f->ends = false;
}

static void trial_end(finder_t *f, int64_t memory)
{
    const bool grown = memory > f->peak;
    f->peak = grown ? memory : f->peak;
    pl_size_trial_t trial = {.size = f->size,
                             .memory = grown ? memory : 0,
                             .rate = median_of(f->rate, f->timings),
                             .fits = !grown || !f->limit
                                     || memory - f->memory <= f->limit};
    for (int64_t k = 0; k < f->timings; k++)
        f->rate[k] = fabs(f->rate[k] / trial.rate - 1);
    trial.noise = 2 * median_of(f->rate, f->timings);
    trial_keep(f, &trial);
    trial_report(f);
}

/* The host's memory ends without an error, the device's with one. */
static void first_begin(finder_t *f, int64_t memory, bool on_device)
{
    f->memory = f->peak = memory;
    f->limit = what_of(f)->max_memory;
    if (!f->limit && !on_device)
        f->limit = (int64_t)((double)pl_memory_free() * MEMORY_SHARE);
    trial_begin(f);
}

/* Before the first trial, and behind each. */
static void memory_counted(void *self, const pl_answer_t *answer)
{
    finder_t *f = self;
    if (answer->kind == PL_ANSWER_ERROR)
        finder_fail(f, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const int64_t held = (int64_t)answer->body->count_memory_reply.bytes,
                  memory = held ? held : pl_memory_used();
    if (f->memory) {
        trial_end(f, memory);
        agree(f, next_of(f));
    } else {
        first_begin(f, memory, held > 0);
    }
}

static void memory_count(finder_t *f)
{
    pl_error_t err = {0};
    if (!pl_call_count_memory(f, f->iter.strategy, &(pl_count_memory_t){0},
                              (pl_how_t){.on_answer = memory_counted}, &err))
        finder_fail(f, &err);
}

/* Of a size that nothing is known of when the search is stopped nothing is told. */
static void finder_rest(pl_batch_iter_t *iter)
{
    finder_t *f = (finder_t *)iter;
    timing_stop(f);
    f->run = pl_batch_iter_take_call(iter);
    if (f->timings == what_of(f)->steps_per_trial || (f->stopping && f->timings))
        memory_count(f);
    else
        agree(f, f->stopping ? next_of(f) : AGAIN);
}

/* Ranks of which one has failed in a step do not meet again. */
static void finder_failed(pl_batch_iter_t *iter)
{
    finder_t *f = (finder_t *)iter;
    f->run = pl_batch_iter_take_call(iter);
    if (iter->failure.code == PL_ENOMEM && pl_is_nobody(iter->coordinator))
        does_not_fit(f);
    else
        finder_fail(f, &iter->failure);
}

static void finder_what(const pl_batch_iter_t *iter, char text[160])
{
    snprintf(text, 160, "a step with batches of %lld samples",
             (long long)((const finder_t *)iter)->size);
}

/* ---- a size ---- */

static void pass_start(finder_t *f)
{
    f->sent = 0;
    f->warm = f->ends = f->runs = false;
    f->spent = f->samples = f->timings = 0;
    f->iter.epoch = 0;
    pl_call_t *call = f->run;
    f->run = NULL;
    pl_batch_iter_begin(&f->iter, call);
}

static void polled(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        finder_fail(self, answer->error);
    else if (answer->kind == PL_ANSWER_REPLY && answer->body->decide_reply.objected)
        does_not_fit(self);
    else if (answer->kind == PL_ANSWER_REPLY)
        pass_start(self);
}

static void size_judge(finder_t *f, bool fits)
{
    pl_error_t err = {0};
    const pl_decide_t msg = {.text = "", .polls = true, .objects = !fits};
    const pl_how_t how = {.on_answer = polled};
    if (!pl_is_nobody(f->iter.coordinator)) {
        if (!pl_call_decide(f, f->iter.coordinator, &msg, how, &err))
            finder_fail(f, &err);
    } else if (fits) {
        pass_start(f);
    } else {
        does_not_fit(f);
    }
}

/* No memory is what is looked for; all else ends the search. */
static bool trial_failed(finder_t *f, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR && answer->error->code == PL_ENOMEM)
        size_judge(f, false);
    else if (answer->kind == PL_ANSWER_ERROR)
        finder_fail(f, answer->error);
    return answer->kind != PL_ANSWER_REPLY;
}

static void signature_set(void *self, const pl_answer_t *answer)
{
    if (!trial_failed(self, answer))
        size_judge(self, true);
}

/* Samples that a batch can have: of several ranks each has a part of them all. */
static int64_t max_of(const pl_batch_signature_t *signature, int64_t size)
{
    int64_t largest = 0;
    for (int k = 0; k < signature->stage[PL_TRAIN].size_count; k++)
        if (signature->stage[PL_TRAIN].size[k].count > largest)
            largest = signature->stage[PL_TRAIN].size[k].count;
    return largest < size ? largest : signature->stage[PL_TRAIN].samples;
}

static void data_reloaded(void *self, const pl_answer_t *answer)
{
    finder_t *f = self;
    pl_error_t err = {0};
    if (trial_failed(f, answer))
        return;
    pl_object_t *object = answer->body->reload_data_reply.signature;
    const pl_batch_signature_t *signature = (const pl_batch_signature_t *)object;
    f->max = max_of(signature, f->size);
    if (f->size > f->max)
        f->size = f->max;
    if (!pl_call_set_signature(f, f->iter.strategy,
                               &(pl_set_signature_t){.signature = object},
                               (pl_how_t){.on_answer = signature_set}, &err))
        finder_fail(f, &err);
}

static void trial_begin(finder_t *f)
{
    pl_error_t err = {0};
    const pl_reload_data_t msg = {.batch_size = (uint64_t)f->size};
    if (!pl_call_reload_data(f, f->iter.data, &msg,
                             (pl_how_t){.on_answer = data_reloaded}, &err))
        finder_fail(f, &err);
}

/* ---- the run ---- */

static int finder_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    static const pl_batch_iter_ops_t ops = {.on_names = finder_named,
                                            .on_begun = finder_begun,
                                            .may_fetch = finder_may_fetch,
                                            .send = finder_send,
                                            .rest = finder_rest,
                                            .fail = finder_failed,
                                            .what = finder_what};
    (void)call, (void)err;
    finder_t *f = self;
    f->job = pl_object_ref(body->start.context);
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
    f->trial = pl_alloc_array((size_t)what_of(f)->max_trials, sizeof *f->trial);
    f->rate = pl_alloc_array((size_t)what_of(f)->steps_per_trial, sizeof *f->rate);
    f->outcome = f->trial && f->rate ? pl_outcome_new(err) : NULL;
    if (!f->outcome)
        return pl_no_memory(err);
    f->began = pl_now();
    f->run = call;
    f->size = what_of(f)->init_val;
    f->iter.stage = PL_TRAIN;
    memory_count(f);
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
