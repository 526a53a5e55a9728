/* endpoint.h - endpoints: which are allowed, and the files and folders of ipc sockets */
#ifndef PL_TRANSPORT_ENDPOINT_H
#define PL_TRANSPORT_ENDPOINT_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "paceline.h"

enum { PL_SOCKET_PATH = sizeof((struct sockaddr_un *)0)->sun_path };

/* The file of a listening socket; all zero: none. */
typedef struct pl_socket_path {
    char path[PL_SOCKET_PATH];
    dev_t device;
    ino_t inode;
    bool is_shut;
    int standby;                        /* listens at the path while the socket is shut */
} pl_socket_path_t;

/* PL_EINVAL: beyond this machine without encryption, or not an endpoint. */
int pl_endpoint_check(const char *endpoint, bool is_encrypted, pl_error_t *err);
/* PL_EINVAL: another process cannot find it; what: the name of the option. */
int pl_endpoint_is_public(const char *what, const char *endpoint, pl_error_t *err);
/* The host of tcp://HOST:PORT, without brackets, and its port; false: another form. */
enum { PL_HOST_TEXT = 256 };
bool pl_endpoint_split(const char *endpoint, char host[PL_HOST_TEXT], const char **port);
bool pl_host_is_number(const char *host);
/* The file of "ipc://FILE"; NULL: ZeroMQ chooses the place. */
const char *pl_endpoint_file(const char *endpoint);

/* A descriptor that listens at path, which only this user can open, or an error.  An
 * existing file stays, unless it is a socket without a listener.  PL_EINVAL: another file
 * is there; PL_EBUSY: another process listens. */
int pl_socket_path_open(pl_socket_path_t *at, const char *path, pl_error_t *err);
/* While it is shut, no new client connects, and connections stay; the file stays in
 * use. */
void pl_socket_path_shut(pl_socket_path_t *at, bool shut);
/* Removes the file, unless another process has replaced it. */
void pl_socket_path_close(pl_socket_path_t *at);

/* PL_EINVAL: other users can enter the folder of an ipc endpoint. */
int pl_socket_folder_check(const char *endpoint, pl_error_t *err);

/* Creates a folder that only this user can enter, with a path so short that a socket's
 * file fits: in TMPDIR, or in XDG_RUNTIME_DIR if it is usable, or in /tmp.  The caller
 * removes it by rmdir().  PL_EINVAL: TMPDIR is not an absolute path, or too long; PL_EIO.
 */
#define PL_SOCKET_FOLDER 88
int pl_socket_folder(char folder[PL_SOCKET_FOLDER], pl_error_t *err);

#endif
