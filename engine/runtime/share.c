/* share.c - a rank's share of the processors of this machine
 *
 * The threads of a rank wake each other many times in each step, and it waits for that.
 * Where all processors compute, a scheduler wakes them on whichever is idle just then,
 * which is another rank's between two steps: it has to be fetched from its sleep, and
 * that rank finds it taken.  With the processors shared out a rank's threads follow each
 * other on one: two ranks of one thread each, with steps of 0.2 ms, so came from 0.45 to
 * 0.25 ms a step.  Processors of one core, and cores of one socket, stay together. */
#include "runtime/share.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

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

static void processors_list(const cpu_set_t *allowed, processor_t *processor)
{
    int count = 0;
    for (int k = 0; k < CPU_SETSIZE; k++)
        if (CPU_ISSET(k, allowed))
            processor[count++] = (processor_t){k, topology(k, "physical_package_id"),
                                               topology(k, "core_id")};
    qsort(processor, (size_t)count, sizeof *processor, by_place);
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
    processors_list(&allowed, processor);
    for (int k = share * per_part; k < (share + 1) * per_part; k++)
        CPU_SET(processor[k].number, &own);
    is_taken = sched_setaffinity(0, sizeof own, &own) == 0;
    pl_free(processor);
}
