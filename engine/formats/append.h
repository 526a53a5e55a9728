/* append.h - a file that grows by whole pieces
 *
 * Pieces gather in memory and go out together; after a failure the file is cut back to
 * what was whole.  The file is open only while it is written, so that a run of days does
 * not hold on to one that somebody has moved away. */
#ifndef PL_FORMATS_APPEND_H
#define PL_FORMATS_APPEND_H

#include "paceline.h"

typedef struct pl_append {
    char *path;
    char *gathered;                                         /* [length] */
    size_t length, room;
    uint64_t size;                                       /* of the file, as it was left */
    bool lacks;                                          /* what was to be kept */
} pl_append_t;

/* Names the file; it is made by the first flush.  What lies behind the first `keep` bytes
 * is cut off, and so is a line that is not whole  [negative: nothing is].
 * PL_EIO, PL_ENOMEM. */
int pl_append_open(pl_append_t *file, const char *path, int64_t keep, pl_error_t *err);

/* A piece, for the next flush. */
int pl_append_add(pl_append_t *file, const void *data, size_t size, pl_error_t *err);

/* All that was added is in the file, or none of it and it is dropped.  PL_ENOTFOUND,
 * PL_EIO. */
int pl_append_flush(pl_append_t *file, pl_error_t *err);

/* What was not flushed is dropped; fine of a zeroed one. */
void pl_append_release(pl_append_t *file);

#endif
