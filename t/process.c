/* process.c - tests of engine/transport/process.c: children that end well, badly, loudly,
 * and with their parent */
#include "transport/process.h"

#include <event2/event.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "scarce.h"
#include "tap.h"

/* ---- a loop, and the events of a child ---- */

typedef struct seen {
    struct event_base *loop;
    pl_process_t *process;
    int lines, deaths;
    char first[PL_PROCESS_LINE + 1], last[PL_PROCESS_LINE + 1], how[PL_DEATH_TEXT];
    pl_death_t death;
    bool frees;                                          /* at its death */
    int sends;                                           /* a signal, at its first line */
    int64_t killed, died;                                /* when; 0: not */
} seen_t;

static seen_t seen;

static void on_line(void *user, const char *line)
{
    (void)user;
    snprintf(seen.lines ? seen.last : seen.first, sizeof seen.last, "%s", line);
    if (seen.lines++ > 0 || !seen.sends)
        return;
    seen.killed = pl_now();
    pl_process_signal(seen.process, seen.sends);
}

static void on_death(void *user, const pl_death_t *death)
{
    (void)user;
    seen.deaths++;
    seen.died = pl_now();
    seen.death = *death;
    pl_death_text(death, seen.how);
    if (!seen.frees)
        return;
    pl_process_free(seen.process);
    seen.process = NULL;
}

static bool begin(const char *const *argv, const char *const *environment)
{
    pl_error_t err = {0};
    pl_process_spec_t spec = {.argv = argv,
                              .environment = environment,
                              .on_line = on_line,
                              .on_death = on_death};
    seen.loop = event_base_new();
    seen.process = pl_process_start(&spec, seen.loop, &err);
    if (!seen.process)
        tap_diag("%s", err.text);
    return seen.process != NULL;
}

static void turn_until_dead(void)
{
    for (int64_t until = pl_now() + 60 * PL_SECOND; !seen.deaths && pl_now() < until;) {
        struct timeval soon = {0, 100000};
        event_base_loopexit(seen.loop, &soon);
        event_base_loop(seen.loop, EVLOOP_ONCE);
    }
}

static void finish(void)
{
    pl_process_free(seen.process);
    event_base_free(seen.loop);
    seen = (seen_t){0};
}

/* What a line of shell does, to its end. */
static void shell(const char *text, const char *const *environment)
{
    const char *const argv[] = {"sh", "-c", text, NULL};
    if (begin(argv, environment))
        turn_until_dead();
}

/* ---- ends ---- */

static void ends_are_reported_as_they_were(void)
{
    static const struct {
        const char *text, *how;
        int status, signal;
    } ends[] = {
        {"exit 0", "exited with status 0", 0, 0},
        {"exit 1", "exited with status 1", 1, 0},
        {"no-such-program-here", "exited with status 127", 127, 0},
        {"kill -SEGV $$", "was killed by SIGSEGV", -1, SIGSEGV},
        {"kill -9 $$", "was killed by SIGKILL", -1, SIGKILL},
        {"kill -40 $$", "was killed by signal 40", -1, 40},
    };
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
        shell(ends[k].text, NULL);
        is_text(seen.how, ends[k].how, "\"%s\"", ends[k].text);
        ok(seen.deaths == 1 && seen.death.is_known && seen.death.status == ends[k].status
               && seen.death.signal == ends[k].signal,
           "once, with status %d and signal %d", seen.death.status, seen.death.signal);
        finish();
    }
}

static void a_kill_is_noticed_at_once(void)
{
    seen.sends = SIGKILL;
    shell("echo here >&2; exec sleep 60", NULL);
    ok(seen.killed && seen.died && seen.died - seen.killed < PL_SECOND, "in %.1f ms",
       (double)(seen.died - seen.killed) / 1e6);
    is_text(seen.how, "was killed by SIGKILL", "with what ended it");
    finish();
}

static void a_childs_children_end_with_it(void)
{
    shell("sleep 60 & echo $! >&2; kill -9 $$", NULL);
    is_int(seen.lines, 1, "it prints the process that it started");
    ok(eventually(kill(atoi(seen.first), 0) != 0),
       "which is gone, once init has reaped it");
    finish();
}

static void a_child_is_ended_by_being_freed(void)
{
    static const char *const argv[] = {"sleep", "60", NULL};
    begin(argv, NULL);
    int pid = pl_process_id(seen.process);
    pl_process_free(seen.process);
    seen.process = NULL;
    ok(kill(pid, 0) != 0, "and reaped");
    is_int(seen.deaths, 0, "no event comes");
    finish();
}

static void a_death_may_free_what_it_tells_of(void)
{
    seen.frees = true;
    shell("echo x >&2", NULL);
    is_int(seen.deaths, 1, "once");
    ok(!seen.process, "it is gone");
    finish();
}

static void a_host_that_waits_for_all_its_children_is_no_failure(void)
{
    static const char *const argv[] = {"true", NULL};
    begin(argv, NULL);
    while (waitpid(-1, NULL, 0) < 0)
        continue;
    turn_until_dead();
    ok(seen.deaths == 1 && !seen.death.is_known, "the death is reported");
    like(seen.how, "unknown status", "and that its status is not known");
    finish();
}

static void a_program_that_is_not_there_is_named(void)
{
    static const char *const missing[] = {"/no/such/program", NULL}, *const unfit[] = {
                                                                         "/etc/passwd",
                                                                         NULL};
    struct event_base *loop = event_base_new();
    for (int k = 0; k < 2; k++) {
        pl_error_t err = {0};
        pl_process_spec_t spec = {.argv = k ? unfit : missing};
        ok(!pl_process_start(&spec, loop, &err), "%s is not started", spec.argv[0]);
        is_int(err.code, PL_ENOTFOUND, "which is reported");
        like(err.text, spec.argv[0], "by name");
    }
    event_base_free(loop);
}

/* ---- what it says ---- */

static void lines_come_whole_and_in_order(void)
{
    shell("printf 'one\\r\\ntwo\\0\\nthree' >&2", NULL);
    is_int(seen.lines, 3, "three, the last of them without its end");
    is_text(seen.first, "one", "the first");
    is_text(seen.last, "three", "the last");
    is_text(pl_process_tail(seen.process), "one\r\ntwo?\nthree", "the tail has all");
    finish();
}

static void a_long_line_comes_in_pieces(void)
{
    shell("head -c 10000 /dev/zero | tr '\\0' x >&2", NULL);
    is_int(seen.lines, 3, "10000 bytes");
    is_int(strlen(seen.first), PL_PROCESS_LINE, "the first piece is full");
    is_int(strlen(seen.last), 10000 - 2 * PL_PROCESS_LINE, "the last has the rest");
    finish();
}

static int ticks;

static void tick(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what, (void)user;
    if (++ticks == 10)
        pl_process_signal(seen.process, SIGKILL);
}

static void a_flood_is_kept_within_bounds(void)
{
    static const char *const argv[] = {"sh", "-c", "exec yes flood >&2", NULL};
    const struct timeval often = {.tv_usec = 10000};
    scarce_init();
    begin(argv, NULL);
    struct event *timer = event_new(seen.loop, -1, EV_PERSIST, tick, NULL);
    event_add(timer, &often);
    long before = scarce_live();
    turn_until_dead();
    ok(ticks >= 10, "timers of the same loop fire in between");
    ok(seen.lines > 1000, "%d lines came", seen.lines);
    is_int(scarce_live(), before, "no memory is taken for them");
    ok(strlen(pl_process_tail(seen.process)) <= PL_PROCESS_TAIL, "the tail is bounded");
    ok(!strncmp(pl_process_tail(seen.process), "flood\n", 6), "and begins with a line");
    event_free(timer);
    finish();
}

/* ---- what it is given ---- */

static void a_childs_environment_is_the_given_one(void)
{
    static const char *const environment[] = {"A=b=c", "HOME", "PATH=/usr/bin:/bin",
                                              NULL};
    setenv("KEPT", "yes", 1);
    setenv("HOME", "/somewhere", 1);
    shell("echo \"$A $KEPT ${HOME-none} $PATH $PACELINE_PARENT\" >&2", environment);
    char want[128];
    snprintf(want, sizeof want, "^b=c yes none /usr/bin:/bin %d:[1-9][0-9]*$",
             (int)getpid());
    like(seen.first, want, "set, kept, left out, replaced");
    finish();
}

static void a_child_inherits_nothing_of_the_host(void)
{
    int leak = dup(STDERR_FILENO);                          /* not close-on-exec */
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    signal(SIGUSR1, SIG_IGN);
    shell("ls /proc/self/fd | wc -l >&2; grep -E '^Sig(Blk|Ign)' /proc/self/status >&2;"
          "readlink /proc/self/fd/0 >&2",
          NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGUSR1, SIG_DFL);
    const char *tail = pl_process_tail(seen.process);
    like(tail, "^4\n", "no descriptor but the standard ones and ls's own");
    like(tail, "SigBlk:\t0000000000000000", "no signal is blocked");
    like(tail, "SigIgn:\t[0-9]{8}[08]000000[01]\n", "or ignored");
    like(tail, "/dev/null\n$", "nothing is to be read");
    close(leak);
    finish();
}

/* ---- signals ---- */

static const char *self;

/* This program again, as a child: how often a signal comes, which counts each that is
 * sent. */
static int counter(void)
{
    const struct timespec long_time = {10, 0}, moment = {0, 200000000};
    sigset_t one;
    int count = 0;
    sigemptyset(&one);
    sigaddset(&one, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &one, NULL);
    dprintf(STDERR_FILENO, "waits\n");
    while (sigtimedwait(&one, NULL, count ? &moment : &long_time) > 0)
        count++;
    dprintf(STDERR_FILENO, "%d\n", count);
    return 0;
}

static void a_signal_comes_once(void)
{
    const char *const argv[] = {self, "counter", NULL};
    seen.sends = SIGRTMIN + 1;
    if (begin(argv, NULL))
        turn_until_dead();
    is_text(seen.first, "waits", "a child that leads a group of its own");
    is_text(seen.last, "1", "gets what is sent to both one time");
    finish();
}

/* ---- with its parent ---- */

static int wait_for_signal(const char *line)
{
    if (write(STDERR_FILENO, line, strlen(line)) < 0)
        return 1;
    for (;;)
        pause();
}

/* This program again, as the child of a child. */
static int follower(void)
{
    pl_error_t err = {0};
    return pl_process_follow_parent(&err) == PL_OK ? wait_for_signal("follows\n") : 3;
}

static void tell_on(void *user, const char *line)
{
    (void)user, (void)line;
    char text[32];
    snprintf(text, sizeof text, "%d\n", pl_process_id(seen.process));
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        seen.deaths++;
}

static int host(void)
{
    const char *const argv[] = {self, "follower", NULL};
    pl_process_spec_t spec = {.argv = argv, .on_line = tell_on};
    seen.loop = event_base_new();
    seen.process = pl_process_start(&spec, seen.loop, NULL);
    return event_base_dispatch(seen.loop);
}

static void a_host_that_dies_takes_its_children_with_it(void)
{
    const char *const argv[] = {self, "host", NULL};
    begin(argv, NULL);
    while (!seen.lines && !seen.deaths)
        event_base_loop(seen.loop, EVLOOP_ONCE);
    int child = (int)syscall(SYS_pidfd_open, atoi(seen.first), 0);
    struct pollfd item = {.fd = child, .events = POLLIN};
    is_int(poll(&item, 1, 0), 0, "the child of the child lives");
    int64_t before = pl_now();
    kill(pl_process_id(seen.process), SIGKILL);
    is_int(poll(&item, 1, 20000), 1, "and dies with it");
    ok(pl_now() - before < PL_SECOND, "in %.1f ms", (double)(pl_now() - before) / 1e6);
    close(child);
    turn_until_dead();
    finish();
}

/* Holds that process for a while, also when it is dead; says when it begins to. */
static int tracer(const char *pid)
{
    if (ptrace(PTRACE_SEIZE, atoi(pid), 0, 0) != 0)
        return 77;
    fprintf(stderr, "holds it\n");
    struct pollfd item = {.fd = (int)syscall(SYS_pidfd_open, atoi(pid), 0),
                          .events = POLLIN};
    poll(&item, 1, 20000);
    poll(NULL, 0, 50);
    return 0;
}

static void the_death_of_one_that_is_traced_is_known(void)
{
    const char *const sleeper[] = {"sleep", "60", NULL};
    begin(sleeper, NULL);
    pl_process_t *traced = seen.process;
    struct event_base *loop = seen.loop;
    char pid[16];
    snprintf(pid, sizeof pid, "%d", pl_process_id(traced));
    const char *const argv[] = {self, "tracer", pid, NULL};
    begin(argv, NULL);
    while (!seen.lines && !seen.deaths)
        event_base_loop(seen.loop, EVLOOP_ONCE);
    pl_process_t *other = seen.process;
    struct event_base *other_loop = seen.loop;
    const bool is_held = seen.lines > 0;
    seen = (seen_t){.process = traced, .loop = loop};
    kill(pl_process_id(traced), SIGKILL);
    turn_until_dead();
    if (is_held)
        is_text(seen.how, "was killed by SIGKILL", "when its tracer lets it go");
    else
        tap_skip("nothing may be traced here");
    finish();
    seen = (seen_t){.process = other, .loop = other_loop};
    finish();
}

static void a_process_whose_parent_is_gone_ends(void)
{
    pid_t gone = fork();
    if (!gone)
        _exit(0);
    waitpid(gone, NULL, 0);
    char variable[64];
    snprintf(variable, sizeof variable, "PACELINE_PARENT=%d", (int)gone);
    const char *const argv[] = {"env", variable, self, "follower", NULL};
    begin(argv, NULL);
    turn_until_dead();
    is_int(seen.death.status, 3, "the parent is gone already");
    finish();
    snprintf(variable, sizeof variable, "%s follower; exit 4", self);
    seen.sends = SIGKILL;
    shell(variable, NULL);
    is_text(seen.first, "follows",
            "with a shell between, it is not for the child to say");
    finish();
    unsetenv("PACELINE_PARENT");
    is_int(pl_process_follow_parent(NULL), PL_OK,
           "a process without that variable follows none");
}

/* As in a container: there the number of the parent names no process, or another. */
static void a_parent_in_another_namespace_is_not_looked_for(void)
{
    const char *const argv[] = {"unshare", "--pid", "--fork", self, "follower", NULL};
    shell("unshare --pid --fork true", NULL);
    const bool is_possible = seen.death.status == 0;
    finish();
    if (!is_possible) {
        tap_skip("no PID namespace can be made here");
        return;
    }
    seen.sends = SIGKILL;
    begin(argv, NULL);
    turn_until_dead();
    is_text(seen.first, "follows", "a child is not refused");
    finish();
}

/* ---- memory that runs out ---- */

static int start_one(void *user)
{
    static const char *const argv[] = {"true", NULL};
    pl_error_t err = {0};
    pl_process_spec_t spec = {.argv = argv};
    pl_process_t *process = pl_process_start(&spec, user, &err);
    pl_process_free(process);
    return err.code;
}

static void a_child_starts_or_memory_is_out(void)
{
    struct event_base *loop = event_base_new();
    scarce_try(start_one, loop, "starting");
    event_base_free(loop);
}

int main(int argc, char **argv)
{
    static char own[4096];
    if (readlink("/proc/self/exe", own, sizeof own - 1) > 0)
        self = own;
    if (argc > 2)
        return tracer(argv[2]);
    if (argc > 1 && !strcmp(argv[1], "counter"))
        return counter();
    if (argc > 1)
        return strcmp(argv[1], "host") ? follower() : host();
    run(ends_are_reported_as_they_were);
    run(a_kill_is_noticed_at_once);
    run(a_childs_children_end_with_it);
    run(a_child_is_ended_by_being_freed);
    run(a_death_may_free_what_it_tells_of);
    run(a_host_that_waits_for_all_its_children_is_no_failure);
    run(a_program_that_is_not_there_is_named);
    run(lines_come_whole_and_in_order);
    run(a_long_line_comes_in_pieces);
    run(a_flood_is_kept_within_bounds);
    run(a_childs_environment_is_the_given_one);
    run(a_child_inherits_nothing_of_the_host);
    run(a_signal_comes_once);
    run(a_host_that_dies_takes_its_children_with_it);
    run(the_death_of_one_that_is_traced_is_known);
    run(a_process_whose_parent_is_gone_ends);
    run(a_parent_in_another_namespace_is_not_looked_for);
    run(a_child_starts_or_memory_is_out);
    return tap_done();
}
