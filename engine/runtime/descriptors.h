/* descriptors.h - whether there are descriptors left for what does not survive without */
#ifndef PL_RUNTIME_DESCRIPTORS_H
#define PL_RUNTIME_DESCRIPTORS_H

#include "paceline.h"

/* PL_EBUSY: fewer than count can be opened, and some more for what other threads open meanwhile. */
int pl_descriptors_check(int count, const char *what, pl_error_t *err);

#endif
