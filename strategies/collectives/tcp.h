/* tcp.h - what tcp.c (operations), tcp_elements.c (who adds and sends what),
 * tcp_rendezvous.c (rendezvous) and tcp_greet.c (the greeting) share */
#ifndef PL_COLLECTIVES_TCP_H
#define PL_COLLECTIVES_TCP_H

#include "strategies/collectives/tcp_connection.h"

enum {
    TCP_FEW = 8 << 10,                    /* bytes that are sent in the frame TCP_ENTER */
    TCP_WINDOW = 16,                      /* segments in flight from one rank, at most */
    TCP_WINDOWS =
        64,       /* segments in flight from all ranks together, but at least 2 of each */
    TCP_STRANGERS = 16,  /* connections without a hello, besides the other ranks */
    TCP_TOKEN = 16,
    TCP_HOST = 64
};

/* The sources of events in epoll: below PL_RANKS_MAX a rank. */
enum {
    FROM_LISTENER = PL_RANKS_MAX,
    FROM_TIMER,
    FROM_STRANGER,                                          /* + index of the stranger */
    FROM_ATTEMPT = 3 * PL_RANKS_MAX                         /* + rank */
};

/* The body of the frame TCP_ENTER. */
typedef struct tcp_entry {
    pl_coll_desc_t desc;
    unsigned char few[TCP_FEW];
} tcp_entry_t;

/* Segments: how many are done, of how many. */
typedef struct tcp_count {
    uint64_t done, all;
} tcp_count_t;

typedef struct tcp_peer {
    tcp_connection_t *connection;                  /* [it has not been met, or is gone] */
    /* A connection that has no hello yet, or that only checks whether the rank is
     * there. */
    tcp_connection_t *attempt;
    bool left;                                /* it was met, and is gone */
    bool left_busy;                           /* it left in the middle of a frame to it */
    char host[TCP_HOST], port[8];
    int wrong;                           /* errno of the newest attempt to connect  [0] */
    unsigned char token[TCP_TOKEN];
    bool is_near;                    /* it listens on loopback */
    uint64_t entered;                /* newest operation it has begun */
    tcp_entry_t entry[2];            /* of that operation and the one before, by parity */
    char reason[PL_ERROR_TEXT / 2];  /* the reason of its abort */
    bool knows;                      /* it knows of the abort of this rank */

    /* Its relation to this rank: see tcp_elements.c. */
    bool is_local;                                          /* it shares memory */
    /* It gives the sum of its unit to this rank; this rank gives that of its own to
     * it. */
    bool gives_sums, takes_sums;
    /* It takes this rank's results for its machine; it gives its own for all ranks
     * here. */
    bool takes_results, gives_results;
    /* The rank that gives what its unit adds up  [-1: the giver of an earlier rank]. */
    int giver;
    unsigned char *window;            /* [window][TCP_SEGMENT], its sums  [no sums] */
    unsigned char *partial;           /* [TCP_SEGMENT], the sum for it  [sent in place] */

    /* Of the operation under way. */
    bool entry_sent;                          /* TCP_ENTER was sent to it */
    tcp_count_t taken, given;                 /* segments to reduce here; there */
    tcp_count_t reported, received;           /* results sent to it; its results */
    uint64_t passed;                          /* of its results: written to local ranks */
    /* Of a local rank: TCP_FINISH has come from it; was sent to it. */
    bool finished, finish_sent;
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
    tcp_connection_t **stranger;       /* [stranger_count], connections without a hello */
    int stranger_count, stranger_next;
    int rank, size;               /* size 0: not joined */
    tcp_peer_t *peer;             /* [size] */
    uint64_t window;              /* segments in flight from each rank, the same on all */
    /* First rank and count of this rank's unit: ranks of this machine that are a
     * subtree. */
    int unit, unit_size;
    int local_others;                          /* number of other ranks on this machine */
    void *(*reach)(void *user, int rank, uint64_t memory);  /* the memory of local
                                                               ranks */
    void *reach_user;
    const void **in;             /* [size] */
    char *kept;                  /* [kept_bytes], the elements to send of an all_to_all */
    size_t kept_bytes;
    pl_reg_buffer_t **buffers;                              /* counted */
    int buffer_count, buffer_capacity;
    bool reports;                                   /* it tells the others of the abort */
    int origin;                                     /* the rank that aborted first, */
    const char *reason;                             /* and its reason */

    pl_underway_t now;
    uint64_t number;          /* of the operation under way */
    bool few, moves;          /* the elements are in TCP_ENTER; they travel in segments */
    /* Segments of this rank; how many are reduced and written to local ranks. */
    uint64_t parts, ready;
    bool finished;                                          /* this rank's part is done */
} tcp_t;

/* ---- tcp_rendezvous.c ---- */

int tcp_open_context(tcp_t *t, const pl_collective_context_t *context,
                     char address[PL_ADDRESS_TEXT], pl_error_t *err);
int tcp_rendezvous(tcp_t *t, const pl_world_t *world, pl_error_t *err);
bool tcp_all_met(const tcp_t *t);
/* Adds to `why` the addresses of ranks that have not been met, and what keeps them
 * away. */
void tcp_describe_unmet(const tcp_t *t, pl_error_t *why);
/* Whether the rendezvous still accepts connections. */
bool tcp_is_listening(const tcp_t *t);
/* Ends the rendezvous: no rank is waited for any more. */
void tcp_rendezvous_end(tcp_t *t);
/* Handles an event of a source that is not a rank. */
void tcp_handle(tcp_t *t, uint32_t from);
void tcp_release(tcp_t *t);

/* Has advance() called again at once. */
void tcp_advance_soon(const tcp_t *t);

/* ---- tcp_greet.c ---- */

typedef enum tcp_greeting {
    TCP_GREETING_BAD = -1,
    TCP_GREETING_WAITS,
    TCP_GREETING_DONE,
} tcp_greeting_t;

/* Sends the preamble; false: it cannot be sent. */
bool tcp_preamble_send(tcp_connection_t *connection);
/* Goes through the stages of the greeting as far as data has come.  TCP_GREETING_DONE:
 * *rank is the rank of the other side, else -1. */
tcp_greeting_t tcp_greet(const tcp_t *t, tcp_connection_t *connection, int *rank);

/* ---- tcp_elements.c ---- */

/* At the rendezvous: finds the ranks that share memory, and allocates windows. */
int tcp_share(tcp_t *t, const pl_world_t *world, pl_error_t *err);
/* Whether the buffers of the local ranks are there. */
int tcp_check_reach(const tcp_t *t, const pl_coll_desc_t *desc, pl_error_t *err);
/* When an operation begins: counts the segments to send and receive. */
void tcp_count(tcp_t *t);
/* The place of a segment of `owner` here, and its bytes; the place of a segment of
 * this rank's result for `rank`. */
char *tcp_segment(const tcp_t *t, int owner, uint64_t k, size_t *bytes);
const char *tcp_result_for(const tcp_t *t, int rank, uint64_t k, size_t *bytes);
/* Whether a result has elements for the receiver; without them it only reports
 * progress. */
bool tcp_carries(const tcp_t *t, bool is_for_all);
/* Before an all_to_all: copies the elements to send, because received ones overwrite
 * them. */
int tcp_keep(tcp_t *t, const pl_coll_request_t *req, size_t bytes, pl_error_t *err);
/* The place of a segment of our chunk that `rank` sends. */
char *tcp_window(const tcp_t *t, int rank, uint64_t k);
bool tcp_may_give(const tcp_t *t, const tcp_peer_t *peer);
/* The next segment that `owner` is given; it stays until the one after. */
const void *tcp_given(const tcp_t *t, int owner);
/* Does the work whose input has come; false: there is more. */
bool tcp_work(tcp_t *t);

/* ---- tcp.c ---- */

/* Drops the connections to machines that do not answer. */
void tcp_check_connections(tcp_t *t);
/* Fails the operation under way and all that follow. */
void tcp_break(tcp_t *t, const pl_error_t *why);

#endif
