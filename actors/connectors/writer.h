/* writer.h - the actor that writes and reads a run's files, on a thread of its own */
#ifndef PL_CONNECTORS_WRITER_H
#define PL_CONNECTORS_WRITER_H

#include <jansson.h>

#include "runtime/actor.h"

/* `start`: needs nothing. */
extern const pl_actor_ops_t pl_io_writer;

/* ---- run directories (run_dir.c), for threads that may block ---- */

/* Reads the `start` options {"run_dir": …, "data": …} of connectors that write: the
 * run directory, to be freed by pl_free(), and the content of the data, counted
 * [data_p NULL: not needed].  Missing members leave NULL. */
int pl_run_options(const char *options, char **run_dir_p, json_t **data_p,
                   pl_error_t *err);
/* Writes these options; data is JSON  [NULL or "": none]; pl_text_free() frees them. */
char *pl_run_options_text(const char *run_dir, const char *data, pl_error_t *err);

/* PL_EEXIST when a run has that name already.  PL_OK reserves nothing: only making the
 * folder does. */
int pl_run_dir_is_free(const char *root, const char *name, pl_error_t *err);

/* Makes a folder below root, with `run` in run.json; name "": the next number.  Returns
 * its path, to be freed by pl_text_free(), or NULL. */
char *pl_run_dir_make(const char *root, const char *name, const char *run,
                      pl_error_t *err);

/* Writes the folder's name to the file `latest` beside it; a warning reports a failure.
 * Temporary files of killed runs are removed. */
int pl_run_dir_point(const char *folder, pl_error_t *err);

/* Renames the folder of that name, if there is one, to NAME.1 or the next free number,
 * and logs it.  PL_EBUSY as below. */
int pl_run_dir_put_aside(const char *root, const char *name, pl_error_t *err);

/* Locks a run's folder until pl_run_dir_let(), and removes the temporary files of killed
 * writers.  PL_EBUSY names the process that holds the lock. */
int pl_run_dir_hold(const char *path, int *held, pl_error_t *err);
void pl_run_dir_let(int held);

/* PL_OK when files can be made in a run's folder and in its folder of checkpoints. */
int pl_run_dir_is_writable(const char *path, pl_error_t *err);

/* Makes the removed folder of a file again, and logs it. */
int pl_run_dir_make_again(const char *file, pl_error_t *err);

#endif
