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
typedef enum pl_door {
    PL_DOOR_CALLS,
    PL_DOOR_BULK,
    PL_DOOR_STREAM,
    PL_DOOR_CALLS_BULK,
    PL_DOOR_CALLS_STREAM,
    PL_DOOR_TRAIL,                                          /* files */
    PL_DOOR_DEPARTURES,
    PL_DOOR_PAST,
    PL_DOORS
} pl_door_t;
#define PL_DOOR_TEXT (PL_LINK_FOLDER + 24)
const char *pl_place_door(const char *folder, pl_door_t door, char text[PL_DOOR_TEXT]);

#endif
