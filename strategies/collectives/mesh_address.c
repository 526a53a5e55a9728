/* mesh_address.c - where a rank listens for others: an abstract UNIX socket, which other
 * processes of the same user on this machine can reach, or a port over TCP
 *
 * An address also has the random number of its rank, the token; on one machine that is
 * the name of the socket. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "strategies/collectives/mesh.h"
#include "transport/port_holder.h"

enum { BACKLOG = 128, STREAM = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC };

static void token_write(char text[2 * MESH_TOKEN + 1], const unsigned char *token)
{
    for (int k = 0; k < MESH_TOKEN; k++)
        sprintf(text + 2 * k, "%02x", token[k]);
}

/* ---- of one machine ---- */

static socklen_t name_fill(struct sockaddr_un *at, const unsigned char *token)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    strcpy(at->sun_path + 1, "paceline-");             /* abstract: the first byte is 0 */
    token_write(at->sun_path + 1 + strlen("paceline-"), token);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1
                       + strlen(at->sun_path + 1));
}

/* Ranks of one machine can share memory: same kernel, same network names, same user. */
static void machine_name(char machine[MESH_HOST])
{
    char boot[37] = "?", net[24] = "?";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, boot, 36) != 36)
        strcpy(boot, "?");
    if (fd >= 0)
        close(fd);
    ssize_t length = readlink("/proc/self/ns/net", net, sizeof net - 1);
    net[length > 0 ? length : 0] = '\0';
    snprintf(machine, MESH_HOST, "%s/%s/%u", boot, net, (unsigned)geteuid());
}

static int listen_here(mesh_t *m, char address[PL_ADDRESS_TEXT], pl_error_t *err)
{
    struct sockaddr_un at;
    const socklen_t length = name_fill(&at, m->token);
    m->is_near = true;
    m->listener = socket(AF_UNIX, STREAM, 0);
    if (m->listener < 0 || bind(m->listener, (struct sockaddr *)&at, length) != 0
        || listen(m->listener, BACKLOG) != 0)
        return mesh_fail_to_listen(err);
    machine_name(m->host);
    snprintf(address, PL_ADDRESS_TEXT, "shm %s %s", m->host, at.sun_path + 1);
    return PL_OK;
}

/* ---- over TCP ---- */

static bool is_loopback(const char *host)
{
    struct in6_addr six;
    return !strncmp(host, "127.", 4)
           || (inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));
}

/* At the port of the options; if that is 0, at the first free port of the launcher's
 * range, or at any. After listen() has found its port taken, a socket may not be bound
 * again. */
static int listener_open(mesh_t *m, int wanted, const struct addrinfo *at,
                         pl_error_t *err)
{
    const int yes = 1;
    const bool in_range = !wanted && pl_ports().first;
    const pl_ports_t range = in_range ? pl_ports() : (pl_ports_t){wanted, wanted};
    for (int port = range.first; port <= range.last; port++) {
        if (at->ai_family == AF_INET6)
            ((struct sockaddr_in6 *)at->ai_addr)->sin6_port = htons((uint16_t)port);
        else
            ((struct sockaddr_in *)at->ai_addr)->sin_port = htons((uint16_t)port);
        m->listener = socket(at->ai_family, STREAM, 0);
        if (m->listener >= 0 && wanted)
            setsockopt(m->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (m->listener >= 0 && bind(m->listener, at->ai_addr, at->ai_addrlen) == 0
            && listen(m->listener, BACKLOG) == 0)
            return PL_OK;
        const int why = errno;
        if (m->listener >= 0)
            close(m->listener);
        m->listener = -1;
        if (!in_range || (why != EADDRINUSE && why != EACCES))
            return pl_fail(err, PL_EIO, "a rank cannot listen at %s, port %d: %s",
                           m->host, port, strerror(why));
    }
    return pl_ports_fail(m->host, err);
}

static int host_check(mesh_t *m, const struct addrinfo *at, pl_error_t *err)
{
    if (getnameinfo(at->ai_addr, at->ai_addrlen, m->host, sizeof m->host, NULL, 0,
                    NI_NUMERICHOST)
        != 0)
        return pl_fail(err, PL_EINVAL, "the host of this rank has no numeric address");
    if (!strcmp(m->host, "0.0.0.0") || !strcmp(m->host, "::"))
        return pl_fail(err, PL_EINVAL,
                       "other ranks cannot reach this machine at %s: set the host to an "
                       "address of this machine",
                       m->host);
    m->is_near = is_loopback(m->host);
    if (m->is_near && !m->encrypt)
        return PL_OK;
    if (m->has_key) {            /* an error here, and not when the first rank connects */
        mesh_cipher_t *cipher = cipher_new(m->key, err);
        cipher_free(cipher);
        return cipher ? PL_OK : PL_EUNSUPPORTED;
    }
    return pl_fail(
        err, PL_EINVAL,
        "ranks that connect at %s%s need the key of the job: set PACELINE_JOB_KEY_FILE",
        m->host, m->is_near ? " with encryption" : ", beyond this machine,");
}

int mesh_listen(mesh_t *m, const mesh_listen_t *how, char address[PL_ADDRESS_TEXT],
                pl_error_t *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    char port[8], token[2 * MESH_TOKEN + 1];
    if (m->is_local)
        return listen_here(m, address, err);
    /* Resolves the name of this host once; the other ranks get its numeric address. */
    snprintf(port, sizeof port, "%d", how->port);
    const int wrong = getaddrinfo(how->host, port, &hints, &found);
    if (wrong)
        return pl_fail(err, PL_EINVAL,
                       "the host \"%s\" of this rank cannot be resolved: %s", how->host,
                       gai_strerror(wrong));
    int code = host_check(m, found, err);
    if (code == PL_OK)
        code = listener_open(m, how->port, found, err);
    freeaddrinfo(found);
    if (code != PL_OK)
        return code;
    if (getsockname(m->listener, (struct sockaddr *)&at, &length) != 0
        || getnameinfo((struct sockaddr *)&at, length, NULL, 0, port, sizeof port,
                       NI_NUMERICSERV)
               != 0)
        return pl_fail(err, PL_EIO, "cannot determine the address of this rank: %s",
                       strerror(errno));
    token_write(token, m->token);
    snprintf(address, PL_ADDRESS_TEXT, "tcp %s %s %s", m->host, port, token);
    return PL_OK;
}

/* ---- the addresses of others ---- */

int mesh_address_read(const mesh_t *m, mesh_peer_t *peer, const char *address,
                      pl_error_t *err)
{
    const char *kind = m->is_local ? "shm" : "tcp";
    char first[8], token[2 * MESH_TOKEN + 1] = "", rest[2];
    bool is_good = m->is_local ? sscanf(address, "%7s %79s paceline-%32s%1s", first,
                                        peer->host, token, rest)
                                     == 3
                               : sscanf(address, "%7s %63s %7s %32s%1s", first,
                                        peer->host, peer->port, token, rest)
                                     == 4;
    is_good = is_good && strcmp(first, kind) == 0 && strlen(token) == 2 * MESH_TOKEN;
    for (int k = 0; k < MESH_TOKEN && is_good; k++)
        is_good = sscanf(token + 2 * k, "%2hhx", &peer->token[k]) == 1;
    if (!is_good)
        return pl_fail(err, PL_EINVAL,
                       "the address of rank %d is not one of collective \"%s\": "
                       "\"%.80s\"",
                       peer->number, kind, address);
    if (m->is_local && strcmp(peer->host, m->host) != 0)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "rank %d is on another machine, network or account than rank %d: "
                       "use the collective \"tcp\"",
                       peer->number, m->peer[m->rank].number);
    peer->is_near = m->is_local || is_loopback(peer->host);
    if (!peer->is_near && !m->has_key)
        return pl_fail(err, PL_EINVAL,
                       "rank %d listens at %s, beyond this machine: that needs the key "
                       "of the job; set PACELINE_JOB_KEY_FILE",
                       peer->number, peer->host);
    return PL_OK;
}

int mesh_dial(const mesh_t *m, const mesh_peer_t *peer)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    struct sockaddr_un here;
    struct addrinfo name = {.ai_family = AF_UNIX, .ai_addr = (struct sockaddr *)&here},
                    *at = &name;
    if (m->is_local)
        name.ai_addrlen = name_fill(&here, peer->token);
    else if (getaddrinfo(peer->host, peer->port, &hints, &at) != 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    int fd = socket(at->ai_family, STREAM, 0);
    int wrong = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (at != &name)
        freeaddrinfo(at);
    if (wrong && wrong != EINPROGRESS && fd >= 0) {
        close(fd);
        fd = -1;
    }
    errno = wrong;
    return fd;
}
