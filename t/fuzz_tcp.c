/* fuzz_tcp.c - any bytes and frames, in any order, from the other ranks of the collective
 * over TCP
 *
 * The first byte of an input says which ranks share memory, 0: none, and whether the
 * others stop reading; the kinds of orders are below, and their argument names the rank
 * that sends.  Most frames have what the rank under test needs to look at them further: a
 * true length, the operation under way. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fuzz_collective.h"
#include "strategies/collectives/tcp.h"

enum { MEMORY = 1 << 20 };

enum { RAW, GREETING, FRAME, BEGIN, ENTERED, CLOSED, SHUT, ABORT, ORDERS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct rig {
    peers_t peers;
    int machine[RANKS];
    char *mate;                                             /* memory of both */
} rig_t;

static void *reach(void *user, int rank, uint64_t memory)
{
    const rig_t *r = user;
    (void)rank;
    return memory == 0 ? r->mate : NULL;
}

static bool rig_open(rig_t *r, uint8_t shares)
{
    r->mate = malloc(MEMORY);
    if (!peers_open(&r->peers, "\"tcp\""))
        return false;
    for (int rank = 0; rank < RANKS; rank++) {
        r->machine[rank] = shares ? shares >> rank & 1 : rank;
        if (rank)
            peers_listen(&r->peers, rank);
    }
    r->peers.world = (pl_world_t){.machine = r->machine, .reach = reach, .user = r};
    return peers_join(&r->peers);
}

/* Peers that are there to the end but do not read are waited for, which takes a while. */
static void rig_close(rig_t *r, bool deaf)
{
    for (int rank = 0; rank < RANKS && !deaf; rank++)
        peers_disconnect(&r->peers, rank);
    peers_close(&r->peers);
    free(r->mate);
}

/* ---- orders ---- */

/* With as many zeros as it says that there are bytes. */
static void frame_say(rig_t *r, int rank, const uint8_t *bytes, size_t size)
{
    static unsigned char body[TCP_SEGMENT];
    mesh_frame_t head = {0};
    memcpy(&head, bytes, size < sizeof head ? size : sizeof head);
    if (head.kind >= MESH_OWN && head.kind <= TCP_FINISH)
        head.number += r->peers.number;
    peers_say(&r->peers, rank, &head, sizeof head, NULL, 0);
    if (head.length <= TCP_SEGMENT)
        peers_say(&r->peers, rank, body, head.length, NULL, 0);
}

static void entry_say(rig_t *r, int rank)
{
    static tcp_entry_t entry;
    const pl_coll_desc_t *desc = &r->peers.req.desc;
    const bool gives = pl_has_elements(desc)
                       && (desc->op != PL_COLL_OP_broadcast
                           || desc->root == (uint32_t)rank);
    size_t few = gives ? desc->count * pl_dtype_bytes(desc->dtype) : 0;
    few = few <= TCP_FEW ? few : 0;
    const mesh_frame_t head = {.kind = TCP_ENTER,
                               .length = (uint32_t)(sizeof *desc + few),
                               .number = r->peers.number};
    entry.desc = *desc;
    peers_say(&r->peers, rank, &head, sizeof head, NULL, 0);
    peers_say(&r->peers, rank, &entry, sizeof *desc + few, NULL, 0);
}

static void obey(void *user, const order_t *order)
{
    rig_t *r = user;
    const int rank = order->argument % RANKS;
    switch (order->kind % ORDERS) {
    case RAW: peers_say(&r->peers, rank, order->bytes, order->size, NULL, 0); break;
    case GREETING: peers_greet(&r->peers, rank ? rank : 1, -1); break;
    case FRAME: frame_say(r, rank, order->bytes, order->size); break;
    case BEGIN: peers_begin(&r->peers, order, MEMORY); break;
    case ENTERED: entry_say(r, rank); break;
    case CLOSED: peers_disconnect(&r->peers, rank); break;
    case SHUT: shutdown(r->peers.connection[rank], SHUT_WR); break;
    default:
        if (order->argument % 8 == 0)
            peers_abort(&r->peers);
    }
    peers_help(&r->peers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rig_t r;
    if (rig_open(&r, size ? data[0] & 7 : 0))
        orders_obey(data + 1, size ? size - 1 : 0, obey, &r);
    rig_close(&r, size && data[0] & 0x80);
    return 0;
}
