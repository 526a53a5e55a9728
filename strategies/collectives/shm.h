/* shm.h - what shm.c (operations) and shm_memory.c (memory of others, rings) share */
#ifndef PL_COLLECTIVES_SHM_H
#define PL_COLLECTIVES_SHM_H

#include "strategies/collectives/mesh.h"

enum { SHM_SMALL = 2048 };

/* One per rank, in memory that all ranks have mapped. Only that rank writes it,
 * except `asleep`. Operations are numbered from 1. Data of an operation lies in one
 * of two places, by its parity: a rank that begins an operation has seen that all
 * ranks began the one before, and so have left the one before that. */
typedef struct shm_control {
    _Alignas(64) uint64_t entered;                     /* newest operation it has begun */
    pl_coll_desc_t desc[2];
    _Alignas(64) uint64_t finished;     /* newest operation it has finished its part of */
    _Alignas(64) uint32_t asleep;       /* the rank that clears it rings */
    _Alignas(64) unsigned char small[2][SHM_SMALL];  /* the elements, if they are few */
} shm_control_t;

/* Frames without a body; the hello comes with the descriptor of shm_control_t. */
typedef enum shm_kind {
    SHM_RING = MESH_OWN,           /* the receiver sleeps, and there is something new */
    SHM_MEMORY,                    /* a registered buffer: its number, at: its bytes; with
                                      its descriptor */
} shm_kind_t;

typedef struct shm_block {
    void *data;
    size_t bytes;
} shm_block_t;

typedef struct shm_peer {
    shm_control_t *control;                            /* [it has not been met] */
    shm_block_t *block;                                /* registered buffers, by number */
    int block_count, block_capacity;
} shm_peer_t;

/* How long to poll for other ranks before sleeping: see shm.c. */
typedef struct shm_spin {
    int64_t max, now;                               /* ns; max 0: no polling */
    int64_t rang;                                   /* when this rank last woke another */
    int64_t since;                                  /* when sleep began  [0: no sleep] */
} shm_spin_t;

typedef enum shm_phase {
    SHM_RENDEZVOUS,
    SHM_ENTERING,                                           /* waits for all to begin */
    SHM_WORKING,
    SHM_FINISHING,                                          /* waits for all to finish */
} shm_phase_t;

typedef struct shm {
    int64_t spin_us;                                        /* option */
    mesh_t mesh;
    int own_fd;                                            /* descriptor of `own`  [-1] */
    shm_control_t *own;
    int rank, size;                               /* of the mesh; size 0: not joined */
    shm_peer_t *peer;                             /* [size] */
    const void **in;                              /* [size], elements of the
                                                     operation */
    const void **part;                            /* [size], those of the current slice */
    pl_reg_buffer_t **buffers;                    /* own, counted */
    int buffer_count, buffer_capacity;

    pl_underway_t now;
    uint64_t number;                                      /* of the operation under way */
    shm_phase_t phase;
    bool small;
    int piece;           /* current piece of the work, and elements of it that are done */
    uint64_t piece_at;
    shm_spin_t spin;
} shm_t;

/* ---- shm_memory.c ---- */

extern const mesh_user_t shm_user;

/* Makes `own`, before the ranks join. */
int shm_make_own(shm_t *s, pl_error_t *err);
/* Unmaps the memory of all ranks but the own registered buffers. */
void shm_release(shm_t *s);
/* The registered buffer of a rank; NULL: it has none of this number. */
static inline void *shm_reach(const shm_t *s, int rank, uint64_t memory)
{
    const shm_peer_t *peer = &s->peer[rank];
    return memory < (uint64_t)peer->block_count ? peer->block[memory].data : NULL;
}
/* Maps the pages of a buffer that all ranks have registered. */
void shm_touch(const shm_t *s, const pl_reg_buffer_t *buffer);
int shm_send_memory(const shm_t *s, const pl_reg_buffer_t *buffer, int fd,
                    pl_error_t *err);
/* Wakes the ranks that wait. */
void shm_ring(shm_t *s);

#endif
