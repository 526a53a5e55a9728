/* launch.c - the command paceline launch: reads its options, prints the lines of ranks,
 * passes signals on
 *
 * actors/launchers/launch.c and launch_host.c start, watch and end the ranks. */
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"

enum {
    LINE = 512,                        /* bytes of a line that is recognised when it comes
                                          again */
    LINES = 8,                         /* lines that are kept, the newest */
    MAX = 1 << 16,                     /* ranks, nodes, restarts */
};

/* An error line, which other ranks may print as well. */
typedef struct error_line {
    int rank;                                              /* the first that printed it */
    char text[LINE];                                       /* ["": none] */
} error_line_t;

typedef struct launch {
    struct event_base *base;
    struct event *signals[CLI_SIGNALS];
    pl_launch_t *node;
    int status;
    double signalled;                                       /* when  [0: not] */
    error_line_t errors[LINES];                             /* of this attempt */
    int count;
    char shown[LINES][LINE];                                /* of any rank */
    unsigned shown_count;
} launch_t;

/* Whether another rank has printed the same error: it is shown once. */
static bool is_repeated(launch_t *launch, int rank, const char *line)
{
    if (!cli_is_error(line) || strlen(line) >= LINE)
        return false;
    for (int k = 0; k < LINES; k++)
        if (!strcmp(launch->errors[k].text, line))
            return launch->errors[k].rank != rank;
    error_line_t *one = &launch->errors[launch->count++ % LINES];
    one->rank = rank;
    strcpy(one->text, line);
    return false;
}

/* Shows a line of a rank behind "rank N: ", which the line may have already; a line of
 * rank -1 is the launcher's and begins an attempt. */
static void on_line(void *user, int rank, const char *line)
{
    launch_t *launch = user;
    char own[24];
    if (rank < 0) {
        memset(launch->errors, 0, sizeof launch->errors);
        cli_error("%s", line);
        return;
    }
    const size_t length = (size_t)snprintf(own, sizeof own, "rank %d: ", rank);
    if (is_repeated(launch, rank, line))
        return;
    snprintf(launch->shown[launch->shown_count++ % LINES], LINE, "%s", line);
    if (!strncmp(line, own, length))
        line += length;
    cli_note("%s%s", own, line);
}

static void on_end(void *user, int status, const pl_error_t *error)
{
    static const char before[] = "; its last words: ";
    launch_t *launch = user;
    launch->status = status;
    if (error && error->code != PL_OK) {
        const char *words = strstr(error->text, before);
        int length = (int)strlen(error->text);
        /* Last words of a rank that are shown already are left out. */
        for (int k = 0; words && k < LINES; k++)
            if (!strcmp(launch->shown[k], words + strlen(before)))
                length = (int)(words - error->text);
        cli_error("%.*s", length, error->text);
    }
    event_base_loopbreak(launch->base);
}

static void on_signal(int number, short what, void *user)
{
    (void)what;
    launch_t *launch = user;
    const bool is_second = launch->signalled > 0;
    if (!cli_signal_is_new(&launch->signalled))
        return;
    if (is_second)
        cli_note("aborted: the ranks are killed");
    pl_launch_signal(launch->node, number);
}

/* "2", "1:3" */
static int nodes_read(const char *text, pl_launch_spec_t *spec, pl_error_t *err)
{
    int min, max, end = -1;
    if (!text)
        text = "1";
    if (sscanf(text, "%6d:%6d%n", &min, &max, &end) == 2 && text[end] == '\0' && min >= 1
        && min <= max && max <= MAX) {
        spec->nodes_min = min;
        spec->nodes = max;
        return PL_OK;
    }
    if (sscanf(text, "%6d%n", &max, &end) == 1 && text[end] == '\0' && max >= 1
        && max <= MAX) {
        spec->nodes = max;
        return PL_OK;
    }
    return pl_fail(err, PL_EINVAL,
                   "--nnodes takes a number or MIN:MAX, from 1 to %d, not %s", MAX, text);
}

/* Signals that come before the ranks exist wait in the event loop. */
static int launch_begin(launch_t *launch, const cli_launch_t *a, pl_error_t *err)
{
    const char *key = a->job_key ? a->job_key : getenv("PACELINE_JOB_KEY_FILE");
    pl_launch_spec_t spec = {.node_rank = (int)a->node_rank,
                             .devices = (int)a->devices,
                             .endpoint = a->rdzv_endpoint,
                             .job_key = key && *key ? key : NULL,
                             .max_restarts = (int)a->max_restarts,
                             .join_timeout = a->join_timeout,
                             .last_call_timeout = a->last_call_timeout,
                             .argv = a->program.text,
                             .on_line = on_line,
                             .on_end = on_end,
                             .user = launch};
    if (a->max_restarts > MAX || a->node_rank > MAX || a->devices > MAX)
        return pl_fail(err, PL_EINVAL,
                       "--node-rank, --devices and --max-restarts are at most 65536");
    if (nodes_read(a->nnodes, &spec, err) != PL_OK)
        return PL_EINVAL;
    if (a->port_range && setenv("PACELINE_PORT_RANGE", a->port_range, 1) != 0)
        return pl_fail(err, PL_ENOMEM, "out of memory");    /* the ranks inherit it */
    launch->base = event_base_new();
    if (!launch->base
        || !cli_signals_catch(launch->base, launch->signals, on_signal, launch))
        return pl_fail(err, PL_ENOMEM, "no event loop: out of memory or descriptors");
    launch->node = pl_launch_start(launch->base, &spec, err);
    if (launch->node && spec.node_rank)
        cli_error("node %d connects to node 0 at %s", spec.node_rank, spec.endpoint);
    return launch->node ? PL_OK : err->code;
}

int cli_launch(const cli_launch_t *a)
{
    pl_error_t err = {0};
    launch_t launch = {.status = CLI_WRONG};
    if (launch_begin(&launch, a, &err) == PL_OK)
        event_base_dispatch(launch.base);
    else
        cli_failure(&err, false);
    pl_launch_free(launch.node);
    cli_signals_free(launch.signals);
    if (launch.base)
        event_base_free(launch.base);
    return launch.status;
}
