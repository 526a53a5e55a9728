/* nccl_join.c - rendezvous of the collective "nccl": by two collectives inside
 *
 * Operations on memory of the host, and those on memory of cards, have an order each, and
 * a collective has one.  The addresses of the second go by the first. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "strategies/collectives/nccl.h"

static const char suffix[] = " | nccl";

static int watched(const nccl_t *n, int fd, pl_error_t *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (fd >= 0 && epoll_ctl(n->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return PL_OK;
    return pl_fail(err, PL_EIO, "cannot wait for other ranks: %s", strerror(errno));
}

/* Watched with what it waits for. */
static int component_open(const nccl_t *n, pl_instance_t *component,
                          const pl_collective_context_t *context,
                          char address[PL_ADDRESS_TEXT], pl_error_t *err)
{
    const pl_collective_ops_t *ops = component->ops;
    int descriptor = -1;
    const int code = ops->open(component->self, context, address, &descriptor, err);
    return code == PL_OK ? watched(n, descriptor, err) : code;
}

static int components_open(nccl_t *n, const pl_collective_context_t *context,
                           char address[PL_ADDRESS_TEXT], pl_error_t *err)
{
    const pl_choice_t best = {.name = "best", .options = "{}"};
    int code = pl_instance_of_choice(&n->component[0], "collective", &n->host, "best",
                                     err);
    if (code == PL_OK)
        code = pl_instance_of_choice(&n->component[1], "collective", &best, NULL, err);
    if (code != PL_OK)
        return code;
    n->inner = n->component[0].ops;
    if (n->inner->device) {
        n->inner = NULL;
        return pl_fail(err, PL_EINVAL,
                       "\"host\" of the collective nccl is one that moves memory of the "
                       "host, not %s",
                       n->host.name);
    }
    code = component_open(n, &n->component[0], context, address, err);
    if (code != PL_OK)
        return code;
    const pl_collective_context_t inner = {.host = context->host,
                                           .key = context->key,
                                           .is_inner = true};
    n->side = n->component[1].ops;
    code = component_open(n, &n->component[1], &inner, n->side_address, err);
    if (code == PL_OK && strlen(address) + sizeof suffix > PL_ADDRESS_TEXT)
        code = pl_fail(err, PL_EBUG, "the address of a rank is too long");
    if (code == PL_OK)
        strcat(address, suffix);
    return code;
}

int nccl_open(void *self, const pl_collective_context_t *context,
              char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    nccl_t *n = self;
    n->now.device = "cuda";
    *descriptor = n->epoll = epoll_create1(EPOLL_CLOEXEC);
    n->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    n->library = cuda_communicator_open(err);
    if (!n->library)
        return err ? err->code : PL_ENOTFOUND;
    const int code = watched(n, n->timer, err);
    return code == PL_OK ? components_open(n, context, address, err) : code;
}

/* What each rank reported, as its collective of the host's memory delivered it. */
static int addresses_cut(nccl_t *n, const pl_world_t *world, pl_error_t *err)
{
    n->text = pl_alloc_array((size_t)world->size, PL_ADDRESS_TEXT);
    n->address = pl_alloc_array((size_t)world->size, sizeof *n->address);
    n->side_table = pl_alloc_array((size_t)world->size, sizeof *n->side_table);
    if (!n->text || !n->address || !n->side_table)
        return pl_no_memory(err);
    for (int rank = 0; rank < world->size; rank++) {
        char *text = n->text + (size_t)rank * PL_ADDRESS_TEXT;
        const size_t length = strlen(world->address[rank]);
        if (length >= PL_ADDRESS_TEXT || length < strlen(suffix)
            || strcmp(world->address[rank] + length - strlen(suffix), suffix) != 0)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "rank %d does not use the collective nccl, which this rank "
                           "uses: install NCCL on its machine, or set the strategy's "
                           "\"collective\"",
                           rank);
        memcpy(text, world->address[rank], length - strlen(suffix));
        n->address[rank] = text;
    }
    return PL_OK;
}

static void join_end(nccl_t *n, const pl_error_t *err)
{
    pl_coll_request_t *req = n->joining;
    n->joining = NULL;
    if (req)
        req->done(req, err);
}

/* The next step of joining. */
static void join_step(nccl_t *n, const pl_coll_desc_t *desc, pl_reg_buffer_t *memory,
                      void (*done)(pl_coll_request_t *req, const pl_error_t *err))
{
    pl_error_t err = {0};
    const bool joins = desc->op == PL_COLL_OP_join;
    n->step = (pl_coll_request_t){.desc = *desc,
                                  .world = &n->side_world,
                                  .memory = memory,
                                  .arrived = n->joining->arrived,
                                  .done = done};
    int (*begin)(void *, pl_coll_request_t *, pl_error_t *) =
        joins                                 ? n->side->join
        : desc->op == PL_COLL_OP_alloc_buffer ? n->inner->alloc_buffer
                                              : n->inner->all_gather;
    if (begin(n->component[joins].self, &n->step, &err) != PL_OK)
        join_end(n, &err);
}

static void side_joined(pl_coll_request_t *step, const pl_error_t *err)
{
    join_end((nccl_t *)step, err);
}

static void addresses_gathered(pl_coll_request_t *step, const pl_error_t *err)
{
    nccl_t *n = (nccl_t *)step;
    const pl_coll_desc_t desc = {.op = PL_COLL_OP_join};
    if (err) {
        join_end(n, err);
        return;
    }
    for (int rank = 0; rank < n->world.size; rank++)
        n->side_table[rank] = (char *)n->addresses->data + rank * PL_ADDRESS_TEXT;
    n->side_world = (pl_world_t){n->world.rank, n->world.size, n->side_table};
    join_step(n, &desc, NULL, side_joined);
}

static void addresses_allocated(pl_coll_request_t *step, const pl_error_t *err)
{
    nccl_t *n = (nccl_t *)step;
    n->addresses = step->memory;
    if (err) {
        join_end(n, err);
        return;
    }
    memcpy((char *)n->addresses->data + n->world.rank * PL_ADDRESS_TEXT, n->side_address,
           PL_ADDRESS_TEXT);
    const pl_coll_desc_t desc = {.op = PL_COLL_OP_all_gather,
                                 .dtype = PL_U8,
                                 .memory = n->addresses->number,
                                 .count = (uint64_t)n->world.size * PL_ADDRESS_TEXT};
    join_step(n, &desc, n->addresses, addresses_gathered);
}

static void host_joined(pl_coll_request_t *step, const pl_error_t *err)
{
    nccl_t *n = (nccl_t *)step;
    const pl_coll_desc_t desc = {.op = PL_COLL_OP_alloc_buffer,
                                 .count = (uint64_t)n->world.size * PL_ADDRESS_TEXT};
    if (err)
        join_end(n, err);
    else
        join_step(n, &desc, NULL, addresses_allocated);
}

/* The second collective's addresses go by the first. */
int nccl_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    nccl_t *n = self;
    int code = pl_underway_check(&n->now, req, n->world.size, err);
    if (code == PL_OK)
        code = addresses_cut(n, req->world, err);
    if (code != PL_OK)
        return code;
    n->world = *req->world;
    n->world.address = n->address;
    n->joining = req;
    n->step = (pl_coll_request_t){.desc = req->desc,
                                  .world = &n->world,
                                  .arrived = req->arrived,
                                  .done = host_joined};
    code = n->inner->join(n->component[0].self, &n->step, err);
    if (code != PL_OK)
        n->joining = NULL;
    return code;
}
