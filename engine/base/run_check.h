/* run_check.h - the check of a run against the tables of options */
#ifndef PL_BASE_RUN_CHECK_H
#define PL_BASE_RUN_CHECK_H

#include "base/mistakes.h"
#include "base/options.h"

/* Shallow: the form and the keys of the trainer and the data, for which no component
 * is needed.  Deep: everything.  Elsewhere: also that other processes find the
 * components. */
typedef enum pl_check_depth {
    PL_CHECK_SHALLOW,
    PL_CHECK_DEEP,
    PL_CHECK_ELSEWHERE
} pl_check_depth_t;

int pl_run_check(const pl_options_t *o, pl_check_depth_t depth, pl_error_t *err);

/* As pl_run_check() with PL_CHECK_DEEP, but finds all mistakes, up to PL_MISTAKES_MAX. A
 * plug-in that cannot be loaded ends the check, since its components are unknown.
 * -> PL_OK also with mistakes; an error if the check itself fails. */
int pl_run_check_all(const pl_options_t *o, pl_mistakes_t *all, pl_error_t *err);

#endif
