/* script.c - the program itself runs again for each rank, from its first line on
 *
 * The program is no rank.  With its first run of this launcher it starts a process for
 * each, by its own command line; they go through the program as it does, and where it
 * comes to its k-th run they come to theirs, join it, and each has rank zero's result as
 * its own.  So what the program makes before, such as parts that it registers and data in
 * its memory, each of them has made as well. */
#include <stdio.h>
#include <string.h>

#include "actors/launchers/worker_pool.h"
#include "actors/launchers/participant.h"
#include "actors/launchers/launchers.h"
#include "actors/launchers/job_state.h"
#include "actors/launchers/proxy.h"
#include "actors/launchers/restarts.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/run.h"

enum { KILL_MS = 10 };                             /* between looks at killed processes */

typedef struct script {
    pl_participant_t participant;                   /* in all but the program */
    int64_t max_restarts;                           /* options */
    double join_timeout;                            /* s */
    pl_job_t *own;                                  /* counted: what was asked for here */
    char calls[PL_FOLDER_PATH], bulk[PL_FOLDER_PATH];  /* of all but the program */
    /* Of the program: */
    pl_worker_pool_t *pool;                                 /* taken */
    pl_restarts_t restarts;
    pl_result_broadcast_t *broadcast;                       /* [the run is not over] */
} script_t;

/* ---- the program ---- */

static uint64_t rank_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                           pl_error_t *err)
{
    return pl_proxy_start(ranks, rank, ranks->links, false, life, err);
}

/* No process of before may be left when others begin. */
static void script_begin_again(void *self)
{
    script_t *script = self;
    if (!script->restarts.waits)
        return;
    if (!pl_worker_pool_kill(script->pool)
        && pl_after(self, KILL_MS, script_begin_again, NULL) == PL_OK)
        return;
    pl_restarts_begin(&script->restarts);
    pl_worker_pool_advance(script->pool,
                           pl_rank_links_incarnation(script->participant.ranks.links));
}

static bool script_again(pl_ranks_t *ranks)
{
    script_t *script = (script_t *)ranks;
    if (!pl_worker_pool_has_history(script->pool) || !pl_restarts_try(&script->restarts))
        return false;
    pl_worker_pool_kill(script->pool);
    return true;
}

static void script_now(pl_ranks_t *ranks)
{
    script_begin_again(ranks);
}

static void script_broadcast_result(pl_ranks_t *ranks)
{
    script_t *script = (script_t *)ranks;
    const pl_error_t *failed;
    script->broadcast = pl_result_broadcast(ranks, ranks->links, 0);
    if (!script->broadcast || !script->max_restarts)
        return;
    const pl_blob_t *outcome = pl_result_broadcast_outcome(script->broadcast, &failed);
    pl_worker_pool_record(script->pool, outcome, failed);
}

static int program_open(script_t *script, const pl_body_t *body, pl_error_t *err)
{
    static const pl_ranks_ops_t ops = {.start = rank_start,
                                       .broadcast_result = script_broadcast_result,
                                       .again = script_again,
                                       .now = script_now};
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
                                       .incarnation =
                                           pl_worker_pool_incarnation(script->pool)};
    ranks->links = pl_rank_links_new(script, &spec, err);
    if (!ranks->links)
        return err->code;
    script->restarts = (pl_restarts_t){.ranks = ranks,
                                       .max = script->max_restarts,
                                       .begin = script_begin_again};
    pl_worker_pool_advance(script->pool, spec.incarnation);
    return PL_OK;
}

/* ---- its ranks ---- */

/* What the program is at is what this process has come to. */
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
    if (run < bootstrap->past_runs) {
        pl_error_t failed = {0};
        pl_outcome_t *outcome = pl_run_history_read(bootstrap->folder, run, &failed);
        pl_participant_know(&script->participant, outcome, &failed);
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
        .sharers = bootstrap->world_size};
    return pl_participant_open(&script->participant, &spec,
                               pl_now() + (int64_t)(script->join_timeout * PL_SECOND),
                               job_compare, err);
}

/* ---- the launcher ---- */

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

static int script_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    if (!pl_bootstrap_in_script())
        return pl_ranks_run(self, call, body, err);
    pl_participant_run(self, call);
    return PL_OK;
}

static int script_stop(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    return pl_bootstrap_in_script() ? pl_participant_stop(self, call, body->stop.reason)
                                    : pl_ranks_stop(self, call, body, err);
}

static int script_control(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    return pl_bootstrap_in_script()
               ? pl_participant_control(self, "the program that started it", err)
               : pl_ranks_control(self, call, body, err);
}

/* The program sees all ranks. */
static int script_watch(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    return pl_bootstrap_in_script() ? pl_reply_watch(call, &(pl_watch_reply_t){0})
                                    : pl_ranks_watch(self, call, body, err);
}

static void script_release(void *self)
{
    script_t *script = self;
    pl_result_broadcast_free(script->broadcast);
    pl_participant_release(&script->participant);
    pl_object_unref(script->participant.ranks.links);
    if (script->pool)
        pl_worker_pool_end_run(script->pool);
    pl_object_unref(script->own);
}

static const pl_option_t script_options[] = {
    PL_RESTARTS_OPTION(script_t),
    PL_FLOAT(script_t, join_timeout, "60", "0.001..86400",
             "seconds until all ranks must have joined"),
    PL_OPTIONS_END,
};

static const pl_handler_t script_handlers[] = {
    PL_ON(start, script_start),     PL_ON(run, script_run),     PL_ON(stop, script_stop),
    PL_ON(control, script_control), PL_ON(watch, script_watch), PL_HANDLERS_END,
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
