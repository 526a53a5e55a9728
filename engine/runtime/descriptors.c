/* descriptors.c - whether there are descriptors left for what does not survive without
 *
 * libevent ends the process when it gets none for its signals, ZeroMQ when it gets none
 * for a thread.  A library must do neither, so before such calls as many are opened as
 * they may need, and closed again. */
#include "runtime/descriptors.h"

#include <dirent.h>
#include <limits.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"

/* OF_THREAD: an event loop has four and the two of its signals; more are asked for when
 * it is made, of which some are given back. */
enum { SPARE = 8, MOST = 64, OF_THREAD = 6, ASKED = 2 * SPARE };

/* -1: nobody says. */
static int64_t count_open(void)
{
    int64_t count = -1;                                     /* the folder's own */
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        return -1;
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

int pl_descriptors_for(int64_t threads, int64_t files, pl_error_t *err)
{
    struct rlimit limit;
    const int64_t open = count_open(), need = OF_THREAD * threads + files + ASKED;
    if (open < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0
        || (rlim_t)(open + need) <= limit.rlim_cur)
        return PL_OK;
    return pl_fail(
        err, PL_EBUSY,
        "this run needs %lld descriptors, %lld are open, and the limit is %lld: "
        "raise it to %lld or more (ulimit -n)",
        (long long)need, (long long)open, (long long)limit.rlim_cur,
        (long long)(open + need));
}

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

int pl_descriptors_most(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < INT_MAX
               ? (int)limit.rlim_cur
               : INT_MAX;
}

/* A new one gets the lowest number that is free. */
bool pl_descriptors_are_few(void)
{
    int lowest = eventfd(0, EFD_CLOEXEC);
    if (lowest >= 0)
        close(lowest);
    return lowest < 0 || lowest > pl_descriptors_most() / 2;
}
