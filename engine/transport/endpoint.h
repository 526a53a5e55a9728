/* endpoint.h - where sockets may listen, and the file of one that listens at a file */
#ifndef PL_TRANSPORT_ENDPOINT_H
#define PL_TRANSPORT_ENDPOINT_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "paceline.h"

enum { PL_SOCKET_PATH = sizeof((struct sockaddr_un *)0)->sun_path };

/* A file that is listened at; all zero: none. */
typedef struct pl_socket_path {
    char path[PL_SOCKET_PATH];
    dev_t device;
    ino_t inode;
    bool is_shut;
    int standby;                        /* listens at the path while the socket is shut */
} pl_socket_path_t;

/* PL_EINVAL: beyond this machine and not encrypted, or no endpoint at all. */
int pl_endpoint_check(const char *endpoint, bool is_encrypted, pl_error_t *err);
/* PL_EINVAL: none that another process can find; what: the name of the option. */
int pl_endpoint_is_public(const char *what, const char *endpoint, pl_error_t *err);
/* The host of tcp://HOST:PORT, without brackets, and its port; false: it is none. */
enum { PL_HOST_TEXT = 256 };
bool pl_endpoint_split(const char *endpoint, char host[PL_HOST_TEXT], const char **port);
bool pl_host_is_number(const char *host);
/* The file of "ipc://FILE"; NULL for others, which ZeroMQ finds a place for. */
const char *pl_endpoint_file(const char *endpoint);

/* A descriptor that listens at path, which only this user can open, or an error.  What
 * lies there stays, unless it is a socket that nobody listens at any more.  PL_EINVAL:
 * something else lies there; PL_EBUSY: somebody listens. */
int pl_socket_path_open(pl_socket_path_t *at, const char *path, pl_error_t *err);
/* While it is shut nobody new gets in and who did stays; the file is in use as before. */
void pl_socket_path_shut(pl_socket_path_t *at, bool shut);
/* Takes the file away, unless it is another's by now. */
void pl_socket_path_close(pl_socket_path_t *at);

/* PL_OK: the folder of an endpoint that is a file is closed to others. */
int pl_socket_folder_check(const char *endpoint, pl_error_t *err);

/* A new folder that only this user can enter, with a path so short that a socket's file
 * fits, in TMPDIR; else, where it will do, in XDG_RUNTIME_DIR; else in /tmp; to be
 * removed by rmdir().  PL_EINVAL: TMPDIR is no whole path, or too long; PL_EIO. */
#define PL_SOCKET_FOLDER 88
int pl_socket_folder(char folder[PL_SOCKET_FOLDER], pl_error_t *err);

#endif
