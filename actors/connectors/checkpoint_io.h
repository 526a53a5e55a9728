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

/* The checkpoints in a run directory, newest first; what cannot be read comes before. */
typedef struct pl_candidate {
    char *path;
    json_t *manifest;                                  /* [it cannot be read: why says] */
    json_int_t serial;
    pl_error_t why;
} pl_candidate_t;

typedef struct pl_candidates {
    pl_candidate_t *at;
    int count, capacity;
} pl_candidates_t;

/* PL_ENOMEM; to be released only after PL_OK. */
int pl_candidates_list(pl_candidates_t *all, const char *run_dir, pl_error_t *err);
void pl_candidates_release(pl_candidates_t *all);

/* What was found to go on from. */
typedef struct pl_found {
    char *path;                                 /* of the checkpoint  [none is valid] */
    char *run_dir;                              /* that it lies in; without any, where it
                                                   was looked for  [it lies in none] */
    char *manifest;                             /* JSON */
    char *passed;                               /* why which checkpoints and runs were not
                                                   taken, one a line */
    struct pl_weights *weights;                 /* whole; counted */
} pl_found_t;

/* The newest valid checkpoint of a run directory, or one by its path; `from` NULL: of
 * the newest run in root that has one, or of the run of that name.  PL_ENOTFOUND,
 * PL_EFORMAT: one that was named is none, or is damaged.  Without any, path is NULL with
 * PL_OK. */
int pl_checkpoint_find(const char *root, const char *run_name, const char *from,
                       pl_found_t *found, pl_error_t *err);
/* To go back to: the newest valid one up to that serial number, and one that was made
 * aside only where there is no other.  PL_ENOTFOUND: there is none. */
int pl_checkpoint_find_rollback(const char *run_dir, uint64_t serial, pl_found_t *found,
                                pl_error_t *err);
/* The newest of a run directory, which need not have one. */
int pl_checkpoint_find_first(const char *run_dir, pl_found_t *found, pl_error_t *err);
void pl_found_release(pl_found_t *found);

/* The tensors of a checkpoint, held against its manifest: all, or the module's alone. */
struct pl_weights *pl_checkpoint_weights(const char *path, bool whole, pl_error_t *err);

#endif
