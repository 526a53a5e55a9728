/* stream.h - a whole file in memory, plain, gzip or Zstandard
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

#endif
