/* build.c - threads that compile the texts of plans and build the layers of a library
 *
 * A compiler takes a tenth of a second for each kernel, and a library up to a second for
 * a layer. So threads build the layers of a plan and then its texts, which contain its
 * kernels, while the accelerator's own thread works.  After each job they write to the
 * backend's descriptor, and the accelerator collects the finished plans.
 *
 * pl_gpu_compile_stop() drops the jobs that no thread has begun.  Nothing can end a
 * thread that is in a compiler, so both gpu_builder_close() and exit() wait for it.
 *
 * Only a build shows that a library does not compute a layer.  The backend remembers it,
 * and the graph is compiled again. */
#include "accelerators/gpu/build.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accelerators/plan/rewrite.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

enum { THREADS_MAX = 4 };

/* A plan in the making. */
typedef struct building {
    struct building *next;
    pl_plan_t *plan;
    pl_compiling_t *caller;           /* [NULL: gpu_build() waits for the end] */
    gpu_string_t *text;               /* [texts] */
    int texts, jobs, begun, ended, reported;  /* jobs: layers, then texts */
    size_t workspace;                 /* bytes, of any layer */
    bool is_refused;                  /* the library does not compute one of the layers */
    pl_error_t error;                 /* the first  [code 0] */
} building_t;

typedef struct pl_gpu_builder {
    pl_gpu_t *gpu;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread[THREADS_MAX];
    int threads, max;
    bool is_ending;
    building_t *first, **last;                              /* in order */
} builder_t;

/* ---- The end of the process ---- */

static pthread_mutex_t leaving = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static int at_work;                                   /* threads that are in a compiler */
static bool is_leaving, is_known;

/* Called by exit().  The libraries of compilers were loaded before atexit(), so they are
 * still there: threads leave them first. */
static void wait_for_compilers(void)
{
    pthread_mutex_lock(&leaving);
    __atomic_store_n(&is_leaving, true, __ATOMIC_RELAXED);
    while (at_work)
        pthread_cond_wait(&left, &leaving);
    pthread_mutex_unlock(&leaving);
}

bool pl_gpu_stops(const void *self)
{
    const pl_gpu_t *gpu = self;
    return __atomic_load_n(&gpu->stops, __ATOMIC_RELAXED)
           || __atomic_load_n(&is_leaving, __ATOMIC_RELAXED);
}

/* ---- Jobs ---- */

static int stopped(pl_error_t *err)
{
    return pl_fail(err, PL_ECANCELLED, "kernels are not compiled any more");
}

/* Begins and ends the next job of a plan; the lock is free in between. */
static void job_run(builder_t *builder, building_t *b)
{
    const int k = b->begun++, text = k - b->plan->builts;
    pl_gpu_t *gpu = builder->gpu;
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    pl_error_t err = {0};
    size_t workspace = 0;
    const uint64_t one = 1;
    pthread_mutex_unlock(&builder->lock);
    const int64_t began = pl_now();
    pthread_mutex_lock(&leaving);
    const bool enters = !is_leaving;
    at_work += enters;
    if (!is_known)
        is_known = atexit(wait_for_compilers) == 0;
    pthread_mutex_unlock(&leaving);
    int code = enters ? PL_OK : stopped(&err);
    if (code == PL_OK) {
        code = text < 0 ? backend->layer_build(gpu, b->plan->built[k], &workspace, &err)
                        : backend->code_new(gpu, b->text[text].text, &b->plan->code[text],
                                            &err);
        pthread_mutex_lock(&leaving);
        at_work--;
        pthread_cond_broadcast(&left);
        pthread_mutex_unlock(&leaving);
    }
    const double seconds = (double)(pl_now() - began) / 1e9;
    pthread_mutex_lock(&builder->lock);
    b->plan->seconds += seconds;
    if (code == PL_OK && text >= 0 && backend->code_cached) {
        bool is_stored = false;
        b->plan->cached_codes += backend->code_cached(b->plan->code[text], &is_stored);
        b->plan->stored_codes += is_stored;
    }
    if (code == PL_EUNSUPPORTED && text < 0)
        b->is_refused = true;
    else if (code != PL_OK && b->error.code == PL_OK)
        b->error = err;
    if (b->workspace < workspace)
        b->workspace = workspace;
    b->ended++;
    pthread_cond_broadcast(&builder->changed);
    if (b->caller && write(backend->descriptor(gpu), &one, sizeof one) < 0
        && b->error.code == PL_OK)
        pl_fail(&b->error, PL_EIO, "writing to the descriptor of the device: %s",
                strerror(errno));
}

static void *thread_run(void *user)
{
    builder_t *builder = user;
    pthread_mutex_lock(&builder->lock);
    while (!builder->is_ending) {
        building_t *b = builder->first;
        while (b && b->begun == b->jobs)
            b = b->next;
        if (b)
            job_run(builder, b);
        else
            pthread_cond_wait(&builder->changed, &builder->lock);
    }
    pthread_mutex_unlock(&builder->lock);
    return NULL;
}

int gpu_builder_open(pl_gpu_t *gpu, const pl_device_info_t *info, pl_error_t *err)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN)
                       / (info->ranks > 1 ? info->ranks : 1);
    builder_t *builder = pl_alloc(sizeof *builder);
    if (!builder)
        return pl_no_memory(err);
    builder->gpu = gpu;
    builder->last = &builder->first;
    builder->max = cores < 1 ? 1 : cores < THREADS_MAX ? (int)cores : THREADS_MAX;
    pthread_mutex_init(&builder->lock, NULL);
    pthread_cond_init(&builder->changed, NULL);
    gpu->builder = builder;
    gpu->stops = false;
    return PL_OK;
}

static building_t *building_free(building_t *b)
{
    building_t *next = b->next;
    for (int k = 0; k < b->texts; k++)
        pl_free(b->text[k].text);
    pl_free(b->text);
    pl_free(b);
    return next;
}

void pl_gpu_compile_stop(void *self)
{
    pl_gpu_t *gpu = self;
    builder_t *builder = gpu->builder;
    const uint64_t one = 1;
    __atomic_store_n(&gpu->stops, true, __ATOMIC_RELAXED);
    pthread_mutex_lock(&builder->lock);
    builder->is_ending = true;
    for (building_t *b = builder->first; b; b = b->next) {
        if (b->begun < b->jobs && b->error.code == PL_OK)
            stopped(&b->error);
        b->ended += b->jobs - b->begun;
        b->begun = b->jobs;
    }
    pthread_cond_broadcast(&builder->changed);
    pthread_mutex_unlock(&builder->lock);
    if (write(gpu->backend->descriptor(gpu), &one, sizeof one) < 0)
        return;                                             /* it can be read already */
}

void gpu_builder_close(pl_gpu_t *gpu)
{
    builder_t *builder = gpu->builder;
    if (!builder)
        return;
    pl_gpu_compile_stop(gpu);
    for (int k = 0; k < builder->threads; k++)
        pthread_join(builder->thread[k], NULL);
    while (builder->first)
        builder->first = building_free(builder->first);
    pthread_cond_destroy(&builder->changed);
    pthread_mutex_destroy(&builder->lock);
    pl_free(builder);
    gpu->builder = NULL;
}

/* As many threads as there are jobs, up to the limit.  They block all signals, as the
 * accelerator's thread does, which starts them. */
static int threads_start(builder_t *builder, int jobs, pl_error_t *err)
{
    if (builder->is_ending)
        return stopped(err);
    while (builder->threads < builder->max && builder->threads < jobs) {
        pthread_t *thread = &builder->thread[builder->threads];
        if (pthread_create(thread, NULL, thread_run, builder) == 0)
            pthread_setname_np(builder->thread[builder->threads++], "kernels");
        else if (builder->threads)
            break;
        else
            return pl_fail(err, PL_ENOMEM, "no thread can be started to compile kernels");
    }
    return PL_OK;
}

/* Takes a plan out of the list; the caller holds the lock. */
static void building_take(builder_t *builder, building_t *b)
{
    building_t **next = &builder->first;
    while (*next != b)
        next = &(*next)->next;
    *next = b->next;
    if (!*next)
        builder->last = next;
}

/* Sets *ready to the plan, unless its graph is compiled again for a caller. */
static int building_end(pl_gpu_t *gpu, building_t *b, pl_plan_t **ready, pl_error_t *err)
{
    pl_plan_t *plan = b->plan;
    int code = b->error.code;
    if (code == PL_OK && b->is_refused) {                   /* compiles the graph again
                                                               without the layer */
        pl_graph_t graph = plan->source;
        pl_compiling_t *caller = b->caller;
        plan->source = (pl_graph_t){0};
        pl_gpu_discard(gpu, plan);
        building_free(b);
        code = gpu_plan_new(gpu, &graph, ready, caller, err);
        pl_graph_copy_release(&graph);
        return code;
    }
    if (code != PL_OK && err)
        *err = b->error;
    if (plan->scratch < b->workspace)
        plan->scratch = b->workspace;
    pl_graph_copy_release(&plan->source);
    if (code == PL_OK)
        code = gpu_plan_finish(gpu, plan, err);
    if (code != PL_OK)
        pl_gpu_discard(gpu, plan);
    else
        *ready = plan;
    building_free(b);
    return code;
}

int gpu_build(pl_gpu_t *gpu, pl_plan_t *plan, gpu_string_t *text, int texts,
              pl_plan_t **ready, pl_compiling_t *caller, pl_error_t *err)
{
    builder_t *builder = gpu->builder;
    building_t *b = pl_alloc(sizeof *b);
    const int jobs = texts + plan->builts;
    plan->code = pl_alloc_array((size_t)texts, sizeof *plan->code);
    plan->codes = texts;
    int code = b && plan->code ? threads_start(builder, jobs, err) : pl_no_memory(err);
    if (code != PL_OK) {
        for (int k = 0; k < texts; k++)
            pl_free(text[k].text);
        pl_free(text);
        pl_free(b);
        pl_gpu_discard(gpu, plan);
        return code;
    }
    *b = (building_t){
        .plan = plan, .caller = caller, .text = text, .texts = texts, .jobs = jobs};
    pthread_mutex_lock(&builder->lock);
    *builder->last = b;
    builder->last = &b->next;
    pthread_cond_broadcast(&builder->changed);
    while (!caller && b->ended < b->jobs)
        pthread_cond_wait(&builder->changed, &builder->lock);
    if (!caller)
        building_take(builder, b);
    pthread_mutex_unlock(&builder->lock);
    return caller ? PL_OK : building_end(gpu, b, ready, err);
}

void gpu_build_collect(pl_gpu_t *gpu)
{
    builder_t *builder = gpu->builder;
    for (;;) {
        pthread_mutex_lock(&builder->lock);
        building_t *b = builder->first;
        while (b && (!b->caller || b->reported == b->ended))
            b = b->next;
        const bool ready = b && b->ended == b->jobs;
        if (b)
            b->reported = b->ended;
        if (ready)
            building_take(builder, b);
        pthread_mutex_unlock(&builder->lock);
        if (!b)
            return;
        pl_compiling_t *caller = b->caller;
        if (!ready) {
            if (caller->progress)
                caller->progress(caller, b->reported, b->jobs);
            continue;
        }
        pl_error_t err = {0};
        pl_plan_t *plan = NULL;
        const int code = building_end(gpu, b, &plan, &err);
        if (code == PL_OK && !plan)
            continue;
        caller->plan = plan;
        caller->done(caller, code == PL_OK ? NULL : &err);
    }
}
