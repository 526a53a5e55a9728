/* slow_disk.c - tests of checkpoints that come faster than the disk takes them
 *
 * The disk is this program's: fsync() and rename() of checkpoints wait until the run has
 * come as far as it can. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "files.h"
#include "rig.h"
#include "tap.h"

enum { STEPS = 8, COPIES = 2, STILL_MS = 300, WEIGHTS = 83 * 4 };

/* ---- a disk that waits, and what it has seen ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    int step, ahead;                          /* made; most of them that were not safe */
    bool ended;                               /* all steps are made */
    int safe;                                 /* checkpoints */
    char path[STEPS][PATH_MAX];               /* of each */
    int missing;                              /* times at which no checkpoint was there */
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

/* Until the run is too far ahead, which it never should be, or for so long. */
static void wait_for_run(int limit_ms)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += limit_ms / 1000;
    limit.tv_nsec += limit_ms % 1000 * 1000000L;
    limit.tv_sec += limit.tv_nsec / 1000000000;
    limit.tv_nsec %= 1000000000;
    while (!disk.ended && disk.step - disk.safe <= COPIES + 1
           && pthread_cond_timedwait(&disk.more, &disk.lock, &limit) == 0)
        ;
}

static const char *of_checkpoint(const char *path)
{
    const char *at = strstr(path, "/checkpoints/");
    return at ? at + strlen("/checkpoints/") : NULL;
}

/* The first is slow while the run goes on, the last while it ends. */
int fsync(int fd)
{
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0)
        return -1;
    const char *name = of_checkpoint(path);
    pthread_mutex_lock(&disk.lock);
    if (name && strstr(name, "manifest") && disk.safe == 0)
        wait_for_run(STILL_MS);
    if (name && strstr(name, "manifest") && disk.safe == STEPS - 1)
        wait_for_run(30000);
    if (name && disk.safe)
        disk.missing += access(disk.path[disk.safe - 1], F_OK) != 0;
    pthread_mutex_unlock(&disk.lock);
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    const char *name = of_checkpoint(to);
    int code = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    pthread_mutex_lock(&disk.lock);
    if (code == 0 && name && !strncmp(name, "epoch=", 6) && !strchr(name, '/')
        && disk.safe < STEPS)
        snprintf(disk.path[disk.safe++], PATH_MAX, "%s", to);
    pthread_mutex_unlock(&disk.lock);
    return code;
}

/* ---- the run tells how far it is ---- */

static int watcher_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                      pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)request, (void)err;
    pthread_mutex_lock(&disk.lock);
    disk.ended = point == PL_HOOK_FIT_END;
    disk.step = (int)event->global_step;
    if (disk.step - disk.safe > disk.ahead)
        disk.ahead = disk.step - disk.safe;
    pthread_cond_broadcast(&disk.more);
    pthread_mutex_unlock(&disk.lock);
    return PL_OK;
}

static const pl_callback_ops_t watcher = {.name = "watcher",
                                          .size = 1,
                                          .points = PL_AT(TRAIN_BATCH_END)
                                                    | PL_AT(FIT_END),
                                          .on = watcher_on};

/* Four batches an epoch; a checkpoint of each step, of which so many are kept. */
static rig_t *rig_that_keeps(const char *top_k)
{
    char callbacks[256];
    snprintf(callbacks, sizeof callbacks,
             "[\"watcher\", {\"name\": \"model_checkpoint\", "
             "\"every_n_train_steps\": 1, \"save_top_k\": %s}]",
             top_k);
    disk.step = disk.ahead = disk.safe = disk.missing = 0;
    disk.ended = false;
    return rig_new(.data = "\"batch_size\": 8, \"val_split\": 0.2",
                   .trainer = "\"max_epochs\": 2", .callbacks = callbacks);
}

/* ---- Tests ---- */

static void the_run_goes_on_while_one_is_written_and_waits_with_the_third(void)
{
    rig_t *rig = rig_that_keeps("-1");
    is_text(rig_fit(rig)->status, "ok", "a run on a slow disk");
    is_int(disk.ahead, COPIES + 1,
           "makes a step behind those two that are held in memory, and no more");
    rig_free(&rig);
}

/* A step's checkpoint holds the weights of a run that ends there, behind its header. */
static int same_as_runs_of_that_length(void)
{
    int same = 0;
    for (int k = 0; k < disk.safe; k++) {
        char path[PATH_MAX + 32], trainer[64];
        size_t sizes[2];
        snprintf(trainer, sizeof trainer, "\"max_steps\": %d", k + 1);
        rig_t *rig = rig_new(.data = "\"batch_size\": 8, \"val_split\": 0.2",
                             .trainer = trainer);
        snprintf(path, sizeof path, "%s/model.safetensors", rig_fit(rig)->run_dir);
        uint8_t *want = file_get(path, &sizes[0]);
        snprintf(path, sizeof path, "%s/model.safetensors", disk.path[k]);
        uint8_t *got = file_get(path, &sizes[1]);
        same += want && got && sizes[0] > WEIGHTS && sizes[0] == sizes[1]
                && !memcmp(want + sizes[0] - WEIGHTS, got + sizes[1] - WEIGHTS, WEIGHTS);
        free(want), free(got);
        rig_free(&rig);
    }
    return same;
}

static void none_is_lost_and_they_come_in_order(void)
{
    int in_order = 0;
    rig_t *rig = rig_that_keeps("-1");
    rig_fit(rig);
    is_int(disk.safe, STEPS, "all are there when the run has ended");
    for (int k = 0; k < disk.safe; k++)
        in_order += atoi(strstr(disk.path[k], "step=") + 5) == k + 1;
    is_int(in_order, STEPS, "written one after the other");
    is_int(same_as_runs_of_that_length(), STEPS, "each with the weights of its step");
    rig_free(&rig);
}

static void an_older_one_stays_until_the_newer_is_safe(void)
{
    char folder[PATH_MAX];
    rig_t *rig = rig_that_keeps("1");
    const rig_result_t *result = rig_fit(rig);
    is_int(disk.safe, STEPS, "of %d checkpoints", STEPS);
    is_int(disk.missing, 0, "the newest that is safe is never removed");
    snprintf(folder, sizeof folder, "%s/checkpoints", result->run_dir);
    is_int(files_in(folder), 1, "and at the end it is the only one");
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t parts[] = {{"callback", &watcher},
                                              PL_REGISTRATIONS_END};
    rig_init(parts);
    run(the_run_goes_on_while_one_is_written_and_waits_with_the_third);
    run(none_is_lost_and_they_come_in_order);
    run(an_older_one_stays_until_the_newer_is_safe);
    return tap_done();
}
