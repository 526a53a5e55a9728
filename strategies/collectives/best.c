/* best.c - the collective that all ranks have in common: shm on one machine, tcp where
 * each has its own, both where some share one
 *
 * Every rank opens both, as far as they can be opened, and tells both addresses; when the
 * table of all has come, all choose alike, and what is not needed is closed.  From then
 * on it is what was chosen. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "base/log.h"
#include "strategies/collectives/nodes.h"

enum { SHM, TCP, CHOICES };

static const char *const names[CHOICES] = {"shm", "tcp"};
static const char between[] = " | ";

typedef struct choice {
    pl_instance_t component;
    const pl_collective_ops_t *ops;                         /* [not open] */
    char address[PL_ADDRESS_TEXT];
} choice_t;

typedef struct best {
    int epoll;                                              /* of those of all choices */
    choice_t choice[CHOICES];
    const pl_collective_ops_t *ops;                         /* chosen, and what it has for
                                                               self  [the ranks have not
                                                               met] */
    void *self;
    char *text;                                             /* [world size]
                                                               [PL_ADDRESS_TEXT] */
    const char **table[CHOICES];                            /* [world size], addresses; ""
                                                               of what is not open */
    int *machine;                                           /* [world size] */
    pl_world_t world;
    nodes_t nodes;                                 /* where both are taken */
    bool is_inner;                                 /* as pl_collective_context_t has it */
} best_t;

/* ---- opening ---- */

static void choice_close(choice_t *choice)
{
    if (choice->ops)
        choice->ops->close(choice->component.self);
    choice->ops = NULL;
    choice->address[0] = '\0';
    pl_instance_release(&choice->component);
    choice->component = (pl_instance_t){0};
}

static int choice_open(best_t *b, choice_t *choice, const char *name,
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

/* Without tcp, which may need a key, ranks can still join on one machine. */
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

/* ---- choosing ---- */

/* The first two words of what a rank told name its machine. */
static size_t machine_length(const char *address)
{
    const char *first = strchr(address, ' '),
               *second = first ? strchr(first + 1, ' ') : NULL;
    return second ? (size_t)(second - address) : strlen(address);
}

/* A machine is called by the first rank that is on it; -> how many there are. */
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

/* What a rank told, in its two parts. */
static int address_cut(best_t *b, int rank, const char *address, pl_error_t *err)
{
    const char *middle = strstr(address, between);
    char *text = b->text + (size_t)rank * PL_ADDRESS_TEXT;
    if (!middle || strlen(address) >= PL_ADDRESS_TEXT)
        return pl_fail(
            err, PL_EINVAL,
            "the address of rank %d is not one of collective \"best\": \"%.80s\"", rank,
            address);
    strcpy(text, address);
    text[middle - address] = '\0';
    b->table[SHM][rank] = text;
    b->table[TCP][rank] = text + (middle - address) + strlen(between);
    return PL_OK;
}

static int tables_make(best_t *b, const pl_world_t *world, pl_error_t *err)
{
    const size_t size = (size_t)world->size;
    b->text = pl_alloc_array(size, PL_ADDRESS_TEXT);
    b->machine = pl_alloc_array(size, sizeof *b->machine);
    for (int k = 0; k < CHOICES; k++)
        b->table[k] = pl_alloc_array(size, sizeof *b->table[k]);
    if (!b->text || !b->machine || !b->table[SHM] || !b->table[TCP])
        return pl_no_memory(err);
    int code = PL_OK;
    for (int rank = 0; rank < world->size && code == PL_OK; rank++)
        code = address_cut(b, rank, world->address[rank], err);
    return code;
}

static int tcp_check(const best_t *b, const pl_world_t *world, pl_error_t *err)
{
    for (int rank = 0; rank < world->size; rank++)
        if (strncmp(b->table[TCP][rank], "tcp ", 4) != 0)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "the ranks are on several machines, and rank %d cannot be "
                           "reached over TCP: %s",
                           rank, b->table[TCP][rank]);
    return PL_OK;
}

static int choose_one(best_t *b, const pl_world_t *world, int which)
{
    b->world = (pl_world_t){world->rank, world->size, b->table[which]};
    b->ops = b->choice[which].ops;
    b->self = b->choice[which].component.self;
    choice_close(&b->choice[!which]);
    return PL_OK;
}

static int choose_both(best_t *b, const pl_world_t *world, pl_error_t *err)
{
    b->world = (pl_world_t){world->rank, world->size, b->table[TCP],
                            .machine = b->machine};
    b->nodes.shm = b->choice[SHM].component.self;
    b->nodes.tcp = b->choice[TCP].component.self;
    b->ops = &pl_nodes_collective;
    b->self = &b->nodes;
    return nodes_make(&b->nodes, &b->world, b->table[SHM], err);
}

static void choice_tell(const best_t *b, const pl_world_t *world, int machines)
{
    char what[96];
    if (world->size == 1)                                   /* which exchanges nothing */
        return;
    if (b->ops == &pl_nodes_collective)
        snprintf(what, sizeof what, "tcp between %d machines, with shm on each, moves",
                 machines);
    else
        snprintf(what, sizeof what, "%s moves", b->ops->name);
    pl_log_line(world->rank || b->is_inner ? PL_LOG_DEBUG : PL_LOG_INFO, world->rank,
                "collective.best", "%s the data of the %d ranks", what, world->size);
}

static int best_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    best_t *b = self;
    if (b->ops)
        return b->ops->join(b->self, req, err);
    int code = tables_make(b, req->world, err);
    if (code != PL_OK)
        return code;
    const int machines = machines_find(b, req->world);
    if (machines > 1)
        code = tcp_check(b, req->world, err);
    if (code == PL_OK)
        code = machines == 1 || machines == req->world->size
                   ? choose_one(b, req->world, machines == 1 ? SHM : TCP)
                   : choose_both(b, req->world, err);
    if (code != PL_OK)
        return code;
    choice_tell(b, req->world, machines);
    req->world = &b->world;
    return b->ops->join(b->self, req, err);
}

/* ---- passing on ---- */

static int not_met(pl_error_t *err)
{
    return pl_fail(err, PL_ESTATE, "the ranks have not joined yet");
}

#define PASS_ON(op) \
    static int best_##op(void *self, pl_coll_request_t *req, pl_error_t *err) \
    { \
        const best_t *b = self; \
        return b->ops ? b->ops->op(b->self, req, err) : not_met(err); \
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
    nodes_release(&b->nodes);
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
