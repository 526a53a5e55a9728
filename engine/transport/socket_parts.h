/* socket_parts.h - what socket.c (opens, closes), socket_turn.c (receives, sends) and
 * socket_peers.c (tells who connects) share */
#ifndef PL_TRANSPORT_SOCKET_PARTS_H
#define PL_TRANSPORT_SOCKET_PARTS_H

#include "transport/endpoint.h"
#include "transport/socket.h"
#include "transport/zap.h"

enum {
    SOCKET_IDENTITY = 5,                                    /* bytes, of a DEALER's */
    SOCKET_COMERS = 16,                                     /* of whom it is kept where */
    SOCKET_WHO = 80,                                        /* they are from */
};

typedef struct socket_comer {
    int fd;
    char who[SOCKET_WHO];
} socket_comer_t;

/* How fast they may come in. */
typedef struct socket_intake {
    int a_second;                                           /* 0: as they like */
    int capacity;                                           /* for so many now */
    int64_t grown;                                          /* when it was known */
    bool is_full;
} socket_intake_t;

struct pl_socket {
    void *zmq;
    pl_socket_type_t type;
    bool bounded;                                           /* has a high water mark */
    bool company;                                           /* each part is a message: */
    bool sends_more, has_more;                              /* of one that has begun */
    uint32_t from;                                          /* whose it is that came */
    pl_sockets_t *loop;
    struct event *readable;                            /* the edge of ZMQ_FD */
    struct event *again;                               /* a zero timeout: there is more */
    pl_on_message_t on_message;
    void *user;
    pl_socket_path_t listen_path;              /* of an ipc endpoint that it listens at */
    int port;                                  /* ZeroMQ's descriptor of a tcp one [-1] */
    bool shut, is_shut;                        /* the port: as it was asked; as it is */
    bool listen_shut;
    struct event *look;                           /* whether somebody may come in again */
    socket_intake_t intake;
    char domain[PL_ZAP_DOMAIN];                    /* of ZAP requests  ["": none] */
    pl_socket_t *peers;                            /* tells who connects  [nobody asks] */
    int peer_count;
    void (*on_peers)(void *user, int peers);
    void (*on_greeting)(void *user, pl_greeting_t how, const char *who);
    pl_greeting_t wrong;                        /* of a connection whose end comes next */
    socket_comer_t comer[SOCKET_COMERS];        /* the latest, in turn */
    unsigned comers;
    bool *closed;                               /* set when closed from inside a turn [not
                                                   in a turn] */
    pl_socket_t *next_sent, **sent_pprev;       /* in loop->sent; pprev NULL: not in it */
};

/* What ZeroMQ says of its last failure; -> code. */
int socket_fail(pl_error_t *err, int code, const char *what, const char *about);

/* socket_turn.c */
void socket_ready(int fd, short what, void *user);
void socket_goes_on(int fd, short what, void *user);
/* Before its loop waits. */
void socket_look_later(pl_socket_t *socket);
void socket_looked(pl_socket_t *socket);

/* socket_peers.c: before it is bound or connected, so that nobody waits to be told of. */
int socket_watch(pl_socket_t *socket, int comers_a_second, pl_error_t *err);
/* Of any. */
void socket_unwatch(pl_socket_t *socket);

#endif
