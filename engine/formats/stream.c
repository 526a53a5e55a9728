/* stream.c - a whole file in memory, plain, gzip or Zstandard; or a plain file in place
 *
 * A file is read in pieces: the first one decides whether it is compressed, each one adds
 * to the output. Several gzip members or Zstandard frames in a row are one file, as in
 * their programs; anything else after one is an error.
 *
 * libzstd is opened when a file needs it, so that neither a build nor other files do. Its
 * functions and structs below are of its stable interface. */
#include "formats/stream.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/symbols.h"

#define PIECE ((size_t)1 << 16)

#define ZSTD_FILE "libzstd.so.1"

typedef struct zstd_buffer {
    void *bytes;
    size_t size, at;
} zstd_buffer_t;

typedef struct zstd {
    void *library;
    void *stream;
    void *(*create)(void);
    size_t (*destroy)(void *stream);
    size_t (*decompress)(void *stream, zstd_buffer_t *out, zstd_buffer_t *in);
    unsigned (*is_error)(size_t code);
    const char *(*error_name)(size_t code);
} zstd_t;

typedef enum packing { PLAIN, GZIP, ZSTD } packing_t;

typedef struct stream {
    const char *name;
    size_t limit;
    pl_error_t *err;
    pl_file_bytes_t out;
    size_t capacity;
    uint64_t taken;                                         /* bytes of the file so far */
    packing_t packing;
    bool member_done;
    z_stream z;
    zstd_t zstd;
} stream_t;

void pl_file_bytes_release(pl_file_bytes_t *bytes)
{
    pl_free(bytes->data);
    *bytes = (pl_file_bytes_t){0};
}

size_t pl_file_limit(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages / 2 * (size_t)size : (size_t)1 << 30;
}

static void *zlib_alloc(void *opaque, unsigned count, unsigned size)
{
    (void)opaque;
    return pl_alloc_array(count, size);
}

static void zlib_free(void *opaque, void *memory)
{
    (void)opaque;
    pl_free(memory);
}

static int stream_too_large(const stream_t *s)
{
    return pl_fail(s->err, PL_EFORMAT, "%s: more than %zu bytes%s, which is the limit",
                   s->name, s->limit, s->packing ? " uncompressed" : "");
}

/* Makes room for `extra` more bytes and the zero at the end. One byte more than the limit
 * shows that the limit is passed. */
static int stream_reserve(stream_t *s, size_t extra)
{
    size_t max = s->limit > SIZE_MAX - 2 ? SIZE_MAX : s->limit + 2;
    if (s->out.size > s->limit || extra > max - 1 - s->out.size)
        return stream_too_large(s);
    size_t needed = s->out.size + extra + 1;
    if (needed <= s->capacity)
        return PL_OK;
    size_t capacity = s->capacity ? 2 * s->capacity : PIECE;
    capacity = capacity > max ? max : capacity;
    capacity = capacity < needed ? needed : capacity;
    uint8_t *larger = pl_resize(s->out.data, capacity);
    if (!larger)
        return pl_fail(s->err, PL_ENOMEM, "%s: out of memory after %zu bytes", s->name,
                       s->out.size);
    s->out.data = larger;
    s->capacity = capacity;
    return PL_OK;
}

static int stream_inflate_some(stream_t *s)
{
    int code = stream_reserve(s, 1);
    if (code)
        return code;
    size_t capacity = s->capacity - s->out.size - 1;
    s->z.next_out = s->out.data + s->out.size;
    s->z.avail_out = capacity > UINT_MAX ? UINT_MAX : (unsigned)capacity;
    int status = inflate(&s->z, Z_NO_FLUSH);
    s->out.size = (size_t)(s->z.next_out - s->out.data);
    s->member_done = status == Z_STREAM_END;
    if (status == Z_MEM_ERROR)
        return pl_no_memory(s->err);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        return pl_fail(s->err, PL_EFORMAT,
                       "%s: byte %llu: the gzip data are damaged (%s)", s->name,
                       (unsigned long long)(s->taken - s->z.avail_in),
                       s->z.msg ? s->z.msg : "zlib");
    return s->out.size > s->limit ? stream_too_large(s) : PL_OK;
}

static int zstd_open(stream_t *s)
{
    zstd_t *z = &s->zstd;
    const pl_symbol_t needed[] = {{"ZSTD_createDStream", &z->create},
                                  {"ZSTD_freeDStream", &z->destroy},
                                  {"ZSTD_decompressStream", &z->decompress},
                                  {"ZSTD_isError", &z->is_error},
                                  {"ZSTD_getErrorName", &z->error_name}};
    z->library = pl_symbols_open(ZSTD_FILE, needed, sizeof needed / sizeof *needed);
    if (!z->library)
        return pl_fail(s->err, PL_ENOTFOUND,
                       "%s is compressed by Zstandard, and " ZSTD_FILE
                       " is not installed: install it, or decompress the file with "
                       "zstd -d",
                       s->name);
    z->stream = z->create();
    return z->stream ? PL_OK : pl_no_memory(s->err);
}

static int zstd_take(stream_t *s, const uint8_t *piece, size_t n)
{
    zstd_buffer_t in = {(void *)piece, n, 0}, out;
    do {
        int code = stream_reserve(s, 1);
        if (code)
            return code;
        out = (zstd_buffer_t){s->out.data, s->capacity - 1, s->out.size};
        const size_t left = s->zstd.decompress(s->zstd.stream, &out, &in);
        if (s->zstd.is_error(left))
            return pl_fail(s->err, PL_EFORMAT,
                           "%s: byte %llu: the Zstandard data are damaged (%s)", s->name,
                           (unsigned long long)(s->taken - (n - in.at)),
                           s->zstd.error_name(left));
        s->out.size = out.at;
        s->member_done = left == 0;
        if (s->out.size > s->limit)
            return stream_too_large(s);
    } while (in.at < n || (out.at == out.size && !s->member_done));
    return PL_OK;
}

/* The packing by the first bytes of the file. */
static packing_t packing_of(const uint8_t *bytes, size_t n)
{
    return n >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b    ? GZIP
           : n >= 4 && !memcmp(bytes, "\x28\xb5\x2f\xfd", 4) ? ZSTD
                                                             : PLAIN;
}

static int stream_begin(stream_t *s, const uint8_t *piece, size_t n)
{
    const packing_t packing = packing_of(piece, n);
    if (packing == GZIP) {
        s->z.zalloc = zlib_alloc;
        s->z.zfree = zlib_free;
        if (inflateInit2(&s->z, 15 + 16) != Z_OK)           /* 16: a gzip header */
            return pl_no_memory(s->err);
    }
    s->packing = packing;
    return packing == ZSTD ? zstd_open(s) : PL_OK;
}

/* Takes the next bytes of the file. */
static int stream_take(stream_t *s, const uint8_t *piece, size_t n)
{
    int code = s->taken == 0 ? stream_begin(s, piece, n) : PL_OK;
    s->taken += n;
    if (code || s->packing == ZSTD)
        return code ? code : zstd_take(s, piece, n);
    if (s->packing == PLAIN) {
        if ((code = stream_reserve(s, n)))
            return code;
        memcpy(s->out.data + s->out.size, piece, n);
        s->out.size += n;
        return s->out.size > s->limit ? stream_too_large(s) : PL_OK;
    }
    s->z.next_in = (uint8_t *)piece;
    s->z.avail_in = (unsigned)n;
    do {
        if (s->member_done)
            inflateReset(&s->z);
        code = stream_inflate_some(s);
    } while (!code && (s->z.avail_in > 0 || (s->z.avail_out == 0 && !s->member_done)));
    return code;
}

/* Ends a stream; without an error in `code` hands the bytes over. */
static int stream_end(stream_t *s, int code, pl_file_bytes_t *bytes)
{
    if (!code && s->packing && !s->member_done)
        code = pl_fail(s->err, PL_EFORMAT,
                       "%s: truncated: the %s data end at byte %llu, too early", s->name,
                       s->packing == GZIP ? "gzip" : "Zstandard",
                       (unsigned long long)s->taken);
    if (!code)
        code = stream_reserve(s, 0);
    if (s->packing == GZIP)
        inflateEnd(&s->z);
    if (s->zstd.stream)
        s->zstd.destroy(s->zstd.stream);
    if (s->zstd.library)
        dlclose(s->zstd.library);
    if (code) {
        pl_file_bytes_release(&s->out);
        return code;
    }
    uint8_t *smaller = pl_resize(s->out.data, s->out.size + 1);
    s->out.data = smaller ? smaller : s->out.data;
    s->out.data[s->out.size] = 0;
    *bytes = s->out;
    return PL_OK;
}

static int stream_read_file(stream_t *s, int fd)
{
    uint8_t *piece = pl_alloc(PIECE);
    if (!piece)
        return pl_no_memory(s->err);
    int code = PL_OK;
    while (!code) {
        ssize_t n = read(fd, piece, PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            code = pl_fail(s->err, PL_EIO, "%s: byte %llu: %m", s->name,
                           (unsigned long long)s->taken);
        if (n <= 0)
            break;
        code = stream_take(s, piece, (size_t)n);
    }
    pl_free(piece);
    return code;
}

static int stream_read_open(stream_t *s, int fd)
{
    struct stat before, after;
    if (fstat(fd, &before))
        return pl_fail(s->err, PL_EIO, "%s: %m", s->name);
    if (!S_ISREG(before.st_mode))
        return pl_fail(s->err, PL_EINVAL, "%s is not a regular file", s->name);
    int code = stream_read_file(s, fd);
    if (!code
        && (fstat(fd, &after) || after.st_size != before.st_size
            || after.st_mtim.tv_sec != before.st_mtim.tv_sec
            || after.st_mtim.tv_nsec != before.st_mtim.tv_nsec
            || s->taken != (uint64_t)before.st_size))
        code = pl_fail(s->err, PL_EIO,
                       "%s changed while it was read, after byte %llu: try again",
                       s->name, (unsigned long long)s->taken);
    return code;
}

/* O_NONBLOCK: opening a pipe would otherwise wait for its writer.  -1: an error. */
static int file_open(const char *path, pl_error_t *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        pl_fail(err,
                errno == ENOENT   ? PL_ENOTFOUND
                : errno == ENOMEM ? PL_ENOMEM
                                  : PL_EIO,
                "%s: %m", path);
    return fd;
}

int pl_file_read(const char *path, size_t limit, pl_file_bytes_t *bytes, pl_error_t *err)
{
    pl_error_t why = {0};
    const int fd = file_open(path, &why);
    if (fd < 0)
        return pl_fail(err, why.code, "%s", why.text);
    stream_t s = {.name = path, .limit = limit, .err = err};
    int code = stream_end(&s, stream_read_open(&s, fd), bytes);
    close(fd);
    return code;
}

int pl_file_map(const char *path, size_t above, pl_file_map_t *map, pl_error_t *err)
{
    struct stat found;
    pl_error_t why = {0};
    *map = (pl_file_map_t){.fd = -1};
    if (above == SIZE_MAX)
        return PL_OK;
    const int fd = file_open(path, &why);
    if (fd < 0)
        return pl_fail(err, why.code, "%s", why.text);
    if (fstat(fd, &found) || !S_ISREG(found.st_mode) || found.st_size < 4
        || (uint64_t)found.st_size <= above) {
        close(fd);
        return PL_OK;
    }
    void *data = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        close(fd);
        return pl_fail(err, PL_EIO, "%s: it cannot be mapped", path);
    }
    *map = (pl_file_map_t){fd, data, (size_t)found.st_size};
    if (packing_of(map->data, 4) != PLAIN)
        pl_file_unmap(map, NULL);
    return PL_OK;
}

void pl_file_unmap(pl_file_map_t *map, int *fd_p)
{
    if (map->data)
        munmap((void *)map->data, map->size);
    if (fd_p)
        *fd_p = map->fd;
    else if (map->fd >= 0)
        close(map->fd);
    *map = (pl_file_map_t){.fd = -1};
}

int pl_file_read_at(int fd, const char *name, uint64_t at, size_t size, void *out,
                    pl_error_t *err)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(fd, (char *)out + done, size - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pl_fail(err, PL_EIO, "%s: byte %llu: %m", name,
                           (unsigned long long)(at + done));
        if (n == 0)
            return pl_fail(err, PL_EIO,
                           "%s: it has become shorter since it was opened: byte %llu is "
                           "missing",
                           name, (unsigned long long)(at + done));
        done += (size_t)n;
    }
    return PL_OK;
}
