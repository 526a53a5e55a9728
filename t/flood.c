/* flood.c - many connections to a port of this process, by another one */
#include "flood.h"

#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/process.h"
#include "tap.h"

enum { WANTED = 16, SECONDS = 3 };

static void flood_died(void *user, const pl_death_t *death)
{
    (void)user, (void)death;
    tap_diag("the flood has ended");
}

void flood_begin(flood_t *flood, const char *endpoint)
{
    const char *const argv[] = {"flood", "floods", strrchr(endpoint, ':') + 1, NULL};
    const pl_process_spec_t spec = {.program = "/proc/self/exe",
                                    .argv = argv,
                                    .on_death = flood_died};
    flood->base = event_base_new();
    getrlimit(RLIMIT_NOFILE, &flood->was);
    struct rlimit low = flood->was;
    low.rlim_cur = FLOOD / 3;
    setrlimit(RLIMIT_NOFILE, &low);
    flood->process = pl_process_start(&spec, flood->base, NULL);
    ok(flood->process, "a flood begins");
}

void flood_end(flood_t *flood)
{
    event_base_loop(flood->base, EVLOOP_NONBLOCK);
    pl_process_free(flood->process);
    event_base_free(flood->base);
    setrlimit(RLIMIT_NOFILE, &flood->was);
}

bool flood_is_drained(const char *endpoint)
{
    enum { LISTENS = 10 };
    const unsigned port = (unsigned)atoi(strrchr(endpoint, ':') + 1);
    unsigned local, state, sent, waiting;
    char line[256];
    bool is_drained = false;
    FILE *file = fopen("/proc/net/tcp", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, " %*u: %*x:%x %*x:%*x %x %x:%x", &local, &state, &sent, &waiting)
                == 4
            && local == port && state == LISTENS)
            is_drained = waiting == 0;
    if (file)
        fclose(file);
    return is_drained;
}

static bool some_are_left(void)
{
    int fd[WANTED], opened = 0;
    while (opened < WANTED && (fd[opened] = dup(0)) >= 0)
        opened++;
    for (int k = 0; k < opened; k++)
        close(fd[k]);
    return opened == WANTED;
}

/* A thread that gets no processor for long cannot shut a port in time. */
void flood_check(void (*turn)(void))
{
    int64_t had = pl_now(), look = had, longest = 0, late = 0;
    for (int64_t end = had + SECONDS * PL_SECOND; pl_now() < end;) {
        turn();
        const int64_t now = pl_now();
        late = now - look > late ? now - look : late;
        look = now;
        if (some_are_left())
            had = now;
        longest = now - had > longest ? now - had : longest;
    }
    if (longest >= PL_SECOND && late > 2 * PL_MILLISECOND)
        tap_skip("this thread had no turn for %.0f ms", (double)late / 1e6);
    else
        ok(longest < PL_SECOND, "there are some (never none for longer than %.0f ms)",
           (double)longest / 1e6);
}

void flood_if_asked(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[1], "floods"))
        return;
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)atoi(argv[2])),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int k = 0; k < FLOOD; k++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (fd < 0
            || (connect(fd, (const struct sockaddr *)&at, sizeof at) != 0
                && errno != EINPROGRESS))
            exit(1);
    }
    for (;;)
        pause();
}
