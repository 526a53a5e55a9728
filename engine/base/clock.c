/* clock.c - time: monotonic for every deadline, wall for what people read */
#include "base/clock.h"

#include <time.h>

static int64_t clock_read(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * PL_SECOND + t.tv_nsec;
}

int64_t pl_now(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

int pl_milliseconds(double seconds)
{
    double ms = seconds * 1e3;
    return ms < 1 ? 1 : ms < 1e9 ? (int)ms : 1000000000;
}

double pl_wall_clock(void)
{
    return (double)clock_read(CLOCK_REALTIME) / 1e9;
}
