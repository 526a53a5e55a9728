/* collective.h - the role of a collective: what moves and reduces bytes among ranks
 *
 * The table below is all that a new way of moving bytes has to fill in.
 * strategies/collectives/actor.c is the actor that owns one and turns messages into calls
 * of this table, on a thread of its own; a strategy never calls it.
 *
 * Nothing here blocks: an operation is begun, and when it is over, soon or much later,
 * its done() is called; whatever a collective waits for can be waited for by one
 * descriptor.  One operation is under way at a time on the host's memory, and one on a
 * device's; of each kind all ranks begin the same ones in the same order. Once one has
 * failed, or was aborted, all that follow fail: the ranks have to join again, and what
 * was in registered buffers is lost.
 *
 * Same bits: an element's sum over ranks is that of the canonical tree (tree.h), whatever
 * moves it and however it is cut; where a collective cannot hold to that, own_order()
 * says so.
 *
 * Memory is the host's, or that of a device, of the one kind that a collective names.
 * For a device's memory an operation is done when it is in order, not when it is over:
 * it begins behind one fence, and its effect is there behind another. */
#ifndef PL_COLLECTIVES_COLLECTIVE_H
#define PL_COLLECTIVES_COLLECTIVE_H

#include "paceline.h"
#include "runtime/payload.h"
#include "runtime/limits.h"

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

/* What all ranks must ask for alike: numbers alone, so that it can be sent and compared
 * as bytes. */
typedef struct pl_coll_desc {
    uint32_t op;                                     /* pl_coll_op_t */
    uint32_t dtype, reduction;                       /* pl_dtype_t, pl_reduction_t;
                                                        0 where neither matters */
    uint32_t root;                                   /* of broadcast and send */
    uint32_t to;                                     /* of send */
    uint32_t is_device;                              /* the memory is a device's */
    uint64_t memory;                                 /* number of the registered buffer */
    uint64_t offset;                                 /* in it, bytes */
    uint64_t count;                                  /* elements; alloc_buffer and
                                                        register_buffer: bytes */
    uint64_t step;                                   /* chunks begin at multiples
                                                        of it  [PL_CHUNK_STEP] */
    uint64_t agrees;                                 /* 1 + the pl_coll_op_t that a
                                                        barrier is before  [0] */
} pl_coll_desc_t;

/* Which ranks join. */
typedef struct pl_world {
    int rank, size;
    const char *const *address;     /* [size], what open() of each rank told;
                                       own included */
    const int *number;              /* [size], their ranks in the run, of which these
                                       are a part  [they are the run] */
    const int *machine;             /* [size], the same for those that reach each
                                       other's registered buffers: see reach()  [none do];
                                       this and below stay until close() */
    void *(*reach)(void *user, int rank, uint64_t memory);  /* its memory of that number
                                                               [NULL: it has none] */
    void *user;
} pl_world_t;

/* A request; its owner's, alive and unchanged until done. */
typedef struct pl_coll_request {
    pl_coll_desc_t desc;
    const pl_world_t *world;         /* of join; until done */
    pl_reg_buffer_t *memory;         /* what the elements lie in, from desc.offset on; of
                                        alloc_buffer filled in: counted, the owner's */
    pl_fence_t *after;               /* of a device's memory: it begins behind that [NULL:
                                        at once] */
    pl_fence_t *fence;               /* out, of a device's memory: it is over behind that;
                                        counted, the owner's  [NULL: it is over] */
    unsigned char *arrived;          /* [world size], zeroed; 1: that rank has come, 0: it
                                        is one that is waited for */
    /* To be called once, from inside the function that began it, advance() or abort();
     * err NULL when it went well. */
    void (*done)(struct pl_coll_request *req, const pl_error_t *err);
} pl_coll_request_t;

/* What a collective is opened with. */
typedef struct pl_collective_context {
    const char *host;               /* address of this machine as the other ranks reach it
                                       [loopback] */
    const unsigned char *key;       /* [PL_KEY_BYTES] of the job, for what goes over
                                       wires  [there is none] */
    bool is_inner;                  /* inside another collective: it logs less */
} pl_collective_context_t;

/* Every function runs on the collective's own thread.  Where one that begins an operation
 * returns an error, done() is not called.  Operations are in place. */
typedef struct pl_collective_ops {
    PL_COMPONENT;
    /* Whether sums are not those of the canonical tree: the bits are its own  [they are
     * those] */
    bool (*own_order)(const void *self);
    const char *device;                           /* kind of device memory that it moves
                                                     besides the host's: "cuda"  [none] */
    /* Whether this machine has what it needs: an error says what is missing.  Asked when
     * "auto" selects it for its device; on any thread  ["auto" does not select it] */
    int (*available)(pl_error_t *why);
    /* Reports its libraries on this machine, or what to install; on any thread
     * [nothing] */
    void (*report)(pl_fact_t tell, void *user);
    /* Prepares the rendezvous: address (one line) is what the other ranks' join() must
     * be told of this one, and descriptor, there until close(), what can be read when
     * advance() is due. */
    int (*open)(void *self, const pl_collective_context_t *context,
                char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err);
    /* Joins the ranks of req->world; once. */
    int (*join)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Memory for operations, desc.count bytes, zeroed, on page boundaries; its numbers
     * count from 0.  It stays until nobody refers to it. */
    int (*alloc_buffer)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* req->memory, a device's, is for operations of this collective from now on; sets its
     * number.  As many bytes on all ranks.  [where `device` is] */
    int (*register_buffer)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Compiles what sums of such memory of a device need, so that a later run finds that
     * kept; after join(), without other ranks.  [nothing is compiled] */
    int (*compile_sums)(void *self, const pl_device_memory_t *memory, pl_dtype_t dtype,
                        pl_error_t *err);
    /* Afterwards all ranks have the reduced elements.  [PL_EUNSUPPORTED; so below] */
    int (*all_reduce)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* The same, but each rank has its pl_coll_chunk() alone; the rest is undefined, of a
     * device's memory as it was. */
    int (*reduce_scatter)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Each rank gives its pl_coll_chunk(); afterwards all have all. */
    int (*all_gather)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Of desc.count elements, a multiple of the ranks, each rank has one equal part for
     * each rank, in their order; afterwards it has theirs for it, in their order. */
    int (*all_to_all)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* All get the elements of desc.root. */
    int (*broadcast)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Rank desc.to gets the elements of desc.root; the others' stay as they are. */
    int (*send)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Done when all have begun it. */
    int (*barrier)(void *self, pl_coll_request_t *req, pl_error_t *err);
    /* Between operations: fails with what is known to have failed, such as that a rank
     * is gone.  The rank itself may have ended well  [the next operation will tell] */
    int (*alive)(void *self, pl_error_t *err);
    /* Does what can be done now, without waiting; for a millisecond or so. */
    void (*advance)(void *self);
    /* Ends all that it does, and all that the other ranks do with it; the operation under
     * way is done with this error, theirs with PL_EPEER and its text. */
    void (*abort)(void *self, const pl_error_t *why);
    void (*close)(void *self);           /* frees all but registered buffers; also after a
                                            failed open */
} pl_collective_ops_t;

/* ---- What collectives share: collective.c ---- */

/* "all_reduce" */
PL_API const char *pl_coll_op_name(uint32_t op);

/* Elements: a cache line of the shortest that are reduced. */
enum { PL_CHUNK_STEP = 16 };

/* Of `count` elements in `size` parts, that of a rank; they come in the order of ranks,
 * begin at multiples of PL_CHUNK_STEP, and may be empty. */
PL_API void pl_chunk_of(uint64_t count, int size, int rank, uint64_t *first,
                        uint64_t *length);
/* The same where they begin at multiples of `step`. */
PL_API void pl_chunk_by(uint64_t count, uint64_t step, int size, int rank,
                        uint64_t *first, uint64_t *length);
/* The chunk of a rank in reduce_scatter and all_gather. */
PL_API void pl_coll_chunk(const pl_coll_desc_t *desc, int size, int rank, uint64_t *first,
                          uint64_t *length);

/* The equal part of a rank of all_to_all. */
PL_API void pl_partition_of(uint64_t count, int size, int rank, uint64_t *first,
                            uint64_t *length);

/* Bytes of an element, 0: there is no such type. */
PL_API size_t pl_dtype_bytes(uint32_t dtype);

/* What a collective is at, the first thing that each has to know of itself. */
typedef struct pl_underway {
    const char *device;                                     /* as the table has it */
    pl_coll_request_t *req;                                 /* [none] */
    pl_error_t broken;                                      /* code 0: it is not */
} pl_underway_t;

/* Whether an operation can be begun now, by a rank of so many; 0: they have not met. */
PL_API int pl_underway_check(const pl_underway_t *now, const pl_coll_request_t *req,
                             int size, pl_error_t *err);
/* It is done, if there is one. */
PL_API void pl_underway_end(pl_underway_t *now, const pl_error_t *err);
/* The one under way and all that follow fail, with the first such error. */
PL_API void pl_underway_break(pl_underway_t *now, const pl_error_t *why);

/* "rank 0, rank 2 arrived, rank 1 did not" */
#define PL_ARRIVED_TEXT 200
const char *pl_arrived_text(const unsigned char *arrived, int size,
                            char text[PL_ARRIVED_TEXT]);

/* PL_EPROTOCOL when another rank makes another request. */
PL_API int pl_coll_desc_compare(const pl_coll_desc_t *own, int rank,
                                const pl_coll_desc_t *theirs, pl_error_t *err);

/* It moves elements of memory. */
PL_API bool pl_has_elements(const pl_coll_desc_t *desc);

/* A whole operation on few elements, when those of all ranks are here: in[] by rank, of
 * all_gather, broadcast and send only what that rank gives.  own gets them; it is none of
 * in[]. */
void pl_few_elements(const pl_coll_desc_t *desc, int size, int rank, const void **in,
                     void *own);

/* A registered buffer that others can map: *fd is its descriptor, the caller's
 * [not wanted].  Sealed: nobody can make it shorter. */
PL_API pl_reg_buffer_t *pl_reg_buffer_new(size_t bytes, uint32_t number, int *fd,
                                          pl_error_t *err);

extern const pl_collective_ops_t pl_best_collective, pl_shm_collective, pl_tcp_collective;

#ifdef __cplusplus
}
#endif

#endif
