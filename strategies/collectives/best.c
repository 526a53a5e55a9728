/* best.c - the collective that all ranks have in common: shm on one machine, else tcp
 *
 * Every rank opens both, as far as they can be opened, and tells both addresses; when the
 * table of all has come, all choose alike, and the other is closed.  From then on it is
 * the one that was chosen. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "base/log.h"
#include "strategies/collectives/collective.h"

enum { SHM, TCP, CHOICES };

static const char *const names[CHOICES] = {"shm", "tcp"};
static const char between[] = " | ";

typedef struct choice {
    pl_instance_t part;
    const pl_collective_ops_t *ops;                         /* [not open] */
    char address[PL_ADDRESS_TEXT];
} choice_t;

typedef struct best {
    int epoll;                                              /* of those of all choices */
    choice_t choice[CHOICES];
    choice_t *chosen;                                       /* [the ranks have not met] */
    char *text;                                             /* [world size]
                                                               [PL_ADDRESS_TEXT] */
    const char **table;                                     /* [world size], addresses of
                                                               the chosen */
    pl_world_t world;
} best_t;

/* ---- opening ---- */

static void choice_close(choice_t *choice)
{
    if (choice->ops)
        choice->ops->close(choice->part.self);
    choice->ops = NULL;
    choice->address[0] = '\0';
    pl_instance_release(&choice->part);
    choice->part = (pl_instance_t){0};
}

static int choice_open(best_t *b, choice_t *choice, const char *name,
                       const pl_seat_t *seat, pl_error_t *err)
{
    int descriptor;
    json_t *value = json_string(name);
    const pl_instance_request_t request = {.role = "collective", .value = value};
    struct epoll_event event = {.events = EPOLLIN};
    int code = value ? pl_instance_make(&choice->part, &request, err) : pl_no_memory(err);
    json_decref(value);
    if (code != PL_OK)
        return code;
    choice->ops = choice->part.ops;
    code = choice->ops->open(choice->part.self, seat, choice->address, &descriptor, err);
    if (code == PL_OK && epoll_ctl(b->epoll, EPOLL_CTL_ADD, descriptor, &event) != 0)
        code = pl_fail(err, PL_EIO, "%s cannot be waited for: %s", name, strerror(errno));
    if (code != PL_OK)
        choice_close(choice);
    return code;
}

/* Without tcp, which may need a key, ranks can still meet on one machine. */
static int best_open(void *self, const pl_seat_t *seat, char address[PL_ADDRESS_TEXT],
                     int *descriptor, pl_error_t *err)
{
    best_t *b = self;
    pl_error_t why = {0};
    *descriptor = b->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (b->epoll < 0)
        return pl_fail(err, PL_EIO, "a rank cannot listen: %s", strerror(errno));
    int code = choice_open(b, &b->choice[SHM], names[SHM], seat, err);
    if (code == PL_OK && choice_open(b, &b->choice[TCP], names[TCP], seat, &why) != PL_OK
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

static bool on_one_machine(const pl_world_t *world)
{
    const char *own = world->address[world->rank];
    const size_t length = machine_length(own);
    for (int rank = 0; rank < world->size; rank++)
        if (machine_length(world->address[rank]) != length
            || strncmp(world->address[rank], own, length) != 0)
            return false;
    return true;
}

/* Its part of what a rank told. */
static int address_take(char *to, const char *address, int rank, int which,
                        pl_error_t *err)
{
    const char *second = strstr(address, between);
    if (!second || strlen(address) >= PL_ADDRESS_TEXT)
        return pl_fail(err, PL_EINVAL,
                       "the address of rank %d is none of best: \"%.80s\"", rank,
                       address);
    const char *tcp = second + strlen(between);
    if (which == TCP && strncmp(tcp, "tcp ", 4) != 0)
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "the ranks are on several machines, and rank %d cannot be met over "
            "TCP: %s",
            rank, tcp);
    if (which == TCP)
        strcpy(to, tcp);
    else
        snprintf(to, PL_ADDRESS_TEXT, "%.*s", (int)(second - address), address);
    return PL_OK;
}

static int table_make(best_t *b, const pl_world_t *world, int which, pl_error_t *err)
{
    b->text = pl_alloc_array((size_t)world->size, PL_ADDRESS_TEXT);
    b->table = pl_alloc_array((size_t)world->size, sizeof *b->table);
    if (!b->text || !b->table)
        return pl_no_memory(err);
    int code = PL_OK;
    for (int rank = 0; rank < world->size && code == PL_OK; rank++) {
        char *at = b->text + (size_t)rank * PL_ADDRESS_TEXT;
        b->table[rank] = at;
        code = address_take(at, world->address[rank], rank, which, err);
    }
    b->world = (pl_world_t){world->rank, world->size, b->table};
    return code;
}

static int best_join(void *self, pl_operation_t *op, pl_error_t *err)
{
    best_t *b = self;
    if (b->chosen)
        return b->chosen->ops->join(b->chosen->part.self, op, err);
    const int which = on_one_machine(op->world) ? SHM : TCP;
    int code = table_make(b, op->world, which, err);
    if (code != PL_OK)
        return code;
    b->chosen = &b->choice[which];
    choice_close(&b->choice[!which]);
    pl_log_line(op->world->rank ? PL_LOG_DEBUG : PL_LOG_INFO, op->world->rank,
                "collective.best", "%s moves what the %d ranks exchange", names[which],
                op->world->size);
    op->world = &b->world;
    return b->chosen->ops->join(b->chosen->part.self, op, err);
}

/* ---- passing on ---- */

static int not_met(pl_error_t *err)
{
    return pl_fail(err, PL_ESTATE, "the ranks have not met yet");
}

#define PASS_ON(move) \
    static int best_##move(void *self, pl_operation_t *op, pl_error_t *err) \
    { \
        const choice_t *chosen = ((best_t *)self)->chosen; \
        return chosen ? chosen->ops->move(chosen->part.self, op, err) : not_met(err); \
    }

PASS_ON(lend_memory)
PASS_ON(all_reduce)
PASS_ON(reduce_scatter)
PASS_ON(all_gather)
PASS_ON(broadcast)
PASS_ON(barrier)

static void best_advance(void *self)
{
    best_t *b = self;
    if (b->chosen)
        b->chosen->ops->advance(b->chosen->part.self);
}

static void best_give_up(void *self, const pl_error_t *why)
{
    best_t *b = self;
    for (int k = 0; k < CHOICES; k++)
        if (b->choice[k].ops)
            b->choice[k].ops->give_up(b->choice[k].part.self, why);
}

static void best_close(void *self)
{
    best_t *b = self;
    for (int k = 0; k < CHOICES; k++)
        choice_close(&b->choice[k]);
    if (b->epoll > 0)
        close(b->epoll);
    pl_free(b->text);
    pl_free(b->table);
}

const pl_collective_ops_t pl_best_collective = {
    .name = "best",
    .help = "shm where all ranks are on one machine, else tcp",
    .size = sizeof(best_t),
    .open = best_open,
    .join = best_join,
    .lend_memory = best_lend_memory,
    .all_reduce = best_all_reduce,
    .reduce_scatter = best_reduce_scatter,
    .all_gather = best_all_gather,
    .broadcast = best_broadcast,
    .barrier = best_barrier,
    .advance = best_advance,
    .give_up = best_give_up,
    .close = best_close,
};
