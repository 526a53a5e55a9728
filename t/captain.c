/* captain.c - ranks with collectives that are actors, for tests */
#include "captain.h"

#include <string.h>

#include "base/bind.h"
#include "base/clock.h"
#include "tap.h"

enum { LONGEST_MS = 60000 };

static pl_runtime_t runtime;
pl_reactor_t *captain_reactor;
captain_t *captain;
reported_t reported[RANKS][4], ended[RANKS];

static const pl_actor_ops_t captain_ops = {.name = "captain",
                                           .size = sizeof(captain_t),
                                           .level = PL_LEVEL_STRATEGY};

void count(captain_t *c)
{
    if (++c->answers == c->wanted)
        pl_reactor_leave(captain_reactor);
}

static void note(reported_t *t, const pl_answer_t *answer)
{
    t->order = captain->answers + 1;
    t->code = answer->kind == PL_ANSWER_ERROR ? answer->error->code : PL_OK;
    strcpy(t->text, answer->kind == PL_ANSWER_ERROR ? answer->error->text : "");
}

static void answered(void *self, const pl_answer_t *answer)
{
    captain_t *c = self;
    if (answer->kind == PL_ANSWER_LATE) {
        c->late++;
        return;
    }
    note(answer->context, answer);
    count(c);
}

static void allocated(void *self, const pl_answer_t *answer)
{
    captain_t *c = self;
    reported_t *t = answer->context;
    if (answer->kind == PL_ANSWER_REPLY)
        c->buffer[(t - reported[0]) / 4] =
            pl_object_ref(answer->body->alloc_buffer_reply.memory);
    answered(self, answer);
}

static void lived(void *self, const pl_answer_t *answer)
{
    captain_t *c = self;
    reported_t *t = answer->context;
    if (answer->kind == PL_ANSWER_PROGRESS)
        strcpy(c->address[t - ended], answer->body->start_progress.address);
    else
        note(t, answer);
    count(c);
}

static void too_late(void *self)
{
    (void)self;
    ok(false, "%d of %d answers have come in time", captain->answers, captain->wanted);
    pl_reactor_leave(captain_reactor);
}

void wait_for(int answers)
{
    captain->answers = 0;
    captain->wanted = answers;
    captain_reactor->leave = false;
    pl_after(captain, LONGEST_MS, too_late, NULL);
    pl_reactor_run(captain_reactor);
}

static bool (*awaited)(void);
static int64_t awaited_until;

static void look(void *self)
{
    if (awaited() || pl_now() > awaited_until)
        pl_reactor_leave(captain_reactor);
    else
        pl_after(self, 1, look, NULL);
}

bool comes(bool (*what)(void))
{
    awaited = what;
    awaited_until = pl_now() + LONGEST_MS * PL_MILLISECOND;
    pl_after(captain, 2 * LONGEST_MS, too_late, NULL);
    captain->wanted = 0;
    captain_reactor->leave = false;
    pl_after(captain, 1, look, NULL);
    pl_reactor_run(captain_reactor);
    return what();
}

pl_collective_component_t *component_of(const char *collective)
{
    pl_error_t err;
    pl_instance_t component = {0};
    json_t *name = json_string(collective);
    const pl_instance_request_t request = {.role = "collective", .value = name};
    pl_instance_make(&component, &request, &err);
    json_decref(name);
    return pl_collective_component_new(&component, NULL, &err);
}

static void rank_spawn(int rank)
{
    pl_error_t err;
    pl_collective_component_t *part = component_of("shm");
    const pl_start_t start = {.options = "", .context = &part->object};
    captain->life[rank] =
        pl_spawn(captain, pl_collective_actor("shm", &err), PL_OWN_THREAD, &start,
                 (pl_how_t){.on_answer = lived, .context = &ended[rank]},
                 &captain->rank[rank], &err);
    pl_object_unref(part);
}

void captain_open(void)
{
    void *self = NULL;
    memset(reported, 0, sizeof reported);
    memset(ended, 0, sizeof ended);
    pl_runtime_init(&runtime, NULL);
    captain_reactor = pl_reactor_new(&runtime, -1, NULL);
    pl_actor_root(captain_reactor, &captain_ops, &self, NULL);
    captain = self;
    for (int rank = 0; rank < RANKS; rank++)
        rank_spawn(rank);
    wait_for(RANKS);
}

pl_how_t how(int rank, int k, int total_ms)
{
    return (pl_how_t){.on_answer = answered,
                      .context = &reported[rank][k],
                      .total_ms = total_ms};
}

void join(int rank, int k, int total_ms)
{
    char addresses[RANKS * (PL_ADDRESS_TEXT + 1)] = "";
    for (int other = 0; other < RANKS; other++) {
        strcat(addresses, captain->address[other]);
        strcat(addresses, "\n");
    }
    pl_call_join(captain, captain->rank[rank],
                 &(pl_join_t){.rank = (uint32_t)rank,
                              .world_size = RANKS,
                              .addresses = addresses},
                 how(rank, k, total_ms), NULL);
}

void captain_alloc(int rank, int k)
{
    pl_how_t tells = how(rank, k, 0);
    tells.on_answer = allocated;
    pl_call_alloc_buffer(captain, captain->rank[rank],
                         &(pl_alloc_buffer_t){.bytes = ELEMENTS * sizeof(float)}, tells,
                         NULL);
}

void captain_join(void)
{
    captain_open();
    for (int rank = 0; rank < RANKS; rank++)
        join(rank, 0, 0);
    for (int rank = 0; rank < RANKS; rank++)
        captain_alloc(rank, 1);
    wait_for(2 * RANKS);
}

void captain_close(void)
{
    for (int rank = 0; rank < RANKS; rank++)
        pl_object_unref(captain->buffer[rank]);
    pl_reactor_free(captain_reactor);
    pl_runtime_release(&runtime);
}

uint64_t all_reduce(int rank, int k, uint64_t offset, uint64_t elements, int total_ms)
{
    return pl_call_all_reduce(captain, captain->rank[rank],
                              &(pl_all_reduce_t){.memory = &captain->buffer[rank]->object,
                                                 .offset = offset,
                                                 .count = elements,
                                                 .dtype = PL_F32},
                              how(rank, k, total_ms), NULL);
}

void barrier(int rank, int k, int total_ms)
{
    pl_call_barrier(captain, captain->rank[rank], &(pl_barrier_t){0},
                    how(rank, k, total_ms), NULL);
}
