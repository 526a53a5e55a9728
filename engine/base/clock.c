/* clock.c - time: monotonic for deadlines, wall clock for people */
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
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

int pl_duration_read(const char *text, int64_t *duration, pl_error_t *err)
{
    static const int64_t longest[] = {60, 60, 24, 100000};  /* s, min, h, d */
    int64_t seconds = 0, unit = 1;
    const char *end = text + strlen(text);
    for (int k = 0; k < 4 && end; k++) {
        const char *part = end;
        while (part > text && part[-1] >= '0' && part[-1] <= '9')
            part--;
        bool last = part == text, alone = last && k == 0;
        int64_t value = end - part < 7 ? strtoll(part, NULL, 10) : -1;
        if (part == end || value < 0 || (!alone && value >= longest[k])
            || (!last && part[-1] != ':'))
            break;
        seconds += value * unit;
        unit *= longest[k];
        end = last ? NULL : part - 1;
    }
    if (end || !seconds)
        return pl_fail(
            err, PL_EINVAL,
            "\"%.40s\" is not a time: write DD:HH:MM:SS, such as 00:02:30:00, or "
            "seconds",
            text);
    *duration = seconds * PL_SECOND;
    return PL_OK;
}
