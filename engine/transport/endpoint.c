/* endpoint.c - endpoints: which are allowed, and the files and folders of ipc sockets
 *
 * ZeroMQ would remove any file at the path of an ipc endpoint, such as a user's data or
 * the socket of another run, and would leave its own file there at the end.  So this file
 * creates the socket by bind(2), which refuses an existing name, and passes ZeroMQ the
 * descriptor. */
#include "transport/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

#define BESIDE \
    ".full"                                 /* where the socket is while another is at its
                                               place */

enum { BACKLOG = 128, LOCK_TRIES = 100, LOCK_WAIT_US = 10000 };

/* ---- what is an endpoint ---- */

static bool is_loopback(const char *host, size_t length)
{
    char text[64];
    struct in_addr address;
    if (length == 5 && !strncmp(host, "[::1]", 5))
        return true;
    if (length >= sizeof text)
        return false;
    memcpy(text, host, length);
    text[length] = '\0';
    return inet_pton(AF_INET, text, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

/* Connections without encryption and authentication stay on this machine. */
int pl_endpoint_check(const char *endpoint, bool is_encrypted, pl_error_t *err)
{
    if (!strncmp(endpoint, "ipc://@", 7))
        return pl_fail(err, PL_EINVAL,
                       "\"%s\" is not a path: write ipc://./%s for a file of that name",
                       endpoint, endpoint + 6);
    if (!strncmp(endpoint, "inproc://", 9) || !strncmp(endpoint, "ipc://", 6))
        return PL_OK;
    const char *host = strncmp(endpoint, "tcp://", 6) ? "" : endpoint + 6,
               *colon = strrchr(host, ':');
    bool may_leave = colon && colon > host && is_encrypted && !strpbrk(host, "@;/ ");
    if (!may_leave && (!colon || !is_loopback(host, (size_t)(colon - host))))
        return pl_fail(err, PL_EINVAL,
                       is_encrypted ? "\"%s\" is no address to listen at: write "
                                      "ipc://FILE or tcp://HOST:PORT"
                                    : "\"%s\" is no address of this machine to listen "
                                      "at: write ipc://FILE or tcp://127.0.0.1:PORT",
                       endpoint);
    const char *port = colon + 1;
    const size_t digits = strspn(port, "0123456789");
    if (strcmp(port, "*") != 0
        && (!digits || digits > 5 || port[digits] || atoi(port) > 65535))
        return pl_fail(err, PL_EINVAL,
                       "\"%s\": a port is a number up to 65535, or * for any", endpoint);
    return PL_OK;
}

int pl_endpoint_is_public(const char *what, const char *endpoint, pl_error_t *err)
{
    if (!strncmp(endpoint, "ipc://", 6) || !strncmp(endpoint, "tcp://", 6))
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "%s: \"%s\" is no address to listen at: write ipc://FILE or "
                   "tcp://127.0.0.1:PORT (\"*\" for any port)",
                   what, endpoint);
}

bool pl_endpoint_split(const char *endpoint, char host[PL_HOST_TEXT], const char **port)
{
    static const char tcp[] = "tcp://";
    const char *at = endpoint + strlen(tcp);
    if (strncmp(endpoint, tcp, strlen(tcp)) != 0)
        return false;
    const char *colon = strrchr(at, ':');
    const size_t length = colon ? (size_t)(colon - at) : 0;
    const bool is_v6 = length > 2 && at[0] == '[' && at[length - 1] == ']';
    if (!length || length >= PL_HOST_TEXT)
        return false;
    snprintf(host, PL_HOST_TEXT, "%.*s", (int)(length - 2 * is_v6), at + is_v6);
    *port = colon + 1;
    return true;
}

bool pl_host_is_number(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1
           || inet_pton(AF_INET6, host, &address) == 1;
}

/* ZeroMQ makes a new file in a new folder for "*". */
const char *pl_endpoint_file(const char *endpoint)
{
    return strncmp(endpoint, "ipc://", 6) || !strcmp(endpoint, "ipc://*") ? NULL
                                                                          : endpoint + 6;
}

/* ---- files ---- */

/* Two processes may find the same stale file.  The second must not remove the file with
 * which the first one replaced it, so one process at a time opens a socket in a folder.
 * Some network file systems have no such lock; there it is done without. */
static int folder_lock(const char *path)
{
    char folder[PL_SOCKET_PATH + 1];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int k = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK
                    && k < LOCK_TRIES;
         k++)
        usleep(LOCK_WAIT_US);
    return fd;
}

/* PL_OK: no process listens at this socket any more. */
static int holder_check(const struct sockaddr_un *address, pl_error_t *err)
{
    struct ucred holder = {0};
    socklen_t size = sizeof holder;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return pl_fail(err, PL_EBUSY, "ipc://%s: %s", address->sun_path, strerror(errno));
    int failed = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0
                     ? errno
                     : 0;
    if (!failed)
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &holder, &size);
    close(fd);
    if (failed == ECONNREFUSED)
        return PL_OK;
    if (holder.pid > 0)
        return pl_fail(err, PL_EBUSY,
                       "ipc://%s is in use by process %d: choose another file, or end "
                       "that one first",
                       address->sun_path, (int)holder.pid);
    return pl_fail(err, PL_EBUSY,
                   "ipc://%s is in use by another process: choose another file",
                   address->sun_path);
}

/* Removes the file if it is a stale socket, and nothing else. */
static int stale_socket_remove(const struct sockaddr_un *address, pl_error_t *err)
{
    struct stat there;
    if (lstat(address->sun_path, &there) != 0)
        return errno == ENOENT ? PL_OK
                               : pl_fail(err, PL_EIO, "cannot examine %s: %s",
                                         address->sun_path, strerror(errno));
    if (!S_ISSOCK(there.st_mode))
        return pl_fail(err, PL_EINVAL,
                       "ipc://%s: something else than a socket lies there, and stays: "
                       "choose a file that "
                       "is not there yet",
                       address->sun_path);
    int code = holder_check(address, err);
    if (code == PL_OK && unlink(address->sun_path) != 0 && errno != ENOENT)
        code = pl_fail(err, PL_EIO, "cannot replace ipc://%s: %s", address->sun_path,
                       strerror(errno));
    return code;
}

int pl_socket_path_open(pl_socket_path_t *at, const char *path, pl_error_t *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat made;
    size_t length = strlen(path);
    if (!length || length + sizeof BESIDE > PL_SOCKET_PATH)
        return pl_fail(err, PL_EINVAL,
                       "\"ipc://%s\": the path of a socket has 1 to %zu bytes: write "
                       "ipc://FILE with a shorter path, such as one in /tmp",
                       path, PL_SOCKET_PATH - sizeof BESIDE);
    memcpy(address.sun_path, path, length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return pl_fail(err, PL_EBUSY, "cannot listen on ipc://%s: %s", path,
                       strerror(errno));
    const int lock = folder_lock(path);
    const struct sockaddr *name = (const struct sockaddr *)&address;
    int code = PL_OK;
    fchmod(fd, 0600);                                 /* which the file gets at bind(2) */
    int failed = bind(fd, name, sizeof address);
    if (failed && errno == EADDRINUSE) {
        code = stale_socket_remove(&address, err);
        failed = code == PL_OK && bind(fd, name, sizeof address) != 0;
    }
    if (code == PL_OK && (failed || listen(fd, BACKLOG) != 0))
        code = pl_fail(err, PL_EIO, "cannot listen on ipc://%s: %s", path,
                       strerror(errno));
    if (code == PL_OK && lstat(path, &made) == 0) {
        memcpy(at->path, address.sun_path, sizeof at->path);
        at->device = made.st_dev;
        at->inode = made.st_ino;
    }
    if (lock >= 0)
        close(lock);
    if (code == PL_OK)
        return fd;
    close(fd);
    return code;
}

static bool is_ours(const pl_socket_path_t *at, const char *path)
{
    struct stat there;
    return lstat(path, &there) == 0 && there.st_dev == at->device
           && there.st_ino == at->inode;
}

/* While it is shut, a socket that accepts nothing is at the path, so that other processes
 * still find the path in use; the real one lies beside it. */
void pl_socket_path_shut(pl_socket_path_t *at, bool shut)
{
    struct sockaddr_un beside = {.sun_family = AF_UNIX};
    if (!at->path[0] || shut == at->is_shut)
        return;
    snprintf(beside.sun_path, sizeof beside.sun_path, "%.*s" BESIDE,
             (int)(PL_SOCKET_PATH - sizeof BESIDE), at->path);
    if (!shut) {
        if (is_ours(at, beside.sun_path))
            rename(beside.sun_path, at->path);
        close(at->standby);
        at->is_shut = false;
        return;
    }
    at->standby = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (at->standby < 0)
        return;
    unlink(beside.sun_path);
    if (bind(at->standby, (struct sockaddr *)&beside, sizeof beside) == 0) {
        at->is_shut = listen(at->standby, 0) == 0 && is_ours(at, at->path)
                      && renameat2(AT_FDCWD, at->path, AT_FDCWD, beside.sun_path,
                                   RENAME_EXCHANGE)
                             == 0;
        if (!at->is_shut)
            unlink(beside.sun_path);
    }
    if (!at->is_shut)
        close(at->standby);
}

void pl_socket_path_close(pl_socket_path_t *at)
{
    pl_socket_path_shut(at, false);
    if (at->path[0] && is_ours(at, at->path))
        unlink(at->path);
    at->path[0] = '\0';
}

/* ---- folders ---- */

#define FOLDER "/pl-XXXXXX"

/* A socket's file must lie where no other user can replace it. */
int pl_socket_folder_check(const char *endpoint, pl_error_t *err)
{
    const char *file = pl_endpoint_file(endpoint);
    const char *slash = file ? strrchr(file, '/') : NULL;
    char folder[PL_SOCKET_PATH];
    struct stat there;
    if (!file)
        return !strncmp(endpoint, "tcp://", 6)
                   ? PL_OK
                   : pl_fail(err, PL_EINVAL, "\"%s\": ipc://FILE or tcp://HOST:PORT",
                             endpoint);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - file) + 1 : 1,
             slash ? file : ".");
    if (stat(folder, &there) != 0)
        return pl_fail(err, PL_ENOTFOUND, "%s: %s", folder, strerror(errno));
    if (there.st_uid == geteuid() && !(there.st_mode & 077))
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "%s must belong to this user and be closed to others (chmod 700)",
                   folder);
}

int pl_socket_folder(char folder[PL_SOCKET_FOLDER], pl_error_t *err)
{
    /* TMPDIR, or the folder of the session if it exists and its path is short, or
     * /tmp. */
    static const size_t max = PL_SOCKET_FOLDER - sizeof FOLDER;
    const char *tmpdir = getenv("TMPDIR"), *own = getenv("XDG_RUNTIME_DIR");
    const bool own_will_do = own && *own == '/' && strlen(own) <= max
                             && access(own, W_OK) == 0;
    const char *root = tmpdir && *tmpdir ? tmpdir : own_will_do ? own : "/tmp";
    if (*root != '/')
        return pl_fail(err, PL_EINVAL, "TMPDIR is \"%s\": set it to an absolute path",
                       root);
    if (strlen(root) > max)
        return pl_fail(err, PL_EINVAL,
                       "TMPDIR is %s, which has %zu bytes: sockets lie there, and their "
                       "paths leave %zu for it: set TMPDIR to a shorter one",
                       root, strlen(root), max);
    snprintf(folder, PL_SOCKET_FOLDER, "%s" FOLDER, root);
    if (mkdtemp(folder))
        return PL_OK;
    return pl_fail(err, PL_EIO,
                   "cannot create a folder for sockets in %s: %s: set TMPDIR to one that "
                   "this user may write to",
                   root, strerror(errno));
}
