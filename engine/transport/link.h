/* link.h - links between processes: messages arrive once, in order and complete, or the
 * sender gets an error
 *
 * The launcher's end listens and has a peer for each rank.  A rank's end connects and has
 * one peer, PL_LINK_HOST.  A rank joins with its run, incarnation and rank; a rank that
 * does not belong is refused with a reason.  A message is kept until the other side has
 * acknowledged it, so a connection that breaks and returns within rejoin_ms loses nothing
 * and repeats nothing.
 *
 * A link distinguishes three conditions.  CUT: the connection has ended (a cable, a
 * partition), and no process has died.  SILENT: the peer may be connected, but its thread
 * does not run.  GONE: the peer will not return.  A parent observes the death of a
 * process and reports it by pl_link_died(); a link on the same machine observes it too.
 * Messages of another incarnation are counted and dropped.
 *
 * A link does not interpret its messages.  All calls are on the thread of its loop.
 */
#ifndef PL_TRANSPORT_LINK_H
#define PL_TRANSPORT_LINK_H

#include "transport/frame.h"
#include "transport/keys.h"

typedef struct pl_link pl_link_t;
struct pl_sockets;

#define PL_LINK_HOST (-1)                                  /* the peer of a rank's end */
#define PL_LINK_VERSION 2                                  /* of the frames on the wire */

typedef enum pl_link_event {
    PL_LINK_JOINED,    /* text: the other side's `about`; messages may be sent.  A rank's
                          end: it was admitted. */
    PL_LINK_CUT,       /* the connection has ended; messages wait */
    PL_LINK_BACK,      /* the connection is restored; nothing was lost */
    PL_LINK_SILENT,    /* no data arrived for silence_ms */
    PL_LINK_RECEIVED,  /* data arrives again after that */
    PL_LINK_WRITABLE,  /* after PL_EBUSY: messages are accepted again */
    PL_LINK_CLEAR,     /* all sent messages have arrived */
    PL_LINK_LEFT,      /* the peer has left in order, and all its messages have arrived */
    PL_LINK_GONE,      /* dead, or cut for longer than rejoin_ms, or the lease has
                          expired, or a rank with a lease was silent for rejoin_ms; no
                          message arrives any more in this incarnation.  A rank's end
                          also: it was refused or dismissed, as text says, or not admitted
                          within join_ms. */
    PL_LINK_MISSING,   /* join_ms has passed; text names the ranks that have not joined.
                          Peer: PL_LINK_HOST. */
    PL_LINK_REFUSED,   /* a rank was not admitted; text says which one and why.  Peer:
                          the rank that it claimed, or PL_LINK_HOST. */
} pl_link_event_t;

/* In milliseconds; 0 stands for what is in [brackets]. */
typedef struct pl_link_times {
    int join;            /* until all ranks must have joined  [60 000] */
    int beat;            /* between heartbeats  [500] */
    int silence;         /* after which a peer counts as silent  [3 700] */
    int rejoin;          /* that a connection may be cut  [4 200] */
    bool has_lease;      /* ranks do not die with their parent: a rank that receives
                            nothing for `silence` is GONE, and for the listening end a
                            rank from which nothing arrives for `rejoin`.  That is longer,
                            so the rank has ended when the launcher starts another */
} pl_link_times_t;

typedef struct pl_link_spec {
    const char *endpoint;             /* "ipc://FILE" in a folder that only this user
                                         can enter (pl_socket_folder), "tcp://HOST:PORT",
                                         "*" for any port */
    const pl_keys_t *keys;            /* required beyond this machine  [neither
                                         encrypted nor authenticated] */
    uint64_t run;                     /* the same in all processes of the run  [of a
                                         rank's end: the run of the end that admits it] */
    bool takes_any;                   /* of a listening end: ranks that do not know their
                                         run are admitted */
    uint32_t incarnation;             /* of its ranks, from 1 */
    int world_size;                   /* ranks 0 to world_size - 1 */
    int rank;                         /* of a rank's end */
    bool has_own_rank;                /* of a listening end: its own process is rank 0,
                                         which does not join; the traits of others are
                                         compared with its own */
    bool may_be_replaced;             /* of a listening end: another process may join in
                                         the place of a rank that has left, is gone or
                                         was dismissed */
    const char *traits;               /* of a rank: JSON object of texts that must be the
                                         same in all ranks, by a name for people:
                                         {"instruction set": "avx2"}  [nothing is
                                         compared] */
    const char *about;                /* text for the other side's JOINED; short  [of a
                                         rank's end "HOST process NUMBER"; of a listening
                                         end empty] */
    const char *host;                 /* of a rank's end: the name of the listening side
                                         in errors; lives as long  ["the launcher"] */
    bool watches;                     /* the other side's death is not reported by
                                         pl_link_died(): on this machine the link
                                         observes it at once */
    pl_link_times_t times;
    size_t message_max;                 /* bytes of a message  [1 MiB] */
    size_t unread_max;                  /* bytes sent to a peer and not acknowledged; more
                                           are refused with PL_EBUSY  [16 MiB] */
    /* A message has arrived; aligned to 8, may be moved from. */
    void (*on_message)(void *user, int peer, pl_frame_t *message);
    /* May free the link. */
    void (*on_event)(void *user, int peer, pl_link_event_t event, const char *text);
    void *user;
} pl_link_spec_t;

/* The two ends.  Copy the spec.  PL_EINVAL: an endpoint that is not allowed; PL_EBUSY:
 * the endpoint is in use, or no descriptors. */
pl_link_t *pl_link_listen(const pl_link_spec_t *spec, struct pl_sockets *loop,
                          pl_error_t *err);
pl_link_t *pl_link_connect(const pl_link_spec_t *spec, struct pl_sockets *loop,
                           pl_error_t *err);
/* A listening end dismisses its ranks, if a message can still reach them.  Of a rank's
 * end, messages that are not acknowledged may be lost: see pl_link_leave(). */
void pl_link_free(pl_link_t *link);

/* Where a listening end can be found, after "*" was replaced; what a rank's end connects
 * to, with the number of its host, once it has joined. */
int pl_link_endpoint(pl_link_t *link, char *text, size_t capacity, pl_error_t *err);

/* The run of the link; 0: a rank's end that does not know it until it has joined. */
uint64_t pl_link_run(const pl_link_t *link);

/* Sends a copy.  PL_EBUSY: too much is not acknowledged, WRITABLE follows; PL_EPEER:
 * the peer has not joined, has left or is gone; PL_EINVAL: longer than message_max. */
int pl_link_send(pl_link_t *link, int peer, pl_bytes_t message, pl_error_t *err);

typedef enum pl_link_state {
    PL_LINK_AWAITED,
    PL_LINK_IS_THERE,
    PL_LINK_IS_CUT,
    PL_LINK_HAS_LEFT,
    PL_LINK_IS_GONE
} pl_link_state_t;

pl_link_state_t pl_link_state(const pl_link_t *link, int peer);

/* The process of that peer is proven dead.  Its messages still arrive, then GONE, at once
 * or within a second. */
void pl_link_died(pl_link_t *link, int peer);

/* A listening end: ends the link of a rank (PL_LINK_HOST: of all), which gets the reason
 * after the messages that were sent before.  There is no event here. */
void pl_link_dismiss(pl_link_t *link, int rank, const char *why);

/* A listening end: begins a new incarnation of world_size ranks.  Ranks of the last one
 * are excluded and must join again. */
int pl_link_renew(pl_link_t *link, uint32_t incarnation, int world_size, pl_error_t *err);

/* A rank's end: leaves after all sent messages; LEFT follows when the other side has them
 * all, or GONE if that is impossible. */
int pl_link_leave(pl_link_t *link, pl_error_t *err);

typedef struct pl_link_counts {
    uint64_t messages;                   /* received */
    uint64_t malformed;                  /* frames that no link sent */
    uint64_t strangers;                  /* frames from connections that are not joined */
    uint64_t fenced;                     /* frames of another incarnation */
    uint64_t refused;                    /* joins */
    uint64_t repeated;                   /* messages received before, dropped */
    uint64_t sent_again;                 /* messages after a cut */
} pl_link_counts_t;

const pl_link_counts_t *pl_link_counts(const pl_link_t *link);

#endif
