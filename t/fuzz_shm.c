/* fuzz_shm.c - any bytes and frames, with any memory, from the other ranks of the
 * collective of one machine
 *
 * The kinds of orders are below; the argument names the rank that sends.  Most frames
 * have what the rank under test needs to look at them further: tokens, the number of the
 * next memory.  Bytes go with up to three descriptors. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

static bool rig_open(rig_t *r)
{
    memset(r->control, 0, sizeof r->control);
    memset(r->announced, 0, sizeof r->announced);
    if (!peers_open(&r->peers, "{\"name\": \"shm\", \"spin_us\": 0}"))
        return false;
    for (int rank = 1; rank < RANKS; rank++)
        peers_listen(&r->peers, rank);
    return peers_join(&r->peers);
}

static void rig_close(rig_t *r)
{
    peers_close(&r->peers);
    for (int rank = 0; rank < RANKS; rank++)
        if (r->control[rank])
            munmap(r->control[rank], sizeof **r->control);
}

/* ---- frames ---- */

/* Memory as a rank shares it, unless a bit says otherwise. */
static int memory_make(size_t bytes, uint8_t lies)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(fd, (off_t)(lies & 1 ? bytes / 2 : bytes)) != 0 || lies & 2)
        return fd;
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return fd;
}

/* A rank's, as it should be, but for its memory. */
static void greet(rig_t *r, int rank, uint8_t lies)
{
    int fd = memory_make(sizeof **r->control, lies);
    if (!r->control[rank] && !lies) {
        void *data = mmap(NULL, sizeof **r->control, PROT_READ | PROT_WRITE, MAP_SHARED,
                          fd, 0);
        r->control[rank] = data == MAP_FAILED ? NULL : data;
    }
    peers_greet(&r->peers, rank, fd);
    close(fd);
}

static void memory_announce(rig_t *r, int rank, uint8_t lies, const uint8_t *bytes,
                            size_t size)
{
    uint64_t of = r->peers.req.desc.op == PL_COLL_OP_alloc_buffer
                      ? r->peers.req.desc.count
                      : MEMORY;
    if (size >= sizeof of)
        memcpy(&of, bytes, sizeof of);
    const mesh_frame_t frame = {.kind = SHM_MEMORY,
                                .number = lies & 4 ? 99 : r->announced[rank]++,
                                .at = of};
    int fd = lies & 8 ? -1 : memory_make(of & (MEMORY * 4 - 1), lies);
    peers_frame(&r->peers, rank, &frame, fd);
    if (fd >= 0)
        close(fd);
}

static void ring(rig_t *r, int rank)
{
    const mesh_frame_t frame = {.kind = SHM_RING};
    peers_frame(&r->peers, rank, &frame, -1);
}

/* Bytes with descriptors where none or one is expected. */
static void raw_say(rig_t *r, int rank, const order_t *order, size_t count)
{
    const int out[3] = {0, 0, 0};
    peers_say(&r->peers, rank, order->bytes, order->size, out, count);
}

/* ---- orders ---- */

static void enter(rig_t *r, int rank)
{
    shm_control_t *control = r->control[rank];
    if (!control)
        return;
    control->desc[r->peers.number & 1] = r->peers.req.desc;
    __atomic_store_n(&control->entered, r->peers.number, __ATOMIC_SEQ_CST);
    ring(r, rank);
}

static void obey(void *user, const order_t *order)
{
    rig_t *r = user;
    const int rank = order->argument % RANKS, lies = order->argument / RANKS;
    shm_control_t *control = r->control[rank];
    switch (order->kind % ORDERS) {
    case RAW: raw_say(r, rank, order, (size_t)lies % 4); break;
    case GREETING: greet(r, rank ? rank : 1, lies % 4); break;
    case NEW_MEMORY:
        memory_announce(r, rank, lies % 16, order->bytes, order->size);
        break;
    case BEGIN: peers_begin(&r->peers, order, MEMORY); break;
    case ENTERED: enter(r, rank); break;
    case FINISHED:
        if (control)
            __atomic_store_n(&control->finished, r->peers.number, __ATOMIC_SEQ_CST);
        ring(r, rank);
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
