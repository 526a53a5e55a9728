/* collective_actor.c - tests of strategies/collectives/actor.c: ranks that meet, work and
 * end by messages */
#include <string.h>

#include "base/clock.h"
#include "captain.h"
#include "runtime/message.h"
#include "tap.h"

static void ranks_join_and_their_requests_are_done_in_order(void)
{
    captain_join();
    for (int rank = 0; rank < RANKS; rank++) {
        float *data = captain->buffer[rank]->data;
        for (int k = 0; k < ELEMENTS; k++)
            data[k] = (float)(rank + 1);
        all_reduce(rank, 0, 0, ELEMENTS, 0);
        all_reduce(rank, 1, 0, 10, 0);
        barrier(rank, 2, 0);
    }
    wait_for(3 * RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        const float *data = captain->buffer[rank]->data;
        ok(data[0] == 18 && data[9] == 18 && data[10] == 6 && data[ELEMENTS - 1] == 6,
           "rank %d has the sum of the first elements twice, of the others once", rank);
        ok(reported[rank][0].order < reported[rank][1].order
               && reported[rank][1].order < reported[rank][2].order,
           "and was answered in order");
    }
    captain_close();
    is_int(pl_flight_count(), 0, "nothing is in flight");
}

static void registered_buffers_outlive_the_collective(void)
{
    captain_join();
    pl_reg_buffer_t *kept = pl_object_ref(captain->buffer[0]);
    captain_close();
    memset(kept->data, 1, kept->bytes);
    is_int(pl_flight_count(), 0, "the ranks have ended");
    is_int(((char *)kept->data)[kept->bytes - 1], 1, "their memory is there");
    pl_object_unref(kept);
}

static void a_limit_names_the_ranks_that_arrived_and_those_that_did_not(void)
{
    captain_join();
    all_reduce(0, 0, 0, ELEMENTS, 50);
    all_reduce(2, 0, 0, ELEMENTS, 0);
    wait_for(2);
    is_int(captain->late, 1, "the caller knows that it is late");
    is_int(reported[0][0].code, PL_ETIMEOUT, "then its call ends");
    is_text(
        reported[0][0].text,
        "all_reduce: the time limit has passed: rank 0, rank 2 arrived, rank 1 did not",
        "and names the missing ranks");
    is_int(reported[2][0].code, PL_EPEER,
           "so does the call of the rank that waited with it");
    is_text(
        reported[2][0].text,
        "all_reduce: rank 0 aborted: the time limit has passed: rank 0, rank 2 arrived, "
        "rank 1 did not",
        "for the same reason");
    barrier(1, 0, 0);
    wait_for(1);
    is_int(reported[1][0].code, PL_EPEER,
           "a rank that comes later gets the error at once");
    captain_close();
}

static void a_cancelled_call_reports_no_limit(void)
{
    captain_join();
    const uint64_t call = all_reduce(0, 0, 0, ELEMENTS, 0);
    all_reduce(2, 0, 0, ELEMENTS, 0);
    pl_cancel(captain, call);
    wait_for(2);
    is_int(captain->late, 0, "no limit has passed");
    is_int(reported[0][0].code, PL_ECANCELLED, "its call ends as cancelled");
    is_int(reported[2][0].code, PL_EPEER,
           "so does the call of the rank that waited with it");
    is_text(reported[2][0].text, "all_reduce: rank 0 aborted: the caller has ended",
            "for the same reason");
    captain_close();
}

static void a_join_names_the_missing_ranks(void)
{
    captain_open();
    join(1, 0, 50);
    wait_for(1);
    is_int(reported[1][0].code, PL_ETIMEOUT, "its limit passes");
    is_text(reported[1][0].text,
            "join: the time limit has passed: rank 1 arrived, rank 0, rank 2 did not",
            "and names the rank that did not join");
    captain_close();
}

static void an_abort_ends_all_waits(void)
{
    captain_join();
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
            is_text(reported[rank][k].text,
                    k ? "barrier: rank 2 aborted: no more batches"
                      : "all_reduce: rank 2 aborted: no more batches",
                    "rank %d gets the reason, call %d", rank, k);
    captain_close();
}

static void a_rank_that_ends_is_named_by_those_that_wait(void)
{
    captain_join();
    barrier(0, 0, 0);
    barrier(2, 0, 0);
    pl_cancel(captain, captain->life[1]);
    wait_for(3);
    is_int(ended[1].code, PL_OK, "it ends in order");
    like(reported[0][0].text, "^barrier: .*rank 1 is gone", "rank 0 names it");
    like(reported[2][0].text, "^barrier: .*rank 1 is gone", "rank 2 does");
    captain_close();
}

static void a_rank_that_ends_in_an_operation_ends_the_others(void)
{
    captain_join();
    barrier(0, 0, 0);
    barrier(1, 0, 0);
    pl_cancel(captain, captain->life[1]);
    wait_for(3);
    is_int(reported[1][0].code, PL_ECANCELLED, "its own call ends");
    is_text(reported[0][0].text, "barrier: rank 1 aborted: the collective is ending",
            "the other's too");
    captain_close();
}

/* The answer may not have reached the caller before it ends the actor. */
static void a_rank_that_fails_by_itself_ends_with_its_error(void)
{
    captain_join();
    all_reduce(0, 0, 4 * ELEMENTS, 1, 0);
    all_reduce(2, 0, 0, ELEMENTS, 0);
    wait_for(2);
    is_int(reported[2][0].code, PL_EPEER, "another rank waited for it");
    pl_cancel(captain, captain->life[0]);
    pl_cancel(captain, captain->life[2]);
    wait_for(2);
    is_int(ended[0].code, PL_EINVAL,
           "the rank with the impossible request ends with its error");
    is_int(ended[2].code, PL_OK, "the other in order");
    captain_close();
}

static void wrong_requests_are_refused(void)
{
    captain_open();
    barrier(0, 0, 0);
    pl_call_join(captain, captain->rank[1],
                 &(pl_join_t){.rank = 3, .world_size = 3, .addresses = ""}, how(1, 0, 0),
                 NULL);
    pl_call_join(captain, captain->rank[2],
                 &(pl_join_t){.rank = 1, .world_size = 2, .addresses = "shm a b\n"},
                 how(2, 0, 0), NULL);
    wait_for(3);
    is_int(reported[0][0].code, PL_ESTATE, "an operation before the ranks have met");
    is_int(reported[1][0].code, PL_EINVAL, "a rank beyond their number");
    is_text(reported[2][0].text, "1 addresses for 2 ranks", "too few addresses");
    captain_close();
    captain_join();
    all_reduce(0, 0, 4 * ELEMENTS, 1, 0);
    wait_for(1);
    is_int(reported[0][0].code, PL_EINVAL, "elements that are not in the memory");
    captain_close();
    pl_error_t err;
    ok(!pl_collective_actor("smoke", &err), "a collective that is not there");
    is_int(err.code, PL_ENOTFOUND, "is not found");
}

int main(void)
{
    pl_init(NULL, NULL, NULL, NULL);
    run(ranks_join_and_their_requests_are_done_in_order);
    run(registered_buffers_outlive_the_collective);
    run(a_limit_names_the_ranks_that_arrived_and_those_that_did_not);
    run(a_cancelled_call_reports_no_limit);
    run(a_join_names_the_missing_ranks);
    run(an_abort_ends_all_waits);
    run(a_rank_that_ends_is_named_by_those_that_wait);
    run(a_rank_that_ends_in_an_operation_ends_the_others);
    run(a_rank_that_fails_by_itself_ends_with_its_error);
    run(wrong_requests_are_refused);
    return tap_done();
}
