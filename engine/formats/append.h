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
    size_t length, capacity;
    uint64_t size;                   /* of the file, as it was left */
    uint32_t sum;                    /* CRC-32C of those bytes */
    bool lacks;                      /* what was to be kept */
    bool unsynced, unnamed;          /* bytes, or its name, may not outlast a power cut */
    bool untrusted;                  /* a sync has failed */
} pl_append_t;

/* Names the file; it is made by the first flush.  What lies behind the first `keep` bytes
 * is cut off, and so is a line that is not whole  [negative: nothing is].
 * PL_EIO, PL_ENOMEM. */
int pl_append_open(pl_append_t *file, const char *path, int64_t keep, pl_error_t *err);

/* Where so many more whole lines behind the first bytes of a file end; *lines: how many
 * there are not. */
int64_t pl_append_lines_behind(const char *path, int64_t bytes, uint64_t *lines);

/* A piece, for the next flush. */
int pl_append_add(pl_append_t *file, const void *data, size_t size, pl_error_t *err);

/* All that was added is in the file, or none of it and it is dropped.  PL_ENOTFOUND,
 * PL_EIO. */
int pl_append_flush(pl_append_t *file, pl_error_t *err);

/* What was flushed outlasts a power cut.  PL_EIO, then for ever: after a sync that failed
 * nobody knows what the disk has. */
int pl_append_sync(pl_append_t *file, pl_error_t *err);

/* The CRC-32C of the first bytes of a file; PL_EFORMAT: it has not that many;
 * PL_ENOTFOUND, PL_EIO. */
int pl_append_sum(const char *path, uint64_t size, uint32_t *sum, pl_error_t *err);

/* Appends to a file in one piece, without pl_append_t; a new file gets the mode.  0, or
 * the error's number. */
int pl_append_once(const char *path, unsigned mode, const void *data, size_t size);

/* What was not flushed is dropped; fine of a zeroed one. */
void pl_append_release(pl_append_t *file);

#endif
