/* run_dir.c - run directories: names, locks, `latest`
 *
 * mkdir() makes a folder or fails because it exists: so two runs that start at the same
 * time, in one process or many, get two folders. */
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
#include "base/json_text.h"
#include "base/log.h"
#include "formats/durable.h"

#define DIGITS_MAX 9
#define ATTEMPTS 10000                                   /* other runs starting at once */
#define LATEST_PREFIX ".latest-"                         /* then the run's name */

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

/* ---- Options ---- */

int pl_run_options(const char *options, char **run_dir_p, json_t **data_p,
                   pl_error_t *err)
{
    if (!*options)
        return PL_OK;
    json_t *given = pl_json_read(options, strlen(options), "options", err);
    if (!given)
        return err->code;
    const char *run_dir = json_string_value(json_object_get(given, "run_dir"));
    char *copy = run_dir ? pl_strdup(run_dir) : NULL;
    int code = run_dir && !copy ? pl_no_memory(err) : PL_OK;
    *run_dir_p = copy;
    if (data_p)
        *data_p = json_incref(json_object_get(given, "data"));
    json_decref(given);
    return code;
}

char *pl_run_options_text(const char *run_dir, const char *data, pl_error_t *err)
{
    json_t *content = data && *data ? pl_json_value(data, strlen(data), NULL) : NULL;
    json_t *given = json_pack("{s:s, s:o*}", "run_dir", run_dir, "data", content);
    char *text = given ? pl_json_write(given, PL_JSON_COMPACT) : NULL;
    json_decref(given);
    if (!text)
        pl_no_memory(err);
    return text;
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

/* Like mkdir -p; path is changed during the call, and restored. */
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

/* ---- The folder of a run ---- */

static char *folder_numbered(const char *root, pl_error_t *err)
{
    long newest = 0;
    DIR *entries = opendir(root);
    if (!entries) {
        pl_fail(err, PL_EIO, "%s: cannot list the directory: %m", root);
        return NULL;
    }
    for (const struct dirent *entry; (entry = readdir(entries));) {
        const size_t digits = strspn(entry->d_name, "0123456789");
        const bool is_number = digits && digits <= DIGITS_MAX && !entry->d_name[digits];
        const long number = is_number ? strtol(entry->d_name, NULL, 10) : 0;
        if (number > newest)
            newest = number;
    }
    closedir(entries);
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

/* ---- run.json and `latest` ---- */

/* A file with the run's name, not a link: programs that search the root, such as
 * TensorBoard, would find the run twice.  A run continues without it. */
int pl_run_dir_point(const char *folder, pl_error_t *err)
{
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    char *root = slash ? pl_text("%.*s", (int)(name - folder), folder) : pl_text("./");
    char *latest = root ? pl_text("%slatest", root) : NULL;
    char *temporary = root ? pl_text("%s" LATEST_PREFIX "%s", root, name) : NULL;
    int code = latest && temporary ? PL_OK : pl_no_memory(err);
    if (code == PL_OK) {
        /* First the temporary files of `latest` go whose runs no process holds. */
        DIR *entries = opendir(root);
        const size_t prefix = strlen(LATEST_PREFIX);
        for (const struct dirent *entry; entries && (entry = readdir(entries));) {
            if (strncmp(entry->d_name, LATEST_PREFIX, prefix))
                continue;
            int fd = openat(dirfd(entries), entry->d_name + prefix,
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK)
                unlinkat(dirfd(entries), entry->d_name, 0);
            if (fd >= 0)
                close(fd);
        }
        if (entries)
            closedir(entries);
        unlink(temporary);                      /* this run may have been killed before */
        FILE *file = fopen(temporary, "we");
        bool written = file && fprintf(file, "%s\n", name) > 0;
        written = file && fclose(file) == 0 && written;
        if (!written || rename(temporary, latest) != 0) {
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

/* Reads the name of a run from a file `latest`; false: the file is no such file. */
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

char *pl_run_dir_make(const char *given, const char *name, const char *run,
                      pl_error_t *err)
{
    char *root = pl_strdup(*given ? given : "."), *folder = NULL, *path = NULL;
    int code = root ? PL_OK : pl_no_memory(err);
    for (size_t length = root ? strlen(root) : 0; length > 1 && root[length - 1] == '/';
         length--)
        root[length - 1] = '\0';
    if (code == PL_OK)
        code = folders_ensure(root, err);
    if (code == PL_OK)
        folder = *name ? pl_text("%s/%s", root, name) : folder_numbered(root, err);
    if (code == PL_OK && !folder)
        code = *name ? pl_no_memory(err) : PL_EIO;
    bool made = folder && !*name;
    if (code == PL_OK && !made) {
        made = mkdir(folder, 0777) == 0;
        code = made              ? PL_OK
               : errno == EEXIST ? fail_taken(folder, err)
                                 : fail_folder(folder, err);
    }
    if (code == PL_OK && !(path = pl_text("%s/run.json", folder)))
        code = pl_no_memory(err);
    pl_durable_t file;
    if (code == PL_OK && (code = pl_durable_open(&file, path, err)) == PL_OK) {
        code = pl_durable_write(&file, run, strlen(run), err);
        if (code == PL_OK)
            code = pl_durable_commit(&file, err);
        else
            pl_durable_abandon(&file);
    }
    if (made && code != PL_OK) {
        if (path)
            unlink(path);
        rmdir(folder);
    }
    if (code != PL_OK) {
        pl_free(folder);
        folder = NULL;
    }
    pl_free(path);
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

/* ---- The lock ---- */

int pl_run_dir_hold(const char *path, int *held, pl_error_t *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), code = PL_OK;
    if (fd < 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s: %m", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        /* Its lines are like "3: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF". */
        struct stat what;
        char line[256];
        long holder = 0;                                    /* 0: unknown */
        FILE *locks = fopen("/proc/locks", "re");
        while (locks && !holder && fstat(fd, &what) == 0
               && fgets(line, sizeof line, locks)) {
            long pid;
            unsigned long inode;
            if (sscanf(line, "%*s FLOCK %*s WRITE %ld %*x:%*x:%lu", &pid, &inode) == 2
                && inode == what.st_ino)
                holder = pid;
        }
        if (locks)
            fclose(locks);
        code = pl_fail(err, PL_EBUSY, "%s: process %ld is training in this directory",
                       path, holder);
    }
    if (code == PL_OK) {
        *held = fd;
        pl_durable_clear(path);
    } else {
        close(fd);
    }
    return code;
}

/* Tries to write an unnamed file, which leaves nothing behind; a hidden file if the file
 * system has no unnamed files. */
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
        pl_log_line(PL_LOG_WARNING, -1, "io.writer", "%s is renamed to %s", path, other);
    pl_run_dir_let(held);
    pl_free(other);
    pl_free(path);
    return code;
}
