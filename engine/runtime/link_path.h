/* link_path.h - what one end of a link keeps for a peer: messages not acknowledged yet,
 * and how far it has heard
 *
 * No clock and no socket: whoever has those asks what to send and tells what came. */
#ifndef PL_RUNTIME_LINK_PATH_H
#define PL_RUNTIME_LINK_PATH_H

#include "runtime/actor.h"

/* A message from when it is sent until the other side has acknowledged it. */
typedef struct link_entry {
    struct link_entry *next;
    uint64_t sequence;                                      /* from 1 */
    uint8_t kind;
    size_t size;
    unsigned char bytes[];
} link_entry_t;

typedef struct link_path {
    link_entry_t *oldest, *newest;
    link_entry_t *unsent;                    /* the oldest that this connection has not
                                                been given  [it has all] */
    uint64_t last;                           /* sequence of the newest ever sent */
    size_t bytes;                            /* of those that are kept */
    uint64_t received;                       /* the last in order that came */
    uint64_t acknowledged;                   /* the last that the other side knows came */
    size_t unacknowledged_bytes;             /* of what came since */
} link_path_t;

/* Keeps a copy to be sent.  PL_EBUSY: then more than `most` bytes would be kept. */
int link_path_queue(link_path_t *path, uint8_t kind, pl_bytes_t bytes, size_t max,
                    pl_error_t *err);
/* The other side has all up to that one: false when it never was sent. */
bool link_path_acknowledge(link_path_t *path, uint64_t sequence);
/* A new connection: all that is kept is to be sent again; how many had been sent. */
int link_path_rewind(link_path_t *path);

/* The message that was awaited has come, or, false, one that had come before. */
bool link_path_take(link_path_t *path, uint64_t sequence, size_t size);

/* Nothing is to be sent any more. */
void link_path_release(link_path_t *path);

#endif
