/* checkpoint_read.c - tests of engine/formats/checkpoint_read.c: large files, by several
 * readers, past the page cache where they are not in it */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "formats/checkpoint.h"
#include "tap.h"

enum { SIZE = (33 << 20) + 123, READERS = 3, FDS = 4096 };

/* ---- a file system, as it may be ---- */

static struct {
    int cached;                              /* 1, or errno of a read through the cache */
    bool refuses;                            /* to read past it */
    bool has_none_left;                      /* descriptors */
    bool interrupts;                         /* every other read; and gives odd pieces */
    long broken_at;                          /* byte  [-1] */
} disk;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long reads, past_the_cache;                          /* of the latter: bytes */
static bool used[FDS];

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (disk.has_none_left && !strncmp(path, "/proc/self/fd/", 14)) {
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t preadv2(int fd, const struct iovec *to, int count, off_t from, int flags)
{
    (void)fd, (void)to, (void)count, (void)from, (void)flags;
    errno = disk.cached;
    return disk.cached == 1 ? 1 : -1;
}

/* How the call ends instead of being made: errno, or 0. */
static int read_ends(int fd, size_t size, off_t from)
{
    const bool direct = fcntl(fd, F_GETFL) & O_DIRECT;
    pthread_mutex_lock(&lock);
    used[fd] = true;
    const bool odd = disk.interrupts && ++reads % 2;
    past_the_cache += direct && !disk.refuses && size % 4096 == 0 ? (long)size : 0;
    pthread_mutex_unlock(&lock);
    if (disk.broken_at >= from && disk.broken_at < from + (long)size)
        return EIO;
    return odd ? EINTR : direct && disk.refuses ? EINVAL : 0;
}

ssize_t pread(int fd, void *into, size_t size, off_t from)
{
    errno = read_ends(fd, size, from);
    if (errno)
        return -1;
    return syscall(SYS_pread64, fd, into, disk.interrupts && size > 1 ? size - 1 : size,
                   from);
}

/* ---- a checkpoint of one file ---- */

static char folder[4096];
static uint8_t *data, *into;                                /* [SIZE] */
static json_t *manifest;

static void file_make(void)
{
    char path[4200];
    pl_checksums_t sums = {0};
    snprintf(folder, sizeof folder, "%s", tap_folder());
    snprintf(path, sizeof path, "%s/large", folder);
    data = malloc(SIZE);
    for (size_t k = 0; k < SIZE; k++)
        data[k] = (uint8_t)((k * 2654435761u) >> 13);
    FILE *file = fopen(path, "w");
    ok(file && fwrite(data, SIZE, 1, file) == 1 && fclose(file) == 0, "a file");
    manifest = json_object();
    pl_checksums_add(&sums, data, SIZE, NULL);
    is_int(pl_checkpoint_add_file(manifest, "large", &sums, NULL), PL_OK,
           "in a manifest");
    pl_checksums_release(&sums);
}

static int descriptors(void)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    while (readdir(all))
        count++;
    closedir(all);
    return count;
}

/* -> its code; *readers: descriptors that were read. */
static int file_read(int *readers, pl_error_t *err)
{
    void *memory = pl_alloc_large(SIZE, (void **)&into);
    const int before = descriptors();
    memset(used, 0, sizeof used);
    *readers = 0, past_the_cache = 0;
    int code = pl_checkpoint_read(folder, manifest, "large", into, err);
    for (int k = 0; k < FDS; k++)
        *readers += used[k];
    ok(code != PL_OK || !memcmp(into, data, SIZE), "what is read is right");
    is_int(descriptors(), before, "no descriptor is left");
    pl_free(memory);
    return code;
}

static bool can_pass_the_cache(void)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/large", folder);
    int fd = open(path, O_RDONLY | O_DIRECT);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* ---- tests ---- */

static void each_reader_has_a_descriptor_of_its_own(void)
{
    pl_error_t err = {0};
    int readers;
    disk.cached = 1, disk.broken_at = -1;
    is_int(file_read(&readers, &err), PL_OK, "a file in memory");
    is_int(readers, READERS, "is read by several");
    is_int(past_the_cache, 0, "from there");
}

static void pages_that_are_not_cached_are_read_directly(void)
{
    pl_error_t err = {0};
    int readers;
    disk.cached = EAGAIN;
    is_int(file_read(&readers, &err), PL_OK, "a file on the disk");
    ok(past_the_cache == 33 << 20 || !can_pass_the_cache(),
       "all but its end, where that is possible");
    disk.cached = EOPNOTSUPP;
    is_int(file_read(&readers, &err), PL_OK, "a file that may be in memory");
    is_int(past_the_cache, 0, "is looked for there");
    disk.cached = EAGAIN;
}

static void a_file_system_without_direct_reads_uses_the_cache(void)
{
    pl_error_t err = {0};
    int readers;
    disk.refuses = true;
    is_int(file_read(&readers, &err), PL_OK, "it refuses once");
    disk.has_none_left = true;
    is_int(file_read(&readers, &err), PL_OK, "or several readers of one descriptor");
    is_int(readers, 1, "where there is no other");
    disk.has_none_left = disk.refuses = false;
}

static void a_disk_may_return_odd_pieces(void)
{
    pl_error_t err = {0};
    int readers;
    disk.interrupts = true;
    is_int(file_read(&readers, &err), PL_OK, "each is read on");
    disk.interrupts = false;
}

static void a_piece_that_cannot_be_read_is_the_files_error(void)
{
    static const long places[] = {0, 12 << 20, SIZE - 1};
    int readers;
    for (int k = 0; k < 3; k++) {
        pl_error_t err = {0};
        disk.broken_at = places[k];
        is_int(file_read(&readers, &err), PL_EIO, "at byte %ld", places[k]);
        like(err.text, "/large: cannot be read: ", "which is named");
    }
    disk.broken_at = -1;
}

int main(void)
{
    file_make();
    run(each_reader_has_a_descriptor_of_its_own);
    run(pages_that_are_not_cached_are_read_directly);
    run(a_file_system_without_direct_reads_uses_the_cache);
    run(a_disk_may_return_odd_pieces);
    run(a_piece_that_cannot_be_read_is_the_files_error);
    json_decref(manifest);
    free(data);
    return tap_done();
}
