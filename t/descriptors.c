/* descriptors.c - tests of engine/base/descriptors.c: whatever the limit of
 * descriptors, the engine's libraries end
 * no process and print nothing */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rig.h"
#include "base/descriptors.h"
#include "tap.h"

enum { SUCCEEDED = 0, REFUSED = 1, UNCLEAR = 2 };           /* how a child ends */

static void limit_descriptors(int max)
{
    struct rlimit limit = {(rlim_t)max, (rlim_t)max};
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int verdict(const pl_error_t *err)
{
    return err->code < 0 && err->text[0] ? REFUSED : UNCLEAR;
}

/* ---- what children do ---- */

static int an_engine(int max)
{
    pl_error_t err = {0};
    char endpoint[256];
    snprintf(endpoint, sizeof endpoint, "ipc://%s/scarce", tap_folder());
    limit_descriptors(max);
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    if (!engine)
        return strstr(err.text, "ulimit -n") ? REFUSED : UNCLEAR;
    int code = pl_engine_monitor(engine, endpoint, &err);
    pl_engine_free(engine);
    return code == PL_OK ? SUCCEEDED : verdict(&err);
}

/* Connects more often than the stream's process has descriptors; the ends are closed when
 * it is done. */
/* Each is accepted, and greeted, before the next one comes: no peer could count faster
 * than connections can be made. */
static void connect_often(const char *path, int times)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval max = {1, 0};
    char greeting;
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    for (int k = 0; k < times; k++) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &max, sizeof max);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0
            && recv(fd, &greeting, 1, 0) < 0)
            return;
    }
}

static int a_flood_of_viewers(int max)
{
    pl_error_t err = {0};
    char endpoint[256];
    int status = -1;
    snprintf(endpoint, sizeof endpoint, "ipc://%s/flooded", tap_folder());
    pid_t flood = fork();
    if (flood == 0) {
        if (eventually(access(endpoint + 6, F_OK) == 0))
            connect_often(endpoint + 6, 2 * max);
        _exit(SUCCEEDED);
    }
    limit_descriptors(max);
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    int code = engine ? pl_engine_monitor(engine, endpoint, &err) : err.code;
    waitpid(flood, &status, 0);
    pl_engine_free(engine);
    return code == PL_OK && status == 0 ? SUCCEEDED : UNCLEAR;
}

static int lowest_free(void)
{
    int fd = dup(1);
    close(fd);
    return fd;
}

static int a_fit(int more)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 2",
                         .data = "\"batch_size\": 8, \"workers\": 2");
    if (!rig)
        return UNCLEAR;
    limit_descriptors(lowest_free() + more);
    if (!rig_begin(rig))
        return verdict(&rig_error);
    const rig_result_t *result = rig_wait(rig);
    int status = !strcmp(result->status, "ok") ? SUCCEEDED : verdict(&result->error);
    if (status == UNCLEAR || !strcmp(result->status, "none"))
        return UNCLEAR;
    rig_free(&rig);
    return status;
}

/* A fit that is refused tells which limit would do: a pipe, written by the child. */
static int reported[2], fit_ranks;

static rig_t *rig_of_many(void)
{
    char trainer[64];
    snprintf(trainer, sizeof trainer, "\"max_epochs\": 2, \"devices\": %d", fit_ranks);
    return rig_new(.trainer = trainer, .data = "\"batch_size\": 4, \"workers\": 3",
                   .loggers = "[\"jsonl\", \"csv\", \"tensorboard\"]");
}

static int a_fit_that_tells(int more)
{
    rig_t *rig = rig_of_many();
    pl_error_t err = {0};
    limit_descriptors(lowest_free() + more);
    int code = rig ? pl_trainer_fit(rig_trainer(rig), NULL, NULL, &err) : PL_EBUG;
    const char *said = code == PL_EBUSY ? strstr(err.text, "raise it to ") : NULL;
    const int limit = said ? atoi(said + strlen("raise it to ")) : 0;
    return write(reported[1], &limit, sizeof limit) == sizeof limit && said ? REFUSED
                                                                            : UNCLEAR;
}

static int a_fit_within(int limit)
{
    rig_t *rig = rig_of_many();
    limit_descriptors(limit);
    if (!rig || !rig_begin(rig))
        return REFUSED;
    const rig_result_t *result = rig_wait(rig);
    if (strcmp(result->status, "ok"))
        fprintf(stderr, "%s\n", result->error.text);
    return !strcmp(result->status, "ok") ? SUCCEEDED : UNCLEAR;
}

/* ---- how they end ---- */

/* What it says on standard error goes to a file. */
static int status_of(int (*work)(int), int limit, const char *said)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 1);
        dup2(open(said, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), 2);
        _exit(work(limit));
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void try_limits(int (*work)(int), int from, int to)
{
    char said[128];
    int ends[2] = {0}, bad = 0;
    struct stat file;
    snprintf(said, sizeof said, "%s/said", tap_folder());
    for (int limit = from; limit <= to; limit++) {
        int status = status_of(work, limit, said);
        bool clean = WIFEXITED(status) && WEXITSTATUS(status) <= REFUSED
                     && stat(said, &file) == 0 && file.st_size == 0;
        if (clean)
            ends[WEXITSTATUS(status)]++;
        else if (bad++ < 5)
            tap_diag("with %d descriptors: status %x, %lld bytes said", limit,
                     (unsigned)status,
                     (long long)(stat(said, &file) == 0 ? file.st_size : -1));
    }
    is_int(bad, 0, "each ends well or is refused, in silence");
    ok(ends[REFUSED] > 0 && ends[SUCCEEDED] > 0, "%d are refused, %d end well",
       ends[REFUSED], ends[SUCCEEDED]);
}

/* ---- tests ---- */

static void an_engine_without_descriptors_is_refused(void)
{
    try_limits(an_engine, 3, 60);
}

static void a_fit_without_descriptors_fails_and_the_host_lives(void)
{
    try_limits(a_fit, 0, 80);
}

static void a_flood_of_viewers_takes_not_all_descriptors(void)
{
    char said[128];
    snprintf(said, sizeof said, "%s/said", tap_folder());
    is_int(status_of(a_flood_of_viewers, 1000, said), SUCCEEDED, "the host lives");
}

static void the_limit_that_is_named_suffices(int ranks)
{
    fit_ranks = ranks;
    char said[128];
    int limit = 0;
    snprintf(said, sizeof said, "%s/said", tap_folder());
    ok(pipe(reported) == 0, "a pipe");
    is_int(WEXITSTATUS(status_of(a_fit_that_tells, 10, said)), REFUSED,
           "a fit that lacks descriptors is refused before it starts");
    ok(read(reported[0], &limit, sizeof limit) == sizeof limit, "and tells a limit");
    ok(limit > 60 && limit < 60 + 100 * ranks, "that it takes: %d", limit);
    is_int(WEXITSTATUS(status_of(a_fit_within, limit, said)), SUCCEEDED,
           "they are enough");
    is_int(WEXITSTATUS(status_of(a_fit_within, limit - 1, said)), REFUSED,
           "with fewer it does not begin");
}

static void the_limit_in_the_error_suffices(void)
{
    the_limit_that_is_named_suffices(1);
    the_limit_that_is_named_suffices(3);
}

/* The least of some, of this thread's processor time. */
static double check_us(void)
{
    double min = 1e9;
    for (int k = 0; k < 20; k++) {
        struct timespec began, ended;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
        pl_descriptors_for(4, 10, NULL);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
        const double us = (double)(ended.tv_sec - began.tv_sec) * 1e6
                          + (double)(ended.tv_nsec - began.tv_nsec) / 1e3;
        min = us < min ? us : min;
    }
    return min;
}

static void a_host_with_many_connections_is_not_held(void)
{
    enum { CONNECTIONS = 6000 };
    struct rlimit was, much;
    static int fd[CONNECTIONS];
    int opened = 0;
    getrlimit(RLIMIT_NOFILE, &was);
    much = (struct rlimit){was.rlim_max, was.rlim_max};
    setrlimit(RLIMIT_NOFILE, &much);
    while (opened < CONNECTIONS && (fd[opened] = dup(0)) >= 0)
        opened++;
    if (opened < CONNECTIONS || much.rlim_cur < 3 * CONNECTIONS) {
        tap_skip("%d descriptors may be open", (int)much.rlim_cur);
    } else {
        const double us = check_us();
        ok(us < 2000, "beside %d descriptors it takes %.1f us to see that there are some",
           CONNECTIONS, us);
    }
    while (opened > 0)
        close(fd[--opened]);
    setrlimit(RLIMIT_NOFILE, &was);
}

int main(void)
{
    rig_init(NULL);
    run(an_engine_without_descriptors_is_refused);
    run(a_fit_without_descriptors_fails_and_the_host_lives);
    run(the_limit_in_the_error_suffices);
    run(a_flood_of_viewers_takes_not_all_descriptors);
    run(a_host_with_many_connections_is_not_held);
    return tap_done();
}
