/* tcp.h - what the files of tcp share: tcp_elements.c (which rank adds and sends which
 * elements) and tcp.c (operations) */
#ifndef PL_COLLECTIVES_TCP_H
#define PL_COLLECTIVES_TCP_H

#include "strategies/collectives/mesh.h"

typedef enum tcp_kind {
    TCP_ENTER = MESH_OWN,  /* an operation was begun; with the request */
    TCP_GIVE,    /* elements for the receiver to reduce */
    TCP_RESULT,  /* the sender's reduced elements, or only the news that they are there */
    TCP_FINISH,  /* the sender has finished with our memory */
} tcp_kind_t;

enum {
    TCP_SEGMENT = MESH_BODY,
    TCP_FEW = 8 << 10,                    /* bytes that are sent in the frame TCP_ENTER */
    TCP_WINDOW = 16,                      /* segments in flight from one rank, at most */
    TCP_WINDOWS =
        64        /* segments in flight from all ranks together, but at least 2 of each */
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
    uint64_t entered;                /* newest operation it has begun */
    tcp_entry_t entry[2];            /* of that operation and the one before, by parity */

    /* Its relation to this rank: see tcp_elements.c. */
    bool is_local;                                          /* it shares memory */
    /* It gives the sum of its unit to this rank; this rank gives the sum of its own
     * unit to it. */
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
    mesh_t mesh;
    int rank, size;               /* of the mesh; size 0: not joined */
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
    pl_underway_t now;
    uint64_t number;          /* of the operation under way */
    bool few, moves;          /* the elements are in TCP_ENTER; they travel in segments */
    /* Segments of this rank; how many are reduced and written to local ranks. */
    uint64_t parts, ready;
    bool finished;                                          /* this rank's part is done */
} tcp_t;

/* ---- tcp_elements.c ---- */

/* At the rendezvous: finds the ranks that share memory, and allocates windows; what
 * tcp_unshare() frees. */
int tcp_share(tcp_t *t, const pl_world_t *world, pl_error_t *err);
void tcp_unshare(tcp_t *t);
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

#endif
