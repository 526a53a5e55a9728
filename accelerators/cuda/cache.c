/* cache.c - compiled kernels on disk, so that the second run of a shape compiles nothing
 *
 * An entry is a file with the whole key in it: a hash selects the file, and the key, the
 * sizes and a checksum decide whether it is used.  Files are written under a temporary
 * name and renamed, so processes may share a folder.  Losing an entry costs one
 * compilation.  So nothing here is synced, and no failure is an error of the run. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "accelerators/cuda/cuda.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"

#define SUFFIX ".kernels"
#define ASIDE ".part"

enum { DAY = 24 * 3600, BYTES_MAX = 1 << 30 };

static const char magic[16] = "paceline cuda 1";

typedef struct cache_header {
    char magic[16];
    uint64_t key, code;                                  /* bytes of each, which follow */
    uint64_t sum;                                        /* hash of both */
} cache_header_t;

struct cuda_cache {
    char folder[PATH_MAX];
    int64_t max;                                        /* bytes */
    atomic_bool is_logged;                              /* that it cannot be written to */
};

bool cuda_cache_folder(const char *given, char path[PATH_MAX])
{
    const char *around = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (given && *given)
        length = snprintf(path, PATH_MAX, "%s", given);
    else if (around && *around == '/')
        length = snprintf(path, PATH_MAX, "%s/paceline", around);
    else if (home && *home)
        length = snprintf(path, PATH_MAX, "%s/.cache/paceline", home);
    return length > 0 && length < PATH_MAX;
}

cuda_cache_t *cuda_cache_new(const char *folder, int64_t max_mb)
{
    cuda_cache_t *cache = pl_alloc(sizeof *cache);
    if (!cache)
        return NULL;
    snprintf(cache->folder, sizeof cache->folder, "%s", folder);
    cache->max = max_mb << 20;
    return cache;
}

void cuda_cache_free(cuda_cache_t *cache)
{
    pl_free(cache);
}

void cuda_cache_open(cuda_t *cuda)
{
    char folder[PATH_MAX];
    if (cuda->cache && cuda_cache_folder(cuda->cache_dir, folder))
        cuda->store = cuda_cache_new(folder, cuda->cache_mb);
}

const char *cuda_cache_used(const void *self)
{
    const cuda_t *cuda = self;
    return cuda->store ? cuda->store->folder : NULL;
}

static bool file_of(const cuda_cache_t *cache, const char *key, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/%016llx" SUFFIX, cache->folder,
                    (unsigned long long)pl_hash(PL_HASH_EMPTY, key, strlen(key)))
           < PATH_MAX;
}

/* ---- Reading ---- */

static bool read_all(int file, void *to, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t got = read(file, (char *)to + at, bytes - at);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        at += got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* The key and the code of an entry; NULL: it is damaged, or of another key. */
static char *entry_read(int file, const char *key, cache_header_t *head)
{
    struct stat facts;
    if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)
        || !read_all(file, head, sizeof *head)
        || memcmp(head->magic, magic, sizeof magic) != 0 || head->key != strlen(key)
        || head->code == 0 || head->code > BYTES_MAX
        || (uint64_t)facts.st_size != sizeof *head + head->key + head->code)
        return NULL;
    char *data = pl_alloc((size_t)(head->key + head->code));
    if (data && read_all(file, data, (size_t)(head->key + head->code))
        && memcmp(data, key, (size_t)head->key) == 0
        && pl_hash(PL_HASH_EMPTY, data, (size_t)(head->key + head->code)) == head->sum)
        return data;
    pl_free(data);
    return NULL;
}

bool cuda_cache_get(cuda_cache_t *cache, const char *key, void **code, size_t *bytes)
{
    char path[PATH_MAX];
    cache_header_t head;
    /* O_NONBLOCK: opening a pipe of that name must not block. */
    const int file = file_of(cache, key, path)
                         ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                         : -1;
    char *data = file >= 0 ? entry_read(file, key, &head) : NULL;
    if (data) {
        futimens(file, NULL);          /* the time of use, by which entries are removed */
        memmove(data, data + head.key, (size_t)head.code);
        *code = data;
        *bytes = (size_t)head.code;
    }
    if (file >= 0)
        close(file);
    return data != NULL;
}

/* ---- Writing ---- */

static bool folder_make(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", folder);
    for (char *at = path + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool write_all(int file, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t put = write(file, (const char *)from + at, bytes - at);
        if (put < 0 && errno != EINTR)
            return false;
        at += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* ---- Maximum size ---- */

typedef struct cache_entry {
    char name[32];
    int64_t bytes;
    struct timespec used;
} cache_entry_t;

typedef struct entries {
    cache_entry_t *entry;
    int count, capacity;
    int64_t bytes;
} entries_t;

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length > tail && length < sizeof((cache_entry_t *)0)->name
           && strcmp(name + length - tail, end) == 0;
}

/* Also removes temporary files of processes that were killed. */
static void entries_read(const char *folder, entries_t *all)
{
    DIR *of = opendir(folder);
    const time_t now = time(NULL);
    *all = (entries_t){0};
    for (struct dirent *found; of && (found = readdir(of));) {
        struct stat facts;
        const bool is_entry = ends_with(found->d_name, SUFFIX);
        if ((!is_entry && !ends_with(found->d_name, ASIDE))
            || fstatat(dirfd(of), found->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0
            || !S_ISREG(facts.st_mode))
            continue;
        /* A time in the future: the clock was set back.  The entry counts as old. */
        if (facts.st_mtim.tv_sec > now + DAY)
            facts.st_mtim.tv_sec = 0;
        if (!is_entry && facts.st_mtim.tv_sec < now - DAY)
            unlinkat(dirfd(of), found->d_name, 0);
        if (!is_entry || PL_GROW(all->entry, all->count, all->capacity) != PL_OK)
            continue;
        cache_entry_t *entry = &all->entry[all->count++];
        snprintf(entry->name, sizeof entry->name, "%.31s", found->d_name);
        entry->bytes = facts.st_size;
        entry->used = facts.st_mtim;
        all->bytes += facts.st_size;
    }
    if (of)
        closedir(of);
}

void cuda_cache_count(const char *folder, int *count, int64_t *bytes)
{
    entries_t all;
    entries_read(folder, &all);
    *count = all.count;
    *bytes = all.bytes;
    pl_free(all.entry);
}

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const cache_entry_t *)a)->used,
                          *y = &((const cache_entry_t *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

bool cuda_cache_put(cuda_cache_t *cache, const char *key, const void *code, size_t bytes)
{
    char path[PATH_MAX], aside[PATH_MAX];
    if (!file_of(cache, key, path)
        || snprintf(aside, sizeof aside, "%s/XXXXXX" ASIDE, cache->folder) >= PATH_MAX)
        return false;
    /* mkostemps(), not the process id: a process of another machine may have the same. */
    const int file = folder_make(cache->folder)
                         ? mkostemps(aside, (int)strlen(ASIDE), O_CLOEXEC)
                         : -1;
    const size_t length = strlen(key);
    cache_header_t head = {.key = length,
                           .code = bytes,
                           .sum = pl_hash(pl_hash(PL_HASH_EMPTY, key, length), code,
                                          bytes)};
    memcpy(head.magic, magic, sizeof magic);
    bool written = file >= 0 && write_all(file, &head, sizeof head)
                   && write_all(file, key, length) && write_all(file, code, bytes);
    written &= file >= 0 && close(file) == 0;
    if (!written || rename(aside, path) != 0) {
        const int why = errno;
        if (file >= 0)
            unlink(aside);
        if (!atomic_exchange(&cache->is_logged, true))
            pl_log_line(PL_LOG_WARNING, -1, "",
                        "compiled kernels cannot be kept in %s (%s): each start compiles "
                        "them",
                        cache->folder, strerror(why));
        return false;
    }
    /* Entries that were not used for the longest time are removed; the newest stays. */
    entries_t all;
    entries_read(cache->folder, &all);
    if (all.bytes > cache->max)
        qsort(all.entry, (size_t)all.count, sizeof *all.entry, by_use);
    for (int k = 0; k < all.count - 1 && all.bytes > cache->max; k++) {
        char old[PATH_MAX + 40];
        snprintf(old, sizeof old, "%s/%s", cache->folder, all.entry[k].name);
        all.bytes -= unlink(old) == 0 ? all.entry[k].bytes : 0;
    }
    pl_free(all.entry);
    return true;
}
