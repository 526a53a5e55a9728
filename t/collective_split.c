/* collective_split.c - tests of strategies/collectives/split.c: groups of ranks */
#include <semaphore.h>
#include <stdarg.h>
#include <string.h>

#include "base/error.h"
#include "captain.h"
#include "strategies/collectives/split.h"
#include "tap.h"

static pl_group_split_t split[RANKS];
static reported_t split_ended[RANKS];

/* Collectives of a rank's group: what is done before such a one opens; and one that does
 * not open. */
static pl_collective_ops_t slow, shut;
static sem_t may_open;

static int slow_open(void *self, const pl_collective_context_t *context,
                     char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    sem_wait(&may_open);
    return pl_shm_collective.open(self, context, address, descriptor, err);
}

static int shut_open(void *self, const pl_collective_context_t *context,
                     char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    (void)self, (void)context, (void)address, (void)descriptor;
    return pl_fail(err, PL_EIO, "no wire leads there");
}

static void shut_close(void *self)
{
    (void)self;
}

static void split_tell(void *self, pl_group_split_t *s, const pl_error_t *failure)
{
    reported_t *t = &reported[s - split][2];
    t->order = captain->answers + 1;
    t->code = failure ? failure->code : PL_OK;
    strcpy(t->text, failure ? failure->text : "");
    count(self);
}

/* The struct is the caller's again: so nothing may read it afterwards. */
static void split_end(void *self, pl_group_split_t *s, const pl_error_t *err)
{
    reported_t *t = &split_ended[s - split];
    t->order = captain->answers + 1;
    t->code = err ? err->code : PL_OK;
    strcpy(t->text, err ? err->text : "");
    memset(s, 0xa5, sizeof *s);
    count(self);
}

static int split_one(int rank, const char *name, int color)
{
    pl_error_t err = {0};
    split[rank] = (pl_group_split_t){.from = captain->rank[rank],
                                     .rank = rank,
                                     .size = RANKS,
                                     .color = color,
                                     .component = component_of(name),
                                     .done = split_tell,
                                     .ended = split_end};
    pl_collective_split(captain, &split[rank], &err);
    pl_object_unref(split[rank].component);
    return err.code;
}

/* Ranks 0 and 2, and rank 1 alone. */
static void split_all(void)
{
    for (int rank = 0; rank < RANKS; rank++)
        is_int(split_one(rank, "shm", rank == 1 ? 0 : 7), PL_OK, "rank %d splits", rank);
    wait_for(RANKS);
}

/* Of those ranks; until they have ended. */
static void groups_end(int ranks, ...)
{
    va_list list;
    va_start(list, ranks);
    for (int k = 0; k < ranks; k++)
        pl_cancel(captain, split[va_arg(list, int)].life);
    va_end(list);
    wait_for(ranks);
}

static bool all_have_memory(void)
{
    return split[0].buffer && split[1].buffer && split[2].buffer;
}

static bool rank_0_has_given(void)
{
    return split[0].is_given;
}

static bool group_0_has_ended(void)
{
    return split_ended[0].order || split[0].has_ended;
}

static bool rank_0_has_answer(void)
{
    return reported[0][2].order && split_ended[0].order;
}

static bool all_have_answers(void)
{
    for (int rank = 0; rank < RANKS; rank++)
        if (!reported[rank][2].order || !split_ended[rank].order)
            return false;
    return true;
}

static void ranks_of_one_color_are_a_group(void)
{
    captain_join();
    split_all();
    for (int rank = 0; rank < RANKS; rank++)
        is_int(reported[rank][2].code, PL_OK, "rank %d has a group: %s", rank,
               reported[rank][2].text);
    ok(split[0].group_size == 2 && split[1].group_size == 1 && split[2].group_size == 2,
       "of as many ranks");
    ok(split[0].group_rank == 0 && split[2].group_rank == 1, "in their order");
    for (int rank = 0; rank < RANKS; rank++) {
        pl_object_unref(captain->buffer[rank]);
        captain->rank[rank] = split[rank].group;
        captain_alloc(rank, 1);
    }
    wait_for(RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        float *data = captain->buffer[rank]->data;
        for (int k = 0; k < ELEMENTS; k++)
            data[k] = (float)(rank + 1);
        all_reduce(rank, 0, 0, ELEMENTS, 0);
    }
    wait_for(RANKS);
    for (int rank = 0; rank < RANKS; rank++)
        ok(((float *)captain->buffer[rank]->data)[ELEMENTS - 1] == (rank == 1 ? 2 : 4),
           "rank %d has the sum of its group", rank);
    barrier(0, 0, 0);
    pl_cancel(captain, split[2].life);
    wait_for(2);
    is_int(split_ended[2].code, PL_OK, "one that ends");
    like(reported[0][0].text, "^barrier: .*rank 1 is gone", "is named in its group");
    groups_end(2, 0, 1);
    captain_close();
}

static void a_group_that_cannot_join_reports_the_cause(void)
{
    captain_join();
    pl_call_abort(captain, captain->rank[1], &(pl_abort_t){.reason = "no more batches"},
                  how(1, 0, 0), NULL);
    wait_for(1);
    split_all();
    like(reported[0][2].text, "rank 1 aborted: no more batches", "%s",
         reported[0][2].text);
    groups_end(RANKS, 0, 1, 2);
    captain_close();
}

/* With rank 1's group of that kind and color. */
static void group_fails(const char *name, int color, int code, const char *text)
{
    captain_join();
    for (int rank = 0; rank < RANKS; rank++)
        split_one(rank, rank == 1 ? name : "shm", rank == 1 ? color : 7);
    wait_for(RANKS + !strcmp(name, "shut"));
    for (int rank = 0; rank < RANKS; rank++) {
        is_int(reported[rank][2].code, rank == 1 ? code : PL_EPEER, "rank %d fails",
               rank);
        is_text(reported[rank][2].text, text, "and names the rank and the cause");
    }
    groups_end(2, 0, 2);
    captain_close();
}

static void a_group_that_cannot_be_opened_fails_on_all_ranks(void)
{
    group_fails("shut", 7, PL_EIO,
                "rank 1 cannot open the collective of its group: no wire leads there");
    is_int(split_ended[1].code, PL_EIO, "its group has ended with that");
    group_fails("shm", -1, PL_EINVAL,
                "rank 1 cannot open the collective of its group: color -1: 0 or more is "
                "needed");
}

/* Rank 0's ends while ranks 1 and 2 are not there yet, and while their groups are not. */
static void a_group_that_ends_early_is_reported_after_the_gather(void)
{
    for (int k = 0; k < 2; k++) {
        captain_join();
        memset(split_ended, 0, sizeof split_ended);
        split_one(0, "shm", 7);
        for (int rank = 1; rank < RANKS && k; rank++)
            split_one(rank, "slow", 7);
        ok(!k || comes(rank_0_has_given), "rank 0 %s", k ? "gathers" : "waits");
        pl_cancel(captain, split[0].life);
        ok(comes(group_0_has_ended) && !split_ended[0].order,
           "its group ends, which is not reported yet");
        for (int rank = 1; rank < RANKS; rank++)
            if (k)
                sem_post(&may_open);
            else
                split_one(rank, "shm", 7);
        ok(comes(rank_0_has_answer), "until the others have come");
        is_int(reported[0][2].code, PL_ECANCELLED, "it fails: %s", reported[0][2].text);
        ok(reported[0][2].order < split_ended[0].order,
           "and its group has ended, in order");
        for (int rank = 1; rank < RANKS; rank++)
            pl_cancel(captain, split[rank].life);
        ok(comes(all_have_answers), "so do the others");
        if (!k)
            is_text(reported[2][2].text,
                    "rank 0 cannot open the collective of its group: it has ended",
                    "and know why");
        captain_close();
    }
}

static void two_splits_at_a_time_are_refused(void)
{
    static pl_group_split_t second;
    pl_error_t err;
    captain_join();
    split_one(0, "slow", 7);
    second = split[0];
    second.component = component_of("shm");
    is_int(pl_collective_split(captain, &second, &err), PL_EBUSY, "a second is refused");
    for (int rank = 1; rank < RANKS; rank++)
        split_one(rank, "slow", 7);
    ok(comes(all_have_memory), "memory is registered before the groups are open");
    is_int(pl_collective_split(captain, &second, &err), PL_EBUSY,
           "until then a second is refused, too");
    is_text(err.text, "a collective is split once at a time: wait for done()", "and why");
    for (int rank = 0; rank < RANKS; rank++)
        sem_post(&may_open);
    wait_for(RANKS);
    is_int(reported[0][2].code, PL_OK, "the first is done: %s", reported[0][2].text);
    groups_end(RANKS, 0, 1, 2);
    split_all();
    is_int(reported[0][2].code, PL_OK, "then another is possible: %s",
           reported[0][2].text);
    groups_end(RANKS, 0, 1, 2);
    second.rank = RANKS;
    is_int(pl_collective_split(captain, &second, &err), PL_EINVAL, "%s", err.text);
    pl_object_unref(second.component);
    captain_close();
}

int main(void)
{
    static const pl_registration_t components[] = {{"collective", &slow},
                                                   {"collective", &shut},
                                                   PL_REGISTRATIONS_END};
    slow = shut = pl_shm_collective;
    slow.name = "slow", slow.open = slow_open;
    shut.name = "shut", shut.open = shut_open, shut.close = shut_close;
    sem_init(&may_open, 0, 0);
    pl_init(NULL, NULL, components, NULL);
    run(ranks_of_one_color_are_a_group);
    run(a_group_that_cannot_join_reports_the_cause);
    run(a_group_that_cannot_be_opened_fails_on_all_ranks);
    run(a_group_that_ends_early_is_reported_after_the_gather);
    run(two_splits_at_a_time_are_refused);
    return tap_done();
}
