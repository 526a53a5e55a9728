/* placement.c - keeps threads that pass messages off the processors of threads that
 * compute
 *
 * A scheduler likes to run who is woken beside who woke it, and on a virtual machine it
 * takes an idle processor for one that the hypervisor has taken away.  So a rank's
 * thread, once it ran on its accelerator's processor, is woken there again and again, in
 * the middle of every step, while another processor idles: a fifth of the speed was lost
 * by that. A thread that finds itself there steps aside, once; from then on it is woken
 * where it ran last.  It stays free to run everywhere, so that nothing is pinned and
 * nobody else's choice is overruled. */
#include "runtime/placement.h"

#include <sched.h>

#include "base/clock.h"

enum { PROCESSORS_MAX = CPU_SETSIZE };
static const int64_t MOVE_EVERY = PL_MILLISECOND;

static int computing[PROCESSORS_MAX];          /* atomic: threads at work, by processor */

static void count(int *processor, int now)
{
    if (*processor == now)
        return;
    if (*processor)
        __atomic_sub_fetch(&computing[*processor - 1], 1, __ATOMIC_RELAXED);
    if (now)
        __atomic_add_fetch(&computing[now - 1], 1, __ATOMIC_RELAXED);
    *processor = now;
}

/* Somewhere else among the processors it may use, where there are others. */
static void step_aside(int processor)
{
    cpu_set_t allowed, others;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    others = allowed;
    CPU_CLR(processor, &others);
    for (int k = 0; k < PROCESSORS_MAX; k++)
        if (CPU_ISSET(k, &others) && __atomic_load_n(&computing[k], __ATOMIC_RELAXED))
            CPU_CLR(k, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0)
        return;
    sched_setaffinity(0, sizeof allowed, &allowed);
}

void pl_placement_work(pl_placement_t *placement)
{
    int processor = sched_getcpu();
    if (processor < 0 || processor >= PROCESSORS_MAX)
        return;
    if (placement->computes) {
        count(&placement->busy, processor + 1);
        return;
    }
    if (!__atomic_load_n(&computing[processor], __ATOMIC_RELAXED))
        return;
    int64_t now = pl_now();
    if (now - placement->moved < MOVE_EVERY)
        return;
    placement->moved = now;
    step_aside(processor);
}

void pl_placement_rest(pl_placement_t *placement)
{
    count(&placement->busy, 0);
}
