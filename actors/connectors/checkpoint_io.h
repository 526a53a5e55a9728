/* checkpoint_io.h - the actor that writes, finds and removes checkpoints, on a thread of
 * its own */
#ifndef PL_CONNECTORS_CHECKPOINT_IO_H
#define PL_CONNECTORS_CHECKPOINT_IO_H

#include <jansson.h>

#include "runtime/actor.h"

/* `start`: needs nothing. */
extern const pl_actor_ops_t pl_io_checkpoint;

/* The folder of the checkpoints in a run directory. */
#define PL_CHECKPOINTS_FOLDER "checkpoints"

/* The checkpoints in a run directory: first the unreadable ones, then from the newest to
 * the oldest. */
typedef struct pl_candidate {
    char *path;
    json_t *manifest;                               /* [unreadable: `why` is the error] */
    json_int_t serial;
    pl_error_t why;
} pl_candidate_t;

typedef struct pl_candidates {
    pl_candidate_t *at;
    int count, capacity;
} pl_candidates_t;

/* PL_ENOMEM; to be released after PL_OK only. */
int pl_candidates_list(pl_candidates_t *all, const char *run_dir, pl_error_t *err);
void pl_candidates_release(pl_candidates_t *all);

/* A checkpoint to resume from. */
typedef struct pl_found {
    char *path;                               /* of the checkpoint  [none is valid] */
    char *run_dir;                            /* that contains it; if there is none, the
                                                 searched one  [outside of any] */
    char *manifest;                           /* JSON */
    char *rejected;                           /* checkpoints and runs that were not taken,
                                                 and why, one a line */
    struct pl_weights *weights;               /* with the optimizer's; counted */
} pl_found_t;

/* The newest valid checkpoint of a run directory `from`, or the checkpoint `from`; NULL:
 * of the run of that name in root, or "": of the newest run there that has one.
 * PL_ENOTFOUND, PL_EFORMAT: `from` is no checkpoint, or a damaged one.  If there is no
 * checkpoint, path is NULL with PL_OK. */
int pl_checkpoint_find(const char *root, const char *run_name, const char *from,
                       pl_found_t *found, pl_error_t *err);
/* The newest valid checkpoint up to that serial number; one that was made aside only if
 * there is no other.  PL_ENOTFOUND: there is none. */
int pl_checkpoint_find_rollback(const char *run_dir, uint64_t serial, pl_found_t *found,
                                pl_error_t *err);
/* The newest checkpoint of a run directory; if there is none, path is NULL with PL_OK. */
int pl_checkpoint_find_first(const char *run_dir, pl_found_t *found, pl_error_t *err);
void pl_found_release(pl_found_t *found);

/* The tensors of a checkpoint, compared with its manifest: all, or the module's alone. */
struct pl_weights *pl_checkpoint_weights(const char *path, bool whole, pl_error_t *err);

#endif
