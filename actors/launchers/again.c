/* again.c - this program once more, as a child */
#include "actors/launchers/again.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum {
    COMMAND_MOST = 64 << 10,
    WORDS_MOST = 256,                                       /* of its tail, in an error */
};

/* One after the other, as they were before the program took them apart. */
static char words[COMMAND_MOST + 1];
static size_t words_length;

void pl_again_note(void)
{
    FILE *file = words_length ? NULL : fopen("/proc/self/cmdline", "rbe");
    if (!file)
        return;
    words_length = fread(words, 1, COMMAND_MOST, file);
    fclose(file);
}

static const char **words_list(void)
{
    size_t count = 0;
    const char *word = words;
    for (size_t k = 0; k < words_length; k++)
        count += words[k] == '\0';
    const char **list = pl_alloc_array(count + 2, sizeof *list);
    for (size_t k = 0; list && k < count; k++, word += strlen(word) + 1)
        list[k] = word;
    if (list && !count)
        list[0] = "paceline";
    return list;
}

pl_process_t *pl_again_start(const pl_process_spec_t *spec, struct event_base *loop,
                             pl_error_t *err)
{
    const char **argv = words_list();
    pl_process_spec_t again = *spec;
    again.program = "/proc/self/exe";
    again.argv = argv;
    pl_process_t *process = argv ? pl_process_start(&again, loop, err) : NULL;
    if (!argv)
        pl_no_memory(err);
    pl_free(argv);
    return process;
}

static const char *last_line(const char *text, size_t length)
{
    const char *break_before = memrchr(text, '\n', length);
    return break_before ? break_before + 1 : text;
}

/* Whole lines, the last ones that there is room for: what was said last counts. */
void pl_words_add(pl_process_t *process, bool is_shown, pl_error_t *error)
{
    static const char between[] = " | ";
    const char *tail = pl_process_tail(process), *from = tail;
    size_t length = strlen(tail), at = strlen(error->text);
    while (length && tail[length - 1] == '\n')
        length--;
    if (length > WORDS_MOST) {
        from = tail + length - WORDS_MOST;
        const char *line = memchr(from, '\n', WORDS_MOST);
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
