/* share.c - tests of engine/runtime/share.c */
#include "runtime/placement.h"

#include <pthread.h>
#include <sched.h>

#include "tap.h"

/* What a thread that took a share may use. */
typedef struct taker {
    int share, shares;
    bool taken;
    cpu_set_t mine;
} taker_t;

static void *take(void *user)
{
    taker_t *taker = user;
    pl_share_take(taker->share, taker->shares);
    taker->taken = pl_share_is_taken();
    sched_getaffinity(0, sizeof taker->mine, &taker->mine);
    return NULL;
}

static taker_t taken(int share, int shares)
{
    taker_t taker = {.share = share, .shares = shares};
    pthread_t thread;
    CPU_ZERO(&taker.mine);
    if (ok(pthread_create(&thread, NULL, take, &taker) == 0, "a thread, share %d of %d",
           share, shares))
        pthread_join(thread, NULL);
    return taker;
}

static int processors(cpu_set_t *set)
{
    CPU_ZERO(set);
    sched_getaffinity(0, sizeof *set, set);
    return CPU_COUNT(set);
}

static void shares_are_equal_and_disjoint(void)
{
    cpu_set_t all, both;
    const int count = processors(&all);
    if (count < 2) {
        tap_skip("there is one processor");
        return;
    }
    taker_t first = taken(0, 2), second = taken(1, 2);
    ok(first.taken && second.taken, "each knows that it has a share");
    is_int(CPU_COUNT(&first.mine), count / 2, "half of them");
    is_int(CPU_COUNT(&second.mine), count / 2, "and as many");
    CPU_AND(&both, &first.mine, &second.mine);
    is_int(CPU_COUNT(&both), 0, "which are others");
    CPU_OR(&both, &first.mine, &all);
    ok(CPU_EQUAL(&both, &all), "of those that it could use");
    ok(!pl_share_is_taken(), "the parent has none");
}

static void with_fewer_processors_than_processes_all_stay_free(void)
{
    cpu_set_t all;
    const int count = processors(&all);
    taker_t taker = taken(0, count + 1);
    ok(!taker.taken, "%d processors, %d shares: it has none", count, count + 1);
    ok(CPU_EQUAL(&taker.mine, &all), "and may run everywhere");
    taker = taken(0, 1);
    ok(!taker.taken && CPU_EQUAL(&taker.mine, &all), "so may a single process");
}

int main(void)
{
    run(shares_are_equal_and_disjoint);
    run(with_fewer_processors_than_processes_all_stay_free);
    return tap_done();
}
