/* top_view.c - the state of a run, as lines of paceline top and monitor
 *
 * First the progress, the time left, the loss and the use of the machine; then the tables
 * of top_tables.c: ranks and, if requested, actors. Where there is no room the least
 * important parts are left out: columns of the tables, then lines, of which the last one
 * says how many are missing. */
#include "cli/top_view.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/output.h"

enum { CURVE_MAX = 60 };                                    /* columns */
enum { CELL = CLI_CELL, METRICS_SHOWN_MAX = 8, DEVICES_MAX = 4 };

/* ---- numbers ---- */

const char *cli_view_number(double value, char text[CELL])
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

const char *cli_view_rate(double count, double seconds, char text[CELL])
{
    if (seconds > 0)
        return cli_view_number(count / seconds, text);
    snprintf(text, CELL, "-");
    return text;
}

const char *cli_view_duration(double seconds, char text[CELL])
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

void cli_view_line(cli_view_t *view, cli_style_t style, const char *format, ...)
{
    va_list args;
    if (view->count == CLI_VIEW_LINES || view->count >= view->rows)
        return;
    view->line[view->count].style = style;
    char *text = view->line[view->count++].text;
    va_start(args, format);
    vsnprintf(text, CLI_VIEW_WIDTH, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

/* Adds a text in as many lines as it needs, broken at spaces where possible. */
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

/* Pieces in a row, in as many lines as they need. */
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
        const bool is_active = json_is_false(json_object_get(run, "ended")),
                   best_is = json_is_false(json_object_get(best, "ended"));
        if (!best || is_active > best_is
            || (is_active == best_is
                && cli_get_number(run, "number") > cli_get_number(best, "number")))
            best = run;
    }
    return best;
}

static const char *run_name(const json_t *run, char text[CELL])
{
    const char *name = cli_get_text(run, "name");
    if (*name)
        snprintf(text, CELL, "run %s", name);
    else
        snprintf(text, CELL, "run");
    return text;
}

const char *cli_view_end(const json_t *run, char text[CLI_VIEW_TEXT])
{
    char name[CELL];
    const char *how = cli_get_text(run, "doing"), *error = cli_get_text(run, "error");
    strcpy(text, "");
    if (json_is_true(json_object_get(run, "ended")))
        snprintf(text, CLI_VIEW_TEXT, "%s %s after %.0f step%s%s%s", run_name(run, name),
                 !strcmp(how, "ok")        ? "is complete"
                 : !strcmp(how, "stopped") ? "was stopped"
                                           : "has failed",
                 cli_get_number(run, "step"),
                 cli_plural((uint64_t)cli_get_number(run, "step")), *error ? ": " : "",
                 error);
    return text;
}

/* ---- the loss ---- */

/* The newest training loss; NAN: none. */
static double loss_of(const json_t *run)
{
    size_t k;
    const json_t *entry, *newest;
    json_array_foreach(json_object_get(run, "columns"), k, entry) {
        newest = json_object_get(entry, "newest");
        if (!strcmp(cli_get_text(entry, "name"), "train_loss") && json_is_number(newest))
            return json_number_value(newest);
    }
    return NAN;
}

void cli_curve_take(cli_curve_t *curve, const json_t *state)
{
    const json_t *run = cli_view_run(state);
    const double step = cli_get_number(run, "step"), loss = loss_of(run);
    if (!run)
        return;
    if (curve->number != cli_get_number(run, "number") || step < curve->step)
        *curve = (cli_curve_t){.number = cli_get_number(run, "number"), .stride = 1};
    if (step > 0 && !curve->first_step) {
        curve->first_step = step;
        curve->first_seconds = cli_get_number(run, "seconds");
    }
    const bool is_new = step > curve->step && isfinite(loss);
    curve->step = step;
    if (!is_new)
        return;
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

/* The mean of the values of a column. */
static double curve_at(const cli_curve_t *curve, int column, int columns)
{
    const int from = column * curve->count / columns,
              until = (column + 1) * curve->count / columns;
    double sum = 0;
    for (int k = from; k < until; k++)
        sum += curve->value[k];
    return sum / (until - from);
}

/* The curve, scaled to its range, in at most so many columns; "": less than two
 * values. */
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

/* ---- progress ---- */

/* From the mean speed since this process observes the run; < 0: unknown. */
static double seconds_left(const json_t *run, const cli_curve_t *curve)
{
    const double all = cli_get_number(run, "total_steps"),
                 step = cli_get_number(run, "step");
    if (!curve || curve->number != cli_get_number(run, "number")
        || json_is_true(json_object_get(run, "ended")))
        return -1;
    const double steps = step - curve->first_step,
                 seconds = cli_get_number(run, "seconds") - curve->first_seconds;
    if (!(all > step) || !(steps > 0) || !(seconds > 0.5))
        return -1;
    return seconds / steps * (all - step);
}

/* Processors in use between the two states; < 0: unknown. */
static double processors_of(const json_t *before, const json_t *now)
{
    const json_t *memory[] = {json_object_get(before, "memory"),
                              json_object_get(now, "memory")};
    double cpu[2];
    for (int m = 0; m < 2; m++) {
        size_t k;
        const json_t *process;
        cpu[m] = cli_get_number(memory[m], "cpu");
        json_array_foreach(json_object_get(memory[m], "processes"), k, process)
            cpu[m] += cli_get_number(process, "cpu");
    }
    const double seconds = cli_get_number(memory[1], "time")
                           - cli_get_number(memory[0], "time");
    if (!(seconds > 0) || !(cpu[0] > 0) || cpu[1] < cpu[0])
        return -1;
    return (cpu[1] - cpu[0]) / seconds;
}

/* The run in an earlier state, or `run` if that state shows another one. */
static const json_t *same_run(const json_t *before, const json_t *run)
{
    const json_t *was = cli_view_run(before);
    return cli_get_number(was, "number") == cli_get_number(run, "number") ? was : run;
}

/* A quantile of the steps since the last report, or of all steps before the first one. */
static double quantile_of(const json_t *run, const char *column, const char *all)
{
    size_t k;
    const json_t *entry;
    json_array_foreach(json_object_get(run, "columns"), k, entry)
        if (!strcmp(cli_get_text(entry, "name"), column)
            && cli_get_number(entry, "newest") > 0)
            return cli_get_number(entry, "newest");
    return cli_get_number(run, all);
}

static void show_progress(flow_t *flow, const json_t *run, const json_t *was,
                          double seconds)
{
    char a[CELL], b[CELL];
    const double step = cli_get_number(run, "step"),
                 all = cli_get_number(run, "total_steps"),
                 left = seconds_left(run, flow->view->curve),
                 samples = cli_get_number(run, "samples")
                           - cli_get_number(was, "samples");
    flow->style = CLI_STRONG;
    flow_add(flow, "%s", run_name(run, a));
    if (*cli_get_text(run, "module"))
        flow_add(flow, "%s", cli_get_text(run, "module"));
    flow_add(flow, "%s", cli_get_text(run, "doing"));
    flow_add(flow, "%s", cli_clock(cli_get_number(run, "seconds"), a));
    flow_add(flow, "epoch %.0f", cli_get_number(run, "epoch") + 1);
    if (all > 0)
        flow_add(flow, "step %.0f of %.0f, %.0f %%", step, all, 100 * step / all);
    else
        flow_add(flow, "step %.0f", step);
    flow_end(flow);
    flow->style = CLI_PLAIN;
    if (left >= 0)
        flow_add(flow, "%s left", cli_clock(left, a));
    flow_add(flow, "%s steps/s",
             cli_view_rate(step - cli_get_number(was, "step"), seconds, a));
    if (samples > 0)
        flow_add(flow, "%s samples/s", cli_view_rate(samples, seconds, a));
    if (!json_is_true(json_object_get(run, "ended"))
        && !(cli_get_number(run, "stalled") > 0)
        && strcmp(cli_get_text(run, "doing"), "paused") != 0)
        flow_add(flow, "step now %s p50, %s p95",
                 cli_view_duration(quantile_of(run, "step_seconds_p50", "run_p50"), a),
                 cli_view_duration(quantile_of(run, "step_seconds_p95", "run_p95"), b));
    flow_end(flow);
}

static void show_curve(cli_view_t *view, const json_t *run)
{
    char text[CLI_VIEW_WIDTH], first[24], newest[24];
    const int capacity = view->columns - 26;
    if (!view->curve || view->curve->number != cli_get_number(run, "number"))
        return;
    curve_text(view->curve, capacity < CURVE_MAX ? capacity : CURVE_MAX, text);
    if (*text)
        cli_view_line(view, CLI_PLAIN, "loss %s %s %s",
                      cli_number(view->curve->value[0], 3, first), text,
                      cli_number(loss_of(run), 3, newest));
}

static void show_metrics(flow_t *flow, const json_t *run)
{
    size_t k;
    int shown = 0;
    const json_t *entry;
    json_array_foreach(json_object_get(run, "columns"), k, entry) {
        const char *name = cli_get_text(entry, "name");
        const json_t *newest = json_object_get(entry, "newest");
        if (strstr(name, "_per_second") || !strncmp(name, "step_seconds", 12)
            || !json_is_number(newest) || shown++ == METRICS_SHOWN_MAX)
            continue;
        flow_add(flow, "%s %.4g", name, json_number_value(newest));
    }
    flow_end(flow);
}

/* ---- problems ---- */

static void show_problems(cli_view_t *view, const json_t *run)
{
    char text[CLI_VIEW_TEXT];
    size_t k;
    const json_t *rank;
    if (cli_get_number(run, "stalled") > 0) {
        snprintf(text, sizeof text, "no progress for %.0f s",
                 cli_get_number(run, "stalled"));
        view_text(view, CLI_BAD, text);
    }
    json_array_foreach(json_object_get(run, "absent"), k, rank) {
        snprintf(text, sizeof text, "rank %.0f: %s, last message %.0f s ago; %s",
                 cli_get_number(rank, "rank"), cli_get_text(rank, "event"),
                 cli_get_number(rank, "seconds"), cli_get_text(rank, "text"));
        view_text(view, CLI_BAD, text);
    }
}

/* ---- the machine ---- */

static double seconds_between(const json_t *before, const json_t *now)
{
    return cli_get_number(json_object_get(now, "state"), "now")
           - cli_get_number(json_object_get(before, "state"), "now");
}

static void show_machine(flow_t *flow, const json_t *before, const json_t *now)
{
    const json_t *memory = json_object_get(now, "memory");
    const double processors = processors_of(before, now);
    if (processors >= 0)
        flow_add(flow, "CPU %.1f of %.0f cores", processors,
                 cli_get_number(memory, "processors"));
    if (cli_get_number(memory, "used") > 0) {
        flow_add(flow, "memory %s",
                 cli_bytes(cli_get_number(memory, "used"), (char[24]){""}));
        flow_add(flow, "%s free",
                 cli_bytes(cli_get_number(memory, "free"), (char[24]){""}));
    }
    flow_end(flow);
}

/* The devices of the first ranks. */
static void show_devices(flow_t *flow, const json_t *run)
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
            flow_add(flow, "device of rank %.0f", cli_get_number(device, "rank"));
        else
            flow_add(flow, "device");
        if (json_is_number(json_object_get(device, "utilization")))
            flow_add(flow, "%.0f %%", 100 * cli_get_number(device, "utilization"));
        if (json_is_number(json_object_get(device, "memory_used")))
            flow_add(flow, "%s of %s",
                     cli_bytes(cli_get_number(device, "memory_used"), used),
                     cli_bytes(cli_get_number(device, "memory_total"), total));
        if (json_is_number(json_object_get(device, "power")))
            flow_add(flow, "%.0f W", cli_get_number(device, "power"));
        if (json_is_number(json_object_get(device, "temperature")))
            flow_add(flow, "%.0f C", cli_get_number(device, "temperature"));
        flow_end(flow);
    }
    flow_end(flow);
}

/* Adds a piece to a line if there is room for it. */
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
    const double step = cli_get_number(run, "step"),
                 all = cli_get_number(run, "total_steps"),
                 left = seconds_left(run, curve), processors = processors_of(before, now),
                 steps = step - cli_get_number(was, "step"), loss = loss_of(run);
    strcpy(text, "");
    brief_add(text, columns, "%s", cli_clock(cli_get_number(run, "seconds"), word));
    brief_add(text, columns, "%s", cli_get_text(run, "doing"));
    brief_add(text, columns, "epoch %.0f", cli_get_number(run, "epoch") + 1);
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
                  cli_view_rate(steps, seconds_between(before, now), word));
    if (processors >= 0)
        brief_add(text, columns, "CPU %.1f of %.0f cores", processors,
                  cli_get_number(json_object_get(now, "memory"), "processors"));
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
    flow_t flow = {.view = view, .style = CLI_PLAIN};
    double steps = 0;
    if (run) {
        const json_t *was = same_run(before, run);
        show_progress(&flow, run, was, seconds);
        steps = cli_get_number(run, "step") - cli_get_number(was, "step");
    } else {
        cli_view_line(view, CLI_STRONG, "no run is active");
    }
    show_machine(&flow, before, now);
    show_devices(&flow, run);
    if (run && !is_short)
        show_curve(view, run);
    if (!is_short)
        show_metrics(&flow, run);
    if (*cli_view_end(run, text))
        view_text(view, *cli_get_text(run, "error") ? CLI_BAD : CLI_STRONG, text);
    show_problems(view, run);
    cli_view_ranks(view, before, now, steps);
    if (!view->has_actors)
        return;
    const json_t *state = json_object_get(now, "state"),
                 *old = json_object_get(before, "state");
    const double messages = cli_get_number(state, "messages")
                            - cli_get_number(old, "messages"),
                 lost = cli_get_number(state, "missing");
    flow_add(&flow, "%s messages/s", cli_view_rate(messages, seconds, text));
    if (lost > 0)
        flow_add(&flow, "%s messages lost", cli_view_number(lost, text));
    flow_end(&flow);
    cli_view_actors(view, before, now, seconds);
}
