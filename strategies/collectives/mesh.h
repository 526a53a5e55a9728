/* mesh.h - a connection between every two ranks, for the collectives of one machine
 * (shm.c) and over TCP (tcp.c)
 *
 * Among ranks of one machine a connection is a stream over an abstract UNIX socket,
 * and a frame can carry a descriptor; else it is TCP, sealed beyond the machine. The
 * mesh knows nothing of operations but that one is under way and can be broken.
 *
 * mesh_connection.c: frames; mesh_address.c: where a rank listens; mesh_rendezvous.c:
 * how ranks meet; mesh.c: what comes from them, their end, aborts. */
#ifndef PL_COLLECTIVES_MESH_H
#define PL_COLLECTIVES_MESH_H

#include <stdint.h>
#include <sys/uio.h>

#include "strategies/collectives/collective.h"

/* ---- the cipher: libsodium's secretstream, under the key of the job ----
 *
 * Each side gives a random number of 32 bytes. The key of a direction is the keyed
 * hash (BLAKE2b under the key of the job) of both numbers, the sender's first. So a
 * recording of an earlier connection opens nothing, and a sender without the key
 * cannot send one frame that is accepted. Frames are sealed in order: a frame that is
 * changed, left out, repeated or returned to its sender does not open. */

enum { CIPHER_NONCE = 32, CIPHER_HEADER = 24, CIPHER_MORE = 17 };

typedef struct mesh_cipher mesh_cipher_t;

/* NULL: PL_EUNSUPPORTED in a build without libsodium, PL_ENOMEM. */
mesh_cipher_t *cipher_new(const unsigned char *key, pl_error_t *err);
void cipher_free(mesh_cipher_t *c);

/* The order of the handshake: cipher_nonce() gives our number; cipher_agree() takes
 * the other side's number and gives the header to send; cipher_accept() takes the other
 * header. */
void cipher_nonce(const mesh_cipher_t *c, unsigned char nonce[CIPHER_NONCE]);
bool cipher_agree(mesh_cipher_t *c, const unsigned char theirs[CIPHER_NONCE],
                  unsigned char header[CIPHER_HEADER]);
bool cipher_accept(mesh_cipher_t *c, const unsigned char header[CIPHER_HEADER]);

/* sealed[bytes + CIPHER_MORE] */
void cipher_seal(mesh_cipher_t *c, unsigned char *sealed, const void *open, size_t bytes);
bool cipher_open(mesh_cipher_t *c, void *open, const unsigned char *sealed, size_t bytes);

/* ---- frames over a connection that never blocks, sealed or plain ----
 *
 * A frame is a head of fixed size and a body of head.length bytes. A connection sends
 * one frame at a time: its body must stay where it is until it is sent. */

enum { MESH_BODY = 128 << 10, MESH_RAW = 64 };

typedef enum mesh_kind {
    MESH_HELLO = 1,
    MESH_ABORT,                                           /* with the reason */
    MESH_OWN,                                             /* the first kind of the user */
} mesh_kind_t;

typedef struct mesh_frame {
    uint32_t kind, length;                                  /* bytes of the body */
    uint64_t number, at;                                    /* of the user */
} mesh_frame_t;

typedef enum mesh_state {
    MESH_CONNECTING,
    MESH_PREAMBLE,
    MESH_HEADER,                                  /* waits for the header of the cipher */
    MESH_GREETING,                                /* waits for the hello */
    MESH_OPEN,
} mesh_state_t;

typedef struct mesh_connection {
    int fd, epoll;
    uint32_t tag, mask;                  /* name of the source in epoll, and its events */
    mesh_state_t state;
    bool connects;                                          /* this side has connected */
    int64_t since;                                          /* when it was made */
    mesh_cipher_t *cipher;                                  /* [plain] */

    struct iovec out[2];                                    /* not sent yet */
    mesh_frame_t out_head;
    unsigned char sealed_head[sizeof(mesh_frame_t) + CIPHER_MORE];
    unsigned char *sealed_out, *sealed_in;      /* [MESH_BODY + CIPHER_MORE], of a
                                                   connection with a cipher */
    unsigned char raw[MESH_RAW];                /* of a head, or of bytes before frames */
    size_t raw_have, body_have;
    bool has_head;
    mesh_frame_t head;
    int descriptor;                      /* that came with the frame, owned  [-1: none] */
} mesh_connection_t;

/* Takes ownership of fd, also on failure; with a key the frames are sealed. */
mesh_connection_t *mesh_connection_new(int epoll, int fd, uint32_t tag,
                                       const unsigned char *key, pl_error_t *err);
void mesh_connection_free(mesh_connection_t *connection);

/* Sets the events that epoll reports; false: it cannot. */
bool mesh_connection_watch(mesh_connection_t *connection, bool in, bool out);

/* Whether the other machine has not acknowledged data for long; a process there that
 * is stopped does not count. */
bool mesh_connection_is_dead(const mesh_connection_t *connection);

/* Bytes before the first frame. send_raw(): false: not all fit. read_raw(): 1:
 * `count` bytes are in raw, 0: not yet, -1: the other side is gone. */
bool mesh_connection_send_raw(mesh_connection_t *connection, const void *bytes,
                              size_t count);
int mesh_connection_read_raw(mesh_connection_t *connection, size_t count);

bool mesh_connection_is_idle(const mesh_connection_t *connection);
/* Begins to send a frame over an idle connection. With a descriptor [-1: none], which
 * stays the caller's, it succeeds at once, or has failed. Returns what
 * mesh_connection_flush() does. */
int mesh_connection_put(mesh_connection_t *connection, const mesh_frame_t *head,
                        const void *body, int descriptor);
/* 1: all is sent, 0: the connection is full, -1: the other side is gone (errno). */
int mesh_connection_flush(mesh_connection_t *connection);

/* The head of the next frame: 1: it is in connection->head, 0: not yet, -1: the other
 * side is gone, or it is no frame. */
int mesh_connection_head(mesh_connection_t *connection);
/* Its body of head.length bytes, up to MESH_BODY; returns the same. */
int mesh_connection_body(mesh_connection_t *connection, void *to);
/* Closes the descriptor that came with the frame. */
void mesh_connection_drop_descriptor(mesh_connection_t *connection);

/* ---- the ranks ---- */

enum { MESH_TOKEN = 16, MESH_HOST = 80 };

/* What the user of a mesh does. */
typedef struct mesh_user {
    /* A rank was met, with the descriptor of its hello [-1]; false: it is refused. A
     * rank whose connection was lost in the rendezvous is met again. */
    bool (*met)(void *user, int rank, int descriptor);
    /* The place for the body of a frame; NULL: the frame is not allowed now, or
     * malformed. */
    void *(*place)(void *user, int rank, const mesh_frame_t *frame);
    /* A frame has come, with a descriptor [-1], which the mesh closes. */
    void (*take)(void *user, int rank, const mesh_frame_t *frame, int descriptor);
} mesh_user_t;

typedef struct mesh_peer {
    mesh_connection_t *connection;                 /* [it has not been met, or is gone] */
    /* A connection that has no hello yet, or that only checks whether the rank is
     * there. */
    mesh_connection_t *attempt;
    int number;                               /* its rank in the run */
    bool has_spoken;                          /* a frame has come behind its hello */
    bool left;                                /* it was met, and is gone */
    bool left_busy;                           /* it left in the middle of a frame to it */
    char host[MESH_HOST], port[8];            /* of one machine: the machine, "" */
    unsigned char token[MESH_TOKEN];
    bool is_near;                        /* it listens on loopback */
    int wrong;                           /* errno of the newest attempt to connect  [0] */
    char reason[PL_ERROR_TEXT / 2];      /* the reason of its abort */
    bool knows;                          /* it knows of the abort of this rank */
} mesh_peer_t;

typedef struct mesh {
    const mesh_user_t *ops;
    void *user;
    pl_underway_t *now;                                     /* the user's */
    bool is_local;                                          /* of one machine */
    bool encrypt, has_key;
    unsigned char key[PL_KEY_BYTES];
    int descriptor;                             /* that goes with the hello  [-1: none] */
    int epoll, listener, timer, soon;
    char host[MESH_HOST];                                   /* as in mesh_peer_t */
    unsigned char token[MESH_TOKEN];
    bool is_near;
    mesh_connection_t **stranger;      /* [stranger_count], connections without a hello */
    int stranger_count, stranger_next;
    int rank, size;                                 /* size 0: not joined */
    mesh_peer_t *peer;                              /* [size] */
    bool reports;                                   /* it tells the others of the abort */
    int origin;                                     /* the rank that aborted first, */
    const char *reason;                             /* and its reason */
} mesh_t;

/* How a rank listens. */
typedef struct mesh_listen {
    bool is_local;                                      /* the ranks are of one machine */
    const char *host;                                   /* over TCP; so below */
    int port;                                           /* 0: any */
    bool encrypt;                                       /* on loopback, too */
    const unsigned char *key;                           /* [PL_KEY_BYTES]  [none] */
} mesh_listen_t;

/* Listens; `address` is what other ranks need. m->epoll is readable when mesh_read_all()
 * is due. mesh_close() follows in any case. */
int mesh_open(mesh_t *m, const mesh_listen_t *how, const mesh_user_t *ops, void *user,
              pl_underway_t *now, char address[PL_ADDRESS_TEXT], pl_error_t *err);
/* Begins to connect to the other ranks. */
int mesh_join(mesh_t *m, const pl_world_t *world, pl_error_t *err);
/* Whether all ranks have been met; sets which have. */
bool mesh_all_met(const mesh_t *m, unsigned char *arrived);
/* Whether the rendezvous still accepts connections. */
bool mesh_is_listening(const mesh_t *m);
/* Ends the rendezvous: no rank is waited for any more. */
void mesh_rendezvous_end(mesh_t *m);
/* Reads what has come from a rank, as much as one turn allows. */
void mesh_read(mesh_t *m, int rank);
/* Handles the events of all sources, each once; connects again where that is due.
 * False: all is broken, and the abort goes to the others. */
bool mesh_read_all(mesh_t *m);
/* Has the user called again at once. */
void mesh_advance_soon(const mesh_t *m);
/* The error of a rank that has left, in the middle of an operation  [NULL: of none]. */
int mesh_fail_left(const mesh_t *m, int rank, const char *operation, pl_error_t *err);
/* Fails if all is broken, or a rank has left. */
int mesh_alive(const mesh_t *m, pl_error_t *err);
/* Fails the operation under way and all that follow; mesh_abort() also tells the other
 * ranks. */
void mesh_break(mesh_t *m, const pl_error_t *why);
void mesh_abort(mesh_t *m, const pl_error_t *why);
void mesh_close(mesh_t *m);

/* ---- between the files of the mesh ---- */

/* Handles an event of a source that is not a connected rank. */
void mesh_handle(mesh_t *m, uint32_t from);
/* Drops the connections to machines that do not answer. */
void mesh_check_connections(mesh_t *m);

int mesh_fail_to_listen(pl_error_t *err);
/* Opens m->listener. */
int mesh_listen(mesh_t *m, const mesh_listen_t *how, char address[PL_ADDRESS_TEXT],
                pl_error_t *err);
/* Fills in the address of a peer. */
int mesh_address_read(const mesh_t *m, mesh_peer_t *peer, const char *address,
                      pl_error_t *err);
/* Begins to connect; -1: it cannot (errno). */
int mesh_dial(const mesh_t *m, const mesh_peer_t *peer);

#endif
