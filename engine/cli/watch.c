/* watch.c - clock and signals of commands that observe a run */
#include "cli/watch.h"

#include <signal.h>
#include <time.h>

#include "cli/output.h"

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
    signalled = number;
}

double cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cli_watch_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int cli_signalled(void)
{
    return signalled;
}

int cli_signal_status(void)
{
    return signalled == SIGINT ? CLI_INTERRUPTED : CLI_DONE;
}
