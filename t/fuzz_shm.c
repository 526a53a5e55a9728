/* fuzz_shm.c - any packets, with any memory, from the other ranks of the collective of
 * one machine
 *
 * An input is a sequence of orders: what, who, a length, and so many bytes.  Ranks 1 and
 * 2 are the input's; rank 0 is the one that has to stand it.  Most packets get what they
 * need to be looked at further: magic, names, the number of the memory that is next. */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "collective_rig.h"
#include "strategies/collectives/shm.h"

enum { RANKS = 3, MEMORY = 1 << 16 };

enum {
    RAW,
    GREETING,
    MEMORY_TOLD,
    BEGIN,
    ENTERED,
    FINISHED,
    CLOSED,
    WANTS,
    GIVE_UP,
    ORDERS
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct rig {
    member_t own;
    int listener[RANKS], connection[RANKS];              /* connection[0]: a stranger's */
    shm_control_t *control[RANKS];                       /* theirs */
    char text[RANKS][PL_ADDRESS_TEXT];
    const char *address[RANKS];
    pl_world_t world;
    pl_coll_request_t req;
    pl_reg_buffer_t *buffer;
    uint64_t number, reported[RANKS];                       /* blocks they have told of */
} rig_t;

static const char *name_of(const rig_t *r, int rank)
{
    return strrchr(r->text[rank], ' ') + 1;
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
    const char *own = r->text[0];
    int fd = packet_socket();
    snprintf(r->text[rank], PL_ADDRESS_TEXT, "%.*s fuzz-%d-%d",
             (int)(strrchr(own, ' ') - own), own, (int)getpid(), rank);
    socklen_t length = name_fill(&at, name_of(r, rank));
    bind(fd, (struct sockaddr *)&at, length);
    listen(fd, 8);
    return fd;
}

static bool rig_open(rig_t *r)
{
    *r = (rig_t){.listener = {-1, -1, -1}, .connection = {-1, -1, -1}};
    if (member_open(&r->own, "{\"name\": \"shm\", \"spin_us\": 0}", NULL) != PL_OK)
        return false;
    strcpy(r->text[0], r->own.address);
    for (int rank = 0; rank < RANKS; rank++) {
        r->address[rank] = r->text[rank];
        if (rank)
            r->listener[rank] = listener_open(r, rank);
    }
    r->world = (pl_world_t){.size = RANKS, .address = r->address};
    r->req = (pl_coll_request_t){.desc = {.op = PL_COLL_OP_join}, .world = &r->world};
    return member_begin(&r->own, &r->req) == PL_OK;
}

static void rig_help(rig_t *r)
{
    for (int k = 0; k < 3; k++)
        member_help(&r->own);
    if (r->own.done && r->req.desc.op == PL_COLL_OP_alloc_buffer && r->req.memory) {
        pl_object_unref(r->buffer);
        r->buffer = r->req.memory;
        r->req.memory = NULL;
    }
}

static void rig_close(rig_t *r)
{
    member_close(&r->own);
    if (r->req.desc.op == PL_COLL_OP_alloc_buffer)
        pl_object_unref(r->req.memory);
    pl_object_unref(r->buffer);
    for (int rank = 0; rank < RANKS; rank++) {
        if (r->listener[rank] >= 0)
            close(r->listener[rank]);
        if (r->connection[rank] >= 0)
            close(r->connection[rank]);
        if (r->control[rank])
            munmap(r->control[rank], sizeof **r->control);
    }
}

/* ---- packets ---- */

static void link_call(rig_t *r, int who)
{
    struct sockaddr_un at;
    socklen_t length = name_fill(&at, name_of(r, 0));
    if (r->connection[who] >= 0)
        close(r->connection[who]);
    r->connection[who] = packet_socket();
    if (connect(r->connection[who], (struct sockaddr *)&at, length) != 0) {
        close(r->connection[who]);
        r->connection[who] = -1;
    }
}

static void say(rig_t *r, int who, const void *bytes, size_t size, int carried)
{
    union {
        struct cmsghdr header;
        char buffer[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec component = {(void *)(uintptr_t)bytes, size};
    struct msghdr message = {.msg_iov = &component, .msg_iovlen = 1};
    if (r->connection[who] < 0)
        link_call(r, who);
    if (carried >= 0) {
        message.msg_control = &control, message.msg_controllen = sizeof control;
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &carried, sizeof carried);
    }
    if (r->connection[who] >= 0)
        sendmsg(r->connection[who], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
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

static shm_note_t note_of(const rig_t *r, int who, uint32_t kind)
{
    shm_note_t note = {.magic = SHM_MAGIC, .kind = kind, .size = RANKS};
    note.rank = (uint32_t)who;
    snprintf(note.from, sizeof note.from, "%s", name_of(r, who));
    snprintf(note.to, sizeof note.to, "%s", name_of(r, 0));
    return note;
}

static void greet(rig_t *r, int who, uint8_t lies)
{
    const shm_note_t note = note_of(r, who, SHM_NOTE_HELLO);
    int fd = memory_make(sizeof **r->control, lies);
    if (!r->control[who] && !lies) {
        void *data = mmap(NULL, sizeof **r->control, PROT_READ | PROT_WRITE, MAP_SHARED,
                          fd, 0);
        r->control[who] = data == MAP_FAILED ? NULL : data;
    }
    link_call(r, who);
    say(r, who, &note, sizeof note, fd);
    close(fd);
}

static void memory_tell(rig_t *r, int who, uint8_t lies, const uint8_t *bytes,
                        size_t size)
{
    shm_note_t note = note_of(r, who, SHM_NOTE_MEMORY);
    uint64_t of = r->req.desc.op == PL_COLL_OP_alloc_buffer ? r->req.desc.count : MEMORY;
    if (size >= sizeof of)
        memcpy(&of, bytes, sizeof of);
    note.number = lies & 4 ? 99 : r->reported[who]++;
    note.bytes = of;
    int fd = lies & 8 ? -1 : memory_make(of & (MEMORY * 4 - 1), lies);
    say(r, who, &note, sizeof note, fd);
    if (fd >= 0)
        close(fd);
}

/* ---- orders ---- */

static void begin(rig_t *r, uint8_t what, const uint8_t *bytes, size_t size)
{
    uint32_t count = 0;
    if (!r->own.done)
        return;
    memcpy(&count, bytes, size < sizeof count ? size : sizeof count);
    r->req = (pl_coll_request_t){.desc = {.op = what % PL_COLL_OP_COUNT,
                                          .root = what % RANKS,
                                          .count = count % (MEMORY / 4 + 2)},
                                 .world = &r->world,
                                 .memory = r->buffer};
    if (r->req.desc.op == PL_COLL_OP_alloc_buffer) {
        r->req.memory = NULL;
        r->req.desc.count = r->buffer ? count % 4096 : MEMORY;
    } else if (r->buffer) {
        r->req.desc.memory = r->buffer->number;
    }
    r->number += member_begin(&r->own, &r->req) == PL_OK;
}

static void enter(rig_t *r, int who)
{
    shm_control_t *control = r->control[who];
    if (!control)
        return;
    control->desc[r->number & 1] = r->req.desc;
    __atomic_store_n(&control->entered, r->number, __ATOMIC_SEQ_CST);
    say(r, who, "", 1, -1);
}

static void obey(rig_t *r, uint8_t what, uint8_t who, const uint8_t *bytes, size_t size)
{
    const int peer = who % RANKS;
    shm_control_t *control = r->control[peer];
    switch (what % ORDERS) {
    case RAW: say(r, peer, bytes, size, -1); break;
    case GREETING: greet(r, peer ? peer : 1, who / RANKS % 4); break;
    case MEMORY_TOLD: memory_tell(r, peer, who / RANKS % 16, bytes, size); break;
    case BEGIN: begin(r, who, bytes, size); break;
    case ENTERED: enter(r, peer); break;
    case FINISHED:
        if (control)
            __atomic_store_n(&control->finished, r->number, __ATOMIC_SEQ_CST);
        say(r, peer, "", 1, -1);
        break;
    case CLOSED:
        if (r->connection[peer] >= 0)
            close(r->connection[peer]);
        r->connection[peer] = -1;
        break;
    case WANTS:
        if (control)
            memcpy(&control->desc[r->number & 1], bytes,
                   size < sizeof(pl_coll_desc_t) ? size : sizeof(pl_coll_desc_t));
        break;
    default:
        if (who % 8 == 0)
            r->own.ops->abort(r->own.component.self,
                              &(pl_error_t){PL_ECANCELLED, "", "so"});
    }
    rig_help(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rig_t r;
    static bool begun;
    if (!begun)
        pl_init(NULL, NULL, NULL, NULL);
    begun = true;
    if (rig_open(&r))
        for (size_t at = 0; at + 3 <= size;) {
            const size_t left = size - at - 3,
                         length = data[at + 2] < left ? data[at + 2] : left;
            obey(&r, data[at], data[at + 1], data + at + 3, length);
            at += 3 + length;
        }
    rig_close(&r);
    return 0;
}
