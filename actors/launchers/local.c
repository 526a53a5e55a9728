/* local.c - launchers of one machine: inline, whose ranks are threads of the host's
 * process, and spawn, whose ranks are fresh processes of the same program
 *
 * A thread cannot be killed: if a rank gives no sign of life, the run ends with
 * PL_ESTUCK, the error names the rank, and its memory is kept.  A process that is stuck
 * is killed.  It enters at pl_init() and gets its work by message, so it finds components
 * by name and has nothing of the host's memory. */
#include "actors/launchers/rank_links.h"
#include "actors/launchers/restarts.h"
#include "actors/worker.h"
#include "base/clock.h"
#include "runtime/runtime.h"

/* ---- inline ---- */

static uint64_t thread_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                             pl_error_t *err)
{
    const pl_start_t start = {.options = "",
                              .ranks = (uint32_t)ranks->count,
                              .local_rank = (uint32_t)rank->number};
    rank->stuck_text = "; its thread cannot be ended and its memory is kept";
    return pl_spawn(ranks, &pl_worker, pl_as_rank(rank->number), &start, life,
                    &rank->worker, err);
}

static int inline_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    static const pl_ranks_ops_t threads = {.start = thread_start};
    (void)call, (void)err;
    pl_ranks_init(self, &threads, body);
    pl_actor_ready(self);
    return PL_OK;
}

static const pl_handler_t inline_handlers[] = {
    PL_ON(start, inline_start),   PL_ON(run, pl_ranks_run),
    PL_ON(stop, pl_ranks_stop),   PL_ON(control, pl_ranks_control),
    PL_ON(watch, pl_ranks_watch), PL_HANDLERS_END,
};

const pl_actor_ops_t pl_inline_launcher = {
    .name = "inline",
    .help = "ranks are threads of this process",
    .size = sizeof(pl_ranks_t),
    .role = "launcher",
    .level = PL_LEVEL_LAUNCHER,
    .handlers = inline_handlers,
    .devices_max = PL_NODE_RANKS_MAX,
    .in_process = true,
    .release = pl_ranks_release,
};

/* ---- spawn ---- */

typedef struct spawn {
    pl_ranks_t ranks;
    int64_t max_restarts;                                   /* options */
    double join_timeout, return_after;                      /* s */
    pl_restarts_t restarts;
} spawn_t;

static int spawn_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    static const pl_ranks_ops_t processes = {.start = pl_proxy_start,
                                             .again = pl_restarts_try,
                                             .now = pl_restarts_begin};
    spawn_t *spawn = self;
    (void)call;
    pl_ranks_init(&spawn->ranks, &processes, body);
    const pl_rank_links_spec_t spec = {.count = spawn->ranks.count,
                                       .join_ms = pl_milliseconds(spawn->join_timeout),
                                       .run = pl_actor_runtime(self)->run,
                                       .incarnation = 1};
    spawn->ranks.links = pl_rank_links_new(self, &spec, err);
    if (!spawn->ranks.links)
        return err->code;
    spawn->restarts = (pl_restarts_t){.max = spawn->max_restarts,
                                      .return_after = spawn->return_after};
    spawn->ranks.restarts = &spawn->restarts;
    pl_actor_ready(self);
    return PL_OK;
}

static const pl_option_t spawn_options[] = {
    PL_RESTARTS_OPTION(spawn_t),
    PL_FLOAT(spawn_t, join_timeout, "60", "0.001..86400",
             "seconds until all ranks must have joined"),
    PL_FLOAT(
        spawn_t, return_after, "60", "0..86400",
        "seconds until a rank that was dropped from a range is started again; the run "
        "is then saved and continues with all ranks; twice as long each time; 0: never"),
    PL_OPTIONS_END,
};

static const pl_handler_t spawn_handlers[] = {
    PL_ON(start, spawn_start),    PL_ON(run, pl_ranks_run),
    PL_ON(stop, pl_ranks_stop),   PL_ON(control, pl_ranks_control),
    PL_ON(watch, pl_ranks_watch), PL_HANDLERS_END,
};

const pl_actor_ops_t pl_spawn_launcher = {
    .name = "spawn",
    .help = "each rank is a process of this program",
    .size = sizeof(spawn_t),
    .options = spawn_options,
    .role = "launcher",
    .level = PL_LEVEL_LAUNCHER,
    .handlers = spawn_handlers,
    .devices_max = PL_NODE_RANKS_MAX,
    .remote_ranks = true,
    .release = pl_ranks_release,
};
