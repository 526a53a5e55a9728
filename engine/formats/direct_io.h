/* direct_io.h - writes a large file past the page cache
 *
 * What is synced at once and read by nobody soon gains nothing from that cache: it costs
 * another copy, and memory that others then lack.  A thread writes one block while the
 * next is filled, so that the disk never waits for us. */
#ifndef PL_FORMATS_DIRECT_IO_H
#define PL_FORMATS_DIRECT_IO_H

#include "paceline.h"

typedef struct pl_direct_io pl_direct_io_t;

/* Takes over the writing of a file that is empty so far; the descriptor stays the
 * caller's.  NULL: it is to be written as others are, because its file system wants the
 * cache, or for want of memory. */
pl_direct_io_t *pl_direct_io_new(int fd);
void pl_direct_io_free(pl_direct_io_t *direct);

/* What follows.  0, or -1 with errno of this piece or one before it; then it ends. */
int pl_direct_io_add(pl_direct_io_t *direct, const void *data, size_t size);

/* All that was added is with the system, to be synced; as above. */
int pl_direct_io_end(pl_direct_io_t *direct);

/* Bytes in the file, once something has failed or after the end. */
uint64_t pl_direct_io_written(const pl_direct_io_t *direct);

/* Reads and writes of whole, aligned blocks of the disk go past the cache from here on,
 * or false; and no longer, false when they did not.  What is not aligned, and with some
 * file systems everything, then fails with EINVAL. */
bool pl_page_cache_bypass(int fd);
bool pl_page_cache_use(int fd);

/* Counts what the disk has done for the durable files and checkpoints of this process:
 * pieces written, synced, read back.  While a system call blocks the number stands
 * still. */
void pl_disk_progress_add(void);
uint64_t pl_disk_progress(void);

/* All of it, as write(); *written grows by what went out, also when it returns -1. */
int pl_write_all(int fd, const void *data, size_t size, uint64_t *written);

#endif
