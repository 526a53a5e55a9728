/* process.c - child processes: starts, reads, watches and ends them
 *
 * The pidfd reports the death and always names this child: the number of a process that
 * was reaped elsewhere may belong to another process by now.  The group is ended while
 * its first process still waits to be reaped, because until then no other process can get
 * its number. */
#include "transport/process.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/timeouts.h"

#define PARENT "PACELINE_PARENT"              /* number of the parent:its PID namespace */

enum {
    CHILD_DESCRIPTORS = 4,
    TURN_BYTES = 64 << 10,                 /* of standard error in one turn of the loop */
    LAST_BYTES = 1 << 20,                  /* of standard error after the death */
    REAP_MS = 500,
};

struct pl_process {
    void (*on_line)(void *user, const char *line);
    void (*on_death)(void *user, const pl_death_t *death);
    void *user;
    pid_t pid;
    int pidfd, error_fd;                                    /* -1: closed */
    struct event *death, *readable;
    size_t length, kept;                                    /* of line, of tail */
    char line[PL_PROCESS_LINE + 1];
    char tail[2 * PL_PROCESS_TAIL + 1];
};

/* ---- standard error ---- */

static void line_end(pl_process_t *process)
{
    size_t length = process->length;
    process->length = 0;
    if (length && process->line[length - 1] == '\r')
        length--;
    process->line[length] = '\0';
    if (process->on_line)
        process->on_line(process->user, process->line);
}

const char *pl_process_tail(pl_process_t *process)
{
    char *tail = process->tail;
    tail[process->kept] = '\0';
    if (process->kept <= PL_PROCESS_TAIL)
        return tail;
    tail += process->kept - PL_PROCESS_TAIL;
    char *whole = strchr(tail, '\n');
    return whole && whole[1] ? whole + 1 : tail;
}

/* Splits what arrived into lines, and keeps the newest part.  False: nothing arrived. */
static bool error_read(pl_process_t *process)
{
    char text[8192];
    ssize_t size = read(process->error_fd, text, sizeof text);
    if (size < 0)
        return errno == EINTR;
    if (size == 0) {
        event_del(process->readable);
        return false;
    }
    const size_t kept = (size_t)size < PL_PROCESS_TAIL ? (size_t)size : PL_PROCESS_TAIL;
    if (process->kept + kept > 2 * PL_PROCESS_TAIL) {
        memmove(process->tail, process->tail + process->kept - PL_PROCESS_TAIL,
                PL_PROCESS_TAIL);
        process->kept = PL_PROCESS_TAIL;
    }
    for (size_t k = (size_t)size - kept; k < (size_t)size; k++)
        process->tail[process->kept++] = text[k] ? text[k] : '?';
    for (size_t k = 0; k < (size_t)size; k++) {
        if (process->length == PL_PROCESS_LINE)
            line_end(process);
        if (text[k] == '\n')
            line_end(process);
        else
            process->line[process->length++] = text[k] ? text[k] : '?';
    }
    return true;
}

static void error_readable(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_process_t *process = user;
    for (int size = 0; size < TURN_BYTES && error_read(process);)
        size += 8192;
}

/* ---- the end ---- */

/* A traced process (by a debugger, strace, or a sanitizer at its end) exists until the
 * tracer releases it. */
static pl_death_t reap(int pidfd)
{
    siginfo_t info = {0};
    pl_death_t death = {.status = -1};
    int waited, tries = 0;
    do
        waited = waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG);
    while ((waited != 0 && errno == EINTR)
           || (waited == 0 && info.si_pid == 0 && tries++ < REAP_MS
               && (poll(NULL, 0, 1) == 0 || errno == EINTR)));
    death.is_known = waited == 0 && info.si_pid != 0;
    if (death.is_known && info.si_code == CLD_EXITED)
        death.status = info.si_status;
    else if (death.is_known)
        death.signal = info.si_status;
    return death;
}

static void ended(evutil_socket_t fd, short what, void *user)
{
    (void)what;
    pl_process_t *process = user;
    for (int size = 0; size < LAST_BYTES && error_read(process);)
        size += 8192;
    if (process->length)
        line_end(process);
    event_del(process->readable);
    kill(-process->pid, SIGKILL);
    pl_death_t death = reap(fd);
    close(process->pidfd);
    process->pidfd = -1;
    if (process->on_death)
        process->on_death(process->user, &death);
}

void pl_process_signal(pl_process_t *process, int number)
{
    if (process->pidfd < 0
        || syscall(SYS_pidfd_send_signal, process->pidfd, 0, NULL, 0) != 0)
        return;
    if (getpgid(process->pid) != process->pid)              /* it has left its group */
        syscall(SYS_pidfd_send_signal, process->pidfd, number, NULL, 0);
    kill(-process->pid, number);
}

const char *pl_death_text(const pl_death_t *death, char text[PL_DEATH_TEXT])
{
    const char *name = death->signal ? sigabbrev_np(death->signal) : NULL;
    if (!death->is_known)
        snprintf(
            text, PL_DEATH_TEXT,
            "has ended with unknown status: this program waits for all its children");
    else if (name)
        snprintf(text, PL_DEATH_TEXT, "was killed by SIG%s", name);
    else if (death->signal)
        snprintf(text, PL_DEATH_TEXT, "was killed by signal %d", death->signal);
    else
        snprintf(text, PL_DEATH_TEXT, "exited with status %d", death->status);
    return text;
}

/* ---- the start ---- */

/* Whether text is "NAME" or "NAME=…" of the variable in `of`. */
static bool same_name(const char *text, const char *of)
{
    size_t length = strcspn(of, "=");
    return !strncmp(text, of, length) && (!text[length] || text[length] == '=');
}

/* The array alone is allocated. */
static char **environment_new(const char *const *own, char *parent)
{
    size_t count = 0, more = 2;
    while (environ && environ[count])
        count++;
    for (const char *const *o = own; o && *o; o++)
        more++;
    char **all = pl_alloc_array(count + more, sizeof *all);
    if (!all)
        return NULL;
    size_t k = 0;
    for (size_t i = 0; i < count; i++)
        if (!same_name(environ[i], parent)) {
            const char *const *o = own;
            while (o && *o && !same_name(environ[i], *o))
                o++;
            if (!o || !*o)
                all[k++] = environ[i];
        }
    for (; own && *own; own++)
        if (strchr(*own, '='))
            all[k++] = (char *)*own;
    all[k] = parent;
    return all;
}

static const char *program_of(const pl_process_spec_t *spec)
{
    return spec->program ? spec->program : spec->argv[0];
}

/* The PID namespace of this process; 0: it is not known. */
static unsigned long long own_namespace(void)
{
    struct stat space;
    return stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

static int spawn(pid_t *pid, const pl_process_spec_t *spec, int error_fd)
{
    char parent[sizeof PARENT + 40];
    snprintf(parent, sizeof parent, PARENT "=%d:%llu", (int)getpid(), own_namespace());
    char **environment = environment_new(spec->environment, parent);
    if (!environment)
        return ENOMEM;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    sigemptyset(&none);
    sigfillset(&usual);                         /* signals ignored here are not ignored */
    sigdelset(&usual, SIGHUP);                  /* there, but a hangup stays so (nohup) */
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setpgroup(&attributes, 0);
    int failed = posix_spawn_file_actions_adddup2(&actions, error_fd, STDERR_FILENO);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                                  O_RDONLY, 0);
    if (!failed)
        failed = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    if (!failed)
        failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK
                                                           | POSIX_SPAWN_SETSIGDEF
                                                           | POSIX_SPAWN_SETPGROUP);
    if (!failed)
        failed = posix_spawnp(pid, program_of(spec), &actions, &attributes,
                              (char *const *)spec->argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    pl_free(environment);
    return failed;
}

static int child_start(pl_process_t *process, const pl_process_spec_t *spec,
                       pl_error_t *err)
{
    int ends[2];
    if (pl_descriptors_check(CHILD_DESCRIPTORS, "a process", err) != PL_OK)
        return PL_EBUSY;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return pl_fail(err, PL_EBUSY, "cannot create a pipe for %s: %s", program_of(spec),
                       strerror(errno));
    process->error_fd = ends[0];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    int failed = spawn(&process->pid, spec, ends[1]);
    close(ends[1]);
    if (failed == ENOMEM)
        return pl_no_memory(err);
    if (failed) {
        const bool is_missing = failed == ENOENT || failed == EACCES || failed == ENOEXEC
                                || failed == ENOTDIR;
        return pl_fail(err, is_missing ? PL_ENOTFOUND : PL_EBUSY, "cannot start %s: %s",
                       program_of(spec), strerror(failed));
    }
    process->pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (process->pidfd >= 0)
        return PL_OK;
    failed = errno;
    kill(process->pid, SIGKILL);
    waitpid(process->pid, NULL, 0);
    return pl_fail(err, PL_EUNSUPPORTED, "cannot watch %s: %s", program_of(spec),
                   strerror(failed));
}

pl_process_t *pl_process_start(const pl_process_spec_t *spec, struct event_base *loop,
                               pl_error_t *err)
{
    pl_process_t *process = pl_alloc(sizeof *process);
    if (!process) {
        pl_no_memory(err);
        return NULL;
    }
    process->on_line = spec->on_line;
    process->on_death = spec->on_death;
    process->user = spec->user;
    process->pidfd = process->error_fd = -1;
    if (child_start(process, spec, err) == PL_OK) {
        process->readable = event_new(loop, process->error_fd, EV_READ | EV_PERSIST,
                                      error_readable, process);
        process->death = event_new(loop, process->pidfd, EV_READ, ended, process);
        if (process->readable && process->death && event_add(process->readable, NULL) == 0
            && event_add(process->death, NULL) == 0)
            return process;
        pl_no_memory(err);
    }
    pl_process_free(process);
    return NULL;
}

void pl_process_free(pl_process_t *process)
{
    if (!process)
        return;
    pl_process_signal(process, SIGKILL);
    if (process->death)
        event_free(process->death);
    if (process->readable)
        event_free(process->readable);
    if (process->pidfd >= 0) {
        struct pollfd item = {.fd = process->pidfd, .events = POLLIN};
        while (poll(&item, 1, PL_KILLED_MS) < 0 && errno == EINTR)
            continue;
        reap(process->pidfd);
        close(process->pidfd);
    }
    if (process->error_fd >= 0)
        close(process->error_fd);
    pl_free(process);
}

int pl_process_id(const pl_process_t *process)
{
    return (int)process->pid;
}

/* ---- in the child ---- */

/* A shell may stand between parent and child.  Then the end of the shell is not the end
 * of the parent, and the link reports that one.  It also does for a parent in another PID
 * namespace, such as a container's: here its number names no process or another. */
int pl_process_follow_parent(pl_error_t *err)
{
    const char *text = getenv(PARENT);
    unsigned long long space = 0;
    int parent = 0;
    if (!text || sscanf(text, "%d:%llu", &parent, &space) < 1 || parent <= 0
        || (space && space != own_namespace()))
        return PL_OK;
    if (getppid() == parent) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            return PL_OK;
    } else if (kill(parent, 0) == 0 || errno == EPERM) {
        return PL_OK;
    }
    return pl_fail(err, PL_EPEER, "process %d, the parent of this one, has ended",
                   parent);
}
