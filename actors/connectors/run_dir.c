/* run_dir.c - a folder of its own for each run
 *
 * mkdir() either makes a folder or says that somebody has it: so two runs that start at
 * once, in one process or many, get two. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/connectors/checkpoint_io.h"
#include "actors/connectors/writer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "formats/durable.h"

#define DIGITS_MAX 9
#define ATTEMPTS 10000                                   /* other runs starting at once */
#define LATEST_PREFIX ".latest-"                         /* and the run's name */

static int fail_folder(const char *path, pl_error_t *err)
{
    switch (errno) {
    case EROFS:
        return pl_fail(err, PL_EIO,
                       "%s: cannot create the directory, because its file system is "
                       "read-only: set another trainer.default_root_dir",
                       path);
    case EACCES:
    case EPERM:
        return pl_fail(err, PL_EIO,
                       "%s: no permission to create the directory: set another "
                       "trainer.default_root_dir",
                       path);
    case ENOTDIR:
    case EEXIST:
        return pl_fail(err, PL_EEXIST,
                       "%s: a file has the name of the directory: set another "
                       "trainer.default_root_dir",
                       path);
    default: return pl_fail(err, PL_EIO, "%s: cannot create the directory: %m", path);
    }
}

/* ---- The root ---- */

static int folder_ensure(const char *path, pl_error_t *err)
{
    struct stat what;
    if (mkdir(path, 0777) == 0)
        return PL_OK;
    int reason = errno;
    if (stat(path, &what) == 0 && S_ISDIR(what.st_mode))
        return PL_OK;
    errno = reason;
    return fail_folder(path, err);
}

/* As mkdir -p; path is changed on the way and whole again afterwards. */
static int folders_ensure(char *path, pl_error_t *err)
{
    int code = PL_OK;
    for (char *slash = path + 1; code == PL_OK && (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        code = folder_ensure(path, err);
        *slash = '/';
    }
    return code == PL_OK ? folder_ensure(path, err) : code;
}

/* A copy without the slashes at its end, made to be there. */
static char *root_make(const char *given, pl_error_t *err)
{
    char *root = pl_strdup(*given ? given : ".");
    if (!root) {
        pl_no_memory(err);
        return NULL;
    }
    for (size_t length = strlen(root); length > 1 && root[length - 1] == '/'; length--)
        root[length - 1] = '\0';
    if (folders_ensure(root, err) == PL_OK)
        return root;
    pl_free(root);
    return NULL;
}

/* ---- The run's own ---- */

static bool is_number(const char *name)
{
    size_t length = 0;
    while (isdigit((unsigned char)name[length]))
        length++;
    return length > 0 && length <= DIGITS_MAX && name[length] == '\0';
}

static int newest_number(const char *root, long *newest, pl_error_t *err)
{
    DIR *folder = opendir(root);
    if (!folder)
        return pl_fail(err, PL_EIO, "%s: cannot list the directory: %m", root);
    *newest = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        long number = is_number(entry->d_name) ? strtol(entry->d_name, NULL, 10) : 0;
        if (number > *newest)
            *newest = number;
    }
    closedir(folder);
    return PL_OK;
}

static char *folder_numbered(const char *root, pl_error_t *err)
{
    long newest = 0;
    if (newest_number(root, &newest, err) != PL_OK)
        return NULL;
    for (int attempt = 1; attempt <= ATTEMPTS; attempt++) {
        char *path = pl_text("%s/%04ld", root, newest + attempt);
        if (!path) {
            pl_no_memory(err);
            return NULL;
        }
        if (mkdir(path, 0777) == 0)
            return path;
        bool taken = errno == EEXIST;
        if (!taken)
            fail_folder(path, err);
        pl_free(path);
        if (!taken)
            return NULL;
    }
    pl_fail(err, PL_EBUSY, "%s: no run number is free", root);
    return NULL;
}

static int fail_taken(const char *path, pl_error_t *err)
{
    return pl_fail(err, PL_EEXIST,
                   "%s: a run of that name exists, and it is not overwritten: set "
                   "another trainer.run_name",
                   path);
}

static char *folder_named(const char *root, const char *name, pl_error_t *err)
{
    char *path = pl_text("%s/%s", root, name);
    if (!path) {
        pl_no_memory(err);
        return NULL;
    }
    if (mkdir(path, 0777) == 0)
        return path;
    if (errno == EEXIST)
        fail_taken(path, err);
    else
        fail_folder(path, err);
    pl_free(path);
    return NULL;
}

int pl_run_dir_is_free(const char *root, const char *name, pl_error_t *err)
{
    struct stat what;
    char *path = pl_text("%s/%s", *root ? root : ".", name);
    int code = path ? PL_OK : pl_no_memory(err);
    if (path && lstat(path, &what) == 0)
        code = fail_taken(path, err);
    pl_free(path);
    return code;
}

/* ---- What lies in it, and what points to it ---- */

static int run_write(const char *folder, const char *run, pl_error_t *err)
{
    char *path = pl_text("%s/run.json", folder);
    pl_durable_t file;
    if (!path)
        return pl_no_memory(err);
    int code = pl_durable_open(&file, path, err);
    if (code == PL_OK) {
        code = pl_durable_write(&file, run, strlen(run), err);
        if (code == PL_OK)
            code = pl_durable_commit(&file, err);
        else
            pl_durable_abandon(&file);
    }
    pl_free(path);
    return code;
}

/* Whether somebody trains in a folder of the root now. */
static bool is_held(int root, const char *name)
{
    int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return held;
}

/* Files on their way to become `latest`, of runs that were killed. */
static void temporaries_clear(const char *root)
{
    DIR *entries = opendir(root);
    const size_t prefix = strlen(LATEST_PREFIX);
    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        if (!strncmp(entry->d_name, LATEST_PREFIX, prefix)
            && !is_held(dirfd(entries), entry->d_name + prefix))
            unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        closedir(entries);
}

static int name_write(const char *path, const char *name)
{
    FILE *file = fopen(path, "we");
    const bool written = file && fprintf(file, "%s\n", name) > 0;
    return file && fclose(file) == 0 && written ? 0 : -1;
}

/* A file with the run's name, not a link: programs that look through the root, such as
 * TensorBoard, would find the run twice.  A run is not lost for want of one. */
int pl_run_dir_point(const char *folder, pl_error_t *err)
{
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    char *root = slash ? pl_text("%.*s", (int)(name - folder), folder) : pl_text("./");
    char *latest = root ? pl_text("%slatest", root) : NULL;
    char *temporary = root ? pl_text("%s" LATEST_PREFIX "%s", root, name) : NULL;
    int code = latest && temporary ? PL_OK : pl_no_memory(err);
    if (code == PL_OK) {
        temporaries_clear(root);
        unlink(temporary);                                /* of this run, killed before */
        if (name_write(temporary, name) != 0 || rename(temporary, latest) != 0) {
            pl_log_line(PL_LOG_WARNING, -1, "io.writer", "%s: cannot point to %s: %s",
                        latest, folder, strerrordesc_np(errno));
            unlink(temporary);
        }
    }
    pl_free(root);
    pl_free(latest);
    pl_free(temporary);
    return code;
}

/* The name of a run in a file `latest`; false: it is none. */
static bool name_read(const char *path, char name[NAME_MAX + 2])
{
    struct stat what;
    if (lstat(path, &what) != 0 || !S_ISREG(what.st_mode) || what.st_size > NAME_MAX + 1)
        return false;
    FILE *file = fopen(path, "re");
    const size_t length = file ? fread(name, 1, NAME_MAX + 1, file) : 0;
    if (file)
        fclose(file);
    name[length] = '\0';
    name[strcspn(name, "\n")] = '\0';
    return *name && !strchr(name, '/') && *name != '.';
}

char *pl_run_path(const char *path)
{
    static const char word[] = "latest";
    const size_t length = sizeof word - 1;
    char name[NAME_MAX + 2];
    char *whole = path ? pl_text("%s", path) : NULL, *at = whole;
    while (whole && (at = strstr(at, word))) {
        const bool is_name = (at == whole || at[-1] == '/')
                             && (!at[length] || at[length] == '/');
        char *file = is_name ? pl_text("%.*s", (int)(at + length - whole), whole) : NULL;
        const size_t before = (size_t)(at - whole);
        const bool found = file && name_read(file, name);
        char *changed = found ? pl_text("%.*s%s%s", (int)before, whole, name, at + length)
                              : NULL;
        pl_text_free(file);
        if (found) {
            pl_text_free(whole);
            whole = changed;
        }
        at = found && whole ? whole + before + strlen(name) : at + length;
    }
    return whole;
}

static void folder_remove(const char *folder)
{
    char *run = pl_text("%s/run.json", folder);
    if (run)
        unlink(run);
    pl_free(run);
    rmdir(folder);
}

char *pl_run_dir_make(const char *given, const char *name, const char *run,
                      pl_error_t *err)
{
    char *root = root_make(given, err);
    if (!root)
        return NULL;
    char *folder = *name ? folder_named(root, name, err) : folder_numbered(root, err);
    if (folder && run_write(folder, run, err) != PL_OK) {
        folder_remove(folder);
        pl_free(folder);
        folder = NULL;
    }
    pl_free(root);
    return folder;
}

int pl_run_dir_make_again(const char *file, pl_error_t *err)
{
    const char *slash = strrchr(file, '/');
    char *folder = pl_text("%.*s", slash ? (int)(slash - file) : 0, file);
    if (!folder)
        return pl_no_memory(err);
    int code = folders_ensure(folder, err);
    if (code == PL_OK)
        pl_log_line(PL_LOG_WARNING, -1, "io.writer",
                    "%s: the directory was removed; it is created again for the weights",
                    folder);
    pl_free(folder);
    return code;
}

/* ---- Who writes in it ---- */

/* The process that holds the lock of a file, out of lines such as
 * "3: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"; 0: unknown. */
static long holder_of(int fd)
{
    struct stat what;
    char line[256];
    long holder = 0;
    FILE *locks = fopen("/proc/locks", "re");
    while (locks && !holder && fstat(fd, &what) == 0 && fgets(line, sizeof line, locks)) {
        long pid;
        unsigned long inode;
        if (sscanf(line, "%*s FLOCK %*s WRITE %ld %*x:%*x:%lu", &pid, &inode) == 2
            && inode == what.st_ino)
            holder = pid;
    }
    if (locks)
        fclose(locks);
    return holder;
}

int pl_run_dir_hold(const char *path, int *held, pl_error_t *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), code = PL_OK;
    if (fd < 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s: %m", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        code = pl_fail(err, PL_EBUSY, "%s: process %ld is training in this directory",
                       path, holder_of(fd));
    if (code == PL_OK) {
        *held = fd;
        pl_durable_clear(path);
    } else {
        close(fd);
    }
    return code;
}

/* Tries to write an unnamed file, which leaves nothing behind; a hidden file where the
 * file system has no unnamed ones. */
static int folder_try(const char *path, pl_error_t *err)
{
    char *hidden = NULL;
    int fd = open(path, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        hidden = pl_text("%s/.writable-%ld", path, (long)getpid());
        if (!hidden)
            return pl_no_memory(err);
        fd = open(hidden, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    }
    int code = PL_OK;
    if (fd < 0)
        code = pl_fail(err, PL_EIO,
                       "%s: the resumed run writes here, but no file can be made (%m): "
                       "make the directory writable, or give another "
                       "trainer.default_root_dir",
                       path);
    if (fd >= 0 && hidden)
        unlink(hidden);
    if (fd >= 0)
        close(fd);
    pl_text_free(hidden);
    return code;
}

int pl_run_dir_is_writable(const char *path, pl_error_t *err)
{
    char *folder = pl_text("%s/" PL_CHECKPOINTS_FOLDER, path);
    int code = folder ? folder_try(path, err) : pl_no_memory(err);
    if (code == PL_OK && access(folder, F_OK) == 0)
        code = folder_try(folder, err);
    pl_text_free(folder);
    return code;
}

void pl_run_dir_let(int held)
{
    if (held > 0)
        close(held);
}

int pl_run_dir_put_aside(const char *root, const char *name, pl_error_t *err)
{
    int held = 0, code = PL_OK;
    char *path = pl_text("%s/%s", *root ? root : ".", name), *other = NULL;
    if (!path)
        return pl_no_memory(err);
    bool there = *name && access(path, F_OK) == 0;
    if (there)
        code = pl_run_dir_hold(path, &held, err);
    for (int n = 1; there && code == PL_OK && n < ATTEMPTS; n++) {
        pl_free(other);
        other = pl_text("%s.%d", path, n);
        if (!other || access(other, F_OK) != 0)
            break;
    }
    if (there && code == PL_OK && (!other || rename(path, other) != 0))
        code = other ? fail_folder(path, err) : pl_no_memory(err);
    else if (there && code == PL_OK)
        pl_log_line(PL_LOG_WARNING, -1, "io.writer", "%s has become %s", path, other);
    pl_run_dir_let(held);
    pl_free(other);
    pl_free(path);
    return code;
}
