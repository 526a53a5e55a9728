/* bootstrap.c - how the processes of a job find each other: folders of sockets, a
 * variable of the environment, and addresses
 *
 * A launcher starts its own program once more, with a variable that says which rank it
 * is.  Their sockets lie in a folder that only this user can enter.  A killed launcher
 * leaves its folder behind; the next launcher removes those whose lock is free.
 *
 * Processes that another program has started all know one address, the rendezvous.  Rank
 * zero listens there, the others connect to it, and all other sockets of a machine have
 * ports of their own on the same host. */
#include "actors/launchers/bootstrap.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/port_holder.h"

/* ---- The folder of the sockets ---- */

#define LOCK "lock"
#define NEW_LOCK "lock.new"                                 /* until it is held */

enum { YOUNG_S = 60 };                                     /* may not have its lock yet */

const char *pl_folder_path(const char *folder, pl_folder_file_t file,
                           char text[PL_FOLDER_PATH])
{
    static const char *const names[] = {"calls",          "bulk",         "stream",
                                        "calls-bulk",     "calls-stream", "run-dir-index",
                                        "finished-ranks", "run-history"};
    snprintf(text, PL_FOLDER_PATH, "ipc://%s/%s", folder, names[file]);
    return text;
}

static const char *lock_path(const char *folder, const char *name,
                             char path[PL_FOLDER_PATH])
{
    snprintf(path, PL_FOLDER_PATH, "%s/%s", folder, name);
    return path;
}

static void folder_remove(const char *folder)
{
    char path[PL_FOLDER_PATH];
    for (pl_folder_file_t file = 0; file < PL_FOLDER_FILES; file++)
        unlink(pl_folder_path(folder, file, path) + strlen("ipc://"));
    unlink(lock_path(folder, LOCK, path));
    unlink(lock_path(folder, NEW_LOCK, path));
    rmdir(folder);
}

static int folder_lock(const char *folder, const char *name, int flags)
{
    char path[PL_FOLDER_PATH];
    lock_path(folder, name, path);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Removes the folders of dead launchers beside a new folder. */
static void folders_clean(const char *beside)
{
    char root[PL_SOCKET_FOLDER], path[PL_SOCKET_FOLDER];
    const char *name = strrchr(beside, '/') + 1;
    const int prefix = 3;                                   /* "pl-" */
    struct stat there;
    snprintf(root, sizeof root, "%.*s", (int)(name - beside), beside);
    DIR *folder = opendir(root);
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        if (strncmp(e->d_name, name, prefix) || strlen(e->d_name) != strlen(name)
            || !strcmp(e->d_name, name)
            || (size_t)snprintf(path, sizeof path, "%s%s", root, e->d_name) >= sizeof path
            || lstat(path, &there) != 0 || !S_ISDIR(there.st_mode)
            || there.st_uid != geteuid() || there.st_mode & 077)
            continue;
        const int lock = folder_lock(path, LOCK, 0);
        if (lock >= 0 || (errno == ENOENT && time(NULL) - there.st_mtime > YOUNG_S))
            folder_remove(path);
        if (lock >= 0)
            close(lock);
    }
    if (folder)
        closedir(folder);
}

/* The lock gets its name only when it is held: otherwise another process would take the
 * folder for a dead launcher's. */
int pl_folder_make(char folder[PL_SOCKET_FOLDER], int *lock, pl_error_t *err)
{
    char from[PL_FOLDER_PATH], to[PL_FOLDER_PATH];
    int code = pl_socket_folder(folder, err);
    *lock = -1;
    if (code != PL_OK) {
        folder[0] = '\0';
        return code;
    }
    const int fd = folder_lock(folder, NEW_LOCK, O_CREAT | O_EXCL);
    if (fd < 0
        || rename(lock_path(folder, NEW_LOCK, from), lock_path(folder, LOCK, to)) != 0) {
        code = pl_fail(err, PL_EIO, "%s: %s", folder, strerror(errno));
        if (fd >= 0)
            close(fd);
        return code;
    }
    *lock = fd;
    folders_clean(folder);
    return PL_OK;
}

void pl_folder_remove(const char *folder, int lock)
{
    if (folder[0])
        folder_remove(folder);
    if (lock >= 0)
        close(lock);
}

/* ---- The variable ---- */

void pl_bootstrap_write(const pl_bootstrap_t *p, const char *name,
                        char text[PL_BOOTSTRAP_TEXT])
{
    snprintf(text, PL_BOOTSTRAP_TEXT,
             "%s=%d %d %" PRIu64 " %" PRIu32 " %" PRId64 " %d %d %d %s", name, p->rank,
             p->world_size, p->run, p->incarnation, p->began, p->log_level, p->grace_ms,
             p->past_runs, p->folder);
}

bool pl_bootstrap_read(const char *text, pl_bootstrap_t *p)
{
    *p = (pl_bootstrap_t){0};
    return text
           && sscanf(text, "%d %d %" SCNu64 " %" SCNu32 " %" SCNd64 " %d %d %d %87[^\n]",
                     &p->rank, &p->world_size, &p->run, &p->incarnation, &p->began,
                     &p->log_level, &p->grace_ms, &p->past_runs, p->folder)
                  == 9;
}

void pl_bootstrap_enter(const pl_bootstrap_t *bootstrap, pl_runtime_t *runtime)
{
    runtime->run = bootstrap->run;
    runtime->incarnation = bootstrap->incarnation;
    runtime->began = bootstrap->began;
    runtime->grace_ms = bootstrap->grace_ms;
    runtime->is_child = true;
}

/* A program may call this before pl_init(), which removes the variable. */
const pl_bootstrap_t *pl_bootstrap_in_script(void)
{
    static pl_bootstrap_t bootstrap;
    static int is_there = -1;                               /* not looked */
    if (is_there < 0)
        is_there = pl_bootstrap_read(getenv(PL_BOOTSTRAP_IN_SCRIPT), &bootstrap);
    return is_there ? &bootstrap : NULL;
}

/* ---- The rendezvous ---- */

static const char tcp[] = "tcp://", ipc[] = "ipc://";

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
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
    const bool has_port = pl_endpoint_split(endpoint, host, &port);
    const size_t digits = strspn(port, "0123456789");
    if (!has_port || !digits || digits > 5 || port[digits] || atoi(port) < 1
        || atoi(port) > 65535)
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

/* Other sockets take the first free port of the range.  This port is listened at only
 * later, so the search starts at the end, at a different port each time. */
static int free_port_in(pl_ports_t range, const struct addrinfo *own)
{
    const int count = range.last - range.first + 1, upper = (count + 1) / 2;
    const int skip = (int)((uint64_t)pl_now() / 1000 % (uint64_t)upper);
    struct sockaddr_storage at = {0};
    memcpy(&at, own->ai_addr, own->ai_addrlen);
    for (int k = 0; k < count; k++) {
        const int port = range.last - (k < upper ? (k + skip) % upper : k);
        if (own->ai_family == AF_INET6)
            ((struct sockaddr_in6 *)&at)->sin6_port = htons((uint16_t)port);
        else
            ((struct sockaddr_in *)&at)->sin_port = htons((uint16_t)port);
        const int fd = socket(own->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool is_free = fd >= 0
                             && bind(fd, (struct sockaddr *)&at, own->ai_addrlen) == 0;
        if (fd >= 0)
            close(fd);
        if (is_free)
            return port;
    }
    return 0;
}

/* The kernel assigns such ports in turn, so no other process gets this one soon. */
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

/* ---- The address of this machine ---- */

static void host_text(const struct sockaddr *address, socklen_t size,
                      char host[PL_RENDEZVOUS_HOST])
{
    if (getnameinfo(address, size, host, PL_RENDEZVOUS_HOST, NULL, 0, NI_NUMERICHOST))
        snprintf(host, PL_RENDEZVOUS_HOST, "127.0.0.1");
}

/* Many hosts resolve their own name to a loopback address. */
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

/* The address of the interface by which packets go there; no packet is sent. */
int pl_rendezvous_own_host(pl_lookup_t *lookup, bool listens,
                           char own[PL_RENDEZVOUS_HOST], pl_error_t *err)
{
    const struct addrinfo *found;
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    const int code = pl_lookup_result(lookup, &found, err);
    if (code != PL_OK)
        return code;
    const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_known = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0
                    && getsockname(fd, (struct sockaddr *)&bound, &size) == 0;
    if (is_known)
        host_text((const struct sockaddr *)&bound, size, own);
    const int why = errno;
    if (fd >= 0)
        close(fd);
    if (is_known && listens && !strncmp(own, "127.", 4))
        is_known = host_of_interface(own);
    return is_known
               ? PL_OK
               : pl_fail(err, PL_EIO, "no route to the rendezvous: %s", strerror(why));
}

/* ---- Lists of nodes ---- */

/* Reads "01-10" or "12" at *at, and moves *at behind it. */
static bool range_read(const char **at, long *first, long *last, int *digits)
{
    char *end;
    *digits = (int)strspn(*at, "0123456789");
    if (!*digits || *digits > 9)
        return false;
    *first = *last = strtol(*at, &end, 10);
    size_t more = *end == '-' ? strspn(end + 1, "0123456789") : 0;
    if (*end == '-' && (!more || more > 9))
        return false;
    if (more)
        *last = strtol(end + 1, &end, 10);
    *at = end;
    return *last >= *first;
}

/* The k-th of "n[01-10,12]suffix".  If there are fewer, *k is reduced by their number. */
static int part_get(const char *part, const char *end, long *k, char *host,
                    size_t capacity)
{
    const char *open = memchr(part, '[', (size_t)(end - part));
    if (!open) {
        if ((*k)-- == 0)
            return snprintf(host, capacity, "%.*s", (int)(end - part), part)
                   < (int)capacity;
        return 0;
    }
    const char *close = memchr(open, ']', (size_t)(end - open)), *at = open + 1;
    while (close && at < close) {
        long first, last;
        int digits;
        if (!range_read(&at, &first, &last, &digits) || at > close)
            return -1;
        if (*k <= last - first)
            return snprintf(host, capacity, "%.*s%0*ld%.*s", (int)(open - part), part,
                            digits, first + *k, (int)(end - close - 1), close + 1)
                   < (int)capacity;
        *k -= last - first + 1;
        if (*at == ',')
            at++;
        else if (at != close)
            return -1;
    }
    return close ? 0 : -1;
}

int pl_node_list_get(const char *list, int k, char *host, size_t capacity,
                     pl_error_t *err)
{
    long left = k;
    for (const char *part = list, *end; *part; part = *end ? end + 1 : end) {
        int depth = 0;                  /* the part ends at a comma outside of brackets */
        for (end = part; *end && (depth || *end != ','); end++)
            depth += *end == '[' ? 1 : *end == ']' ? -1 : 0;
        int found = end > part ? part_get(part, end, &left, host, capacity) : -1;
        if (found > 0)
            return PL_OK;
        if (found < 0 || left < 0)
            return pl_fail(err, PL_EINVAL,
                           "\"%.100s\" is not a list of nodes, such as n[01-10,12]",
                           list);
    }
    return pl_fail(err, PL_EINVAL, "the list of nodes \"%.100s\" has fewer than %d nodes",
                   list, k + 1);
}
