/* descriptors.c - whether there are descriptors left for what does not survive without
 *
 * libevent ends the process when it gets none for its signals, ZeroMQ when it gets none
 * for a thread.  A library must do neither, so before such calls as many are opened as
 * they may need, and closed again. */
#include "base/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* OF_THREAD: an event loop has four and the two of its signals; more are asked for when
 * it is made, of which some are given back. */
enum { SPARE = 8, EXTRA_MAX = 64, OF_THREAD = 6, ASKED = 2 * SPARE };

/* count: how many are open, known when false.  To look at each connection of a service
 * takes some ms, which the program's loop does not have.  Linux before 6.2 does not say
 * how many there are; then it is enough that its table is no larger. */
static bool has_at_most_open(int64_t capacity, int64_t *count)
{
    struct stat status;
    if (stat("/proc/self/fd", &status) == 0 && status.st_size > 0) {
        *count = status.st_size;
    } else {
        /* The size of the kernel's table of open descriptors; 0: unknown. */
        char text[4096];
        const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
        const ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (fd >= 0)
            close(fd);
        text[length > 0 ? length : 0] = '\0';
        const char *size = strstr(text, "FDSize:");
        const int64_t table = size ? atoll(size + strlen("FDSize:")) : 0;
        if (table && table <= capacity)
            return true;
        DIR *folder = opendir("/proc/self/fd");
        *count = -1;                                       /* unknown; the folder's own */
        for (const struct dirent *entry; folder && (entry = readdir(folder));)
            *count += entry->d_name[0] != '.';
        if (folder)
            closedir(folder);
    }
    return *count <= capacity;
}

int pl_descriptors_for(int64_t threads, int64_t files, pl_error_t *err)
{
    int64_t count = 0;
    const int64_t need = OF_THREAD * threads + files + ASKED, max = pl_descriptors_max();
    if (has_at_most_open(max - need, &count) || count < 0)
        return PL_OK;
    return pl_fail(
        err, PL_EBUSY,
        "this run needs %lld descriptors; %lld are open, and the limit is %lld: "
        "raise it to %lld or more (ulimit -n)",
        (long long)need, (long long)count, (long long)max, (long long)(count + need));
}

int pl_descriptors_check(int count, const char *what, pl_error_t *err)
{
    int fd[EXTRA_MAX], opened = 0;
    count = count + SPARE < EXTRA_MAX ? count + SPARE : EXTRA_MAX;
    while (opened < count && (fd[opened] = eventfd(0, EFD_CLOEXEC)) >= 0)
        opened++;
    for (int k = 0; k < opened; k++)
        close(fd[k]);
    return opened == count
               ? PL_OK
               : pl_fail(err, PL_EBUSY,
                         "no descriptors left for %s: raise the limit (ulimit -n)", what);
}

int pl_descriptors_max(void)
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
    return lowest < 0 || lowest > pl_descriptors_max() / 2;
}
