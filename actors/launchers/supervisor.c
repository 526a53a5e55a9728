/* supervisor.c - a child process: its start, its end, and its last words
 *
 * The signals escalate: a process that hangs first gets SIGABRT, so that it writes the
 * backtraces of its threads, and then SIGKILL. */
#include "actors/launchers/supervisor.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/timeouts.h"

enum { COMMAND_MAX = 64 << 10 };

struct pl_supervisor {
    pl_process_t *process;
    struct event *timer;                                    /* SIGKILL follows */
};

/* ---- The start ---- */

/* Arguments of this program, as they were before the program changed them. */
static char words[COMMAND_MAX + 1];
static size_t words_length;

void pl_supervisor_init(void)
{
    FILE *file = words_length ? NULL : fopen("/proc/self/cmdline", "rbe");
    if (!file)
        return;
    words_length = fread(words, 1, COMMAND_MAX, file);
    fclose(file);
}

static void kill_due(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_process_signal(((pl_supervisor_t *)user)->process, SIGKILL);
}

pl_supervisor_t *pl_supervisor_start(const pl_process_spec_t *spec,
                                     struct event_base *loop, pl_error_t *err)
{
    pl_process_spec_t own = *spec;
    size_t count = 0;
    for (size_t k = 0; k < words_length; k++)
        count += words[k] == '\0';
    const char *word = words, **argv = pl_alloc_array(count + 2, sizeof *argv);
    for (size_t k = 0; argv && k < count; k++, word += strlen(word) + 1)
        argv[k] = word;
    if (argv && !count)
        argv[0] = "paceline";
    pl_supervisor_t *s = pl_alloc(sizeof *s);
    if (s)
        s->timer = event_new(loop, -1, 0, kill_due, s);
    if (!spec->argv) {
        own.program = "/proc/self/exe";
        own.argv = argv;
    }
    if (!s || !s->timer || !own.argv)
        pl_no_memory(err);
    else
        s->process = pl_process_start(&own, loop, err);
    pl_free(argv);
    if (s && s->process)
        return s;
    pl_supervisor_free(s);
    return NULL;
}

void pl_supervisor_free(pl_supervisor_t *s)
{
    if (!s)
        return;
    pl_process_free(s->process);
    if (s->timer)
        event_free(s->timer);
    pl_free(s);
}

int pl_supervisor_process_id(const pl_supervisor_t *s)
{
    return pl_process_id(s->process);
}

/* ---- The end ---- */

void pl_supervisor_signal(pl_supervisor_t *s, int number)
{
    pl_process_signal(s->process, number);
}

void pl_supervisor_kill(pl_supervisor_t *s, int after_ms)
{
    const struct timeval wait = {after_ms / 1000, after_ms % 1000 * 1000};
    if (after_ms <= 0 || event_add(s->timer, &wait) != 0)
        pl_process_signal(s->process, SIGKILL);
}

void pl_supervisor_spare(pl_supervisor_t *s)
{
    event_del(s->timer);
}

void pl_supervisor_abort(pl_supervisor_t *s)
{
    pl_process_signal(s->process, SIGABRT);
    pl_process_signal(s->process, SIGCONT);
    pl_supervisor_kill(s, PL_BACKTRACE_MS);
}

/* ---- Its last words ---- */

enum { WORDS_MAX = 256 };                                   /* of its tail */

/* Whole lines: the last lines explain a death. */
void pl_supervisor_last_words(pl_supervisor_t *s, bool is_shown, pl_error_t *error)
{
    static const char between[] = " | ";
    const char *tail = pl_process_tail(s->process), *from = tail;
    size_t length = strlen(tail), at = strlen(error->text);
    while (length && tail[length - 1] == '\n')
        length--;
    if (length > WORDS_MAX) {
        from = tail + length - WORDS_MAX;
        const char *line = memchr(from, '\n', WORDS_MAX);
        from = from[-1] == '\n' || !line ? from : line + 1;
    }
    if (is_shown) {
        const char *end = memrchr(from, '\n', length - (size_t)(from - tail));
        from = end ? end + 1 : from;
    }
    if (!length)
        return;
    at += (size_t)snprintf(error->text + at, sizeof error->text - at,
                           "; its last words: ");
    while (from < tail + length && at < sizeof error->text) {
        const size_t rest = (size_t)(tail + length - from);
        const char *end = memchr(from, '\n', rest);
        const size_t line = end ? (size_t)(end - from) : rest;
        at += (size_t)snprintf(error->text + at, sizeof error->text - at, "%.*s%s",
                               (int)line, from, end ? between : "");
        from += line + 1;
    }
}
