/* fuzz_collective.h - a rank of the collective shm or tcp, and the places of two others
 * that an input or a test speaks for
 *
 * An input is a sequence of orders: a kind, an argument, a length, and so many bytes. */
#ifndef T_FUZZ_COLLECTIVE_H
#define T_FUZZ_COLLECTIVE_H

#include "collective_rig.h"
#include "strategies/collectives/mesh.h"

enum { RANKS = 3 };

typedef struct peers {
    member_t own;                            /* rank 0, which is under test */
    int listener[RANKS];                     /* of ranks 1 and 2  [-1: none] */
    int connection[RANKS];                   /* to rank 0  [-1: none]; [0] is no rank's */
    char text[RANKS][PL_ADDRESS_TEXT];
    const char *address[RANKS];
    pl_world_t world;
    pl_coll_request_t req;                          /* of rank 0, the newest */
    pl_reg_buffer_t *buffer;                        /* of rank 0  [none yet] */
    uint64_t number;                                /* operations that rank 0 has begun */
} peers_t;

typedef struct order {
    uint8_t kind, argument;
    const uint8_t *bytes;
    size_t size;
} order_t;

/* Opens rank 0, with its address in text[0]; then it joins the world, with the addresses
 * of all in text.  What was opened is closed also after a failure. */
bool peers_open(peers_t *p, const char *collective);
bool peers_join(peers_t *p);
void peers_disconnect(peers_t *p, int rank);
void peers_close(peers_t *p);

/* Rank 1 or 2 listens, before rank 0 joins. */
void peers_listen(peers_t *p, int rank);
void peers_connect(peers_t *p, int rank);
/* Sends bytes, with so many descriptors; connects first where there is no connection. */
void peers_say(peers_t *p, int rank, const void *bytes, size_t size,
               const int *descriptor, size_t count);
/* What a rank says on a new connection, as it should be; of shm with the descriptor of
 * its memory  [-1: none], which comes with the first byte of its hello. */
void peers_greet(peers_t *p, int rank, int descriptor);
/* A frame without a body, with a descriptor  [-1: none]. */
void peers_frame(peers_t *p, int rank, const mesh_frame_t *frame, int descriptor);

/* Rank 0 begins the operation that an order describes, unless one is under way; memory:
 * bytes of its first buffer.  Then it does what can be done now. */
void peers_begin(peers_t *p, const order_t *order, uint32_t memory);
void peers_help(peers_t *p);
/* Rank 0 aborts. */
void peers_abort(peers_t *p);

/* Calls obey() with each order of the input. */
void orders_obey(const uint8_t *data, size_t size,
                 void (*obey)(void *user, const order_t *order), void *user);

#endif
