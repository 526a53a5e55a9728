/* direct_io.h - writes a large file past the page cache
 *
 * A file that is synced at once and not read soon gains nothing from the page cache,
 * which costs another copy and memory. A thread writes one block while the next one is
 * filled, so that the disk never waits. */
#ifndef PL_FORMATS_DIRECT_IO_H
#define PL_FORMATS_DIRECT_IO_H

#include "paceline.h"

typedef struct pl_direct_io pl_direct_io_t;

/* Writes to a file that is still empty; the descriptor stays the caller's. NULL: the file
 * has to be written through the cache, because of its file system or a lack of memory. */
pl_direct_io_t *pl_direct_io_new(int fd);
void pl_direct_io_free(pl_direct_io_t *direct);

/* Adds the next bytes. 0, or -1 with errno of this write or an earlier one. */
int pl_direct_io_add(pl_direct_io_t *direct, const void *data, size_t size);

/* Passes all bytes to the system, ready to be synced; 0 or -1 as above. */
int pl_direct_io_end(pl_direct_io_t *direct);

/* Bytes in the file, once something has failed or after the end. */
uint64_t pl_direct_io_written(const pl_direct_io_t *direct);

/* Make reads and writes bypass the page cache, or use it again; false: that was not
 * possible, or it was in use already. Without the cache, access that is not aligned to
 * blocks fails with EINVAL, on some file systems all access. */
bool pl_page_cache_bypass(int fd);
bool pl_page_cache_use(int fd);

/* Counts the work of the disk for durable files and checkpoints of this process: pieces
 * written, synced and read back. The number stands still while a system call blocks. */
void pl_disk_progress_add(void);
uint64_t pl_disk_progress(void);

/* write() of all bytes; *written grows by the bytes written, also if it returns -1. */
int pl_write_all(int fd, const void *data, size_t size, uint64_t *written);

#endif
