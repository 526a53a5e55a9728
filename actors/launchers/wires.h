/* wires.h - the links of a launcher with the processes of its ranks
 *
 * One link for calls and one for bulk, in a folder of their own, for all ranks; whoever
 * stands in for a rank is told what comes from that one.  Counted; all on the launcher's
 * thread, and gone with its last reference. */
#ifndef PL_LAUNCHERS_WIRES_H
#define PL_LAUNCHERS_WIRES_H

#include "runtime/bulk.h"

typedef struct pl_wires pl_wires_t;

/* What happens at one rank's end.  None may end the links. */
typedef struct pl_wire_ops {
    void (*on_message)(void *self, pl_frame_t *message);
    /* Of the link of calls; GONE and LEFT of bulk as well. */
    void (*on_event)(void *self, pl_link_event_t event, const char *text);
    /* Bulk has come there, or, with an error, never will. */
    void (*on_sent)(void *self, const pl_error_t *error);
} pl_wire_ops_t;

/* For the launcher itself, which must outlive them; all ranks must have joined within
 * join_ms. */
pl_wires_t *pl_wires_new(void *launcher, int count, int join_ms, pl_error_t *err);

void pl_wires_attach(pl_wires_t *wires, int rank, const pl_wire_ops_t *ops, void *self);
void pl_wires_detach(pl_wires_t *wires, int rank);

pl_link_t *pl_wires_link(const pl_wires_t *wires);
pl_bulk_t *pl_wires_bulk(const pl_wires_t *wires);
/* The rank has left or is gone on both: nothing comes any more. */
bool pl_wires_is_over(const pl_wires_t *wires, int rank);
void pl_wires_died(pl_wires_t *wires, int rank);
/* A new incarnation of all ranks, after all have ended. */
int pl_wires_renew(pl_wires_t *wires, pl_error_t *err);
uint32_t pl_wires_epoch(const pl_wires_t *wires);
/* All ranks of this incarnation were there once. */
bool pl_wires_were_all_there(const pl_wires_t *wires);
/* The run's folder, which one of the ranks tells all others  [not yet]. */
void pl_wires_tell_run_dir(pl_wires_t *wires, const char *path);
const char *pl_wires_run_dir(const pl_wires_t *wires);

/* Where a rank finds its launcher: what one process tells another in its environment. */
typedef struct pl_place {
    int rank, world_size;
    uint64_t run;
    uint32_t epoch;
    int64_t began;                      /* zero of the stream's time, ns of pl_now() */
    int log_level;                      /* lines above it are not wanted */
    int stream;                         /* 1: somebody takes it; 2: all of it  [nobody] */
    int grace_ms;                       /* of pl_runtime_t */
    char folder[PL_LINK_FOLDER];
} pl_place_t;

#define PL_PLACE "PACELINE_PLACE"
#define PL_PLACE_TEXT 256

void pl_wires_place(const pl_wires_t *wires, int rank, char text[PL_PLACE_TEXT]);
/* False: there is none. */
bool pl_place_read(const char *text, pl_place_t *place);
/* An endpoint in a folder. */
typedef enum pl_door { PL_DOOR_CALLS, PL_DOOR_BULK, PL_DOOR_STREAM, PL_DOORS } pl_door_t;
#define PL_DOOR_TEXT (PL_LINK_FOLDER + 16)
const char *pl_place_door(const char *folder, pl_door_t door, char text[PL_DOOR_TEXT]);

#endif
