/* spawn.c - each rank is a fresh process of the same program
 *
 * It enters at pl_init() and gets its work by message, so it knows parts by name alone
 * and sees nothing of the host's memory.  Who is stuck can be killed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/launchers/launchers.h"
#include "actors/launchers/ranks.h"
#include "actors/launchers/remote.h"
#include "actors/launchers/wires.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/runtime.h"

enum { RESTARTS_MOST = 100, FIRST_WAIT_MS = 100, LATER_WAITS = 4, WAIT_MOST_MS = 30000 };
static const int64_t WINDOW = 600 * PL_SECOND;

typedef struct restart {
    int64_t when;
    uint64_t global_step;                                   /* that it came to before */
} restart_t;

typedef struct spawn {
    pl_ranks_t ranks;
    int64_t max_restarts;
    restart_t restart[RESTARTS_MOST];                       /* the newest last */
    int restarts;
    pl_wires_t *wires;                                      /* counted */
    double join_timeout;                                    /* s */
} spawn_t;

static uint64_t process_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                              pl_error_t *err)
{
    const spawn_t *spawn = (const spawn_t *)ranks;
    char options[32];
    snprintf(options, sizeof options, "{\"rank\": %d}", rank->number);
    rank->stuck = "; its process is ended";
    rank->can_end = true;
    const pl_start_t start = {.options = options, .context = (pl_object_t *)spawn->wires};
    return pl_spawn(ranks, &pl_remote, PL_SAME_THREAD, &start, life, &rank->worker, err);
}

/* ---- once more ---- */

static void restarts_forget(spawn_t *spawn)
{
    int old = 0;
    while (old < spawn->restarts && pl_now() - spawn->restart[old].when > WINDOW)
        old++;
    spawn->restarts -= old;
    memmove(spawn->restart, spawn->restart + old,
            (size_t)spawn->restarts * sizeof *spawn->restart);
}

/* Says how often it was tried, and how far each time. */
static void restarts_tell(spawn_t *spawn)
{
    pl_error_t *error = &spawn->ranks.error;
    char steps[160] = "";
    size_t length = 0;
    for (int k = 0; k < spawn->restarts && length < sizeof steps - 24; k++)
        length += (size_t)snprintf(steps + length, sizeof steps - length, "%" PRIu64 ", ",
                                   spawn->restart[k].global_step);
    if (spawn->restarts)
        pl_pass(
            error,
            "started again %d times within %d minutes, and failed after steps %s%" PRIu64,
            spawn->restarts, (int)(WINDOW / PL_SECOND / 60), steps,
            spawn->ranks.global_step);
}

static void spawn_begin_again(void *self)
{
    spawn_t *spawn = self;
    pl_ranks_t *ranks = &spawn->ranks;
    pl_error_t err = {0};
    if (ranks->stops) {
        pl_ranks_answer(ranks);
        return;
    }
    pl_job_t *job = pl_job_again(ranks->job, pl_wires_run_dir(spawn->wires), &err);
    if (!job || pl_wires_renew(spawn->wires, &err) != PL_OK
        || pl_ranks_begin(ranks, job, &err) != PL_OK) {
        ranks->error = err;
        pl_ranks_answer(ranks);
    }
    pl_object_unref(job);
}

/* What a process dies of may not come again; what its program says of itself does. */
static bool spawn_again(pl_ranks_t *ranks)
{
    spawn_t *spawn = (spawn_t *)ranks;
    const int code = ranks->error.code;
    int wait = FIRST_WAIT_MS;
    if ((code != PL_EDIED && code != PL_ESTUCK) || !pl_wires_were_all_there(spawn->wires))
        return false;
    restarts_forget(spawn);
    if (spawn->restarts >= spawn->max_restarts) {
        restarts_tell(spawn);
        return false;
    }
    for (int k = 0; k < spawn->restarts && wait < WAIT_MOST_MS; k++)
        wait *= LATER_WAITS;
    if (pl_after(spawn, wait, spawn_begin_again, NULL) != PL_OK)
        return false;
    spawn->restart[spawn->restarts++] = (restart_t){pl_now(), ranks->global_step};
    ranks->global_step = 0;
    pl_log_line(PL_LOG_WARNING, -1, pl_actor_name(ranks),
                "%s; all ranks are started again, from the newest checkpoint (%d of %d)",
                ranks->error.text, spawn->restarts, (int)spawn->max_restarts);
    return true;
}

static int spawn_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    static const pl_ranks_ops_t processes = {.start = process_start,
                                             .again = spawn_again};
    spawn_t *spawn = self;
    (void)call;
    pl_ranks_init(&spawn->ranks, &processes, body);
    const pl_wires_spec_t spec = {.count = spawn->ranks.count,
                                  .join_ms = pl_milliseconds(spawn->join_timeout),
                                  .run = pl_actor_runtime(self)->run,
                                  .epoch = 1};
    spawn->wires = pl_wires_new(self, &spec, err);
    if (!spawn->wires)
        return err->code;
    pl_actor_ready(self);
    return PL_OK;
}

static void spawn_release(void *self)
{
    spawn_t *spawn = self;
    pl_ranks_release(&spawn->ranks);
    pl_object_unref(spawn->wires);
}

static const pl_option_t spawn_options[] = {
    PL_INT(spawn_t, max_restarts, "3", "0..100",
           "how often the run is started again within 10 minutes when a rank dies"),
    PL_FLOAT(spawn_t, join_timeout, "60", "0.001..86400",
             "seconds until all ranks must have joined"),
    PL_OPTIONS_END,
};

static const pl_handler_t spawn_handlers[] = {
    PL_ON(start, spawn_start),
    PL_ON(run, pl_ranks_run),
    PL_ON(stop, pl_ranks_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_spawn_launcher = {
    .name = "spawn",
    .help = "each rank is a process of this program",
    .size = sizeof(spawn_t),
    .options = spawn_options,
    .role = "launcher",
    .level = PL_LEVEL_LAUNCHER,
    .handlers = spawn_handlers,
    .devices_most = 256,
    .elsewhere = true,
    .release = spawn_release,
};
