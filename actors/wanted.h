/* wanted.h - checkpoints that somebody wants: by which names, and which older ones may go
 * then */
#ifndef PL_WANTED_H
#define PL_WANTED_H

#include <stdbool.h>

#include "paceline.h"

/* Names, one a line; all zero: none is wanted. */
typedef struct pl_wanted {
    char save[512], drop[1024];
} pl_wanted_t;

/* Adds names that are not there already.  PL_EBUSY: they are too many, and none is
 * added. */
int pl_wanted_add(pl_wanted_t *wanted, const char *save, const char *drop,
                  pl_error_t *err);
/* Whether a list of names, one a line, has this one. */
bool pl_wanted_has(const char *list, const char *name);

#endif
