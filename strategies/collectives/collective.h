/* collective.h - the role of a collective: moves and reduces bytes among ranks
 *
 * A new way to move bytes fills in the table below and nothing else.
 * strategies/collectives/actor.c is the actor that owns a collective and turns
 * messages into calls of this table, on a thread of its own. A strategy never calls
 * the table.
 *
 * No function blocks. A function begins an operation; the collective calls its done()
 * when it is over, soon or much later. One descriptor tells when there is more to
 * do. One operation on the host's memory and one on a device's may be under way at a
 * time; of each kind all ranks begin the same operations in the same order. After an
 * operation has failed or was aborted all that follow fail: the ranks have to join
 * again, and the contents of registered buffers are lost.
 *
 * Same bits: an element is summed over the ranks by the canonical tree (tree.h),
 * whatever moves it and however it is cut. A collective that cannot guarantee this
 * says so with own_order().
 *
 * Memory is the host's, or memory of the one kind of device that a collective names. An
 * operation on a device's memory is done when it is in order, not when it is over: it
 * begins behind one fence, and its result is there behind another. */
#ifndef PL_COLLECTIVES_COLLECTIVE_H
#define PL_COLLECTIVES_COLLECTIVE_H

#include "paceline.h"
#include "runtime/payload.h"
#include "base/limits.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name): the operations, under their names in messages.def. */
#define PL_COLL_OPS(X) \
    X(join) \
    X(alloc_buffer) \
    X(register_buffer) \
    X(all_reduce) \
    X(reduce_scatter) \
    X(all_gather) \
    X(all_to_all) \
    X(broadcast) \
    X(send) \
    X(barrier)

typedef enum pl_coll_op {
#define PL_X(name) PL_COLL_OP_##name,
    PL_COLL_OPS(PL_X)
#undef PL_X
        PL_COLL_OP_COUNT
} pl_coll_op_t;

/* What all ranks must request alike: only numbers, so that it can be sent and compared
 * as bytes. */
typedef struct pl_coll_desc {
    uint32_t op;          /* pl_coll_op_t */
    uint32_t dtype, reduction;  /* pl_dtype_t, pl_reduction_t;
                                   0 where neither matters */
    uint32_t root;        /* rank: of broadcast and send */
    uint32_t to;          /* rank: of send */
    uint32_t is_device;   /* the memory is a device's */
    uint64_t memory;      /* number of the registered buffer */
    uint64_t offset;      /* in that buffer, bytes */
    uint64_t count;       /* elements; alloc_buffer and
                             register_buffer: bytes */
    uint64_t step;        /* chunks begin at multiples of it, elements  [PL_CHUNK_STEP] */
    uint64_t agrees;      /* 1 + the pl_coll_op_t that this barrier precedes  [0] */
} pl_coll_desc_t;

/* The ranks that join. */
typedef struct pl_world {
    int rank, size;
    const char *const
        *address;   /* [size], as open() of each rank returned it; this rank's included */
    /* [size], their rank in the run, if these are a part of its ranks  [they are all] */
    const int *number;
    /* [size], equal for ranks that reach each other's registered buffers with reach() 
     * [none do]; this and the fields below stay until close() */
    const int *machine;
    void *(*reach)(
        void *user, int rank,
        uint64_t memory);     /* that rank's buffer of this number  [NULL: it has none] */
    void *user;
} pl_world_t;

/* A request. It belongs to its requester and stays unchanged until done(). */
typedef struct pl_coll_request {
    pl_coll_desc_t desc;
    const pl_world_t *world;                             /* of join; stays until done() */
    /* The buffer of the elements, from desc.offset on; alloc_buffer fills it in:
     * counted, the requester owns it. */
    pl_reg_buffer_t *memory;
    /* Of a device's memory: the operation begins behind it [NULL: at once] */
    pl_fence_t *after;
    /* out, of a device's memory: the result is there behind it; counted, the requester
     * owns it  [NULL: it is there] */
    pl_fence_t *fence;
    unsigned char
        *arrived;   /* [world size], zeroed; 1: that rank has come, 0: it is waited for */
    /* Called once, from inside the function that began the operation, advance() or
     * abort(); err NULL: success. */
    void (*done)(struct pl_coll_request *req, const pl_error_t *err);
} pl_coll_request_t;

/* What a collective is opened with. */
typedef struct pl_collective_context {
    const char *host;            /* address of this machine for other ranks  [loopback] */
    /* [PL_KEY_BYTES], key of the job, for data that leaves the machine  [none] */
    const unsigned char *key;
    bool is_inner;                     /* it is inside another collective and logs less */
} pl_collective_context_t;

/* Every function runs on the collective's own thread. If a function that begins an
 * operation returns an error, done() is not called. Operations are in place. */
typedef struct pl_collective_ops {
    PL_COMPONENT;
    /* True if sums have an order of its own instead of the canonical tree  [canonical] */
    bool (*own_order)(const void *self);
    /* Kind of device memory that it moves besides the host's, such as "cuda"  [none] */
    const char *device;
    /* Whether this machine has what the collective needs: the error says what is
     * missing. Called when "auto" selects for its device; on any thread  ["auto" does
     * not select it] */
    int (*available)(pl_error_t *why);
    /* Reports its libraries on this machine, or what to install; on any thread 
     * [nothing] */
    void (*report)(pl_fact_t tell, void *user);
    /* Prepares the rendezvous. `address`, one line, is what join() of the other ranks
     * needs. `descriptor` stays until close() and is readable when advance() is due. */
    int (*open)(void *self, const pl_collective_context_t *context,
                char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err);
    /* Joins the ranks of req->world; once. */
    int (*join)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Allocates memory for operations: desc.count bytes, zeroed, on page boundaries. 
     * Buffers are numbered from 0. A buffer stays until its last reference is
     * dropped. */
    int (*alloc_buffer)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Registers req->memory, a device's, for operations of this collective; sets its
     * number. It has the same size on all ranks.  [required if `device` is set] */
    int (*register_buffer)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Compiles the kernels for sums of such memory of a device, so that a later run
     * finds them in the cache; after join(), without other ranks.  [nothing is
     * compiled] */
    int (*compile_sums)(void *self, const pl_device_memory_t *memory, pl_dtype_t dtype,
                        pl_error_t *err);
    /* Reduces the elements to all ranks.  [PL_EUNSUPPORTED; so below] */
    int (*all_reduce)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Reduces each chunk, pl_coll_chunk(), to its rank. The rest is undefined; of a
     * device's memory it is unchanged. */
    int (*reduce_scatter)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Sends the chunk of each rank, pl_coll_chunk(), to all ranks. */
    int (*all_gather)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* desc.count elements, a multiple of the ranks, are one equal partition per rank,
     * in the order of ranks. Each partition goes to its rank, into the partition of
     * its sender. */
    int (*all_to_all)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Sends the elements of desc.root to all ranks. */
    int (*broadcast)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Sends the elements of desc.root to rank desc.to; other ranks' elements stay as
     * they are. */
    int (*send)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Ends when all ranks have begun it. */
    int (*barrier)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Between operations: fails with a failure that is known, such as a rank that is
     * gone. That rank itself may have ended well  [the next operation reports it] */
    int (*alive)(void *self, pl_error_t *err);
    /* Does what can be done now, without waiting; for about a millisecond. */
    void (*advance)(void *self);
    /* Ends all operations on all ranks: the one under way fails with this error, those
     * of other ranks with PL_EPEER and its text. */
    void (*abort)(void *self, const pl_error_t *why);
    /* Frees everything except registered buffers; also called after a failed open. */
    void (*close)(void *self);
} pl_collective_ops_t;

/* ---- What collectives share: collective.c ---- */

/* "all_reduce" */
PL_API const char *pl_coll_op_name(uint32_t op);

/* Elements: one cache line of the shortest type that is reduced. */
enum { PL_CHUNK_STEP = 16 };

/* The chunk of a rank if `count` elements are cut into `size` chunks: chunks follow
 * the order of ranks, begin at multiples of `step`, such as PL_CHUNK_STEP, and may be
 * empty. */
PL_API void pl_chunk_by(uint64_t count, uint64_t step, int size, int rank,
                        uint64_t *first, uint64_t *length);
/* The chunk of a rank in reduce_scatter and all_gather. */
PL_API void pl_coll_chunk(const pl_coll_desc_t *desc, int size, int rank, uint64_t *first,
                          uint64_t *length);

/* The equal partition of a rank in all_to_all. */
PL_API void pl_partition_of(uint64_t count, int size, int rank, uint64_t *first,
                            uint64_t *length);

/* Bytes of an element; 0: there is no such type. */
PL_API size_t pl_dtype_bytes(uint32_t dtype);

/* The operation that a collective is at; the first member of every collective's state. */
typedef struct pl_underway {
    const char *device;                                  /* as in the table */
    pl_coll_request_t *req;                              /* [none] */
    pl_error_t broken;                                   /* the first failure  [code 0] */
} pl_underway_t;

/* Whether an operation can begin now, on one of `size` ranks  [0: they have not
 * joined]. */
PL_API int pl_underway_check(const pl_underway_t *now, const pl_coll_request_t *req,
                             int size, pl_error_t *err);
/* Ends the operation under way, if there is one. */
PL_API void pl_underway_end(pl_underway_t *now, const pl_error_t *err);
/* Fails the operation under way and all that follow, with the first such error. */
PL_API void pl_underway_break(pl_underway_t *now, const pl_error_t *why);

/* "rank 0, rank 2 arrived, rank 1 did not" */
#define PL_ARRIVED_TEXT 200
const char *pl_arrived_text(const unsigned char *arrived, int size,
                            char text[PL_ARRIVED_TEXT]);

/* PL_EPROTOCOL if the request of another rank differs. */
PL_API int pl_coll_desc_compare(const pl_coll_desc_t *own, int rank,
                                const pl_coll_desc_t *theirs, pl_error_t *err);

/* Whether the operation moves elements. */
PL_API bool pl_has_elements(const pl_coll_desc_t *desc);

/* Does a whole operation on few elements once those of all ranks are here. in[rank]:
 * the elements that a rank gave; of all_gather, broadcast and send only those that it
 * sends. The result goes to `own`, which is none of in[]. */
void pl_few_elements(const pl_coll_desc_t *desc, int size, int rank, const void **in,
                     void *own);

/* A registered buffer that other processes can map: *fd is its descriptor, which the
 * caller closes  [NULL]. It is sealed: no process can shrink it. */
PL_API pl_reg_buffer_t *pl_reg_buffer_new(size_t bytes, uint32_t number, int *fd,
                                          pl_error_t *err);

extern const pl_collective_ops_t pl_best_collective, pl_shm_collective, pl_tcp_collective;

#ifdef __cplusplus
}
#endif

#endif
