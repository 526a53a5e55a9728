/* fuzz_shm.c - any packets, with any memory, from the other ranks of the collective of
 * one machine
 *
 * The kinds of orders are below; the argument names the rank that sends.  Most packets
 * have what the rank under test needs to look at them further: magic, names, the number
 * of the next memory. */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fuzz_collective.h"
#include "strategies/collectives/shm.h"

enum { MEMORY = 1 << 16 };

enum {
    RAW,
    GREETING,
    NEW_MEMORY,
    BEGIN,
    ENTERED,
    FINISHED,
    CLOSED,
    DESCRIPTOR,
    ABORT,
    ORDERS
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct rig {
    peers_t peers;
    shm_control_t *control[RANKS];               /* of ranks 1 and 2  [not greeted yet] */
    uint64_t announced[RANKS];                   /* blocks of memory */
} rig_t;

static const char *name_of(const rig_t *r, int rank)
{
    return strrchr(r->peers.text[rank], ' ') + 1;
}

static socklen_t name_fill(struct sockaddr_un *at, const char *name)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(at->sun_path + 1, name, strlen(name));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static int packet_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static int listener_open(rig_t *r, int rank)
{
    struct sockaddr_un at;
    const char *own = r->peers.text[0];
    int fd = packet_socket();
    snprintf(r->peers.text[rank], PL_ADDRESS_TEXT, "%.*s fuzz-%d-%d",
             (int)(strrchr(own, ' ') - own), own, (int)getpid(), rank);
    socklen_t length = name_fill(&at, name_of(r, rank));
    bind(fd, (struct sockaddr *)&at, length);
    listen(fd, 8);
    return fd;
}

static bool rig_open(rig_t *r)
{
    memset(r->control, 0, sizeof r->control);
    memset(r->announced, 0, sizeof r->announced);
    if (!peers_open(&r->peers, "{\"name\": \"shm\", \"spin_us\": 0}"))
        return false;
    for (int rank = 1; rank < RANKS; rank++)
        r->peers.listener[rank] = listener_open(r, rank);
    return peers_join(&r->peers);
}

static void rig_close(rig_t *r)
{
    peers_close(&r->peers);
    for (int rank = 0; rank < RANKS; rank++)
        if (r->control[rank])
            munmap(r->control[rank], sizeof **r->control);
}

/* ---- packets ---- */

static void link_call(rig_t *r, int rank)
{
    struct sockaddr_un at;
    socklen_t length = name_fill(&at, name_of(r, 0));
    int *fd = &r->peers.connection[rank];
    peers_disconnect(&r->peers, rank);
    *fd = packet_socket();
    if (connect(*fd, (struct sockaddr *)&at, length) != 0)
        peers_disconnect(&r->peers, rank);
}

static void say(rig_t *r, int rank, const void *bytes, size_t size, int carried)
{
    union {
        struct cmsghdr header;
        char buffer[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec component = {(void *)(uintptr_t)bytes, size};
    struct msghdr message = {.msg_iov = &component, .msg_iovlen = 1};
    if (r->peers.connection[rank] < 0)
        link_call(r, rank);
    if (carried >= 0) {
        message.msg_control = &control, message.msg_controllen = sizeof control;
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &carried, sizeof carried);
    }
    if (r->peers.connection[rank] >= 0)
        sendmsg(r->peers.connection[rank], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Memory as a rank shares it, unless a bit says otherwise. */
static int memory_make(size_t bytes, uint8_t lies)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(fd, (off_t)(lies & 1 ? bytes / 2 : bytes)) != 0 || lies & 2)
        return fd;
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return fd;
}

static shm_note_t note_of(const rig_t *r, int rank, uint32_t kind)
{
    shm_note_t note = {.magic = SHM_MAGIC, .kind = kind, .size = RANKS};
    note.rank = (uint32_t)rank;
    snprintf(note.from, sizeof note.from, "%s", name_of(r, rank));
    snprintf(note.to, sizeof note.to, "%s", name_of(r, 0));
    return note;
}

static void greet(rig_t *r, int rank, uint8_t lies)
{
    const shm_note_t note = note_of(r, rank, SHM_NOTE_HELLO);
    int fd = memory_make(sizeof **r->control, lies);
    if (!r->control[rank] && !lies) {
        void *data = mmap(NULL, sizeof **r->control, PROT_READ | PROT_WRITE, MAP_SHARED,
                          fd, 0);
        r->control[rank] = data == MAP_FAILED ? NULL : data;
    }
    link_call(r, rank);
    say(r, rank, &note, sizeof note, fd);
    close(fd);
}

static void memory_announce(rig_t *r, int rank, uint8_t lies, const uint8_t *bytes,
                            size_t size)
{
    shm_note_t note = note_of(r, rank, SHM_NOTE_MEMORY);
    uint64_t of = r->peers.req.desc.op == PL_COLL_OP_alloc_buffer
                      ? r->peers.req.desc.count
                      : MEMORY;
    if (size >= sizeof of)
        memcpy(&of, bytes, sizeof of);
    note.number = lies & 4 ? 99 : r->announced[rank]++;
    note.bytes = of;
    int fd = lies & 8 ? -1 : memory_make(of & (MEMORY * 4 - 1), lies);
    say(r, rank, &note, sizeof note, fd);
    if (fd >= 0)
        close(fd);
}

/* ---- orders ---- */

static void enter(rig_t *r, int rank)
{
    shm_control_t *control = r->control[rank];
    if (!control)
        return;
    control->desc[r->peers.number & 1] = r->peers.req.desc;
    __atomic_store_n(&control->entered, r->peers.number, __ATOMIC_SEQ_CST);
    say(r, rank, "", 1, -1);
}

static void obey(void *user, const order_t *order)
{
    rig_t *r = user;
    const int rank = order->argument % RANKS, lies = order->argument / RANKS;
    shm_control_t *control = r->control[rank];
    switch (order->kind % ORDERS) {
    case RAW: say(r, rank, order->bytes, order->size, -1); break;
    case GREETING: greet(r, rank ? rank : 1, lies % 4); break;
    case NEW_MEMORY:
        memory_announce(r, rank, lies % 16, order->bytes, order->size);
        break;
    case BEGIN: peers_begin(&r->peers, order, MEMORY); break;
    case ENTERED: enter(r, rank); break;
    case FINISHED:
        if (control)
            __atomic_store_n(&control->finished, r->peers.number, __ATOMIC_SEQ_CST);
        say(r, rank, "", 1, -1);
        break;
    case CLOSED: peers_disconnect(&r->peers, rank); break;
    case DESCRIPTOR:
        if (control)
            memcpy(&control->desc[r->peers.number & 1], order->bytes,
                   order->size < sizeof(pl_coll_desc_t) ? order->size
                                                        : sizeof(pl_coll_desc_t));
        break;
    default:
        if (order->argument % 8 == 0)
            peers_abort(&r->peers);
    }
    peers_help(&r->peers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rig_t r;
    if (rig_open(&r))
        orders_obey(data, size, obey, &r);
    rig_close(&r);
    return 0;
}
