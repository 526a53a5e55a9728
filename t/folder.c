/* folder.c - tests of actors/launchers/folder.c: folders that are cleared away when
 * nobody has them any more, and not before */
#include "actors/launchers/folder.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tap.h"

typedef struct made {
    char path[PL_LINK_FOLDER];
    int lock;
} made_t;

/* Somebody else makes one at the very moment when a lock is to be taken. */
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

static void two_that_are_made_at_once_both_stay(void)
{
    made_t first, second;
    other = &second;
    is_int(pl_folder_make(first.path, &first.lock, NULL), PL_OK,
           "one, and another meanwhile");
    ok(access(first.path, W_OK) == 0, "the first is there");
    ok(access(second.path, W_OK) == 0, "the second is there");
    pl_folder_remove(first.path, first.lock);
    pl_folder_remove(second.path, second.lock);
    is_int(folders_there(), 0, "until they are removed");
}

static void one_whose_owner_is_dead_is_cleared_away(void)
{
    made_t dead, living;
    pl_folder_make(dead.path, &dead.lock, NULL);
    close(dead.lock);
    pl_folder_make(living.path, &living.lock, NULL);
    ok(access(dead.path, F_OK) != 0, "by the next");
    pl_folder_remove(living.path, living.lock);
    is_int(folders_there(), 0, "and none is left");
}

int main(void)
{
    setenv("XDG_RUNTIME_DIR", tap_folder(), 1);
    run(two_that_are_made_at_once_both_stay);
    run(one_whose_owner_is_dead_is_cleared_away);
    return tap_done();
}
