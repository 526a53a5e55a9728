/* fake.c - an accelerator for tests: memory that the host cannot address, replays that
 * are done later, delays and faults by script
 *
 * Regions lie in mappings that can be read and written only while this file computes,
 * and the plans it hands out are no addresses: a layer above that touches either
 * crashes.  A replay is computed just before its done(), so that batch memory given
 * back too early shows in the results. */
#include "fake.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "fake_script.h"
#include "accelerators/reference/reference.h"
#include "tensor/model.h"

#define NEVER INT64_MAX
#define WAIT_SECONDS 30
#define DISGUISE UINT64_C(0xfade000000000000)              /* no address of any machine */

/* A replay on its way. */
typedef struct inflight {
    pl_plan_t *plan;
    pl_replay_t *replay;
    int64_t began, due;
    bool computed;
    const fake_rule_t *spoils;                              /* [nothing] */
    pl_error_t error;                                       /* code 0: it goes well */
    struct inflight *next;
} inflight_t;

struct pl_plan {
    pl_graph_t graph;                                       /* a copy of the used part */
    pl_reference_run_t *run;                                /* that waits  [none] */
    const char *kind;
    int64_t params;
    pl_tensor_info_t *tensor;                               /* a copy of the model's */
    int tensor_count;
    pl_plan_t *next;
};

typedef struct fake {
    const char *script;                                     /* options */
    int64_t launches;
    uint64_t taken, done;                                   /* replays */
    fake_script_t rules;
    int timer;
    int64_t busy_until;
    double *region[PL_REGIONS];
    void *host[PL_REGIONS];                                /* what is the region  [own] */
    bool skipping;                                         /* see pl_replay_t */
    size_t count[PL_REGIONS];                              /* elements */
    pl_dtype_t dtype[PL_REGIONS];
    uint64_t writes, reads, compiles;
    struct {
        const char *kind;
        uint64_t replays;
    } seen[3];
    pl_plan_t *plans;
    inflight_t *first, **last;
} fake_t;

static const pl_option_t fake_options[] = {
    PL_TEXT(fake_t, script, "\"\"", NULL, "delays and faults"),
    PL_INT(fake_t, launches, "0", "0..", "of each replay"),
    PL_OPTIONS_END,
};

/* ---- Memory ---- */

static size_t bytes_of(size_t count)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (count * sizeof(double) + page) / page * page;
}

static void memory_show(fake_t *fake, int how)
{
    for (int r = 0; r < PL_REGIONS; r++)
        if (fake->region[r])
            mprotect(fake->region[r], bytes_of(fake->count[r]), how);
}

static void region_drop(fake_t *fake, int r)
{
    if (fake->region[r])
        munmap(fake->region[r], bytes_of(fake->count[r]));
    fake->region[r] = NULL;
    fake->host[r] = NULL;
}

/* As the host has a region's elements. */
static pl_dtype_t host_dtype(const fake_t *fake, pl_region_t region)
{
    return fake->dtype[region] == PL_F64 ? PL_F64 : PL_F32;
}

/* Of regions that are the host's: what it has written comes in, what was computed goes
 * out. */
static void host_load(const fake_t *fake)
{
    for (int r = 0; r < PL_REGIONS; r++)
        if (fake->host[r])
            pl_reference_load(host_dtype(fake, (pl_region_t)r), fake->host[r],
                              (int64_t)fake->count[r], fake->region[r]);
}

static void host_store(const fake_t *fake)
{
    for (int r = 0; r < PL_REGIONS; r++)
        if (fake->host[r])
            pl_reference_store(host_dtype(fake, (pl_region_t)r), fake->region[r],
                               (int64_t)fake->count[r], fake->host[r]);
}

/* ---- How far devices have come ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    int calls, hangs;
} come = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

static void come_add(int *count)
{
    pthread_mutex_lock(&come.lock);
    ++*count;
    pthread_cond_broadcast(&come.more);
    pthread_mutex_unlock(&come.lock);
}

static int come_so_far(const int *count)
{
    pthread_mutex_lock(&come.lock);
    int now = *count;
    pthread_mutex_unlock(&come.lock);
    return now;
}

static bool come_wait(const int *count, int wanted)
{
    struct timespec limit;
    int code = 0;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += WAIT_SECONDS;
    pthread_mutex_lock(&come.lock);
    while (*count < wanted && code == 0)
        code = pthread_cond_timedwait(&come.more, &come.lock, &limit);
    pthread_mutex_unlock(&come.lock);
    return code == 0;
}

int fake_calls(void)
{
    return come_so_far(&come.calls);
}

bool fake_wait_calls(int count)
{
    return come_wait(&come.calls, count);
}

int fake_hangs(void)
{
    return come_so_far(&come.hangs);
}

bool fake_wait_hang(int before)
{
    return come_wait(&come.hangs, before + 1);
}

/* ---- Faults of immediate operations ---- */

static int fault(const fake_t *fake, const char *what, uint64_t number, pl_error_t *err)
{
    const fake_rule_t *rule = fake_script_find(&fake->rules, what, number, "", NULL);
    come_add(&come.calls);
    if (!rule)
        return PL_OK;
    if (rule->action == FAKE_HANGS)
        come_add(&come.hangs);
    while (rule->action == FAKE_HANGS)
        pause();
    return pl_fail(err, strcmp(what, "region") ? PL_EIO : PL_ENOMEM,
                   strcmp(what, "region") ? "%s %llu: the device failed"
                                          : "%s %llu: out of device memory",
                   what, (unsigned long long)number);
}

/* ---- Computing ---- */

static int outputs_make(const pl_plan_t *plan, pl_reference_replay_t *run,
                        const pl_replay_t *replay, pl_error_t *err)
{
    int outputs = 0;
    for (int k = 0; k < plan->graph.fetch_count; k++) {
        const pl_fetch_t *f = &plan->graph.fetch[k];
        if (f->kind != PL_FETCH_OUTPUT || !replay->output[outputs++])
            continue;
        size_t n = (size_t)pl_elements(plan->graph.value[f->value].shape);
        run->output[outputs - 1] = pl_alloc_array(n, sizeof(double));
        if (!run->output[outputs - 1])
            return pl_no_memory(err);
    }
    return PL_OK;
}

static void outputs_store(const pl_plan_t *plan, const pl_reference_replay_t *run,
                          pl_replay_t *replay)
{
    int outputs = 0;
    for (int k = 0; k < plan->graph.fetch_count; k++) {
        const pl_fetch_t *f = &plan->graph.fetch[k];
        if (f->kind != PL_FETCH_OUTPUT)
            continue;
        const pl_value_t *v = &plan->graph.value[f->value];
        if (run->output[outputs])
            pl_reference_store(v->dtype, run->output[outputs], pl_elements(v->shape),
                               replay->output[outputs]);
        outputs++;
    }
}

static void spoil(const fake_t *fake, const pl_plan_t *plan, const char *name,
                  pl_replay_t *replay)
{
    double *grads = fake->region[PL_REGION_GRADS];
    if (!strcmp(name, "loss"))
        grads[plan->params] = replay->metrics[0] = NAN;
    for (int k = 0; k < plan->tensor_count; k++)
        if (!strcmp(plan->tensor[k].name, name))
            grads[plan->tensor[k].offset] = NAN;
}

static int replay_part(pl_plan_t *plan, bool continues, pl_reference_replay_t *run,
                       pl_error_t *err)
{
    if (continues && !plan->run)
        return pl_fail(err, PL_ESTATE, "the plan does not wait at a collective");
    if (!continues) {
        pl_reference_drop(plan->run);
        plan->run = NULL;
    }
    return pl_reference_replay_part(&plan->graph, run, &plan->run, err);
}

static int replay_compute(const fake_t *fake, const inflight_t *inflight, pl_error_t *err)
{
    pl_replay_t *replay = inflight->replay;
    pl_reference_replay_t run = {.seed = replay->seed,
                                 .step = replay->step,
                                 .micro_batch = replay->micro_batch,
                                 .metrics = (void *)replay->metrics};
    memcpy(run.region, fake->region, sizeof run.region);
    memcpy(run.input, replay->input, sizeof run.input);
    memcpy(run.scalar, replay->scalar, sizeof run.scalar);
    int code = outputs_make(inflight->plan, &run, replay, err);
    if (code == PL_OK)
        code = replay_part(inflight->plan, replay->continues, &run, err);
    replay->skipped = run.skipped;
    replay->collective = run.collective;
    if (code == PL_OK && !run.collective)
        outputs_store(inflight->plan, &run, replay);
    if (code == PL_OK && inflight->spoils)
        spoil(fake, inflight->plan, inflight->spoils->tensor, replay);
    for (int k = 0; k < PL_FIELDS; k++)
        pl_free(run.output[k]);
    return code;
}

static void inflight_compute(fake_t *fake, inflight_t *inflight)
{
    fake->skipping |= inflight->replay->fail_fast && inflight->error.code != PL_OK;
    if (inflight->computed || inflight->error.code != PL_OK)
        return;
    inflight->computed = true;
    fake->skipping &= !inflight->replay->restart;
    inflight->replay->skipped = inflight->replay->fail_fast && fake->skipping;
    if (inflight->replay->skipped)
        return;
    memory_show(fake, PROT_READ | PROT_WRITE);
    host_load(fake);
    replay_compute(fake, inflight, &inflight->error);
    host_store(fake);
    memory_show(fake, PROT_NONE);
    fake->skipping |= inflight->replay->fail_fast
                      && (inflight->replay->skipped || inflight->error.code != PL_OK);
}

/* What reads or writes regions finds earlier replays run. */
static void catch_up(fake_t *fake)
{
    for (inflight_t *inflight = fake->first; inflight; inflight = inflight->next)
        inflight_compute(fake, inflight);
}

/* ---- Replays ---- */

static void timer_set(const fake_t *fake)
{
    struct itimerspec at = {0};
    if (fake->first && fake->first->due != NEVER)
        at.it_value = (struct timespec){fake->first->due / PL_SECOND,
                                        fake->first->due % PL_SECOND + 1};
    timerfd_settime(fake->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static uint64_t replays_count(fake_t *fake, const char *kind)
{
    int k = 0;
    while (fake->seen[k].kind && fake->seen[k].kind != kind)
        k++;
    fake->seen[k].kind = kind;
    come_add(&come.calls);
    return ++fake->seen[k].replays;
}

/* One rule of the script for a replay that begins. */
static int rule_apply(inflight_t *inflight, const fake_rule_t *rule, pl_error_t *err)
{
    switch (rule->action) {
    case FAKE_IS_REFUSED:
        return pl_fail(err, PL_EIO, "the device takes no replay of %s",
                       inflight->plan->kind);
    case FAKE_FAILS:
        pl_fail(&inflight->error, PL_EIO, "the device failed in %s",
                inflight->plan->kind);
        break;
    case FAKE_HANGS:
        inflight->due = NEVER;
        come_add(&come.hangs);
        break;
    case FAKE_TAKES:
        if (inflight->due != NEVER)
            inflight->due += (int64_t)(rule->ms * PL_MILLISECOND);
        break;
    case FAKE_GIVES_NAN: inflight->spoils = rule;
    }
    return PL_OK;
}

static int rules_apply(fake_t *fake, inflight_t *inflight, const char *what,
                       uint64_t number, pl_error_t *err)
{
    const fake_rule_t *rule = NULL;
    const char *kind = inflight->plan->kind;
    int code = PL_OK;
    while (code == PL_OK
           && (rule = fake_script_find(&fake->rules, what, number, kind, rule)))
        code = rule_apply(inflight, rule, err);
    return code;
}

static pl_plan_t *plan_of(const pl_plan_t *disguised)
{
    return (pl_plan_t *)((uintptr_t)disguised ^ DISGUISE);
}

static int fake_replay(void *self, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err)
{
    fake_t *fake = self;
    int64_t now = pl_now();
    inflight_t *inflight = pl_alloc(sizeof *inflight);
    if (!inflight)
        return pl_no_memory(err);
    *inflight = (inflight_t){.plan = plan_of(plan),
                             .replay = replay,
                             .due = fake->busy_until > now ? fake->busy_until : now};
    inflight->began = inflight->due;
    int code = rules_apply(fake, inflight, "replay",
                           replays_count(fake, inflight->plan->kind), err);
    if (code == PL_OK)
        code = rules_apply(fake, inflight, "step", replay->step, err);
    if (code != PL_OK) {
        pl_free(inflight);
        return code;
    }
    fake->taken++;
    fake->busy_until = inflight->due;
    *fake->last = inflight;
    fake->last = &inflight->next;
    timer_set(fake);
    return PL_OK;
}

static int fake_descriptor(const void *self)
{
    return ((const fake_t *)self)->timer;
}

static inflight_t *inflight_take(fake_t *fake)
{
    inflight_t *inflight = fake->first;
    if (!inflight || inflight->due == NEVER || inflight->due > pl_now())
        return NULL;
    fake->first = inflight->next;
    if (!fake->first)
        fake->last = &fake->first;
    return inflight;
}

static void fake_collect(void *self)
{
    fake_t *fake = self;
    uint64_t times;
    if (read(fake->timer, &times, sizeof times) < 0)
        return;
    for (inflight_t *inflight; (inflight = inflight_take(fake));) {
        inflight_compute(fake, inflight);
        fake->done++;
        inflight->replay->done(inflight->replay,
                               inflight->error.code ? &inflight->error : NULL);
        pl_free(inflight);
    }
    timer_set(fake);
}

static void fake_launches(void *self, uint64_t *put, uint64_t *ended)
{
    const fake_t *fake = self;
    const inflight_t *inflight = fake->first;
    const uint64_t launches = (uint64_t)fake->launches;
    *put = fake->taken * launches;
    *ended = fake->done * launches;
    if (!inflight || !launches)
        return;
    const double took = (double)(pl_now() - inflight->began),
                 takes = (double)(inflight->due - inflight->began);
    if (inflight->due == NEVER)
        ++*ended;
    else if (took > 0 && took < takes)
        *ended += (uint64_t)((double)launches * took / takes);
}

/* ---- Regions ---- */

static int fake_region(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                       pl_error_t *err)
{
    fake_t *fake = self;
    int code = fault(fake, "region", region, err);
    if (code != PL_OK)
        return code;
    void *memory = mmap(NULL, bytes_of(n), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return pl_no_memory(err);
    catch_up(fake);
    region_drop(fake, region);
    fake->region[region] = memory;
    fake->count[region] = n;
    fake->dtype[region] = dtype;
    return PL_OK;
}

static int fake_borrow(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                       void *host, pl_error_t *err)
{
    int code = fake_region(self, region, dtype, n, err);
    if (code == PL_OK)
        ((fake_t *)self)->host[region] = host;
    return code;
}

static int range_check(const fake_t *fake, pl_region_t region, size_t offset, size_t n,
                       pl_error_t *err)
{
    if (!fake->region[region])
        return pl_fail(err, PL_ESTATE, "there is no region %d", region);
    if (offset > fake->count[region] || n > fake->count[region] - offset)
        return pl_fail(err, PL_EINVAL, "region %d has %zu elements", region,
                       fake->count[region]);
    return PL_OK;
}

static int fake_write(void *self, pl_region_t region, size_t offset, const void *host,
                      size_t n, pl_error_t *err)
{
    fake_t *fake = self;
    int code = fault(fake, "write", ++fake->writes, err);
    if (code == PL_OK)
        code = range_check(fake, region, offset, n, err);
    if (code != PL_OK)
        return code;
    catch_up(fake);
    memory_show(fake, PROT_READ | PROT_WRITE);
    pl_reference_load(host_dtype(fake, region), host, (int64_t)n,
                      fake->region[region] + offset);
    pl_reference_round(fake->dtype[region], fake->region[region] + offset, (int64_t)n);
    host_store(fake);
    memory_show(fake, PROT_NONE);
    return PL_OK;
}

static int fake_read(void *self, pl_region_t region, size_t offset, void *host, size_t n,
                     pl_error_t *err)
{
    fake_t *fake = self;
    int code = fault(fake, "read", ++fake->reads, err);
    if (code == PL_OK)
        code = range_check(fake, region, offset, n, err);
    if (code != PL_OK)
        return code;
    catch_up(fake);
    memory_show(fake, PROT_READ | PROT_WRITE);
    host_load(fake);
    pl_reference_store(host_dtype(fake, region), fake->region[region] + offset,
                       (int64_t)n, host);
    memory_show(fake, PROT_NONE);
    return PL_OK;
}

/* ---- Plans ---- */

static void plan_free(pl_plan_t *plan)
{
    pl_reference_drop(plan->run);
    for (int i = 0; i < plan->graph.value_count && plan->graph.value; i++)
        pl_object_unref(plan->graph.value[i].tensor);
    pl_free(plan->graph.value);
    pl_free(plan->graph.op);
    pl_free(plan->graph.fetch);
    pl_free(plan->tensor);
    pl_free(plan);
}

static void *copy_of(const void *array, int count, size_t size)
{
    void *copy = pl_alloc_array((size_t)count, size);
    if (copy && count)
        memcpy(copy, array, (size_t)count * size);
    return copy;
}

/* The graph is gone after compile(). */
static bool plan_copy(pl_plan_t *plan, const pl_graph_t *g)
{
    const pl_model_t *model = g->model;
    pl_graph_t *own = &plan->graph;
    own->value = copy_of(g->value, own->value_count = g->value_count, sizeof *g->value);
    for (int i = 0; i < own->value_count && own->value; i++)
        pl_object_ref(own->value[i].tensor);
    own->op = copy_of(g->op, own->op_count = g->op_count, sizeof *g->op);
    own->fetch = copy_of(g->fetch, own->fetch_count = g->fetch_count, sizeof *g->fetch);
    plan->kind = !model                 ? "optimizer_step"
                 : g->stage == PL_TRAIN ? "forward_backward"
                                        : "forward";
    plan->tensor_count = model ? model->count : 0;
    plan->tensor = copy_of(model ? model->tensor : NULL, plan->tensor_count,
                           sizeof *plan->tensor);
    plan->params = model ? model->params : 0;
    return own->value && own->op && own->fetch && plan->tensor;
}

/* Kernels of users' operators are asked for here, not at a replay. */
static int kernels_check(const pl_graph_t *g, pl_error_t *err)
{
    for (int i = 0; i < g->op_count; i++)
        if (g->op[i].code == PL_OP_apply && !pl_op_kernel(&g->op[i], PL_REFERENCE, err))
            return PL_EUNSUPPORTED;
    return PL_OK;
}

static int fake_compile(void *self, const pl_graph_t *g, pl_plan_t **plan_p,
                        pl_error_t *err)
{
    fake_t *fake = self;
    int code = fault(fake, "compile", ++fake->compiles, err);
    if (code == PL_OK)
        code = kernels_check(g, err);
    pl_plan_t *plan = code == PL_OK ? pl_alloc(sizeof *plan) : NULL;
    if (code != PL_OK)
        return code;
    if (!plan || !plan_copy(plan, g)) {
        if (plan)
            plan_free(plan);
        return pl_no_memory(err);
    }
    plan->next = fake->plans;
    fake->plans = plan;
    *plan_p = plan_of(plan);
    return PL_OK;
}

static void fake_discard(void *self, pl_plan_t *disguised)
{
    fake_t *fake = self;
    pl_plan_t **next = &fake->plans, *plan = plan_of(disguised);
    while (*next != plan)
        next = &(*next)->next;
    *next = plan->next;
    plan_free(plan);
}

/* ---- Life ---- */

static _Atomic int devices[8];

int fake_device(int local_rank)
{
    return devices[local_rank];
}

static int fake_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    fake_t *fake = self;
    fake->last = &fake->first;
    fake->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fake->timer < 0)
        return pl_fail(err, PL_EBUSY, "no descriptor left");
    if (info->local_rank < (int)(sizeof devices / sizeof *devices))
        devices[info->local_rank] = info->device;
    *info = (pl_device_info_t){.device = info->device,
                               .model = "nothing, float64",
                               .devices = 1,
                               .threads = 1,
                               .library = "loops"};
    int code = fake_script_read(&fake->rules, fake->script, err);
    return code == PL_OK ? fault(fake, "open", 1, err) : code;
}

static void fake_close(void *self)
{
    fake_t *fake = self;
    while (fake->first) {
        inflight_t *inflight = fake->first;
        fake->first = inflight->next;
        pl_free(inflight);
    }
    while (fake->plans) {
        pl_plan_t *plan = fake->plans;
        fake->plans = plan->next;
        plan_free(plan);
    }
    for (int r = 0; r < PL_REGIONS; r++)
        region_drop(fake, r);
    if (fake->timer >= 0)
        close(fake->timer);
}

const pl_accelerator_ops_t fake_accelerator = {
    .name = "fake",
    .help = "computes in float64, for tests",
    .size = sizeof(fake_t),
    .options = fake_options,
    .open = fake_open,
    .close = fake_close,
    .region = fake_region,
    .borrow = fake_borrow,
    .write = fake_write,
    .read = fake_read,
    .compile = fake_compile,
    .discard = fake_discard,
    .replay = fake_replay,
    .descriptor = fake_descriptor,
    .collect = fake_collect,
    .launches = fake_launches,
};
