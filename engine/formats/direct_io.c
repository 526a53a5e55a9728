/* direct_io.c - writes a large file past the page cache */
#include "formats/direct_io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

#define BLOCK ((size_t)2 << 20)             /* bytes: a multiple of the blocks of disks */

struct pl_direct_io {
    int fd;
    void *memory;                                           /* contains both blocks */
    char *block[2];                                         /* [BLOCK], aligned */
    int filling;                                            /* index of the block */
    size_t filled;
    pthread_t thread;
    bool runs;                                 /* [each block is written by the caller] */
    pthread_mutex_t lock;                      /* of the following members */
    pthread_cond_t changed;
    const char *due;                                    /* the thread writes it  [idle] */
    bool ending;
    int failed;                                             /* errno  [0] */
    uint64_t written;
};

static atomic_ullong moves;

void pl_disk_progress_add(void)
{
    atomic_fetch_add_explicit(&moves, 1, memory_order_relaxed);
}

uint64_t pl_disk_progress(void)
{
    return atomic_load_explicit(&moves, memory_order_relaxed);
}

int pl_write_all(int fd, const void *data, size_t size, uint64_t *written)
{
    const char *rest = data;
    while (size > 0) {
        ssize_t n = write(fd, rest, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        rest += n;
        size -= (size_t)n;
        *written += (uint64_t)n;
    }
    return 0;
}

bool pl_page_cache_bypass(int fd)
{
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT) == 0;
}

bool pl_page_cache_use(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags & O_DIRECT && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

/* -> 0, or errno. A file system may accept O_DIRECT and then refuse the write. */
static int block_write(pl_direct_io_t *direct, const char *data, size_t size)
{
    const uint64_t before = direct->written;
    int failed = pl_write_all(direct->fd, data, size, &direct->written);
    if (failed && errno == EINVAL && pl_page_cache_use(direct->fd)) {
        const size_t done = (size_t)(direct->written - before);
        failed = pl_write_all(direct->fd, data + done, size - done, &direct->written);
    }
    pl_disk_progress_add();
    return failed ? errno : 0;
}

/* ---- the thread ---- */

static void *blocks_write(void *user)
{
    pl_direct_io_t *direct = user;
    pthread_mutex_lock(&direct->lock);
    while (!direct->ending || direct->due) {
        if (!direct->due) {
            pthread_cond_wait(&direct->changed, &direct->lock);
            continue;
        }
        pthread_mutex_unlock(&direct->lock);
        int failed = block_write(direct, direct->due, BLOCK);
        pthread_mutex_lock(&direct->lock);
        direct->failed = failed;
        direct->due = NULL;
        pthread_cond_signal(&direct->changed);
    }
    pthread_mutex_unlock(&direct->lock);
    return NULL;
}

static void thread_join(pl_direct_io_t *direct)
{
    if (!direct->runs)
        return;
    pthread_mutex_lock(&direct->lock);
    direct->ending = true;
    pthread_cond_signal(&direct->changed);
    pthread_mutex_unlock(&direct->lock);
    pthread_join(direct->thread, NULL);
    direct->runs = false;
}

/* Hands the full block to the thread, once the block before is written. */
static void block_hand_over(pl_direct_io_t *direct)
{
    const char *block = direct->block[direct->filling];
    if (!direct->runs) {
        direct->failed = block_write(direct, block, BLOCK);
    } else {
        pthread_mutex_lock(&direct->lock);
        while (direct->due)
            pthread_cond_wait(&direct->changed, &direct->lock);
        if (!direct->failed) {
            direct->due = block;
            pthread_cond_signal(&direct->changed);
        }
        pthread_mutex_unlock(&direct->lock);
    }
    direct->filling = !direct->filling;
    direct->filled = 0;
}

/* ---- the public functions ---- */

pl_direct_io_t *pl_direct_io_new(int fd)
{
    void *data = NULL;
    pl_direct_io_t *direct = pl_alloc(sizeof *direct);
    if (direct)
        direct->memory = pl_alloc_large(2 * BLOCK, &data);
    if (!direct || !direct->memory || !pl_page_cache_bypass(fd)) {
        if (direct)
            pl_free(direct->memory);
        pl_free(direct);
        return NULL;
    }
    direct->fd = fd;
    direct->block[0] = data;
    direct->block[1] = direct->block[0] + BLOCK;
    pthread_mutex_init(&direct->lock, NULL);
    pthread_cond_init(&direct->changed, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);           /* for the program's threads */
    direct->runs = pthread_create(&direct->thread, NULL, blocks_write, direct) == 0;
    if (direct->runs)
        pthread_setname_np(direct->thread, "disk");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return direct;
}

void pl_direct_io_free(pl_direct_io_t *direct)
{
    if (!direct)
        return;
    thread_join(direct);
    pthread_cond_destroy(&direct->changed);
    pthread_mutex_destroy(&direct->lock);
    pl_free(direct->memory);
    pl_free(direct);
}

/* 0, or -1 with errno of a failed write. */
static int failure(pl_direct_io_t *direct)
{
    pthread_mutex_lock(&direct->lock);
    int failed = direct->failed;
    pthread_mutex_unlock(&direct->lock);
    errno = failed;
    return failed ? -1 : 0;
}

int pl_direct_io_add(pl_direct_io_t *direct, const void *data, size_t size)
{
    const char *rest = data;
    while (size > 0 && failure(direct) == 0) {
        size_t capacity = BLOCK - direct->filled,
               piece = size < capacity ? size : capacity;
        memcpy(direct->block[direct->filling] + direct->filled, rest, piece);
        direct->filled += piece;
        rest += piece;
        size -= piece;
        if (direct->filled == BLOCK)
            block_hand_over(direct);
    }
    return failure(direct);
}

/* The last bytes do not fill a block of the disk: they go through the cache. */
int pl_direct_io_end(pl_direct_io_t *direct)
{
    thread_join(direct);
    pl_page_cache_use(direct->fd);
    if (!direct->failed)
        direct->failed = block_write(direct, direct->block[direct->filling],
                                     direct->filled);
    return failure(direct);
}

uint64_t pl_direct_io_written(const pl_direct_io_t *direct)
{
    return direct->written;
}
