/* control.c - what it costs to lead many ranks: launch, one barrier and the end of 16 to
 * 1 024 of them
 *
 *     control [RUNS]
 *
 * The launcher's own code over ranks that compute nothing, as actors of one thread: each
 * takes its run, reports an address of 22 bytes, gets the table of all of them, answers
 * and ends.  So what is timed is calls and answers, and how they grow with the number of
 * ranks; processes and the network between them are not in it.  The tables of 1 024 ranks
 * have 1 024 rows each: 26 MB, most of the memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/launchers/ranks.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/reactor.h"
#include "t/bench/bench.h"

enum { RUNS = 9, RUNS_MAX = 101, RANKS_MIN = 16, RANKS_MAX = 1024, STEP = 4 };

static pl_reactor_t *reactor;
static int begun, met;                                      /* ranks */
static int64_t all_begun, all_met;

/* ---- a rank ---- */

typedef struct member {
    pl_call_t *run;
} member_t;

static int member_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

static int member_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    char address[64];
    (void)body, (void)err;
    ((member_t *)self)->run = call;
    snprintf(address, sizeof address, "tcp://10.0.%d.%d:%d", begun / 256 % 256,
             begun % 256, 40000 + begun);
    begun++;
    all_begun = pl_now();
    return pl_progress_run(call, &(pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE,
                                                      .metrics = "",
                                                      .address = address});
}

static int member_join(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    pl_outcome_t *outcome = pl_outcome_new(err);
    if (!outcome || !strlen(body->join.addresses))
        return err->code;
    met++;
    all_met = pl_now();
    pl_reply_join(call, &(pl_join_reply_t){0});
    pl_reply_run(((member_t *)self)->run, &(pl_run_reply_t){.outcome = &outcome->object});
    pl_object_unref(outcome);
    return PL_OK;
}

static const pl_handler_t member_handlers[] = {PL_ON(start, member_start),
                                               PL_ON(run, member_run),
                                               PL_ON(join, member_join), PL_HANDLERS_END};
static const pl_actor_ops_t member_ops = {.name = "member",
                                          .size = sizeof(member_t),
                                          .level = PL_LEVEL_WORKER,
                                          .handlers = member_handlers};

/* ---- the launcher ---- */

static uint64_t member_launch(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                              pl_error_t *err)
{
    return pl_spawn(ranks, &member_ops, PL_SAME_THREAD, &(pl_start_t){.options = ""},
                    life, &rank->worker, err);
}

static int launcher_start(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    static const pl_ranks_ops_t members = {.start = member_launch};
    (void)call, (void)err;
    pl_ranks_init(self, &members, body);
    pl_actor_ready(self);
    return PL_OK;
}

static void launcher_release(void *self)
{
    pl_ranks_release(self);
}

static const pl_handler_t launcher_handlers[] = {PL_ON(start, launcher_start),
                                                 PL_ON(run, pl_ranks_run),
                                                 PL_HANDLERS_END};
static const pl_actor_ops_t launcher_ops = {.name = "simulated",
                                            .size = sizeof(pl_ranks_t),
                                            .level = PL_LEVEL_LAUNCHER,
                                            .handlers = launcher_handlers,
                                            .release = launcher_release};

/* ---- the caller ---- */

typedef struct asker {
    pl_address_t launcher;
    bool answered;
} asker_t;

static const pl_actor_ops_t asker_ops = {.name = "asker",
                                         .size = sizeof(asker_t),
                                         .level = PL_LEVEL_TRAINER};

static void run_answered(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_PROGRESS)
        return;
    if (answer->kind == PL_ANSWER_ERROR)
        bench_must(answer->error->code, answer->error);
    ((asker_t *)self)->answered = true;
    pl_reactor_leave(reactor);
}

typedef struct phases {
    double begin, meet, end, all;                           /* ms */
} phases_t;

static phases_t lead(pl_runtime_t *runtime, int ranks)
{
    pl_error_t err;
    void *self;
    char count[16];
    snprintf(count, sizeof count, "%d", ranks);
    pl_options_t *options = pl_options_new(&err);
    bench_must(options ? pl_options_set(options, "trainer.devices", count, &err)
                       : PL_ENOMEM,
               &err);
    pl_job_t *job = pl_job_new(options, PL_TRAIN, &err);
    bench_must(job ? PL_OK : PL_EINVAL, &err);
    reactor = pl_reactor_new(runtime, -1, &err);
    bench_must(reactor ? PL_OK : PL_ENOMEM, &err);
    bench_must(pl_actor_root(reactor, &asker_ops, &self, &err), &err);
    asker_t *asker = self;
    begun = met = 0;
    const int64_t from = pl_now();
    const pl_start_t start = {.options = "", .context = &job->object};
    pl_spawn(asker, &launcher_ops, PL_SAME_THREAD, &start, (pl_how_t){0},
             &asker->launcher, &err);
    pl_call_run(asker, asker->launcher, &(pl_run_t){.job = &job->object},
                (pl_how_t){.on_answer = run_answered}, &err);
    pl_reactor_run(reactor);
    const int64_t to = pl_now();
    if (!asker->answered || begun != ranks || met != ranks) {
        fprintf(stderr, "control: of %d ranks %d began and %d met\n", ranks, begun, met);
        exit(1);
    }
    pl_reactor_free(reactor);
    pl_object_unref(job);
    pl_options_free(options);
    return (phases_t){(double)(all_begun - from) / 1e6,
                      (double)(all_met - all_begun) / 1e6, (double)(to - all_met) / 1e6,
                      (double)(to - from) / 1e6};
}

static double median_of(const phases_t *phases, int runs, size_t member)
{
    double value[RUNS_MAX];
    for (int k = 0; k < runs; k++)
        memcpy(&value[k], (const char *)&phases[k] + member, sizeof value[k]);
    return bench_median(value, runs);
}

int main(int argc, char **argv)
{
    const int runs = bench_runs(argc, argv, RUNS, RUNS_MAX);
    pl_runtime_t runtime;
    pl_error_t err;
    double min = 0, max = 0;
    bench_must(pl_runtime_init(&runtime, &err), &err);
    for (int ranks = RANKS_MIN; ranks <= RANKS_MAX; ranks *= STEP) {
        phases_t phases[RUNS_MAX];
        for (int k = 0; k < runs; k++)
            phases[k] = lead(&runtime, ranks);
        max = median_of(phases, runs, offsetof(phases_t, all));
        min = ranks == RANKS_MIN ? max : min;
        printf("{\"name\": \"control plane, %d ranks\", \"unit\": \"ms\", \"ours\": "
               "%.3f, \"start\": %.3f, \"barrier\": %.3f, \"stop\": %.3f}\n",
               ranks, max, median_of(phases, runs, offsetof(phases_t, begin)),
               median_of(phases, runs, offsetof(phases_t, meet)),
               median_of(phases, runs, offsetof(phases_t, end)));
    }
    printf("{\"name\": \"control plane, %d ranks against %d\", \"unit\": \"times\", "
           "\"ours\": %.1f}\n",
           RANKS_MAX, RANKS_MIN, max / min);
    pl_runtime_release(&runtime);
    return 0;
}
