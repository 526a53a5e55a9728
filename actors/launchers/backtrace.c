/* backtrace.c - where all threads of a rank's process are, when it is asked to abort
 *
 * The first thread that gets the signal sends it to the others, one after the other, and
 * waits a moment for each: one that does not answer is left out.  Nothing here takes a
 * lock or memory but what the C library's backtrace does. */
#include "actors/launchers/backtrace.h"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FRAMES = 48, WAIT_US = 1000, WAITS = 50 };

/* As getdents64(2) gives them. */
typedef struct entry {
    uint64_t number;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
} entry_t;

static int leader;                                        /* atomic: 0 until the signal */
static int written;                                       /* atomic: backtraces */

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return;
}

static void trace_write(void)
{
    void *frame[FRAMES];
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    say("thread \"");
    say(name);
    say("\":\n");
    backtrace_symbols_fd(frame, backtrace(frame, FRAMES), STDERR_FILENO);
    __atomic_add_fetch(&written, 1, __ATOMIC_RELEASE);
}

static void wait_for(int count)
{
    const struct timespec moment = {0, WAIT_US * 1000};
    for (int k = 0; k < WAITS && __atomic_load_n(&written, __ATOMIC_ACQUIRE) < count; k++)
        nanosleep(&moment, NULL);
}

static void others_ask(int self)
{
    _Alignas(entry_t) char listed[4096];
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (long size; (size = syscall(SYS_getdents64, folder, listed, sizeof listed)) > 0;)
        for (long at = 0; at < size; at += ((entry_t *)(void *)(listed + at))->size) {
            int other = atoi(((entry_t *)(void *)(listed + at))->name);
            int before = __atomic_load_n(&written, __ATOMIC_ACQUIRE);
            if (other > 0 && other != self
                && syscall(SYS_tgkill, getpid(), other, SIGABRT) == 0)
                wait_for(before + 1);
        }
}

static void aborted(int number)
{
    int none = 0, self = (int)syscall(SYS_gettid);
    if (!__atomic_compare_exchange_n(&leader, &none, self, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST)) {
        trace_write();
        return;
    }
    others_ask(self);
    trace_write();
    signal(number, SIG_DFL);
    raise(number);
}

void pl_backtrace_on_abort(void)
{
    void *frame[1];
    const struct sigaction action = {.sa_handler = aborted};
    backtrace(frame, 1);                    /* the first one loads what all others need */
    sigaction(SIGABRT, &action, NULL);
}
