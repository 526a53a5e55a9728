/* durable.h - a file that appears complete or not at all
 *
 * It is written under another name in the same directory, synced and renamed, and the
 * directory is synced: the path shows the old file or the new one, also after a power
 * failure. A failed sync is final: the kernel may drop the pages that it could not write
 * and report success the next time, so only a new file can be tried.
 *
 * A device, a pipe or a descriptor (/dev/null, /dev/stdout, a FIFO) is never replaced:
 * the bytes are written to it as they come. */
#ifndef PL_FORMATS_DURABLE_H
#define PL_FORMATS_DURABLE_H

#include "paceline.h"

#define PL_SUMS_BLOCK (1 << 20)                             /* bytes */

/* Checksums of a file, block by block, made while it is written. Starts as zeros. */
typedef struct pl_checksums {
    uint64_t bytes;
    uint32_t *block;                                        /* CRC-32C of each */
    int count, capacity;
} pl_checksums_t;

/* Adds the next bytes of the file. */
int pl_checksums_add(pl_checksums_t *sums, const void *data, size_t size,
                     pl_error_t *err);
void pl_checksums_release(pl_checksums_t *sums);

typedef struct pl_durable {
    const char *path;               /* borrowed until the end */
    const char *base;               /* its last part, within path */
    char *temporary;                /* its name until the commit, in the same directory */
    int directory, fd;
    bool is_stream;                   /* a device or a pipe: written straight, and kept */
    uint64_t written;                 /* bytes, without direct */
    struct pl_direct_io *direct;      /* [the file is not large] */
    pl_checksums_t *sums;             /* of the file  [none] */
} pl_durable_t;

/* Starts a file that is to be at `path`.  PL_EIO, PL_ENOTFOUND (no such directory),
 * PL_ENOMEM. */
int pl_durable_open(pl_durable_t *file, const char *path, pl_error_t *err);

/* Called before the first write: about how many bytes will come. */
void pl_durable_expect(pl_durable_t *file, uint64_t bytes);

/* Appends; PL_EIO names the file and the offset.  The caller then abandons it. */
int pl_durable_write(pl_durable_t *file, const void *data, size_t size, pl_error_t *err);

/* Renames the file into place and ends it, also on failure. An old file is then
 * unchanged, unless the error says that only the sync of the directory failed. */
int pl_durable_commit(pl_durable_t *file, pl_error_t *err);

/* Removes unfinished files of processes that have ended from a folder. Writers on another
 * machine must not share it. Files that cannot be removed stay. */
void pl_durable_clear(const char *folder);

/* Ends the file and removes it. */
void pl_durable_abandon(pl_durable_t *file);

#endif
