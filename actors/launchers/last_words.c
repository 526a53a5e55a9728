/* last_words.c - what a process said before it died, behind the error that tells of it */
#include "actors/launchers/last_words.h"

#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 256 };                                   /* of its tail */

static const char *last_line(const char *text, size_t length)
{
    const char *break_before = memrchr(text, '\n', length);
    return break_before ? break_before + 1 : text;
}

/* Whole lines, the last ones that there is room for: what was said last counts. */
void pl_last_words(pl_process_t *process, bool is_shown, pl_error_t *error)
{
    static const char between[] = " | ";
    const char *tail = pl_process_tail(process), *from = tail;
    size_t length = strlen(tail), at = strlen(error->text);
    while (length && tail[length - 1] == '\n')
        length--;
    if (length > WORDS_MAX) {
        from = tail + length - WORDS_MAX;
        const char *line = memchr(from, '\n', WORDS_MAX);
        from = from[-1] == '\n' || !line ? from : line + 1;
    }
    if (is_shown)
        from = last_line(from, length - (size_t)(from - tail));
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
