/* link.h - links between processes: what is sent comes once, in order, whole, or its
 * sender is told that it does not
 *
 * One end listens, the launcher's, and has a peer for each rank; the other connects, a
 * rank's, and has one peer, PL_LINK_HOST.  A rank joins by saying which run, incarnation
 * and rank it is; who does not belong is refused with a reason.  A message is kept until
 * the other side has acknowledged it, so a connection that breaks and is made again
 * within rejoin_ms loses nothing and repeats nothing.
 *
 * Three things are told apart: the connection is CUT (nobody has died: a cable, a
 * partition), the peer is SILENT (connected perhaps, but its thread does not turn), and
 * the peer is GONE for good.  That a process has died its parent can see, which says so
 * by pl_link_died(), and a link of the same machine.  Messages of another incarnation
 * reach nobody and are counted.
 *
 * What a message says is not the link's: any bytes.  All on one thread, with its loop. */
#ifndef PL_TRANSPORT_LINK_H
#define PL_TRANSPORT_LINK_H

#include "transport/frame.h"
#include "transport/keys.h"

typedef struct pl_link pl_link_t;
struct pl_sockets;

#define PL_LINK_HOST (-1)                                   /* the peer of a rank's end */
#define PL_LINK_VERSION 2                                   /* of what is on the wire */

typedef enum pl_link_event {
    PL_LINK_JOINED,     /* text: what the other side says about itself; from now on
                           messages may be sent.  A rank's end: it was let in. */
    PL_LINK_CUT,        /* the connection is gone; what is sent now waits */
    PL_LINK_BACK,       /* it is there again; nothing was lost */
    PL_LINK_SILENT,     /* nothing was heard for silence_ms */
    PL_LINK_RECEIVED,   /* it is heard again after that */
    PL_LINK_WRITABLE,   /* after PL_EBUSY: messages are taken again */
    PL_LINK_CLEAR,      /* all that was sent has come to the other side */
    PL_LINK_LEFT,       /* the peer has left in order, and all it had sent has come */
    PL_LINK_GONE,       /* dead, or cut for longer than rejoin_ms, or the lease has run
                           out, or who holds one was silent for so long; nothing comes
                           any more in this incarnation.  A rank's end also: it was
                           refused or dismissed, as text says, or nobody let it in within
                           join_ms. */
    PL_LINK_MISSING,    /* join_ms has passed; text names the ranks that have not joined.
                           Peer: PL_LINK_HOST. */
    PL_LINK_REFUSED,    /* somebody was not let in; text says who and why.  Peer: the rank
                           it said it is, or PL_LINK_HOST. */
} pl_link_event_t;

/* In milliseconds; 0 stands for what is in [brackets]. */
typedef struct pl_link_times {
    int join;            /* until all ranks must have joined  [60 000] */
    int beat;            /* between signs of life  [1 000] */
    int silence;         /* after which a peer counts as silent  [3 000] */
    int rejoin;          /* that a connection may be cut  [5 000] */
    int lease;           /* after which a rank that hears nothing of the launcher is GONE,
                            shorter than `rejoin`, so that it has ended when the launcher
                            starts another; of ranks that do not die with their parent.
                            Of a listening end: its ranks hold one, and who is silent
                            for `silence` and `rejoin` is GONE  [none] */
} pl_link_times_t;

typedef struct pl_link_spec {
    const char *endpoint;              /* "ipc://FILE" in a folder that only this user
                                          can enter (pl_socket_folder), "tcp://HOST:PORT",
                                          "*" for any port */
    const pl_keys_t *keys;             /* must be given beyond this machine  [neither
                                          encrypted nor asked for a key] */
    uint64_t run;                      /* the same in all processes of the run  [of a
                                          rank's end: that of whoever lets it in] */
    bool takes_any;                    /* of a listening end: ranks that do not know which
                                          run they are of are let in */
    uint32_t incarnation;              /* of its ranks, from 1 */
    int world_size;                    /* ranks 0 to world_size - 1 */
    int rank;                          /* of a rank's end */
    bool sits;                         /* of a listening end: its own process is rank 0,
                                          which is not awaited; the traits of others are
                                          held against its own */
    bool returns;                      /* of a listening end: who has left, is gone or was
                                          dismissed may be followed by another process,
                                          which joins in its place */
    const char *traits;                /* of whoever is a rank: JSON object of texts, what
                                          must be the same in all ranks by a name for
                                          people: {"instruction set": "avx2"}  [nothing
                                          is compared] */
    const char *about;                 /* what the other side is told with JOINED; short
                                          [of a rank's end "HOST process NUMBER"; of a
                                          listening one nothing] */
    const char *host;                  /* of a rank's end: who listens, in errors; lasts
                                          as long  ["the launcher"] */
    bool watches;                      /* nobody else tells of the other side's death:
                                          where it is a process of this machine it is
                                          known at once, as by pl_link_died() */
    pl_link_times_t times;
    size_t message_max;                 /* bytes of a message  [1 MiB] */
    size_t unread_max;                  /* bytes sent to a peer and not acknowledged: more
                                           is refused with PL_EBUSY  [16 MiB] */
    /* A message has come; aligned to 8, may be moved from. */
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
/* A listening end tells its ranks that they are dismissed, if they can still hear it; of
 * a rank's end, what is not acknowledged may be lost: see pl_link_leave(). */
void pl_link_free(pl_link_t *link);

/* Where a listening end can be found, after "*" was replaced. */
int pl_link_endpoint(pl_link_t *link, char *text, size_t capacity, pl_error_t *err);

/* Which run it is of; of a rank's end that was not told, 0 until it has joined. */
uint64_t pl_link_run(const pl_link_t *link);

/* Sends a copy.  PL_EBUSY: too much is not acknowledged, WRITABLE will tell; PL_EPEER:
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

/* The process of that peer is proven dead.  What it had sent still comes, then GONE, at
 * once or within a second. */
void pl_link_died(pl_link_t *link, int peer);

/* A listening end: ends the link of a rank (PL_LINK_HOST: of all), which hears why; what
 * was sent to it before comes first.  No event tells of it here. */
void pl_link_dismiss(pl_link_t *link, int rank, const char *why);

/* A listening end: a new incarnation.  All ranks of the last are fenced off and must join
 * anew, in the number of processes that is given. */
int pl_link_renew(pl_link_t *link, uint32_t incarnation, int world_size, pl_error_t *err);

/* A rank's end: says goodbye behind all that was sent; LEFT comes when the other side has
 * it all, or GONE when that cannot be. */
int pl_link_leave(pl_link_t *link, pl_error_t *err);

typedef struct pl_link_counts {
    uint64_t messages;                    /* that came */
    uint64_t malformed;                   /* frames that are none of a link's */
    uint64_t strangers;                   /* from connections that have not joined, or not
                                             any more */
    uint64_t fenced;                      /* of another incarnation */
    uint64_t refused;                     /* joins */
    uint64_t repeated;                    /* messages that had come already, dropped */
    uint64_t sent_again;                  /* after a cut */
} pl_link_counts_t;

const pl_link_counts_t *pl_link_counts(const pl_link_t *link);

#endif
