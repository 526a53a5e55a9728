/* socket.h - the one wrapper around ZeroMQ: opens, sends, receives, tells libevent
 *
 * ZMQ_FD is edge-triggered, and sends consume edges: any other use of a socket loses
 * messages.  So all uses are here.  Messages are received in batches of at most 64
 * messages and 1 ms; after sends the socket is looked at again before the loop waits; a
 * batch continues by a zero timeout, so timers of the same loop run in between. */
#ifndef PL_TRANSPORT_SOCKET_H
#define PL_TRANSPORT_SOCKET_H

#include "transport/frame.h"

struct event_base;
typedef struct pl_socket pl_socket_t;

/* The process's ZeroMQ context, created at the first acquisition and ended at the last
 * release; NULL with an error. */
void *pl_context_acquire(pl_error_t *err);
void pl_context_release(void);

typedef enum pl_socket_type {
    PL_SOCKET_ROUTER,
    PL_SOCKET_DEALER,
    PL_SOCKET_XPUB,                                         /* each part is a message */
    PL_SOCKET_SUB,
    PL_SOCKET_PAIR,                                 /* each part is a message */
    PL_SOCKET_REP,                                  /* each part is a message; identity: 1
                                                       when more parts of the same request
                                                       follow */
    PL_SOCKET_DESK,                                 /* a ROUTER for clients of any kind:
                                                       parts as of a REP, the first one
                                                       names the client;
                                                       pl_socket_send_parts() answers */
} pl_socket_type_t;

/* The outcome of a connection's greeting. */
typedef enum pl_greeting {
    PL_GREETING_DONE,                                     /* it succeeded */
    PL_GREETING_OTHER_KEY,                                /* the client has another key */
    PL_GREETING_NO_KEY,                                   /* only one side has a key */
    PL_GREETING_BAD,                                      /* not a Paceline client */
} pl_greeting_t;

typedef struct pl_socket_spec {
    pl_socket_type_t type;
    const char *endpoint;                     /* "inproc://…", "ipc://…",
                                                 "tcp://127.0.0.1:*"; beyond this
                                                 machine with keys alone */
    const struct pl_keys *keys;               /* encrypts, and admits only peers that
                                                 have them  [neither] */
    bool bind;                                /* [connects] */
    uint32_t identity;                        /* of a DEALER: its address for a ROUTER;
                                                 0: none */
    bool waits;                               /* a DEALER: messages wait until the
                                                 other side is there, and received ones
                                                 stay when it goes  [refused, and lost] */
    bool company;                             /* a ROUTER or DEALER: several messages
                                                 may travel as parts of one */
    int high_water_mark;                      /* messages; 0: no limit */
    int linger_ms;                            /* to send the last messages after it was
                                                 closed */
    int64_t message_max;                      /* bytes of a received message
                                                 [PL_MESSAGE_MAX] */
    void (*on_peers)(void *user, int peers);  /* the number of connections has changed;
                                                 needs a loop; must not close the
                                                 socket  [not observed] */
    int comers_a_second;                      /* with on_peers: new connections at a
                                                 port after a first burst; further ones
                                                 wait outside  [no limit] */
    /* With on_peers: a greeting succeeded, or a connection ended because it failed.
     * The text is the peer's address, "10.0.0.2, port 4711" or "a client"; "" after
     * success.  May close the socket.  [not observed] */
    void (*on_greeting)(void *user, pl_greeting_t how, const char *peer);
} pl_socket_spec_t;

/* The sockets of one event loop.  The thread of the loop calls pl_sockets_flush() before
 * each wait. */
typedef struct pl_sockets {
    struct event_base *base;
    pl_socket_t *sent;                               /* have sent since their last look */
} pl_sockets_t;

/* A message of one part has arrived; the frame may be moved from.  identity: the one that
 * a ROUTER puts before it, 0: no socket of Paceline uses it.  frame NULL: a message with
 * another number of parts was dropped. */
typedef void (*pl_on_message_t)(void *user, uint32_t identity, pl_frame_t *frame);

/* loop NULL: no events; the caller polls by pl_socket_receive().  PL_EINVAL: an endpoint
 * beyond this machine without keys. */
pl_socket_t *pl_socket_open(const pl_socket_spec_t *spec, pl_sockets_t *loop,
                            pl_on_message_t on_message, void *user, pl_error_t *err);
/* Moves a socket that was opened without a loop to the loop of this thread; its opener no
 * longer uses it.  Without on_peers. */
int pl_socket_attach(pl_socket_t *socket, pl_sockets_t *loop, pl_on_message_t on_message,
                     void *user, pl_error_t *err);
/* At any time, also in its own on_message. */
void pl_socket_close(pl_socket_t *socket);

/* Opens a loop for one thread.  PL_EBUSY: too few descriptors. */
int pl_sockets_open(pl_sockets_t *loop, pl_error_t *err);
/* After its sockets and events were freed. */
void pl_sockets_close(pl_sockets_t *loop);
void pl_sockets_flush(pl_sockets_t *loop);

/* Sends a frame, consumed also on failure; identity is for ROUTERs.  PL_EBUSY: high water
 * mark reached.  PL_EPEER: the other side is gone, or a ROUTER does not know the
 * identity. */
int pl_socket_send(pl_socket_t *socket, uint32_t identity, pl_frame_t *frame,
                   pl_error_t *err);
/* The same over a socket with company; more: the next send has the same identity, and
 * both messages travel together. */
int pl_socket_send_with(pl_socket_t *socket, uint32_t identity, pl_frame_t *frame,
                        bool more, pl_error_t *err);

/* Sends a message of several parts. */
int pl_socket_send_parts(pl_socket_t *socket, const pl_bytes_t *parts, int count,
                         pl_error_t *err);

/* Sends a topic and a text from an XPUB, to its subscribers. */
int pl_socket_publish(pl_socket_t *socket, pl_bytes_t topic, pl_bytes_t text,
                      pl_error_t *err);

/* Admits no new connections at the file of an ipc endpoint, or admits them again; has no
 * effect on other endpoints.  While it is shut, on_peers is called each second. */
void pl_socket_shut(pl_socket_t *socket, bool shut);
/* The same at the port of a tcp endpoint, of a socket with on_peers. */
void pl_socket_shut_port(pl_socket_t *socket, bool shut);
/* Connections wait outside now, because too many arrive. */
bool pl_socket_is_flooded(const pl_socket_t *socket);

/* Delivers the messages that wait now, within one budget. */
void pl_socket_look(pl_socket_t *socket);
/* Delivers all messages that wait now, without a budget. */
void pl_socket_drain(pl_socket_t *socket);

/* Waits up to timeout_ms for one message of a socket without events and copies its last
 * part; -> its size, 0: no message, or an error. */
int64_t pl_socket_receive(pl_socket_t *socket, void *data, size_t capacity,
                          int timeout_ms, pl_error_t *err);

/* Whether a SUB socket receives messages that start with topic. */
int pl_socket_subscribe(pl_socket_t *socket, const char *topic, bool receives,
                        pl_error_t *err);

/* The endpoint to which it is bound, after "*" was replaced. */
int pl_socket_endpoint(pl_socket_t *socket, char *text, size_t capacity, pl_error_t *err);

#endif
