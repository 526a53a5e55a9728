/* tcp.h - what the files of tcp share: tcp_connection.c (frames), tcp_greet.c (the
 * greeting), tcp_rendezvous.c, tcp_elements.c (which rank adds and sends which elements)
 * and tcp.c (operations) */
#ifndef PL_COLLECTIVES_TCP_H
#define PL_COLLECTIVES_TCP_H

#include <stdint.h>
#include <sys/uio.h>

#include "strategies/collectives/collective.h"

/* ---- Frames over a connection that never blocks, sealed or plain ----
 *
 * A frame is a head of fixed size and a body of head.length bytes. A connection sends
 * one frame at a time: its body must stay where it is until it is sent. */

/* ---- the cipher: libsodium's secretstream, under the key of the job ----
 *
 * Each side gives a random number of 32 bytes. The key of a direction is the keyed
 * hash (BLAKE2b under the key of the job) of both numbers, the sender's first. So a
 * recording of an earlier connection opens nothing, and a sender without the key
 * cannot send one frame that is accepted. Frames are sealed in order: a frame that is
 * changed, left out, repeated or returned to its sender does not open. */

enum { CIPHER_NONCE = 32, CIPHER_HEADER = 24, CIPHER_MORE = 17 };

typedef struct tcp_cipher tcp_cipher_t;

/* NULL: PL_EUNSUPPORTED in a build without libsodium, PL_ENOMEM. */
tcp_cipher_t *cipher_new(const unsigned char *key, pl_error_t *err);
void cipher_free(tcp_cipher_t *c);

/* The order of the handshake: cipher_nonce() gives our number; cipher_agree() takes
 * the other side's number and gives the header to send; cipher_accept() takes the other
 * header. */
void cipher_nonce(const tcp_cipher_t *c, unsigned char nonce[CIPHER_NONCE]);
bool cipher_agree(tcp_cipher_t *c, const unsigned char theirs[CIPHER_NONCE],
                  unsigned char header[CIPHER_HEADER]);
bool cipher_accept(tcp_cipher_t *c, const unsigned char header[CIPHER_HEADER]);

/* sealed[bytes + CIPHER_MORE] */
void cipher_seal(tcp_cipher_t *c, unsigned char *sealed, const void *open, size_t bytes);
bool cipher_open(tcp_cipher_t *c, void *open, const unsigned char *sealed, size_t bytes);

/* ---- the connection ---- */

enum { TCP_SEGMENT = 128 << 10, TCP_RAW = 64 };

typedef enum tcp_kind {
    TCP_HELLO = 1,
    TCP_ENTER,   /* an operation was begun; with the request */
    TCP_GIVE,    /* elements for the receiver to reduce */
    TCP_RESULT,  /* the sender's reduced elements, or only the news that they are there */
    TCP_FINISH,  /* the sender has finished with our memory */
    TCP_ABORT,   /* with the reason */
} tcp_kind_t;

typedef struct tcp_frame {
    uint32_t kind, length;                                  /* bytes of the body */
    uint64_t number;                                        /* of the operation */
    uint64_t at;                                            /* which segment */
} tcp_frame_t;

typedef enum tcp_state {
    TCP_CONNECTING,
    TCP_PREAMBLE,
    TCP_HEADER,                                   /* waits for the header of the cipher */
    TCP_GREETING,                                 /* waits for the hello */
    TCP_OPEN,
} tcp_state_t;

typedef struct tcp_connection {
    int fd, epoll;
    uint32_t tag, mask;                  /* name of the source in epoll, and its events */
    tcp_state_t state;
    bool connects;                                          /* this side has connected */
    int64_t since;                                          /* when it was made */
    tcp_cipher_t *cipher;                                   /* [plain] */

    struct iovec out[2];                                    /* not sent yet */
    tcp_frame_t out_head;
    unsigned char sealed_head[sizeof(tcp_frame_t) + CIPHER_MORE];
    unsigned char *sealed_out, *sealed_in;      /* [TCP_SEGMENT + CIPHER_MORE], of a
                                                   connection with a cipher */
    unsigned char raw[TCP_RAW];                 /* of a head, or of bytes before frames */
    size_t raw_have, body_have;
    bool has_head;
    tcp_frame_t head;
} tcp_connection_t;

/* Takes ownership of fd, also on failure; with a key the frames are sealed. */
tcp_connection_t *tcp_connection_new(int epoll, int fd, uint32_t tag,
                                     const unsigned char *key, pl_error_t *err);
void tcp_connection_free(tcp_connection_t *connection);

/* Sets the events that epoll reports; false: it cannot. */
bool tcp_connection_watch(tcp_connection_t *connection, bool in, bool out);

/* Whether the other machine has not acknowledged data for long; a process there that
 * is stopped does not count. */
bool tcp_connection_is_dead(const tcp_connection_t *connection);

/* Bytes before the first frame. send_raw(): false: not all fit. read_raw(): 1:
 * `count` bytes are in raw, 0: not yet, -1: the other side is gone. */
bool tcp_connection_send_raw(tcp_connection_t *connection, const void *bytes,
                             size_t count);
int tcp_connection_read_raw(tcp_connection_t *connection, size_t count);

bool tcp_connection_is_idle(const tcp_connection_t *connection);
/* Begins to send a frame over an idle connection; more: another follows at once. 
 * Returns what tcp_connection_flush() does. */
int tcp_connection_put(tcp_connection_t *connection, const tcp_frame_t *head,
                       const void *body, bool more);
/* 1: all is sent, 0: the connection is full, -1: the other side is gone. */
int tcp_connection_flush(tcp_connection_t *connection, bool more);

/* The head of the next frame: 1: it is in connection->head, 0: not yet, -1: the other
 * side is gone, or it is no frame. */
int tcp_connection_head(tcp_connection_t *connection);
/* Its body of head.length bytes, up to TCP_SEGMENT; returns the same. */
int tcp_connection_body(tcp_connection_t *connection, void *to);

/* ---- The ranks ---- */

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
/* Goes through the stages of the greeting as far as data has come. TCP_GREETING_DONE:
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
