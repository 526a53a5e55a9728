/* tcp.h - what tcp.c (operations) and tcp_meet.c (how ranks meet) share */
#ifndef PL_COLLECTIVES_TCP_H
#define PL_COLLECTIVES_TCP_H

#include "strategies/collectives/tcp_link.h"

enum {
    TCP_FEW = 8 << 10,                                      /* bytes that go along with
                                                               the news of having begun */
    TCP_WINDOW = 16,                                        /* segments on their way, at
                                                               most */
    TCP_WINDOWS = 64,                                       /* of all ranks together, but
                                                               2 of each */
    TCP_STRANGERS = 16,
    TCP_TOKEN = 16,
    TCP_HOST = 64
};

/* What epoll tells: below PL_RANKS_MOST a rank. */
enum {
    FROM_LISTENER = PL_RANKS_MOST,
    FROM_TIMER,
    FROM_STRANGER,
    FROM_LOOK = 2 * PL_RANKS_MOST                           /* and a rank */
};

/* What goes with the news that a rank has begun an operation. */
typedef struct tcp_entry {
    pl_want_t want;
    unsigned char few[TCP_FEW];
} tcp_entry_t;

typedef struct tcp_peer {
    tcp_link_t *link;                                       /* [not met, or gone] */
    tcp_link_t *look;                                       /* on the way to be met, or to
                                                               see whether it is there */
    bool left;                                              /* it was met, and is gone */
    bool left_busy;                                         /* in the middle of a frame
                                                               to it */
    char host[TCP_HOST], port[8];
    unsigned char token[TCP_TOKEN];
    bool is_near;                                           /* it listens on loopback */
    uint64_t entered;                                       /* newest operation begun */
    tcp_entry_t entry[2];                                   /* of it and of that before,
                                                               by parity */
    char reason[PL_ERROR_TEXT / 2];                         /* of its abort */
    bool knows;                                             /* of the abort here */

    /* Of the operation under way, in segments. */
    bool told;                                              /* that it has begun here */
    uint64_t parts;                                         /* of the elements that this
                                                               rank owns */
    uint64_t given, got;                                    /* of its, to it; of ours,
                                                               from it */
    uint64_t results_told, results_heard;                   /* of ours; of its */
    unsigned char *window;                                  /* [window][TCP_SEGMENT],
                                                               of what it gave */
} tcp_peer_t;

typedef struct tcp {
    const char *host;                                       /* options */
    int64_t port;
    bool encrypt;
    bool has_key;
    unsigned char key[PL_JOB_KEY_BYTES];
    int epoll, listener, timer;
    char own_host[TCP_HOST];
    unsigned char token[TCP_TOKEN];
    bool is_near;
    tcp_link_t *stranger[TCP_STRANGERS];                    /* who has not said hello */
    int stranger_next;
    int rank, size;                                       /* size 0: not joined */
    tcp_peer_t *peer;                                     /* [size] */
    uint64_t window;                                      /* segments on their way from
                                                             each rank, the same on all */
    const void **in;                                      /* [size] */
    pl_lent_t **lent;                                     /* counted */
    int lent_count, lent_room;
    pl_error_t broken;                                     /* code 0: it is not */
    bool hears, tells;                                     /* from another rank that it
                                                              is; the others that it is */

    pl_operation_t *op;                                     /* under way */
    uint64_t number;                                        /* of that */
    bool few;                                               /* its elements go along */
    uint64_t reduced;                                       /* own segments that are */
} tcp_t;

/* ---- tcp_meet.c ---- */

int tcp_open_seat(tcp_t *t, const pl_seat_t *seat, char address[PL_ADDRESS_TEXT],
                  pl_error_t *err);
int tcp_meet(tcp_t *t, const pl_world_t *world, pl_error_t *err);
bool tcp_all_met(const tcp_t *t);
/* Nobody is waited for any more. */
void tcp_met(tcp_t *t);
/* Something has come that epoll names, from somebody not met. */
void tcp_hear(tcp_t *t, uint32_t from);
void tcp_release(tcp_t *t);

/* ---- tcp.c ---- */

/* Ranks whose machine does not answer are gone. */
void tcp_check_links(tcp_t *t);
/* It cannot go on: the operation under way and all that follow fail. */
void tcp_break(tcp_t *t, const pl_error_t *why);

#endif
