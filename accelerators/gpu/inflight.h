/* inflight.h - a replay in flight: its events, its memory on the host, and its set on the
 * device */
#ifndef PL_GPU_INFLIGHT_H
#define PL_GPU_INFLIGHT_H

#include "accelerators/gpu/replay.h"

/* A replay in flight.  It has host memory, which copies at full speed, for two step
 * blocks, its record or two, the batch, and the outputs. */
typedef struct inflight {
    struct inflight *next;
    pl_plan_t *plan;
    pl_replay_t *replay;
    char *host;
    size_t bytes;
    char *record;                     /* there, or with the flight before */
    size_t records;                   /* bytes there for it, or for it and the next one */
    int slot;
    struct inflight *end;          /* the flight that it ends with  [NULL: unknown yet] */
    int piece;                     /* the next one */
    int reported;                  /* of the `readies` */
    int collective;                /* that the last piece ends at  [0] */
    bool is_timed;                 /* `backward` is recorded */
    bool is_joined;                /* or left out (replay.c) */
    pl_event_t *began, *backward, *computed, *over;
    pl_event_t *ready[PL_GRAD_BUCKETS_MAX];                 /* [NULL: not made yet] */
    int readies;                                            /* recorded ones */
    int buckets[PL_GRAD_BUCKETS_MAX];                       /* ready with each of them */
    gpu_timings_t timings;                                  /* of a measured replay */
} inflight_t;

/* A spare flight or a new one, with events and memory for a replay. */
int gpu_inflight_take(pl_gpu_t *gpu, pl_plan_t *plan, const pl_replay_t *replay,
                      inflight_t **spare, inflight_t **taken, pl_error_t *err);
/* Adds a flight that is over to the spare ones; its set may be filled again. */
void gpu_inflight_give(pl_gpu_t *gpu, inflight_t *f, inflight_t **spare);
/* Returns the next of its list. */
inflight_t *gpu_inflight_free(pl_gpu_t *gpu, inflight_t *f);

/* Host memory that a replay of the plan needs, with so many bytes of records. */
size_t gpu_inflight_bytes(const pl_plan_t *plan, const pl_replay_t *replay,
                          size_t records);
/* Of a set's records: bytes of the first one, up to the second. */
size_t gpu_inflight_half(const pl_gpu_t *gpu, int slot);
/* The flight's own place for its record. */
char *gpu_inflight_record(const inflight_t *f);
/* The control block at the time of the event `ready`. */
gpu_control_t *gpu_inflight_control(const inflight_t *f, int ready);
char *gpu_inflight_outputs(const inflight_t *f);
/* [NULL: its kernels and copies are not measured] */
gpu_timings_t *gpu_inflight_timings(inflight_t *f);

/* Puts the copies of step block and batch to its set on stream IN, for stream MAIN to
 * wait for. */
int gpu_inflight_fill(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err);

#endif
