/* top_tables.c - the tables of paceline top and monitor: ranks and actors */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output.h"
#include "cli/top_view_parts.h"

enum { CELLS = 10, ACTORS_MIN = 4, LANES_MAX = 128 };

/* ---- tables ---- */

typedef struct column {
    const char *title, *brief;                             /* brief: where it is narrow */
    int width, narrow;                                     /* with a blank before it */
    int rank;                                              /* the highest goes first */
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

static void table_fit(table_t *t)
{
    t->shown = ~0;
    t->is_narrow = table_width(t) > t->view->columns;
    while (table_width(t) > t->view->columns) {
        int last = 0;
        for (int k = 0; t->columns[k].title; k++)
            if ((t->shown >> k & 1) && t->columns[k].rank >= t->columns[last].rank)
                last = k;
        if (!last)
            return;
        t->shown &= ~(1 << last);
    }
}

/* The first column stands to the left, the others to the right. */
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

static void table_begin(table_t *t)
{
    char cells[CELLS][CELL];
    table_fit(t);
    for (int k = 0; t->columns[k].title; k++)
        snprintf(cells[k], CELL, "%s",
                 t->is_narrow ? t->columns[k].brief : t->columns[k].title);
    table_row(t, CLI_HEAD, cells);
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

/* Of the process that is that rank; ranks that are threads share one. */
static double memory_of(const json_t *memory, int rank, size_t ranks)
{
    size_t k;
    char name[CELL];
    const json_t *process;
    snprintf(name, sizeof name, "rank %d", rank);
    json_array_foreach(json_object_get(memory, "processes"), k, process)
        if (!strcmp(text_of(process, "name"), name))
            return number_of(process, "bytes");
    return ranks == 1 ? number_of(memory, "used") : 0;
}

static void rank_row(const table_t *t, const json_t *rank, const json_t *was,
                     double memory, double steps)
{
    char cells[CELLS][CELL] = {""};
    double spent[STAGES], all = 0;
    for (int k = 0; k < STAGES; k++) {
        spent[k] = number_of(rank, stages[k]) - number_of(was, stages[k]);
        all += spent[k];
    }
    snprintf(cells[0], CELL, "%.0f", number_of(rank, "rank"));
    snprintf(cells[1], CELL, "-");
    if (memory > 0)
        cli_bytes(memory, cells[1]);
    view_duration(steps > 0 ? (all - spent[COLLECTIVE]) / steps : 0, cells[2]);
    for (int k = 0; k < STAGES; k++)
        if (all > 0)
            snprintf(cells[STAGES_AT + k], CELL, t->is_narrow ? "%.0f%%" : "%.0f %%",
                     100 * spent[k] / all);
        else
            snprintf(cells[STAGES_AT + k], CELL, "-");
    table_row(t, CLI_PLAIN, cells);
}

/* At its place in the list, or NULL. */
static const json_t *rank_before(const json_t *before, const json_t *rank)
{
    size_t k;
    const json_t *entry;
    json_array_foreach(json_object_get(before, "ranks"), k, entry)
        if (number_of(entry, "rank") == number_of(rank, "rank"))
            return entry;
    return NULL;
}

void view_ranks(cli_view_t *view, const json_t *before, const json_t *now, double steps)
{
    const json_t *ranks = json_object_get(now, "ranks"),
                 *memory = json_object_get(now, "memory");
    const size_t count = json_array_size(ranks);
    table_t t = {.view = view, .columns = rank_columns};
    const int kept = view->has_actors ? ACTORS_MIN + 3 : 1,
              left = view->rows - view->count - kept;
    size_t capacity = left > 1 ? (size_t)left : 1;
    if (!count)
        return;
    table_begin(&t);
    capacity = count > capacity ? capacity - (capacity > 1) : count;
    if (count == capacity + 1)                     /* it has the line that would say so */
        capacity = count;
    for (size_t k = 0; k < capacity; k++) {
        const json_t *rank = json_array_get(ranks, k);
        const json_t *was = rank_before(before, rank);
        rank_row(&t, rank, before == now ? NULL : was,
                 memory_of(memory, (int)number_of(rank, "rank"), count), steps);
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
    const double x = number_of(*(const json_t *const *)a, "messages"),
                 y = number_of(*(const json_t *const *)b, "messages");
    return x < y ? 1 : x > y ? -1 : 0;
}

static const json_t *row_before(const json_t *before, const json_t *row)
{
    size_t k;
    const json_t *entry;
    json_array_foreach(json_object_get(json_object_get(before, "state"), "actors"), k,
                       entry)
        if (!strcmp(text_of(entry, "name"), text_of(row, "name")))
            return entry;
    return NULL;
}

static void actor_row(const table_t *t, const json_t *row, const json_t *was,
                      double seconds)
{
    char cells[CELLS][CELL] = {""};
    const double count = number_of(row, "messages");
    const double came = count - number_of(was, "messages");
    snprintf(cells[0], CELL, "%s", text_of(row, "name"));
    snprintf(cells[1], CELL, "%.0f", number_of(row, "open"));
    view_rate(came, seconds, cells[2]);
    view_number(count, cells[3]);
    snprintf(cells[4], CELL, "%.0f", number_of(row, "level"));
    table_row(t, CLI_PLAIN, cells);
}

void view_actors(cli_view_t *view, const json_t *before, const json_t *now,
                 double seconds)
{
    const json_t *rows = json_object_get(json_object_get(now, "state"), "actors"),
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
    for (int k = 0; k < shown; k++)
        actor_row(&t, sorted[k], row_before(before, sorted[k]), seconds);
    if (shown < count)
        cli_view_line(view, CLI_PLAIN, "and %d more actors", count - shown);
}
