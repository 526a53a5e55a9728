/* crowd.c - many viewers of a stream, in a process of their own
 *
 * One XSUB with many connections: each is a viewer by itself for the publisher, and
 * costs as little as possible here. */
#include "crowd.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

static void descriptors_raise(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void *crowd_connect(const char *endpoint, int viewers)
{
    void *context = zmq_ctx_new(), *all = zmq_socket(context, ZMQ_XSUB);
    for (int k = 0; k < viewers; k++)
        if (zmq_connect(all, endpoint) != 0)
            _exit(1);
    zmq_send(all, "\1", 1, 0);                              /* every topic */
    return all;
}

static void crowd_read(void *all, const char *mark, crowd_seen_t *seen)
{
    static char text[65536];
    for (int length; (length = zmq_recv(all, text, sizeof text - 1, 0)) >= 0;) {
        if (*text != '{')
            continue;                                       /* the topic before it */
        text[(size_t)length < sizeof text ? length : (int)sizeof text - 1] = '\0';
        __atomic_add_fetch(&seen->lines, 1, __ATOMIC_RELAXED);
        if (mark && strstr(text, mark))
            __atomic_add_fetch(&seen->marked, 1, __ATOMIC_RELAXED);
    }
}

void crowd_start(crowd_t *crowd, const char *endpoint, int viewers, const char *mark,
                 bool yields)
{
    const pid_t parent = getpid();
    crowd->seen = mmap(NULL, sizeof *crowd->seen, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    crowd->process = fork();
    if (crowd->process != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (yields)
        sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
    descriptors_raise();
    crowd_read(crowd_connect(endpoint, viewers), mark, crowd->seen);
    _exit(1);
}

long long crowd_lines(const crowd_t *crowd)
{
    return __atomic_load_n(&crowd->seen->lines, __ATOMIC_RELAXED);
}

long long crowd_marked(const crowd_t *crowd)
{
    return __atomic_load_n(&crowd->seen->marked, __ATOMIC_RELAXED);
}

void crowd_stop(crowd_t *crowd)
{
    kill(crowd->process, SIGKILL);
    waitpid(crowd->process, NULL, 0);
    munmap(crowd->seen, sizeof *crowd->seen);
}
