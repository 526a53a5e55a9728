/* rendezvous.c - the place where processes that somebody else has started meet
 *
 * All are told the same place, but it is not the same for all: rank zero listens there,
 * the others go there, and what else is to be found on either machine lies beside it. */
#include "actors/launchers/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/port_holder.h"

enum { HOST = 256 };
static const char tcp[] = "tcp://", ipc[] = "ipc://";

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* The host of a tcp endpoint, without brackets, and its port; false: it is none. */
static bool endpoint_split(const char *endpoint, char host[HOST], const char **port)
{
    const char *at = endpoint + strlen(tcp), *colon = strrchr(at, ':');
    size_t length = colon ? (size_t)(colon - at) : 0;
    bool is_v6 = length > 2 && at[0] == '[' && at[length - 1] == ']';
    if (!begins(endpoint, tcp) || !length || length >= HOST)
        return false;
    snprintf(host, HOST, "%.*s", (int)(length - 2 * is_v6), at + is_v6);
    *port = colon + 1;
    return true;
}

static bool is_number(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1
           || inet_pton(AF_INET6, host, &address) == 1;
}

/* Any port, 0, is none that others could know. */
static bool is_port(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= 5 && !text[digits] && atoi(text) > 0
           && atoi(text) <= 65535;
}

int pl_rendezvous_read(const char *text, char *endpoint, size_t room, pl_error_t *err)
{
    char host[HOST];
    const char *port = "";
    int length = snprintf(endpoint, room, "%s%s", strstr(text, "://") ? "" : tcp, text);
    if ((size_t)length >= room)
        return pl_fail(err, PL_EINVAL, "the rendezvous \"%.40s...\" is too long", text);
    if (begins(endpoint, ipc))
        return PL_OK;
    if (!endpoint_split(endpoint, host, &port) || !is_port(port))
        return pl_fail(err, PL_EINVAL,
                       "the rendezvous \"%s\" is not a HOST:PORT that all ranks can "
                       "reach, with a port from 1 to 65535",
                       text);
    if (!strcmp(host, "localhost"))
        snprintf(endpoint, room, "tcp://127.0.0.1%s", strrchr(text, ':'));
    return PL_OK;
}

bool pl_rendezvous_is_near(const char *endpoint)
{
    char host[HOST];
    const char *port;
    return !endpoint_split(endpoint, host, &port) || !strncmp(host, "127.", 4)
           || !strcmp(host, "::1");
}

int pl_rendezvous_places(const char *endpoint, char *calls, char *bulk, char *stream,
                         size_t room, pl_error_t *err)
{
    char host[HOST];
    const char *port;
    int length;
    if (begins(endpoint, ipc)) {
        snprintf(calls, room, "%s", endpoint);
        snprintf(bulk, room, "%s-bulk", endpoint);
        length = snprintf(stream, room, "%s-stream", endpoint);
    } else if (endpoint_split(endpoint, host, &port)) {
        const char *own = is_number(host) ? host : "*";
        const bool is_v6 = strchr(own, ':') != NULL;
        snprintf(calls, room, is_v6 ? "tcp://[%s]:%s" : "tcp://%s:%s", own, port);
        length = snprintf(bulk, room, is_v6 ? "tcp://[%s]:*" : "tcp://%s:*", own);
        snprintf(stream, room, "%s", bulk);
    } else {
        return pl_fail(err, PL_EINVAL, "\"%s\" is not an endpoint", endpoint);
    }
    return (size_t)length < room
               ? PL_OK
               : pl_fail(err, PL_EINVAL, "\"%.60s...\" is too long", endpoint);
}

void pl_rendezvous_find(const char *endpoint, const char *place, char *at, size_t room)
{
    const char *colon = strrchr(place, ':');
    if (begins(endpoint, ipc) || !colon)
        snprintf(at, room, "%s", place);
    else
        snprintf(at, room, "%.*s%s", (int)(strrchr(endpoint, ':') - endpoint), endpoint,
                 colon);
}

/* Whether nothing listens at the port. */
static bool is_free(const struct addrinfo *own, int port)
{
    struct sockaddr_storage at = {0};
    memcpy(&at, own->ai_addr, own->ai_addrlen);
    if (own->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)&at)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&at)->sin_port = htons((uint16_t)port);
    int fd = socket(own->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is = fd >= 0 && bind(fd, (struct sockaddr *)&at, own->ai_addrlen) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

/* Other sockets take the first port of the range that is free.  So this one, which is
 * listened at only later, is looked for from the end, and not the same each time. */
static int free_port_in(pl_ports_t range, const struct addrinfo *own)
{
    const int count = range.last - range.first + 1, upper = (count + 1) / 2;
    const int skip = (int)((uint64_t)pl_now() / 1000 % (uint64_t)upper);
    for (int k = 0; k < count; k++) {
        const int back = k < upper ? (k + skip) % upper : k;
        if (is_free(own, range.last - back))
            return range.last - back;
    }
    return 0;
}

/* The kernel gives such ports in turn, so nobody else gets it soon. */
static int free_port(const struct addrinfo *own)
{
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    char port[8] = "0";
    int fd = socket(own->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, own->ai_addr, own->ai_addrlen) == 0
        && getsockname(fd, (struct sockaddr *)&bound, &size) == 0)
        getnameinfo((const struct sockaddr *)&bound, size, NULL, 0, port, sizeof port,
                    NI_NUMERICSERV);
    if (fd >= 0)
        close(fd);
    return atoi(port);
}

int pl_rendezvous_beside(const char *endpoint, char *at, size_t room, pl_error_t *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *own;
    char host[HOST];
    const char *port;
    if (!endpoint_split(endpoint, host, &port))
        return pl_fail(err, PL_EINVAL, "\"%s\" has no host", endpoint);
    int wrong = getaddrinfo(is_number(host) ? host : NULL, "0", &hints, &own);
    if (wrong)
        return pl_fail(err, PL_EIO, "%s: %s", host, gai_strerror(wrong));
    const int found = pl_ports().first ? free_port_in(pl_ports(), own) : free_port(own);
    freeaddrinfo(own);
    if (!found && pl_ports().first)
        return pl_ports_fail(host, err);
    if (!found)
        return pl_fail(err, PL_EIO, "no port is free at %s: %s", host, strerror(errno));
    snprintf(at, room, strchr(host, ':') ? "tcp://[%s]:%d" : "tcp://%s:%d", host, found);
    return PL_OK;
}

/* ---- this machine's own address ---- */

static void host_text(const struct sockaddr *address, socklen_t size,
                      char host[PL_RENDEZVOUS_HOST])
{
    if (getnameinfo(address, size, host, PL_RENDEZVOUS_HOST, NULL, 0, NI_NUMERICHOST))
        snprintf(host, PL_RENDEZVOUS_HOST, "127.0.0.1");
}

/* Of the interface by which packets go there; none is sent. */
static bool host_towards(const struct addrinfo *to, char host[PL_RENDEZVOUS_HOST])
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0
                 && getsockname(fd, (struct sockaddr *)&own, &size) == 0;
    if (found)
        host_text((const struct sockaddr *)&own, size, host);
    if (fd >= 0)
        close(fd);
    return found;
}

/* Many hosts know their own name as a loopback address. */
static bool host_of_interface(char host[PL_RENDEZVOUS_HOST])
{
    struct ifaddrs *all, *one;
    if (getifaddrs(&all) != 0)
        return false;
    for (one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET
            && (one->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP)
            break;
    if (one)
        host_text(one->ifa_addr, sizeof(struct sockaddr_in), host);
    freeifaddrs(all);
    return one != NULL;
}

/* A look-up of a name.  The resolver has time limits of its own and cannot be cancelled:
 * a thread that is late is left behind, and frees what it has found. */
struct pl_lookup {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    char host[HOST], port[8], endpoint[HOST + 16];
    struct addrinfo *found;
    int wrong;                                    /* as of getaddrinfo() */
    bool is_over, is_left;                        /* by the thread; by the other side */
};

static void lookup_free(pl_lookup_t *lookup)
{
    if (lookup->found)
        freeaddrinfo(lookup->found);
    pthread_cond_destroy(&lookup->ended);
    pthread_mutex_destroy(&lookup->mutex);
    pl_free(lookup);
}

static void *lookup_main(void *user)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    pl_lookup_t *lookup = user;
    struct addrinfo *found = NULL;
    const int wrong = getaddrinfo(lookup->host, lookup->port, &hints, &found);
    pthread_mutex_lock(&lookup->mutex);
    lookup->found = found;
    lookup->wrong = wrong;
    lookup->is_over = true;
    const bool is_left = lookup->is_left;
    pthread_cond_signal(&lookup->ended);
    pthread_mutex_unlock(&lookup->mutex);
    if (is_left)
        lookup_free(lookup);
    return NULL;
}

pl_lookup_t *pl_lookup_start(const char *endpoint, pl_error_t *err)
{
    pthread_t thread;
    pthread_condattr_t clock;
    const char *port;
    pl_lookup_t *lookup = pl_alloc(sizeof *lookup);
    if (!lookup) {
        pl_no_memory(err);
        return NULL;
    }
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&lookup->ended, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&lookup->mutex, NULL);
    snprintf(lookup->endpoint, sizeof lookup->endpoint, "%s", endpoint);
    if (!endpoint_split(endpoint, lookup->host, &port)) {
        pl_fail(err, PL_EINVAL, "\"%s\" has no host", endpoint);
    } else {
        snprintf(lookup->port, sizeof lookup->port, "%s", port);
        if (pthread_create(&thread, NULL, lookup_main, lookup) == 0) {
            pthread_detach(thread);
            return lookup;
        }
        pl_fail(err, PL_EBUSY, "no thread to look up the host \"%s\"", lookup->host);
    }
    lookup_free(lookup);
    return NULL;
}

bool pl_lookup_wait(pl_lookup_t *lookup, int64_t until)
{
    const int64_t left = until - pl_now();
    struct timespec at;
    int late = 0;
    clock_gettime(CLOCK_MONOTONIC, &at);
    const int64_t end = at.tv_sec * PL_SECOND + at.tv_nsec + (left > 0 ? left : 0);
    at = (struct timespec){.tv_sec = end / PL_SECOND, .tv_nsec = end % PL_SECOND};
    pthread_mutex_lock(&lookup->mutex);
    while (!lookup->is_over && !late)
        late = pthread_cond_timedwait(&lookup->ended, &lookup->mutex, &at);
    const bool is_over = lookup->is_over;
    pthread_mutex_unlock(&lookup->mutex);
    return is_over;
}

void pl_lookup_leave(pl_lookup_t *lookup)
{
    if (!lookup)
        return;
    pthread_mutex_lock(&lookup->mutex);
    const bool is_over = lookup->is_over;
    lookup->is_left = true;
    pthread_mutex_unlock(&lookup->mutex);
    if (is_over)
        lookup_free(lookup);
}

int pl_lookup_own_host(pl_lookup_t *lookup, bool listens, char own[PL_RENDEZVOUS_HOST],
                       pl_error_t *err)
{
    if (!pl_lookup_wait(lookup, pl_now()))
        return pl_fail(err, PL_ETIMEOUT,
                       "the host \"%s\" of the rendezvous: the name server has not "
                       "answered within the join timeout; give an address instead, or "
                       "check /etc/resolv.conf",
                       lookup->host);
    if (lookup->wrong)
        return pl_fail(err, PL_EINVAL, "the host \"%s\" of the rendezvous: %s",
                       lookup->host, gai_strerror(lookup->wrong));
    bool told = host_towards(lookup->found, own);
    if (told && listens && !is_number(lookup->host) && !strncmp(own, "127.", 4))
        told = host_of_interface(own);
    return told ? PL_OK
                : pl_fail(err, PL_EIO, "no route to the rendezvous %s: %s",
                          lookup->endpoint, strerror(errno));
}
