/* error.h - errors, besides pl_fail() of paceline.h */
#ifndef PL_BASE_ERROR_H
#define PL_BASE_ERROR_H

#include "paceline.h"

/* Puts "where: " (printf) before the text of an error; returns its code. */
int pl_error_prefix(pl_error_t *err, const char *format, ...) PL_PRINTF(2, 3);

/* PL_ENOMEM with its text. */
PL_API int pl_no_memory(pl_error_t *err);

/* PL_EINVAL if a required argument is NULL; `what` names it: "a trainer". */
PL_API int pl_require(const void *thing, const char *what, pl_error_t *err);

/* The plural ending of a noun in a text: "%lld row%s". */
static inline const char *pl_plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
