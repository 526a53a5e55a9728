/* nodes.c - shm and tcp together: ranks of several machines, some of which share one
 *
 * All ranks join over TCP, so that each learns of every other whether it has come, and
 * why it has gone.  Those of one machine join in shared memory too, and allocate
 * theirs there: tcp then reaches it, and moves as little as it can between the
 * machines (tcp_elements.c). */
#include "strategies/collectives/nodes.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/collectives/shm.h"

/* ---- who is where ---- */

static void *nodes_reach(void *user, int rank, uint64_t memory)
{
    const nodes_t *n = user;
    return shm_reach(n->shm, n->place[rank], memory);
}

int nodes_make(nodes_t *n, const pl_world_t *all, const char *const *near,
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
        n->place[rank] = n->mates.size;
        n->number[n->mates.size] = rank;
        n->address[n->mates.size++] = near[rank];
    }
    n->mates.rank = n->place[all->rank];
    n->mates.address = n->address;
    n->mates.number = n->number;
    n->all = *all;
    n->all.reach = nodes_reach, n->all.user = n;
    return PL_OK;
}

void nodes_release(nodes_t *n)
{
    pl_free(n->number);
    pl_free(n->place);
    pl_free(n->address);
    pl_free(n->arrived);
}

/* ---- first tcp, then shm ---- */

static void nodes_end(nodes_t *n, const pl_error_t *err)
{
    pl_coll_request_t *req = n->req;
    n->req = NULL;
    req->done(req, err);
}

/* All ranks have come, so that those near will not be waited for, and not for long. */
static void step_near(nodes_t *n)
{
    pl_error_t err;
    const bool joins = n->req->desc.op == PL_COLL_OP_join;
    memset(n->arrived, 0, (size_t)n->mates.size);
    n->is_near = true;
    n->step.arrived = n->arrived;
    n->step.world = &n->mates;
    int code = joins ? pl_shm_collective.join(n->shm, &n->step, &err)
                     : pl_shm_collective.alloc_buffer(n->shm, &n->step, &err);
    if (code != PL_OK)
        nodes_end(n, &err);
}

static void step_done(pl_coll_request_t *step, const pl_error_t *err)
{
    nodes_t *n = (nodes_t *)step;
    if (!err && !n->is_near) {
        step_near(n);
        return;
    }
    n->req->desc.memory = step->desc.memory;
    n->req->memory = step->memory;
    nodes_end(n, err);
}

static void step_begin(nodes_t *n, pl_coll_request_t *req)
{
    n->req = req;
    n->is_near = false;
    n->step = (pl_coll_request_t){.desc = req->desc,
                                  .world = &n->all,
                                  .arrived = req->arrived,
                                  .done = step_done};
}

static int nodes_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    nodes_t *n = self;
    step_begin(n, req);
    return pl_tcp_collective.join(n->tcp, &n->step, err);
}

static int nodes_alloc_buffer(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    nodes_t *n = self;
    step_begin(n, req);
    return pl_tcp_collective.barrier(n->tcp, &n->step, err);
}

static void nodes_advance(void *self)
{
    nodes_t *n = self;
    pl_tcp_collective.advance(n->tcp);
    pl_shm_collective.advance(n->shm);
    for (int k = 0; k < n->mates.size && n->req && n->is_near; k++)
        n->req->arrived[n->number[k]] = n->arrived[k];
}

static int nodes_alive(void *self, pl_error_t *err)
{
    return pl_tcp_collective.alive(((nodes_t *)self)->tcp, err);
}

/* ---- the table ---- */

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

const pl_collective_ops_t pl_nodes_collective = {
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
