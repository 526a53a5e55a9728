/* options_file.c - a run from a file, and one key set on top
 *
 * A pipe is read once, and waited for as long as something comes within a limit.
 *
 * A change is made to a copy, checked, and takes the original's place only then: a failed
 * one leaves no trace. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/options.h"
#include "base/run_check.h"
#include "base/utf8.h"

#define SHOWN 240

/* ---- Files ---- */

int pl_run_file_wait_ms = 30000;

/* Until there is something to read of what may be a pipe, or its end. */
static int wait_for_bytes(int fd, pl_error_t *err)
{
    struct pollfd pipe = {.fd = fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&pipe, 1, pl_run_file_wait_ms);
    while (ready < 0 && errno == EINTR);
    if (ready)
        return PL_OK;
    return pl_fail(err, PL_EIO, "no data for %g s: does a program write to this pipe?",
                   pl_run_file_wait_ms / 1e3);
}

/* All bytes of fd and a NUL; at most PL_RUN_FILE_MAX + 1, so that more can be told. */
static int read_all(int fd, char **text_p, size_t *length_p, pl_error_t *err)
{
    size_t length = 0, capacity = 0;
    char *text = NULL;
    for (ssize_t got = 1; got > 0 && length <= PL_RUN_FILE_MAX; length += (size_t)got) {
        if (length + 1 >= capacity) {
            capacity = 2 * capacity + 4096;
            char *larger = pl_resize(text, capacity);
            if (!larger) {
                pl_free(text);
                return pl_no_memory(err);
            }
            text = larger;
        }
        if (wait_for_bytes(fd, err) != PL_OK) {
            pl_free(text);
            return PL_EIO;
        }
        do
            got = read(fd, text + length, capacity - length - 1);
        while (got < 0 && errno == EINTR);
        if (got < 0) {
            int rc = pl_fail(err, PL_EIO, "%s", strerror(errno));
            pl_free(text);
            return rc;
        }
    }
    text[length] = '\0';
    *text_p = text;
    *length_p = length;
    return PL_OK;
}

/* Without waiting: opening a pipe would, until somebody writes. */
static int open_file(const char *path, pl_error_t *err)
{
    struct stat status;
    const bool is_input = !strcmp(path, "-") || !strcmp(path, "/dev/stdin");
    int fd = is_input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                      : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s",
                       strerror(errno));
    if (fstat(fd, &status) == 0 && !S_ISDIR(status.st_mode) && !S_ISBLK(status.st_mode))
        return fd;
    close(fd);
    return pl_fail(err, PL_EIO, "not a file");
}

static int read_file(const char *path, char **text_p, size_t *length_p, pl_error_t *err)
{
    int fd = open_file(path, err);
    if (fd < 0)
        return fd;
    int rc = read_all(fd, text_p, length_p, err);
    close(fd);
    if (rc == PL_OK && *length_p > PL_RUN_FILE_MAX) {
        pl_free(*text_p);
        return pl_fail(err, PL_EFORMAT, "larger than 16 MiB: this is not a run file");
    }
    return rc;
}

pl_options_t *pl_options_load(const char *path, pl_error_t *err)
{
    char *text = NULL, shown[SHOWN];
    size_t length = 0;
    pl_error_t why = {0};
    if (pl_require(path, "a path", err) != PL_OK)
        return NULL;
    int rc = read_file(path, &text, &length, &why);
    const char *name = strcmp(path, "-") ? path : "/dev/stdin";
    if (rc == PL_OK)
        return pl_options_take(text, length, name, err);
    pl_fail(err, rc, "cannot read %s: %s", pl_utf8_show(path, shown, sizeof shown),
            why.text);
    return NULL;
}

/* ---- One key ---- */

/* The changed copy: root and the keys that were set; the rest stays o's. */
static int changed(const pl_options_t *o, const char *key, const char *text,
                   json_t *value, pl_options_t *copy, pl_error_t *err)
{
    *copy = *o;
    copy->root = pl_json_copy(o->root);
    copy->set = pl_json_copy(o->set);
    if (!copy->root || !copy->set
        || json_object_set_new(copy->set, key, json_string(text)) != 0) {
        json_decref(value);
        return pl_no_memory(err);
    }
    int rc = pl_json_set_path(copy->root, key, value, err);
    return rc == PL_OK ? pl_run_check(copy, PL_CHECK_SHALLOW, err) : rc;
}

int pl_options_set(pl_options_t *o, const char *key, const char *value, pl_error_t *err)
{
    if (pl_require(o, "a run", err) != PL_OK || pl_require(key, "a key", err) != PL_OK
        || pl_require(value, "a value", err) != PL_OK)
        return PL_EINVAL;
    if (!pl_utf8_ok(key, strlen(key)))
        return pl_fail(err, PL_EINVAL, "the key is not UTF-8");
    json_t *parsed = pl_json_parse_lenient(value, err);
    if (!parsed)
        return err ? err->code : PL_EINVAL;
    pl_options_t copy, old = *o;
    int rc = changed(o, key, value, parsed, &copy, err);
    if (rc == PL_OK)
        *o = copy;
    json_decref(rc == PL_OK ? old.root : copy.root);
    json_decref(rc == PL_OK ? old.set : copy.set);
    return rc;
}
