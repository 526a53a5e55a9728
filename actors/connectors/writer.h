/* writer.h - the actor that writes and reads a run's files, on a thread of its own */
#ifndef PL_CONNECTORS_WRITER_H
#define PL_CONNECTORS_WRITER_H

#include "runtime/actor.h"

/* `start`: needs nothing. */
extern const pl_actor_ops_t pl_io_writer;

/* What the writer does, for other threads that may block. */
struct pl_weights;
struct pl_checksums;

typedef enum pl_weights_part {
    PL_WEIGHTS_MODULE,
    PL_WEIGHTS_OPTIMIZER
} pl_weights_part_t;

/* The module's tensors or the optimizer's after so many steps to a safetensors file,
 * durably, and its sums [not wanted]; errors as of pl_safetensors_write(). */
int pl_weights_write_part(const char *path, const struct pl_weights *weights,
                          pl_weights_part_t part, uint64_t global_step,
                          struct pl_checksums *sums, pl_error_t *err);
/* The module's. */
int pl_weights_write(const char *path, const struct pl_weights *weights,
                     uint64_t global_step, pl_error_t *err);
/* Of a file, a checkpoint, or a run directory: see run_weights.h.  PL_ENOTFOUND, PL_EIO,
 * PL_EFORMAT, PL_EUNSUPPORTED name file and tensor.  NULL after an error. */
struct pl_weights *pl_weights_read(const char *path, pl_error_t *err);

/* The file of the weights in a run directory. */
#define PL_WEIGHTS_FILE "model.safetensors"

/* PL_EEXIST when a run has that name already.  Another one may still take it: only
 * making the folder reserves it. */
int pl_run_dir_is_free(const char *root, const char *name, pl_error_t *err);

/* A new folder below root, with the run in run.json; `name` "" for the next number.  Its
 * path, to be freed by pl_text_free(), or NULL. */
char *pl_run_dir_make(const char *root, const char *name, const char *run,
                      pl_error_t *err);

/* The file `latest` beside the folder names it; where it cannot be written, a warning
 * says so.  What killed runs have left of such files is removed. */
int pl_run_dir_point(const char *folder, pl_error_t *err);

/* Gives the folder of that name another one, NAME.1 or the next, and says so; nothing is
 * there: fine.  PL_EBUSY as below. */
int pl_run_dir_put_aside(const char *root, const char *name, pl_error_t *err);

/* Holds a run's folder until pl_run_dir_let(), and clears away what killed writers have
 * left in it: PL_EBUSY names the process that holds it already. */
int pl_run_dir_hold(const char *path, int *held, pl_error_t *err);
void pl_run_dir_let(int held);

/* PL_OK when files can be made in a run's folder, and in that of its checkpoints. */
int pl_run_dir_is_writable(const char *path, pl_error_t *err);

/* Makes the folder of a file that lay there once again, and says so. */
int pl_run_dir_make_again(const char *file, pl_error_t *err);

#endif
