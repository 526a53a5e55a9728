/* fuzz_tcp.c - any bytes and frames, in any order, from the other ranks of the collective
 * over TCP
 *
 * An input is a sequence of orders: what, who, a length, and so many bytes.  Ranks 1 and
 * 2 are the input's; rank 0 is the one that has to stand it.  Its first byte says which
 * ranks share memory, 0: none, and whether the others stop reading.  Most frames get what
 * they need to be looked at further: a length that is true, an operation that is the one
 * under way. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collective_rig.h"
#include "strategies/collectives/tcp.h"

enum { RANKS = 3, MEMORY = 1 << 20, LISTENERS = RANKS - 1 };

enum { RAW, GREETING, FRAME, BEGIN, ENTERED, CLOSED, SHUT, GIVE_UP, ORDERS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct rig {
    member_t own;
    int listener[RANKS], connection[RANKS];              /* connection[0]: a stranger's */
    char text[RANKS][PL_ADDRESS_TEXT];
    const char *address[RANKS];
    int machine[RANKS];
    pl_world_t world;
    pl_coll_request_t req;
    pl_reg_buffer_t *buffer;
    char *mate;                                             /* memory of both */
    uint64_t number;
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
    *r = (rig_t){.listener = {-1, -1, -1},
                 .connection = {-1, -1, -1},
                 .mate = malloc(MEMORY)};
    if (member_open(&r->own, "\"tcp\"", NULL) != PL_OK)
        return false;
    strcpy(r->text[0], r->own.address);
    for (int rank = 0; rank < RANKS; rank++) {
        r->address[rank] = r->text[rank];
        r->machine[rank] = shares ? shares >> rank & 1 : rank;
        if (rank)
            r->listener[rank] = listener_open(r->text[rank], rank);
    }
    r->world = (pl_world_t){.size = RANKS,
                            .address = r->address,
                            .machine = r->machine,
                            .reach = reach,
                            .user = r};
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

static void links_close(rig_t *r)
{
    for (int rank = 0; rank < RANKS; rank++) {
        if (r->connection[rank] >= 0)
            close(r->connection[rank]);
        r->connection[rank] = -1;
    }
}

/* Others who are there to the end but do not read are waited for, which takes a while. */
static void rig_close(rig_t *r, bool deaf)
{
    if (!deaf)
        links_close(r);
    member_close(&r->own);
    if (r->req.desc.op == PL_COLL_OP_alloc_buffer)
        pl_object_unref(r->req.memory);
    pl_object_unref(r->buffer);
    for (int rank = 1; rank < RANKS; rank++)
        if (r->listener[rank] >= 0)
            close(r->listener[rank]);
    links_close(r);
    free(r->mate);
}

/* ---- orders ---- */

static void link_call(rig_t *r, int who)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
    const int yes = 1;
    unsigned short port = 0;
    sscanf(r->text[0], "tcp 127.0.0.1 %hu", &port);
    at.sin_port = htons(port);
    if (r->connection[who] >= 0)
        close(r->connection[who]);
    r->connection[who] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(r->connection[who], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(r->connection[who], (struct sockaddr *)&at, sizeof at) != 0) {
        close(r->connection[who]);
        r->connection[who] = -1;
    }
}

/* The rank reads meanwhile, if there is more than fits into the connection. */
static void say(rig_t *r, int who, const void *bytes, size_t size)
{
    if (r->connection[who] < 0)
        link_call(r, who);
    for (int k = 0; k < 64 && size && r->connection[who] >= 0; k++) {
        ssize_t sent = send(r->connection[who], bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        bytes = (const char *)bytes + (sent > 0 ? sent : 0);
        size -= sent > 0 ? (size_t)sent : 0;
        if (size)
            member_help(&r->own);
    }
}

static void token_put(unsigned char to[TCP_TOKEN], const char *address)
{
    const char *text = strrchr(address, ' ') + 1;
    for (int k = 0; k < TCP_TOKEN; k++)
        sscanf(text + 2 * k, "%2hhx", &to[k]);
}

/* A rank's, as it should be. */
static void greet(rig_t *r, int who)
{
    struct {
        char magic[8];
        unsigned char zero[CIPHER_NONCE];
        tcp_frame_t head;
        uint32_t rank, size;
        unsigned char from[TCP_TOKEN], to[TCP_TOKEN];
    } hello = {.head = {.kind = TCP_HELLO, .length = 8 + 2 * TCP_TOKEN},
               .rank = (uint32_t)who,
               .size = RANKS};
    memcpy(hello.magic, "plctcp01", 8);
    token_put(hello.from, r->text[who]);
    token_put(hello.to, r->text[0]);
    link_call(r, who);
    say(r, who, &hello, sizeof hello);
}

/* With as many zeros as it says that there are bytes. */
static void frame_say(rig_t *r, int who, const uint8_t *bytes, size_t size)
{
    static unsigned char body[TCP_SEGMENT];
    tcp_frame_t head = {0};
    memcpy(&head, bytes, size < sizeof head ? size : sizeof head);
    if (head.kind > TCP_HELLO && head.kind < TCP_ABORT)
        head.number += r->number;
    say(r, who, &head, sizeof head);
    if (head.length <= TCP_SEGMENT)
        say(r, who, body, head.length);
}

static void entry_say(rig_t *r, int who)
{
    static tcp_entry_t entry;
    const pl_coll_desc_t *desc = &r->req.desc;
    const bool gives = pl_has_elements(desc)
                       && (desc->op != PL_COLL_OP_broadcast
                           || desc->root == (uint32_t)who);
    size_t few = gives ? desc->count * pl_dtype_bytes(desc->dtype) : 0;
    few = few <= TCP_FEW ? few : 0;
    const tcp_frame_t head = {.kind = TCP_ENTER,
                              .length = (uint32_t)(sizeof *desc + few),
                              .number = r->number};
    entry.desc = *desc;
    say(r, who, &head, sizeof head);
    say(r, who, &entry, sizeof *desc + few);
}

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

static void obey(rig_t *r, uint8_t what, uint8_t who, const uint8_t *bytes, size_t size)
{
    const int peer = who % RANKS;
    switch (what % ORDERS) {
    case RAW: say(r, peer, bytes, size); break;
    case GREETING: greet(r, peer ? peer : 1); break;
    case FRAME: frame_say(r, peer, bytes, size); break;
    case BEGIN: begin(r, who, bytes, size); break;
    case ENTERED: entry_say(r, peer); break;
    case CLOSED:
        if (r->connection[peer] >= 0)
            close(r->connection[peer]);
        r->connection[peer] = -1;
        break;
    case SHUT: shutdown(r->connection[peer], SHUT_WR); break;
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
    if (rig_open(&r, size ? data[0] & 7 : 0))
        for (size_t at = 1; at + 3 <= size;) {
            const size_t left = size - at - 3,
                         length = data[at + 2] < left ? data[at + 2] : left;
            obey(&r, data[at], data[at + 1], data + at + 3, length);
            at += 3 + length;
        }
    rig_close(&r, size && data[0] & 0x80);
    return 0;
}
