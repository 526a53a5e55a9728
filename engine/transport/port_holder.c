/* port_holder.c - ports of this machine: the allowed range, and the process at a port
 *
 * The error for a port in use names the process that has it.  The kernel lists the inodes
 * of listening sockets, and the inodes of each process. */
#include "transport/port_holder.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

enum { LISTENS = 0x0A };                                    /* state of a socket */

/* The table has a line for each socket after the first line; 0: no listener. */
static unsigned long inode_of(const char *table, unsigned port)
{
    char line[512];
    unsigned long found = 0;
    FILE *file = fopen(table, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        unsigned at, state;
        unsigned long inode;
        if (sscanf(line, "%*d: %*[0-9A-F]:%x %*s %x %*s %*s %*s %*u %*u %lu", &at, &state,
                   &inode)
                == 3
            && at == port && state == LISTENS)
            found = inode;
    }
    if (file)
        fclose(file);
    return found;
}

static bool has_socket(const char *process, const char *wanted)
{
    char path[64], link[600], what[64];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%.20s/fd", process);
    DIR *folder = opendir(path);
    for (const struct dirent *e; folder && !found && (e = readdir(folder));) {
        snprintf(link, sizeof link, "%s/%s", path, e->d_name);
        ssize_t length = readlink(link, what, sizeof what - 1);
        what[length > 0 ? length : 0] = '\0';
        found = !strcmp(what, wanted);
    }
    if (folder)
        closedir(folder);
    return found;
}

int pl_port_holder(const char *endpoint)
{
    const char *colon = strrchr(endpoint, ':');
    const unsigned port = colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 0;
    unsigned long inode = port ? inode_of("/proc/net/tcp", port) : 0;
    if (port && !inode)
        inode = inode_of("/proc/net/tcp6", port);
    char wanted[64];
    int found = 0;
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *folder = inode ? opendir("/proc") : NULL;
    for (const struct dirent *e; folder && !found && (e = readdir(folder));)
        if (atoi(e->d_name) > 0 && has_socket(e->d_name, wanted))
            found = atoi(e->d_name);
    if (folder)
        closedir(folder);
    return found;
}

/* ---- the range ---- */

static uint32_t ports;                                      /* atomic; first and last */

int pl_ports_set(const char *range, pl_error_t *err)
{
    int first = 0, last = 0, end = -1;
    if (range && *range
        && (sscanf(range, "%5d-%5d%n", &first, &last, &end) != 2 || range[end]
            || first < 1 || last > 65535 || first > last))
        return pl_fail(err, PL_EINVAL,
                       "the port range \"%.40s\" is not FIRST-LAST with ports from 1 to "
                       "65535, such as 20000-20100",
                       range);
    __atomic_store_n(&ports, (uint32_t)first << 16 | (uint32_t)last, __ATOMIC_RELAXED);
    return PL_OK;
}

pl_ports_t pl_ports(void)
{
    const uint32_t both = __atomic_load_n(&ports, __ATOMIC_RELAXED);
    return (pl_ports_t){(int)(both >> 16), (int)(both & 0xffff)};
}

int pl_ports_fail(const char *host, pl_error_t *err)
{
    const pl_ports_t range = pl_ports();
    return pl_fail(err, PL_EBUSY,
                   "no port from %d to %d is free at %s: set a larger port range, or end "
                   "the programs that listen there",
                   range.first, range.last, host);
}
