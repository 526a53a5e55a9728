/* best.c - the collective that all ranks have in common: shm on one machine, tcp where
 * each rank has a machine of its own, both where some ranks share one
 *
 * Every rank opens both, as far as it can, and reports both addresses. From the table
 * of all addresses all ranks choose alike and close what they do not need. From then
 * on it forwards every operation to its choice. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "base/log.h"
#include "strategies/collectives/shm.h"

enum { SHM, TCP, CHOICES };

static const char *const names[CHOICES] = {"shm", "tcp"};
static const char between[] = " | ";

typedef struct inner_collective {
    pl_instance_t component;
    const pl_collective_ops_t *ops;                         /* [not open] */
    char address[PL_ADDRESS_TEXT];
} inner_collective_t;

/* The state of shm and tcp together. */
typedef struct nodes {
    /* first: done() gets it. The operation of tcp or shm that `req` is at */
    pl_coll_request_t step;
    pl_coll_request_t *req;                                 /* join or alloc_buffer */
    bool in_shm;                                            /* the step is shm's */
    void *shm, *tcp;                                        /* not owned */
    pl_world_t all, local;
    int *number;                               /* [local ranks], ranks of the run */
    int *place;                                /* [world size], index among local ranks */
    const char **address;                      /* [local ranks] */
    unsigned char *arrived;                    /* [local ranks] */
} nodes_t;

typedef struct best {
    int epoll;                                        /* the descriptors of all choices */
    inner_collective_t choice[CHOICES];
    /* The choice and its self  [the ranks have not met] */
    const pl_collective_ops_t *ops;
    void *self;
    char *text;                                             /* [world size]
                                                               [PL_ADDRESS_TEXT] */
    const char *
        *table[CHOICES];  /* [world size], addresses; "" where a rank could not open it */
    int *machine;         /* [world size] */
    pl_world_t world;
    nodes_t nodes;                                      /* used if both are chosen */
    bool is_inner;                                      /* from pl_collective_context_t */
} best_t;

/* ---- opening ---- */

static void choice_close(inner_collective_t *choice)
{
    if (choice->ops)
        choice->ops->close(choice->component.self);
    choice->ops = NULL;
    choice->address[0] = '\0';
    pl_instance_release(&choice->component);
    choice->component = (pl_instance_t){0};
}

static int choice_open(best_t *b, inner_collective_t *choice, const char *name,
                       const pl_collective_context_t *context, pl_error_t *err)
{
    int descriptor;
    json_t *value = json_string(name);
    const pl_instance_request_t request = {.role = "collective", .value = value};
    struct epoll_event event = {.events = EPOLLIN};
    int code = value ? pl_instance_make(&choice->component, &request, err)
                     : pl_no_memory(err);
    json_decref(value);
    if (code != PL_OK)
        return code;
    choice->ops = choice->component.ops;
    code = choice->ops->open(choice->component.self, context, choice->address,
                             &descriptor, err);
    if (code == PL_OK && epoll_ctl(b->epoll, EPOLL_CTL_ADD, descriptor, &event) != 0)
        code = pl_fail(err, PL_EIO, "cannot wait for the collective %s: %s", name,
                       strerror(errno));
    if (code != PL_OK)
        choice_close(choice);
    return code;
}

/* Without tcp, which may need a key, the ranks can still join on one machine. */
static int best_open(void *self, const pl_collective_context_t *context,
                     char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    best_t *b = self;
    pl_error_t why = {0};
    b->is_inner = context->is_inner;
    *descriptor = b->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (b->epoll < 0)
        return pl_fail(err, PL_EIO, "cannot wait for other ranks: %s", strerror(errno));
    int code = choice_open(b, &b->choice[SHM], names[SHM], context, err);
    if (code == PL_OK
        && choice_open(b, &b->choice[TCP], names[TCP], context, &why) != PL_OK
        && why.code == PL_ENOMEM)
        code = pl_no_memory(err);
    const char *shm = b->choice[SHM].address, *tcp = b->choice[TCP].address;
    char both[2 * PL_ADDRESS_TEXT + PL_ERROR_TEXT];
    snprintf(both, sizeof both, "%s%s%s", shm, between, *tcp ? tcp : why.text);
    if (code == PL_OK && *tcp && strlen(both) >= PL_ADDRESS_TEXT)
        code = pl_fail(err, PL_EBUG, "the addresses of a rank are too long");
    if (code == PL_OK)
        snprintf(address, PL_ADDRESS_TEXT, "%.*s", PL_ADDRESS_TEXT - 1, both);
    return code;
}

/* ---- shm and tcp together ----
 *
 * All ranks join over TCP, so that each rank learns which others have come, and why
 * one has gone. The ranks of one machine also join in shared memory and allocate
 * their buffers there. tcp reaches those buffers and moves as little as it can
 * between the machines (tcp_elements.c). */

static void *nodes_reach(void *user, int rank, uint64_t memory)
{
    const nodes_t *n = user;
    return shm_reach(n->shm, n->place[rank], memory);
}

static int nodes_make(nodes_t *n, const pl_world_t *all, const char *const *near,
                      pl_error_t *err)
{
    const size_t max = (size_t)all->size;
    n->number = pl_alloc_array(max, sizeof *n->number);
    n->place = pl_alloc_array(max, sizeof *n->place);
    n->address = pl_alloc_array(max, sizeof *n->address);
    n->arrived = pl_alloc(max);
    if (!n->number || !n->place || !n->address || !n->arrived)
        return pl_no_memory(err);
    for (int rank = 0; rank < all->size; rank++) {
        if (all->machine[rank] != all->machine[all->rank])
            continue;
        n->place[rank] = n->local.size;
        n->number[n->local.size] = rank;
        n->address[n->local.size++] = near[rank];
    }
    n->local.rank = n->place[all->rank];
    n->local.address = n->address;
    n->local.number = n->number;
    n->all = *all;
    n->all.reach = nodes_reach, n->all.user = n;
    return PL_OK;
}

static void nodes_end(nodes_t *n, const pl_error_t *err)
{
    pl_coll_request_t *req = n->req;
    n->req = NULL;
    req->done(req, err);
}

static void nodes_step_done(pl_coll_request_t *step, const pl_error_t *err)
{
    nodes_t *n = (nodes_t *)step;
    if (!err && !n->in_shm) {     /* all ranks have come, so shm waits for none of them */
        pl_error_t why;
        const bool joins = n->req->desc.op == PL_COLL_OP_join;
        memset(n->arrived, 0, (size_t)n->local.size);
        n->in_shm = true;
        n->step.arrived = n->arrived;
        n->step.world = &n->local;
        const int code = joins ? pl_shm_collective.join(n->shm, &n->step, &why)
                               : pl_shm_collective.alloc_buffer(n->shm, &n->step, &why);
        if (code != PL_OK)
            nodes_end(n, &why);
        return;
    }
    n->req->desc.memory = step->desc.memory;
    n->req->memory = step->memory;
    nodes_end(n, err);
}

static void nodes_step_begin(nodes_t *n, pl_coll_request_t *req)
{
    n->req = req;
    n->in_shm = false;
    n->step = (pl_coll_request_t){.desc = req->desc,
                                  .world = &n->all,
                                  .arrived = req->arrived,
                                  .done = nodes_step_done};
}

static int nodes_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    nodes_t *n = self;
    nodes_step_begin(n, req);
    return pl_tcp_collective.join(n->tcp, &n->step, err);
}

static int nodes_alloc_buffer(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    nodes_t *n = self;
    nodes_step_begin(n, req);
    return pl_tcp_collective.barrier(n->tcp, &n->step, err);
}

static void nodes_advance(void *self)
{
    nodes_t *n = self;
    pl_tcp_collective.advance(n->tcp);
    pl_shm_collective.advance(n->shm);
    for (int k = 0; k < n->local.size && n->req && n->in_shm; k++)
        n->req->arrived[n->number[k]] = n->arrived[k];
}

static int nodes_alive(void *self, pl_error_t *err)
{
    return pl_tcp_collective.alive(((nodes_t *)self)->tcp, err);
}

#define BY_TCP(op) \
    static int nodes_##op(void *self, pl_coll_request_t *req, pl_error_t *err) \
    { \
        return pl_tcp_collective.op(((nodes_t *)self)->tcp, req, err); \
    }

BY_TCP(all_reduce)
BY_TCP(reduce_scatter)
BY_TCP(all_gather)
BY_TCP(all_to_all)
BY_TCP(broadcast)
BY_TCP(send)
BY_TCP(barrier)

/* best.c opens, aborts and closes shm and tcp themselves. */
static const pl_collective_ops_t nodes_collective = {
    .name = "nodes",
    .join = nodes_join,
    .alloc_buffer = nodes_alloc_buffer,
    .all_reduce = nodes_all_reduce,
    .reduce_scatter = nodes_reduce_scatter,
    .all_gather = nodes_all_gather,
    .all_to_all = nodes_all_to_all,
    .broadcast = nodes_broadcast,
    .send = nodes_send,
    .barrier = nodes_barrier,
    .alive = nodes_alive,
    .advance = nodes_advance,
};

/* ---- choosing ---- */

/* The first two words of an address name the machine. */
static size_t machine_length(const char *address)
{
    const char *first = strchr(address, ' '),
               *second = first ? strchr(first + 1, ' ') : NULL;
    return second ? (size_t)(second - address) : strlen(address);
}

/* Sets machine[rank] to the first rank on the same machine; returns how many machines
 * there are. */
static int machines_find(best_t *b, const pl_world_t *world)
{
    int count = 0;
    for (int rank = 0; rank < world->size; rank++) {
        const size_t length = machine_length(world->address[rank]);
        int same = 0;
        while (same < rank
               && (machine_length(world->address[same]) != length
                   || strncmp(world->address[same], world->address[rank], length) != 0))
            same++;
        b->machine[rank] = same;
        count += same == rank;
    }
    return count;
}

/* From the addresses of all ranks, so that all ranks choose alike. */
static int choose(best_t *b, const pl_world_t *world, int machines, pl_error_t *err)
{
    for (int rank = 0; rank < world->size && machines > 1; rank++)
        if (strncmp(b->table[TCP][rank], "tcp ", 4) != 0)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "the ranks are on several machines, and rank %d cannot be "
                           "reached over TCP: %s",
                           rank, b->table[TCP][rank]);
    if (machines == 1 || machines == world->size) {
        const int which = machines == 1 ? SHM : TCP;
        b->world = (pl_world_t){world->rank, world->size, b->table[which]};
        b->ops = b->choice[which].ops;
        b->self = b->choice[which].component.self;
        choice_close(&b->choice[!which]);
        return PL_OK;
    }
    b->world = (pl_world_t){world->rank, world->size, b->table[TCP],
                            .machine = b->machine};
    b->nodes.shm = b->choice[SHM].component.self;
    b->nodes.tcp = b->choice[TCP].component.self;
    b->ops = &nodes_collective;
    b->self = &b->nodes;
    return nodes_make(&b->nodes, &b->world, b->table[SHM], err);
}

static int best_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    best_t *b = self;
    if (b->ops)
        return b->ops->join(b->self, req, err);
    const pl_world_t *world = req->world;
    const size_t size = (size_t)world->size;
    b->text = pl_alloc_array(size, PL_ADDRESS_TEXT);
    b->machine = pl_alloc_array(size, sizeof *b->machine);
    for (int k = 0; k < CHOICES; k++)
        b->table[k] = pl_alloc_array(size, sizeof *b->table[k]);
    if (!b->text || !b->machine || !b->table[SHM] || !b->table[TCP])
        return pl_no_memory(err);
    /* The address of a rank has its addresses of shm and tcp. */
    for (int rank = 0; rank < world->size; rank++) {
        const char *address = world->address[rank], *middle = strstr(address, between);
        char *text = b->text + (size_t)rank * PL_ADDRESS_TEXT;
        if (!middle || strlen(address) >= PL_ADDRESS_TEXT)
            return pl_fail(
                err, PL_EINVAL,
                "the address of rank %d is not one of collective \"best\": \"%.80s\"",
                rank, address);
        strcpy(text, address);
        text[middle - address] = '\0';
        b->table[SHM][rank] = text;
        b->table[TCP][rank] = text + (middle - address) + strlen(between);
    }
    const int machines = machines_find(b, world), code = choose(b, world, machines, err);
    if (code != PL_OK)
        return code;
    char what[96];
    if (b->ops == &nodes_collective)
        snprintf(what, sizeof what, "tcp between %d machines, with shm on each, moves",
                 machines);
    else
        snprintf(what, sizeof what, "%s moves", b->ops->name);
    if (world->size > 1)
        pl_log_line(world->rank || b->is_inner ? PL_LOG_DEBUG : PL_LOG_INFO, world->rank,
                    "collective.best", "%s the data of the %d ranks", what, world->size);
    req->world = &b->world;
    return b->ops->join(b->self, req, err);
}

/* ---- passing on ---- */

#define PASS_ON(op) \
    static int best_##op(void *self, pl_coll_request_t *req, pl_error_t *err) \
    { \
        const best_t *b = self; \
        return b->ops ? b->ops->op(b->self, req, err) \
                      : pl_fail(err, PL_ESTATE, "the ranks have not joined yet"); \
    }

PASS_ON(alloc_buffer)
PASS_ON(all_reduce)
PASS_ON(reduce_scatter)
PASS_ON(all_gather)
PASS_ON(all_to_all)
PASS_ON(broadcast)
PASS_ON(send)
PASS_ON(barrier)

static int best_alive(void *self, pl_error_t *err)
{
    const best_t *b = self;
    return b->ops ? b->ops->alive(b->self, err) : PL_OK;
}

static void best_advance(void *self)
{
    best_t *b = self;
    if (b->ops)
        b->ops->advance(b->self);
}

static void best_abort(void *self, const pl_error_t *why)
{
    best_t *b = self;
    for (int k = 0; k < CHOICES; k++)
        if (b->choice[k].ops)
            b->choice[k].ops->abort(b->choice[k].component.self, why);
}

static void best_close(void *self)
{
    best_t *b = self;
    for (int k = 0; k < CHOICES; k++)
        choice_close(&b->choice[k]);
    if (b->epoll > 0)
        close(b->epoll);
    pl_free(b->nodes.number);
    pl_free(b->nodes.place);
    pl_free(b->nodes.address);
    pl_free(b->nodes.arrived);
    pl_free(b->text);
    pl_free(b->machine);
    for (int k = 0; k < CHOICES; k++)
        pl_free(b->table[k]);
}

const pl_collective_ops_t pl_best_collective = {
    .name = "best",
    .help = "shm among ranks of one machine, tcp between machines",
    .size = sizeof(best_t),
    .open = best_open,
    .join = best_join,
    .alloc_buffer = best_alloc_buffer,
    .all_reduce = best_all_reduce,
    .reduce_scatter = best_reduce_scatter,
    .all_gather = best_all_gather,
    .all_to_all = best_all_to_all,
    .broadcast = best_broadcast,
    .send = best_send,
    .barrier = best_barrier,
    .alive = best_alive,
    .advance = best_advance,
    .abort = best_abort,
    .close = best_close,
};
