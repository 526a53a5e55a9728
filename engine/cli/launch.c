/* launch.c - paceline launch: the ranks of this node, as children
 *
 * What they are told and how they end is pl_launch_start()'s; here is how that looks. */
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"

enum {
    SAID = 512,                                  /* bytes of a line that is known again */
    LINES = 8,                                   /* of them, the newest */
};

/* An error, which other ranks are going to have as well. */
typedef struct error_line {
    int rank;                                               /* the first that had it */
    char text[SAID];                                        /* ["": none] */
} error_line_t;

typedef struct launch {
    struct event_base *base;
    struct event *signals[CLI_SIGNALS];
    pl_launch_t *node;
    int status;
    error_line_t said[LINES];                               /* in this attempt */
    int count;
    char shown[LINES][SAID];                                /* the newest, of any rank */
    unsigned shown_count;
} launch_t;

/* What all ranks find, or hear of one, is told once. */
static bool was_said(launch_t *launch, int rank, const char *line)
{
    if (!cli_is_error(line) || strlen(line) >= SAID)
        return false;
    for (int k = 0; k < LINES; k++)
        if (!strcmp(launch->said[k].text, line))
            return launch->said[k].rank != rank;
    error_line_t *one = &launch->said[launch->count++ % LINES];
    one->rank = rank;
    strcpy(one->text, line);
    return false;
}

/* A rank that stands behind its number need not say it. */
static void said(void *user, int rank, const char *line)
{
    launch_t *launch = user;
    char own[24];
    if (rank < 0) {
        memset(launch->said, 0, sizeof launch->said);
        cli_error("%s", line);
        return;
    }
    const size_t length = (size_t)snprintf(own, sizeof own, "rank %d ", rank);
    if (was_said(launch, rank, line))
        return;
    snprintf(launch->shown[launch->shown_count++ % LINES], SAID, "%s", line);
    if (!strncmp(line, own, length))
        line += length;
    cli_note("%d: %s", rank, line);
}

/* How much of it is to be told: not the last words of a rank that stand above. */
static int untold(const launch_t *launch, const char *text)
{
    static const char before[] = "; its last words: ";
    const char *words = strstr(text, before);
    for (int k = 0; words && k < LINES; k++)
        if (!strcmp(launch->shown[k], words + strlen(before)))
            return (int)(words - text);
    return (int)strlen(text);
}

static void ended(void *user, int status, const pl_error_t *error)
{
    launch_t *launch = user;
    launch->status = status;
    if (error && error->code != PL_OK)
        cli_error("%.*s", untold(launch, error->text), error->text);
    event_base_loopbreak(launch->base);
}

static void signalled(evutil_socket_t number, short what, void *user)
{
    (void)what;
    pl_launch_signal(((launch_t *)user)->node, (int)number);
}

static bool catch_signals(launch_t *launch)
{
    static const int numbers[CLI_SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
    for (int k = 0; k < CLI_SIGNALS; k++) {
        if (cli_is_ignored(numbers[k]))
            continue;
        launch->signals[k] = evsignal_new(launch->base, numbers[k], signalled, launch);
        if (!launch->signals[k] || event_add(launch->signals[k], NULL) != 0)
            return false;
    }
    return true;
}

enum { MAX = 1 << 16 };

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

/* The file with the key of the job  [NULL: none is named]. */
static const char *key_named(const cli_launch_t *a)
{
    const char *file = a->job_key ? a->job_key : getenv("PACELINE_JOB_KEY_FILE");
    return file && *file ? file : NULL;
}

/* Signals wait until the ranks are there. */
static int launch_begin(launch_t *launch, const cli_launch_t *a, pl_error_t *err)
{
    pl_launch_spec_t spec = {.node_rank = (int)a->node_rank,
                             .devices = (int)a->devices,
                             .endpoint = a->rdzv_endpoint,
                             .job_key = key_named(a),
                             .max_restarts = (int)a->max_restarts,
                             .join_timeout = a->join_timeout,
                             .last_call_timeout = a->last_call_timeout,
                             .argv = a->program.text,
                             .on_line = said,
                             .on_end = ended,
                             .user = launch};
    if (nodes_read(a->nnodes, &spec, err) != PL_OK)
        return PL_EINVAL;
    if (a->port_range && setenv("PACELINE_PORT_RANGE", a->port_range, 1) != 0)
        return pl_fail(err, PL_ENOMEM, "out of memory");    /* the ranks inherit it */
    launch->base = event_base_new();
    if (!launch->base || !catch_signals(launch))
        return pl_fail(err, PL_ENOMEM, "no event loop: out of memory or descriptors");
    launch->node = pl_launch_start(launch->base, &spec, err);
    if (launch->node && spec.node_rank)
        cli_error("node %d connects to node 0 at %s", spec.node_rank, spec.endpoint);
    return launch->node ? PL_OK : err->code;
}

static void launch_end(launch_t *launch)
{
    pl_launch_free(launch->node);
    for (int k = 0; k < CLI_SIGNALS; k++)
        if (launch->signals[k])
            event_free(launch->signals[k]);
    if (launch->base)
        event_base_free(launch->base);
}

static int fits(int64_t number)
{
    return number <= MAX;
}

int cli_launch(const cli_launch_t *a)
{
    pl_error_t err = {0};
    launch_t launch = {.status = CLI_WRONG};
    int code =
        fits(a->max_restarts) && fits(a->node_rank) && fits(a->devices)
            ? launch_begin(&launch, a, &err)
            : pl_fail(&err, PL_EINVAL,
                      "--node-rank, --devices and --max-restarts are at most 65536");
    if (code == PL_OK)
        event_base_dispatch(launch.base);
    else
        cli_failure(&err, false);
    launch_end(&launch);
    return launch.status;
}
