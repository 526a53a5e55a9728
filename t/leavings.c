/* leavings.c - what an engine leaves behind when it has gone: nothing, whatever it did
 *
 *   t/leavings              each feature, and 200 engines one after the other
 *   t/leavings 10000        as many as that (make check-long), or as PACELINE_CYCLES says
 *
 * Blocks are those that Paceline has asked for, so not one may be left.  What the process
 * has in all grows at first by what allocators keep for the next time, as many threads
 * come and go; in the second half of the engines it may not any more. */
#include <errno.h>
#include <event2/event.h>
#include <ftw.h>
#include <limits.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "far.h"
#include "files.h"
#include "scarce.h"
#include "tap.h"

enum { SIGNALS = 65, CYCLES = 200, WARM = 40, RARE = 8, GROWTH_KB = 2048 };

#define LONG "\"max_epochs\": 100000"
#define SLOW "replay of forward_backward takes 1 ms"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true };                     /* its memory is not the program's alone */
#else
enum { SANITIZED = false };
#endif

/* ---- what a process has ---- */

typedef struct traces {
    struct sigaction action[SIGNALS];
    sigset_t blocked;
    mode_t mask;
    int threads, descriptors, sockets, children;
} traces_t;

static char sockets[128];                                /* the folder that they are in */

static int children_left(void)
{
    return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : 1;
}

static traces_t traces_now(void)
{
    traces_t now = {0};
    for (int k = 1; k < SIGNALS; k++)
        sigaction(k, NULL, &now.action[k]);
    sigprocmask(SIG_BLOCK, NULL, &now.blocked);
    umask(now.mask = umask(0));
    now.threads = files_in("/proc/self/task");
    now.descriptors = files_in("/proc/self/fd");
    now.sockets = files_in(sockets);
    now.children = children_left();
    return now;
}

static int signals_changed(const traces_t *a, const traces_t *b)
{
    int changed = 0;
    for (int k = 1; k < SIGNALS; k++)
        changed += a->action[k].sa_handler != b->action[k].sa_handler
                   || a->action[k].sa_flags != b->action[k].sa_flags
                   || sigismember(&a->blocked, k) != sigismember(&b->blocked, k);
    return changed;
}

/* A thread that was joined may be seen a moment longer. */
static void nothing_was_left(const traces_t *before, const char *name)
{
    ok(eventually(files_in("/proc/self/task") <= before->threads), "%s: no thread", name);
    const traces_t after = traces_now();
    is_int(after.descriptors, before->descriptors, "%s: no descriptor", name);
    is_int(after.sockets, before->sockets, "%s: no file among the sockets", name);
    is_int(after.children, 0, "%s: no process", name);
    is_int(signals_changed(before, &after) + (before->mask != after.mask), 0,
           "%s: signals and mask are as they were", name);
}

/* ---- observers ---- */

typedef struct lookers {
    void *context, *monitor, *control;
    int page;
} lookers_t;

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", tap_folder(), name);
    return path;
}

static const char *ipc(const char *name)
{
    static char endpoint[256];
    snprintf(endpoint, sizeof endpoint, "ipc://%s/%s", sockets, name);
    return endpoint;
}

static void *socket_to(lookers_t *l, int type, const char *endpoint)
{
    const int none = 0;
    void *socket = zmq_socket(l->context, type);
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    if (type == ZMQ_SUB)
        zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0);
    zmq_connect(socket, endpoint);
    return socket;
}

/* A page that shows the run live and is still open when the engine goes. */
static int page_open(const char *url)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char token[128] = "", request[256];
    int port = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sscanf(url, "http://127.0.0.1:%d/?token=%127s", &port, token);
    at.sin_port = htons((uint16_t)port);
    snprintf(request, sizeof request,
             "GET /events?token=%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", token, port);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0
        || send(fd, request, strlen(request), 0) < 0 || recv(fd, request, 1, 0) != 1)
        ok(false, "a page can be opened");
    return fd;
}

static void look_on(rig_t *rig, lookers_t *l)
{
    pl_engine_t *engine = rig_engine(rig);
    pl_error_t err;
    if (pl_engine_monitor(engine, ipc("monitor"), &err) != PL_OK
        || pl_engine_control(engine, ipc("control"), &err) != PL_OK
        || pl_engine_dashboard(engine, "0", &err) != PL_OK
        || pl_engine_journal(engine, path_of("journal"), &err) != PL_OK
        || pl_engine_trace(engine, path_of("trace"), &err) != PL_OK)
        ok(false, "an engine can be seen: %s", err.text);
    l->context = zmq_ctx_new();
    l->monitor = socket_to(l, ZMQ_SUB, ipc("monitor"));
    l->control = socket_to(l, ZMQ_DEALER, ipc("control"));
    l->page = page_open(pl_engine_dashboard_url(engine));
    zmq_send(l->control, "{\"command\": \"list\"}", 19, 0);
}

static void look_away(lookers_t *l)
{
    if (!l->context)
        return;
    close(l->page);
    zmq_close(l->monitor);
    zmq_close(l->control);
    zmq_ctx_term(l->context);
}

/* ---- features ---- */

static void begin_fit(rig_t *rig)
{
    ok(rig_begin(rig), "a fit begins");
}

static void begin_pause(rig_t *rig)
{
    const int begun = rig_begin(rig);
    ok(begun && pl_trainer_pause(rig_trainer(rig), NULL, NULL, NULL) == PL_OK,
       "a pause is asked for");
}

static void begin_stop(rig_t *rig)
{
    rig_begin(rig);
    pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

static void loop_ready(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop;
    *(int *)user = result->error.code == PL_OK ? 1 : -1;
}

static void loop_begin(rig_t *rig)
{
    static const pl_field_t fields[] = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                        {"y", PL_I64, {0, {0}}}};
    static const float x[4][RIG_FEATURES];
    static const int64_t y[4];
    const pl_arrays_t samples = {.samples = 4,
                                 .field_count = 2,
                                 .field = {fields[0], fields[1]},
                                 .data = {x, y}};
    const pl_loop_spec_t spec = {.field_count = 2, .field = fields, .targets = 1};
    pl_error_t err = {0};
    int ready = 0;
    pl_options_t *options = pl_options_parse(
        "{\"module\": {\"name\": \"mlp\", \"hidden\": [8], \"classes\": 3},"
        " \"optimizer\": \"sgd\", \"trainer\": {\"accelerator\": \"fake\"}}",
        "own", &err);
    pl_loop_t *loop = options ? pl_loop_open(rig_engine(rig), options, &spec, loop_ready,
                                             &ready, &err)
                              : NULL;
    while (loop && !ready)
        event_base_loop(rig_base(rig), EVLOOP_ONCE);
    if (!loop || ready < 0 || pl_loop_train(loop, &samples, NULL, NULL, &err) != PL_OK)
        ok(false, "a loop of one's own: %s", err.text);
    pl_options_free(options);
}

static void launch_ended(void *user, int status, const pl_error_t *error)
{
    (void)error;
    *(int *)user = status + 1;
}

static void launch_whole(rig_t *rig)
{
    static const char *const argv[] = {"sleep", "0", NULL};
    int ended = 0;
    const pl_launch_spec_t spec = {
        .nodes = 1, .devices = 2, .argv = argv, .on_end = launch_ended, .user = &ended};
    pl_error_t err;
    pl_launch_t *node = pl_launch_start(rig_base(rig), &spec, &err);
    if (!node)
        ok(false, "two processes are launched: %s", err.text);
    while (node && !ended)
        event_base_loop(rig_base(rig), EVLOOP_ONCE);
    pl_launch_free(node);
}

/* With `begin` it ends in the middle of whatever that has begun. */
static const struct feature {
    const char *name;
    rig_spec_t spec;
    int ranks;                                              /* processes  [one thread] */
    const char *dies;                                       /* one of them does, so */
    int restarts;                                           /* and comes back */
    bool seen;
    const char *status;                                     /* ["ok"] */
    void (*begin)(rig_t *rig);
} features[] = {
    {"a fit", {.trainer = "\"max_epochs\": 2", .data = "\"val_split\": 0.2"}},
    {"a fit on the cpu", {.accelerator = "cpu", .trainer = "\"max_epochs\": 2"}},
    {"a fit that is seen", {.trainer = "\"max_epochs\": 2"}, .seen = true},
    {"a fit that fails",
     {.script = "replay 3 of forward_backward fails", .trainer = LONG},
     .seen = true,
     .status = "failed"},
    {"threads that are ranks",
     {.trainer = "\"max_epochs\": 2, \"strategy\": \"ddp\", \"devices\": 2",
      .data = "\"workers\": 2"}},
    {"every sort of file",
     {.trainer = "\"max_epochs\": 2",
      .loggers = "[\"csv\", \"jsonl\", \"tensorboard\"]",
      .callbacks = "[\"model_checkpoint\", \"lr_monitor\", \"throughput_monitor\"]"}},
    {"a fit that is under way",
     {.script = SLOW, .trainer = LONG},
     .seen = true,
     .begin = begin_fit},
    {"a fit that is paused", {.script = SLOW, .trainer = LONG}, .begin = begin_pause},
    {"a fit that stops", {.script = SLOW, .trainer = LONG}, .begin = begin_stop},
    {"a loop of one's own", {0}, .seen = true, .begin = loop_begin},
    {"processes that are launched", {0}, .begin = launch_whole},
    {"processes that are ranks",
     {.trainer = "\"max_epochs\": 2"},
     .ranks = 2,
     .seen = true},
    {"a process that dies",
     {.trainer = LONG},
     .ranks = 2,
     .dies = "SIGSEGV",
     .seen = true,
     .status = "failed"},
    {"a process that comes back",
     {.trainer = "\"max_epochs\": 2"},
     .ranks = 2,
     .dies = "SIGKILL",
     .restarts = 1,
     .seen = true},
};
enum { FEATURES = sizeof features / sizeof *features };

/* The process that reads the first sample dies, once. */
static rig_t *feature_rig(const struct feature *f)
{
    char launcher[64], mark[256];
    if (!f->ranks)
        return rig_make(&f->spec);
    snprintf(launcher, sizeof launcher, "{\"name\": \"spawn\", \"max_restarts\": %d}",
             f->restarts);
    snprintf(mark, sizeof mark, "\"mark\": \"%s\"", path_of("died"));
    unlink(path_of("died"));
    return far_new(.launcher = launcher, .ranks = f->ranks, .record = f->dies ? 1 : 0,
                   .then = f->dies, .data = mark, .rig = f->spec);
}

static void feature_use(const struct feature *f)
{
    lookers_t lookers = {0};
    rig_t *rig = feature_rig(f);
    if (!rig) {
        ok(false, "%s: %s", f->name, rig_error.text);
        return;
    }
    if (f->seen)
        look_on(rig, &lookers);
    if (f->begin)
        f->begin(rig);
    else if (strcmp(rig_fit(rig)->status, f->status ? f->status : "ok"))
        ok(false, "%s ends \"%s\": %s", f->name, rig_wait(rig)->status,
           rig_wait(rig)->error.text);
    rig_free(&rig);
    look_away(&lookers);
    if (f->dies && access(path_of("died"), F_OK) != 0)
        ok(false, "%s has died", f->name);
}

static int entry_remove(const char *path, const struct stat *status, int type,
                        struct FTW *where)
{
    (void)status, (void)type, (void)where;
    remove(path);
    return 0;
}

static void runs_remove(void)
{
    nftw(path_of("runs"), entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- tests ---- */

static traces_t pristine;

/* Valgrind may not know descriptors of processes. */
static bool can_be_used(const struct feature *f)
{
    const bool has_processes = f->ranks || f->begin == launch_whole;
    const int own = has_processes ? (int)syscall(SYS_pidfd_open, getpid(), 0) : -1;
    if (own >= 0)
        close(own);
    return (!has_processes || own >= 0)
           && (!f->spec.accelerator || pl_component_find("accelerator", "cpu", NULL));
}

static void a_feature_leaves_nothing(const struct feature *f)
{
    if (!can_be_used(f)) {
        tap_skip("%s: it cannot be used here", f->name);
        return;
    }
    feature_use(f);                          /* what is made once for a process is made */
    const long blocks = scarce_live();
    feature_use(f);
    is_int(scarce_live(), blocks, "%s: no block of memory", f->name);
    nothing_was_left(&pristine, f->name);
    runs_remove();
}

static void an_engine_leaves_nothing_whatever_it_did(void)
{
    for (int k = 0; k < FEATURES; k++)
        a_feature_leaves_nothing(&features[k]);
}

/* ---- one after the other ---- */

typedef struct size {
    long rss, own, in_use;             /* KiB; own: not of files, whose share of a process
                                          grows when others end that have them too */
    long blocks;
} size_now_t;

static long field_of(const char *path, const char *name)
{
    char line[256];
    long value = 0;
    FILE *file = fopen(path, "r");
    while (file && !value && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            value = atol(line + strlen(name));
    if (file)
        fclose(file);
    return value;
}

/* What the allocator keeps of its own accord goes by how threads met, up and down by more
 * than 10 MiB: it gives back what it can before anything is counted. */
static size_now_t size_now(int cycle)
{
    malloc_trim(0);
    const struct mallinfo2 all = mallinfo2();
    const size_now_t now = {.rss = field_of("/proc/self/status", "VmRSS:"),
                            .own = field_of("/proc/self/smaps_rollup", "Pss_Anon:")
                                   + field_of("/proc/self/smaps_rollup", "Pss_Shmem:"),
                            .in_use = (long)((all.uordblks + all.hblkhd) >> 10),
                            .blocks = scarce_live()};
    tap_diag("%5d: VmRSS %ld KiB, own %ld KiB, in use %ld KiB, blocks %ld, threads %d, "
             "descriptors %d, sockets %d",
             cycle, now.rss, now.own, now.in_use, now.blocks, files_in("/proc/self/task"),
             files_in("/proc/self/fd"), files_in(sockets));
    return now;
}

/* Mostly a short fit; every few times another feature, processes the least often. */
static const struct feature *feature_of(int cycle)
{
    const int turn = cycle / RARE;
    const struct feature *f = &features[cycle % RARE ? cycle & 1 : turn % FEATURES];
    const bool costs = f->ranks && turn / FEATURES % RARE;
    return costs || !can_be_used(f) ? &features[0] : f;
}

static int cycles;

/* The least of each half is compared. */
static void engines_one_after_the_other_need_no_more(void)
{
    size_now_t first = {0}, last = {0};
    long min[2] = {LONG_MAX, LONG_MAX};
    for (int k = 0; k <= WARM + cycles; k++) {
        const int step = (cycles + 9) / 10, at = k - WARM;
        if (at >= 0 && at % step == 0) {
            last = size_now(at);
            long *own = &min[at > cycles / 2];
            *own = last.own < *own ? last.own : *own;
        }
        if (at == cycles / 2 / step * step)
            first = last;
        feature_use(feature_of(k));
        runs_remove();
    }
    is_int(last.blocks, first.blocks, "%d engines leave not a block", cycles);
    nothing_was_left(&pristine, "all of them");
    if (SANITIZED)
        return;
    ok(last.in_use - first.in_use < GROWTH_KB, "no memory in use: %ld KiB",
       last.in_use - first.in_use);
    ok(min[1] - min[0] < GROWTH_KB, "nor any that is kept: %ld KiB", min[1] - min[0]);
}

static void *nothing(void *user)
{
    return user;
}

/* ThreadSanitizer makes a thread of its own beside the first, which stays. */
static void begin_threads(void)
{
    pthread_t first;
    if (pthread_create(&first, NULL, nothing, NULL) == 0)
        pthread_join(first, NULL);
}

int main(int argc, char **argv)
{
    const char *tmpdir = getenv("PACELINE_CYCLES");
    scarce_init_own();
    far_init(NULL);
    cycles = argc > 1 ? atoi(argv[1]) : tmpdir ? atoi(tmpdir) : CYCLES;
    snprintf(sockets, sizeof sockets, "%s/sockets", tap_folder());
    mkdir(sockets, 0700);
    setenv("TMPDIR", sockets, 1);
    mallopt(M_ARENA_MAX, 2);              /* else what is kept goes by how threads meet */
    begin_threads();
    pristine = traces_now();
    run(an_engine_leaves_nothing_whatever_it_did);
    run(engines_one_after_the_other_need_no_more);
    return tap_done();
}
