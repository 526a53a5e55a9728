/* nccl.h - what the files of the collective "nccl" share
 *
 * nccl.c has the table and what happens when a rank or a card fails; nccl_connect.c
 * opens the two collectives inside and makes the communicator; nccl_ops.c begins
 * operations on memory of cards, with accelerators/cuda/sums.c for the canonical order.
 */
#ifndef PL_COLLECTIVES_NCCL_H
#define PL_COLLECTIVES_NCCL_H

#include "accelerators/cuda/load.h"
#include "accelerators/cuda/sums.h"
#include "strategies/collectives/collective.h"

typedef enum nccl_phase {
    NCCL_IDLE,
    NCCL_AGREEING,          /* the host's collective compares the requests of the ranks */
    NCCL_CONNECTING,        /* the communicator is being made */
    NCCL_MOVING,            /* the operation's stages are being put on the stream */
} nccl_phase_t;

typedef struct nccl {
    /* First: done() gets it. The operation of an inner collective that joining, or
     * the operation under way, is at. */
    pl_coll_request_t step;
    pl_choice_t host;                                       /* options */
    const char *order;

    /* Two collectives of the host, with an order of operations each, and their tables:
     * `inner` moves memory of the host, `side` serves operations on cards  [not open]. */
    pl_instance_t component[2];
    const pl_collective_ops_t *inner, *side;
    char side_address[PL_ADDRESS_TEXT];
    int epoll, timer;
    pl_coll_request_t *joining;
    pl_world_t world, side_world;                      /* size 0: not joined */
    char *text;                                        /* [size][PL_ADDRESS_TEXT] */
    const char **address, **side_table;                /* [size] */
    pl_reg_buffer_t *addresses;                        /* counted, of `inner`  [NULL] */
    pl_underway_t now;                                 /* operations on memory of cards */
    nccl_phase_t phase;
    bool given_up;                  /* the other ranks know of the failure, or must not */
    int64_t abort_at;               /* pl_now() when the abort is due  [0: not due] */

    const cuda_communicator_t *library;
    const cuda_library_t *driver;
    pl_device_memory_t device;               /* of the memory that was registered first */
    CUdevice card;
    CUcontext context;                                     /* retained  [not connected] */
    CUstream stream;
    ncclComm_t comm;                                        /* [there is none] */
    bool is_connected;
    pl_reg_buffer_t *records;          /* counted; a rank_record_t of each rank  [NULL] */
    uint32_t shared;                   /* memories that were registered */
    cuda_sums_t *sums;                 /* [not needed] */

    int stage;            /* the next stage of the operation */
    bool is_busy;         /* NCCL still works on the stage before */
    int64_t since;        /* when that stage, or connecting, began */
    pl_fence_t *last;     /* counted; the fence of the newest operation  [all are over] */
    bool is_stuck;        /* the work on the stream has no fence */
    /* An error whose cause may be known soon, and the time until which to wait for the
     * cause [code 0]. */
    pl_error_t doubt;
    int64_t doubt_until;
    int64_t lost_since;          /* when a rank was first seen to be gone  [0: none is] */
} nccl_t;

/* ---- nccl.c ---- */

static inline bool nccl_is_canonical(const nccl_t *n)
{
    return n->order[0] == 'c';
}

/* PL_OK if NCCL has done the call or works on it, which sets is_busy; else NCCL's
 * error. */
int nccl_check(nccl_t *n, cu_result_t result, const char *what, pl_error_t *err);
/* The same for the driver. */
int nccl_check_driver(const nccl_t *n, cu_result_t result, const char *what,
                      pl_error_t *err);
/* Fails the operation under way and all that follow. */
void nccl_break(nccl_t *n, const pl_error_t *why);
/* Ends the operation under way. */
void nccl_end(nccl_t *n);

/* ---- nccl_connect.c ---- */

/* See pl_collective_ops_t. */
int nccl_open(void *self, const pl_collective_context_t *context,
              char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err);
int nccl_join(void *self, pl_coll_request_t *req, pl_error_t *err);

/* When all ranks have registered memory of a device for the first time: makes the
 * communicator, then ends or fails the operation under way. */
void nccl_connect(nccl_t *n);
/* See pl_collective_ops_t. */
int nccl_compile_sums(void *self, const pl_device_memory_t *memory, pl_dtype_t dtype,
                      pl_error_t *err);
/* Checks whether the communicator is there. */
void nccl_connect_poll(nccl_t *n);
/* Frees the communicator and everything on the card; waits one second at most for the
 * operations of the ranks. */
void nccl_disconnect(nccl_t *n);

/* ---- nccl_ops.c ---- */

/* Puts the next stage of the operation under way on the stream; *more false: there was
 * none left. */
int nccl_stage(nccl_t *n, bool *more, pl_error_t *err);

#endif
