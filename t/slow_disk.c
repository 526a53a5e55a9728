/* slow_disk.c - tests of checkpoints that come faster than the disk takes them, and of a
 * disk that blocks
 *
 * The disk is this program's: fsync() and rename() of checkpoints wait until the run has
 * come as far as it can; or a call blocks until the test lets it go. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "files.h"
#include "rig.h"
#include "tap.h"

enum { STEPS = 8, COPIES = 2, STILL_MS = 300, PAUSE_MS = 250, WEIGHTS = 83 * 4 };

/* ---- a disk that waits, and what it has seen ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    int step, ahead;                         /* made; most of them that were not safe */
    bool ended;                              /* all steps are made */
    int safe;                                /* checkpoints */
    char path[STEPS][PATH_MAX];              /* of each */
    int missing;                             /* times at which no checkpoint was there */
    const char *blocks;                      /* this call does  [none] */
    int blocked;                             /* calls that have blocked */
    int pauses;                              /* calls that pause before they block  [0] */
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

/* While `disk.blocks` names the call.  The first of them may only take their time. */
static void maybe_block(const char *call, const char *path)
{
    pthread_mutex_lock(&disk.lock);
    const bool meant = disk.blocks && !strcmp(disk.blocks, call)
                       && strstr(path, "model.safetensors");
    if (meant && disk.pauses > 0) {
        struct timespec limit;
        disk.pauses--;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_nsec += PAUSE_MS * 1000000L;
        limit.tv_sec += limit.tv_nsec / 1000000000;
        limit.tv_nsec %= 1000000000;
        while (pthread_cond_timedwait(&disk.more, &disk.lock, &limit) == 0)
            ;
    } else if (meant) {
        disk.blocked++;
        while (disk.blocks)
            pthread_cond_wait(&disk.more, &disk.lock);
    }
    pthread_mutex_unlock(&disk.lock);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    maybe_block("open", path);
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    maybe_block("rename", to);
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
}

/* The first is slow while the run continues, the last while it ends. */
int fsync(int fd)
{
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0)
        return -1;
    const char *name = of_checkpoint(path);
    maybe_block("fsync", path);
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

static void the_run_continues_during_a_save_and_waits_at_the_third(void)
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

static void no_save_is_lost_and_they_come_in_order(void)
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

static void an_older_checkpoint_stays_until_the_newer_is_safe(void)
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

/* ---- a disk that blocks ---- */

/* Ends the run once the log has what the test listens for. */
static int listener_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                       pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)err;
    if (event->global_step == 1)
        snprintf(request->save, sizeof request->save, "first");
    request->stop = rig_lines_received() > 0;
    return PL_OK;
}

static const pl_callback_ops_t listener = {.name = "listener",
                                           .size = 1,
                                           .points = PL_AT(TRAIN_BATCH_END),
                                           .on = listener_on};

static rig_t *rig_that_blocks(const char *call, const char *callbacks,
                              const char *trainer)
{
    pthread_mutex_lock(&disk.lock);          /* what the last run wrote may still block */
    disk.step = disk.ahead = disk.safe = disk.missing = disk.blocked = 0;
    disk.ended = true;
    disk.blocks = call;
    pthread_mutex_unlock(&disk.lock);
    return rig_new(.data = "\"batch_size\": 8, \"val_split\": 0.2", .trainer = trainer,
                   .callbacks = callbacks);
}

/* The thread that blocks outlives its run. */
static void disk_release(void)
{
    pthread_mutex_lock(&disk.lock);
    disk.blocks = NULL;
    pthread_cond_broadcast(&disk.more);
    pthread_mutex_unlock(&disk.lock);
}

static void a_save_that_blocks_ends_the_run_that_waits_for_it(void)
{
    static const char *const calls[] = {"fsync", "rename", "open"};
    for (int k = 0; k < 3; k++) {
        rig_t *rig = rig_that_blocks(calls[k],
                                     "[{\"name\": \"model_checkpoint\", "
                                     "\"every_n_train_steps\": 1}]",
                                     "\"max_epochs\": 2, \"step_timeout\": 0.5");
        const rig_result_t *result = rig_fit(rig);
        is_int(result->error.code, PL_ESTUCK, "%s blocks: %s", calls[k],
               result->error.text);
        like(result->error.text,
             "the save after step 1 has not ended for 0.5 s \\(trainer.step_timeout\\): "
             ".*/checkpoints/epoch=0-step=1",
             "the error names step, limit and path");
        ok(disk.blocked > 0, "and the call did block");
        disk_release();
        rig_free(&rig);
    }
}

static void a_save_that_blocks_is_a_warning_while_training_continues(void)
{
    rig_listen("the save after step 1 has not ended for 0.3 s (trainer.step_timeout)");
    rig_t *rig = rig_that_blocks("fsync",
                                 "[\"listener\", {\"name\": \"model_checkpoint\", "
                                 "\"every_n_train_steps\": 1000000000}]",
                                 "\"max_epochs\": -1, \"step_timeout\": 0.3");
    const rig_result_t *result = rig_fit(rig);
    is_int(rig_lines_received(), 1, "one warning");
    is_int(result->error.code, PL_ESTUCK, "and its end waits no longer: %s",
           result->error.text);
    disk_release();
    rig_free(&rig);
    rig_listen(NULL);
}

static void a_stop_ends_the_wait_for_a_save_that_blocks(void)
{
    rig_t *rig = rig_that_blocks("fsync", "[\"listener\"]",
                                 "\"max_epochs\": 1, \"step_timeout\": 3600");
    rig_begin(rig);
    eventually(__atomic_load_n(&disk.blocked, __ATOMIC_RELAXED) > 0);  /* maybe the last
                                                                          run's */
    pl_trainer_stop(rig_trainer(rig), "test", NULL);
    const rig_result_t *result = rig_wait(rig);
    like(result->error.text,
         "the save after step [0-9] has not ended for 10 s \\(the limit "
         "after a stop\\)",
         "the limit after a stop is short");
    disk_release();
    rig_free(&rig);
}

static void a_disk_that_works_slowly_is_no_failure(void)
{
    disk.pauses = 1000;
    rig_t *rig = rig_that_blocks("fsync",
                                 "[{\"name\": \"model_checkpoint\", "
                                 "\"every_n_train_steps\": 2, \"save_top_k\": -1}]",
                                 "\"max_epochs\": 1, \"step_timeout\": 0.4");
    is_text(rig_fit(rig)->status, "ok", "each call takes less than step_timeout");
    ok(disk.pauses <= 1000 - 3, "all saves together take longer");
    is_int(disk.blocked, 0, "no call blocks");
    disk_release();
    disk.pauses = 0;
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t components[] = {{"callback", &watcher},
                                                   {"callback", &listener},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(the_run_continues_during_a_save_and_waits_at_the_third);
    run(no_save_is_lost_and_they_come_in_order);
    run(an_older_checkpoint_stays_until_the_newer_is_safe);
    run(a_save_that_blocks_ends_the_run_that_waits_for_it);
    run(a_save_that_blocks_is_a_warning_while_training_continues);
    run(a_stop_ends_the_wait_for_a_save_that_blocks);
    run(a_disk_that_works_slowly_is_no_failure);
    return tap_done();
}
