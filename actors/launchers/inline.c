/* inline.c - ranks as threads of the host's process
 *
 * A thread cannot be killed: if a rank gives no sign of life, the run ends with
 * PL_ESTUCK, the error names the rank, and its memory is kept.  Launchers that start
 * processes kill the rank. */
#include "actors/launchers/launchers.h"
#include "actors/launchers/ranks.h"
#include "actors/worker.h"

static uint64_t thread_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                             pl_error_t *err)
{
    const pl_start_t start = {.options = "",
                              .ranks = (uint32_t)ranks->count,
                              .local_rank = (uint32_t)rank->number};
    rank->stuck = "; its thread cannot be ended and its memory is kept";
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
