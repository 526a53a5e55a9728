/* bootstrap.h - how the process of a rank finds its launcher */
#ifndef PL_LAUNCHERS_BOOTSTRAP_H
#define PL_LAUNCHERS_BOOTSTRAP_H

#include "transport/endpoint.h"
#include "runtime/runtime.h"

/* A new one that only this user can enter, and a descriptor that holds its lock; to be
 * removed also after a failure. */
int pl_folder_make(char folder[PL_SOCKET_FOLDER], int *lock, pl_error_t *err);
/* With its sockets; "" and -1: none. */
void pl_folder_remove(const char *folder, int lock);

/* An endpoint in a folder. */
typedef enum pl_folder_file {
    PL_FOLDER_CALLS,
    PL_FOLDER_BULK,
    PL_FOLDER_STREAM,
    PL_FOLDER_CALLS_BULK,
    PL_FOLDER_CALLS_STREAM,
    PL_FOLDER_RUN_DIR_INDEX,                                /* files */
    PL_FOLDER_FINISHED_RANKS,
    PL_FOLDER_RUN_HISTORY,
    PL_FOLDER_FILES
} pl_folder_file_t;
#define PL_FOLDER_PATH (PL_SOCKET_FOLDER + 24)
const char *pl_folder_path(const char *folder, pl_folder_file_t file,
                           char text[PL_FOLDER_PATH]);

typedef struct pl_bootstrap {
    int rank, world_size;
    uint64_t run;
    uint32_t incarnation;
    int64_t began;                         /* zero of the stream's time, ns of pl_now() */
    int log_level;                         /* lines above it are not wanted */
    int grace_ms;                          /* of pl_runtime_t */
    int past_runs;                         /* runs of the program that were over when its
                                              process was started */
    char folder[PL_SOCKET_FOLDER];
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
