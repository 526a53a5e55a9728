/* shm_memory.c - the memory that ranks of one machine share, and frames that wake ranks
 * that sleep
 *
 * The memory has no name that could be left behind: its descriptors travel over the
 * mesh, in frames that also ring ranks that wait. epoll waits for them together with
 * everything else that the thread waits for; a futex could not, and wakes no faster. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "strategies/collectives/shm.h"

/* ---- memory of others ---- */

static void *map_shared(int fd, size_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &status) != 0
        || status.st_size < 0 || (size_t)status.st_size < bytes)
        return NULL;
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return data == MAP_FAILED ? NULL : data;
}

static void control_unmap(shm_control_t *control)
{
    if (control)
        munmap(control, sizeof *control);
}

int shm_make_own(shm_t *s, pl_error_t *err)
{
    pl_reg_buffer_t *buffer = pl_reg_buffer_new(sizeof *s->own, 0, &s->own_fd, err);
    if (!buffer)
        return PL_ENOMEM;
    s->own = map_shared(s->own_fd, sizeof *s->own);
    s->mesh.descriptor = s->own_fd;
    pl_object_unref(buffer);
    return s->own ? PL_OK : pl_no_memory(err);
}

void shm_release(shm_t *s)
{
    for (int rank = 0; rank < s->size; rank++) {
        const shm_peer_t *peer = &s->peer[rank];
        for (int k = 0; k < peer->block_count && rank != s->rank; k++)
            munmap(peer->block[k].data, peer->block[k].bytes);
        pl_free(peer->block);
        if (rank != s->rank)
            control_unmap(peer->control);
    }
    control_unmap(s->own);
    if (s->own_fd >= 0)
        close(s->own_fd);
    pl_free(s->peer);
}

void shm_touch(const shm_t *s, const pl_reg_buffer_t *buffer)
{
    for (int rank = 0; rank < s->size && buffer->bytes; rank++)
        madvise(shm_reach(s, rank, buffer->number), buffer->bytes, MADV_POPULATE_WRITE);
}

static bool shm_met(void *user, int rank, int descriptor)
{
    shm_peer_t *peer = &((shm_t *)user)->peer[rank];
    shm_control_t *control = map_shared(descriptor, sizeof *control);
    if (!control)
        return false;
    control_unmap(peer->control);
    peer->control = control;
    return true;
}

/* A rank is ahead by one buffer at most, and its buffer must have the size of ours. */
static void memory_take(shm_t *s, int rank, const mesh_frame_t *frame, int descriptor)
{
    shm_peer_t *peer = &s->peer[rank];
    pl_error_t err;
    shm_block_t block = {.bytes = frame->at};
    if (frame->number != (uint64_t)peer->block_count || !block.bytes
        || frame->number > (uint64_t)s->buffer_count
        || PL_GROW(peer->block, peer->block_count, peer->block_capacity) != PL_OK
        || !(block.data = map_shared(descriptor, block.bytes))) {
        pl_fail(&err, PL_ENOMEM, "cannot map the memory that rank %d shares",
                s->mesh.peer[rank].number);
        mesh_break(&s->mesh, &err);
        return;
    }
    peer->block[peer->block_count++] = block;
}

/* ---- frames ---- */

static void *shm_place(void *user, int rank, const mesh_frame_t *frame)
{
    (void)rank;
    return frame->length == 0 && (frame->kind == SHM_RING || frame->kind == SHM_MEMORY)
               ? user
               : NULL;
}

static void shm_take(void *user, int rank, const mesh_frame_t *frame, int descriptor)
{
    if (frame->kind == SHM_MEMORY)
        memory_take(user, rank, frame, descriptor);
}

const mesh_user_t shm_user = {shm_met, shm_place, shm_take};

/* Returns what mesh_connection_put() does. */
static int frame_send(const shm_t *s, int rank, const mesh_frame_t *frame, int descriptor)
{
    mesh_connection_t *connection = s->mesh.peer[rank].connection;
    const int code = mesh_connection_flush(connection);
    return code == 1 ? mesh_connection_put(connection, frame, NULL, descriptor) : code;
}

/* A connection that is full wakes its rank, too. */
void shm_ring(shm_t *s)
{
    const mesh_frame_t frame = {.kind = SHM_RING};
    for (int rank = 0; rank < s->size; rank++) {
        const shm_peer_t *peer = &s->peer[rank];
        if (rank != s->rank && __atomic_load_n(&peer->control->asleep, __ATOMIC_SEQ_CST)
            && s->mesh.peer[rank].connection
            && __atomic_exchange_n(&peer->control->asleep, 0, __ATOMIC_SEQ_CST)) {
            frame_send(s, rank, &frame, -1);
            s->spin.rang = pl_now();
        }
    }
}

int shm_send_memory(const shm_t *s, const pl_reg_buffer_t *buffer, int fd,
                    pl_error_t *err)
{
    const mesh_frame_t frame = {.kind = SHM_MEMORY,
                                .number = buffer->number,
                                .at = buffer->bytes ? buffer->bytes : 1};
    for (int rank = 0; rank < s->size; rank++)
        if (s->mesh.peer[rank].connection && frame_send(s, rank, &frame, fd) != 1
            && errno != EPIPE && errno != ECONNRESET)
            return pl_fail(err, PL_EIO, "cannot send shared memory to rank %d: %s",
                           s->mesh.peer[rank].number, strerror(errno));
    return PL_OK;
}
