/* append.h - a file that grows by whole pieces
 *
 * Pieces gather in memory and are written together; after a failure the file is cut back
 * to its last whole state. The file is open only while it is written, so that a long run
 * does not hold a file that has been moved away. */
#ifndef PL_FORMATS_APPEND_H
#define PL_FORMATS_APPEND_H

#include "paceline.h"

typedef struct pl_append {
    char *path;
    char *gathered;                                         /* [length] */
    size_t length, capacity;
    uint64_t size;                            /* of the file, after the last write */
    uint32_t sum;                             /* CRC-32C of those bytes */
    bool lacks;                               /* fewer bytes than `keep` */
    bool unsynced, unnamed;                   /* bytes, or its name, are not synced yet */
    bool untrusted;                           /* a sync has failed */
} pl_append_t;

/* Names the file; the first flush creates it. Everything after the whole lines of the
 * first `keep` bytes is cut off  [negative: nothing]. PL_EIO, PL_ENOMEM. */
int pl_append_open(pl_append_t *file, const char *path, int64_t keep, pl_error_t *err);

/* The end of *lines more whole lines after the first `bytes` of a file; *lines becomes
 * the number of lines that are missing. */
int64_t pl_append_lines_behind(const char *path, int64_t bytes, uint64_t *lines);

/* Adds a piece to the next flush. */
int pl_append_add(pl_append_t *file, const void *data, size_t size, pl_error_t *err);

/* Writes all pieces to the file, or none of them and drops them. PL_ENOTFOUND, PL_EIO. */
int pl_append_flush(pl_append_t *file, pl_error_t *err);

/* Syncs what was flushed to the disk. PL_EIO, then always: after a failed sync the
 * contents of the disk are unknown. */
int pl_append_sync(pl_append_t *file, pl_error_t *err);

/* The CRC-32C of the first `size` bytes of a file; PL_EFORMAT: it has fewer;
 * PL_ENOTFOUND, PL_EIO. */
int pl_append_sum(const char *path, uint64_t size, uint32_t *sum, pl_error_t *err);

/* Appends to a file in one piece, without pl_append_t; a new file gets the mode.  0, or
 * the error's number. */
int pl_append_once(const char *path, unsigned mode, const void *data, size_t size);

/* Drops pieces that were not flushed; *file may be all zeros. */
void pl_append_release(pl_append_t *file);

#endif
