/* rank_log.c - the output of a rank's process: its file in the run directory
 *
 * Output waits until there is a run directory, and while the file is being written; only
 * so much of it.  Files may be slow: an actor on a thread of its own writes them. */
#include "actors/launchers/rank_log.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "formats/append.h"

/* ---- The writer ---- */

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

/* ---- The log of one rank ---- */

enum { SAID_MAX = 64 << 10 };

static void written(void *self, const pl_answer_t *answer)
{
    pl_rank_log_t *s = answer->context;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_log_line(PL_LOG_WARNING, s->rank, pl_actor_name(self), "%s",
                    answer->error->text);
    s->is_writing = false;
    pl_rank_log_flush(s);
}

void pl_rank_log_flush(pl_rank_log_t *s)
{
    const char *run_dir = pl_rank_links_run_dir(s->links);
    if (s->is_writing || !s->size || !*run_dir)
        return;
    char *path = pl_text("%s/rank-%d.stderr", run_dir, s->rank);
    const pl_append_log_t msg = {.path = path, .text = {s->text, s->size}};
    const pl_how_t how = {.on_answer = written, .context = s};
    s->is_writing = path
                    && pl_call_append_log(s->self, pl_rank_links_log_writer(s->links),
                                          &msg, how, NULL);
    pl_text_free(path);
    if (s->is_writing)
        s->size = 0;
}

static void line_append(pl_rank_log_t *s, const char *line)
{
    const size_t length = strlen(line) + 1;
    char *longer = s->size + length <= SAID_MAX ? pl_resize(s->text, s->size + length)
                                                : NULL;
    if (!longer)
        return;
    s->text = longer;
    memcpy(s->text + s->size, line, length - 1);
    s->text[s->size + length - 1] = '\n';
    s->size += length;
}

void pl_rank_log_append(pl_rank_log_t *s, const char *line)
{
    line_append(s, line);
    pl_rank_log_flush(s);
}

void pl_rank_log_close(pl_rank_log_t *s)
{
    s->is_writing = false;                              /* behind what is being written */
    pl_rank_log_flush(s);
}

void pl_rank_log_release(pl_rank_log_t *s)
{
    pl_free(s->text);
}
