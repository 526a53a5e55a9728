/* shm.h - what shm.c (operations) and shm_rendezvous.c (rendezvous and wake-ups)
 * share */
#ifndef PL_COLLECTIVES_SHM_H
#define PL_COLLECTIVES_SHM_H

#include "strategies/collectives/collective.h"

enum {
    SHM_MAGIC = 0x506c5331,
    SHM_SMALL = 2048,
    SHM_NAME = 48,
    SHM_MACHINE = 80,
    SHM_STRANGERS = 8
};

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

typedef struct shm_block {
    void *data;
    size_t bytes;
} shm_block_t;

typedef struct shm_peer {
    int fd;                                           /* the connection  [-1] */
    int number;                                       /* its rank in the run */
    bool met, left;                                   /* its hello has come; it is gone */
    char name[SHM_NAME];                              /* where it listens */
    shm_control_t *control;                           /* [it has not been met] */
    shm_block_t *block;                               /* registered buffers, by number */
    int block_count, block_capacity;
} shm_peer_t;

typedef enum shm_note_kind {
    SHM_NOTE_HELLO = 1,                         /* with the descriptor of shm_control_t */
    SHM_NOTE_MEMORY,                            /* with the descriptor of the buffer */
    SHM_NOTE_ABORT,
} shm_note_kind_t;

/* A packet of one byte is a ring; all others have this form. */
typedef struct shm_note {
    uint32_t magic, kind;
    uint32_t rank, size;
    uint64_t number, bytes;                                 /* of the buffer */
    char from[SHM_NAME], to[SHM_NAME];
    char text[PL_ERROR_TEXT / 2];
} shm_note_t;

/* How long to poll for other ranks before sleeping: see shm.c. */
typedef struct shm_spin {
    int64_t max, now;                                       /* ns; max 0: no polling */
    int64_t rang;                                           /* when this rank last woke
                                                               another */
    int64_t since;                                          /* when sleep began  [0: no
                                                               sleep] */
} shm_spin_t;

typedef enum shm_phase {
    SHM_RENDEZVOUS,
    SHM_ENTERING,                                           /* waits for all to begin */
    SHM_WORKING,
    SHM_FINISHING,                                          /* waits for all to finish */
} shm_phase_t;

typedef struct shm {
    int64_t spin_us;                                        /* option */
    int epoll, listener, timer, work;
    char name[SHM_NAME], machine[SHM_MACHINE];
    int stranger[SHM_STRANGERS];          /* connections whose hello has not come  [-1] */
    int stranger_next;
    int own_fd;                                             /* descriptor of `own` */
    shm_control_t *own;
    int rank, size;                               /* size 0: not joined */
    shm_peer_t *peer;                             /* [size] */
    const void **in;                              /* [size], elements of the
                                                     operation */
    const void **part;                            /* [size], those of the current slice */
    pl_reg_buffer_t **buffers;                    /* own, counted */
    int buffer_count, buffer_capacity;
    bool reported;                                 /* the other ranks know of the abort */

    pl_underway_t now;
    uint64_t number;                                      /* of the operation under way */
    shm_phase_t phase;
    bool small;
    int piece;           /* current piece of the work, and elements of it that are done */
    uint64_t piece_at;
    shm_spin_t spin;
} shm_t;

/* ---- shm_rendezvous.c ---- */

int shm_open_context(shm_t *s, char address[PL_ADDRESS_TEXT], pl_error_t *err);
int shm_rendezvous(shm_t *s, const pl_world_t *world, pl_error_t *err);
bool shm_all_met(const shm_t *s);
/* Ends the rendezvous: no rank is waited for any more. */
void shm_rendezvous_end(shm_t *s);
/* Reads everything that has come, and connects again where that is due. An error of
 * another rank goes to pl_underway_break(). */
void shm_read_all(shm_t *s);
/* Wakes the ranks that wait. */
void shm_ring(shm_t *s);
int shm_send_memory(shm_t *s, const pl_reg_buffer_t *buffer, int fd, pl_error_t *err);
/* Maps the pages of a buffer that all ranks have registered. */
void shm_touch(const shm_t *s, const pl_reg_buffer_t *buffer);
void shm_send_abort(shm_t *s, const char *why);
void shm_release(shm_t *s);

/* ---- shm.c ---- */

/* The buffer of a rank; NULL: it has none of this number. */
void *shm_reach(const shm_t *s, int rank, uint64_t memory);

#endif
