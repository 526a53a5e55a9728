/* checkpoint_requests.h - requested checkpoints: their names, and the older ones to
 * remove */
#ifndef PL_CHECKPOINT_REQUESTS_H
#define PL_CHECKPOINT_REQUESTS_H

#include <stdbool.h>

#include "paceline.h"

/* Names, one a line; all zero: none is requested. */
typedef struct pl_checkpoint_requests {
    char save[512], drop[1024];
} pl_checkpoint_requests_t;

/* Adds names that the lists do not have yet.  PL_EBUSY: too many; none is added. */
int pl_checkpoint_requests_add(pl_checkpoint_requests_t *requests, const char *save,
                               const char *drop, pl_error_t *err);
/* Whether a list of names, one a line, contains name[0..length). */
bool pl_checkpoint_requests_has(const char *list, const char *name, size_t length);

#endif
