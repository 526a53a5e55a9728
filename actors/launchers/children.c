/* children.c - the ranks of one node: children that are told their place
 *
 * What they do is theirs; they find each other by what they are told here.  Ranks go
 * together: when one fails the others are asked to end, and ended if they do not.  Only
 * what was started here is ever sent a signal. */
#include <event2/event.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "actors/launchers/again.h"
#include "actors/launchers/folder.h"
#include "actors/launchers/rendezvous.h"
#include "base/alloc.h"
#include "base/error.h"
#include "runtime/keys.h"
#include "runtime/process.h"
#include "runtime/socket.h"

enum {
    GRACE_S = 30,                                   /* to end, after another has failed */
    VARIABLES = 12,
    VARIABLE = PATH_MAX + 64,
    RANKS_MOST = 1 << 16,
};

typedef struct child {
    pl_launch_t *node;
    int rank;
    pl_process_t *process;                                  /* [has ended] */
} child_t;

struct pl_launch {
    pl_launch_spec_t spec;
    pl_sockets_t loop;
    char folder[PL_LINK_FOLDER];                            /* [""] */
    int lock;
    char endpoint[300], job[64], job_key[PATH_MAX];         /* job_key: [""] */
    struct event *grace;                                    /* [nobody has failed] */
    int living, status;
    bool was_signalled, is_told;
    pl_error_t error;                                       /* of the first that failed */
    child_t child[];                                        /* [devices] */
};

/* ---- the end ---- */

static void all_signal(pl_launch_t *node, int number)
{
    for (int k = 0; k < node->spec.devices; k++)
        if (node->child[k].process)
            pl_process_signal(node->child[k].process, number);
}

static void grace_over(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    all_signal(user, SIGKILL);
}

static void others_end(pl_launch_t *node)
{
    const struct timeval grace = {GRACE_S, 0};
    all_signal(node, SIGTERM);
    node->grace = event_new(node->loop.base, -1, 0, grace_over, node);
    if (!node->grace || event_add(node->grace, &grace) != 0)
        all_signal(node, SIGKILL);
}

/* What a shell would say. */
static int status_of(const pl_death_t *death)
{
    return death->signal ? 128 + death->signal : death->is_known ? death->status : 0;
}

static void first_failed(pl_launch_t *node, const child_t *child, const pl_death_t *death)
{
    char text[PL_DEATH_TEXT];
    node->status = status_of(death);
    pl_fail(&node->error, PL_EDIED, "rank %d (process %d) %s", child->rank,
            pl_process_id(child->process), pl_death_text(death, text));
    pl_words_add(child->process, &node->error);
    if (!node->was_signalled)
        others_end(node);
}

static void child_died(void *user, const pl_death_t *death)
{
    child_t *child = user;
    pl_launch_t *node = child->node;
    if (status_of(death) && !node->status)
        first_failed(node, child, death);
    pl_process_free(child->process);
    child->process = NULL;
    if (--node->living == 0)
        node->spec.on_end(node->spec.user, node->status,
                          node->was_signalled ? NULL : &node->error);
}

static void child_said(void *user, const char *line)
{
    const child_t *child = user;
    if (child->node->spec.on_line)
        child->node->spec.on_line(child->node->spec.user, child->rank, line);
}

void pl_launch_signal(pl_launch_t *node, int number)
{
    node->was_signalled = true;
    all_signal(node, number);
}

/* ---- what ranks are told ---- */

static int key_find(pl_launch_t *node, pl_error_t *err)
{
    pl_keys_t keys;
    if (!node->spec.job_key) {
        if (pl_rendezvous_is_near(node->endpoint))
            return PL_OK;
        return pl_fail(err, PL_EINVAL,
                       "ranks that meet at %s, beyond this machine, need the key of the "
                       "job: name a file for it, the same on all nodes (--job-key)",
                       node->endpoint);
    }
    int code = pl_keys_open(node->spec.job_key, &keys, err);
    pl_keys_forget(&keys);
    if (code == PL_OK && !realpath(node->spec.job_key, node->job_key))
        code = pl_fail(err, PL_EIO, "the path of %s cannot be found", node->spec.job_key);
    return code;
}

static int place_find(pl_launch_t *node, pl_error_t *err)
{
    const char *told = node->spec.endpoint, *port = told ? strrchr(told, ':') : NULL;
    const bool is_any = !told || (port && !strcmp(port, ":0"));
    uint64_t number = 0;
    if (is_any && node->spec.nodes > 1)
        return pl_fail(err, PL_EINVAL,
                       "%d nodes must be told one place to meet at: the HOST:PORT of "
                       "node 0 (--rdzv-endpoint)",
                       node->spec.nodes);
    int code = is_any
                   ? pl_folder_make(node->folder, &node->lock, err)
                   : pl_rendezvous_read(told, node->endpoint, sizeof node->endpoint, err);
    if (code != PL_OK)
        return code;
    if (is_any)
        snprintf(node->endpoint, sizeof node->endpoint, "ipc://%s/calls", node->folder);
    if (node->spec.nodes == 1 && getrandom(&number, sizeof number, 0) > 0)
        snprintf(node->job, sizeof node->job, "%016llx", (unsigned long long)number);
    else
        snprintf(node->job, sizeof node->job, "%.60s", node->endpoint);
    return key_find(node, err);
}

static int child_start(child_t *child, int local_rank, pl_error_t *err)
{
    static const char *const names[] = {"PACELINE_RANK",
                                        "PACELINE_WORLD_SIZE",
                                        "PACELINE_LOCAL_RANK",
                                        "PACELINE_NODE_RANK",
                                        "PACELINE_LOCAL_WORLD_SIZE",
                                        "PACELINE_ENDPOINT",
                                        "PACELINE_JOB_KEY_FILE",
                                        "PACELINE_RUN_ID"};
    enum { NAMES = sizeof names / sizeof *names };
    const pl_launch_t *node = child->node;
    const pl_launch_spec_t *s = &node->spec;
    const int numbers[] = {child->rank, s->nodes * s->devices, local_rank, s->node_rank,
                           s->devices};
    const char *const texts[] = {node->endpoint, node->job_key, node->job};
    enum { NUMBERS = sizeof numbers / sizeof *numbers };
    char(*text)[VARIABLE] = pl_alloc_array(NAMES, sizeof *text);
    const char *variable[NAMES + 1] = {NULL};
    if (!text)
        return pl_no_memory(err);
    for (int k = 0; k < NAMES; k++) {
        variable[k] = text[k];
        if (k < NUMBERS)
            snprintf(text[k], VARIABLE, "%s=%d", names[k], numbers[k]);
        else
            snprintf(text[k], VARIABLE, *texts[k - NUMBERS] ? "%s=%s" : "%s", names[k],
                     texts[k - NUMBERS]);
    }
    const pl_process_spec_t spec = {.argv = s->argv,
                                    .environment = variable,
                                    .on_line = child_said,
                                    .on_death = child_died,
                                    .user = child};
    child->process = pl_process_start(&spec, (pl_sockets_t *)&node->loop, err);
    pl_free(text);
    return child->process ? PL_OK : pl_pass(err, "rank %d", child->rank);
}

/* ---- life ---- */

static int spec_check(const pl_launch_spec_t *s, pl_error_t *err)
{
    if (s->nodes < 1 || s->devices < 1 || s->devices > RANKS_MOST / s->nodes)
        return pl_fail(err, PL_EINVAL, "%d ranks on each of %d nodes: from 1 to %d",
                       s->devices, s->nodes, RANKS_MOST);
    if (s->node_rank < 0 || s->node_rank >= s->nodes)
        return pl_fail(err, PL_EINVAL, "node rank %d of %d nodes: they count from 0",
                       s->node_rank, s->nodes);
    return PL_OK;
}

pl_launch_t *pl_launch_start(struct event_base *base, const pl_launch_spec_t *spec,
                             pl_error_t *err)
{
    if (spec_check(spec, err) != PL_OK)
        return NULL;
    const size_t children = (size_t)spec->devices;
    pl_launch_t *node = pl_alloc(sizeof *node + children * sizeof *node->child);
    if (!node) {
        pl_no_memory(err);
        return NULL;
    }
    node->spec = *spec;
    node->loop.base = base;
    node->lock = -1;
    int code = place_find(node, err);
    for (int k = 0; k < spec->devices && code == PL_OK; k++) {
        node->child[k] = (child_t){.node = node,
                                   .rank = spec->node_rank * spec->devices + k};
        code = child_start(&node->child[k], k, err);
        node->living += code == PL_OK;
    }
    if (code == PL_OK)
        return node;
    pl_launch_free(node);
    return NULL;
}

void pl_launch_free(pl_launch_t *node)
{
    if (!node)
        return;
    for (int k = 0; k < node->spec.devices; k++)
        pl_process_free(node->child[k].process);
    if (node->grace)
        event_free(node->grace);
    pl_folder_remove(node->folder, node->lock);
    pl_free(node);
}
