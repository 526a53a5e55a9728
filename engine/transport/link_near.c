/* link_near.c - the process at the other end of a link, when it is one of this machine
 *
 * Both sides send their place when they join: boot, namespace of processes, number, and
 * start time, because numbers are used again.  If the place is visible from here, the
 * process is watched, and its death is known as soon as the kernel knows it.  Otherwise
 * only the connection shows it. */
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/timeouts.h"
#include "transport/link_parts.h"

enum { PLACE_PARTS = 4, START_FIELD = 22, STAT = 1024 };

/* ---- places ---- */

/* The first line of a file; false: it cannot be read. */
static bool line_of(const char *path, char *text, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, capacity - 1);
    if (fd >= 0)
        close(fd);
    text[size > 0 ? size : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return size > 0;
}

/* Ticks after the boot; 0: unknown.  A name may have any characters, also brackets. */
static unsigned long long start_of(int process)
{
    char path[64], text[STAT];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    if (!line_of(path, text, sizeof text))
        return 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < START_FIELD; field++)
        at = strchr(at + 1, ' ');
    unsigned long long start = 0;
    return at && sscanf(at, "%llu", &start) == 1 ? start : 0;
}

const char *link_place(char text[LINK_PLACE])
{
    char boot[40], space[40];
    const ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    const unsigned long long start = start_of(getpid());
    text[0] = '\0';
    if (length <= 0 || !start
        || !line_of("/proc/sys/kernel/random/boot_id", boot, sizeof boot))
        return text;
    space[length] = '\0';
    snprintf(text, LINK_PLACE, "%s %s %d %llu", boot, space, (int)getpid(), start);
    return text;
}

/* ---- deaths ---- */

static void died(pl_link_t *link, link_peer_t *peer)
{
    if (!peer->died)
        peer->died = pl_now();
    if (link->is_host)
        host_probe(link);
    else
        link_soon(link, 0);
}

void pl_link_died(pl_link_t *link, int number)
{
    link_peer_t *peer = link_peer_of(link, number);
    if (peer)
        died(link, peer);
}

/* Messages sent before its death are received first: the connection ends behind them. */
bool link_bury(pl_link_t *link, link_peer_t *peer, int64_t now)
{
    bool is_received = peer->state == PL_LINK_IS_THERE
                       && now - peer->died < PL_LINK_DRAIN_MS * PL_MILLISECOND;
    if (!peer->died || is_received || peer->state >= PL_LINK_HAS_LEFT)
        return true;
    if (link->is_host)
        return link_end(link, peer, PL_LINK_GONE, "its process has died");
    return link_end(link, peer, PL_LINK_GONE, "%s's process has died", link->spec.host);
}

/* ---- watching ---- */

static void ended(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    link_peer_t *peer = user;
    died(peer->link, peer);
}

/* A process number may be used again, so the start time is compared after the process is
 * open; from then on the descriptor names this process for good. */
void link_near_watch(pl_link_t *link, link_peer_t *peer, const char *place)
{
    char own[LINK_PLACE], boot[2][40], space[2][40];
    unsigned long long since, start;
    int process, self;
    if (!link->spec.watches || !place || peer->watch
        || sscanf(link_place(own), "%39s %39s %d %llu", boot[0], space[0], &self, &since)
               != PLACE_PARTS
        || sscanf(place, "%39s %39s %d %llu", boot[1], space[1], &process, &start)
               != PLACE_PARTS)
        return;
    if (strcmp(boot[0], boot[1]) != 0 || strcmp(space[0], space[1]) != 0 || process <= 0
        || process == self || pl_descriptors_check(1, "a process", NULL) != PL_OK)
        return;
    const int fd = (int)syscall(SYS_pidfd_open, process, 0);
    if (fd < 0)
        return;
    if (start_of(process) == start) {
        peer->link = link;
        peer->watch = event_new(link->loop->base, fd, EV_READ, ended, peer);
    }
    if (peer->watch)
        event_add(peer->watch, NULL);
    else
        close(fd);
}

void link_near_end(link_peer_t *peer)
{
    if (!peer->watch)
        return;
    close(event_get_fd(peer->watch));
    event_free(peer->watch);
    peer->watch = NULL;
}
