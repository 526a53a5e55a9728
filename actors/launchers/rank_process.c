/* rank_process.c - the process of a rank: pl_init() enters it when a launcher has started
 * this program
 *
 * An actor of the launcher's level (rank_client.h) makes here the calls that the proxy
 * receives there.  The process stays until the other side has everything that it sent.
 *
 * From here on the process is Paceline's own, so this file may set up what otherwise is
 * the host's: signals, environment, exit. */
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "actors/launchers/ranks.h"
#include "actors/launchers/rank_client.h"
#include "actors/launchers/rank_links.h"
#include "base/alloc.h"
#include "base/error.h"
#include "runtime/monitor.h"
#include "runtime/reactor.h"
#include "base/timeouts.h"

/* ---- Backtraces of all threads, on SIGABRT ---- */

enum { FRAMES = 48, WAIT_US = 1000, WAITS = 50 };

/* As getdents64(2) gives them. */
typedef struct task {
    uint64_t number;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
} task_t;

static int leader;                                        /* atomic: 0 until the signal */
static int written;                                       /* atomic: backtraces */

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return;
}

static void trace_write(void)
{
    void *frame[FRAMES];
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    say("thread \"");
    say(name);
    say("\":\n");
    backtrace_symbols_fd(frame, backtrace(frame, FRAMES), STDERR_FILENO);
    __atomic_add_fetch(&written, 1, __ATOMIC_RELEASE);
}

/* Each thread writes its backtrace before the next one gets the signal. */
static void others_ask(int self)
{
    const struct timespec moment = {0, WAIT_US * 1000};
    _Alignas(task_t) char listed[4096];
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (long size; (size = syscall(SYS_getdents64, folder, listed, sizeof listed)) > 0;)
        for (long at = 0; at < size; at += ((task_t *)(void *)(listed + at))->size) {
            const int other = atoi(((task_t *)(void *)(listed + at))->name),
                      before = __atomic_load_n(&written, __ATOMIC_ACQUIRE);
            if (other <= 0 || other == self
                || syscall(SYS_tgkill, getpid(), other, SIGABRT) != 0)
                continue;
            for (int k = 0;
                 k < WAITS && __atomic_load_n(&written, __ATOMIC_ACQUIRE) == before; k++)
                nanosleep(&moment, NULL);
        }
}

static void aborted(int number)
{
    int none = 0, self = (int)syscall(SYS_gettid);
    if (!__atomic_compare_exchange_n(&leader, &none, self, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST)) {
        trace_write();
        return;
    }
    others_ask(self);
    trace_write();
    signal(number, SIG_DFL);
    raise(number);
}

/* From now on SIGABRT has every thread that does not block it write its backtrace to
 * standard error before the process ends. */
static void backtrace_on_abort(void)
{
    void *frame[1];
    const struct sigaction action = {.sa_handler = aborted};
    backtrace(frame, 1);                    /* the first one loads what all others need */
    sigaction(SIGABRT, &action, NULL);
}

enum { LOST = 3 };                                          /* exit status */

typedef struct output_line {
    struct output_line *next;
    pl_follow_log_progress_t says;
    char text[];                                            /* actor, text */
} output_line_t;

typedef struct rank_program {
    pl_reactor_t *reactor;
    pl_rank_client_t client;
    int signals;                                            /* descriptor */
    char calls[PL_FOLDER_PATH], bulk[PL_FOLDER_PATH];       /* where the links are */
} rank_program_t;

/* ---- Lines for the log of the launcher ---- */

static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static output_line_t *lines, **lines_end = &lines;

/* entry  [NULL: the links are gone] */
static void lines_send(void *entry)
{
    rank_program_t *e = entry;
    pthread_mutex_lock(&lines_lock);
    output_line_t *line = lines, *next;
    lines = NULL;
    lines_end = &lines;
    pthread_mutex_unlock(&lines_lock);
    for (; line; line = next) {
        next = line->next;
        if (e)
            pl_outbox_post(&e->client.outbox, PL_KIND_PROGRESS, PL_MESSAGE_follow_log, 0,
                           &line->says, NULL);
        pl_free(line);
    }
}

/* Any thread. */
static void line_say(pl_log_level_t level, int rank, const char *actor, const char *text,
                     void *user)
{
    rank_program_t *e = user;
    const size_t first = strlen(actor) + 1, second = strlen(text) + 1;
    output_line_t *line = pl_alloc(sizeof *line + first + second);
    (void)rank;
    if (!line)
        return;
    memcpy(line->text, actor, first);
    memcpy(line->text + first, text, second);
    line->says = (pl_follow_log_progress_t){.level = (uint32_t)level,
                                            .actor = line->text,
                                            .text = line->text + first};
    pthread_mutex_lock(&lines_lock);
    *lines_end = line;
    lines_end = &line->next;
    pthread_mutex_unlock(&lines_lock);
    pl_reactor_post(e->reactor, lines_send, e, NULL);
}

/* ---- The end ---- */

static void entry_gone(void *self)
{
    pl_reactor_leave(((rank_program_t *)self)->reactor);
}

static void entry_end(void *self)
{
    rank_program_t *e = self;
    if (pl_after(e, PL_LEAVE_MS, entry_gone, NULL) != PL_OK)
        entry_gone(e);
    lines_send(e);
    pl_rank_client_leave(&e->client);
}

/* Without the launcher the work of the rank has no use. */
static void entry_lost(void *self, const char *why)
{
    (void)self, (void)why;
    _exit(LOST);
}

/* A signal to one rank stops the run of all. */
static void signal_came(void *self)
{
    rank_program_t *e = self;
    struct signalfd_siginfo info;
    char request[80];
    if (read(e->signals, &info, sizeof info) != sizeof info)
        return;
    snprintf(request, sizeof request, "rank %d received SIG%s", e->client.spec.rank,
             sigabbrev_np((int)info.ssi_signo));
    pl_rank_client_request_stop(&e->client, request);
}

/* ---- The process ---- */

static const pl_actor_ops_t entry_ops = {.name = "entry",
                                         .help = "represents the launcher in the "
                                                 "process of a rank",
                                         .size = sizeof(rank_program_t),
                                         .level = PL_LEVEL_LAUNCHER,
                                         .handlers = (pl_handler_t[]){PL_HANDLERS_END}};

/* On this thread, until the rank has ended.  Signals are blocked before another thread
 * exists, so that all threads inherit that. */
static int rank_live(pl_runtime_t *runtime, const pl_bootstrap_t *bootstrap,
                     pl_error_t *err)
{
    static const pl_rank_client_ops_t ops = {.on_end = entry_end,
                                             .on_lost = entry_lost,
                                             .on_left = entry_gone};
    pl_rank_client_spec_t spec = {.run = bootstrap->run,
                                  .incarnation = bootstrap->incarnation,
                                  .rank = bootstrap->rank,
                                  .world_size = bootstrap->world_size,
                                  .local_rank = bootstrap->rank,
                                  .sharers = bootstrap->world_size};
    sigset_t set;
    pl_reactor_t *reactor = pl_reactor_new(runtime, bootstrap->rank, err);
    void *self = NULL;
    int code = reactor ? pl_actor_root(reactor, &entry_ops, &self, err) : err->code;
    rank_program_t *e = self;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (code == PL_OK) {
        e->reactor = reactor;
        e->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (e->signals < 0 || pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
            code = pl_fail(err, PL_EBUSY,
                           "cannot create a descriptor for signals: raise the limit of "
                           "open files (ulimit -n)");
    }
    if (code == PL_OK)
        code = pl_watch(e, e->signals, signal_came, err);
    if (code == PL_OK) {
        spec.calls = pl_folder_path(bootstrap->folder, PL_FOLDER_CALLS, e->calls);
        spec.bulk = pl_folder_path(bootstrap->folder, PL_FOLDER_BULK, e->bulk);
        code = pl_rank_client_open(&e->client, e, &ops, &spec, err);
    }
    if (code == PL_OK) {
        if (bootstrap->log_level >= 0)
            pl_log_hook(line_say, (pl_log_level_t)bootstrap->log_level, e);
        pl_reactor_run(reactor);
        pl_log_hook(NULL, PL_LOG_ERROR, NULL);
    }
    if (e)
        pl_rank_client_release(&e->client);
    pl_reactor_free(reactor);
    lines_send(NULL);
    return code;
}

/* Without a link the output of the process has the reason. */
static int rank_lost(const pl_bootstrap_t *bootstrap, const pl_error_t *why)
{
    fprintf(stderr, "rank %d: %s\n", bootstrap->rank, why->text);
    return LOST;
}

/* The name of this process for ps(1). */
static void rank_name(const pl_bootstrap_t *bootstrap)
{
    char name[16];
    snprintf(name, sizeof name, "rank %d", bootstrap->rank);
    prctl(PR_SET_NAME, name);
}

static int rank_main(const pl_bootstrap_t *bootstrap)
{
    pl_runtime_t runtime;
    pl_error_t err = {0};
    rank_name(bootstrap);
    if (pl_runtime_init(&runtime, &err) != PL_OK)
        return rank_lost(bootstrap, &err);
    pl_bootstrap_enter(bootstrap, &runtime);
    backtrace_on_abort();
    int code = rank_live(&runtime, bootstrap, &err);
    pl_monitor_stop(&runtime);
    if (runtime.stuck)
        _exit(LOST);                         /* a thread that does not end holds it all */
    pl_runtime_release(&runtime);
    return code == PL_OK ? EXIT_SUCCESS : rank_lost(bootstrap, &err);
}

/* A program that runs for a rank keeps its signal handlers, except for SIGABRT.
 * Processes that this one starts are no ranks. */
void pl_entry_if_rank(void)
{
    pl_bootstrap_t bootstrap;
    const pl_bootstrap_t *script = pl_bootstrap_in_script();
    if (script) {
        unsetenv(PL_BOOTSTRAP_IN_SCRIPT);
        rank_name(script);
        backtrace_on_abort();
    }
    if (!pl_bootstrap_read(getenv(PL_BOOTSTRAP), &bootstrap))
        return;
    unsetenv(PL_BOOTSTRAP);
    exit(rank_main(&bootstrap));
}
