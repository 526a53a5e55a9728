/* tcp.h - what tcp.c (operations), tcp_elements.c (what is added where), tcp_rendezvous.c
 * (rendezvous) and tcp_greet.c (how they say hello) share */
#ifndef PL_COLLECTIVES_TCP_H
#define PL_COLLECTIVES_TCP_H

#include "strategies/collectives/tcp_connection.h"

enum {
    TCP_FEW = 8 << 10,                                      /* bytes that go along with
                                                               the news of having begun */
    TCP_WINDOW = 16,                                        /* segments on their way, at
                                                               most */
    TCP_WINDOWS = 64,                                       /* of all ranks together, but
                                                               2 of each */
    TCP_STRANGERS = 16,                                     /* beside the other ranks */
    TCP_TOKEN = 16,
    TCP_HOST = 64
};

/* What epoll tells: below PL_RANKS_MAX a rank. */
enum {
    FROM_LISTENER = PL_RANKS_MAX,
    FROM_TIMER,
    FROM_STRANGER,                                          /* and which */
    FROM_LOOK = 3 * PL_RANKS_MAX                            /* and a rank */
};

/* What goes with the news that a rank has begun an operation. */
typedef struct tcp_entry {
    pl_coll_desc_t desc;
    unsigned char few[TCP_FEW];
} tcp_entry_t;

/* Segments: how many have been, of how many. */
typedef struct tcp_count {
    uint64_t done, all;
} tcp_count_t;

typedef struct tcp_peer {
    tcp_connection_t *connection;                           /* [not met, or gone] */
    tcp_connection_t *look;                                 /* on the way to be met, or to
                                                               see whether it is there */
    bool left;                                              /* it was met, and is gone */
    bool left_busy;                                         /* in the middle of a frame
                                                               to it */
    char host[TCP_HOST], port[8];
    int wrong;                                              /* errno of the newest try to
                                                               connect  [none] */
    unsigned char token[TCP_TOKEN];
    bool is_near;                                           /* it listens on loopback */
    uint64_t entered;                                       /* newest operation begun */
    tcp_entry_t entry[2];                                   /* of it and of that before,
                                                               by parity */
    char reason[PL_ERROR_TEXT / 2];                         /* of its abort */
    bool knows;                                             /* of the abort here */

    /* What it is to this rank: see tcp_elements.c. */
    bool is_mate;                                           /* it shares memory */
    bool speaks, spoken_to;                                 /* for its unit, to this rank;
                                                               this rank to it */
    bool receives_all, reports_all;                         /* own results, for its
                                                               machine; it its, to this
                                                               rank for all here */
    int voice;                                              /* who gives what its unit
                                                               adds up to  [-1: that of a
                                                               rank before it] */
    unsigned char *window;                                  /* [window][TCP_SEGMENT] of
                                                               what it gave
                                                               [it does not] */
    unsigned char *partial;                                 /* [TCP_SEGMENT] of what it is
                                                               given  [it lies ready] */

    /* Of the operation under way. */
    bool entry_reported;                                   /* that it has begun here */
    tcp_count_t taken, given;                              /* to be reduced here; there */
    tcp_count_t reported, received;                        /* own results; its */
    uint64_t passed;                                       /* of heard, to mates */
    bool finished, finish_reported;                        /* mates: it writes and reads
                                                              no more; nor does this */
} tcp_peer_t;

typedef struct tcp {
    const char *host;                                       /* options */
    int64_t port;
    bool encrypt;
    bool has_key;
    unsigned char key[PL_KEY_BYTES];
    int epoll, listener, timer;
    char own_host[TCP_HOST];
    unsigned char token[TCP_TOKEN];
    bool is_near;
    tcp_connection_t **stranger;                            /* who has not said hello */
    int stranger_count, stranger_next;
    int rank, size;                                       /* size 0: not joined */
    tcp_peer_t *peer;                                     /* [size] */
    uint64_t window;                                      /* segments on their way from
                                                             each rank, the same on all */
    int unit, unit_size;                                  /* ranks here that are a
                                                             subtree, with this one */
    int mates;                                            /* others on this machine */
    void *(*reach)(void *user, int rank, uint64_t memory);  /* of mates */
    void *reach_user;
    const void **in;                                        /* [size] */
    char *kept;                                             /* [kept_bytes], the elements
                                                               of an all_to_all */
    size_t kept_bytes;
    pl_reg_buffer_t **buffers;                              /* counted */
    int buffer_count, buffer_capacity;
    bool reports;                                         /* the others, that it is */
    int origin;                                           /* who gave up first, and its */
    const char *reason;                                   /* words */

    pl_underway_t now;
    uint64_t number;                                        /* of that */
    bool few, moves;                                        /* its elements go along; they
                                                               travel for themselves */
    uint64_t parts, ready;                                  /* own segments; how many are
                                                               reduced, and with mates */
    bool finished;                                          /* all that is done here */
} tcp_t;

/* ---- tcp_rendezvous.c ---- */

int tcp_open_context(tcp_t *t, const pl_collective_context_t *context,
                     char address[PL_ADDRESS_TEXT], pl_error_t *err);
int tcp_rendezvous(tcp_t *t, const pl_world_t *world, pl_error_t *err);
bool tcp_all_met(const tcp_t *t);
/* Adds to `why` where the ranks are that have not been met, and what keeps them away. */
void tcp_tell_unmet(const tcp_t *t, pl_error_t *why);
/* Whether it still listens for others. */
bool tcp_is_listening(const tcp_t *t);
/* Nobody is looked for any more. */
void tcp_met(tcp_t *t);
/* Something has come that epoll names, from somebody not met. */
void tcp_hear(tcp_t *t, uint32_t from);
void tcp_release(tcp_t *t);

/* There is more to do at once. */
void tcp_again(const tcp_t *t);

/* ---- tcp_greet.c ---- */

typedef enum tcp_greeting {
    TCP_GREETING_BAD = -1,
    TCP_GREETING_WAITS,
    TCP_GREETING_DONE,
} tcp_greeting_t;

/* The first that each side sends; false: it cannot. */
bool tcp_preamble_send(tcp_connection_t *connection);
/* One stage after the other, as far as what has come reaches; done: the rank of the other
 * side is in `rank`, else -1. */
tcp_greeting_t tcp_greet(const tcp_t *t, tcp_connection_t *connection, int *rank);

/* ---- tcp_elements.c ---- */

/* At the rendezvous: which ranks share memory, and room for it. */
int tcp_share(tcp_t *t, const pl_world_t *world, pl_error_t *err);
/* Whether what mates have registered is there. */
int tcp_check_reach(const tcp_t *t, const pl_coll_desc_t *desc, pl_error_t *err);
/* When an operation begins: all that there is to do. */
void tcp_count(tcp_t *t);
/* Where a segment of an owner's lies here, and its bytes; where one lies that a rank is
 * told. */
char *tcp_segment(const tcp_t *t, int owner, uint64_t k, size_t *bytes);
const char *tcp_reported(const tcp_t *t, int rank, uint64_t k, size_t *bytes);
/* Whether what a rank is sent has elements: some learn only how far another is. */
bool tcp_carries(const tcp_t *t, bool is_for_all);
/* Before an all_to_all: what is given is kept aside, because what comes takes its
 * place. */
int tcp_keep(tcp_t *t, const pl_coll_request_t *req, size_t bytes, pl_error_t *err);
/* Where that of ours goes which a rank gives. */
char *tcp_window(const tcp_t *t, int rank, uint64_t k);
bool tcp_may_give(const tcp_t *t, const tcp_peer_t *peer);
/* The next of an owner's that it is given; there until it is given the one after. */
const void *tcp_given(const tcp_t *t, int owner);
/* Does what has come to be done; false: there is more. */
bool tcp_work(tcp_t *t);

/* ---- tcp.c ---- */

/* Ranks whose machine does not answer are gone. */
void tcp_check_connections(tcp_t *t);
/* It cannot go on: the operation under way and all that follow fail. */
void tcp_break(tcp_t *t, const pl_error_t *why);

#endif
