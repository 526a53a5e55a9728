/* link_folder.c - the folders that the files of links' sockets lie in */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "runtime/endpoint.h"
#include "runtime/link_parts.h"

#define FOLDER "/pl-XXXXXX"

/* A socket's file must lie where nobody else can put another in its place. */
int link_folder_check(const char *endpoint, pl_error_t *err)
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

/* Where the user wants it, else in the session's, which may be gone or far down. */
static int folder_root(const char **root, pl_error_t *err)
{
    static const size_t max = PL_LINK_FOLDER - sizeof FOLDER;
    const char *tmpdir = getenv("TMPDIR"), *own = getenv("XDG_RUNTIME_DIR");
    const bool own_will_do = own && *own == '/' && strlen(own) <= max
                             && access(own, W_OK) == 0;
    *root = tmpdir && *tmpdir ? tmpdir : own_will_do ? own : "/tmp";
    if (**root != '/')
        return pl_fail(err, PL_EINVAL, "TMPDIR is \"%s\": set it to an absolute path",
                       *root);
    if (strlen(*root) > max)
        return pl_fail(err, PL_EINVAL,
                       "TMPDIR is %s, which has %zu bytes: sockets lie there, and their "
                       "paths leave %zu for it: set TMPDIR to a shorter one",
                       *root, strlen(*root), max);
    return PL_OK;
}

int pl_link_folder(char folder[PL_LINK_FOLDER], pl_error_t *err)
{
    const char *root;
    int code = folder_root(&root, err);
    if (code != PL_OK)
        return code;
    snprintf(folder, PL_LINK_FOLDER, "%s" FOLDER, root);
    if (mkdtemp(folder))
        return PL_OK;
    return pl_fail(err, PL_EIO,
                   "cannot create a folder for sockets in %s: %s: set TMPDIR to one that "
                   "this user may write to",
                   root, strerror(errno));
}
