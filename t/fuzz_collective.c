/* fuzz_collective.c - a rank of a collective, and the places of two others that an input
 * speaks for */
#include "fuzz_collective.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool peers_open(peers_t *p, const char *collective)
{
    static bool begun;
    if (!begun)
        pl_init(NULL, NULL, NULL, NULL);
    begun = true;
    *p = (peers_t){.listener = {-1, -1, -1}, .connection = {-1, -1, -1}};
    if (member_open(&p->own, collective, NULL) != PL_OK)
        return false;
    strcpy(p->text[0], p->own.address);
    return true;
}

bool peers_join(peers_t *p)
{
    for (int rank = 0; rank < RANKS; rank++)
        p->address[rank] = p->text[rank];
    p->world.size = RANKS;
    p->world.address = p->address;
    p->req = (pl_coll_request_t){.desc = {.op = PL_COLL_OP_join}, .world = &p->world};
    return member_begin(&p->own, &p->req) == PL_OK;
}

void peers_disconnect(peers_t *p, int rank)
{
    if (p->connection[rank] >= 0)
        close(p->connection[rank]);
    p->connection[rank] = -1;
}

void peers_close(peers_t *p)
{
    member_close(&p->own);
    if (p->req.desc.op == PL_COLL_OP_alloc_buffer)
        pl_object_unref(p->req.memory);
    pl_object_unref(p->buffer);
    for (int rank = 0; rank < RANKS; rank++) {
        if (p->listener[rank] >= 0)
            close(p->listener[rank]);
        peers_disconnect(p, rank);
    }
}

/* ---- the other ranks ---- */

typedef union place {
    struct sockaddr any;
    struct sockaddr_un here;
    struct sockaddr_in port;
} place_t;

/* Where a rank listens, by its address. */
static socklen_t place_of(const char *address, place_t *at)
{
    memset(at, 0, sizeof *at);
    if (sscanf(address, "tcp 127.0.0.1 %hu", &at->port.sin_port) == 1) {
        at->port.sin_family = AF_INET;
        at->port.sin_port = htons(at->port.sin_port);
        at->port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return sizeof at->port;
    }
    const char *name = strrchr(address, ' ') + 1;
    at->here.sun_family = AF_UNIX;
    memcpy(at->here.sun_path + 1, name, strlen(name));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

void peers_listen(peers_t *p, int rank)
{
    place_t at;
    char *text = p->text[rank], *own = p->text[0], token[2 * MESH_TOKEN + 1];
    const bool is_tcp = !strncmp(own, "tcp", 3);
    snprintf(token, sizeof token, "%031x%d", (unsigned)getpid(), rank);
    if (is_tcp)
        strcpy(text, "tcp 127.0.0.1 0");
    else
        snprintf(text, PL_ADDRESS_TEXT, "%.*s-%s", (int)(strrchr(own, '-') - own), own,
                 token);
    socklen_t length = place_of(text, &at);
    p->listener[rank] = socket(at.any.sa_family,
                               SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bind(p->listener[rank], &at.any, length);
    listen(p->listener[rank], 8);
    getsockname(p->listener[rank], &at.any, &length);
    if (is_tcp)
        snprintf(text, PL_ADDRESS_TEXT, "tcp 127.0.0.1 %d %s", ntohs(at.port.sin_port),
                 token);
}

void peers_connect(peers_t *p, int rank)
{
    place_t at;
    const int yes = 1;
    const socklen_t length = place_of(p->text[0], &at);
    peers_disconnect(p, rank);
    p->connection[rank] = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(p->connection[rank], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(p->connection[rank], &at.any, length) != 0)
        peers_disconnect(p, rank);
}

void peers_say(peers_t *p, int rank, const void *bytes, size_t size,
               const int *descriptor, size_t count)
{
    union {
        struct cmsghdr header;
        char buffer[CMSG_SPACE(3 * sizeof(int))];
    } control = {0};
    struct iovec left = {(void *)(uintptr_t)bytes, size};
    struct msghdr message = {.msg_iov = &left, .msg_iovlen = 1};
    if (p->connection[rank] < 0)
        peers_connect(p, rank);
    if (count) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof *descriptor);
        control.header.cmsg_len = CMSG_LEN(count * sizeof *descriptor);
        control.header.cmsg_level = SOL_SOCKET, control.header.cmsg_type = SCM_RIGHTS;
        memcpy(CMSG_DATA(&control.header), descriptor, count * sizeof *descriptor);
    }
    for (int k = 0; k < 64 && left.iov_len && p->connection[rank] >= 0; k++) {
        const ssize_t sent = sendmsg(p->connection[rank], &message,
                                     MSG_NOSIGNAL | MSG_DONTWAIT);
        message.msg_control = NULL, message.msg_controllen = 0;
        left.iov_base = (char *)left.iov_base + (sent > 0 ? sent : 0);
        left.iov_len -= sent > 0 ? (size_t)sent : 0;
        if (left.iov_len)
            member_help(&p->own);             /* it reads, if there is more than fits into
                                                 the connection */
    }
}

static void token_put(unsigned char to[MESH_TOKEN], const char *address)
{
    const char *text = address + strlen(address) - 2 * MESH_TOKEN;
    for (int k = 0; k < MESH_TOKEN; k++)
        sscanf(text + 2 * k, "%2hhx", &to[k]);
}

void peers_greet(peers_t *p, int rank, int descriptor)
{
    struct {
        char magic[8];
        unsigned char zero[CIPHER_NONCE];
        mesh_frame_t head;
        uint32_t rank, size;
        unsigned char from[MESH_TOKEN], to[MESH_TOKEN];
    } hello = {.head = {.kind = MESH_HELLO, .length = 8 + 2 * MESH_TOKEN},
               .rank = (uint32_t)rank,
               .size = RANKS};
    const size_t before = offsetof(__typeof__(hello), head);
    memcpy(hello.magic, "plmesh01", 8);
    token_put(hello.from, p->text[rank]);
    token_put(hello.to, p->text[0]);
    peers_connect(p, rank);
    peers_say(p, rank, &hello, before, NULL, 0);
    peers_say(p, rank, &hello.head, 1, &descriptor, descriptor >= 0);
    peers_say(p, rank, (char *)&hello + before + 1, sizeof hello - before - 1, NULL, 0);
}

void peers_frame(peers_t *p, int rank, const mesh_frame_t *frame, int descriptor)
{
    peers_say(p, rank, frame, sizeof *frame, &descriptor, descriptor >= 0);
}

/* ---- rank 0 ---- */

void peers_begin(peers_t *p, const order_t *order, uint32_t memory)
{
    uint32_t count = 0;
    if (!p->own.done)
        return;
    memcpy(&count, order->bytes, order->size < sizeof count ? order->size : sizeof count);
    p->req = (pl_coll_request_t){.desc = {.op = order->argument % PL_COLL_OP_COUNT,
                                          .root = order->argument % RANKS,
                                          .count = count % (memory / 4 + 2)},
                                 .world = &p->world,
                                 .memory = p->buffer};
    if (p->req.desc.op == PL_COLL_OP_alloc_buffer) {
        p->req.memory = NULL;
        p->req.desc.count = p->buffer ? count % 4096 : memory;
    } else if (p->buffer) {
        p->req.desc.memory = p->buffer->number;
    }
    p->number += member_begin(&p->own, &p->req) == PL_OK;
}

void peers_help(peers_t *p)
{
    for (int k = 0; k < 3; k++)
        member_help(&p->own);
    if (p->own.done && p->req.desc.op == PL_COLL_OP_alloc_buffer && p->req.memory) {
        pl_object_unref(p->buffer);
        p->buffer = p->req.memory;
        p->req.memory = NULL;
    }
}

void peers_abort(peers_t *p)
{
    p->own.ops->abort(p->own.component.self,
                      &(pl_error_t){PL_ECANCELLED, "", "aborted by the input"});
}

void orders_obey(const uint8_t *data, size_t size,
                 void (*obey)(void *user, const order_t *order), void *user)
{
    for (size_t at = 0; at + 3 <= size;) {
        const size_t left = size - at - 3,
                     length = data[at + 2] < left ? data[at + 2] : left;
        obey(user, &(order_t){data[at], data[at + 1], data + at + 3, length});
        at += 3 + length;
    }
}
