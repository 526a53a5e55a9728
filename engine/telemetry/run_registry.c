/* run_registry.c - the active runs of an engine, for pages that open later */
#include "telemetry/run_registry.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

void pl_run_registry_init(pl_run_registry_t *registry)
{
    pthread_mutex_init(&registry->lock, NULL);
}

void pl_run_registry_release(pl_run_registry_t *registry)
{
    for (int k = 0; k < PL_RUN_REGISTRY_RUNS; k++)
        pl_text_free(registry->run[k].options);
    pthread_mutex_destroy(&registry->lock);
}

/* A call of 0 finds a free place; NULL: there is none. */
static pl_registered_run_t *find(pl_run_registry_t *registry, uint64_t call)
{
    for (int k = 0; k < PL_RUN_REGISTRY_RUNS; k++)
        if (registry->run[k].call == call)
            return &registry->run[k];
    return NULL;
}

void pl_run_registry_begin(pl_run_registry_t *registry, uint64_t call)
{
    pthread_mutex_lock(&registry->lock);
    pl_registered_run_t *run = find(registry, 0);
    registry->begun++;
    if (run)
        *run = (pl_registered_run_t){.call = call,
                                     .number = registry->begun,
                                     .began = pl_now()};
    pthread_mutex_unlock(&registry->lock);
}

static void pause_turn(pl_registered_run_t *run, bool pauses)
{
    if (pauses && !run->paused_at)
        run->paused_at = pl_now();
    if (pauses || !run->paused_at)
        return;
    run->paused += pl_now() - run->paused_at;
    run->paused_at = 0;
}

/* Options of a size that no page needs stay unknown. */
static void options_keep(pl_registered_run_t *run, const char *options)
{
    enum { OPTIONS_MAX = 1 << 16 };
    pl_text_free(run->options);
    run->options = *options && strlen(options) < OPTIONS_MAX ? pl_strdup(options) : NULL;
}

/* Metrics that do not fit are left out: a part of them is not JSON. */
static void report_keep(pl_registered_run_t *run, const pl_run_progress_t *report)
{
    const double clip = *report->run_dir ? report->clip : run->report.clip;
    if (*report->run_dir) {
        snprintf(run->dir, sizeof run->dir, "%s", report->run_dir);
        snprintf(run->module, sizeof run->module, "%s", report->module);
        run->report.clip = clip;
        options_keep(run, report->options);
    }
    if (report->event == PL_RUN_EVENT_ALIVE || report->event == PL_RUN_EVENT_TEXT)
        return;
    if (report->event == PL_RUN_EVENT_TRAIN)          /* a restarted run does not pause */
        pause_turn(run, false);
    run->reported_at = pl_now();
    if (strlen(report->metrics) < sizeof run->metrics)
        strcpy(run->metrics, report->metrics);
    run->report = (pl_run_progress_t){.event = report->event,
                                      .global_step = report->global_step,
                                      .total_steps = report->total_steps,
                                      .epoch = report->epoch,
                                      .batch = report->batch,
                                      .batches = report->batches,
                                      .clip = clip};
}

void pl_run_registry_report(pl_run_registry_t *registry, uint64_t call,
                            const pl_run_progress_t *report)
{
    pthread_mutex_lock(&registry->lock);
    pl_registered_run_t *run = call ? find(registry, call) : NULL;
    if (run)
        report_keep(run, report);
    pthread_mutex_unlock(&registry->lock);
}

void pl_run_registry_pause(pl_run_registry_t *registry, uint64_t call, bool pauses,
                           uint64_t global_step)
{
    pthread_mutex_lock(&registry->lock);
    pl_registered_run_t *run = call ? find(registry, call) : NULL;
    if (run)
        pause_turn(run, pauses);
    if (run && run->report.global_step < global_step)
        run->report.global_step = global_step;
    pthread_mutex_unlock(&registry->lock);
}

void pl_run_registry_end(pl_run_registry_t *registry, uint64_t call)
{
    pthread_mutex_lock(&registry->lock);
    pl_registered_run_t *run = call ? find(registry, call) : NULL;
    if (run) {
        run->call = 0;
        pl_text_free(run->options);
        run->options = NULL;
    }
    pthread_mutex_unlock(&registry->lock);
}

/* The one that began first behind a number; NULL: none did. */
static pl_registered_run_t *next_of(pl_run_registry_t *registry, uint64_t number)
{
    pl_registered_run_t *next = NULL;
    for (int k = 0; k < PL_RUN_REGISTRY_RUNS; k++) {
        pl_registered_run_t *run = &registry->run[k];
        if (run->call && run->number > number && (!next || run->number < next->number))
            next = run;
    }
    return next;
}

uint64_t pl_run_registry_each(pl_run_registry_t *registry,
                              void (*take)(void *user, const pl_registered_run_t *run),
                              void *user)
{
    pthread_mutex_lock(&registry->lock);
    const uint64_t begun = registry->begun;
    pl_registered_run_t *run = NULL;
    while ((run = next_of(registry, run ? run->number : 0))) {
        run->report.run_dir = run->dir;
        run->report.module = run->module;
        run->report.metrics = run->metrics;
        run->report.options = run->options ? run->options : "";
        take(user, run);
    }
    pthread_mutex_unlock(&registry->lock);
    return begun;
}
