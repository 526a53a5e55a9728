/* place.c - where a rank finds its launcher */
#include "actors/launchers/place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void pl_place_write(const pl_place_t *p, const char *name, char text[PL_PLACE_TEXT])
{
    snprintf(text, PL_PLACE_TEXT,
             "%s=%d %d %" PRIu64 " %" PRIu32 " %" PRId64 " %d %d %d %s", name, p->rank,
             p->world_size, p->run, p->incarnation, p->began, p->log_level, p->grace_ms,
             p->past, p->folder);
}

bool pl_place_read(const char *text, pl_place_t *p)
{
    *p = (pl_place_t){0};
    return text
           && sscanf(text, "%d %d %" SCNu64 " %" SCNu32 " %" SCNd64 " %d %d %d %87[^\n]",
                     &p->rank, &p->world_size, &p->run, &p->incarnation, &p->began,
                     &p->log_level, &p->grace_ms, &p->past, p->folder)
                  == 9;
}

void pl_place_enter(const pl_place_t *place, pl_runtime_t *runtime)
{
    runtime->run = place->run;
    runtime->incarnation = place->incarnation;
    runtime->began = place->began;
    runtime->grace_ms = place->grace_ms;
    runtime->is_child = true;
}

/* A program may ask before it calls pl_init(), which takes it from the environment. */
const pl_place_t *pl_place_in_script(void)
{
    static pl_place_t place;
    static int is_there = -1;                               /* not looked */
    if (is_there < 0)
        is_there = pl_place_read(getenv(PL_PLACE_IN_SCRIPT), &place);
    return is_there ? &place : NULL;
}
