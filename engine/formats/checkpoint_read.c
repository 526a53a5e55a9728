/* checkpoint_read.c - reads checkpoints from disk and checks them against the manifest
 *
 * No data is used before its checksum is verified: the result is what was saved, or an
 * error that names the file and the byte. Several threads read a large file: one alone
 * does not keep a fast disk and memory busy. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/checkpoint.h"
#include "formats/direct_io.h"

#define MANIFEST_MAX ((int64_t)256 << 20)               /* bytes */
#define ALIGNED_MIN ((size_t)2 << 20)                   /* bytes; a block, page-aligned */

enum { READERS_MAX = 4, BLOCKS_MIN = 16 };       /* threads for a file; blocks for each */

/* ---- a file ---- */

/* O_NONBLOCK: opening a pipe would otherwise wait for its writer. */
static int file_open(const char *path, int64_t *size, pl_error_t *err)
{
    struct stat what;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &what) != 0) {
        pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s: %m", path);
    } else if (!S_ISREG(what.st_mode)) {
        pl_fail(err, PL_EFORMAT, "%s: is not a regular file", path);
    } else {
        *size = what.st_size;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* If reading past the page cache is refused, the cache is used; another thread may have
 * switched already. */
static int read_at(int fd, const char *path, void *into, size_t size, int64_t from,
                   pl_error_t *err)
{
    char *at = into;
    bool refused = false;
    while (size > 0) {
        ssize_t n = pread(fd, at, size, from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EINVAL && !refused) {
            pl_page_cache_use(fd);
            refused = true;
            continue;
        }
        if (n < 0)
            return pl_fail(err, PL_EIO, "%s: cannot be read: %m", path);
        if (n == 0)
            return pl_fail(err, PL_EFORMAT, "%s: was truncated while it was read", path);
        pl_disk_progress_add();
        at += n;
        from += n;
        size -= (size_t)n;
    }
    return PL_OK;
}

/* ---- the manifest ---- */

/* Checks the checksum at the end of the text. */
static int manifest_check(const char *path, const char *text, size_t length,
                          pl_error_t *err)
{
    static const char pattern[] = ",\n  \"crc32c\": \"%08x\"\n}\n";
    enum { TAIL = sizeof ",\n  \"crc32c\": \"01234567\"\n}\n" - 1 };
    if (length < TAIL)
        return pl_fail(err, PL_EFORMAT, "%s: is truncated after byte %zu", path, length);
    char *tail = pl_text(pattern, pl_crc32c(0, text, length - TAIL));
    if (!tail)
        return pl_no_memory(err);
    int code = memcmp(tail, text + length - TAIL, TAIL)
                   ? pl_fail(err, PL_EFORMAT,
                             "%s: is damaged or truncated: its checksum is wrong", path)
                   : PL_OK;
    pl_text_free(tail);
    return code;
}

static json_t *manifest_parse(const char *path, const char *text, size_t length,
                              pl_error_t *err)
{
    if (manifest_check(path, text, length, err) != PL_OK)
        return NULL;
    json_t *manifest = pl_json_read(text, length, path, err);
    const char *format = json_string_value(json_object_get(manifest, "format"));
    json_object_del(manifest, "crc32c");             /* of the text, not of the content */
    if (!manifest || (format && !strcmp(format, PL_CHECKPOINT_FORMAT)))
        return manifest;
    pl_fail(err, PL_EUNSUPPORTED, "%s: is of format \"%.40s\"; this is \"%s\"", path,
            format ? format : "", PL_CHECKPOINT_FORMAT);
    json_decref(manifest);
    return NULL;
}

static json_t *manifest_read(const char *path, pl_error_t *err)
{
    int64_t size = 0;
    json_t *manifest = NULL;
    int fd = file_open(path, &size, err);
    if (fd < 0)
        return NULL;
    char *text = size <= MANIFEST_MAX ? pl_alloc((size_t)size + 1) : NULL;
    if (size > MANIFEST_MAX)
        pl_fail(err, PL_EFORMAT, "%s: has %lld bytes, so it is not a manifest", path,
                (long long)size);
    else if (!text)
        pl_no_memory(err);
    else if (read_at(fd, path, text, (size_t)size, 0, err) == PL_OK)
        manifest = manifest_parse(path, text, (size_t)size, err);
    close(fd);
    pl_free(text);
    return manifest;
}

json_t *pl_checkpoint_manifest(const char *path, pl_error_t *err)
{
    char *file = pl_text("%s/" PL_CHECKPOINT_MANIFEST, path);
    json_t *manifest = file ? manifest_read(file, err) : NULL;
    if (!file)
        pl_no_memory(err);
    pl_free(file);
    return manifest;
}

/* ---- files and their blocks ---- */

/* Opens a file that has the size it was saved with; -> its descriptor, or -1. */
static int file_measure(const char *path, const json_t *file, int64_t *size,
                        pl_error_t *err)
{
    const int64_t expected = json_integer_value(json_object_get(file, "bytes"));
    int fd = file_open(path, size, err);
    if (fd < 0 || *size == expected)
        return fd;
    pl_fail(err, PL_EFORMAT, "%s: has %lld bytes; it was saved with %lld", path,
            (long long)*size, (long long)expected);
    close(fd);
    return -1;
}

int pl_checkpoint_measure(const char *path, const json_t *manifest, const char *name,
                          size_t *size, pl_error_t *err)
{
    const json_t *file = json_object_get(json_object_get(manifest, "files"), name);
    int64_t bytes = 0;
    if (!file)
        return pl_fail(err, PL_EFORMAT, "%s: its manifest does not list %s", path, name);
    char *whole = pl_text("%s/%s", path, name);
    if (!whole)
        return pl_no_memory(err);
    int fd = file_measure(whole, file, &bytes, err);
    pl_free(whole);
    if (fd < 0)
        return err->code;
    close(fd);
    *size = (size_t)bytes;
    return PL_OK;
}

/* The piece of a file that one thread reads: each block to its place in `into`, or all to
 * the same place if they are only checked. */
typedef struct file_piece {
    int fd;
    const char *path;
    const json_t *blocks;
    int64_t from, to;                                       /* bytes */
    char *into;
    bool keep;
    pthread_t thread;
    bool runs;
    int code;
    pl_error_t err;
} file_piece_t;

static void *piece_read(void *user)
{
    file_piece_t *p = user;
    p->code = PL_OK;
    for (int64_t at = p->from; at < p->to && p->code == PL_OK; at += PL_SUMS_BLOCK) {
        int64_t left = p->to - at;
        size_t bytes = left < PL_SUMS_BLOCK ? (size_t)left : PL_SUMS_BLOCK;
        char *to = p->keep ? p->into + at : p->into;
        p->code = read_at(p->fd, p->path, to, bytes, at, &p->err);
        if (p->code != PL_OK)
            break;
        const char *hex =
            json_string_value(json_array_get(p->blocks, (size_t)(at / PL_SUMS_BLOCK)));
        if (!hex || strtoul(hex, NULL, 16) != pl_crc32c(0, to, bytes))
            p->code = pl_fail(&p->err, PL_EFORMAT,
                              "%s: is damaged between bytes %lld and %lld", p->path,
                              (long long)at, (long long)at + (long long)bytes);
    }
    return NULL;
}

/* A check alone is not urgent, so one thread does it. If a thread cannot be created, this
 * thread reads its piece. */
static int pieces_read(const file_piece_t *whole, pl_error_t *err)
{
    file_piece_t piece[READERS_MAX];
    int64_t blocks = (whole->to + PL_SUMS_BLOCK - 1) / PL_SUMS_BLOCK, pieces;
    int code = PL_OK;
    pieces = whole->keep ? blocks / BLOCKS_MIN + 1 : 1;
    pieces = pieces < READERS_MAX ? pieces : READERS_MAX;
    for (int64_t k = 0; k < pieces; k++) {
        piece[k] = *whole;
        /* The kernel reads ahead at one place of a descriptor. Threads that share it
         * would disturb each other, and a cold file takes four times as long. */
        char same[32];                                /* its path may name another file */
        const int flags = fcntl(whole->fd, F_GETFL) & O_DIRECT;
        snprintf(same, sizeof same, "/proc/self/fd/%d", whole->fd);
        int fd = k > 0 ? open(same, O_RDONLY | O_CLOEXEC | flags) : -1;
        piece[k].fd = fd >= 0 ? fd : whole->fd;
        piece[k].from = blocks * k / pieces * PL_SUMS_BLOCK;
        if (k + 1 < pieces)
            piece[k].to = blocks * (k + 1) / pieces * PL_SUMS_BLOCK;
        piece[k].runs = k + 1 < pieces
                        && !pthread_create(&piece[k].thread, NULL, piece_read, &piece[k]);
        if (!piece[k].runs)
            piece_read(&piece[k]);
    }
    for (int64_t k = 0; k < pieces; k++) {
        if (piece[k].runs)
            pthread_join(piece[k].thread, NULL);
        if (piece[k].fd != whole->fd)
            close(piece[k].fd);
        if (code == PL_OK && (code = piece[k].code) != PL_OK)
            *err = piece[k].err;
    }
    return code;
}

static int file_read(const char *path, const json_t *file, char *into, bool keep,
                     pl_error_t *err)
{
    int64_t size = 0;
    int fd = file_measure(path, file, &size, err);
    const file_piece_t whole = {.fd = fd,
                                .path = path,
                                .blocks = json_object_get(file, "crc32c"),
                                .to = size,
                                .into = into,
                                .keep = keep};
    if (fd < 0)
        return err->code;
    char byte;
    const struct iovec first = {&byte, 1};             /* not all file systems can tell */
    const bool is_cold = preadv2(fd, &first, 1, 0, RWF_NOWAIT) < 0 && errno == EAGAIN;
    if (!keep || is_cold)
        pl_page_cache_bypass(fd);
    int code = pieces_read(&whole, err);
    close(fd);
    return code;
}

int pl_checkpoint_read(const char *path, const json_t *manifest, const char *name,
                       void *into, pl_error_t *err)
{
    const json_t *file = json_object_get(json_object_get(manifest, "files"), name);
    char *whole = pl_text("%s/%s", path, name);
    void *block = NULL, *memory = into ? NULL : pl_alloc_large(ALIGNED_MIN, &block);
    pl_error_t local = {0};
    int code = PL_OK;
    if (!whole || (!into && !memory))
        code = pl_no_memory(&local);
    else if (!file)
        code = pl_fail(&local, PL_EFORMAT, "%s: its manifest does not list %s", path,
                       name);
    else
        code = file_read(whole, file, into ? into : block, into != NULL, &local);
    if (code != PL_OK && err)
        *err = local;
    pl_free(memory);
    pl_free(whole);
    return code;
}

int pl_checkpoint_verify(const char *path, pl_error_t *err)
{
    const char *name;
    json_t *file, *manifest = pl_checkpoint_manifest(path, err);
    int code = manifest ? PL_OK : PL_EFORMAT;
    json_object_foreach(json_object_get(manifest, "files"), name, file) {
        if (code == PL_OK)
            code = pl_checkpoint_read(path, manifest, name, NULL, err);
    }
    json_decref(manifest);
    return code;
}

char *pl_checkpoint_describe(const char *path, bool verify, pl_error_t *err)
{
    pl_error_t local = {0};
    json_t *manifest = pl_require(path, "a path", &local) == PL_OK
                           ? pl_checkpoint_manifest(path, &local)
                           : NULL;
    char *text = NULL;
    if (manifest && (!verify || pl_checkpoint_verify(path, &local) == PL_OK)
        && !(text = pl_json_write(manifest, PL_JSON_COMPACT)))
        pl_no_memory(&local);
    json_decref(manifest);
    if (!text && err)
        *err = local;
    return text;
}
