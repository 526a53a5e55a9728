/* rendezvous.c - the address where processes that another program has started connect
 *
 * All are told the same place, but it is not the same for all: rank zero listens there,
 * the others go there, and what else is to be found on either machine lies beside it. */
#include "actors/launchers/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/endpoint.h"
#include "transport/lookup.h"
#include "transport/port_holder.h"

static const char tcp[] = "tcp://", ipc[] = "ipc://";

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* Any port, 0, is none that others could know. */
static bool is_port(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= 5 && !text[digits] && atoi(text) > 0
           && atoi(text) <= 65535;
}

int pl_rendezvous_read(const char *text, char *endpoint, size_t capacity, pl_error_t *err)
{
    char host[PL_HOST_TEXT];
    const char *port = "";
    int length = snprintf(endpoint, capacity, "%s%s", strstr(text, "://") ? "" : tcp,
                          text);
    if ((size_t)length >= capacity)
        return pl_fail(err, PL_EINVAL, "the rendezvous \"%.40s...\" is too long", text);
    if (begins(endpoint, ipc))
        return PL_OK;
    if (!pl_endpoint_split(endpoint, host, &port) || !is_port(port))
        return pl_fail(err, PL_EINVAL,
                       "the rendezvous \"%s\" is not a HOST:PORT that all ranks can "
                       "reach, with a port from 1 to 65535",
                       text);
    if (!strcmp(host, "localhost"))
        snprintf(endpoint, capacity, "tcp://127.0.0.1%s", strrchr(text, ':'));
    return PL_OK;
}

bool pl_rendezvous_is_near(const char *endpoint)
{
    char host[PL_HOST_TEXT];
    const char *port;
    return !pl_endpoint_split(endpoint, host, &port) || !strncmp(host, "127.", 4)
           || !strcmp(host, "::1");
}

int pl_rendezvous_places(const char *endpoint, char *calls, char *bulk, char *stream,
                         size_t capacity, pl_error_t *err)
{
    char host[PL_HOST_TEXT];
    const char *port;
    int length;
    if (begins(endpoint, ipc)) {
        snprintf(calls, capacity, "%s", endpoint);
        snprintf(bulk, capacity, "%s-bulk", endpoint);
        length = snprintf(stream, capacity, "%s-stream", endpoint);
    } else if (pl_endpoint_split(endpoint, host, &port)) {
        const char *own = pl_host_is_number(host) ? host : "*";
        const bool is_v6 = strchr(own, ':') != NULL;
        snprintf(calls, capacity, is_v6 ? "tcp://[%s]:%s" : "tcp://%s:%s", own, port);
        length = snprintf(bulk, capacity, is_v6 ? "tcp://[%s]:*" : "tcp://%s:*", own);
        snprintf(stream, capacity, "%s", bulk);
    } else {
        return pl_fail(err, PL_EINVAL, "\"%s\" is not an endpoint", endpoint);
    }
    return (size_t)length < capacity
               ? PL_OK
               : pl_fail(err, PL_EINVAL, "\"%.60s...\" is too long", endpoint);
}

void pl_rendezvous_find(const char *endpoint, const char *place, char *at,
                        size_t capacity)
{
    const char *colon = strrchr(place, ':');
    if (begins(endpoint, ipc) || !colon)
        snprintf(at, capacity, "%s", place);
    else
        snprintf(at, capacity, "%.*s%s", (int)(strrchr(endpoint, ':') - endpoint),
                 endpoint, colon);
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

/* The kernel gives such ports in turn, so no other process gets it soon. */
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

int pl_rendezvous_beside(const char *endpoint, char *at, size_t capacity, pl_error_t *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *own;
    char host[PL_HOST_TEXT];
    const char *port;
    if (!pl_endpoint_split(endpoint, host, &port))
        return pl_fail(err, PL_EINVAL, "\"%s\" has no host", endpoint);
    int wrong = getaddrinfo(pl_host_is_number(host) ? host : NULL, "0", &hints, &own);
    if (wrong)
        return pl_fail(err, PL_EIO, "%s: %s", host, gai_strerror(wrong));
    const int found = pl_ports().first ? free_port_in(pl_ports(), own) : free_port(own);
    freeaddrinfo(own);
    if (!found && pl_ports().first)
        return pl_ports_fail(host, err);
    if (!found)
        return pl_fail(err, PL_EIO, "no port is free at %s: %s", host, strerror(errno));
    snprintf(at, capacity, strchr(host, ':') ? "tcp://[%s]:%d" : "tcp://%s:%d", host,
             found);
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

int pl_rendezvous_own_host(pl_lookup_t *lookup, bool listens,
                           char own[PL_RENDEZVOUS_HOST], pl_error_t *err)
{
    const struct addrinfo *found;
    const int code = pl_lookup_result(lookup, &found, err);
    if (code != PL_OK)
        return code;
    bool is_known = host_towards(found, own);
    if (is_known && listens && !strncmp(own, "127.", 4))
        is_known = host_of_interface(own);
    return is_known
               ? PL_OK
               : pl_fail(err, PL_EIO, "no route to the rendezvous: %s", strerror(errno));
}
