/* script.c - the program itself runs again for each rank, from its first line on
 *
 * The program is no rank.  With its first run of this launcher it starts a process for
 * each rank, by its own command line.  Each process executes the whole program; its k-th
 * run joins the k-th run of the program and has the result of rank zero.  A run of the
 * program that cannot listen does not count: a program tries it again.  So components
 * that the program registers, and data in its memory, exist in each process as well. */
#include <string.h>

#include "actors/launchers/rank_client.h"
#include "actors/launchers/rank_links.h"
#include "actors/launchers/restarts.h"
#include "actors/launchers/supervisor.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/run.h"

enum { KILL_MS = 10 };                             /* between looks at killed processes */

typedef struct script {
    pl_participant_t participant;                           /* in all but the program */
    int64_t max_restarts;                                   /* options */
    double join_timeout;                                    /* s */
    pl_job_t *own;                                          /* counted: requested here */
    char calls[PL_FOLDER_PATH], bulk[PL_FOLDER_PATH];       /* of all but the program */
    /* Of the program: */
    pl_worker_pool_t *pool;                                 /* taken */
    pl_restarts_t restarts;
    pl_result_broadcast_t *broadcast;                       /* [the run is not over] */
} script_t;

static const uint64_t HISTORY_MAX = UINT64_C(1) << 30;      /* bytes of all results */

/* ---- The program ---- */

/* All processes of the failed run must have ended when the next begins. */
static void script_begin_again(void *self)
{
    script_t *script = self;
    if (!script->restarts.waits)
        return;
    if (!pl_worker_pool_kill(script->pool)
        && pl_after(self, KILL_MS, script_begin_again, NULL) == PL_OK)
        return;
    pl_restarts_begin(self);
    script->pool->incarnation = script->participant.ranks.links->bootstrap.incarnation;
}

static bool script_again(pl_ranks_t *ranks)
{
    script_t *script = (script_t *)ranks;
    if (!pl_worker_pool_may_restart(script->pool) || !pl_restarts_try(ranks))
        return false;
    pl_worker_pool_kill(script->pool);
    return true;
}

static void script_broadcast_result(pl_ranks_t *ranks)
{
    script_t *script = (script_t *)ranks;
    pl_error_t err = {0};
    script->broadcast = pl_result_broadcast(ranks, 0);
    if (!script->broadcast || !script->max_restarts
        || !pl_worker_pool_may_restart(script->pool))
        return;
    if (pl_run_history_add(script->pool->folder, HISTORY_MAX, script->broadcast->outcome,
                           &script->broadcast->error, &err)
        == PL_OK)
        script->pool->recorded++;
    else
        pl_log_line(PL_LOG_WARNING, -1, "launcher.script",
                    "later runs cannot start a process again, because the result of "
                    "this run cannot be kept: %s",
                    err.text);
}

static int program_open(script_t *script, const pl_body_t *body, pl_error_t *err)
{
    static const pl_ranks_ops_t ops = {.start = pl_proxy_start,
                                       .broadcast_result = script_broadcast_result,
                                       .again = script_again,
                                       .now = script_begin_again};
    pl_ranks_t *ranks = &script->participant.ranks;
    pl_ranks_init(ranks, &ops, body);
    if (ranks->min < ranks->count)
        return pl_fail(
            err, PL_EINVAL,
            "\"trainer.devices\" is a range, but launcher \"script\" needs one number, "
            "the same in all processes");
    script->pool = pl_worker_pool_begin_run(script, ranks->count, err);
    if (!script->pool)
        return err->code;
    const pl_rank_links_spec_t spec = {.count = ranks->count,
                                       .join_ms = pl_milliseconds(script->join_timeout),
                                       .pool = script->pool,
                                       .run = pl_actor_runtime(script)->run,
                                       .incarnation = script->pool->incarnation + 1};
    ranks->links = pl_rank_links_new(script, &spec, err);
    if (!ranks->links) {
        script->pool->runs--;       /* its processes take the program's next run for it */
        return err->code;
    }
    script->restarts = (pl_restarts_t){.max = script->max_restarts,
                                       .begin = script_begin_again};
    ranks->restarts = &script->restarts;
    script->pool->incarnation = spec.incarnation;
    return PL_OK;
}

/* ---- The processes of its ranks ---- */

/* The run of the program must be the run of this process. */
static int job_compare(void *self, pl_job_t *job, pl_error_t *err)
{
    const script_t *script = self;
    const pl_job_t *own = script->own;
    if (job->stage != own->stage)
        return pl_fail(err, PL_EINVAL,
                       "rank %d calls \"%s\", but the program calls \"%s\": all "
                       "processes must make the same calls in the same order",
                       script->participant.spec.rank, pl_stages[own->stage].verb,
                       pl_stages[job->stage].verb);
    char *theirs = pl_options_text(job->options, err),
         *ours = theirs ? pl_options_text(own->options, err) : NULL;
    int code = ours ? PL_OK : PL_ENOMEM;
    if (ours && strcmp(theirs, ours))
        code = pl_fail(err, PL_EINVAL,
                       "the options of this run differ between the program and the "
                       "process of rank %d: all processes must make the same calls in "
                       "the same order",
                       script->participant.spec.rank);
    pl_text_free(theirs);
    pl_text_free(ours);
    return code;
}

static int guest_open(script_t *script, const pl_bootstrap_t *bootstrap, pl_error_t *err)
{
    static int runs;                                        /* of this process; atomic */
    const int run = __atomic_fetch_add(&runs, 1, __ATOMIC_RELAXED);
    script->participant.coordinator = "the program that started it";
    if (run < bootstrap->past_runs) {
        pl_error_t failed = {0};
        pl_outcome_t *outcome = pl_run_history_read(bootstrap->folder, run, &failed);
        script->participant.has_result = true;
        script->participant.outcome = outcome;
        script->participant.error = failed;
        return PL_OK;
    }
    const pl_rank_client_spec_t spec = {
        .calls = pl_folder_path(bootstrap->folder, PL_FOLDER_CALLS, script->calls),
        .bulk = pl_folder_path(bootstrap->folder, PL_FOLDER_BULK, script->bulk),
        .run = bootstrap->run,
        .incarnation = bootstrap->incarnation + (uint32_t)(run - bootstrap->past_runs),
        .rank = bootstrap->rank,
        .world_size = bootstrap->world_size,
        .local_rank = bootstrap->rank,
        .sharers = bootstrap->world_size,
        .on_job = job_compare};
    return pl_participant_open(&script->participant, &spec,
                               pl_now() + (int64_t)(script->join_timeout * PL_SECOND),
                               err);
}

/* ---- The launcher ---- */

static int script_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    script_t *script = self;
    const pl_bootstrap_t *bootstrap = pl_bootstrap_in_script();
    (void)call;
    script->own = pl_object_ref(body->start.context);
    int code = bootstrap ? guest_open(script, bootstrap, err)
                         : program_open(script, body, err);
    if (code == PL_OK)
        pl_actor_ready(self);
    return code;
}

static void script_release(void *self)
{
    script_t *script = self;
    pl_result_broadcast_free(script->broadcast);
    pl_participant_release(&script->participant);
    if (script->pool)
        script->pool->is_taken = false;
    pl_object_unref(script->own);
}

static const pl_option_t script_options[] = {
    PL_RESTARTS_OPTION(script_t),
    PL_FLOAT(script_t, join_timeout, "60", "0.001..86400",
             "seconds until all ranks must have joined"),
    PL_OPTIONS_END,
};

static const pl_handler_t script_handlers[] = {
    PL_ON(start, script_start),         PL_ON(run, pl_participant_run),
    PL_ON(stop, pl_participant_stop),   PL_ON(control, pl_participant_control),
    PL_ON(watch, pl_participant_watch), PL_HANDLERS_END,
};

const pl_actor_ops_t pl_script_launcher = {
    .name = "script",
    .help = "the program itself runs again for each rank",
    .size = sizeof(script_t),
    .options = script_options,
    .role = "launcher",
    .level = PL_LEVEL_LAUNCHER,
    .handlers = script_handlers,
    .devices_max = PL_NODE_RANKS_MAX,
    .release = script_release,
};
