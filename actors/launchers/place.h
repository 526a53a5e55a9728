/* place.h - where a rank finds its launcher: what one process tells another in its
 * environment */
#ifndef PL_LAUNCHERS_PLACE_H
#define PL_LAUNCHERS_PLACE_H

#include "actors/launchers/folder.h"
#include "runtime/runtime.h"

typedef struct pl_place {
    int rank, world_size;
    uint64_t run;
    uint32_t incarnation;
    int64_t began;                         /* zero of the stream's time, ns of pl_now() */
    int log_level;                         /* lines above it are not wanted */
    int grace_ms;                          /* of pl_runtime_t */
    int past;                              /* runs of the program that were over when its
                                              process was started */
    char folder[PL_LINK_FOLDER];
} pl_place_t;

#define PL_PLACE "PACELINE_PLACE"                  /* of a process that is a rank alone */
#define PL_PLACE_IN_SCRIPT "PACELINE_SCRIPT"       /* of one that runs the program */
#define PL_PLACE_TEXT 256

/* As a variable of the environment, of that name. */
void pl_place_write(const pl_place_t *place, const char *name, char text[PL_PLACE_TEXT]);
/* False: there is none. */
bool pl_place_read(const char *text, pl_place_t *place);
/* For what runs in the process of that rank. */
void pl_place_enter(const pl_place_t *place, pl_runtime_t *runtime);
/* Of this process when it runs the program for a rank; NULL: it does not. */
const pl_place_t *pl_place_in_script(void);

#endif
