/* collective_rig.c - ranks for tests of collectives: threads of the test, or processes of
 * its program, without actors */
#include "collective_rig.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bind.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "tap.h"

enum { PATIENCE_MS = 60000 };

pl_error_t members_error;

/* ---- a rank ---- */

static _Thread_local member_t *current;                 /* whose operation is under way */

static void op_done(pl_coll_request_t *req, const pl_error_t *err)
{
    (void)req;
    current->done = true;
    current->err = err ? *err : (pl_error_t){0};
}

int member_open(member_t *m, const char *component,
                const pl_collective_context_t *context)
{
    *m = (member_t){0};
    json_t *value = json_loads(component, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, NULL);
    const pl_instance_request_t request = {.role = "collective", .value = value};
    int code = pl_instance_make(&m->component, &request, &m->err);
    json_decref(value);
    m->place = strchr(component, '@');
    if (code != PL_OK)
        return code;
    m->ops = m->component.ops;
    return m->ops->open(m->component.self,
                        context ? context : &(pl_collective_context_t){0}, m->address,
                        &m->descriptor, &m->err);
}

void member_close(member_t *m)
{
    if (m->ops)
        m->ops->close(m->component.self);
    pl_instance_release(&m->component);
}

static int unsupported(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    (void)self;
    return pl_fail(err, PL_EUNSUPPORTED, "%s", pl_coll_op_name(req->desc.op));
}

/* As the actor refuses what a collective lacks. */
static int (*slot_of(const pl_collective_ops_t *ops,
                     uint32_t op))(void *, pl_coll_request_t *, pl_error_t *)
{
    switch (op) {
    case PL_COLL_OP_join: return ops->join;
    case PL_COLL_OP_alloc_buffer: return ops->alloc_buffer;
    case PL_COLL_OP_register_buffer:
        return ops->register_buffer ? ops->register_buffer : unsupported;
    case PL_COLL_OP_all_reduce: return ops->all_reduce;
    case PL_COLL_OP_reduce_scatter: return ops->reduce_scatter;
    case PL_COLL_OP_all_gather: return ops->all_gather;
    case PL_COLL_OP_all_to_all: return ops->all_to_all;
    case PL_COLL_OP_broadcast: return ops->broadcast;
    case PL_COLL_OP_send: return ops->send;
    default: return ops->barrier;
    }
}

int member_begin(member_t *m, pl_coll_request_t *req)
{
    current = m;
    m->done = false;
    memset(m->arrived, 0, sizeof m->arrived);
    req->arrived = m->arrived;
    req->done = op_done;
    int code = slot_of(m->ops, req->desc.op)(m->component.self, req, &m->err);
    if (code != PL_OK)
        m->ops->abort(m->component.self, &m->err);
    return code;
}

void member_help(member_t *m)
{
    current = m;
    m->ops->advance(m->component.self);
}

int member_wait(member_t *m, int milliseconds)
{
    const int64_t until = pl_now() + milliseconds * PL_MILLISECOND;
    while (!m->done) {
        const int64_t left = (until - pl_now()) / PL_MILLISECOND;
        struct pollfd wait = {.fd = m->descriptor, .events = POLLIN};
        if (left <= 0 || poll(&wait, 1, (int)left) == 0)
            return pl_fail(&m->err, PL_ETIMEOUT, "the test has waited too long");
        member_help(m);
    }
    if (m->err.code != PL_OK)
        m->ops->abort(m->component.self, &(pl_error_t){.text = "as another did"});
    return m->err.code;
}

int member_do(member_t *m, pl_coll_request_t *req)
{
    int code = member_begin(m, req);
    return code == PL_OK ? member_wait(m, PATIENCE_MS) : code;
}

/* As a rank elsewhere sees it: "shm MACHINE NAME | tcp …" */
static void address_move(char to[PL_ADDRESS_TEXT], const char *address, char machine)
{
    const char *name = strchr(strchr(address, ' ') + 1, ' ');
    snprintf(to, PL_ADDRESS_TEXT, "shm machine-%c%s", machine, name);
}

int member_join(member_t *m, int rank, int size, const char *const *address)
{
    char moved[MEMBERS_MAX][PL_ADDRESS_TEXT];
    const char *seen[MEMBERS_MAX];
    for (int k = 0; k < size; k++) {
        const bool elsewhere = m->place && m->place[1 + k] != m->place[1 + rank];
        if (elsewhere)
            address_move(moved[k], address[k], m->place[1 + k]);
        seen[k] = elsewhere ? moved[k] : address[k];
    }
    const pl_world_t world = {rank, size, seen};
    pl_coll_request_t req = {.desc = {.op = PL_COLL_OP_join}, .world = &world};
    m->rank = rank, m->size = size;
    return member_do(m, &req);
}

pl_reg_buffer_t *member_alloc(member_t *m, size_t bytes)
{
    pl_coll_request_t req = {.desc = {.op = PL_COLL_OP_alloc_buffer, .count = bytes}};
    if (member_do(m, &req) == PL_OK)
        return req.memory;
    pl_object_unref(req.memory);
    return NULL;
}

int member_call(member_t *m, pl_coll_op_t op, pl_reg_buffer_t *buffer, uint64_t offset,
                uint64_t count)
{
    pl_coll_request_t req = {.memory = buffer,
                             .desc = {.op = op,
                                      .dtype = PL_F32,
                                      .memory = buffer ? buffer->number : 0,
                                      .offset = offset,
                                      .count = count,
                                      .step = m->step}};
    return member_do(m, &req);
}

/* ---- elements ---- */

float tree_sum(const float *value, int n)
{
    if (n == 1)
        return value[0];
    int left = 1;
    while (left * 2 < n)
        left *= 2;
    return tree_sum(value, left) + tree_sum(value + left, n - left);
}

/* Magnitudes far apart, so that the order shows. */
float element_of(int rank, uint64_t k)
{
    const double value = pl_random_normal(pl_mix(7, (uint64_t)rank), k);
    return (float)(value * pow(10, (double)(k % 7)));
}

/* ---- threads ---- */

typedef struct team {
    pthread_barrier_t all_open;
    const char *component;
    int size;
    script_t script;
    void *user;
    bool failed;                                            /* atomic */
    const char *address[MEMBERS_MAX];
} team_t;

typedef struct teammate {
    team_t *team;
    int rank;
    pthread_t thread;
    member_t member;
} sailor_t;

static void *sailor_run(void *user)
{
    sailor_t *teammate = user;
    team_t *team = teammate->team;
    member_t *m = &teammate->member;
    if (member_open(m, team->component, NULL) != PL_OK)
        __atomic_store_n(&team->failed, true, __ATOMIC_RELAXED);
    pthread_barrier_wait(&team->all_open);
    if (!__atomic_load_n(&team->failed, __ATOMIC_RELAXED)
        && member_join(m, teammate->rank, team->size, team->address) == PL_OK)
        team->script(m, team->user);
    member_close(m);
    return NULL;
}

/* Ranks that learn of an error end with PL_EPEER: the error of the failed rank counts. */
static void error_note(const pl_error_t *err)
{
    if (err->code && (!members_error.code || members_error.code == PL_EPEER))
        members_error = *err;
}

void members_run(const char *component, int size, script_t script, void *user)
{
    static sailor_t teammate[MEMBERS_MAX];
    team_t team = {.component = component, .size = size, .script = script, .user = user};
    pthread_barrier_init(&team.all_open, NULL, (unsigned)size);
    for (int k = 0; k < size; k++)
        team.address[k] = teammate[k].member.address;
    for (int k = 0; k < size; k++) {
        teammate[k].team = &team, teammate[k].rank = k;
        pthread_create(&teammate[k].thread, NULL, sailor_run, &teammate[k]);
    }
    members_error = (pl_error_t){0};
    for (int k = 0; k < size; k++) {
        pthread_join(teammate[k].thread, NULL);
        error_note(&teammate[k].member.err);
    }
    pthread_barrier_destroy(&team.all_open);
}

/* ---- processes ---- */

extern char **environ;

void rank_start(rank_process_t *p, const char *component, const char *script, int rank,
                int size)
{
    int in[2], out[2];
    char number[12], count[12], option[] = "--rank", path[4096] = "";
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)
        || readlink("/proc/self/exe", path, sizeof path - 1) < 0)
        exit(99);
    snprintf(number, sizeof number, "%d", rank);
    snprintf(count, sizeof count, "%d", size);
    char *args[] = {
        path,  option, (char *)(uintptr_t)component, (char *)(uintptr_t)script, number,
        count, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    if (posix_spawn(&p->pid, path, &actions, NULL, args, environ))
        exit(99);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]), close(out[1]);
    p->rank = rank;
    p->to = fdopen(in[1], "w");
    p->from = fdopen(out[0], "r");
    snprintf(p->address, sizeof p->address, "%.*s", PL_ADDRESS_TEXT - 1, rank_line(p));
}

void rank_tell(rank_process_t *p, const char *const *address, int size)
{
    for (int rank = 0; rank < size; rank++)
        fprintf(p->to, "%s\n", address[rank]);
    fflush(p->to);
}

static const char *line_read(FILE *from, char *line, int capacity)
{
    if (!fgets(line, capacity, from))
        return "";
    line[strcspn(line, "\n")] = '\0';
    return line;
}

const char *rank_line(rank_process_t *p)
{
    static char line[1024];
    return line_read(p->from, line, sizeof line);
}

void rank_end(rank_process_t *p)
{
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    fclose(p->to);
    fclose(p->from);
}

/* At the place that rank_start() has: see node_t. */
static pl_collective_context_t context_of_node(void)
{
    static const unsigned char key[PL_KEY_BYTES] = {7, 7, 7};
    const char *path = getenv("RANK_NODE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (path && (fd < 0 || setns(fd, CLONE_NEWNET)))
        exit(99);
    if (fd >= 0)
        close(fd);
    return (pl_collective_context_t){.host = getenv("RANK_HOST"),
                                     .key = path ? key : NULL};
}

static void rank_run(const char *component, script_t script, int rank, int size)
{
    member_t m;
    const pl_collective_context_t context = context_of_node();
    static char text[MEMBERS_MAX][PL_ADDRESS_TEXT];
    const char *address[MEMBERS_MAX];
    if (member_open(&m, component, &context) == PL_OK) {
        printf("%s\n", m.address);
        fflush(stdout);
        for (int k = 0; k < size; k++)
            address[k] = line_read(stdin, text[k], sizeof text[k]);
        if (member_join(&m, rank, size, address) == PL_OK)
            script(&m, NULL);
    }
    printf("%s %s\n", pl_code_name(m.err.code), m.err.text);
    fflush(stdout);
    member_close(&m);
}

bool rank_main(int argc, char **argv, const named_script_t *scripts)
{
    if (argc != 6 || strcmp(argv[1], "--rank") != 0)
        return false;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (; scripts->name; scripts++)
        if (!strcmp(scripts->name, argv[3]))
            rank_run(argv[2], scripts->script, atoi(argv[4]), atoi(argv[5]));
    return true;
}
