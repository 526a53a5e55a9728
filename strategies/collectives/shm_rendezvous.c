/* shm_rendezvous.c - the rendezvous of the ranks of one machine: connections, shared
 * memory, rings
 *
 * Each pair of ranks has a connection of sequential packets over an abstract UNIX
 * socket. It carries the descriptors of shared memory (so nothing has a name that
 * could be left behind), rings ranks that wait, and ends when the other side does, in
 * whatever way: a killed rank is noticed at once. epoll waits for it together with
 * everything else that the thread waits for; a futex could not, and wakes no faster.
 *
 * The rank with the higher number connects. A rank accepts only processes of the same
 * user that know the names of both ends, which are random. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "strategies/collectives/shm.h"

enum {
    CONNECT_MS = 10,
    BACKLOG = 128,
    PACKETS = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC
};

/* The sources of events in epoll: below PL_RANKS_MAX a rank. */
enum { FROM_LISTENER = PL_RANKS_MAX, FROM_TIMER, FROM_WORK, FROM_STRANGER };

/* ---- packets ---- */

static bool packet_send(int fd, const void *data, size_t bytes, int carried)
{
    union {
        struct cmsghdr header;
        char buffer[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (carried >= 0) {
        message.msg_control = &control, message.msg_controllen = sizeof control.buffer;
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &carried, sizeof carried);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

/* Returns bytes, 0 at the end, -1 if there is nothing or an error (errno); *carried is
 * -1 if the packet has no descriptor. */
static ssize_t packet_receive(int fd, shm_note_t *note, int *carried)
{
    union {
        struct cmsghdr header;
        char buffer[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {note, sizeof *note};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.buffer};
    ssize_t bytes = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
    const struct cmsghdr *c = bytes >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
    *carried = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS
        && c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(carried, CMSG_DATA(c), sizeof *carried);
    return bytes;
}

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

/* ---- opening ---- */

static socklen_t name_fill(struct sockaddr_un *at, const char *name)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t length = strlen(name);
    memcpy(at->sun_path + 1, name, length);            /* abstract: the first byte is 0 */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static bool watched(const shm_t *s, int fd, uint32_t from)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = from};
    return fd >= 0 && epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

int shm_open_context(shm_t *s, char address[PL_ADDRESS_TEXT], pl_error_t *err)
{
    uint64_t number[2] = {0};
    struct sockaddr_un at;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    s->work = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const bool is_named = getrandom(number, sizeof number, 0) == sizeof number;
    snprintf(s->name, sizeof s->name, "paceline-%016llx%016llx",
             (unsigned long long)number[0], (unsigned long long)number[1]);
    const socklen_t size = name_fill(&at, s->name);
    s->listener = is_named ? socket(AF_UNIX, PACKETS, 0) : -1;
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&at, size) != 0
        || listen(s->listener, BACKLOG) != 0 || !watched(s, s->timer, FROM_TIMER)
        || !watched(s, s->work, FROM_WORK))
        return pl_fail(err, PL_EIO, "cannot listen for other ranks: %s", strerror(errno));
    /* Ranks of one machine can share memory: same kernel, same network names, same
     * user. */
    char boot[37] = "?", net[24] = "?";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, boot, 36) != 36)
        strcpy(boot, "?");
    if (fd >= 0)
        close(fd);
    ssize_t length = readlink("/proc/self/ns/net", net, sizeof net - 1);
    net[length > 0 ? length : 0] = '\0';
    snprintf(s->machine, SHM_MACHINE, "%s/%s/%u", boot, net, (unsigned)geteuid());
    snprintf(address, PL_ADDRESS_TEXT, "shm %s %s", s->machine, s->name);
    pl_reg_buffer_t *buffer = pl_reg_buffer_new(sizeof *s->own, 0, &s->own_fd, err);
    if (!buffer)
        return PL_ENOMEM;
    s->own = map_shared(s->own_fd, sizeof *s->own);
    pl_object_unref(buffer);
    return s->own ? PL_OK : pl_no_memory(err);
}

/* ---- rendezvous ---- */

static int peers_make(shm_t *s, const pl_world_t *world, pl_error_t *err)
{
    s->peer = pl_alloc_array((size_t)world->size, sizeof *s->peer);
    s->in = pl_alloc_array((size_t)world->size, sizeof *s->in);
    s->part = pl_alloc_array((size_t)world->size, sizeof *s->part);
    if (!s->peer || !s->in || !s->part)
        return pl_no_memory(err);
    s->rank = world->rank, s->size = world->size;
    for (int rank = 0; rank < s->size; rank++) {
        s->peer[rank].fd = -1;
        s->peer[rank].number = world->number ? world->number[rank] : rank;
    }
    shm_peer_t *own = &s->peer[s->rank];
    own->control = s->own;
    own->met = true;
    for (int rank = 0; rank < s->size; rank++) {
        char kind[8], machine[SHM_MACHINE], name[SHM_NAME], rest[2];
        shm_peer_t *peer = &s->peer[rank];
        if (sscanf(world->address[rank], "%7s %79s %47s%1s", kind, machine, name, rest)
                != 3
            || strcmp(kind, "shm") != 0)
            return pl_fail(
                err, PL_EINVAL,
                "the address of rank %d is not one of collective \"shm\": \"%.80s\"",
                peer->number, world->address[rank]);
        if (strcmp(machine, s->machine) != 0)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "rank %d is on another machine, network or account than "
                           "rank %d: use the collective \"tcp\"",
                           peer->number, own->number);
        strcpy(peer->name, name);
    }
    return strcmp(own->name, s->name) == 0
               ? PL_OK
               : pl_fail(err, PL_EINVAL,
                         "rank %d received the address of another rank as its own",
                         own->number);
}

static bool hello_send(const shm_t *s, int fd, int to)
{
    shm_note_t hello = {.magic = SHM_MAGIC,
                        .kind = SHM_NOTE_HELLO,
                        .rank = (uint32_t)s->rank,
                        .size = (uint32_t)s->size};
    strcpy(hello.from, s->name);
    strcpy(hello.to, s->peer[to].name);
    return packet_send(fd, &hello, sizeof hello, s->own_fd);
}

/* Connects to ranks with a lower number, and only checks that those with a higher number
 * are there: a rank that does not listen is gone; anything else is tried again. */
static int peers_connect(shm_t *s, pl_error_t *err)
{
    for (int rank = 0; rank < s->size; rank++) {
        shm_peer_t *peer = &s->peer[rank];
        struct sockaddr_un at;
        const socklen_t length = name_fill(&at, peer->name);
        const bool is_met = peer->fd >= 0 || peer->met;
        const int fd = is_met ? -1 : socket(AF_UNIX, PACKETS, 0);
        if (fd < 0)
            continue;
        const int why = connect(fd, (struct sockaddr *)&at, length) == 0 ? 0 : errno;
        if (!why && rank < s->rank && hello_send(s, fd, rank)
            && watched(s, fd, (uint32_t)rank))
            peer->fd = fd;
        else
            close(fd);
        if (why == ECONNREFUSED)
            return pl_fail(err, PL_EPEER,
                           "rank %d is gone: nothing listens at its address",
                           peer->number);
    }
    return PL_OK;
}

int shm_rendezvous(shm_t *s, const pl_world_t *world, pl_error_t *err)
{
    const struct timespec often = {.tv_nsec = CONNECT_MS * 1000000L};
    const struct itimerspec times = {often, often};
    int code = peers_make(s, world, err);
    if (code == PL_OK
        && (!watched(s, s->listener, FROM_LISTENER)
            || timerfd_settime(s->timer, 0, &times, NULL) != 0))
        code = pl_fail(err, PL_EIO, "cannot listen for other ranks: %s", strerror(errno));
    return code == PL_OK ? peers_connect(s, err) : code;
}

bool shm_all_met(const shm_t *s)
{
    for (int rank = 0; rank < s->size; rank++)
        if (!s->peer[rank].met)
            return false;
    return true;
}

static void strangers_drop(shm_t *s)
{
    for (int k = 0; k < SHM_STRANGERS; k++)
        if (s->stranger[k] >= 0) {
            close(s->stranger[k]);
            s->stranger[k] = -1;
        }
}

void shm_rendezvous_end(shm_t *s)
{
    strangers_drop(s);
    close(s->listener);
    close(s->timer);
    s->listener = s->timer = -1;
}

/* The rank whose hello it is; -1: it is not the hello of a rank that is awaited. */
static int hello_rank(const shm_t *s, const shm_note_t *note, ssize_t bytes)
{
    if (bytes != sizeof *note || note->magic != SHM_MAGIC || note->kind != SHM_NOTE_HELLO
        || note->size != (uint32_t)s->size || note->rank >= note->size
        || memcmp(note->to, s->name, sizeof s->name) != 0)
        return -1;
    const shm_peer_t *peer = &s->peer[note->rank];
    return peer->met || memcmp(note->from, peer->name, sizeof peer->name) != 0
               ? -1
               : (int)note->rank;
}

static bool hello_take(shm_t *s, int rank, int carried)
{
    shm_peer_t *peer = &s->peer[rank];
    peer->control = carried < 0 ? NULL : map_shared(carried, sizeof *peer->control);
    peer->met = peer->control != NULL;
    return peer->met;
}

static void stranger_read(shm_t *s, int k)
{
    shm_note_t note;
    int carried, fd = s->stranger[k];
    ssize_t bytes = packet_receive(fd, &note, &carried);
    if (bytes < 0 && errno == EAGAIN)
        return;
    int rank = bytes > 0 ? hello_rank(s, &note, bytes) : -1;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)rank};
    s->stranger[k] = -1;
    if (rank > s->rank && hello_send(s, fd, rank) && hello_take(s, rank, carried)
        && epoll_ctl(s->epoll, EPOLL_CTL_MOD, fd, &event) == 0)
        s->peer[rank].fd = fd;
    else
        close(fd);
    if (carried >= 0)
        close(carried);
}

/* ---- what comes from the others ---- */

/* A rank is ahead by one buffer at most, and its buffer must have the size of ours. */
static void memory_take(shm_t *s, int rank, const shm_note_t *note, int carried)
{
    shm_peer_t *peer = &s->peer[rank];
    pl_error_t err;
    shm_block_t block = {.bytes = note->bytes};
    if (note->number != (uint64_t)peer->block_count || !note->bytes
        || note->number > (uint64_t)s->buffer_count
        || PL_GROW(peer->block, peer->block_count, peer->block_capacity) != PL_OK
        || !(block.data = carried < 0 ? NULL : map_shared(carried, note->bytes))) {
        pl_fail(&err, PL_ENOMEM, "cannot map the memory that rank %d shares",
                peer->number);
        pl_underway_break(&s->now, &err);
        return;
    }
    peer->block[peer->block_count++] = block;
}

void shm_touch(const shm_t *s, const pl_reg_buffer_t *buffer)
{
    for (int rank = 0; rank < s->size && buffer->bytes; rank++)
        madvise(shm_reach(s, rank, buffer->number), buffer->bytes, MADV_POPULATE_WRITE);
}

/* A connection that ends before its hello has come was replaced to make room. */
static void peer_lost(shm_t *s, int rank)
{
    shm_peer_t *peer = &s->peer[rank];
    close(peer->fd);
    peer->fd = -1;
    peer->left = peer->met;
}

static void shm_note_take(shm_t *s, int rank, shm_note_t *note, ssize_t bytes,
                          int carried)
{
    pl_error_t err;
    if (bytes == 1)
        return;
    if (bytes != sizeof *note || note->magic != SHM_MAGIC) {
        peer_lost(s, rank);
        return;
    }
    note->text[sizeof note->text - 1] = '\0';
    if (!s->peer[rank].met) {
        if (hello_rank(s, note, bytes) != rank || !hello_take(s, rank, carried))
            peer_lost(s, rank);
    } else if (note->kind == SHM_NOTE_MEMORY) {
        memory_take(s, rank, note, carried);
    } else if (note->kind == SHM_NOTE_ABORT) {
        pl_fail(&err, PL_EPEER, "rank %d aborted: %s", s->peer[rank].number, note->text);
        s->reported |= !s->now.broken.code;
        pl_underway_break(&s->now, &err);
    }
}

static void peer_read(shm_t *s, int rank)
{
    while (s->peer[rank].fd >= 0) {
        shm_note_t note;
        int carried;
        ssize_t bytes = packet_receive(s->peer[rank].fd, &note, &carried);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (bytes < 0 && errno == ECONNRESET)               /* the kernel reports it once,
                                                               before the data that came
                                                               earlier */
            continue;
        if (bytes <= 0)
            peer_lost(s, rank);
        else
            shm_note_take(s, rank, &note, bytes, carried);
        if (carried >= 0)
            close(carried);
    }
}

static void event_handle(shm_t *s, uint32_t from)
{
    uint64_t times;
    pl_error_t err;
    if (from < PL_RANKS_MAX)
        peer_read(s, (int)from);
    else if (from == FROM_LISTENER) {
        /* Connections without a hello make room for new ones. */
        for (int fd; (fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC))
                     >= 0;) {
            int k = s->stranger_next;
            struct ucred other;
            socklen_t length = sizeof other;
            if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) != 0
                || other.uid != geteuid()
                || !watched(s, fd, FROM_STRANGER + (uint32_t)k)) {
                close(fd);
                continue;
            }
            if (s->stranger[k] >= 0)
                close(s->stranger[k]);
            s->stranger[k] = fd;
            s->stranger_next = (k + 1) % SHM_STRANGERS;
            stranger_read(s, k);
        }
    } else if (from == FROM_TIMER) {
        if (read(s->timer, &times, sizeof times) == sizeof times && s->now.req
            && peers_connect(s, &err) != PL_OK)
            pl_underway_break(&s->now, &err);
    } else if (from == FROM_WORK && read(s->work, &times, sizeof times) < 0)
        return;
    else if (from >= FROM_STRANGER && s->stranger[from - FROM_STRANGER] >= 0)
        stranger_read(s, (int)(from - FROM_STRANGER));
}

/* Reads everything that had come when it was called, however many ranks have sent:
 * agreed() relies on that. One call of epoll_wait() returns as many events as its
 * array holds; the next call continues behind them. */
void shm_read_all(shm_t *s)
{
    enum { EVENTS = 64 };
    struct epoll_event event[EVENTS];
    const int watched = s->size + 3 + SHM_STRANGERS;
    for (int seen = 0, count = EVENTS; count == EVENTS && seen < watched; seen += count) {
        count = epoll_wait(s->epoll, event, EVENTS, 0);
        for (int k = 0; k < count; k++)
            event_handle(s, event[k].data.u32);
    }
}

/* ---- what goes to the others ---- */

void shm_ring(shm_t *s)
{
    for (int rank = 0; rank < s->size; rank++) {
        shm_peer_t *peer = &s->peer[rank];
        if (rank != s->rank && peer->fd >= 0
            && __atomic_load_n(&peer->control->asleep, __ATOMIC_SEQ_CST)
            && __atomic_exchange_n(&peer->control->asleep, 0, __ATOMIC_SEQ_CST)) {
            packet_send(peer->fd, "", 1, -1);
            s->spin.rang = pl_now();
        }
    }
}

int shm_send_memory(shm_t *s, const pl_reg_buffer_t *buffer, int fd, pl_error_t *err)
{
    const shm_note_t note = {.magic = SHM_MAGIC,
                             .kind = SHM_NOTE_MEMORY,
                             .number = buffer->number,
                             .bytes = buffer->bytes ? buffer->bytes : 1};
    for (int rank = 0; rank < s->size; rank++)
        if (s->peer[rank].fd >= 0
            && !packet_send(s->peer[rank].fd, &note, sizeof note, fd) && errno != EPIPE
            && errno != ECONNRESET)
            return pl_fail(err, PL_EIO, "cannot send shared memory to rank %d: %s",
                           s->peer[rank].number, strerror(errno));
    return PL_OK;
}

void shm_send_abort(shm_t *s, const char *why)
{
    shm_note_t note = {.magic = SHM_MAGIC, .kind = SHM_NOTE_ABORT};
    snprintf(note.text, sizeof note.text, "%.*s", (int)sizeof note.text - 1, why);
    for (int rank = 0; rank < s->size; rank++)
        if (s->peer[rank].fd >= 0)
            packet_send(s->peer[rank].fd, &note, sizeof note, -1);
}

void shm_release(shm_t *s)
{
    const int fds[] = {s->listener, s->timer, s->work, s->own_fd, s->epoll};
    for (int rank = 0; rank < s->size; rank++) {
        const shm_peer_t *peer = &s->peer[rank];
        const bool is_own = rank == s->rank;
        if (peer->fd >= 0)
            close(peer->fd);
        for (int k = 0; k < peer->block_count && !is_own; k++)
            munmap(peer->block[k].data, peer->block[k].bytes);
        pl_free(peer->block);
        if (peer->control && !is_own)
            munmap(peer->control, sizeof *peer->control);
    }
    strangers_drop(s);
    for (size_t k = 0; k < sizeof fds / sizeof *fds; k++)
        if (fds[k] >= 0)
            close(fds[k]);
    if (s->own)
        munmap(s->own, sizeof *s->own);
    pl_free(s->peer);
    pl_free(s->in);
    pl_free(s->part);
}
