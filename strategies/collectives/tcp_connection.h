/* tcp_connection.h - frames over a connection that never blocks, sealed or plain
 *
 * A frame is a head of fixed size and a body of head.length bytes.  A connection sends
 * one frame at a time: its body must stay where it is until it is sent. */
#ifndef PL_COLLECTIVES_TCP_CONNECTION_H
#define PL_COLLECTIVES_TCP_CONNECTION_H

#include <stdint.h>
#include <sys/uio.h>

#include "strategies/collectives/collective.h"

/* ---- the cipher: libsodium's secretstream, under the key of the job ----
 *
 * Each side gives a random number of 32 bytes.  The key of a direction is the keyed
 * hash (BLAKE2b under the key of the job) of both numbers, the sender's first.  So a
 * recording of an earlier connection opens nothing, and a sender without the key
 * cannot send one frame that is accepted.  Frames are sealed in order: a frame that is
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

typedef enum tcp_stage {
    TCP_CONNECTING,
    TCP_PREAMBLE,
    TCP_HEADER,                                   /* waits for the header of the cipher */
    TCP_GREETING,                                 /* waits for the hello */
    TCP_OPEN,
} tcp_stage_t;

typedef struct tcp_connection {
    int fd, epoll;
    uint32_t tag, mask;                  /* name of the source in epoll, and its events */
    tcp_stage_t stage;
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

/* Bytes before the first frame.  send_raw(): false: not all fit.  read_raw(): 1:
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

#endif
