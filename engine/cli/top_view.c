/* top_view.c - what paceline top and monitor show of a run's state
 *
 * First how far the run is, when it will end, its loss and what it takes of the machine;
 * then the tables of top_tables.c: ranks, and where it is asked for actors.
 * Where there is no room the words that matter least go: columns of the tables, then
 * lines, the last of which says how many are missing. */
#include "cli/top_view.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/output.h"
#include "cli/top_view_parts.h"

enum { METRICS_SHOWN_MAX = 8, DEVICES_MAX = 4 };

/* ---- metrics ---- */

const char *view_number(double value, char text[CELL])
{
    static const char units[] = " kMGT";
    int unit = 0;
    while (fabs(value) >= 1000 && units[unit + 1]) {
        value /= 1000;
        unit++;
    }
    const bool is_whole = !unit || fabs(value) >= 100;
    snprintf(text, CELL, is_whole ? "%.0f%.*s" : "%.1f%.*s", value, unit > 0,
             units + unit);
    return text;
}

const char *view_rate(double count, double seconds, char text[CELL])
{
    if (seconds > 0)
        return view_number(count / seconds, text);
    snprintf(text, CELL, "-");
    return text;
}

const char *view_duration(double seconds, char text[CELL])
{
    if (!(seconds > 0))
        snprintf(text, CELL, "-");
    else if (seconds < 1e-3)
        snprintf(text, CELL, "%.0f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, CELL, "%.*f ms", seconds < 0.01 ? 2 : 1, seconds * 1e3);
    else
        snprintf(text, CELL, "%.2f s", seconds);
    return text;
}

/* ---- lines ---- */

static void view_vline(cli_view_t *view, cli_style_t style, const char *format,
                       va_list args)
{
    if (view->count == CLI_VIEW_LINES || view->count >= view->rows)
        return;
    view->line[view->count].style = style;
    char *text = view->line[view->count++].text;
    vsnprintf(text, CLI_VIEW_WIDTH, format, args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

void cli_view_line(cli_view_t *view, cli_style_t style, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    view_vline(view, style, format, args);
    va_end(args);
}

/* In as many lines as it needs, each up to a blank where there is one. */
static void view_text(cli_view_t *view, cli_style_t style, const char *text)
{
    const int width = view->columns < CLI_VIEW_WIDTH ? view->columns : CLI_VIEW_WIDTH - 1;
    while (*text && width > 0) {
        int length = (int)strlen(text), end = width;
        while (length > width && end > 0 && text[end] != ' ')
            end--;
        length = length <= width ? length : end > 0 ? end : width;
        cli_view_line(view, style, "%.*s", length, text);
        text += length;
        text += *text == ' ';
    }
}

/* Pieces one behind the other, in as many lines as they need. */
typedef struct flow {
    cli_view_t *view;
    cli_style_t style;
    char line[CLI_VIEW_WIDTH];
} flow_t;

static void flow_end(flow_t *flow)
{
    if (*flow->line)
        cli_view_line(flow->view, flow->style, "%s", flow->line);
    strcpy(flow->line, "");
}

static void flow_add(flow_t *flow, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void flow_add(flow_t *flow, const char *format, ...)
{
    char piece[CLI_VIEW_WIDTH / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    size_t at = strlen(flow->line);
    if (at && at + 2 + strlen(piece) > (size_t)flow->view->columns)
        flow_end(flow);
    at = strlen(flow->line);
    snprintf(flow->line + at, sizeof flow->line - at, "%s%s", at ? "  " : "", piece);
}

/* ---- the run ---- */

const json_t *cli_view_run(const json_t *state)
{
    size_t k;
    const json_t *run, *best = NULL;
    json_array_foreach(json_object_get(json_object_get(state, "state"), "runs"), k, run) {
        const bool goes_on = json_is_false(json_object_get(run, "ended")),
                   best_does = json_is_false(json_object_get(best, "ended"));
        if (!best || goes_on > best_does
            || (goes_on == best_does
                && number_of(run, "number") > number_of(best, "number")))
            best = run;
    }
    return best;
}

static const char *run_name(const json_t *run, char text[CELL])
{
    const char *name = text_of(run, "name");
    if (*name)
        snprintf(text, CELL, "run %s", name);
    else
        snprintf(text, CELL, "run");
    return text;
}

const char *cli_view_end(const json_t *run, char text[CLI_VIEW_TEXT])
{
    char name[CELL];
    const char *how = text_of(run, "doing"), *error = text_of(run, "error");
    strcpy(text, "");
    if (json_is_true(json_object_get(run, "ended")))
        snprintf(text, CLI_VIEW_TEXT, "%s %s after %.0f steps%s%s", run_name(run, name),
                 !strcmp(how, "ok")        ? "has ended well"
                 : !strcmp(how, "stopped") ? "was stopped"
                                           : "has failed",
                 number_of(run, "step"), *error ? ": " : "", error);
    return text;
}

/* ---- the loss ---- */

static double loss_of(const json_t *run)
{
    size_t k;
    const json_t *entry, *newest;
    json_array_foreach(json_object_get(run, "columns"), k, entry) {
        newest = json_object_get(entry, "newest");
        if (!strcmp(text_of(entry, "name"), "train_loss") && json_is_number(newest))
            return json_number_value(newest);
    }
    return NAN;
}

static void curve_add(cli_curve_t *curve, double loss)
{
    curve->sum += loss;
    if (++curve->gathered < curve->stride)
        return;
    curve->value[curve->count++] = curve->sum / curve->gathered;
    curve->sum = curve->gathered = 0;
    if (curve->count < CLI_CURVE)
        return;
    for (int k = 0; k < CLI_CURVE / 2; k++)
        curve->value[k] = (curve->value[2 * k] + curve->value[2 * k + 1]) / 2;
    curve->count = CLI_CURVE / 2;
    curve->stride *= 2;
}

void cli_curve_take(cli_curve_t *curve, const json_t *state)
{
    const json_t *run = cli_view_run(state);
    const double step = number_of(run, "step"), loss = loss_of(run);
    if (!run)
        return;
    if (curve->number != number_of(run, "number") || step < curve->step)
        *curve = (cli_curve_t){.number = number_of(run, "number"), .stride = 1};
    if (step > 0 && !curve->first_step) {
        curve->first_step = step;
        curve->first_seconds = number_of(run, "seconds");
    }
    if (step > curve->step && isfinite(loss))
        curve_add(curve, loss);
    curve->step = step;
}

/* Mean of the values that a column stands for. */
static double curve_at(const cli_curve_t *curve, int column, int columns)
{
    const int from = column * curve->count / columns,
              until = (column + 1) * curve->count / columns;
    double sum = 0;
    for (int k = from; k < until; k++)
        sum += curve->value[k];
    return sum / (until - from);
}

/* From the lowest to the highest, at most so many columns; "" of less than two values. */
static const char *curve_text(const cli_curve_t *curve, int columns,
                              char text[CLI_VIEW_WIDTH])
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
                             *const plain[] = {"_", ".", ",", "-", "=", "+", "*", "#"};
    const char *const *levels = cli_has_utf8() ? blocks : plain;
    double low = INFINITY, high = -INFINITY;
    size_t at = 0;
    strcpy(text, "");
    if (!curve || curve->count < 2 || columns < 2)
        return text;
    columns = columns < curve->count ? columns : curve->count;
    for (int k = 0; k < columns; k++) {
        low = fmin(low, curve_at(curve, k, columns));
        high = fmax(high, curve_at(curve, k, columns));
    }
    for (int k = 0; k < columns; k++) {
        const double share = high > low
                                 ? (curve_at(curve, k, columns) - low) / (high - low)
                                 : 0;
        at += (size_t)snprintf(text + at, CLI_VIEW_WIDTH - at, "%s",
                               levels[(int)(share * 7 + 0.5)]);
    }
    return text;
}

enum { CURVE_MAX = 60 };                                    /* columns */

static void show_curve(cli_view_t *view, const json_t *run)
{
    char text[CLI_VIEW_WIDTH], first[24], newest[24];
    const int capacity = view->columns - 26;
    if (!view->curve || view->curve->number != number_of(run, "number"))
        return;
    curve_text(view->curve, capacity < CURVE_MAX ? capacity : CURVE_MAX, text);
    if (*text)
        cli_view_line(view, CLI_PLAIN, "loss %s %s %s",
                      cli_number(view->curve->value[0], 3, first), text,
                      cli_number(loss_of(run), 3, newest));
}

/* ---- how far ---- */

static bool has_ended(const json_t *run)
{
    return json_is_true(json_object_get(run, "ended"));
}

/* From the mean speed since it is watched; < 0: not known. */
static double seconds_left(const json_t *run, const cli_curve_t *curve)
{
    const double all = number_of(run, "total_steps"), step = number_of(run, "step");
    if (!curve || curve->number != number_of(run, "number") || has_ended(run))
        return -1;
    const double steps = step - curve->first_step,
                 seconds = number_of(run, "seconds") - curve->first_seconds;
    if (!(all > step) || !(steps > 0) || !(seconds > 0.5))
        return -1;
    return seconds / steps * (all - step);
}

/* Processors in use between two looks at the clock of the processes; < 0: not known. */
static double processors_of(const json_t *before, const json_t *now)
{
    const json_t *memory[] = {json_object_get(before, "memory"),
                              json_object_get(now, "memory")};
    double cpu[2];
    for (int m = 0; m < 2; m++) {
        size_t k;
        const json_t *process;
        cpu[m] = number_of(memory[m], "cpu");
        json_array_foreach(json_object_get(memory[m], "processes"), k, process)
            cpu[m] += number_of(process, "cpu");
    }
    const double seconds = number_of(memory[1], "time") - number_of(memory[0], "time");
    if (!(seconds > 0) || !(cpu[0] > 0) || cpu[1] < cpu[0])
        return -1;
    return (cpu[1] - cpu[0]) / seconds;
}

static void add_progress(flow_t *flow, const json_t *run)
{
    char text[CELL];
    const double step = number_of(run, "step"), all = number_of(run, "total_steps");
    flow_add(flow, "%s", run_name(run, text));
    if (*text_of(run, "module"))
        flow_add(flow, "%s", text_of(run, "module"));
    flow_add(flow, "%s", text_of(run, "doing"));
    flow_add(flow, "%s", cli_clock(number_of(run, "seconds"), (char[24]){""}));
    flow_add(flow, "epoch %.0f", number_of(run, "epoch") + 1);
    if (all > 0)
        flow_add(flow, "step %.0f of %.0f, %.0f %%", step, all, 100 * step / all);
    else
        flow_add(flow, "step %.0f", step);
    flow_end(flow);
}

static const json_t *same_run(const json_t *before, const json_t *run)
{
    const json_t *was = cli_view_run(before);
    return number_of(was, "number") == number_of(run, "number") ? was : run;
}

/* Of the steps since the report before; until there is one, of all, which is the same. */
static double quantile_of(const json_t *run, const char *column, const char *all)
{
    size_t k;
    const json_t *entry;
    json_array_foreach(json_object_get(run, "columns"), k, entry)
        if (!strcmp(text_of(entry, "name"), column) && number_of(entry, "newest") > 0)
            return number_of(entry, "newest");
    return number_of(run, all);
}

static void add_left(flow_t *flow, const json_t *run)
{
    const double left = seconds_left(run, flow->view->curve);
    if (left >= 0)
        flow_add(flow, "%s left", cli_clock(left, (char[24]){""}));
}

static void add_speed(flow_t *flow, const json_t *run, const json_t *was, double seconds)
{
    char a[CELL], b[CELL];
    const double steps = number_of(run, "step") - number_of(was, "step"),
                 samples = number_of(run, "samples") - number_of(was, "samples");
    flow_add(flow, "%s steps/s", view_rate(steps, seconds, a));
    if (samples > 0)
        flow_add(flow, "%s samples/s", view_rate(samples, seconds, a));
    if (json_is_true(json_object_get(run, "ended")) || number_of(run, "stalled") > 0
        || !strcmp(text_of(run, "doing"), "paused"))
        return;
    flow_add(flow, "step now %s p50, %s p95",
             view_duration(quantile_of(run, "step_seconds_p50", "run_p50"), a),
             view_duration(quantile_of(run, "step_seconds_p95", "run_p95"), b));
}

static void add_metrics(flow_t *flow, const json_t *run)
{
    size_t k;
    int shown = 0;
    const json_t *entry;
    json_array_foreach(json_object_get(run, "columns"), k, entry) {
        const char *name = text_of(entry, "name");
        const json_t *newest = json_object_get(entry, "newest");
        if (strstr(name, "_per_second") || !strncmp(name, "step_seconds", 12)
            || !json_is_number(newest) || shown++ == METRICS_SHOWN_MAX)
            continue;
        flow_add(flow, "%s %.4g", name, json_number_value(newest));
    }
    flow_end(flow);
}

/* ---- what is amiss ---- */

static void show_amiss(cli_view_t *view, const json_t *run)
{
    char text[CLI_VIEW_TEXT];
    size_t k;
    const json_t *rank;
    if (number_of(run, "stalled") > 0) {
        snprintf(text, sizeof text, "no progress for %.0f s", number_of(run, "stalled"));
        view_text(view, CLI_BAD, text);
    }
    json_array_foreach(json_object_get(run, "absent"), k, rank) {
        snprintf(text, sizeof text, "rank %.0f: %s, last message %.0f s ago; %s",
                 number_of(rank, "rank"), text_of(rank, "event"),
                 number_of(rank, "seconds"), text_of(rank, "text"));
        view_text(view, CLI_BAD, text);
    }
}

/* ---- all ---- */

static double seconds_between(const json_t *before, const json_t *now)
{
    return number_of(json_object_get(now, "state"), "now")
           - number_of(json_object_get(before, "state"), "now");
}

static void add_machine(flow_t *flow, const json_t *before, const json_t *now)
{
    const json_t *memory = json_object_get(now, "memory");
    const double processors = processors_of(before, now);
    if (processors >= 0)
        flow_add(flow, "CPU %.1f of %.0f cores", processors,
                 number_of(memory, "processors"));
    if (number_of(memory, "used") > 0) {
        flow_add(flow, "memory %s", cli_bytes(number_of(memory, "used"), (char[24]){""}));
        flow_add(flow, "%s free", cli_bytes(number_of(memory, "free"), (char[24]){""}));
    }
    flow_end(flow);
}

/* What is known of the devices of the first ranks. */
static void add_devices(flow_t *flow, const json_t *run)
{
    const json_t *devices = json_object_get(run, "devices"), *device;
    size_t k;
    char used[24], total[24];
    json_array_foreach(devices, k, device) {
        if (k == DEVICES_MAX) {
            flow_add(flow, "and %zu more devices", json_array_size(devices) - k);
            break;
        }
        if (json_array_size(devices) > 1)
            flow_add(flow, "device of rank %.0f", number_of(device, "rank"));
        else
            flow_add(flow, "device");
        if (json_is_number(json_object_get(device, "utilization")))
            flow_add(flow, "%.0f %%", 100 * number_of(device, "utilization"));
        if (json_is_number(json_object_get(device, "memory_used")))
            flow_add(flow, "%s of %s", cli_bytes(number_of(device, "memory_used"), used),
                     cli_bytes(number_of(device, "memory_total"), total));
        if (json_is_number(json_object_get(device, "power")))
            flow_add(flow, "%.0f W", number_of(device, "power"));
        if (json_is_number(json_object_get(device, "temperature")))
            flow_add(flow, "%.0f C", number_of(device, "temperature"));
        flow_end(flow);
    }
    flow_end(flow);
}

/* Of actors: how they talk. */
static void add_messages(flow_t *flow, const json_t *before, const json_t *now)
{
    char text[CELL];
    const json_t *state = json_object_get(now, "state"),
                 *was = json_object_get(before, "state");
    flow_add(flow, "%s messages/s",
             view_rate(number_of(state, "messages") - number_of(was, "messages"),
                       seconds_between(before, now), text));
    if (number_of(state, "missing") > 0)
        flow_add(flow, "%s messages lost",
                 view_number(number_of(state, "missing"), text));
    flow_end(flow);
}

/* Another piece, where there is room for it. */
static void brief_add(char text[CLI_VIEW_TEXT], int columns, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void brief_add(char text[CLI_VIEW_TEXT], int columns, const char *format, ...)
{
    char piece[CLI_VIEW_WIDTH];
    const size_t at = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (columns <= 0 || at + 2 + strlen(piece) <= (size_t)columns)
        snprintf(text + at, CLI_VIEW_TEXT - at, "%s%s", at ? "  " : "", piece);
}

void cli_view_brief(char text[CLI_VIEW_TEXT], const json_t *before, const json_t *now,
                    const cli_curve_t *curve, int columns)
{
    char word[CLI_VIEW_WIDTH];
    const json_t *run = cli_view_run(now), *was = same_run(before, run);
    const double step = number_of(run, "step"), all = number_of(run, "total_steps"),
                 left = seconds_left(run, curve), processors = processors_of(before, now),
                 steps = step - number_of(was, "step"), loss = loss_of(run);
    strcpy(text, "");
    brief_add(text, columns, "%s", cli_clock(number_of(run, "seconds"), word));
    brief_add(text, columns, "%s", text_of(run, "doing"));
    brief_add(text, columns, "epoch %.0f", number_of(run, "epoch") + 1);
    if (all > 0)
        brief_add(text, columns, "step %.0f/%.0f, %.0f %%", step, all, 100 * step / all);
    else
        brief_add(text, columns, "step %.0f", step);
    if (isfinite(loss))
        brief_add(text, columns, "loss %s", cli_number(loss, 3, word));
    if (left >= 0)
        brief_add(text, columns, "%s left", cli_clock(left, word));
    if (steps > 0 && seconds_between(before, now) > 0)
        brief_add(text, columns, "%s steps/s",
                  view_rate(steps, seconds_between(before, now), word));
    if (processors >= 0)
        brief_add(text, columns, "CPU %.1f of %.0f cores", processors,
                  number_of(json_object_get(now, "memory"), "processors"));
    const int capacity = columns > 0 ? columns - (int)strlen(text) - 2 : 20;
    const size_t at = strlen(text);
    if (*curve_text(curve, capacity < 20 ? capacity : 20, word))
        snprintf(text + at, CLI_VIEW_TEXT - at, "  %s", word);
}

void cli_view_make(cli_view_t *view, const json_t *before, const json_t *now)
{
    char text[CLI_VIEW_TEXT];
    const json_t *run = cli_view_run(now);
    const double seconds = seconds_between(before, now);
    const bool is_short = view->has_actors && view->rows < 20;
    flow_t flow = {.view = view, .style = CLI_STRONG};
    double steps = 0;
    if (run) {
        add_progress(&flow, run);
        flow.style = CLI_PLAIN;
        add_left(&flow, run);
        add_speed(&flow, run, same_run(before, run), seconds);
        steps = number_of(run, "step") - number_of(same_run(before, run), "step");
        flow_end(&flow);
    } else {
        cli_view_line(view, CLI_STRONG, "no run is active");
    }
    flow.style = CLI_PLAIN;
    add_machine(&flow, before, now);
    add_devices(&flow, run);
    if (run && !is_short)
        show_curve(view, run);
    if (!is_short)
        add_metrics(&flow, run);
    if (*cli_view_end(run, text))
        view_text(view, *text_of(run, "error") ? CLI_BAD : CLI_STRONG, text);
    show_amiss(view, run);
    view_ranks(view, before, now, steps);
    if (!view->has_actors)
        return;
    add_messages(&flow, before, now);
    view_actors(view, before, now, seconds);
}
