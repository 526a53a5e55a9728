/* clock_shift.c - another clock than the kernel's, for all processes that preload this
 * (LD_PRELOAD)
 *
 * CLOCK_SHIFT names a file with a number, the seconds to add to the time of day: a
 * process that writes another number sets the clock.  CLOCK_RATE is the number of
 * seconds that the monotonic clock advances in one, from the first look on [1]: limits
 * of a process that looks at it again and again are reached sooner. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void)
{
    char text[32];
    const char *path = getenv("CLOCK_SHIFT");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    return strtol(text, NULL, 10);
}

static struct timespec began;
static long rate = 1;

static void begin(void)
{
    const char *text = getenv("CLOCK_RATE");
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &began);
    rate = text ? strtol(text, NULL, 10) : 1;
}

static void accelerate(struct timespec *now)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    enum { SECOND = 1000000000 };
    pthread_once(&once, begin);
    const long long passed = (long long)(now->tv_sec - began.tv_sec) * SECOND
                             + now->tv_nsec - began.tv_nsec,
                    all = began.tv_nsec + passed * rate;
    *now = (struct timespec){began.tv_sec + all / SECOND, all % SECOND};
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    int code = (int)syscall(SYS_clock_gettime, id, now);
    if (code == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    if (code == 0 && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE))
        accelerate(now);
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &t) != 0)
        return -1;
    *now = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *at)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (at)
        *at = t.tv_sec;
    return t.tv_sec;
}
