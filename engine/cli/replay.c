/* replay.c - paceline replay: shows the messages of a journal at their times */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/stream_line.h"
#include "cli/watch.h"

enum { FLUSH_MS = 20, WAIT_MS = 50 };

typedef struct replay {
    const cli_replay_t *arguments;
    pl_journal_t *journal;
    pl_engine_t *engine;                  /* publishes the messages  [they are printed] */
    double speed;                         /* 0: without pauses */
    double began;                         /* s: when the first message was due */
    bool has_begun;
} replay_t;

static void nap(double seconds)
{
    const time_t whole = (time_t)seconds;
    const struct timespec t = {whole, (long)((seconds - (double)whole) * 1e9)};
    nanosleep(&t, NULL);                                    /* a signal ends it */
}

static int replay_open(replay_t *r, pl_error_t *err)
{
    const char *monitor = r->arguments->monitor, *speed = r->arguments->speed;
    const bool is_max = speed && !strcmp(speed, "max");
    char *end = NULL;
    r->speed = !speed ? 1 : is_max ? 0 : strtod(speed, &end);
    if (end && (end == speed || *end || !(r->speed >= 1e-6 && r->speed <= 1e9)))
        return pl_fail(err, PL_EINVAL,
                       "--speed takes a number of at least 1e-6, or max, not %s", speed);
    r->journal = pl_journal_open(r->arguments->journal, err);
    if (!r->journal)
        return PL_EINVAL;
    if (!monitor)
        return PL_OK;
    r->engine = pl_engine_new(NULL, err);
    if (!r->engine || pl_engine_monitor(r->engine, monitor, err) != PL_OK)
        return PL_EINVAL;
    cli_note("monitor: %s monitor %s", cli_program(),
             pl_engine_monitor_endpoint(r->engine));
    return PL_OK;
}

static void show_line(const char *line)
{
    static char text[1 << 16];
    json_t *message = json_loads(line, 0, NULL);
    const long long damaged = cli_get_count(message, "damaged");
    if (json_object_get(message, "damaged")) {
        cli_print("%9s %lld byte%s damaged at byte %lld\n", "", damaged,
                  cli_plural((uint64_t)damaged), cli_get_count(message, "at"));
    } else if (json_object_get(message, "gap")) {
        const bool has_rank = json_object_get(message, "rank");
        cli_stream_gap(has_rank ? cli_get_count(message, "rank") : -1,
                       cli_get_count(message, "gap"));
    } else {
        cli_stream_line(message, cli_columns(stdout), text, sizeof text);
        cli_print("%s\n", text);
    }
    json_decref(message);
}

/* Shows each message at its time. */
static int show(replay_t *r, pl_error_t *err)
{
    const char *line;
    int code = PL_OK;
    while (code == PL_OK && !cli_signalled() && !cli_output_gone()
           && (line = pl_journal_next(r->journal, err))) {
        const double at = pl_journal_seconds(r->journal);
        if (!r->has_begun)
            r->began = cli_now() - (r->speed > 0 ? at / r->speed : 0);
        const double left = r->speed > 0 ? r->began + at / r->speed - cli_now() : 0;
        if (left > FLUSH_MS * 1e-3)
            cli_flush();
        if (left > 0)
            nap(left);
        if (r->engine) {
            /* The first message waits for a viewer. */
            while ((code = pl_journal_show(r->journal, r->engine, err)) == PL_EBUSY
                   && !r->has_begun && !cli_signalled())
                nap(WAIT_MS * 1e-3);
            code = code == PL_EBUSY ? PL_OK : code;
        } else if (r->arguments->json)
            cli_print("%s\n", line);
        else
            show_line(line);
        r->has_begun = true;
    }
    cli_flush();
    return code != PL_OK || cli_signalled() || cli_output_gone() ? code : err->code;
}

int cli_replay(const cli_replay_t *arguments)
{
    replay_t r = {.arguments = arguments};
    pl_error_t err = {0};
    int status = CLI_DONE;
    cli_watch_signals();
    if (replay_open(&r, &err) != PL_OK) {
        cli_failure(&err, arguments->json);
        status = CLI_WRONG;
    } else if (show(&r, &err) != PL_OK) {
        cli_failure(&err, arguments->json);
        status = CLI_FAILED;
    }
    if (status == CLI_DONE)
        status = cli_signal_status();
    pl_journal_close(r.journal);
    pl_engine_free(r.engine);
    return status;
}
