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
    LINK_PLACE = 160,                              /* bytes of what link_place() says */
};

/* ---- link_path.c: what one end keeps for a peer ---- */

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

/* ---- frames ---- */

/* What a frame says. */
typedef enum link_kind {
    LINK_JOIN,                    /* a rank: let me in; JSON: about, world_size, traits,
                                     place */
    LINK_WELCOME,                 /* you are in; texts, each with its end: about, place */
    LINK_REFUSE,                  /* you are not, for good; text: why */
    LINK_BEAT,                    /* a sign of life, with how far it has heard */
    LINK_MESSAGE,                 /* numbered: */
    LINK_LEAVE,                   /* a rank: that was my last */
    LINK_DISMISS,                 /* to a rank: leave; text: why */
    LINK_KINDS
} link_kind_t;

/* Before every frame's bytes; its first two fields stay where they are in all
 * versions. */
typedef struct link_head {
    char magic[6];
    uint8_t version, kind;
    uint64_t run;
    uint64_t who;                /* the end that has sent it, drawn when it was opened; of
                                    a refusal the end that it is for */
    uint32_t incarnation;
    int32_t rank;                        /* the end's that has a rank */
    uint64_t sequence;                   /* of a numbered one; otherwise 0 */
    uint64_t received;                   /* the last numbered one in order that came */
    uint32_t size;                       /* bytes that follow */
    uint32_t sum;                        /* CRC-32C of all that is before it and behind */
} link_head_t;

_Static_assert(sizeof(link_head_t) == 56, "on the wire");

/* ---- an end ---- */

typedef struct link_peer {
    pl_link_state_t state;
    uint64_t who;                                           /* 0: has never joined */
    uint32_t identity;                                      /* of its connection */
    link_path_t path;
    int64_t received_at, sent_at;                           /* when; of a beat to it */
    int64_t cut, died;                                      /* when; 0: not */
    bool is_silent;
    bool is_lost;                             /* a send has found its connection gone */
    bool was_refused;                         /* was refused with PL_EBUSY */
    bool owes_clear;                          /* CLEAR was not told since the last send */
    bool leaves;                              /* has said, or was told, that it does */
    char why[256];                            /* it was dismissed  [""] */
    pl_link_t *link;                          /* while its process is watched: whose it */
    struct event *watch;                      /* is; the watch  [not watched] */
} link_peer_t;

struct pl_link {
    pl_link_spec_t spec;                                    /* its texts owned */
    pl_sockets_t *loop;
    bool is_host;
    uint64_t who;
    pl_socket_t *socket;                                    /* NULL: between two dials */
    link_peer_t *peers;                                     /* host: by rank; rank: one */
    int peer_count;
    pl_map_t identities;                                    /* host: to peers */
    pl_link_counts_t counts;
    struct event *tick, *soon;
    int64_t tick_due, opened;
    int connected, probes;                         /* connections; probes that are left */
    uint64_t keyless;                              /* host: connections with another key,
                                                      or none, that were refused */
    bool said_missing;
    json_t *traits;                                      /* host: of the first to join, */
    int first;                                           /* who that was */
    /* rank: */
    char *ask;                                             /* what a JOIN says */
    pl_lookup_t *lookup;                                   /* of the host  [NULL: none] */
    char unknown[PL_ERROR_TEXT];                           /* why its host is  [""] */
    uint8_t attempt;
    bool was_connected;                                     /* in any attempt */
    int64_t dialled, greeted;                               /* when last */
    bool *freed;                                            /* set when it is freed inside
                                                               a function of the user's */
    uint64_t generation;                                    /* renewed so often */
};

/* Around whatever calls a function of the user's, which may free the link. */
typedef struct link_guard {
    bool freed, *outer;
    uint64_t generation;
} link_guard_t;

void link_enter(pl_link_t *link, link_guard_t *guard);
/* False: the link is freed, or renewed; its peers are others by now. */
bool link_return(pl_link_t *link, link_guard_t *guard);

/* link.c.  Those that return bool do so as link_return(). */
pl_link_t *link_make(const pl_link_spec_t *spec, pl_sockets_t *loop, bool is_host,
                     pl_error_t *err);
int link_number(const pl_link_t *link, const link_peer_t *peer);
/* NULL: there is none of that number. */
link_peer_t *link_peer_of(const pl_link_t *link, int number);
bool link_tell(pl_link_t *link, int peer, pl_link_event_t event, const char *format, ...)
    PL_PRINTF(4, 5);
/* The head and the bytes of a frame; false, and counted, when it is none. */
bool link_read(pl_link_t *link, pl_frame_t *frame, link_head_t *head, pl_bytes_t *bytes);
link_head_t link_head_for(const pl_link_t *link, const link_peer_t *peer,
                          link_kind_t kind);
/* To a connection; what is not numbered may get lost. */
int link_post(pl_link_t *link, uint32_t identity, link_head_t *head, pl_bytes_t bytes,
              pl_error_t *err);
void link_beat(pl_link_t *link, link_peer_t *peer);
int link_queue(pl_link_t *link, link_peer_t *peer, link_kind_t kind, pl_bytes_t bytes,
               pl_error_t *err);
void link_soon(pl_link_t *link, int milliseconds);
/* What a frame of a peer that is there says. */
bool link_received(pl_link_t *link, link_peer_t *peer, const link_head_t *head,
                   pl_bytes_t bytes);
/* It is there, for the first time or again: both sides send what the other has not. */
bool link_there(pl_link_t *link, link_peer_t *peer, uint64_t received, const char *about);
/* Its connection is gone. */
bool link_cut(pl_link_t *link, link_peer_t *peer);
/* The same, after all that had come over it was taken; unless it has joined over another
 * one by that. */
bool link_lost(pl_link_t *link, link_peer_t *peer);
bool link_end(pl_link_t *link, link_peer_t *peer, pl_link_event_t event,
              const char *format, ...) PL_PRINTF(4, 5);

/* Nothing is left of it. */
void link_peer_release(link_peer_t *peer);

/* link_near.c: where this process is, for one that may watch it; "" when that cannot be
 * told. */
const char *link_place(char text[LINK_PLACE]);
/* From now on its death is known, if it is a process of this machine. */
void link_near_watch(pl_link_t *link, link_peer_t *peer, const char *place);
void link_near_end(link_peer_t *peer);
/* Its end, when its process has died and all that it had sent was taken. */
bool link_bury(pl_link_t *link, link_peer_t *peer, int64_t now);

/* link_host.c, link_rank.c: what is theirs of each. */
void host_frame(void *user, uint32_t identity, pl_frame_t *frame);
void rank_frame(void *user, uint32_t identity, pl_frame_t *frame);
bool host_tick(pl_link_t *link, int64_t now);
bool host_soon(pl_link_t *link);
bool rank_tick(pl_link_t *link, int64_t now);
bool rank_soon(pl_link_t *link);
/* Who of them is still connected. */
void host_probe(pl_link_t *link);

#endif
