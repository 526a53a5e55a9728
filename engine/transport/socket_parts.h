/* socket_parts.h - the struct that socket.c (opens, closes), socket_turn.c (receives,
 * sends) and socket_peers.c (observes connections) share */
#ifndef PL_TRANSPORT_SOCKET_PARTS_H
#define PL_TRANSPORT_SOCKET_PARTS_H

#include "transport/endpoint.h"
#include "transport/socket.h"
#include "transport/keys.h"

enum {
    SOCKET_IDENTITY = 5,                                    /* bytes of a DEALER's */
    SOCKET_COMERS = 16,                                     /* addresses that are kept */
    SOCKET_ADDRESS = 80,                                    /* bytes of an address */
};

typedef struct socket_comer {
    int fd;
    char address[SOCKET_ADDRESS];
} socket_comer_t;

/* The rate of new connections. */
typedef struct socket_intake {
    int a_second;                                           /* 0: no limit */
    int capacity;                                           /* that are admitted now */
    int64_t grown;                                          /* when capacity was known */
    bool is_full;
} socket_intake_t;

struct pl_socket {
    void *zmq;
    pl_socket_type_t type;
    bool bounded;                                           /* has a high water mark */
    bool company;                                           /* each part is a message */
    bool sends_more, has_more;                              /* a message has begun */
    uint32_t from;                                          /* its sender */
    pl_sockets_t *loop;
    struct event *readable;                                 /* the edge of ZMQ_FD */
    struct event *again;                                    /* a zero timeout: continue */
    pl_on_message_t on_message;
    void *user;
    pl_socket_path_t listen_path;                 /* of an ipc endpoint */
    int port;                                     /* ZeroMQ's descriptor of a tcp endpoint
                                                     [-1] */
    bool shut, is_shut;                           /* the port: requested; actual */
    bool listen_shut;
    struct event *look;                                     /* at the end of a closure */
    socket_intake_t intake;
    char domain[PL_ZAP_DOMAIN];                          /* of ZAP requests  ["": none] */
    pl_socket_t *peers;                                  /* reports connections  [none] */
    int peer_count;
    void (*on_peers)(void *user, int peers);
    void (*on_greeting)(void *user, pl_greeting_t how, const char *peer);
    pl_greeting_t wrong;                            /* of the connection that ends next */
    socket_comer_t comer[SOCKET_COMERS];            /* the newest, in turn */
    unsigned comers;
    bool *closed;                               /* set when closed from inside a turn [not
                                                   in a turn] */
    pl_socket_t *next_sent, **sent_pprev;       /* in loop->sent; pprev NULL: not in it */
};

/* Reports ZeroMQ's last failure; -> code. */
int socket_fail(pl_error_t *err, int code, const char *what, const char *about);

/* socket_turn.c */
void socket_ready(int fd, short what, void *user);
void socket_continue(int fd, short what, void *user);
/* The socket is looked at before its loop waits. */
void socket_look_later(pl_socket_t *socket);
void socket_looked(pl_socket_t *socket);

/* socket_peers.c: before the socket is bound or connected, so that no connection is
 * missed. */
int socket_watch(pl_socket_t *socket, int comers_a_second, pl_error_t *err);
/* Of any socket. */
void socket_unwatch(pl_socket_t *socket);

#endif
