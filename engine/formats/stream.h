/* stream.h - a whole file in memory, plain, gzip or Zstandard; or a plain file in place
 *
 * Compressed files are recognised by their first bytes, not by their name. Memory
 * grows with the bytes that arrive, not with sizes in a header, and never beyond the
 * limit of the caller. */
#ifndef PL_FORMATS_STREAM_H
#define PL_FORMATS_STREAM_H

#include "paceline.h"

/* The bytes of a file; a zero byte follows the last one, so that text needs no copy. */
typedef struct pl_file_bytes {
    uint8_t *data;
    size_t size;
} pl_file_bytes_t;

void pl_file_bytes_release(pl_file_bytes_t *bytes);

/* Half of this machine's memory: the default limit. */
size_t pl_file_limit(void);

/* Reads a whole regular file, and decompresses it. PL_ENOTFOUND, also of libzstd;
 * PL_EIO, also if the file changes while it is read; PL_EFORMAT: truncated, damaged, or
 * more than `limit` bytes. Each error names the file and the offset. */
int pl_file_read(const char *path, size_t limit, pl_file_bytes_t *bytes, pl_error_t *err);

/* A regular file that stays on the disk.  Its header is looked at through the mapping,
 * which goes before samples are read: mapped pages would count as memory of the process,
 * and a file that becomes shorter would end it. */
typedef struct pl_file_map {
    int fd;
    const uint8_t *data;                                    /* [size] */
    size_t size;
} pl_file_map_t;

/* Maps a plain file of more than `above` bytes; data NULL with PL_OK: it is smaller, or
 * compressed, and has to be read whole.  Errors as those of pl_file_read(). */
int pl_file_map(const char *path, size_t above, pl_file_map_t *map, pl_error_t *err);
/* Ends the mapping, and closes the file unless `fd_p` takes it. */
void pl_file_unmap(pl_file_map_t *map, int *fd_p);

/* Reads [at, at + size) of an open file.  PL_EIO names the file, also if it has become
 * shorter.  Several threads may read at once. */
int pl_file_read_at(int fd, const char *name, uint64_t at, size_t size, void *out,
                    pl_error_t *err);

#endif
