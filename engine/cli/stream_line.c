/* stream_line.c - one message of the stream as a line for people
 *
 * Names stand in columns wide enough for the usual ones, so that a pair of call and
 * reply is seen at a glance; a longer name pushes its line to the right rather than
 * being cut. */
#include "cli/stream_line.h"

#include <stdio.h>
#include <string.h>

#include "cli/output.h"

enum {
    TEXT_MAX = 120,                    /* characters of a field; a run file is one, too */
    NARROW = 60,                       /* columns */
    WIDE = 100,
};

typedef struct line {
    char *text;
    size_t at, capacity;
} line_t;

static void add(line_t *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(line_t *line, const char *format, ...)
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

static const char *text_of(const json_t *message, const char *key)
{
    const char *text = json_string_value(json_object_get(message, key));
    return text ? text : "?";
}

/* A call goes to the right, its answers come back. */
static const char *arrow(const char *kind)
{
    static const char *const arrows[][3] = {{"call", "→", ">"},
                                            {"progress", "⋯", "~"},
                                            {"reply", "←", "<"},
                                            {"error", "✗", "!"},
                                            {"cancel", "⊘", "x"}};
    for (size_t k = 0; k < sizeof arrows / sizeof *arrows; k++)
        if (!strcmp(arrows[k][0], kind))
            return arrows[k][cli_has_utf8() ? 1 : 2];
    return "?";
}

static const char *cut_mark(void)
{
    return cli_has_utf8() ? "…" : "...";
}

static void add_text(line_t *line, const char *name, const char *text)
{
    const size_t length = cli_bytes_of(text, TEXT_MAX);
    const char *quote = strpbrk(text, " =") ? "\"" : "";
    add(line, " %s=%s%.*s%s%s", name, quote, (int)length, text,
        text[length] ? cut_mark() : "", quote);
}

/* What a field has that was not set, or has nothing to say. */
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

static void add_field(line_t *line, const char *name, const json_t *value)
{
    const char *text = json_string_value(value);
    if (is_default(value))
        return;
    if (text)
        add_text(line, name, text);
    else if (json_is_integer(value))
        add(line, " %s=%lld", name, (long long)json_integer_value(value));
    else if (json_is_real(value))
        add(line, " %s=%.4g", name, json_real_value(value));
    else if (json_is_object(value))
        add(line, " %s={%zu}", name, json_object_size(value));
    else
        add(line, " %s=yes", name);
}

/* The caller on the left, whoever speaks; where there is no room for both, the other. */
static void add_ends(line_t *line, const json_t *message, int columns)
{
    const json_int_t number = json_integer_value(json_object_get(message, "rank"));
    char rank[24] = "";
    if (number > 0)
        snprintf(rank, sizeof rank, "%lld/", (long long)number);
    const int width = columns && columns < WIDE ? 16 : 20;
    const char *kind = text_of(message, "kind");
    bool down = !strcmp(kind, "call") || !strcmp(kind, "cancel");
    add(line, "%s", rank);
    if (!columns || columns >= NARROW)
        add(line, "%-*s ", width - (int)strlen(rank),
            text_of(message, down ? "from" : "to"));
    add(line, "%s %-*s ", arrow(kind), columns && columns < NARROW ? 0 : width,
        text_of(message, down ? "to" : "from"));
}

/* What has become of a rank. */
static void add_event(line_t *line, const json_t *fields)
{
    add(line, " rank %lld %s (%s; process %lld on %s, step %lld, last heard %.1f s ago)",
        (long long)json_integer_value(json_object_get(fields, "rank")),
        text_of(fields, "event"), text_of(fields, "cause"),
        (long long)json_integer_value(json_object_get(fields, "process")),
        text_of(fields, "host"),
        (long long)json_integer_value(json_object_get(fields, "global_step")),
        json_number_value(json_object_get(fields, "seconds")));
}

static bool is_event(const json_t *message)
{
    return !strcmp(text_of(message, "name"), "watch")
           && !strcmp(text_of(message, "kind"), "progress");
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

/* To so many columns, the mark among them. */
static void cut(line_t *line, int columns)
{
    const int mark = cli_has_utf8() ? 1 : 3;
    if (!line->text[cli_bytes_of(line->text, columns)])
        return;
    line->at = cli_bytes_of(line->text, columns > mark ? columns - mark : 0);
    add(line, "%s", cut_mark());
}

void cli_stream_line(const json_t *message, int columns, char *text, size_t capacity)
{
    line_t line = {text, 0, capacity};
    const char *name;
    json_t *value;
    add(&line, "%9.4f ", json_number_value(json_object_get(message, "time")));
    add_ends(&line, message, columns);
    add(&line, "%s", text_of(message, "name"));
    if (is_event(message))
        add_event(&line, json_object_get(message, "fields"));
    else
        json_object_foreach(json_object_get(message, "fields"), name, value)
            add_field(&line, name, value);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    if (columns > 0)
        cut(&line, columns);
}
