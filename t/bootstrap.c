/* bootstrap.c - tests of actors/launchers/bootstrap.c: where folders are, and that they
 * are removed when their process is gone, and not before */
#include "actors/launchers/bootstrap.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"

typedef struct made {
    char path[PL_SOCKET_FOLDER];
    int lock;
} made_t;

/* Another process makes a folder at the very moment when a lock is to be taken. */
static made_t *other;
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
    made_t *now = other;
    other = NULL;
    if (now)
        pl_folder_make(now->path, &now->lock, NULL);
    return __real_flock(fd, operation);
}

static int folders_there(void)
{
    int count = 0;
    DIR *folder = opendir(tap_folder());
    for (const struct dirent *e; folder && (e = readdir(folder));)
        count += !strncmp(e->d_name, "pl-", 3);
    if (folder)
        closedir(folder);
    return count;
}

static void two_folders_made_at_once_both_stay(void)
{
    made_t first, second;
    other = &second;
    is_int(pl_folder_make(first.path, &first.lock, NULL), PL_OK,
           "one, and another at the same time");
    ok(access(first.path, W_OK) == 0, "the first is there");
    ok(access(second.path, W_OK) == 0, "the second is there");
    pl_folder_remove(first.path, first.lock);
    pl_folder_remove(second.path, second.lock);
    is_int(folders_there(), 0, "until they are removed");
}

static void a_folder_whose_process_is_dead_is_removed(void)
{
    made_t dead, living;
    pl_folder_make(dead.path, &dead.lock, NULL);
    close(dead.lock);
    pl_folder_make(living.path, &living.lock, NULL);
    ok(access(dead.path, F_OK) != 0, "by the next");
    pl_folder_remove(living.path, living.lock);
    is_int(folders_there(), 0, "and none is left");
}

/* A folder of so long a path. */
static void deep(char path[256], size_t length)
{
    size_t at = (size_t)snprintf(path, 256, "%s/", tap_folder());
    memset(path + at, 'd', length - at);
    path[length] = '\0';
    mkdir(path, 0700);
}

static void made_in(const char *where, const char *what)
{
    char root[256];
    made_t made;
    pl_error_t err = {0};
    is_int(pl_folder_make(made.path, &made.lock, &err), PL_OK, "%s %s", what, err.text);
    snprintf(root, sizeof root, "%.*s", (int)(strrchr(made.path, '/') - made.path),
             made.path);
    is_text(root, where, "there");
    pl_folder_remove(made.path, made.lock);
}

static void made_nowhere(const char *where, int code, const char *why)
{
    made_t made;
    pl_error_t err = {0};
    setenv("TMPDIR", where, 1);
    is_int(pl_folder_make(made.path, &made.lock, &err), code, "%s", err.text);
    like(err.text, why, "is refused with what to do");
    pl_folder_remove(made.path, made.lock);
}

static void a_folder_is_made_where_the_user_says(void)
{
    enum { MAX = PL_SOCKET_FOLDER - 11, SOCKET = 108, BESIDE = 5 };
    char longest[256], too_long[256], text[PL_FOLDER_PATH];
    deep(longest, MAX);
    deep(too_long, MAX + 1);
    setenv("TMPDIR", longest, 1);
    setenv("XDG_RUNTIME_DIR", tap_folder(), 1);
    made_in(longest, "in TMPDIR");
    char made[PL_SOCKET_FOLDER];
    memcpy(made, longest, MAX + 1);
    strcat(made, "/pl-123456");
    for (pl_folder_file_t file = 0; file < PL_FOLDER_FILES; file++)
        if (strlen(pl_folder_path(made, file, text)) - 6 + BESIDE >= SOCKET
            || strlen(text) + 1 >= sizeof text)
            ok(false, "%s is no path of a socket", text);
    unsetenv("TMPDIR");
    made_in(tap_folder(), "else in XDG_RUNTIME_DIR");
    setenv("XDG_RUNTIME_DIR", too_long, 1);
    made_in("/tmp", "where that will not do in /tmp");
    made_nowhere(too_long, PL_EINVAL, "TMPDIR is /.*dd, which has 78 bytes.*a shorter");
    made_nowhere("folder", PL_EINVAL, "TMPDIR is \"folder\": .* absolute path");
    made_nowhere("/no/such", PL_EIO, "in /no/such: No such file.*set TMPDIR");
    setenv("TMPDIR", tap_folder(), 1);
}

int main(void)
{
    setenv("TMPDIR", tap_folder(), 1);
    run(two_folders_made_at_once_both_stay);
    run(a_folder_whose_process_is_dead_is_removed);
    run(a_folder_is_made_where_the_user_says);
    return tap_done();
}
