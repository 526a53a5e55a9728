/* durable.h - a file that is there whole or not at all
 *
 * Written under another name in the same directory, synced, renamed, and the directory
 * synced: whoever looks at the path sees the old file or the new one, also after a power
 * failure.  A failed sync is final: the kernel may forget the pages it could not write
 * and report success the next time, so only a new file may be tried. */
#ifndef PL_FORMATS_DURABLE_H
#define PL_FORMATS_DURABLE_H

#include "formats/checksums.h"
#include "paceline.h"

typedef struct pl_durable {
    const char *path;                     /* borrowed until the end */
    const char *base;                     /* its last part */
    char *temporary;                      /* the name until then, in the same directory */
    int directory, fd;
    uint64_t written;                               /* bytes, without direct */
    struct pl_direct_io *direct;                    /* [it is not large] */
    pl_checksums_t *sums;                           /* of what is written  [not wanted] */
} pl_durable_t;

/* Starts a file that is to be at `path`.  PL_EIO, PL_ENOTFOUND (no such directory),
 * PL_ENOMEM. */
int pl_durable_open(pl_durable_t *file, const char *path, pl_error_t *err);

/* Before the first write: so many bytes are to come, about. */
void pl_durable_expect(pl_durable_t *file, uint64_t bytes);

/* Appends; PL_EIO names the file and the offset.  The caller then abandons it. */
int pl_durable_write(pl_durable_t *file, const void *data, size_t size, pl_error_t *err);

/* Puts the file in its place and ends it, also on failure: then what was there is
 * untouched, unless the text says that only the sync of the directory failed. */
int pl_durable_commit(pl_durable_t *file, pl_error_t *err);

/* Removes what processes that are gone have left in a folder, which writers on another
 * machine do not share.  What cannot be removed stays. */
void pl_durable_clear(const char *folder);

/* Ends the file and leaves no trace. */
void pl_durable_abandon(pl_durable_t *file);

#endif
