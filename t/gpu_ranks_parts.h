/* gpu_ranks_parts.h - runs, modules, a strategy and an accelerator for the tests of ranks
 * on GPUs, gpu_ranks.c and gpu_zero1.c */
#ifndef T_GPU_RANKS_PARTS_H
#define T_GPU_RANKS_PARTS_H

#include "accelerators/accelerator.h"
#include "paceline.h"
#include "rig.h"
#include "runtime/actor.h"

/* ---- Runs ---- */

#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.01}"
#define FINETUNING \
    "[{\"name\": \"finetuning\", \"freeze\": \"*.bias\", \"epochs\": [1], " \
    "\"unfreeze\": \"*\"}]"
#define ALL_KEPT \
    "[{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 1, \"save_top_k\": -1}]"
#define SMALL "\"bucket_mb\": 0.0001"

typedef struct gpu_run {
    const char *name;
    const char *trainer, *strategy;                         /* members */
    const char *by;                                         /* ["ddp"] */
    const char *module, *accelerator, *averaging, *callbacks;
    const char *data, *optimizer;                           /* [batches of 4; ADAMW] */
    int nan;
    const char *loss;                                       /* ["train_loss"] */
} gpu_run_t;

/* Of two epochs, by a collective: "emulated" moves gradients on the devices, "best"
 * through the host.  Lives until the next one. */
rig_spec_t gpu_run_spec(const gpu_run_t *run, const char *collective);
rig_result_t *gpu_run_train(const gpu_run_t *run, const char *collective);
/* Operations on devices since the last call. */
int gpu_moved(void);

/* A test: each run has the same bits by the host and on devices; scatters: with sums that
 * leave each rank its chunk. */
void gpu_runs_equal_the_host(const gpu_run_t *runs, size_t count, bool scatters);
/* A test: the other half of the steps, from a checkpoint of the first, has the same
 * bits. */
void gpu_runs_resume_to_the_same_bits(const gpu_run_t *runs, size_t count);
/* Whether a run with that fault ends with other weights, in one of several tries. */
bool gpu_run_differs(const gpu_run_t *run, bool *fault);
/* A test: the run ends with the error of the operation of that number, from 1. */
void gpu_run_fails_at(const gpu_run_t *run, int operation);

/* ---- Components ---- */

/* "pair": two objectives, the second with every other step; "zip": one has the weights of
 * the same sides, the other their biases; "wide": so many parameters that blocks are of
 * more than a cache line; "wide_zip": both. */
extern const pl_module_ops_t gpu_ranks_pair, gpu_ranks_zip, gpu_ranks_wide,
    gpu_ranks_wide_zip;

/* "spaced": a batch norm for which one sample is enough. */
extern const pl_module_ops_t gpu_ranks_pairs;
extern const pl_module_ops_t gpu_ranks_spaced;

/* "reading": ddp whose code reads gradients. */
extern const pl_actor_ops_t gpu_ranks_reading;

/* "uneven": an emulated GPU.  Rank 0 receives the end of an update before its next batch
 * is in order; other ranks receive the end of a skipped one after that.  Made before it
 * is registered. */
extern pl_accelerator_ops_t gpu_ranks_uneven;
void gpu_ranks_uneven_make(void);
/* Batches of other ranks that were in order before the update was reported; the reader
 * resets it.  Atomic. */
extern int gpu_ranks_late;

#endif
