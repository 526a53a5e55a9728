/* propose_series.c - a run for a time series: windows over the rows, to predict the next
 * one
 *
 * A table is a series if a column of times rises from row to row, and the others are a
 * few columns of numbers.  The length of a window is a part of the series, so that there
 * are many windows to learn from. */
#include <string.h>
#include <strings.h>

#include "actors/connectors/datasets/propose_parts.h"
#include "base/json_text.h"

/* Columns of a series besides its time, and the fewest rows. */
#define VALUES_MAX 8
#define ROWS_MIN 40

/* A number of each row rises by steps, too; its name or its first number tells a time. */
static bool tells_time(const char *name, const table_column_t *c)
{
    static const char *const words[] = {"year", "date", "time",    "month", "day",
                                        "week", "hour", "quarter", "period"};
    bool says = c->kind == KIND_DATE
                || (c->kind == KIND_NUMBER && c->steps && c->first != 0 && c->first != 1);
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        says = says || (c->kind == KIND_NUMBER && strcasestr(name, words[k]));
    return says && c->rises;
}

int propose_find_time(const proposal_t *p)
{
    const pl_table_t *table = &p->csv.table;
    int time = -1;
    char text[24];
    if (table->rows < ROWS_MIN || table->columns > VALUES_MAX + 1)
        return -1;
    for (int k = 0; k < table->columns && time < 0; k++)
        if (k != p->target && tells_time(propose_name(p, k, text), &p->column[k]))
            time = k;
    for (int k = 0; k < table->columns && time >= 0; k++)
        if (k != time && p->column[k].kind != KIND_NUMBER)
            time = -1;
    return time;
}

void propose_series(proposal_t *p, int time)
{
    const pl_table_t *table = &p->csv.table;
    const int64_t part = table->rows / 12, window = part < 4 ? 4 : part > 48 ? 48 : part;
    const bool lacks = p->column[p->target].filled < table->rows;
    const bool is_small = table->rows < 1000;
    char text[24], list[600] = "";
    propose_reason(p, "data.time",
                   "\"%.100s\" rises from row to row, and the other columns are numbers: "
                   "this is a time series.",
                   propose_name(p, time, text));
    if (table->name)
        propose_set(p, "data.fields",
                    json_pack("{s:s}", "y", propose_name(p, p->target, text)));
    else
        propose_set(p, "data.label", json_integer(p->target));
    propose_set(p, "data.time", json_string(propose_name(p, time, text)));
    propose_set(p, "data.window", json_integer(window));
    propose_set(p, "data.horizon", json_integer(1));
    for (int k = 0; k < table->columns; k++) {
        const char *name = propose_name(p, k, text);
        if (k == p->target || k == time || p->column[k].distinct > 1
            || strlen(list) + strlen(name) + 2 > sizeof list)
            continue;
        strcat(strcat(list, *list ? "," : ""), name);
        propose_reason(p, "data.ignore", "\"%.100s\" is left out: it has one value.",
                       name);
    }
    if (*list)
        propose_set(p, "data.ignore", json_string(list));
    propose_reason(p, "data.window",
                   "A sample is %lld rows, from which the next value of the target is "
                   "predicted; more horizon predicts several rows at once.",
                   (long long)window);
    propose_set(p, "data.missing", json_string("median"));
    propose_reason(p, "data.missing",
                   lacks ? "Gaps of the series are filled along a line."
                         : "No value is missing; gaps in other files are filled along a "
                           "line.");
    propose_reason(p, "module.name",
                   "A network of two hidden layers predicts the values, in their unit. "
                   "paceline predict prints one for each window; the last is of the row "
                   "behind the file.");
    propose_set(p, "module",
                json_pack("{s:s, s:[i,i], s:f}", "name", "mlp", "hidden",
                          is_small ? 64 : 128, is_small ? 32 : 64, "dropout", 0.1));
    propose_reason(p, "data.val_split",
                   "The split is by time: the last rows are for validation.");
    propose_training(p, table->rows, true);
}
