/* descriptors.h - whether there are descriptors left for what does not survive without */
#ifndef PL_BASE_DESCRIPTORS_H
#define PL_BASE_DESCRIPTORS_H

#include <stdbool.h>

#include "paceline.h"

/* PL_EBUSY: fewer than count can be opened, and some more for other threads. */
int pl_descriptors_check(int count, const char *what, pl_error_t *err);

/* PL_EBUSY: fewer are left than so many threads of actors and so many files will need at
 * once; says which limit would do.  PL_OK where it cannot be told. */
int pl_descriptors_for(int64_t threads, int64_t files, pl_error_t *err);

/* About half of them are in use.  Takes none but one, for a moment, where threads need
 * some at the same time. */
bool pl_descriptors_are_few(void);

/* How many may be open at once. */
int pl_descriptors_max(void);

#endif
