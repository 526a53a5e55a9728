/* placement.c - tests of engine/runtime/placement.c */
#include "runtime/placement.h"

#include <pthread.h>
#include <sched.h>

#include "t/tap.h"

static cpu_set_t allowed;
static int here, there;                                     /* two processors */

static bool stand_on(int processor)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(processor, &only);
    return sched_setaffinity(0, sizeof only, &only) == 0
           && sched_setaffinity(0, sizeof allowed, &allowed) == 0
           && sched_getcpu() == processor;
}

static bool has_two_processors(void)
{
    here = there = -1;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int k = 0; k < CPU_SETSIZE && there < 0; k++)
        if (CPU_ISSET(k, &allowed))
            *(here < 0 ? &here : &there) = k;
    return there >= 0;
}

/* Where a thread ends that finds itself on `here`; the scheduler may have moved it of its
 * own before. */
static int moved_to(pl_placement_t *placement)
{
    for (int tries = 0; tries < 1000; tries++) {
        if (!stand_on(here))
            continue;
        placement->moved = 0;
        pl_placement_work(placement);
        return sched_getcpu();
    }
    return -1;
}

static void *compute(void *user)
{
    pl_placement_t *placement = user;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(here, &only);
    sched_setaffinity(0, sizeof only, &only);
    pl_placement_work(placement);
    return NULL;
}

static void a_thread_steps_aside_from_one_that_computes(void)
{
    pl_placement_t computing = {.computes = true}, passing = {0};
    cpu_set_t after;
    pthread_t thread;
    pthread_create(&thread, NULL, compute, &computing);
    pthread_join(thread, NULL);
    ok(computing.busy == here + 1, "the one that computes is counted where it runs");
    int moves = 0;
    for (int k = 0; k < 20; k++)
        moves += moved_to(&passing) != here;
    ok(moves > 0, "the other leaves its processor (%d of 20 times)", moves);
    sched_getaffinity(0, sizeof after, &after);
    ok(CPU_EQUAL(&after, &allowed), "and may still run everywhere");
    pl_placement_rest(&computing);
    ok(computing.busy == 0, "a thread at rest is counted nowhere");
}

static void a_thread_stays_where_no_thread_computes(void)
{
    pl_placement_t passing = {0};
    moved_to(&passing);
    ok(passing.moved == 0, "nothing was to be done");
}

static void a_computing_thread_stays(void)
{
    pl_placement_t one = {.computes = true}, other = {.computes = true};
    pl_placement_work(&one);
    pl_placement_work(&other);
    ok(one.moved == 0 && other.moved == 0, "two that compute leave each other alone");
    pl_placement_rest(&one);
    pl_placement_rest(&other);
}

int main(void)
{
    if (!has_two_processors()) {
        tap_skip("there is one processor");
        return tap_done();
    }
    run(a_thread_stays_where_no_thread_computes);
    run(a_thread_steps_aside_from_one_that_computes);
    run(a_computing_thread_stays);
    return tap_done();
}
