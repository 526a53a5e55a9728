/* bootstrap.h - how a rank finds its launcher: what one process tells another in its
 * environment */
#ifndef PL_LAUNCHERS_BOOTSTRAP_H
#define PL_LAUNCHERS_BOOTSTRAP_H

#include "actors/launchers/folder.h"
#include "runtime/runtime.h"

typedef struct pl_bootstrap {
    int rank, world_size;
    uint64_t run;
    uint32_t incarnation;
    int64_t began;                         /* zero of the stream's time, ns of pl_now() */
    int log_level;                         /* lines above it are not wanted */
    int grace_ms;                          /* of pl_runtime_t */
    int past_runs;                         /* runs of the program that were over when its
                                              process was started */
    char folder[PL_LINK_FOLDER];
} pl_bootstrap_t;

#define PL_BOOTSTRAP "PACELINE_BOOTSTRAP"          /* of a process that is a rank alone */
#define PL_BOOTSTRAP_IN_SCRIPT "PACELINE_SCRIPT"   /* of one that runs the program */
#define PL_BOOTSTRAP_TEXT 256

/* As a variable of the environment, of that name. */
void pl_bootstrap_write(const pl_bootstrap_t *bootstrap, const char *name,
                        char text[PL_BOOTSTRAP_TEXT]);
/* False: there is none. */
bool pl_bootstrap_read(const char *text, pl_bootstrap_t *bootstrap);
/* For what runs in the process of that rank. */
void pl_bootstrap_enter(const pl_bootstrap_t *bootstrap, pl_runtime_t *runtime);
/* Of this process when it runs the program for a rank; NULL: it does not. */
const pl_bootstrap_t *pl_bootstrap_in_script(void);

#endif
