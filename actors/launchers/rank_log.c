/* rank_log.c - the output of a rank's process, on its way to a file of the run directory
 *
 * Output waits until there is a run directory, and while the file is being
 * written; only so much of it. */
#include "actors/launchers/rank_log.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

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
