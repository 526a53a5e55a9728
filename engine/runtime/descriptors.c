/* descriptors.c - whether there are descriptors left for what does not survive without
 *
 * libevent ends the process when it gets none for its signals, ZeroMQ when it gets none
 * for a thread.  A library must do neither, so before such calls as many are opened as
 * they may need, and closed again. */
#include "runtime/descriptors.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"

enum { SPARE = 8, MOST = 64 };

int pl_descriptors_check(int count, const char *what, pl_error_t *err)
{
    int fd[MOST], opened = 0;
    count = count + SPARE < MOST ? count + SPARE : MOST;
    while (opened < count && (fd[opened] = eventfd(0, EFD_CLOEXEC)) >= 0)
        opened++;
    for (int k = 0; k < opened; k++)
        close(fd[k]);
    return opened == count
               ? PL_OK
               : pl_fail(err, PL_EBUSY,
                         "no descriptors left for %s: raise the limit (ulimit -n)", what);
}

/* A new one gets the lowest number that is free. */
bool pl_descriptors_are_few(void)
{
    struct rlimit limit;
    int lowest = eventfd(0, EFD_CLOEXEC);
    if (lowest >= 0)
        close(lowest);
    return lowest < 0
           || (getrlimit(RLIMIT_NOFILE, &limit) == 0
               && (rlim_t)lowest > limit.rlim_cur / 2);
}
