/* run_dir_index.h - the run-directory index: where the runs of a job have their folders
 *
 * A process that is started in the place of one that has died goes through its program
 * from the beginning.  What its k-th training had come to is found by this file, which
 * PACELINE_RUN_DIR_INDEX names and only rank zero reads and writes. */
#ifndef PL_LAUNCHERS_RUN_DIR_INDEX_H
#define PL_LAUNCHERS_RUN_DIR_INDEX_H

#include "paceline.h"

/* The folder of that run, from 1, to be freed; NULL: it is not there, or, with an error,
 * memory is out. */
char *pl_run_dir_index_find(int run, pl_error_t *err);
/* Adds it; logs a line when that fails. */
void pl_run_dir_index_add(int run, const char *folder);

#endif
