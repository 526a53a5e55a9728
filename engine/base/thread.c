/* thread.c - starts threads of the engine */
#include "base/thread.h"

#include <stdio.h>
#include <sys/mman.h>

#include "base/error.h"

int pl_thread_start(pthread_t *thread, const char *name, const sigset_t *open,
                    void *(*main)(void *argument), void *argument, pl_error_t *err)
{
    sigset_t blocked, before;
    char short_name[16];
    sigfillset(&blocked);
    for (int k = 1; open && k < NSIG; k++)
        if (sigismember(open, k) == 1)
            sigdelset(&blocked, k);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int failed = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        /* pthread_create() says EAGAIN both without memory for a stack and with too
         * many threads. */
        pthread_attr_t usual;
        size_t stack = 0;
        pthread_attr_init(&usual);
        pthread_attr_getstacksize(&usual, &stack);
        pthread_attr_destroy(&usual);
        void *hole = mmap(NULL, stack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (hole == MAP_FAILED)
            return pl_fail(
                err, PL_ENOMEM,
                "cannot start a thread for %s: no memory for its stack of "
                "%zu MiB: raise the limit of memory (ulimit -v) or lower the limit of "
                "stacks (ulimit -s)",
                name, stack >> 20);
        munmap(hole, stack);
        return pl_fail(
            err, PL_EBUSY,
            "cannot start a thread for %s: raise the limit of threads (ulimit -u)", name);
    }
    snprintf(short_name, sizeof short_name, "%s", name);
    pthread_setname_np(*thread, short_name);
    return PL_OK;
}
