/* mesh_connection.c - frames over a connection that never blocks, sealed or plain */
#include "strategies/collectives/mesh.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "config.h"
#include "base/timeouts.h"

#ifdef HAVE_SODIUM
#include <sodium.h>
#endif

/* ---- the cipher ---- */

#ifdef HAVE_SODIUM

_Static_assert(CIPHER_HEADER == crypto_secretstream_xchacha20poly1305_HEADERBYTES
                   && CIPHER_MORE == crypto_secretstream_xchacha20poly1305_ABYTES
                   && PL_KEY_BYTES == crypto_generichash_KEYBYTES
                   && crypto_generichash_BYTES
                          == crypto_secretstream_xchacha20poly1305_KEYBYTES,
               "sizes of libsodium");

struct mesh_cipher {
    unsigned char key[PL_KEY_BYTES], nonce[CIPHER_NONCE];
    crypto_secretstream_xchacha20poly1305_state out, in;
    unsigned char in_key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
};

mesh_cipher_t *cipher_new(const unsigned char *key, pl_error_t *err)
{
    mesh_cipher_t *c = sodium_init() < 0 ? NULL : pl_alloc(sizeof *c);
    if (!c) {
        pl_no_memory(err);
        return NULL;
    }
    memcpy(c->key, key, sizeof c->key);
    randombytes_buf(c->nonce, sizeof c->nonce);
    return c;
}

void cipher_free(mesh_cipher_t *c)
{
    if (c)
        sodium_memzero(c, sizeof *c);
    pl_free(c);
}

void cipher_nonce(const mesh_cipher_t *c, unsigned char nonce[CIPHER_NONCE])
{
    memcpy(nonce, c->nonce, CIPHER_NONCE);
}

static void direction_key(const mesh_cipher_t *c, const unsigned char *from,
                          const unsigned char *to, unsigned char *key)
{
    static const unsigned char what[] = "paceline mesh 1";
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, c->key, sizeof c->key, crypto_generichash_BYTES);
    crypto_generichash_update(&hash, what, sizeof what);
    crypto_generichash_update(&hash, from, CIPHER_NONCE);
    crypto_generichash_update(&hash, to, CIPHER_NONCE);
    crypto_generichash_final(&hash, key, crypto_generichash_BYTES);
    sodium_memzero(&hash, sizeof hash);
}

bool cipher_agree(mesh_cipher_t *c, const unsigned char theirs[CIPHER_NONCE],
                  unsigned char header[CIPHER_HEADER])
{
    unsigned char key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
    if (!memcmp(c->nonce, theirs, CIPHER_NONCE))
        return false;                                       /* its own nonce: a mirror */
    direction_key(c, c->nonce, theirs, key);
    crypto_secretstream_xchacha20poly1305_init_push(&c->out, header, key);
    direction_key(c, theirs, c->nonce, c->in_key);
    sodium_memzero(key, sizeof key);
    return true;
}

bool cipher_accept(mesh_cipher_t *c, const unsigned char header[CIPHER_HEADER])
{
    int code = crypto_secretstream_xchacha20poly1305_init_pull(&c->in, header, c->in_key);
    sodium_memzero(c->in_key, sizeof c->in_key);
    return code == 0;
}

void cipher_seal(mesh_cipher_t *c, unsigned char *sealed, const void *open, size_t bytes)
{
    crypto_secretstream_xchacha20poly1305_push(&c->out, sealed, NULL, open, bytes, NULL,
                                               0, 0);
}

bool cipher_open(mesh_cipher_t *c, void *open, const unsigned char *sealed, size_t bytes)
{
    return crypto_secretstream_xchacha20poly1305_pull(&c->in, open, NULL, NULL, sealed,
                                                      bytes + CIPHER_MORE, NULL, 0)
           == 0;
}

#else

mesh_cipher_t *cipher_new(const unsigned char *key, pl_error_t *err)
{
    (void)key;
    pl_fail(err, PL_EUNSUPPORTED,
            "this build cannot encrypt: for ranks on several machines build with "
            "libsodium (apt-get install libsodium-dev)");
    return NULL;
}

void cipher_free(mesh_cipher_t *c)
{
    (void)c;
}

void cipher_nonce(const mesh_cipher_t *c, unsigned char nonce[CIPHER_NONCE])
{
    (void)c, (void)nonce;
}

bool cipher_agree(mesh_cipher_t *c, const unsigned char theirs[CIPHER_NONCE],
                  unsigned char header[CIPHER_HEADER])
{
    (void)c, (void)theirs, (void)header;
    return false;
}

bool cipher_accept(mesh_cipher_t *c, const unsigned char header[CIPHER_HEADER])
{
    (void)c, (void)header;
    return false;
}

void cipher_seal(mesh_cipher_t *c, unsigned char *sealed, const void *open, size_t bytes)
{
    (void)c, (void)sealed, (void)open, (void)bytes;
}

bool cipher_open(mesh_cipher_t *c, void *open, const unsigned char *sealed, size_t bytes)
{
    (void)c, (void)open, (void)sealed, (void)bytes;
    return false;
}

#endif

/* ---- the connection ---- */

/* A machine that is gone sends nothing: the kernel probes it every second of silence.
 * While data is in flight the kernel does not probe, but waits for minutes. */
enum { ALIVE_SECONDS = PL_TCP_ASK_MS / 1000, ALIVE_TIMES = 3 };

mesh_connection_t *mesh_connection_new(int epoll, int fd, uint32_t tag,
                                       const unsigned char *key, pl_error_t *err)
{
    mesh_connection_t *connection = pl_alloc(sizeof *connection);
    if (!connection) {
        close(fd);
        pl_no_memory(err);
        return NULL;
    }
    connection->fd = fd, connection->epoll = epoll, connection->tag = tag,
    connection->descriptor = -1, connection->since = pl_now();
    const int yes = 1, seconds = ALIVE_SECONDS, times = ALIVE_TIMES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);  /* UNIX sockets refuse */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    if (!key)
        return connection;
    if ((connection->cipher = cipher_new(key, err))) {
        connection->sealed_in = pl_alloc(MESH_BODY + CIPHER_MORE);
        connection->sealed_out = pl_alloc(MESH_BODY + CIPHER_MORE);
        if (connection->sealed_in && connection->sealed_out)
            return connection;
        pl_no_memory(err);
    }
    mesh_connection_free(connection);
    return NULL;
}

void mesh_connection_free(mesh_connection_t *connection)
{
    if (!connection)
        return;
    mesh_connection_drop_descriptor(connection);
    close(connection->fd);
    cipher_free(connection->cipher);
    pl_free(connection->sealed_in);
    pl_free(connection->sealed_out);
    pl_free(connection);
}

bool mesh_connection_watch(mesh_connection_t *connection, bool in, bool out)
{
    const uint32_t mask = (in ? EPOLLIN : 0) | (out ? EPOLLOUT : 0);
    struct epoll_event event = {.events = mask, .data.u32 = connection->tag};
    const int what = !mask              ? EPOLL_CTL_DEL
                     : connection->mask ? EPOLL_CTL_MOD
                                        : EPOLL_CTL_ADD;
    if (mask == connection->mask)
        return true;
    connection->mask = mask;
    return epoll_ctl(connection->epoll, what, connection->fd, &event) == 0;
}

bool mesh_connection_is_dead(const mesh_connection_t *connection)
{
    struct tcp_info info;
    socklen_t length = sizeof info;
    return getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0
           && info.tcpi_last_ack_recv > PL_SILENCE_MS
           && (info.tcpi_unacked || info.tcpi_probes >= ALIVE_TIMES);
}

/* ---- before frames ---- */

bool mesh_connection_send_raw(mesh_connection_t *connection, const void *bytes,
                              size_t count)
{
    return send(connection->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT)
           == (ssize_t)count;
}

void mesh_connection_drop_descriptor(mesh_connection_t *connection)
{
    if (connection->descriptor >= 0)
        close(connection->descriptor);
    connection->descriptor = -1;
}

/* Takes the descriptors that came with bytes: false if the frame has more than one. */
static bool descriptors_take(mesh_connection_t *connection, struct msghdr *message)
{
    bool is_one = !(message->msg_flags & MSG_CTRUNC);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        for (size_t at = CMSG_LEN(0);
             c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS
             && at + sizeof(int) <= c->cmsg_len;
             at += sizeof(int)) {
            is_one = is_one && connection->descriptor < 0;
            mesh_connection_drop_descriptor(connection);
            memcpy(&connection->descriptor, (char *)c + at, sizeof(int));
        }
    return is_one;
}

/* Returns bytes, 0: none yet, -1: the other side is gone. A descriptor stays until its
 * frame is complete. */
static ssize_t read_some(mesh_connection_t *connection, void *to, size_t bytes)
{
    union {
        struct cmsghdr header;
        char buffer[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec into = {to, bytes};
    struct msghdr message = {.msg_iov = &into,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.buffer};
    ssize_t got = recvmsg(connection->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got > 0)
        return descriptors_take(connection, &message) ? got : -1;
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

int mesh_connection_read_raw(mesh_connection_t *connection, size_t count)
{
    while (connection->raw_have < count) {
        ssize_t got = read_some(connection, connection->raw + connection->raw_have,
                                count - connection->raw_have);
        if (got <= 0)
            return (int)got;
        connection->raw_have += (size_t)got;
    }
    connection->raw_have = 0;
    return 1;
}

/* ---- frames out ---- */

bool mesh_connection_is_idle(const mesh_connection_t *connection)
{
    return connection->out[0].iov_len + connection->out[1].iov_len == 0;
}

/* The descriptor travels with the first byte. */
static int out_send(mesh_connection_t *connection, int descriptor)
{
    union {
        struct cmsghdr header;
        char buffer[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
                            .cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS}};
    struct msghdr message = {.msg_iov = connection->out, .msg_iovlen = 2};
    if (descriptor >= 0) {
        memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
        message.msg_control = &control, message.msg_controllen = sizeof control.buffer;
    }
    while (!mesh_connection_is_idle(connection)) {
        ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -1;
        message.msg_control = NULL, message.msg_controllen = 0;
        for (struct iovec *out = connection->out; sent > 0; out++) {
            const size_t taken = (size_t)sent < out->iov_len ? (size_t)sent
                                                             : out->iov_len;
            out->iov_base = (char *)out->iov_base + taken;
            out->iov_len -= taken;
            sent -= (ssize_t)taken;
        }
    }
    return 1;
}

int mesh_connection_flush(mesh_connection_t *connection)
{
    return out_send(connection, -1);
}

int mesh_connection_put(mesh_connection_t *connection, const mesh_frame_t *head,
                        const void *body, int descriptor)
{
    connection->out_head = *head;
    if (!connection->cipher) {
        connection->out[0] = (struct iovec){&connection->out_head, sizeof *head};
        connection->out[1] = (struct iovec){(void *)(uintptr_t)body, head->length};
    } else {
        cipher_seal(connection->cipher, connection->sealed_head, head, sizeof *head);
        if (head->length)
            cipher_seal(connection->cipher, connection->sealed_out, body, head->length);
        connection->out[0] = (struct iovec){connection->sealed_head,
                                            sizeof connection->sealed_head};
        connection->out[1] = (struct iovec){connection->sealed_out,
                                            head->length ? head->length + CIPHER_MORE
                                                         : 0};
    }
    return out_send(connection, descriptor);
}

/* ---- frames in ---- */

int mesh_connection_head(mesh_connection_t *connection)
{
    if (connection->has_head)
        return 1;
    int code = mesh_connection_read_raw(connection,
                                        sizeof connection->head
                                            + (connection->cipher ? CIPHER_MORE : 0));
    if (code <= 0)
        return code;
    if (!connection->cipher)
        memcpy(&connection->head, connection->raw, sizeof connection->head);
    else if (!cipher_open(connection->cipher, &connection->head, connection->raw,
                          sizeof connection->head))
        return -1;
    if (connection->head.length > MESH_BODY)
        return -1;
    connection->has_head = true;
    connection->body_have = 0;
    return 1;
}

int mesh_connection_body(mesh_connection_t *connection, void *to)
{
    const size_t length = connection->head.length,
                 wanted = length + (connection->cipher && length ? CIPHER_MORE : 0);
    unsigned char *into = connection->cipher ? connection->sealed_in : to;
    while (connection->body_have < wanted) {
        ssize_t got = read_some(connection, into + connection->body_have,
                                wanted - connection->body_have);
        if (got <= 0)
            return (int)got;
        connection->body_have += (size_t)got;
    }
    if (connection->cipher && length
        && !cipher_open(connection->cipher, to, connection->sealed_in, length))
        return -1;
    connection->has_head = false;
    return 1;
}
