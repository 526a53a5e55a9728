/* top_tables.c - the tables of paceline top and monitor: ranks and actors */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/output.h"
#include "cli/top_view.h"

enum { CELL = CLI_CELL, CELLS = 10, ACTORS_MIN = 4, LANES_MAX = 128 };

/* ---- tables ---- */

typedef struct column {
    const char *title, *brief;                         /* brief: on a narrow terminal */
    int width, narrow;                                 /* with a space before it */
    int rank;                                          /* the highest is left out first */
} column_t;

typedef struct table {
    cli_view_t *view;
    const column_t *columns;                                /* up to a NULL title */
    int shown;                                              /* bit mask */
    bool is_narrow;
} table_t;

static int table_width(const table_t *t)
{
    int width = 0;
    for (int k = 0; t->columns[k].title; k++)
        if (t->shown >> k & 1)
            width += t->is_narrow ? t->columns[k].narrow : t->columns[k].width;
    return width;
}

/* The first column is left-aligned, the others are right-aligned. */
static void table_row(const table_t *t, cli_style_t style, const char cells[CELLS][CELL])
{
    char line[CLI_VIEW_WIDTH] = "";
    for (int k = 0; t->columns[k].title; k++) {
        const int width = t->is_narrow ? t->columns[k].narrow : t->columns[k].width;
        const size_t at = strlen(line);
        if (t->shown >> k & 1)
            snprintf(line + at, sizeof line - at, "%*.*s", k ? width : -width, width,
                     cells[k]);
    }
    cli_view_line(t->view, style, "%s", line);
}

/* Chooses the columns that fit, and writes their headings. */
static void table_begin(table_t *t)
{
    char cells[CELLS][CELL];
    t->shown = ~0;
    t->is_narrow = table_width(t) > t->view->columns;
    while (table_width(t) > t->view->columns) {
        int last = 0;
        for (int k = 0; t->columns[k].title; k++)
            if ((t->shown >> k & 1) && t->columns[k].rank >= t->columns[last].rank)
                last = k;
        if (!last)
            break;
        t->shown &= ~(1 << last);
    }
    for (int k = 0; t->columns[k].title; k++)
        snprintf(cells[k], CELL, "%s",
                 t->is_narrow ? t->columns[k].brief : t->columns[k].title);
    table_row(t, CLI_HEAD, cells);
}

/* The entry of a list whose text at `key` is equal  [none]. */
static const json_t *entry_of(const json_t *list, const char *key, const char *text)
{
    size_t k;
    const json_t *entry;
    json_array_foreach(list, k, entry)
        if (!strcmp(cli_get_text(entry, key), text))
            return entry;
    return NULL;
}

/* ---- ranks ---- */

static const column_t rank_columns[] = {
    {"rank", "rank", 5, 5, 0},        {"memory", "memory", 10, 9, 7},
    {"a step", "step", 9, 9, 6},      {"data", "data", 7, 5, 1},
    {"forward", "fwd", 9, 5, 1},      {"backward", "bwd", 10, 5, 1},
    {"collective", "coll", 12, 6, 1}, {"optimizer", "opt", 11, 5, 1},
    {"engine", "eng", 7, 5, 5},       {NULL, NULL, 0, 0, 0},
};
static const char *const stages[] = {"data",       "forward",   "backward",
                                     "collective", "optimizer", "engine"};
enum { STAGES = sizeof stages / sizeof *stages, STAGES_AT = 3, COLLECTIVE = 3 };

/* The same rank in another state, or NULL. */
static const json_t *rank_of(const json_t *state, const json_t *rank)
{
    size_t k;
    const json_t *entry;
    json_array_foreach(json_object_get(state, "ranks"), k, entry)
        if (cli_get_number(entry, "rank") == cli_get_number(rank, "rank"))
            return entry;
    return NULL;
}

static void rank_row(const table_t *t, const json_t *rank, const json_t *was,
                     double memory, double steps)
{
    char cells[CELLS][CELL] = {""};
    double spent[STAGES], all = 0;
    for (int k = 0; k < STAGES; k++) {
        spent[k] = cli_get_number(rank, stages[k]) - cli_get_number(was, stages[k]);
        all += spent[k];
    }
    snprintf(cells[0], CELL, "%.0f", cli_get_number(rank, "rank"));
    snprintf(cells[1], CELL, "-");
    if (memory > 0)
        cli_bytes(memory, cells[1]);
    cli_view_duration(steps > 0 ? (all - spent[COLLECTIVE]) / steps : 0, cells[2]);
    for (int k = 0; k < STAGES; k++)
        if (all > 0)
            snprintf(cells[STAGES_AT + k], CELL, t->is_narrow ? "%.0f%%" : "%.0f %%",
                     100 * spent[k] / all);
        else
            snprintf(cells[STAGES_AT + k], CELL, "-");
    table_row(t, CLI_PLAIN, cells);
}

void cli_view_ranks(cli_view_t *view, const json_t *before, const json_t *now,
                    double steps)
{
    const json_t *ranks = json_object_get(now, "ranks"),
                 *memory = json_object_get(now, "memory"),
                 *processes = json_object_get(memory, "processes");
    const size_t count = json_array_size(ranks);
    table_t t = {.view = view, .columns = rank_columns};
    const int kept = view->has_actors ? ACTORS_MIN + 3 : 1,
              left = view->rows - view->count - kept;
    size_t capacity = left > 1 ? (size_t)left : 1;
    if (!count)
        return;
    table_begin(&t);
    capacity = count > capacity ? capacity - (capacity > 1) : count;
    if (count == capacity + 1)                        /* in place of "and 1 more ranks" */
        capacity = count;
    for (size_t k = 0; k < capacity; k++) {
        const json_t *rank = json_array_get(ranks, k);
        const json_t *was = before == now ? NULL : rank_of(before, rank);
        char name[CELL];
        snprintf(name, sizeof name, "rank %d", (int)cli_get_number(rank, "rank"));
        const json_t *process = entry_of(processes, "name", name);
        const double used = process      ? cli_get_number(process, "bytes")
                            : count == 1 ? cli_get_number(memory, "used")
                                         : 0;        /* ranks that are threads share it */
        rank_row(&t, rank, was, used, steps);
    }
    if (capacity < count)
        cli_view_line(view, CLI_PLAIN, "and %zu more ranks", count - capacity);
}

/* ---- actors ---- */

static const column_t actor_columns[] = {
    {"actor", "actor", 28, 21, 0},     {"waiting", "wait", 9, 6, 1},
    {"messages/s", "msg/s", 12, 7, 2}, {"seen", "seen", 12, 10, 3},
    {"level", "level", 8, 6, 4},       {NULL, NULL, 0, 0, 0},
};

static int by_messages(const void *a, const void *b)
{
    const double x = cli_get_number(*(const json_t *const *)a, "messages"),
                 y = cli_get_number(*(const json_t *const *)b, "messages");
    return x < y ? 1 : x > y ? -1 : 0;
}

void cli_view_actors(cli_view_t *view, const json_t *before, const json_t *now,
                     double seconds)
{
    const json_t *rows = json_object_get(json_object_get(now, "state"), "actors"),
                 *old = json_object_get(json_object_get(before, "state"), "actors"),
                 *sorted[LANES_MAX];
    const int left = view->rows - view->count - 1;
    table_t t = {.view = view, .columns = actor_columns};
    int count = 0;
    for (size_t k = 0; k < json_array_size(rows) && count < LANES_MAX; k++)
        sorted[count++] = json_array_get(rows, k);
    if (!count || left < 1)
        return;
    qsort(sorted, (size_t)count, sizeof *sorted, by_messages);
    table_begin(&t);
    const int shown = count > left ? left - (left > 1) : count;
    for (int k = 0; k < shown; k++) {
        char cells[CELLS][CELL] = {""};
        const char *name = cli_get_text(sorted[k], "name");
        const double messages = cli_get_number(sorted[k], "messages"),
                     was = cli_get_number(entry_of(old, "name", name), "messages");
        snprintf(cells[0], CELL, "%s", name);
        snprintf(cells[1], CELL, "%.0f", cli_get_number(sorted[k], "open"));
        cli_view_rate(messages - was, seconds, cells[2]);
        cli_view_number(messages, cells[3]);
        snprintf(cells[4], CELL, "%.0f", cli_get_number(sorted[k], "level"));
        table_row(&t, CLI_PLAIN, cells);
    }
    if (shown < count)
        cli_view_line(view, CLI_PLAIN, "and %d more actors", count - shown);
}
