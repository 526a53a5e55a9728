/* placement.c - the processors of threads: a share for each rank, and threads that pass
 * messages off the processors of threads that compute
 *
 * The threads of a rank wake each other many times in each step, and the step waits
 * for that.  Where all processors compute, a scheduler wakes a thread on any processor
 * that is idle at that moment, such as one of another rank between two steps.  That
 * processor has to leave its sleep, and the other rank finds it taken.  With a share
 * of the processors for each rank, the threads of a rank follow each other on one: two
 * ranks of one thread each, with steps of 0.2 ms, came from 0.45 to 0.25 ms a step.
 * Processors of one core, and cores of one socket, stay together.
 *
 * A scheduler likes to run a woken thread beside its waker, and on a virtual machine
 * it takes a processor that the hypervisor has taken away for an idle one.  A rank's
 * thread that once ran on its accelerator's processor is then woken there again and
 * again, in the middle of every step, while another processor idles: that cost a fifth
 * of the speed.  A thread that finds itself there moves away once; from then on it is
 * woken where it ran last.  It stays free to run everywhere, so nothing is pinned and
 * no setting of the user is overruled. */
#include "runtime/placement.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"

/* ---- a rank's share ---- */

typedef struct processor {
    int number, socket, core;
} processor_t;

static _Thread_local bool is_taken;

bool pl_share_is_taken(void)
{
    return is_taken;
}

void pl_share_inherit(bool taken)
{
    is_taken = taken;
}

static int topology(int processor, const char *what)
{
    char path[96];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", processor,
             what);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &value) != 1)
        value = 0;
    if (file)
        fclose(file);
    return value;
}

static int by_place(const void *a, const void *b)
{
    const processor_t *x = a, *y = b;
    if (x->socket != y->socket)
        return x->socket - y->socket;
    return x->core != y->core ? x->core - y->core : x->number - y->number;
}

void pl_share_take(int share, int shares)
{
    cpu_set_t allowed, own;
    CPU_ZERO(&allowed);
    CPU_ZERO(&own);
    if (shares < 2 || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    const int count = CPU_COUNT(&allowed), per_part = count / shares;
    processor_t *processor = per_part ? pl_alloc_array((size_t)count, sizeof *processor)
                                      : NULL;
    if (!processor)
        return;
    int listed = 0;
    for (int k = 0; k < CPU_SETSIZE; k++)
        if (CPU_ISSET(k, &allowed))
            processor[listed++] = (processor_t){k, topology(k, "physical_package_id"),
                                                topology(k, "core_id")};
    qsort(processor, (size_t)listed, sizeof *processor, by_place);
    for (int k = share * per_part; k < (share + 1) * per_part; k++)
        CPU_SET(processor[k].number, &own);
    is_taken = sched_setaffinity(0, sizeof own, &own) == 0;
    pl_free(processor);
}

/* ---- threads that pass messages ---- */

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
    /* Moves the thread to another of its processors, on which no thread computes. */
    cpu_set_t allowed, others;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    others = allowed;
    CPU_CLR(processor, &others);
    for (int k = 0; k < PROCESSORS_MAX; k++)
        if (CPU_ISSET(k, &others) && __atomic_load_n(&computing[k], __ATOMIC_RELAXED))
            CPU_CLR(k, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof allowed, &allowed);
}

void pl_placement_rest(pl_placement_t *placement)
{
    count(&placement->busy, 0);
}
