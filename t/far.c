/* far.c - runs whose ranks are processes: data that each of them makes by itself, and
 * ends that come to it */
#include "far.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/error.h"

typedef struct far {
    int64_t samples, record, epoch, times, rank;
    const char *then, *mark, *later, *opens;
} far_t;

static const pl_option_t far_options[] = {
    PL_INT(far_t, samples, "24", "1..", "samples"),
    PL_INT(far_t, record, "0", "0..", "that brings the end, from 1"),
    PL_INT(far_t, epoch, "0", "0..", "from which on it does"),
    PL_TEXT(far_t, then, "\"\"", NULL, "which end"),
    PL_TEXT(far_t, mark, "\"\"", NULL, "file that is made then; it comes once"),
    PL_TEXT(far_t, later, "\"\"", NULL, "\"torn\": what comes when it has been made"),
    PL_TEXT(far_t, opens, "\"\"", NULL, "which end comes when it is opened"),
    PL_INT(far_t, times, "1", "1..", "or so often, with as many files"),
    PL_INT(far_t, rank, "-1", "-1..", "the only rank to fail; -1: any"),
    PL_OPTIONS_END,
};

/* The main thread of a rank's process is named for it. */
static void thread_name(char name[32])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)getpid());
    FILE *file = fopen(path, "r");
    if (file && fgets(name, 32, file))
        name[strcspn(name, "\n")] = '\0';
    else
        snprintf(name, 32, "?");
    if (file)
        fclose(file);
}

static bool is_rank_itself(int64_t rank)
{
    char name[32], wanted[32];
    thread_name(name);
    snprintf(wanted, sizeof wanted, "rank %d", (int)rank);
    return !strcmp(name, wanted);
}

static void say_thread(void)
{
    char name[32];
    thread_name(name);
    fprintf(stderr, "the end of %s\n", name);
}

static void linger(void)
{
    for (;;)
        pause();
}

/* Once in a process: one that is stopped and woken up continues to its end. */
static void end_come(const char *then)
{
    static int come;
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"SIGKILL", SIGKILL},
                   {"SIGSEGV", SIGSEGV},
                   {"SIGSTOP", SIGSTOP},
                   {"SIGTERM", SIGTERM},
                   {"SIGABRT", SIGABRT}};
    if (__atomic_exchange_n(&come, 1, __ATOMIC_RELAXED))
        return;
    say_thread();
    if (!strncmp(then, "exit ", 5))
        _exit(atoi(then + 5));
    if (!strcmp(then, "linger"))
        atexit(linger);
    if (!strcmp(then, "spin"))
        linger();
    for (size_t k = 0; k < sizeof signals / sizeof *signals; k++)
        if (!strcmp(then, signals[k].name)) {
            signal(signals[k].number, SIG_DFL);             /* a sanitizer may have one */
            kill(getpid(), signals[k].number);
        }
}

static int far_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                    pl_error_t *err)
{
    const far_t *f = self;
    (void)request;
    if (*f->opens && (f->rank < 0 || is_rank_itself(f->rank)))
        end_come(f->opens);
    *info = (pl_data_info_t){.samples = f->samples,
                             .field_count = 2,
                             .field = {{"x", PL_F32, pl_shape(1, RIG_FEATURES)},
                                       {"y", PL_I64, pl_shape(0)}},
                             .data_info = pl_text("{\"classes\": %d}", RIG_CLASSES)};
    return info->data_info ? PL_OK : pl_no_memory(err);
}

/* Makes the k-th file; false: it is there. */
static bool is_first(const char *mark, int k)
{
    char path[600];
    snprintf(path, sizeof path, k ? "%s %d" : "%s", mark, k);
    const int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool is_due(const far_t *f, uint64_t epoch)
{
    if (epoch < (uint64_t)f->epoch || (f->rank >= 0 && !is_rank_itself(f->rank)))
        return false;
    for (int64_t k = 0; *f->mark && k < f->times; k++)
        if (is_first(f->mark, (int)k))
            return true;
    return !*f->mark;
}

static bool is_torn(const far_t *f)
{
    return !strcmp(f->then, "torn")
           || (!strcmp(f->later, "torn") && access(f->mark, F_OK) == 0);
}

static int far_read(const void *self, const pl_read_request_t *request,
                    void *const field[], pl_error_t *err)
{
    const far_t *f = self;
    for (int i = 0; i < request->count; i++) {
        rig_sample(request->index[i], (float *)field[0] + i * RIG_FEATURES,
                   (int64_t *)field[1] + i);
        if (request->index[i] + 1 == f->record && is_torn(f))
            return pl_fail(err, PL_EIO, "it is torn");
        const bool is_it = f->record ? request->index[i] + 1 == f->record : f->rank >= 0;
        if (is_it && is_due(f, request->epoch))
            end_come(f->then);
    }
    return PL_OK;
}

static const pl_dataset_ops_t far_dataset = {.name = "far",
                                             .size = sizeof(far_t),
                                             .options = far_options,
                                             .open = far_open,
                                             .read = far_read};

/* What comes to a child before it is a rank. */
static void far_early(void)
{
    const char *place = getenv("PACELINE_BOOTSTRAP");
    place = place ? place : getenv("PACELINE_SCRIPT");
    int rank, incarnation;
    char name[40];
    if (!place || sscanf(place, "%d %*d %*s %d", &rank, &incarnation) != 2)
        return;
    snprintf(name, sizeof name, "FAR_EARLY_%d_%d", rank, incarnation);
    const char *then = getenv(name) ? getenv(name) : getenv("FAR_EARLY");
    if (then)
        end_come(then);
}

void far_init(const pl_registration_t *more)
{
    far_early();
    pl_registration_t all[32] = {{"dataset", &far_dataset}};
    for (int k = 0; more && more[k].role; k++)
        all[k + 1] = more[k];
    rig_init(all);
}

/* ---- children ---- */

/* Calls back for each child of this process, until one is what is looked for. */
static int children_look(bool (*is_it)(int pid, int rank), int rank, int *count)
{
    char path[64];
    int found = 0;
    *count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *e; tasks && (e = readdir(tasks));) {
        int pid;
        snprintf(path, sizeof path, "/proc/self/task/%.20s/children", e->d_name);
        FILE *file = fopen(path, "r");
        while (file && fscanf(file, "%d", &pid) == 1) {
            ++*count;
            found = is_it && is_it(pid, rank) ? pid : found;
        }
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return found;
}

static bool is_rank(int pid, int rank)
{
    char path[64], name[32] = "", wanted[32];
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    snprintf(wanted, sizeof wanted, "rank %d\n", rank);
    FILE *file = fopen(path, "r");
    bool is_it = file && fgets(name, sizeof name, file) && !strcmp(name, wanted);
    if (file)
        fclose(file);
    return is_it;
}

int far_process(int rank)
{
    int count;
    return children_look(is_rank, rank, &count);
}

int far_children(void)
{
    int count;
    children_look(NULL, 0, &count);
    return count;
}

/* ---- runs ---- */

rig_t *far_make(const far_spec_t *spec)
{
    char trainer[600], dataset[400], devices[32];
    rig_spec_t rig = spec->rig;
    const int ranks = spec->ranks ? spec->ranks : 2;
    snprintf(devices, sizeof devices, spec->min ? "\"%d:%d\"" : "%d",
             spec->min ? spec->min : ranks, ranks);
    snprintf(trainer, sizeof trainer,
             "\"launcher\": %s, \"strategy\": %s, \"devices\": %s%s%s",
             spec->launcher ? spec->launcher
                            : "{\"name\": \"spawn\", \"max_restarts\": 0}",
             spec->strategy ? spec->strategy : "\"ddp\"", devices,
             rig.trainer ? ", " : "", rig.trainer ? rig.trainer : "");
    snprintf(dataset, sizeof dataset,
             "{\"name\": \"far\", \"samples\": %d, \"batch_size\": %d, \"shuffle\": "
             "false, \"record\": %d, \"then\": \"%s\"%s%s}",
             spec->samples ? spec->samples : 24, spec->batch_size ? spec->batch_size : 4,
             spec->record, spec->then ? spec->then : "", spec->data ? ", " : "",
             spec->data ? spec->data : "");
    rig.trainer = trainer;
    rig.dataset = dataset;
    return rig_make(&rig);
}
