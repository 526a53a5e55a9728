/* stream_line.c - one message of the stream as a line for people
 *
 * Columns are wide enough for the usual names, so that the eye finds a pair of call and
 * reply. A longer name pushes its line to the right rather than being cut. */
#include "cli/stream_line.h"

#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/output.h"

enum {
    TEXT_MAX = 120,                   /* characters of a field, which may be a run file */
    NARROW = 60,                      /* columns */
    WIDE = 100,
};

typedef struct line_text {
    char *text;
    size_t at, capacity;
} line_text_t;

static void add(line_text_t *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(line_text_t *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line->text + line->at, line->capacity - line->at, format,
                           args);
    va_end(args);
    if (length > 0)
        line->at = line->at + (size_t)length < line->capacity ? line->at + (size_t)length
                                                              : line->capacity - 1;
}

static const char *cut_mark(void)
{
    return cli_has_utf8() ? "…" : "...";
}

/* Whether a field has its default, which is not shown. */
static bool is_default(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(value) == 0;
    case JSON_OBJECT: return json_object_size(value) == 0;
    case JSON_ARRAY: return json_array_size(value) == 0;
    default: return !json_is_true(value);
    }
}

static void add_field(line_text_t *line, const char *name, const json_t *value)
{
    const char *text = json_string_value(value);
    if (is_default(value))
        return;
    const size_t length = text ? cli_bytes_of(text, TEXT_MAX) : 0;
    const char *quote = text && strpbrk(text, " =") ? "\"" : "";
    if (text)
        add(line, " %s=%s%.*s%s%s", name, quote, (int)length, text,
            text[length] ? cut_mark() : "", quote);
    else if (json_is_integer(value))
        add(line, " %s=%lld", name, (long long)json_integer_value(value));
    else if (json_is_real(value))
        add(line, " %s=%.4g", name, json_real_value(value));
    else if (json_is_object(value))
        add(line, " %s={%zu}", name, json_object_size(value));
    else
        add(line, " %s=yes", name);
}

/* The caller on the left, the callee on the right; a narrow terminal shows only the
 * callee. */
static void add_ends(line_text_t *line, const json_t *message, int columns)
{
    /* A call points to the right, its answers to the left. */
    static const char *const arrows[][3] = {{"call", "→", ">"},
                                            {"progress", "⋯", "~"},
                                            {"reply", "←", "<"},
                                            {"error", "✗", "!"},
                                            {"cancel", "⊘", "x"}};
    const json_int_t number = json_integer_value(json_object_get(message, "rank"));
    const char *arrow = "?";
    char rank[24] = "";
    if (number > 0)
        snprintf(rank, sizeof rank, "%lld/", (long long)number);
    const int width = columns && columns < WIDE ? 16 : 20;
    const char *kind = cli_get_word(message, "kind");
    bool down = !strcmp(kind, "call") || !strcmp(kind, "cancel");
    for (size_t k = 0; k < sizeof arrows / sizeof *arrows; k++)
        if (!strcmp(arrows[k][0], kind))
            arrow = arrows[k][cli_has_utf8() ? 1 : 2];
    add(line, "%s", rank);
    if (!columns || columns >= NARROW)
        add(line, "%-*s ", width - (int)strlen(rank),
            cli_get_word(message, down ? "from" : "to"));
    add(line, "%s %-*s ", arrow, columns && columns < NARROW ? 0 : width,
        cli_get_word(message, down ? "to" : "from"));
}

void cli_stream_gap(long long rank, long long lost)
{
    if (!lost)
        cli_print("%9s messages of rank %lld may be lost: its process died\n", "", rank);
    else if (rank < 0)
        cli_print("%9s %lld message%s lost\n", "", lost, cli_plural((uint64_t)lost));
    else
        cli_print("%9s %lld message%s of rank %lld lost\n", "", lost,
                  cli_plural((uint64_t)lost), rank);
}

void cli_stream_line(const json_t *message, int columns, char *text, size_t capacity)
{
    line_text_t line = {text, 0, capacity};
    const char *name;
    json_t *value, *fields = json_object_get(message, "fields");
    const bool is_event = !strcmp(cli_get_word(message, "name"), "watch")
                          && !strcmp(cli_get_word(message, "kind"), "progress");
    const int mark = cli_has_utf8() ? 1 : 3;
    add(&line, "%9.4f ", cli_get_number(message, "time"));
    add_ends(&line, message, columns);
    add(&line, "%s", cli_get_word(message, "name"));
    if (is_event)                                          /* a launcher reports a rank */
        add(&line,
            " rank %lld %s (%s; process %lld on %s, step %lld, last heard %.1f s ago)",
            cli_get_count(fields, "rank"), cli_get_word(fields, "event"),
            cli_get_word(fields, "cause"), cli_get_count(fields, "process"),
            cli_get_word(fields, "host"), cli_get_count(fields, "global_step"),
            cli_get_number(fields, "seconds"));
    else
        json_object_foreach(fields, name, value)
            add_field(&line, name, value);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    if (columns <= 0 || !text[cli_bytes_of(text, columns)])
        return;
    line.at = cli_bytes_of(text, columns > mark ? columns - mark : 0);
    add(&line, "%s", cut_mark());
}
