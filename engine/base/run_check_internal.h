/* run_check_internal.h - what run_check.c (the walk) and run_errors.c (its errors)
 * share */
#ifndef PL_BASE_RUN_CHECK_PARTS_H
#define PL_BASE_RUN_CHECK_PARTS_H

#include "base/json_path.h"
#include "base/suggestion.h"
#include "base/options.h"

#define PATH_TEXT 120

typedef struct checker {
    const pl_options_t *o;
    bool deep, elsewhere;
    bool trial;                                             /* nothing is changed by it */
    pl_error_t *err;
} checker_t;

typedef pl_json_path_t path_t;

/* The error of a value or key: "run.json:3:18: " before the text (printf). */
int run_fail_at(const checker_t *c, const path_t *path, pl_json_field_t component,
                int code, const char *format, ...) PL_PRINTF(5, 6);
/* The path as errors show it, in quotes by the caller. */
char *run_show_path(const path_t *path, char shown[PATH_TEXT]);
/* `"trainer.devices" takes an integer (1..), not 0` */
int run_fail_value(const checker_t *c, const path_t *path, const pl_error_t *why);
int run_fail_form(const checker_t *c, const path_t *path, const char *wanted,
                  const json_t *value);
/* A slip of the fingers among the keys of this object, or else a key of another one. */
int run_fail_meant(const checker_t *c, const path_t *path,
                   const pl_suggestion_t *nearest);

#endif
