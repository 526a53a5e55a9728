/* collective_actor.c - tests of strategies/collectives/actor.c: ranks that meet, work and
 * end by messages
 *
 * One actor in the place of all ranks' strategies has a collective for each rank. */
#include <string.h>

#include "base/bind.h"
#include "base/clock.h"
#include "runtime/object.h"
#include "runtime/reactor.h"
#include "strategies/collectives/split.h"
#include "tap.h"

enum { RANKS = 3, ELEMENTS = 5000 };

typedef struct told {
    int order;                                      /* in which the answer came, from 1 */
    int code;
    char text[PL_ERROR_TEXT];
} told_t;

typedef struct captain {
    pl_address_t rank[RANKS];
    uint64_t life[RANKS];
    char address[RANKS][PL_ADDRESS_TEXT];
    pl_lent_t *lent[RANKS];                                 /* counted */
    int answers, late, wanted;
} captain_t;

static pl_runtime_t runtime;
static pl_reactor_t *reactor;
static captain_t *captain;
static told_t told[RANKS][4];                               /* context of calls */
static told_t ended[RANKS];

static const pl_actor_ops_t captain_ops = {.name = "captain",
                                           .size = sizeof(captain_t),
                                           .level = PL_LEVEL_STRATEGY};

static void count(captain_t *c)
{
    if (++c->answers == c->wanted)
        pl_reactor_leave(reactor);
}

static void note(told_t *t, const pl_answer_t *answer)
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

static void lent(void *self, const pl_answer_t *answer)
{
    captain_t *c = self;
    told_t *t = answer->context;
    if (answer->kind == PL_ANSWER_REPLY)
        c->lent[(t - told[0]) / 4] =
            pl_object_ref(answer->body->lend_memory_reply.memory);
    answered(self, answer);
}

static void lived(void *self, const pl_answer_t *answer)
{
    captain_t *c = self;
    told_t *t = answer->context;
    if (answer->kind == PL_ANSWER_PROGRESS)
        strcpy(c->address[t - ended], answer->body->start_progress.address);
    else
        note(t, answer);
    count(c);
}

static void wait_for(int answers)
{
    captain->answers = 0;
    captain->wanted = answers;
    reactor->leave = false;
    pl_reactor_run(reactor);
}

static pl_collective_part_t *shm_part(void)
{
    pl_error_t err;
    pl_instance_t part = {0};
    json_t *name = json_string("shm");
    const pl_instance_request_t request = {.role = "collective", .value = name};
    pl_instance_make(&part, &request, &err);
    json_decref(name);
    return pl_collective_part_new(&part, NULL, &err);
}

static void rank_spawn(int rank)
{
    pl_error_t err;
    pl_collective_part_t *seat = shm_part();
    const pl_start_t start = {.options = "", .context = &seat->object};
    captain->life[rank] =
        pl_spawn(captain, pl_collective_actor("shm", &err), PL_OWN_THREAD, &start,
                 (pl_how_t){.on_answer = lived, .context = &ended[rank]},
                 &captain->rank[rank], &err);
    pl_object_unref(seat);
}

static void rig_open(void)
{
    void *self = NULL;
    memset(told, 0, sizeof told);
    memset(ended, 0, sizeof ended);
    pl_runtime_init(&runtime, NULL);
    reactor = pl_reactor_new(&runtime, -1, NULL);
    pl_actor_root(reactor, &captain_ops, &self, NULL);
    captain = self;
    for (int rank = 0; rank < RANKS; rank++)
        rank_spawn(rank);
    wait_for(RANKS);
}

static pl_how_t how(int rank, int k, int total_ms)
{
    return (
        pl_how_t){.on_answer = answered, .context = &told[rank][k], .total_ms = total_ms};
}

static void join(int rank, int k, int total_ms)
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

static void rig_meet(void)
{
    rig_open();
    for (int rank = 0; rank < RANKS; rank++)
        join(rank, 0, 0);
    for (int rank = 0; rank < RANKS; rank++) {
        pl_how_t tells = how(rank, 1, 0);
        tells.on_answer = lent;
        pl_call_lend_memory(captain, captain->rank[rank],
                            &(pl_lend_memory_t){.bytes = ELEMENTS * sizeof(float)}, tells,
                            NULL);
    }
    wait_for(2 * RANKS);
}

static void rig_close(void)
{
    for (int rank = 0; rank < RANKS; rank++)
        pl_object_unref(captain->lent[rank]);
    pl_reactor_free(reactor);
    pl_runtime_release(&runtime);
}

static uint64_t all_reduce(int rank, int k, uint64_t offset, uint64_t elements,
                           int total_ms)
{
    return pl_call_all_reduce(captain, captain->rank[rank],
                              &(pl_all_reduce_t){.memory = &captain->lent[rank]->object,
                                                 .offset = offset,
                                                 .count = elements,
                                                 .dtype = PL_F32},
                              how(rank, k, total_ms), NULL);
}

static void barrier(int rank, int k, int total_ms)
{
    pl_call_barrier(captain, captain->rank[rank], &(pl_barrier_t){0},
                    how(rank, k, total_ms), NULL);
}

/* ---- tests ---- */

static void ranks_meet_and_what_they_ask_for_is_done_in_order(void)
{
    rig_meet();
    for (int rank = 0; rank < RANKS; rank++) {
        float *data = captain->lent[rank]->data;
        for (int k = 0; k < ELEMENTS; k++)
            data[k] = (float)(rank + 1);
        all_reduce(rank, 0, 0, ELEMENTS, 0);
        all_reduce(rank, 1, 0, 10, 0);
        barrier(rank, 2, 0);
    }
    wait_for(3 * RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        const float *data = captain->lent[rank]->data;
        ok(data[0] == 18 && data[9] == 18 && data[10] == 6 && data[ELEMENTS - 1] == 6,
           "rank %d has the sum of the first elements twice, of the others once", rank);
        ok(told[rank][0].order < told[rank][1].order
               && told[rank][1].order < told[rank][2].order,
           "and was answered in order");
    }
    rig_close();
    is_int(pl_flight_count(), 0, "nothing is in flight");
}

static void lent_memory_outlives_the_collective(void)
{
    rig_meet();
    pl_lent_t *kept = pl_object_ref(captain->lent[0]);
    rig_close();
    memset(kept->data, 1, kept->bytes);
    pl_object_unref(kept);
    ok(true, "while somebody refers to it");
}

static void a_limit_names_who_came_and_who_did_not(void)
{
    rig_meet();
    all_reduce(0, 0, 0, ELEMENTS, 50);
    all_reduce(2, 0, 0, ELEMENTS, 0);
    wait_for(2);
    is_int(captain->late, 1, "the caller was told that it is late");
    is_int(told[0][0].code, PL_ETIMEOUT, "then its call ends");
    is_text(
        told[0][0].text,
        "all_reduce: the time limit has passed: rank 0, rank 2 arrived, rank 1 did not",
        "and says who was missing");
    is_int(told[2][0].code, PL_EPEER, "so does that of the rank that waited with it");
    is_text(
        told[2][0].text,
        "all_reduce: rank 0 aborted: the time limit has passed: rank 0, rank 2 arrived, "
        "rank 1 did not",
        "for the same reason");
    barrier(1, 0, 0);
    wait_for(1);
    is_int(told[1][0].code, PL_EPEER, "who comes afterwards is told at once");
    rig_close();
}

static void a_call_that_nobody_wants_any_more_has_no_limit_to_tell_of(void)
{
    rig_meet();
    const uint64_t call = all_reduce(0, 0, 0, ELEMENTS, 0);
    all_reduce(2, 0, 0, ELEMENTS, 0);
    pl_cancel(captain, call);
    wait_for(2);
    is_int(captain->late, 0, "no limit has passed");
    is_int(told[0][0].code, PL_ECANCELLED, "its call ends as cancelled");
    is_int(told[2][0].code, PL_EPEER, "so does that of the rank that waited with it");
    is_text(told[2][0].text, "all_reduce: rank 0 aborted: the caller has ended",
            "for the same reason");
    rig_close();
}

static void a_join_that_somebody_misses_names_them(void)
{
    rig_open();
    join(1, 0, 50);
    wait_for(1);
    is_int(told[1][0].code, PL_ETIMEOUT, "its limit passes");
    is_text(told[1][0].text,
            "join: the time limit has passed: rank 1 arrived, rank 0, rank 2 did not",
            "and says who did not join");
    rig_close();
}

static void an_abort_ends_every_wait(void)
{
    rig_meet();
    for (int rank = 0; rank < RANKS - 1; rank++) {
        all_reduce(rank, 0, 0, ELEMENTS, 0);
        barrier(rank, 1, 0);
    }
    const int64_t began = pl_now();
    pl_call_abort(captain, captain->rank[2], &(pl_abort_t){.reason = "no more batches"},
                  how(2, 0, 0), NULL);
    wait_for(2 * (RANKS - 1) + 1);
    ok(pl_now() - began < PL_SECOND, "at once");
    for (int rank = 0; rank < RANKS - 1; rank++)
        for (int k = 0; k < 2; k++)
            is_text(told[rank][k].text,
                    k ? "barrier: rank 2 aborted: no more batches"
                      : "all_reduce: rank 2 aborted: no more batches",
                    "rank %d hears why, call %d", rank, k);
    rig_close();
}

static void who_ends_is_named_by_those_who_wait(void)
{
    rig_meet();
    barrier(0, 0, 0);
    barrier(2, 0, 0);
    pl_cancel(captain, captain->life[1]);
    wait_for(3);
    is_int(ended[1].code, PL_OK, "it ends in order");
    like(told[0][0].text, "^barrier: .*rank 1 is gone", "rank 0 names it");
    like(told[2][0].text, "^barrier: .*rank 1 is gone", "rank 2 does");
    rig_close();
}

static void one_that_ends_in_the_middle_tells_the_others(void)
{
    rig_meet();
    barrier(0, 0, 0);
    barrier(1, 0, 0);
    pl_cancel(captain, captain->life[1]);
    wait_for(3);
    is_int(told[1][0].code, PL_ECANCELLED, "its own call ends");
    is_text(told[0][0].text, "barrier: rank 1 aborted: the collective is ending",
            "the other's too");
    rig_close();
}

/* Whoever ends it may not have heard of the answer yet. */
static void one_that_failed_by_itself_ends_with_that(void)
{
    rig_meet();
    all_reduce(0, 0, 4 * ELEMENTS, 1, 0);
    all_reduce(2, 0, 0, ELEMENTS, 0);
    wait_for(2);
    is_int(told[2][0].code, PL_EPEER, "another rank waited for it");
    pl_cancel(captain, captain->life[0]);
    pl_cancel(captain, captain->life[2]);
    wait_for(2);
    is_int(ended[0].code, PL_EINVAL, "who asked for what is not there ends with that");
    is_int(ended[2].code, PL_OK, "the other in order");
    rig_close();
}

/* ---- groups ---- */

static pl_split_t split[RANKS];
static told_t split_ended[RANKS];

static void split_tell(void *self, pl_split_t *s, const pl_error_t *failure)
{
    told_t *t = &told[s - split][2];
    t->code = failure ? failure->code : PL_OK;
    strcpy(t->text, failure ? failure->text : "");
    count(self);
}

static void split_end(void *self, pl_split_t *s, const pl_error_t *err)
{
    told_t *t = &split_ended[s - split];
    t->code = err ? err->code : PL_OK;
    strcpy(t->text, err ? err->text : "");
    count(self);
}

/* Ranks 0 and 2, and rank 1 alone. */
static void split_all(void)
{
    static const int color[RANKS] = {7, 0, 7};
    pl_error_t err;
    memset(split, 0, sizeof split);
    for (int rank = 0; rank < RANKS; rank++) {
        split[rank] = (pl_split_t){.from = captain->rank[rank],
                                   .rank = rank,
                                   .size = RANKS,
                                   .color = color[rank],
                                   .part = shm_part(),
                                   .done = split_tell,
                                   .ended = split_end};
        if (pl_collective_split(captain, &split[rank], &err) != PL_OK)
            ok(false, "%s", err.text);
        pl_object_unref(split[rank].part);
    }
    wait_for(RANKS);
}

static void ranks_of_one_color_are_a_group(void)
{
    rig_meet();
    split_all();
    for (int rank = 0; rank < RANKS; rank++)
        is_int(told[rank][2].code, PL_OK, "rank %d has a group: %s", rank,
               told[rank][2].text);
    ok(split[0].group_size == 2 && split[1].group_size == 1 && split[2].group_size == 2,
       "of as many ranks");
    ok(split[0].group_rank == 0 && split[2].group_rank == 1, "in their order");
    for (int rank = 0; rank < RANKS; rank++) {
        pl_how_t tells = how(rank, 1, 0);
        tells.on_answer = lent;
        pl_object_unref(captain->lent[rank]);
        captain->rank[rank] = split[rank].group;
        pl_call_lend_memory(captain, captain->rank[rank],
                            &(pl_lend_memory_t){.bytes = ELEMENTS * sizeof(float)}, tells,
                            NULL);
    }
    wait_for(RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        float *data = captain->lent[rank]->data;
        for (int k = 0; k < ELEMENTS; k++)
            data[k] = (float)(rank + 1);
        all_reduce(rank, 0, 0, ELEMENTS, 0);
    }
    wait_for(RANKS);
    for (int rank = 0; rank < RANKS; rank++)
        ok(((float *)captain->lent[rank]->data)[ELEMENTS - 1] == (rank == 1 ? 2 : 4),
           "rank %d has the sum of its group", rank);
    barrier(0, 0, 0);
    pl_cancel(captain, split[2].life);
    wait_for(2);
    is_int(split_ended[2].code, PL_OK, "one that ends");
    like(told[0][0].text, "^barrier: .*rank 1 is gone", "is named in its group");
    for (int rank = 0; rank < 2; rank++)
        pl_cancel(captain, split[rank].life);
    wait_for(2);
    rig_close();
}

static void a_group_that_cannot_meet_says_why(void)
{
    pl_error_t err;
    rig_meet();
    split[0] = (pl_split_t){.color = -1, .part = shm_part()};
    is_int(pl_collective_split(captain, &split[0], &err), PL_EINVAL, "%s", err.text);
    pl_object_unref(split[0].part);
    pl_call_abort(captain, captain->rank[1], &(pl_abort_t){.reason = "no more batches"},
                  how(1, 0, 0), NULL);
    wait_for(1);
    split_all();
    like(told[0][2].text, "rank 1 aborted: no more batches", "%s", told[0][2].text);
    for (int rank = 0; rank < RANKS; rank++)
        pl_cancel(captain, split[rank].life);
    wait_for(RANKS);
    rig_close();
}

static void what_is_wrong_is_refused(void)
{
    rig_open();
    barrier(0, 0, 0);
    pl_call_join(captain, captain->rank[1],
                 &(pl_join_t){.rank = 3, .world_size = 3, .addresses = ""}, how(1, 0, 0),
                 NULL);
    pl_call_join(captain, captain->rank[2],
                 &(pl_join_t){.rank = 1, .world_size = 2, .addresses = "shm a b\n"},
                 how(2, 0, 0), NULL);
    wait_for(3);
    is_int(told[0][0].code, PL_ESTATE, "an operation before the ranks have met");
    is_int(told[1][0].code, PL_EINVAL, "a rank beyond their number");
    is_text(told[2][0].text, "1 addresses for 2 ranks", "too few addresses");
    rig_close();
    rig_meet();
    all_reduce(0, 0, 4 * ELEMENTS, 1, 0);
    wait_for(1);
    is_int(told[0][0].code, PL_EINVAL, "elements that are not in the memory");
    rig_close();
    pl_error_t err;
    ok(!pl_collective_actor("smoke", &err), "a collective that is not there");
    is_int(err.code, PL_ENOTFOUND, "is not found");
}

int main(void)
{
    pl_init(NULL, NULL, NULL, NULL);
    run(ranks_meet_and_what_they_ask_for_is_done_in_order);
    run(lent_memory_outlives_the_collective);
    run(a_limit_names_who_came_and_who_did_not);
    run(a_call_that_nobody_wants_any_more_has_no_limit_to_tell_of);
    run(a_join_that_somebody_misses_names_them);
    run(an_abort_ends_every_wait);
    run(who_ends_is_named_by_those_who_wait);
    run(one_that_ends_in_the_middle_tells_the_others);
    run(one_that_failed_by_itself_ends_with_that);
    run(ranks_of_one_color_are_a_group);
    run(a_group_that_cannot_meet_says_why);
    run(what_is_wrong_is_refused);
    return tap_done();
}
