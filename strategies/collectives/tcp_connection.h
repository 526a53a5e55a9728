/* tcp_connection.h - frames over a connection that never blocks, sealed or plain
 *
 * A frame is a head of fixed size and as many bytes as that says.  One is sent at a
 * time: what it consists of stays where it is until it is out. */
#ifndef PL_COLLECTIVES_TCP_CONNECTION_H
#define PL_COLLECTIVES_TCP_CONNECTION_H

#include <stdint.h>
#include <sys/uio.h>

#include "strategies/collectives/collective.h"
#include "strategies/collectives/tcp_cipher.h"

enum { TCP_SEGMENT = 128 << 10, TCP_RAW = 64 };

typedef enum tcp_kind {
    TCP_HELLO = 1,
    TCP_ENTER,                              /* an operation was begun; with its request */
    TCP_GIVE,                               /* elements for the receiver to reduce */
    TCP_RESULT,                             /* the sender's reduced elements; or just that
                                               they are */
    TCP_FINISH,                             /* the sender is through with our memory */
    TCP_ABORT,                              /* with the reason */
} tcp_kind_t;

typedef struct tcp_frame {
    uint32_t kind, length;                                  /* bytes behind it */
    uint64_t number;                                        /* of the operation */
    uint64_t at;                                            /* which segment */
} tcp_frame_t;

typedef enum tcp_stage {
    TCP_CONNECTING,
    TCP_PREAMBLE,
    TCP_HEADER,                                             /* of the cipher */
    TCP_GREETING,                                           /* waits for hello */
    TCP_OPEN,
} tcp_stage_t;

typedef struct tcp_connection {
    int fd, epoll;
    uint32_t tag, mask;                              /* what epoll tells, and looks for */
    tcp_stage_t stage;
    bool connects;                                          /* this side has called */
    int64_t since;                                          /* when it was made */
    tcp_cipher_t *cipher;                                   /* [plain] */

    struct iovec out[2];                                    /* not sent yet */
    tcp_frame_t out_head;
    unsigned char sealed_head[sizeof(tcp_frame_t) + CIPHER_MORE];
    unsigned char *sealed_out, *sealed_in;            /* [TCP_SEGMENT + CIPHER_MORE], of a
                                                         connection with a cipher */
    unsigned char raw[TCP_RAW];                       /* of a head, or before frames */
    size_t raw_have, body_have;
    bool has_head;
    tcp_frame_t head;
} tcp_connection_t;

/* Takes fd over, also on failure; with a key it will be sealed. */
tcp_connection_t *tcp_connection_new(int epoll, int fd, uint32_t tag,
                                     const unsigned char *key, pl_error_t *err);
void tcp_connection_free(tcp_connection_t *connection);

/* What epoll is to look for; false: it cannot. */
bool tcp_connection_watch(tcp_connection_t *connection, bool in, bool out);

/* Whether the other machine has not answered for long what was sent to it; that a process
 * there is stopped does not matter. */
bool tcp_connection_is_dead(const tcp_connection_t *connection);

/* Bytes before the first frame: what is sent fits; 1: so many are in raw, 0: not yet,
 * -1: the other side is gone. */
bool tcp_connection_send_raw(tcp_connection_t *connection, const void *bytes,
                             size_t count);
int tcp_connection_read_raw(tcp_connection_t *connection, size_t count);

bool tcp_connection_is_idle(const tcp_connection_t *connection);
/* Begins to send a frame; of an idle connection.  more: another follows at once.  As
 * tcp_connection_flush(). */
int tcp_connection_put(tcp_connection_t *connection, const tcp_frame_t *head,
                       const void *body, bool more);
/* 1: all is out, 0: the connection is full, -1: the other side is gone. */
int tcp_connection_flush(tcp_connection_t *connection, bool more);

/* The head of the next frame: 1 it is in connection->head, 0 not yet, -1 gone, or no
 * frame. */
int tcp_connection_head(tcp_connection_t *connection);
/* Its body, of head.length bytes, up to TCP_SEGMENT; as above. */
int tcp_connection_body(tcp_connection_t *connection, void *to);

#endif
