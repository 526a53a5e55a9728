/* supervisor.c - a child process: its start, its output, its end, and restarts
 *
 * The signals escalate: a process that hangs first gets SIGABRT, so that it writes the
 * backtraces of its threads, and then SIGKILL.  The cause of a death may not occur
 * again, so the run is started again; but only so many times within a window, each
 * after a longer wait. */
#include "actors/launchers/supervisor.h"

#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"
#include "base/timeouts.h"
#include "formats/append.h"

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

/* ---- The output of a rank's process ----
 *
 * Output waits until there is a run directory, and while the file is being written; only
 * a limited amount.  Files may be slow: an actor on a thread of its own writes them. */

typedef struct log_writer {
    char nothing;
} log_writer_t;

static int log_writer_start(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

static int log_writer_append_log(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    (void)self;
    const pl_bytes_t text = body->append_log.text;
    int failed = pl_append_once(body->append_log.path, 0666, text.data, text.size);
    if (failed)
        return pl_fail(err, PL_EIO, "%s: %s", body->append_log.path, strerror(failed));
    return pl_reply_append_log(call, &(pl_append_log_reply_t){0});
}

static const pl_handler_t log_writer_handlers[] = {
    PL_ON(start, log_writer_start),
    PL_ON(append_log, log_writer_append_log),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_log_writer = {
    .name = "log_writer",
    .help = "writes the output of rank processes to files",
    .size = sizeof(log_writer_t),
    .level = PL_LEVEL_IO,
    .handlers = log_writer_handlers,
};

enum { LOG_MAX = 64 << 10 };

static void log_flush(pl_rank_log_t *log);

static void log_written(void *self, const pl_answer_t *answer)
{
    pl_rank_log_t *log = answer->context;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_log_line(PL_LOG_WARNING, log->rank, pl_actor_name(self), "%s",
                    answer->error->text);
    log->is_writing = false;
    log_flush(log);
}

static void log_flush(pl_rank_log_t *log)
{
    const char *run_dir = pl_rank_links_run_dir(log->links);
    if (log->is_writing || !log->size || !*run_dir)
        return;
    char *path = pl_text("%s/rank-%d.stderr", run_dir, log->rank);
    const pl_append_log_t msg = {.path = path, .text = {log->text, log->size}};
    const pl_how_t how = {.on_answer = log_written, .context = log};
    log->is_writing =
        path && pl_call_append_log(log->self, log->links->log_writer, &msg, how, NULL);
    pl_text_free(path);
    if (log->is_writing)
        log->size = 0;
}

void pl_rank_log_append(pl_rank_log_t *log, const char *line)
{
    const size_t length = strlen(line) + 1;
    char *longer = log->size + length <= LOG_MAX
                       ? pl_resize(log->text, log->size + length)
                       : NULL;
    if (longer) {
        log->text = longer;
        memcpy(log->text + log->size, line, length - 1);
        log->text[log->size + length - 1] = '\n';
        log->size += length;
    }
    log_flush(log);
}

/* The rest is written after what is being written. */
void pl_rank_log_close(pl_rank_log_t *log)
{
    log->is_writing = false;
    log_flush(log);
}

/* ---- How often a process may be started again ---- */

enum { FIRST_WAIT_MS = 100, LATER_WAITS = 4, WAIT_MAX_MS = 30000, WINDOW_MINUTES = 10 };

static void old_forget(pl_restart_policy_t *r)
{
    int old = 0;
    while (old < r->count
           && pl_now() - r->one[old].when > WINDOW_MINUTES * 60 * PL_SECOND)
        old++;
    r->count -= old;
    memmove(r->one, r->one + old, (size_t)r->count * sizeof *r->one);
}

int pl_restart_policy_add(pl_restart_policy_t *r, uint64_t global_step, int rank)
{
    int wait = FIRST_WAIT_MS;
    old_forget(r);
    if (r->count >= r->max || r->count >= PL_TRIES_MAX)
        return -1;
    for (int k = 0; k < r->count && wait < WAIT_MAX_MS; k++)
        wait *= LATER_WAITS;
    r->one[r->count++] = (pl_restart_t){pl_now(), global_step, rank};
    return wait < WAIT_MAX_MS ? wait : WAIT_MAX_MS;
}

void pl_restart_policy_report(const pl_restart_policy_t *r, const uint64_t *global_step,
                              pl_error_t *error)
{
    char steps[160] = "";
    size_t length = 0;
    for (int k = 0; global_step && k < r->count && length < sizeof steps - 48; k++)
        length += (size_t)snprintf(steps + length, sizeof steps - length, "%" PRIu64 ", ",
                                   r->one[k].global_step);
    if (global_step)
        snprintf(steps + length, sizeof steps - length, "%" PRIu64, *global_step);
    if (r->count)
        pl_error_prefix(error, "started again %d time%s within %d minutes%s%s", r->count,
                        r->count == 1 ? "" : "s", WINDOW_MINUTES,
                        global_step ? ", and failed after steps " : "", steps);
}

/* ---- A run that starts again ---- */

enum { LOOK_MS = 200 };                      /* between looks at whether the run trains */

/* Pauses the run, if it trains, for the ranks that were left out.  A rank may die
 * before the run has paused: so the looks continue until all ranks are back. */
static void restarts_look(void *launcher)
{
    pl_ranks_t *ranks = launcher;
    if (!ranks->run || ranks->broadcasts || ranks->stop_requested
        || ranks->count == ranks->max)
        return;
    if (ranks->global_step && !ranks->halts_to_restart && !ranks->answered
        && !ranks->ended && ranks->error.code == PL_OK)
        pl_ranks_pause(ranks);
    pl_after(ranks, LOOK_MS, restarts_look, NULL);
}

/* A rank that dies again as soon as it was started again is likely to do so for a while.
 * It returns if the run can pause: searches are short, and without checkpoints a pause
 * would lose steps. */
static bool rank_leave_out(pl_ranks_t *ranks)
{
    pl_restarts_t *r = ranks->restarts;
    const pl_job_t *job = ranks->job;
    old_forget(&r->policy);
    if (ranks->count <= ranks->min || ranks->failed < 0 || !r->policy.count
        || r->policy.one[r->policy.count - 1].rank != ranks->failed)
        return false;
    ranks->count--;
    r->policy.count = 0;
    r->left_out = ranks->failed;
    if (r->return_after > 0 && pl_job_is_training(job)
        && job->trainer->enable_checkpointing
        && pl_after(ranks, pl_milliseconds(r->return_after), restarts_look, NULL)
               == PL_OK)
        r->return_after *= 2;
    return true;
}

/* wait: ms  [below 0: no restart] */
static bool begin_after(pl_ranks_t *ranks, int wait)
{
    pl_restarts_t *r = ranks->restarts;
    void (*begin)(void *) = r->begin ? r->begin : pl_restarts_begin;
    r->waits = wait >= 0 && pl_after(ranks, wait, begin, NULL) == PL_OK;
    if (r->waits)
        ranks->global_step = 0;
    return r->waits;
}

/* A process died after all ranks were there, or was killed: that may not occur again.  An
 * error that the program reports would, and so would the end of a process that could not
 * even join.  The step is the one that the error names: others may have come
 * further.  With fewer ranks, restarts are counted from 0. */
bool pl_restarts_try(pl_ranks_t *ranks)
{
    pl_restarts_t *r = ranks->restarts;
    const int code = ranks->error.code;
    const uint64_t step = ranks->failed < 0 ? ranks->global_step
                                            : ranks->rank[ranks->failed].global_step;
    char with[48] = "";
    r->policy.max = r->max;
    if (pl_ranks_have_paused(ranks)) {
        r->policy.count = 0;          /* the rank left out counts as the last that died */
        const uint64_t paused = ranks->global_step;
        if (!begin_after(ranks, pl_restart_policy_add(&r->policy, paused, r->left_out)))
            return false;
        pl_log_line(PL_LOG_INFO, -1, pl_actor_name(ranks),
                    "rank %d is started again: the run is saved and continues with %d "
                    "ranks",
                    r->left_out, ranks->max);
        ranks->count = ranks->max;
        return true;
    }
    const bool may_pass = (code == PL_EDIED || code == PL_ESTUCK)
                          && (ranks->links->were_all_there || ranks->links->was_killed);
    const bool leaves = may_pass && rank_leave_out(ranks);
    const int wait = may_pass ? pl_restart_policy_add(&r->policy, step,
                                                      leaves ? -1 : ranks->failed)
                              : -1;
    if (wait < 0 && code != PL_OK)
        pl_restart_policy_report(&r->policy, &step, &ranks->error);
    if (!begin_after(ranks, wait))
        return false;
    const char *plural = ranks->count == 1 ? "" : "s";
    if (ranks->count < ranks->max)
        snprintf(with, sizeof with, " with %d rank%s", ranks->count, plural);
    pl_log_line(PL_LOG_WARNING, -1, pl_actor_name(ranks),
                "%s; all ranks are started again, from the newest checkpoint "
                "(%d of %d%s)",
                ranks->error.text, r->policy.count, (int)r->max, with);
    if (leaves)
        pl_log_line(PL_LOG_WARNING, -1, pl_actor_name(ranks),
                    "rank %d has died again: the run continues with %d rank%s",
                    r->left_out, ranks->count, plural);
    return true;
}

void pl_restarts_begin(void *launcher)
{
    pl_ranks_t *ranks = launcher;
    pl_restarts_t *r = ranks->restarts;
    pl_error_t err = {0};
    if (!r->waits)
        return;
    r->waits = false;
    if (ranks->stop_requested && pl_ranks_outcome(ranks)) {  /* it has paused */
        pl_ranks_answer(ranks);
        return;
    }
    pl_job_t *job = pl_job_again(ranks->job, pl_rank_links_run_dir(ranks->links),
                                 ranks->count, 1, &err);
    if (!job || pl_rank_links_renew(ranks->links, ranks->count, &err) != PL_OK
        || pl_ranks_begin(ranks, job, &err) != PL_OK) {
        pl_object_unref(ranks->outcome);                    /* of a pause: not the end */
        ranks->outcome = NULL;
        ranks->error = err;
        pl_ranks_answer(ranks);
    }
    pl_object_unref(job);
}
