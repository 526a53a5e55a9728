/* collective_nodes.c - tests of shm and tcp together, on two nodes: network namespaces
 * with a cable between them, which only root can make
 *
 * A node is a process of this program that keeps a namespace; its ranks enter it. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "collective_rig.h"
#include "config.h"
#include "tap.h"

enum { NODES = 2, RANKS = 4, ELEMENTS = 300007 };

static const char component[] = "\"best\"";

/* ---- what ranks do ---- */

static uint32_t sum_of(member_t *m)
{
    uint32_t crc = 0;
    pl_reg_buffer_t *buffer = member_alloc(m, ELEMENTS * sizeof(float));
    float *data = buffer ? buffer->data : NULL;
    for (uint64_t k = 0; buffer && k < ELEMENTS; k++)
        data[k] = element_of(m->rank, k);
    if (buffer && member_call(m, PL_COLL_OP_all_reduce, buffer, 0, ELEMENTS) == PL_OK)
        crc = pl_crc32c(0, data, ELEMENTS * sizeof(float));
    pl_object_unref(buffer);
    return crc;
}

static void sum_and_tell(member_t *m, void *user)
{
    (void)user;
    printf("sum %08x\n", sum_of(m));
    fflush(stdout);
}

static void sum_and_keep(member_t *m, void *user)
{
    const uint32_t crc = sum_of(m);
    if (m->rank == 0)
        *(uint32_t *)user = crc;
}

static void reduce_for_ever(member_t *m, void *user)
{
    (void)user;
    pl_reg_buffer_t *buffer = member_alloc(m, ELEMENTS * sizeof(float));
    printf("ready\n");
    fflush(stdout);
    while (buffer && member_call(m, PL_COLL_OP_all_reduce, buffer, 0, ELEMENTS) == PL_OK)
        continue;
    pl_object_unref(buffer);
}

/* ---- nodes ---- */

static pid_t node[NODES];

/* Keeps a namespace until it is killed. */
static int node_main(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool there = unshare(CLONE_NEWNET) == 0;
    if (write(STDOUT_FILENO, there ? "+" : "-", 1) == 1)
        pause();
    return 0;
}

static bool node_start(int k)
{
    int out[2];
    char answer = '-';
    if (pipe(out))
        return false;
    node[k] = fork();
    if (node[k] == 0) {
        dup2(out[1], STDOUT_FILENO);
        _exit(node_main());
    }
    close(out[1]);
    if (read(out[0], &answer, 1) != 1)
        answer = '-';
    close(out[0]);
    return answer == '+';
}

static bool ip(const char *format, int first, int second)
{
    char command[256];
    int length = snprintf(command, sizeof command, format, first, second);
    snprintf(command + length, sizeof command - (size_t)length, " 2>/dev/null");
    return system(command) == 0;
}

static void nodes_end(void)
{
    for (int k = 0; k < NODES; k++)
        if (node[k] > 0) {
            kill(node[k], SIGKILL);
            waitpid(node[k], NULL, 0);
        }
}

static bool nodes_start(void)
{
    bool there = geteuid() == 0 && node_start(0) && node_start(1)
                 && ip("ip link add plt0 netns %d type veth peer name plt0 netns %d",
                       node[0], node[1]);
    for (int k = 0; k < NODES && there; k++)
        there = ip("nsenter -t %d -n ip addr add 10.77.0.%d/24 dev plt0", node[k], k + 1)
                && ip("nsenter -t %d -n ip link set plt0 up", node[k], 0)
                && ip("nsenter -t %d -n ip link set lo up", node[k], 0);
    return there;
}

/* The ranks on nodes as the digits say. */
static void ranks_start(rank_process_t *rank, const char *place, const char *script)
{
    const char *address[RANKS];
    for (int k = 0; k < RANKS; k++) {
        char path[64], host[32];
        snprintf(path, sizeof path, "/proc/%d/ns/net", node[place[k] - '0']);
        snprintf(host, sizeof host, "10.77.0.%d", place[k] - '0' + 1);
        setenv("RANK_NODE", path, 1);
        setenv("RANK_HOST", host, 1);
        rank_start(&rank[k], component, script, k, RANKS);
        address[k] = rank[k].address;
    }
    for (int k = 0; k < RANKS; k++)
        rank_tell(&rank[k], address, RANKS);
}

static void ranks_end(rank_process_t *rank)
{
    for (int k = 0; k < RANKS; k++)
        rank_end(&rank[k]);
}

/* ---- tests ---- */

static void nodes_add_up_to_the_bits_of_one_machine(void)
{
    static const char *const places[] = {"0011", "0001", "0110", "0100"};
    uint32_t expected = 0;
    char text[32];
    members_run("\"shm\"", RANKS, sum_and_keep, &expected);
    snprintf(text, sizeof text, "sum %08x", expected);
    for (int p = 0; p < 4; p++) {
        rank_process_t rank[RANKS];
        ranks_start(rank, places[p], "sum_and_tell");
        for (int k = 0; k < RANKS; k++)
            is_text(rank_line(&rank[k]), text, "nodes %s, rank %d", places[p], k);
        ranks_end(rank);
    }
}

static void all_at_work(rank_process_t *rank)
{
    for (int k = 0; k < RANKS; k++)
        is_text(rank_line(&rank[k]), "ready", "rank %d works", k);
}

static void a_rank_that_is_killed_is_named_on_all_nodes(void)
{
    rank_process_t rank[RANKS];
    ranks_start(rank, "0011", "reduce_for_ever");
    all_at_work(rank);
    const int64_t began = pl_now();
    kill(rank[3].pid, SIGKILL);
    for (int k = 0; k < 3; k++)
        like(rank_line(&rank[k]), "^PL_EPEER .*rank 3 is gone", "rank %d says so", k);
    ok(pl_now() - began < PL_SECOND, "soon");
    ranks_end(rank);
}

static void a_cut_cable_ends_the_operation_on_both_sides(void)
{
    rank_process_t rank[RANKS];
    ranks_start(rank, "0011", "reduce_for_ever");
    all_at_work(rank);
    const int64_t began = pl_now();
    ok(ip("nsenter -t %d -n ip link set plt0 down", node[0], 0), "the cable is cut");
    for (int k = 0; k < RANKS; k++)
        like(rank_line(&rank[k]),
             k < 2 ? "^PL_EPEER .*rank [23] is gone" : "^PL_EPEER .*rank [01] is gone",
             "rank %d misses the other side", k);
    ok(pl_now() - began < 40 * PL_SECOND, "in some seconds");
    ranks_end(rank);
    ip("nsenter -t %d -n ip link set plt0 up", node[0], 0);
}

int main(int argc, char **argv)
{
    static const named_script_t scripts[] = {{"sum_and_tell", sum_and_tell},
                                             {"reduce_for_ever", reduce_for_ever},
                                             {NULL, NULL}};
    pl_init(NULL, NULL, NULL, NULL);
    if (rank_main(argc, argv, scripts))
        return 0;
#ifdef HAVE_SODIUM
    const bool there = nodes_start();
#else
    const bool there = false;
#endif
    if (there) {
        run(nodes_add_up_to_the_bits_of_one_machine);
        run(a_rank_that_is_killed_is_named_on_all_nodes);
        run(a_cut_cable_ends_the_operation_on_both_sides);
    } else {
        tap_skip("two nodes: they take root, iproute2, veth and libsodium");
    }
    nodes_end();
    return tap_done();
}
