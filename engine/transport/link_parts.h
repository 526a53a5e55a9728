/* link_parts.h - what link.c (both ends), link_host.c (the listening one) and link_rank.c
 * (the connecting one) share */
#ifndef PL_TRANSPORT_LINK_PARTS_H
#define PL_TRANSPORT_LINK_PARTS_H

#include <jansson.h>

#include "base/clock.h"
#include "base/map.h"
#include "transport/endpoint.h"
#include "transport/link.h"
#include "transport/lookup.h"
#include "transport/socket.h"

enum {
    LINK_HIGH_WATER = 128,                         /* messages in a connection's queues */
    LINK_PLACE = 160,                              /* bytes of link_place() */
};

/* ---- link_path.c: what one end keeps for a peer ---- */

/* A sent message, until the other side has acknowledged it. */
typedef struct link_entry {
    struct link_entry *next;
    uint64_t sequence;                                      /* from 1 */
    uint8_t kind;
    size_t size;
    unsigned char bytes[];
} link_entry_t;

typedef struct link_path {
    link_entry_t *oldest, *newest;
    link_entry_t *unsent;                        /* the oldest that was not passed to this
                                                    connection  [none] */
    uint64_t last;                               /* sequence of the newest ever sent */
    size_t bytes;                                /* of the kept messages */
    uint64_t received;                           /* the last in order that arrived */
    uint64_t acknowledged;                       /* the last that we acknowledged */
    size_t unacknowledged_bytes;                 /* received since */
} link_path_t;

/* Keeps a copy to be sent.  PL_EBUSY: more than `max` bytes would be kept. */
int link_path_queue(link_path_t *path, uint8_t kind, pl_bytes_t bytes, size_t max,
                    pl_error_t *err);
/* The other side has all messages up to this one; false: it was never sent. */
bool link_path_acknowledge(link_path_t *path, uint64_t sequence);
/* A new connection: all kept messages are sent again; -> how many had been sent. */
int link_path_rewind(link_path_t *path);

/* A message has arrived; false: it had arrived before. */
bool link_path_take(link_path_t *path, uint64_t sequence, size_t size);

/* Frees all messages. */
void link_path_release(link_path_t *path);

/* ---- frames ---- */

/* The kind of a frame. */
typedef enum link_kind {
    LINK_JOIN,                     /* a rank asks to be admitted; JSON: about, world_size,
                                      traits, place */
    LINK_WELCOME,                  /* it is admitted; texts, each with its end: about,
                                      place */
    LINK_REFUSE,                   /* it is not admitted, for good; text: why */
    LINK_BEAT,                     /* a heartbeat, with the last number received */
    LINK_MESSAGE,                  /* from here on numbered: a message */
    LINK_LEAVE,                    /* a rank leaves; this is its last message */
    LINK_DISMISS,                  /* to a rank: leave; text: why */
    LINK_KINDS
} link_kind_t;

/* Before every frame's bytes; its first two fields stay where they are in all
 * versions. */
typedef struct link_head {
    char magic[6];
    uint8_t version, kind;
    uint64_t run;
    uint64_t sender;                /* random number of the sending end, drawn when it was
                                       opened; of a refusal: of the receiving end */
    uint32_t incarnation;
    int32_t rank;                      /* of the end that has a rank */
    uint64_t sequence;                 /* of a numbered frame; otherwise 0 */
    uint64_t received;                 /* the last number received in order */
    uint32_t size;                     /* bytes that follow */
    uint32_t sum;                      /* CRC-32C of the fields before it and the bytes */
} link_head_t;

_Static_assert(sizeof(link_head_t) == 56, "on the wire");

/* ---- an end ---- */

typedef struct link_peer {
    pl_link_state_t state;
    uint64_t sender;                                        /* 0: has never joined */
    uint32_t identity;                                      /* of its connection */
    link_path_t path;
    int64_t received_at, sent_at;                        /* times; sent: of a heartbeat */
    int64_t cut, died;                                   /* times; 0: not */
    bool is_silent;
    bool is_lost;                               /* a send has failed because it is gone */
    bool was_refused;                           /* was refused with PL_EBUSY */
    bool owes_clear;                            /* CLEAR is due after the last send */
    bool leaves;                                /* LEAVE or DISMISS was sent */
    char why[256];                              /* reason of a dismissal  [""] */
    pl_link_t *link;                            /* while its process is watched */
    struct event *watch;                        /* its death  [not watched] */
} link_peer_t;

struct pl_link {
    pl_link_spec_t spec;                                    /* with copies of its texts */
    pl_sockets_t *loop;
    bool is_host;
    uint64_t sender;
    pl_socket_t *socket;                                    /* NULL: between two dials */
    link_peer_t *peers;                                     /* host: by rank; rank: one */
    int peer_count;
    pl_map_t identities;                                    /* host: to peers */
    pl_link_counts_t counts;
    struct event *tick, *soon;
    int64_t tick_due, opened;
    int connected, probes;                          /* connections; probes left */
    uint64_t keyless;                               /* host: connections with another key,
                                                       or none, that were refused */
    bool said_missing;
    json_t *traits;                                   /* host: of the first that joined */
    int first;                                        /* its rank */
    /* rank: */
    char *ask;                                         /* text of a JOIN */
    pl_lookup_t *lookup;                               /* of the host  [NULL: none] */
    char unknown[PL_ERROR_TEXT];                       /* why the host is unknown  [""] */
    uint8_t attempt;
    bool was_connected;                                     /* in any attempt */
    int64_t dialled, greeted;                               /* times of the last */
    bool *freed;                                            /* set when it is freed inside
                                                               a function of the user */
    uint64_t generation;                                    /* number of renewals */
};

/* Around a call of a function of the user, which may free the link. */
typedef struct link_guard {
    bool freed, *outer;
    uint64_t generation;
} link_guard_t;

void link_enter(pl_link_t *link, link_guard_t *guard);
/* False: the link was freed or renewed, and its peers do not exist any more. */
bool link_return(pl_link_t *link, link_guard_t *guard);

/* link.c.  Functions that return bool do so as link_return(). */
pl_link_t *link_make(const pl_link_spec_t *spec, pl_sockets_t *loop, bool is_host,
                     pl_error_t *err);
int link_number(const pl_link_t *link, const link_peer_t *peer);
/* NULL: no peer has that number. */
link_peer_t *link_peer_of(const pl_link_t *link, int number);
bool link_tell(pl_link_t *link, int peer, pl_link_event_t event, const char *format, ...)
    PL_PRINTF(4, 5);
/* The head and the bytes of a frame; false: no link sent it, which is counted. */
bool link_read(pl_link_t *link, pl_frame_t *frame, link_head_t *head, pl_bytes_t *bytes);
link_head_t link_head_for(const pl_link_t *link, const link_peer_t *peer,
                          link_kind_t kind);
/* Sends to a connection; frames without number may be lost. */
int link_post(pl_link_t *link, uint32_t identity, link_head_t *head, pl_bytes_t bytes,
              pl_error_t *err);
void link_beat(pl_link_t *link, link_peer_t *peer);
int link_queue(pl_link_t *link, link_peer_t *peer, link_kind_t kind, pl_bytes_t bytes,
               pl_error_t *err);
void link_soon(pl_link_t *link, int milliseconds);
/* Handles a frame of a joined peer. */
bool link_received(pl_link_t *link, link_peer_t *peer, const link_head_t *head,
                   pl_bytes_t bytes);
/* A peer is connected, for the first time or again: both sides send missing messages. */
bool link_there(pl_link_t *link, link_peer_t *peer, uint64_t received, const char *about);
/* Its connection has ended. */
bool link_cut(pl_link_t *link, link_peer_t *peer);
/* The same, after all messages from that connection were received; no effect if the peer
 * has joined over another connection by then. */
bool link_lost(pl_link_t *link, link_peer_t *peer);
bool link_end(pl_link_t *link, link_peer_t *peer, pl_link_event_t event,
              const char *format, ...) PL_PRINTF(4, 5);

/* Frees what a peer has. */
void link_peer_release(link_peer_t *peer);

/* link_near.c: the place of this process, for a process that may watch it; "":
 * unknown. */
const char *link_place(char text[LINK_PLACE]);
/* Watches the process of a peer, if it is on this machine. */
void link_near_watch(pl_link_t *link, link_peer_t *peer, const char *place);
void link_near_end(link_peer_t *peer);
/* Ends a peer whose process has died, after all its messages were received. */
bool link_bury(pl_link_t *link, link_peer_t *peer, int64_t now);

/* link_host.c and link_rank.c: the parts that differ. */
void host_frame(void *user, uint32_t identity, pl_frame_t *frame);
void rank_frame(void *user, uint32_t identity, pl_frame_t *frame);
bool host_tick(pl_link_t *link, int64_t now);
bool host_soon(pl_link_t *link);
bool rank_tick(pl_link_t *link, int64_t now);
bool rank_soon(pl_link_t *link);
/* Finds out which peers are still connected. */
void host_probe(pl_link_t *link);

#endif
