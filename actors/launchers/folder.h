/* folder.h - folders for the sockets of processes of one machine */
#ifndef PL_LAUNCHERS_FOLDER_H
#define PL_LAUNCHERS_FOLDER_H

#include "runtime/link.h"

/* A new one that only this user can enter, and a descriptor that holds its lock; to be
 * removed also after a failure. */
int pl_folder_make(char folder[PL_LINK_FOLDER], int *lock, pl_error_t *err);
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
#define PL_FOLDER_PATH (PL_LINK_FOLDER + 24)
const char *pl_folder_path(const char *folder, pl_folder_file_t file,
                           char text[PL_FOLDER_PATH]);

#endif
