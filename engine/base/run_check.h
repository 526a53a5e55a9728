/* run_check.h - a run held against the tables */
#ifndef PL_BASE_RUN_CHECK_H
#define PL_BASE_RUN_CHECK_H

#include "base/options.h"

/* Shallow: the form, and the keys of the trainer and the data, which need no component
 * to be known.  Deep: all.  Elsewhere: that other processes find the components, too. */
typedef enum pl_check_depth {
    PL_CHECK_SHALLOW,
    PL_CHECK_DEEP,
    PL_CHECK_ELSEWHERE
} pl_check_depth_t;

/* The key of a run file that a word may mean: "optimizer.lr" for "lr" and for
 * "learning_rate"; NULL: none. */
enum { PL_RUN_KEY = 96 };
const char *pl_run_key(const char *word, char key[PL_RUN_KEY]);

int pl_run_check(const pl_options_t *o, pl_check_depth_t depth, pl_error_t *err);

#endif
