/* past.c - what the runs of a program have come to, for its processes that are started in
 * the middle of it
 *
 * One after the other: a head and a packed outcome, which of a run that failed has its
 * error alone.  Both sides are the same program on the same machine. */
#include "actors/launchers/past.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/launchers/folder.h"
#include "actors/launchers/parcel.h"
#include "base/error.h"

typedef struct head {
    uint64_t bytes, has_failed;
} head_t;

static int past_open(const char *folder, int flags)
{
    char path[PL_DOOR_TEXT];
    return open(pl_place_door(folder, PL_DOOR_PAST, path) + strlen("ipc://"),
                flags | O_CLOEXEC, 0600);
}

static bool all_written(int fd, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t now = write(fd, (const char *)data + at, bytes - at);
        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0)
            return false;
        at += (size_t)now;
    }
    return true;
}

static bool all_read(int fd, void *data, size_t bytes, off_t from)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t now = pread(fd, (char *)data + at, bytes - at, from + (off_t)at);
        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0)
            return false;
        at += (size_t)now;
    }
    return true;
}

static pl_blob_t *failure_pack(const pl_error_t *failed, pl_error_t *err)
{
    pl_outcome_t *outcome = pl_outcome_new(err);
    if (!outcome)
        return NULL;
    outcome->error = *failed;
    pl_blob_t *blob = pl_outcome_pack(outcome, err);
    pl_object_unref(outcome);
    return blob;
}

int pl_past_add(const char *folder, const pl_blob_t *outcome, const pl_error_t *failed,
                pl_error_t *err)
{
    pl_blob_t *failure = outcome ? NULL : failure_pack(failed, err);
    const pl_blob_t *blob = outcome ? outcome : failure;
    if (!blob)
        return err->code;
    const head_t head = {blob->size, !outcome};
    const int fd = past_open(folder, O_WRONLY | O_CREAT | O_APPEND);
    int code = fd >= 0 && all_written(fd, &head, sizeof head)
                       && all_written(fd, blob->data, blob->size)
                   ? PL_OK
                   : pl_fail(err, PL_EIO, "%s: %s", folder, strerror(errno));
    if (fd >= 0)
        close(fd);
    pl_object_unref(failure);
    return code;
}

/* What is said of more bytes than there are is not asked for. */
static pl_blob_t *blob_read(int fd, int run, head_t *head, pl_error_t *err)
{
    struct stat file;
    off_t at = 0;
    bool whole = fd >= 0 && fstat(fd, &file) == 0;
    for (int k = 0; k <= run && whole; k++) {
        at += k ? (off_t)head->bytes : 0;
        whole = all_read(fd, head, sizeof *head, at);
        at += (off_t)sizeof *head;
        whole = whole && at <= file.st_size
                && head->bytes <= (uint64_t)(file.st_size - at);
    }
    pl_blob_t *blob = whole ? pl_blob_new(head->bytes, err) : NULL;
    if (blob && all_read(fd, blob->data, blob->size, at))
        return blob;
    if (blob || !whole)
        pl_fail(err, PL_EIO,
                "what run %d of the program had come to before this process was started "
                "cannot be read",
                run + 1);
    pl_object_unref(blob);
    return NULL;
}

pl_outcome_t *pl_past_read(const char *folder, int run, pl_error_t *failed)
{
    const int fd = past_open(folder, O_RDONLY);
    head_t head;
    pl_blob_t *blob = blob_read(fd, run, &head, failed);
    pl_outcome_t *outcome = blob ? pl_outcome_unpack(blob, failed) : NULL;
    if (fd >= 0)
        close(fd);
    pl_object_unref(blob);
    if (!outcome || !head.has_failed)
        return outcome;
    *failed = outcome->error;
    pl_object_unref(outcome);
    return NULL;
}
