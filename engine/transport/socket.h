/* socket.h - the one wrapper around ZeroMQ: opens, sends, receives, tells libevent
 *
 * ZMQ_FD is edge-triggered and our own sends swallow edges; whoever owns a socket any
 * other way loses messages.  So all of it is here: receiving in batches of at most 64
 * messages and 1 ms, looking again after sends before the loop waits, and going on by a
 * zero timeout so that timers of the same loop are not starved. */
#ifndef PL_TRANSPORT_SOCKET_H
#define PL_TRANSPORT_SOCKET_H

#include "transport/frame.h"

struct event_base;
typedef struct pl_socket pl_socket_t;

/* The process's ZeroMQ context, made at first use and ended with the last release; NULL
 * with an error. */
void *pl_context_acquire(pl_error_t *err);
void pl_context_release(void);

typedef enum pl_socket_type {
    PL_SOCKET_ROUTER,
    PL_SOCKET_DEALER,
    PL_SOCKET_XPUB,                                         /* so here */
    PL_SOCKET_SUB,
    PL_SOCKET_PAIR,                               /* each part that comes is a message */
    PL_SOCKET_REP,                                /* here too; identity: 1 when more parts
                                                     of the same request follow */
    PL_SOCKET_DESK,                               /* a ROUTER for clients of any kind:
                                                     parts as of a REP, the first who it
                                                     is; pl_socket_send_parts() answers */
} pl_socket_type_t;

/* How a connection was greeted. */
typedef enum pl_greeting {
    PL_GREETING_DONE,                                       /* well */
    PL_GREETING_OTHER_KEY,                                  /* it has another key */
    PL_GREETING_NO_KEY,                                     /* one side alone has one */
    PL_GREETING_BAD,                                        /* as nothing of ours */
} pl_greeting_t;

typedef struct pl_socket_spec {
    pl_socket_type_t type;
    const char *endpoint;                        /* "inproc://…", "ipc://…",
                                                    "tcp://127.0.0.1:*"; beyond this
                                                    machine with keys alone */
    const struct pl_keys *keys;                  /* encrypted, and who has others does not
                                                    get in  [neither] */
    bool bind;                                   /* otherwise connect */
    uint32_t identity;                           /* of a DEALER: how a ROUTER finds it; 0:
                                                    none */
    bool waits;                                  /* a DEALER: what is sent before the
                                                    other side is there waits, and what
                                                    had come stays when that one goes
                                                    [refused, and lost] */
    bool company;                                /* a ROUTER or DEALER: messages may go
                                                    and come together, each a part */
    int high_water_mark;                         /* messages; 0: no limit */
    int linger_ms;                               /* to get the last messages out when
                                                    closing */
    int64_t message_max;                         /* bytes of one received
                                                    [PL_MESSAGE_MAX] */
    void (*on_peers)(void *user, int peers);     /* how many are connected to one that has
                                                    a loop, whenever that changes; must
                                                    not close it  [nobody asks] */
    int comers_a_second;                         /* at the port of one with on_peers,
                                                    beyond some that come at once: the
                                                    others wait outside  [all come in] */
    /* Of one with on_peers: a connection was greeted, or is over because it was not; who
     * it came from, "10.0.0.2, port 4711" or "a client"; "" when all is well.  May close
     * the socket.  [nobody asks] */
    void (*on_greeting)(void *user, pl_greeting_t how, const char *who);
} pl_socket_spec_t;

/* The sockets of one event loop.  Whoever runs the loop calls pl_sockets_flush() before
 * each wait. */
typedef struct pl_sockets {
    struct event_base *base;
    pl_socket_t *sent;                        /* those that sent since they last looked */
} pl_sockets_t;

/* A message of one part has come, beside the identity that a ROUTER puts before it (0 for
 * one that no socket of ours uses); it may be moved from.  frame NULL: one of another
 * number of parts was dropped. */
typedef void (*pl_on_message_t)(void *user, uint32_t identity, pl_frame_t *frame);

/* loop NULL: no events; the caller polls by pl_socket_receive.  PL_EINVAL: an endpoint
 * beyond this machine. */
pl_socket_t *pl_socket_open(const pl_socket_spec_t *spec, pl_sockets_t *loop,
                            pl_on_message_t on_message, void *user, pl_error_t *err);
/* Gives one that was opened without a loop to the loop of this thread; its opener does
 * nothing with it any more.  Without on_peers. */
int pl_socket_attach(pl_socket_t *socket, pl_sockets_t *loop, pl_on_message_t on_message,
                     void *user, pl_error_t *err);
/* Any time, also from its own on_message. */
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
/* The same over a socket with company; more: another to that identity is sent next, with
 * which it goes. */
int pl_socket_send_with(pl_socket_t *socket, uint32_t identity, pl_frame_t *frame,
                        bool more, pl_error_t *err);

/* Sends a message of several parts. */
int pl_socket_send_parts(pl_socket_t *socket, const pl_bytes_t *parts, int count,
                         pl_error_t *err);

/* Sends a topic and a text from an XPUB, to whom it interests. */
int pl_socket_publish(pl_socket_t *socket, pl_bytes_t topic, pl_bytes_t text,
                      pl_error_t *err);

/* Lets nobody new in at the file of an ipc endpoint, or lets them in again; others are
 * not shut.  While it is shut on_peers is called each second. */
void pl_socket_shut(pl_socket_t *socket, bool shut);
/* The same at the port of a tcp endpoint, of a socket that tells who connects. */
void pl_socket_shut_port(pl_socket_t *socket, bool shut);
/* Some wait outside now, because so many come. */
bool pl_socket_is_flooded(const pl_socket_t *socket);

/* Delivers what is waiting now, within one budget. */
void pl_socket_look(pl_socket_t *socket);
/* Delivers all that is waiting now, beyond any budget. */
void pl_socket_drain(pl_socket_t *socket);

/* Waits up to timeout_ms for one message of a socket without events and copies its last
 * part; the size, 0 when none came, or an error. */
int64_t pl_socket_receive(pl_socket_t *socket, void *data, size_t capacity,
                          int timeout_ms, pl_error_t *err);

/* A SUB socket takes what starts with topic. */
int pl_socket_subscribe(pl_socket_t *socket, const char *topic, pl_error_t *err);
int pl_socket_unsubscribe(pl_socket_t *socket, const char *topic, pl_error_t *err);

/* The endpoint it is bound to, after "*" was replaced. */
int pl_socket_endpoint(pl_socket_t *socket, char *text, size_t capacity, pl_error_t *err);

#endif
