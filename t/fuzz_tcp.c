/* fuzz_tcp.c - any bytes and frames, in any order, from the other ranks of the collective
 * over TCP
 *
 * The first byte of an input says which ranks share memory, 0: none, and whether the
 * others stop reading; the kinds of orders are below, and their argument names the rank
 * that sends.  Most frames have what the rank under test needs to look at them further: a
 * true length, the operation under way. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

static const char token[] = "00112233445566778899aabbccddee0";

static void *reach(void *user, int rank, uint64_t memory)
{
    const rig_t *r = user;
    (void)rank;
    return memory == 0 ? r->mate : NULL;
}

static int listener_open(char text[PL_ADDRESS_TEXT], int rank)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bind(fd, (struct sockaddr *)&at, length);
    listen(fd, 8);
    getsockname(fd, (struct sockaddr *)&at, &length);
    snprintf(text, PL_ADDRESS_TEXT, "tcp 127.0.0.1 %d %s%d", ntohs(at.sin_port), token,
             rank);
    return fd;
}

static bool rig_open(rig_t *r, uint8_t shares)
{
    r->mate = malloc(MEMORY);
    if (!peers_open(&r->peers, "\"tcp\""))
        return false;
    for (int rank = 0; rank < RANKS; rank++) {
        r->machine[rank] = shares ? shares >> rank & 1 : rank;
        if (rank)
            r->peers.listener[rank] = listener_open(r->peers.text[rank], rank);
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

static void link_call(rig_t *r, int rank)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
    const int yes = 1;
    unsigned short port = 0;
    int *fd = &r->peers.connection[rank];
    sscanf(r->peers.text[0], "tcp 127.0.0.1 %hu", &port);
    at.sin_port = htons(port);
    peers_disconnect(&r->peers, rank);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(*fd, (struct sockaddr *)&at, sizeof at) != 0)
        peers_disconnect(&r->peers, rank);
}

/* Rank 0 reads, if there is more than fits into the connection. */
static void say(rig_t *r, int rank, const void *bytes, size_t size)
{
    if (r->peers.connection[rank] < 0)
        link_call(r, rank);
    for (int k = 0; k < 64 && size && r->peers.connection[rank] >= 0; k++) {
        ssize_t sent = send(r->peers.connection[rank], bytes, size,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        bytes = (const char *)bytes + (sent > 0 ? sent : 0);
        size -= sent > 0 ? (size_t)sent : 0;
        if (size)
            member_help(&r->peers.own);
    }
}

static void token_put(unsigned char to[TCP_TOKEN], const char *address)
{
    const char *text = strrchr(address, ' ') + 1;
    for (int k = 0; k < TCP_TOKEN; k++)
        sscanf(text + 2 * k, "%2hhx", &to[k]);
}

/* A rank's, as it should be. */
static void greet(rig_t *r, int rank)
{
    struct {
        char magic[8];
        unsigned char zero[CIPHER_NONCE];
        tcp_frame_t head;
        uint32_t rank, size;
        unsigned char from[TCP_TOKEN], to[TCP_TOKEN];
    } hello = {.head = {.kind = TCP_HELLO, .length = 8 + 2 * TCP_TOKEN},
               .rank = (uint32_t)rank,
               .size = RANKS};
    memcpy(hello.magic, "plctcp01", 8);
    token_put(hello.from, r->peers.text[rank]);
    token_put(hello.to, r->peers.text[0]);
    link_call(r, rank);
    say(r, rank, &hello, sizeof hello);
}

/* With as many zeros as it says that there are bytes. */
static void frame_say(rig_t *r, int rank, const uint8_t *bytes, size_t size)
{
    static unsigned char body[TCP_SEGMENT];
    tcp_frame_t head = {0};
    memcpy(&head, bytes, size < sizeof head ? size : sizeof head);
    if (head.kind > TCP_HELLO && head.kind < TCP_ABORT)
        head.number += r->peers.number;
    say(r, rank, &head, sizeof head);
    if (head.length <= TCP_SEGMENT)
        say(r, rank, body, head.length);
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
    const tcp_frame_t head = {.kind = TCP_ENTER,
                              .length = (uint32_t)(sizeof *desc + few),
                              .number = r->peers.number};
    entry.desc = *desc;
    say(r, rank, &head, sizeof head);
    say(r, rank, &entry, sizeof *desc + few);
}

static void obey(void *user, const order_t *order)
{
    rig_t *r = user;
    const int rank = order->argument % RANKS;
    switch (order->kind % ORDERS) {
    case RAW: say(r, rank, order->bytes, order->size); break;
    case GREETING: greet(r, rank ? rank : 1); break;
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
