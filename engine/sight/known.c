/* known.c - what an engine keeps of its active runs, for pages that open later */
#include "sight/known.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

void pl_known_init(pl_known_t *known)
{
    pthread_mutex_init(&known->lock, NULL);
}

void pl_known_release(pl_known_t *known)
{
    for (int k = 0; k < PL_KNOWN_RUNS; k++)
        pl_text_free(known->run[k].options);
    pthread_mutex_destroy(&known->lock);
}

/* A call of 0 finds a free place; NULL: there is none. */
static pl_known_run_t *find(pl_known_t *known, uint64_t call)
{
    for (int k = 0; k < PL_KNOWN_RUNS; k++)
        if (known->run[k].call == call)
            return &known->run[k];
    return NULL;
}

void pl_known_begin(pl_known_t *known, uint64_t call)
{
    pthread_mutex_lock(&known->lock);
    pl_known_run_t *run = find(known, 0);
    known->begun++;
    if (run)
        *run = (pl_known_run_t){.call = call, .number = known->begun, .began = pl_now()};
    pthread_mutex_unlock(&known->lock);
}

static void pause_turn(pl_known_run_t *run, bool pauses)
{
    if (pauses && !run->paused_at)
        run->paused_at = pl_now();
    if (pauses || !run->paused_at)
        return;
    run->paused += pl_now() - run->paused_at;
    run->paused_at = 0;
}

/* Options of a size that no page needs stay unknown. */
static void options_keep(pl_known_run_t *run, const char *options)
{
    enum { OPTIONS_MOST = 1 << 16 };
    pl_text_free(run->options);
    run->options = *options && strlen(options) < OPTIONS_MOST ? pl_strdup(options) : NULL;
}

/* Metrics that do not fit are left out: a part of them is not JSON. */
static void report_keep(pl_known_run_t *run, const pl_run_progress_t *report)
{
    const double clip = *report->run_dir ? report->clip : run->report.clip;
    if (*report->run_dir) {
        snprintf(run->dir, sizeof run->dir, "%s", report->run_dir);
        snprintf(run->module, sizeof run->module, "%s", report->module);
        run->report.clip = clip;
        options_keep(run, report->options);
    }
    if (!strcmp(report->event, "alive") || !strcmp(report->event, "text"))
        return;
    if (!strcmp(report->event, "train"))              /* a restarted run does not pause */
        pause_turn(run, false);
    run->told = pl_now();
    snprintf(run->event, sizeof run->event, "%s", report->event);
    if (strlen(report->metrics) < sizeof run->metrics)
        strcpy(run->metrics, report->metrics);
    run->report = (pl_run_progress_t){.global_step = report->global_step,
                                      .total_steps = report->total_steps,
                                      .epoch = report->epoch,
                                      .batch = report->batch,
                                      .batches = report->batches,
                                      .clip = clip};
}

void pl_known_report(pl_known_t *known, uint64_t call, const pl_run_progress_t *report)
{
    pthread_mutex_lock(&known->lock);
    pl_known_run_t *run = call ? find(known, call) : NULL;
    if (run)
        report_keep(run, report);
    pthread_mutex_unlock(&known->lock);
}

void pl_known_pause(pl_known_t *known, uint64_t call, bool pauses, uint64_t global_step)
{
    pthread_mutex_lock(&known->lock);
    pl_known_run_t *run = call ? find(known, call) : NULL;
    if (run)
        pause_turn(run, pauses);
    if (run && run->report.global_step < global_step)
        run->report.global_step = global_step;
    pthread_mutex_unlock(&known->lock);
}

void pl_known_end(pl_known_t *known, uint64_t call)
{
    pthread_mutex_lock(&known->lock);
    pl_known_run_t *run = call ? find(known, call) : NULL;
    if (run) {
        run->call = 0;
        pl_text_free(run->options);
        run->options = NULL;
    }
    pthread_mutex_unlock(&known->lock);
}

/* The one that began first behind a number; NULL: none did. */
static pl_known_run_t *next_of(pl_known_t *known, uint64_t number)
{
    pl_known_run_t *next = NULL;
    for (int k = 0; k < PL_KNOWN_RUNS; k++) {
        pl_known_run_t *run = &known->run[k];
        if (run->call && run->number > number && (!next || run->number < next->number))
            next = run;
    }
    return next;
}

uint64_t pl_known_each(pl_known_t *known,
                       void (*take)(void *user, const pl_known_run_t *run), void *user)
{
    pthread_mutex_lock(&known->lock);
    const uint64_t begun = known->begun;
    pl_known_run_t *run = NULL;
    while ((run = next_of(known, run ? run->number : 0))) {
        run->report.event = *run->event ? run->event : "alive";
        run->report.run_dir = run->dir;
        run->report.module = run->module;
        run->report.metrics = run->metrics;
        run->report.options = run->options ? run->options : "";
        take(user, run);
    }
    pthread_mutex_unlock(&known->lock);
    return begun;
}
