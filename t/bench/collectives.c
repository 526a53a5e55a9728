/* collectives.c - all_reduce between two processes, beside gloo and MPI
 *
 *     collectives [ROUNDS]
 *
 * Every team is two processes that wait for orders; in each round each gets its turn, so
 * that what the machine does to one it does to all.  Medians of rounds.  Ours are driven
 * as the actor drives them, without messages: theirs have none either. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "strategies/collectives/collective.h"
#include "t/bench/bench.h"

enum {
    ROUNDS = 7,
    ROUNDS_MAX = 99,
    RANKS = 2,
    LINE = 512,
    TEAMS = 4,
    BYTES_MAX = 256 << 20
};

extern char **environ;

/* ---- a rank of ours ---- */

typedef struct rank {
    pl_instance_t component;
    const pl_collective_ops_t *ops;
    int descriptor;
    pl_reg_buffer_t *buffer;
} rank_t;

static bool op_done;

static void on_done(pl_coll_request_t *req, const pl_error_t *err)
{
    (void)req;
    bench_must(err ? err->code : PL_OK, err);
    op_done = true;
}

static void rank_do(rank_t *r, pl_coll_request_t *req,
                    int (*begin)(void *, pl_coll_request_t *, pl_error_t *))
{
    static unsigned char arrived[RANKS];
    pl_error_t err;
    req->arrived = arrived;
    req->done = on_done;
    op_done = false;
    bench_must(begin(r->component.self, req, &err), &err);
    while (!op_done) {
        struct pollfd wait = {.fd = r->descriptor, .events = POLLIN};
        poll(&wait, 1, -1);
        r->ops->advance(r->component.self);
    }
}

static void rank_connect(rank_t *r, const char *kind, int number)
{
    char own[PL_ADDRESS_TEXT], line[RANKS][LINE];
    const char *address[RANKS] = {line[0], line[1]};
    const pl_world_t world = {number, RANKS, address};
    pl_error_t err;
    json_t *name = json_string(kind);
    const pl_instance_request_t request = {.role = "collective", .value = name};
    bench_must(pl_instance_make(&r->component, &request, &err), &err);
    json_decref(name);
    r->ops = r->component.ops;
    bench_must(r->ops->open(r->component.self, &(pl_collective_context_t){0}, own,
                            &r->descriptor, &err),
               &err);
    printf("%s\n", own);
    fflush(stdout);
    for (int k = 0; k < RANKS; k++) {
        if (!fgets(line[k], LINE, stdin))
            exit(1);
        line[k][strcspn(line[k], "\n")] = '\0';
    }
    pl_coll_request_t join = {.desc = {.op = PL_COLL_OP_join}, .world = &world};
    rank_do(r, &join, r->ops->join);
    pl_coll_request_t alloc = {
        .desc = {.op = PL_COLL_OP_alloc_buffer, .count = BYTES_MAX}};
    rank_do(r, &alloc, r->ops->alloc_buffer);
    r->buffer = alloc.memory;
    float *data = r->buffer->data;
    for (size_t k = 0; k < BYTES_MAX / sizeof *data; k++)
        data[k] = (float)(k % 1000);
}

static void rank_main(const char *kind, int number)
{
    rank_t r = {0};
    long bytes, times;
    rank_connect(&r, kind, number);
    while (scanf("%ld %ld", &bytes, &times) == 2) {
        const pl_coll_request_t req = {.desc = {.op = PL_COLL_OP_all_reduce,
                                                .dtype = PL_F32,
                                                .count = (uint64_t)bytes / 4},
                                       .memory = r.buffer};
        pl_coll_request_t again = req, barrier = {.desc = {.op = PL_COLL_OP_barrier}};
        rank_do(&r, &again, r.ops->all_reduce);
        rank_do(&r, &barrier, r.ops->barrier);
        const int64_t began = pl_now();
        for (long k = 0; k < times; k++) {
            again = req;
            rank_do(&r, &again, r.ops->all_reduce);
        }
        if (number == 0)
            printf("%g\n", (double)(pl_now() - began) / (double)times / 1e3);
        fflush(stdout);
    }
    r.ops->close(r.component.self);
    pl_object_unref(r.buffer);
    pl_instance_release(&r.component);
}

/* ---- teams ---- */

typedef struct team {
    char name[LINE];
    int processes;                                          /* 0: it is not there */
    pid_t pid[RANKS];
    FILE *to[RANKS], *from[RANKS];
} team_t;

static bool process_start(team_t *team, char *const args[])
{
    int in[2], out[2], k = team->processes;
    posix_spawn_file_actions_t actions;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        exit(1);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    const int failed = posix_spawnp(&team->pid[k], args[0], &actions, NULL, args,
                                    environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]), close(out[1]);
    if (failed) {
        fprintf(stderr, "collectives: cannot start %s: %s\n", args[0], strerror(failed));
        close(in[1]), close(out[0]);
        return false;
    }
    team->processes++;
    team->to[k] = fdopen(in[1], "w");
    team->from[k] = fdopen(out[0], "r");
    return true;
}

static bool team_reads(team_t *team, int k, char *line)
{
    if (!fgets(line, LINE, team->from[k]))
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static void team_end(team_t *team)
{
    for (int k = 0; k < team->processes; k++) {
        fclose(team->to[k]);
        fclose(team->from[k]);
        waitpid(team->pid[k], NULL, 0);
    }
    team->processes = 0;
}

static void ours_start(team_t *team, char *self, const char *kind)
{
    char line[RANKS][LINE], number[RANKS][2] = {"0", "1"}, option[] = "--rank";
    snprintf(team->name, sizeof team->name, "%s", kind);
    for (int k = 0; k < RANKS; k++)
        if (!process_start(team, (char *[]){self, option, team->name, number[k], NULL}))
            exit(1);
    for (int k = 0; k < RANKS; k++)
        if (!team_reads(team, k, line[k])) {
            fprintf(stderr, "collectives: rank %d of %s has ended\n", k, kind);
            exit(1);
        }
    for (int k = 0; k < RANKS; k++) {
        fprintf(team->to[k], "%s\n%s\n", line[0], line[1]);
        fflush(team->to[k]);
    }
}

static void gloo_start(team_t *team, const char *top)
{
    char program[LINE], place[LINE], number[RANKS][2] = {"0", "1"}, line[LINE];
    snprintf(program, sizeof program, "%s/t/bench/gloo_rank", top);
    snprintf(place, sizeof place, "%s/gloo", bench_folder());
    for (int k = 0; k < RANKS; k++)
        if (!process_start(team, (char *[]){program, place, number[k], NULL})) {
            team_end(team);
            return;
        }
    for (int k = 0; k < RANKS; k++)
        if (!team_reads(team, k, k ? line : team->name)) {
            team_end(team);
            return;
        }
}

static void mpi_start(team_t *team, const char *top)
{
    char command[3 * LINE], program[LINE], fifo[LINE], run[] = "mpirun", option[] = "-n",
                                                       two[] = "2";
    snprintf(program, sizeof program, "%s/mpi_rank", bench_folder());
    snprintf(command, sizeof command, "mpicc -O2 -o %s %s/t/bench/mpi_rank.c 2>/dev/null",
             program, top);
    snprintf(fifo, sizeof fifo, "%s/orders", bench_folder());
    if (system(command) != 0 || mkfifo(fifo, 0600) != 0)
        return;
    if (process_start(team, (char *[]){run, option, two, program, fifo, NULL})
        && !team_reads(team, 0, team->name))
        team_end(team);
}

/* Microseconds for one. */
static double team_measure(team_t *team, long bytes, long times)
{
    char line[LINE] = "";
    for (int k = 0; k < team->processes; k++) {
        fprintf(team->to[k], "%ld %ld\n", bytes, times);
        fflush(team->to[k]);
    }
    if (!team_reads(team, 0, line)) {
        fprintf(stderr, "collectives: %s has ended\n", team->name);
        exit(1);
    }
    return atof(line);
}

/* ---- rows ---- */

typedef struct size {
    const char *name;
    long bytes, times;
    double shm_gloo, shm_mpi, tcp_gloo;                     /* bars; 0: none */
    double shm_us;                                          /* limit; 0: none */
} size_row_t;

static const size_row_t sizes[] = {
    {"4 B", 4, 2000, 2, 0, 1, 5},          {"64 KiB", 64 << 10, 300, 2, 1, 1, 0},
    {"1 MiB", 1 << 20, 60, 2, 1, 1, 0},    {"16 MiB", 16 << 20, 5, 2, 1, 1, 0},
    {"256 MiB", BYTES_MAX, 1, 2, 1, 1, 0},
};

static void row(const char *size, const char *ours, double us, const char *against,
                double theirs, double bar)
{
    printf("{\"name\": \"all_reduce %s %s\", \"unit\": \"us\", \"ours\": %.2f, "
           "\"against\": \"%s\", \"theirs\": %.2f, \"ratio\": %.2f",
           size, ours, us, against, theirs, theirs / us);
    if (bar > 0)
        printf(", \"bar\": %g, \"holds\": %s", bar,
               theirs >= bar * us ? "true" : "false");
    printf("}\n");
}

static void skipped(const char *size, const char *ours, const char *against)
{
    printf("{\"name\": \"all_reduce %s %s\", \"skipped\": \"no %s\"}\n", size, ours,
           against);
}

static void compare(const char *size, const team_t *ours, const team_t *theirs,
                    const double *us, const char *against, double bar)
{
    if (theirs->processes)
        row(size, ours->name, us[0], theirs->name, us[1], bar);
    else
        skipped(size, ours->name, against);
}

enum { SHM, TCP, GLOO, MPI };

static void size_measure(team_t team[TEAMS], const size_row_t *s, int rounds)
{
    static double us[TEAMS][ROUNDS_MAX];
    double middle[TEAMS] = {0};
    for (int round = 0; round < rounds; round++)
        for (int k = 0; k < TEAMS; k++)
            if (team[k].processes)
                us[k][round] = team_measure(&team[k], s->bytes, s->times);
    for (int k = 0; k < TEAMS; k++)
        if (team[k].processes)
            middle[k] = bench_median(us[k], rounds);
    compare(s->name, &team[SHM], &team[GLOO], (double[]){middle[SHM], middle[GLOO]},
            "gloo", s->shm_gloo);
    compare(s->name, &team[SHM], &team[MPI], (double[]){middle[SHM], middle[MPI]}, "MPI",
            s->shm_mpi);
    compare(s->name, &team[TCP], &team[GLOO], (double[]){middle[TCP], middle[GLOO]},
            "gloo", s->tcp_gloo);
    if (s->shm_us > 0)
        row(s->name, team[SHM].name, middle[SHM], "limit", s->shm_us, 1);
    fflush(stdout);
}

/* Where the parts of the peers are; run by hand it is near. */
static const char *source_folder(void)
{
    const char *const near[] = {getenv("top_srcdir"), ".", ".."};
    char component[LINE];
    for (int k = 0; k < 3; k++) {
        snprintf(component, sizeof component, "%s/t/bench/gloo_rank",
                 near[k] ? near[k] : ".");
        if (access(component, X_OK) == 0)
            return near[k] ? near[k] : ".";
    }
    fprintf(stderr,
            "collectives: no t/bench/gloo_rank here: set top_srcdir to the folder "
            "of the sources, or the peers are missing\n");
    return ".";
}

int main(int argc, char **argv)
{
    team_t team[TEAMS] = {0};
    pl_init(NULL, NULL, NULL, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && !strcmp(argv[1], "--rank")) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rank_main(argv[2], atoi(argv[3]));
        return 0;
    }
    int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    ours_start(&team[SHM], argv[0], "shm");
    ours_start(&team[TCP], argv[0], "tcp");
    const char *top = source_folder();
    gloo_start(&team[GLOO], top);
    mpi_start(&team[MPI], top);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        size_measure(team, &sizes[k], rounds);
    for (int k = 0; k < TEAMS; k++)
        team_end(&team[k]);
    return 0;
}
