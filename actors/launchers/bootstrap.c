/* bootstrap.c - how the process of a rank finds its launcher
 *
 * The launcher starts its own program once more, with a variable of the environment that
 * says which rank it is.  Their sockets lie in a folder that only this user can enter.
 * A killed launcher leaves its folder behind; the next launcher removes those whose
 * lock is free. */
#include "actors/launchers/bootstrap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

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

/* The lock appears only when it is held: another process would take the folder for a
 * dead launcher's. */
static int folder_lock_new(const char *folder)
{
    char from[PL_FOLDER_PATH], to[PL_FOLDER_PATH];
    const int fd = folder_lock(folder, NEW_LOCK, O_CREAT | O_EXCL);
    if (fd < 0
        || rename(lock_path(folder, NEW_LOCK, from), lock_path(folder, LOCK, to)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Removes the folder of a dead launcher. */
static void folder_look_at(const char *folder)
{
    struct stat there;
    if (lstat(folder, &there) != 0 || !S_ISDIR(there.st_mode) || there.st_uid != geteuid()
        || there.st_mode & 077)
        return;
    int lock = folder_lock(folder, LOCK, 0);
    if (lock >= 0 || (errno == ENOENT && time(NULL) - there.st_mtime > YOUNG_S))
        folder_remove(folder);
    if (lock >= 0)
        close(lock);
}

/* Beside a new folder. */
static void folders_clean(const char *beside)
{
    char root[PL_SOCKET_FOLDER], path[PL_SOCKET_FOLDER];
    const char *name = strrchr(beside, '/') + 1;
    const int prefix = 3;                                   /* "pl-" */
    snprintf(root, sizeof root, "%.*s", (int)(name - beside), beside);
    DIR *folder = opendir(root);
    for (const struct dirent *e; folder && (e = readdir(folder));)
        if (!strncmp(e->d_name, name, prefix) && strlen(e->d_name) == strlen(name)
            && strcmp(e->d_name, name)
            && (size_t)snprintf(path, sizeof path, "%s%s", root, e->d_name) < sizeof path)
            folder_look_at(path);
    if (folder)
        closedir(folder);
}

int pl_folder_make(char folder[PL_SOCKET_FOLDER], int *lock, pl_error_t *err)
{
    int code = pl_socket_folder(folder, err);
    *lock = -1;
    if (code != PL_OK) {
        folder[0] = '\0';
        return code;
    }
    *lock = folder_lock_new(folder);
    if (*lock < 0)
        return pl_fail(err, PL_EIO, "%s: %s", folder, strerror(errno));
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

/* A program may ask before it calls pl_init(), which takes it from the environment. */
const pl_bootstrap_t *pl_bootstrap_in_script(void)
{
    static pl_bootstrap_t bootstrap;
    static int is_there = -1;                               /* not looked */
    if (is_there < 0)
        is_there = pl_bootstrap_read(getenv(PL_BOOTSTRAP_IN_SCRIPT), &bootstrap);
    return is_there ? &bootstrap : NULL;
}
