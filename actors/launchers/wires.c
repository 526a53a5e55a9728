/* wires.c - the links of a launcher with the processes of its ranks
 *
 * Their folder is removed with them.  Who is killed leaves it behind; the next that makes
 * one takes away those that nobody holds the lock of any more. */
#include "actors/launchers/wires.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/monitor.h"

#define LOCK "lock"

enum { YOUNG_S = 60 };                                     /* may not have its lock yet */

typedef struct end {
    const pl_wire_ops_t *ops;                               /* [nobody stands in] */
    void *self;
} end_t;

struct pl_wires {
    pl_object_t object;
    char folder[PL_LINK_FOLDER];
    int lock;
    pl_runtime_t *runtime;
    pl_link_t *link;
    pl_bulk_t *bulk;
    pl_place_t place;                                       /* of any rank */
    char *run_dir;                                          /* [not told yet] */
    int count;
    int joined;                                             /* of this incarnation */
    end_t end[];
};

/* ---- the folder ---- */

const char *pl_place_door(const char *folder, pl_door_t door, char text[PL_DOOR_TEXT])
{
    static const char *const names[] = {"calls", "bulk", "stream"};
    snprintf(text, PL_DOOR_TEXT, "ipc://%s/%s", folder, names[door]);
    return text;
}

static void folder_remove(const char *folder)
{
    char path[PL_DOOR_TEXT];
    for (pl_door_t door = 0; door < PL_DOORS; door++)
        unlink(pl_place_door(folder, door, path) + strlen("ipc://"));
    snprintf(path, sizeof path, "%s/" LOCK, folder);
    unlink(path);
    rmdir(folder);
}

static int folder_lock(const char *folder, int flags)
{
    char path[PL_LINK_FOLDER + 16];
    snprintf(path, sizeof path, "%s/" LOCK, folder);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Whoever made it is dead. */
static void folder_look_at(const char *folder)
{
    struct stat there;
    if (lstat(folder, &there) != 0 || !S_ISDIR(there.st_mode) || there.st_uid != geteuid()
        || there.st_mode & 077)
        return;
    int lock = folder_lock(folder, 0);
    if (lock >= 0 || (errno == ENOENT && time(NULL) - there.st_mtime > YOUNG_S))
        folder_remove(folder);
    if (lock >= 0)
        close(lock);
}

/* Beside a new folder. */
static void folders_clean(const char *beside)
{
    char root[PL_LINK_FOLDER], path[PL_LINK_FOLDER];
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

static int folder_make(pl_wires_t *wires, pl_error_t *err)
{
    int code = pl_link_folder(wires->folder, err);
    if (code != PL_OK)
        return code;
    wires->lock = folder_lock(wires->folder, O_CREAT);
    if (wires->lock < 0)
        return pl_fail(err, PL_EIO, "%s: %s", wires->folder, strerror(errno));
    folders_clean(wires->folder);
    return PL_OK;
}

/* ---- what happens ---- */

static const end_t *end_of(const pl_wires_t *wires, int rank)
{
    bool there = rank >= 0 && rank < wires->count && wires->end[rank].ops;
    return there ? &wires->end[rank] : NULL;
}

static void message_came(void *user, int rank, pl_frame_t *message)
{
    const end_t *end = end_of(user, rank);
    if (end)
        end->ops->on_message(end->self, message);
}

static void link_event(void *user, int rank, pl_link_event_t event, const char *text)
{
    pl_wires_t *wires = user;
    const end_t *end = end_of(wires, rank);
    wires->joined += event == PL_LINK_JOINED;
    if (event == PL_LINK_REFUSED) {
        pl_log_line(PL_LOG_WARNING, rank, "", "%s was not let in: %s",
                    rank < 0 ? "somebody" : "a process", text);
    } else if (event == PL_LINK_MISSING) {
        for (int k = 0; k < wires->count; k++)
            if (pl_link_state(wires->link, k) == PL_LINK_AWAITED
                && (end = end_of(wires, k)))
                end->ops->on_event(end->self, event, text);
    } else if (end) {
        end->ops->on_event(end->self, event, text);
    }
}

static void bulk_event(void *user, int rank, pl_link_event_t event, const char *text)
{
    const end_t *end = end_of(user, rank);
    if (end && (event == PL_LINK_GONE || event == PL_LINK_LEFT))
        end->ops->on_event(end->self, event, text);
}

static void bulk_sent(void *user, int rank, uint64_t transfer, const pl_error_t *error)
{
    const end_t *end = end_of(user, rank);
    (void)transfer;
    if (end)
        end->ops->on_sent(end->self, error);
}

void pl_wires_attach(pl_wires_t *wires, int rank, const pl_wire_ops_t *ops, void *self)
{
    wires->end[rank] = (end_t){ops, self};
}

void pl_wires_detach(pl_wires_t *wires, int rank)
{
    wires->end[rank] = (end_t){0};
}

pl_link_t *pl_wires_link(const pl_wires_t *wires)
{
    return wires->link;
}

pl_bulk_t *pl_wires_bulk(const pl_wires_t *wires)
{
    return wires->bulk;
}

bool pl_wires_is_over(const pl_wires_t *wires, int rank)
{
    return pl_link_state(wires->link, rank) >= PL_LINK_HAS_LEFT
           && pl_link_state(pl_bulk_link(wires->bulk), rank) >= PL_LINK_HAS_LEFT;
}

void pl_wires_died(pl_wires_t *wires, int rank)
{
    pl_link_died(wires->link, rank);
    pl_link_died(pl_bulk_link(wires->bulk), rank);
}

int pl_wires_renew(pl_wires_t *wires, pl_error_t *err)
{
    const uint32_t epoch = wires->place.epoch + 1;
    int code = pl_link_renew(wires->link, epoch, wires->count, err);
    if (code == PL_OK)
        code = pl_bulk_renew(wires->bulk, epoch, wires->count, err);
    if (code != PL_OK)
        return code;
    wires->place.epoch = epoch;
    wires->joined = 0;
    return PL_OK;
}

uint32_t pl_wires_epoch(const pl_wires_t *wires)
{
    return wires->place.epoch;
}

bool pl_wires_were_all_there(const pl_wires_t *wires)
{
    return wires->joined == wires->count;
}

void pl_wires_tell_run_dir(pl_wires_t *wires, const char *path)
{
    char *own = pl_strdup(path);
    if (!own)
        return;
    pl_free(wires->run_dir);
    wires->run_dir = own;
}

const char *pl_wires_run_dir(const pl_wires_t *wires)
{
    return wires->run_dir;
}

/* ---- the place of a rank ---- */

void pl_wires_place(const pl_wires_t *wires, int rank, char text[PL_PLACE_TEXT])
{
    const pl_place_t *p = &wires->place;
    snprintf(text, PL_PLACE_TEXT,
             PL_PLACE "=%d %d %" PRIu64 " %" PRIu32 " %" PRId64 " %d %d %d %s", rank,
             p->world_size, p->run, p->epoch, p->began, p->log_level, p->stream,
             p->grace_ms, wires->folder);
}

bool pl_place_read(const char *text, pl_place_t *p)
{
    *p = (pl_place_t){0};
    return text
           && sscanf(text, "%d %d %" SCNu64 " %" SCNu32 " %" SCNd64 " %d %d %d %63s",
                     &p->rank, &p->world_size, &p->run, &p->epoch, &p->began,
                     &p->log_level, &p->stream, &p->grace_ms, p->folder)
                  == 9;
}

/* ---- life ---- */

static void wires_release(pl_object_t *object)
{
    pl_wires_t *wires = (pl_wires_t *)object;
    char door[PL_DOOR_TEXT];
    pl_bulk_free(wires->bulk);
    pl_link_free(wires->link);
    pl_free(wires->run_dir);
    pl_monitor_take_no_more(wires->runtime,
                            pl_place_door(wires->folder, PL_DOOR_STREAM, door));
    if (wires->folder[0])
        folder_remove(wires->folder);
    if (wires->lock >= 0)
        close(wires->lock);
    pl_free(wires);
}

static int wires_open(pl_wires_t *wires, void *launcher, int join_ms, pl_error_t *err)
{
    char door[PL_DOOR_TEXT];
    int code = folder_make(wires, err);
    if (code != PL_OK)
        return code;
    pl_link_spec_t spec = {.endpoint = pl_place_door(wires->folder, PL_DOOR_CALLS, door),
                           .run = wires->place.run,
                           .epoch = wires->place.epoch,
                           .world_size = wires->count,
                           .times = {.join = join_ms},
                           .on_message = message_came,
                           .on_event = link_event,
                           .user = wires};
    wires->link = pl_link_listen(&spec, pl_actor_loop(launcher), err);
    if (!wires->link)
        return err->code;
    pl_bulk_spec_t bulk = {.link = spec,
                           .most = SIZE_MAX / 2,        /* ranks are this program's own */
                           .on_sent = bulk_sent,
                           .on_event = bulk_event,
                           .user = wires};
    pl_place_door(wires->folder, PL_DOOR_BULK, door);
    wires->bulk = pl_bulk_listen(&bulk, pl_actor_loop(launcher), err);
    if (!wires->bulk)
        return err->code;
    pl_monitor_take(wires->runtime, pl_place_door(wires->folder, PL_DOOR_STREAM, door));
    return PL_OK;
}

pl_wires_t *pl_wires_new(void *launcher, int count, int join_ms, pl_error_t *err)
{
    pl_wires_t *wires = pl_alloc(sizeof *wires + (size_t)count * sizeof *wires->end);
    if (!wires) {
        pl_no_memory(err);
        return NULL;
    }
    pl_object_init(&wires->object, wires_release);
    wires->count = count;
    wires->lock = -1;
    pl_runtime_t *runtime = wires->runtime = pl_actor_runtime(launcher);
    wires->place = (pl_place_t){.world_size = count,
                                .run = runtime->run,
                                .epoch = 1,
                                .began = runtime->began,
                                .log_level = pl_log_level(),
                                .stream = !runtime->monitor                 ? 0
                                          : pl_monitor_is_lossless(runtime) ? 2
                                                                            : 1,
                                .grace_ms = runtime->grace_ms};
    if (wires_open(wires, launcher, join_ms, err) == PL_OK)
        return wires;
    pl_object_unref(wires);
    return NULL;
}
