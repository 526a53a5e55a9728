/* bootstrap.c - how a rank finds its launcher */
#include "actors/launchers/bootstrap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void pl_bootstrap_write(const pl_bootstrap_t *p, const char *name,
                        char text[PL_BOOTSTRAP_TEXT])
{
    snprintf(text, PL_BOOTSTRAP_TEXT,
             "%s=%d %d %" PRIu64 " %" PRIu32 " %" PRId64 " %d %d %d %s", name, p->rank,
             p->world_size, p->run, p->incarnation, p->began, p->log_level, p->grace_ms,
             p->past_runs, p->folder);
}

bool pl_bootstrap_read(const char *text, pl_bootstrap_t *p)
{
    *p = (pl_bootstrap_t){0};
    return text
           && sscanf(text, "%d %d %" SCNu64 " %" SCNu32 " %" SCNd64 " %d %d %d %87[^\n]",
                     &p->rank, &p->world_size, &p->run, &p->incarnation, &p->began,
                     &p->log_level, &p->grace_ms, &p->past_runs, p->folder)
                  == 9;
}

void pl_bootstrap_enter(const pl_bootstrap_t *bootstrap, pl_runtime_t *runtime)
{
    runtime->run = bootstrap->run;
    runtime->incarnation = bootstrap->incarnation;
    runtime->began = bootstrap->began;
    runtime->grace_ms = bootstrap->grace_ms;
    runtime->is_child = true;
}

/* A program may ask before it calls pl_init(), which takes it from the environment. */
const pl_bootstrap_t *pl_bootstrap_in_script(void)
{
    static pl_bootstrap_t bootstrap;
    static int is_there = -1;                               /* not looked */
    if (is_there < 0)
        is_there = pl_bootstrap_read(getenv(PL_BOOTSTRAP_IN_SCRIPT), &bootstrap);
    return is_there ? &bootstrap : NULL;
}
