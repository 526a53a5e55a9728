/* spawn.c - each rank is a fresh process of the same program
 *
 * It enters at pl_init() and gets its work by message, so it knows parts by name alone
 * and sees nothing of the host's memory.  A rank that is stuck can be killed. */
#include "actors/launchers/supervisor.h"
#include "actors/launchers/launchers.h"
#include "actors/launchers/proxy.h"
#include "base/clock.h"
#include "runtime/runtime.h"

typedef struct spawn {
    pl_ranks_t ranks;
    int64_t max_restarts;                                   /* options */
    double join_timeout, return_after;                      /* s */
    pl_restarts_t restarts;
} spawn_t;

static uint64_t process_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                              pl_error_t *err)
{
    return pl_proxy_start(ranks, rank, ranks->links, false, life, err);
}

static void spawn_begin_again(void *self)
{
    pl_restarts_begin(&((spawn_t *)self)->restarts);
}

static void spawn_look(void *self)
{
    pl_restarts_look(&((spawn_t *)self)->restarts);
}

static bool spawn_again(pl_ranks_t *ranks)
{
    return pl_restarts_try(&((spawn_t *)ranks)->restarts);
}

static void spawn_now(pl_ranks_t *ranks)
{
    pl_restarts_begin(&((spawn_t *)ranks)->restarts);
}

static int spawn_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    static const pl_ranks_ops_t processes = {.start = process_start,
                                             .again = spawn_again,
                                             .now = spawn_now};
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
    spawn->restarts = (pl_restarts_t){.ranks = &spawn->ranks,
                                      .max = spawn->max_restarts,
                                      .begin = spawn_begin_again,
                                      .look = spawn_look,
                                      .return_after = spawn->return_after};
    pl_actor_ready(self);
    return PL_OK;
}

static void spawn_release(void *self)
{
    spawn_t *spawn = self;
    pl_ranks_release(&spawn->ranks);
    pl_object_unref(spawn->ranks.links);
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
    .release = spawn_release,
};
