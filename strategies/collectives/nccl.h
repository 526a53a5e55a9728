/* nccl.h - what the files of the collective "nccl" share
 *
 * nccl.c has the table and what happens when a rank or a card fails; nccl_join.c opens
 * the two collectives inside; nccl_connect.c makes the communicator; nccl_ops.c begins
 * operations on memory of cards, with accelerators/cuda/sums.c for the canonical order.
 */
#ifndef PL_COLLECTIVES_NCCL_H
#define PL_COLLECTIVES_NCCL_H

#include "accelerators/cuda/load.h"
#include "accelerators/cuda/sums.h"
#include "strategies/collectives/collective.h"

typedef enum nccl_phase {
    NCCL_IDLE,
    NCCL_AGREEING,                 /* the host's collective compares what ranks request */
    NCCL_CONNECTING,               /* the communicator is being made */
    NCCL_MOVING,                   /* an operation's stages are put on the stream */
} nccl_phase_t;

typedef struct nccl {
    /* First: done() gets it.  The operation of an inner collective that joining, or the
     * operation under way, is made of, now. */
    pl_coll_request_t step;
    pl_choice_t host;                                       /* options */
    const char *order;

    /* The host's collectives: for memory of the host, and for what operations on cards
     * need, which have an order of their own; and their tables  [not open]. */
    pl_instance_t component[2];
    const pl_collective_ops_t *inner, *side;
    char side_address[PL_ADDRESS_TEXT];
    int epoll, timer;
    pl_coll_request_t *joining;
    pl_world_t world, side_world;                     /* size 0: not joined */
    char *text;                                       /* [size][PL_ADDRESS_TEXT] */
    const char **address, **side_table;               /* [size] */
    pl_reg_buffer_t *addresses;                       /* counted, of the second  [NULL] */
    pl_underway_t now;                                /* on memory of cards */
    nccl_phase_t phase;
    bool given_up;                               /* the others know, or are not to know */
    int64_t abort_at;                            /* pl_now() of it  [0: not due] */

    const cuda_communicator_t *library;
    const cuda_library_t *driver;
    pl_device_memory_t device;                   /* of the memory that was shared first */
    CUdevice card;
    CUcontext context;                                     /* retained  [not connected] */
    CUstream stream;
    ncclComm_t comm;                                        /* [there is none] */
    bool is_connected;
    pl_reg_buffer_t *records;                    /* counted; what each rank has  [NULL] */
    uint32_t shared;                             /* memories so far */
    cuda_sums_t *sums;                           /* [not used] */

    int stage;                      /* of the operation, the next */
    bool is_busy;                   /* NCCL is at the last one still */
    int64_t since;                  /* when it, or connecting, began */
    pl_fence_t *last;               /* counted; of the newest operation  [all are over] */
    bool is_stuck;                  /* what is on the stream has no fence */
    /* An error whose cause may be seen soon, and until when  [code 0]. */
    pl_error_t doubt;
    int64_t doubt_until;
    int64_t lost_since;                                 /* a rank is gone  [0: none is] */
} nccl_t;

/* ---- nccl.c ---- */

static inline bool nccl_is_canonical(const nccl_t *n)
{
    return n->order[0] == 'c';
}

/* PL_OK where NCCL has done what it was asked or is at it, then is_busy is set; else what
 * it says. */
int nccl_check(nccl_t *n, cu_result_t result, const char *what, pl_error_t *err);
/* The same of the driver. */
int nccl_check_driver(const nccl_t *n, cu_result_t result, const char *what,
                      pl_error_t *err);
/* The operation under way has failed, and all that follow will. */
void nccl_break(nccl_t *n, const pl_error_t *why);
/* It is done. */
void nccl_end(nccl_t *n);

/* ---- nccl_join.c ---- */

/* As the table has them. */
int nccl_open(void *self, const pl_collective_context_t *context,
              char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err);
int nccl_join(void *self, pl_coll_request_t *req, pl_error_t *err);

/* ---- nccl_connect.c ---- */

/* All have shared memory of a device for the first time: ends or breaks the operation
 * under way once the communicator is there. */
void nccl_connect(nccl_t *n);
/* As the table has it. */
int nccl_compile_sums(void *self, const pl_device_memory_t *memory, pl_dtype_t dtype,
                      pl_error_t *err);
/* Looks how far it is. */
void nccl_connect_poll(nccl_t *n);
/* Lets go of the communicator and all on the card; waits for the ranks' operations for a
 * second at most. */
void nccl_disconnect(nccl_t *n);

/* ---- nccl_ops.c ---- */

/* Puts the next stage of the operation under way on the stream; *more false: there was
 * none left. */
int nccl_stage(nccl_t *n, bool *more, pl_error_t *err);

#endif
