/* metrics.c - the run view in Prometheus' text format, and histograms of durations
 *
 * Names, units and types follow prometheus.io/docs/practices/naming: base units, counters
 * end in _total, the lines of a family stand together. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "telemetry/run_view_parts.h"

/* ---- durations ---- */

static const double DURATION_MIN = 1e-6, PER_DOUBLING = 16;

/* The cell whose upper bound is not below the duration. */
static int cell_of(double seconds)
{
    if (!(seconds > DURATION_MIN))
        return 0;
    const double cell = ceil(log2(seconds / DURATION_MIN) * PER_DOUBLING - 1e-9);
    return cell < DURATION_CELLS ? (int)cell : DURATION_CELLS - 1;
}

void durations_add(durations_t *d, double seconds)
{
    d->count++;
    d->sum += seconds;
    d->cell[cell_of(seconds)]++;
}

double durations_quantile(const durations_t *d, double share)
{
    const double wanted = share * (double)d->count;
    uint64_t below = 0;
    for (int k = 0; k < DURATION_CELLS; k++) {
        below += d->cell[k];
        if (below && (double)below >= wanted)
            return DURATION_MIN * exp2((k - 0.5) / PER_DOUBLING);
    }
    return NAN;
}

uint64_t durations_within(const durations_t *d, double seconds)
{
    const int last = cell_of(seconds);
    uint64_t within = 0;
    for (int k = 0; k <= last; k++)
        within += d->cell[k];
    return within;
}

/* ---- the text ---- */

typedef struct sheet {
    char *text;
    size_t length, capacity;
    bool failed;
    const viewed_run_t *run[RUNS_MAX];
    int runs;
} sheet_t;

static void PL_PRINTF(2, 3) write_line(sheet_t *s, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    const int written = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const size_t length = written > 0 && (size_t)written < sizeof line ? (size_t)written
                                                                       : 0;
    if (s->capacity - s->length <= length && !s->failed) {
        const size_t capacity = s->capacity * 2 + length + 1024;
        char *grown = pl_resize(s->text, capacity);
        s->failed = !grown;
        s->text = grown ? grown : s->text;
        s->capacity = grown ? capacity : s->capacity;
    }
    if (s->failed)
        return;
    memcpy(s->text + s->length, line, length);
    s->length += length;
    s->text[s->length] = '\0';
}

/* The host's locale may write a decimal comma. */
static const char *number(double value, char shown[static 40])
{
    if (!isfinite(value))
        return isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
    snprintf(shown, 40, "%.12g", value);
    for (char *c = shown; *c; c++)
        if (!strchr("0123456789+-e", *c))
            *c = '.';
    return shown;
}

/* Quotes the value of a label. */
static const char *quoted(const char *value, char shown[static 600])
{
    char plain[300];
    size_t length = 0;
    pl_utf8_show(value, plain, sizeof plain);
    for (const char *c = plain; *c; c++) {
        if (*c == '"' || *c == '\\')
            shown[length++] = '\\';
        shown[length++] = *c;
    }
    shown[length] = '\0';
    return shown;
}

static void family(sheet_t *s, const char *name, const char *type, const char *help)
{
    write_line(s, "# HELP paceline_%s %s\n# TYPE paceline_%s %s\n", name, help, name,
               type);
}

/* ---- runs ---- */

static const struct {
    const char *name, *type, *help;
} run_values[] = {
    {"run_active", "gauge", "1 while the run is active, 0 after its end."},
    {"global_step", "gauge", "Optimizer steps done, those before a resume included."},
    {"planned_steps", "gauge", "Optimizer steps that the run is to do in all."},
    {"epoch", "gauge", "Current epoch, from 0."},
    {"gradient_clip", "gauge", "Norm at which gradients are clipped."},
    {"samples_total", "counter", "Samples trained on."},
    {"checkpoints_total", "counter", "Checkpoints that are durable."},
    {"checkpoint_failures_total", "counter", "Checkpoints that could not be written."},
};
enum { RUN_VALUES = sizeof run_values / sizeof *run_values };

static void write_runs(sheet_t *s)
{
    char dir[600], module[600], status[600], name[600], shown[40];
    family(s, "run_info", "gauge", "Always 1; the labels describe the run.");
    for (int k = 0; k < s->runs; k++)
        write_line(s,
                   "paceline_run_info{run=\"%" PRIu64
                   "\",run_dir=\"%s\",module=\"%s\",status=\"%s\"} 1\n",
                   s->run[k]->number, quoted(s->run[k]->dir, dir),
                   quoted(s->run[k]->module, module), quoted(s->run[k]->doing, status));
    family(
        s, "metric", "gauge",
        "Newest value of each metric, such as train_loss, lr-adamw, grad_norm, val_acc.");
    for (int k = 0; k < s->runs; k++)
        for (int c = COLUMNS_OWN; c < s->run[k]->columns; c++)
            write_line(s, "paceline_metric{run=\"%" PRIu64 "\",name=\"%s\"} %s\n",
                       s->run[k]->number, quoted(s->run[k]->name[c], name),
                       number(s->run[k]->newest[c], shown));
    for (int v = 0; v < RUN_VALUES; v++) {
        family(s, run_values[v].name, run_values[v].type, run_values[v].help);
        for (int k = 0; k < s->runs; k++) {
            const viewed_run_t *run = s->run[k];
            const double values[RUN_VALUES] = {
                run->ended ? 0 : 1,
                (double)run->step,
                run->total_steps ? (double)run->total_steps : NAN,
                run->epoch,
                run->clip > 0 ? run->clip : NAN,
                (double)run->samples,
                (double)run->saves_done,
                (double)run->saves_failed,
            };
            if (!isnan(values[v]))
                write_line(s, "paceline_%s{run=\"%" PRIu64 "\"} %s\n", run_values[v].name,
                           run->number, number(values[v], shown));
        }
    }
}

static void write_steps(sheet_t *s)
{
    static const double bounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                    0.01,   0.025,   0.05,   0.1,   0.25,   0.5,
                                    1,      2.5,     5,      10,    30,     60};
    char shown[40];
    family(s, "step_seconds", "histogram",
           "Time of each step of the run, from the end of the previous step or the start "
           "of the epoch.");
    for (int k = 0; k < s->runs; k++) {
        const viewed_run_t *run = s->run[k];
        for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++)
            write_line(s,
                       "paceline_step_seconds_bucket{run=\"%" PRIu64
                       "\",le=\"%s\"} %" PRIu64 "\n",
                       run->number, number(bounds[b], shown),
                       durations_within(&run->all, bounds[b]));
        write_line(s,
                   "paceline_step_seconds_bucket{run=\"%" PRIu64
                   "\",le=\"+Inf\"} %" PRIu64 "\n",
                   run->number, run->all.count);
        write_line(s, "paceline_step_seconds_sum{run=\"%" PRIu64 "\"} %s\n", run->number,
                   number(run->all.sum, shown));
        write_line(s, "paceline_step_seconds_count{run=\"%" PRIu64 "\"} %" PRIu64 "\n",
                   run->number, run->all.count);
    }
}

/* ---- ranks ---- */

static const struct {
    const char *name, *help;
    size_t offset;                                          /* in pl_device_stats_t */
} device_values[] = {
    {"device_memory_used_bytes", "Memory of a rank's device in use, by all processes.",
     offsetof(pl_device_stats_t, memory_used)},
    {"device_memory_total_bytes", "Memory of a rank's device.",
     offsetof(pl_device_stats_t, memory_total)},
    {"device_utilization_ratio", "Share of the time in which a rank's device computed.",
     offsetof(pl_device_stats_t, utilization)},
    {"device_power_watts", "Power of a rank's device.",
     offsetof(pl_device_stats_t, power)},
    {"device_temperature_celsius", "Temperature of a rank's device.",
     offsetof(pl_device_stats_t, temperature)},
};

static void write_ranks(sheet_t *s)
{
    char shown[40];
    family(s, "rank_own_seconds", "gauge",
           "Time of a step of a rank without waits for other ranks, newest second.");
    for (int k = 0; k < s->runs; k++) {
        const viewed_run_t *run = s->run[k];
        const strip_slot_t *slot = &run->strip[(run->slots - 1) % STRIP_SLOTS];
        for (int rank = 0; run->slots && rank < run->ranks; rank++)
            write_line(s,
                       "paceline_rank_own_seconds{run=\"%" PRIu64 "\",rank=\"%d\"} %s\n",
                       run->number, rank, number((double)slot->own[rank], shown));
    }
    family(s, "rank_stage_seconds", "gauge",
           "Time of a step of a rank in each stage, newest second.");
    for (int k = 0; k < s->runs; k++)
        for (int rank = 0; s->run[k]->slots && rank < s->run[k]->ranks; rank++)
            for (int t = 0; t < PL_TIMINGS; t++)
                write_line(s,
                           "paceline_rank_stage_seconds{run=\"%" PRIu64
                           "\",rank=\"%d\",stage=\"%s\"} %s\n",
                           s->run[k]->number, rank, pl_timing_names[t],
                           number((double)s->run[k]->stage[rank][t], shown));
    for (size_t v = 0; v < sizeof device_values / sizeof *device_values; v++) {
        family(s, device_values[v].name, "gauge", device_values[v].help);
        for (int k = 0; k < s->runs; k++)
            for (int rank = 0; rank < RANKS_MAX && !s->run[k]->ended; rank++) {
                double value = NAN;
                if (s->run[k]->has_device[rank])
                    memcpy(&value,
                           (char *)&s->run[k]->device[rank] + device_values[v].offset,
                           sizeof value);
                if (!isnan(value))
                    write_line(s, "paceline_%s{run=\"%" PRIu64 "\",rank=\"%d\"} %s\n",
                               device_values[v].name, s->run[k]->number, rank,
                               number(value, shown));
            }
    }
}

static void write_standstill(sheet_t *s, const pl_run_view_t *view)
{
    char shown[40];
    family(s, "stalled_seconds", "gauge",
           "Time since the last batch ended, if it is much longer than a step; otherwise "
           "0.");
    for (int k = 0; k < s->runs; k++)
        write_line(s, "paceline_stalled_seconds{run=\"%" PRIu64 "\"} %s\n",
                   s->run[k]->number, number(run_stalled(view, s->run[k]), shown));
    family(s, "rank_up", "gauge",
           "1, or 0 when the rank is silent, disconnected or dead.");
    for (int k = 0; k < s->runs; k++) {
        const viewed_run_t *run = s->run[k];
        for (int rank = 0; !run->ended && rank < run->ranks; rank++) {
            bool is_up = true;                 /* all ranks that share the place are up */
            for (int a = 0; a < run->absents; a++)
                is_up &= (int64_t)run->absent[a].rank * run->ranks / run->all_ranks
                         != rank;
            write_line(s, "paceline_rank_up{run=\"%" PRIu64 "\",rank=\"%d\"} %d\n",
                       run->number, rank, is_up);
        }
    }
}

/* ---- the engine ---- */

static void write_engine(sheet_t *s, const pl_run_view_t *view)
{
    static const char *const levels[] = {"error", "warning", "info"};
    family(s, "runs_started_total", "counter", "Runs that the program started.");
    write_line(s, "paceline_runs_started_total %" PRIu64 "\n", view->runs);
    family(s, "runs_ended_total", "counter", "Runs that have ended, by status.");
    for (int k = PL_RUN_STATUS_OK; k < RUN_STATUSES; k++)
        write_line(s, "paceline_runs_ended_total{status=\"%s\"} %" PRIu64 "\n",
                   pl_run_status_names[k], view->ended[k]);
    family(s, "messages_total", "counter", "Messages between actors that were seen.");
    for (int k = 0; k < PL_KINDS; k++)
        write_line(s, "paceline_messages_total{kind=\"%s\"} %" PRIu64 "\n",
                   pl_message_kinds[k], view->messages[k]);
    family(s, "messages_missed_total", "counter",
           "Messages that were dropped because too many came.");
    write_line(s, "paceline_messages_missed_total %" PRIu64 "\n", view->missing);
    family(s, "open_calls", "gauge", "Calls that actors have not answered yet.");
    for (int k = 1; k < KINDS_MAX; k++)
        if (view->kinds[k].messages)
            write_line(s, "paceline_open_calls{actor=\"%s\"} %" PRId64 "\n",
                       pl_kind_name((uint32_t)k), view->kinds[k].open);
    family(s, "log_lines_total", "counter", "Lines of the log, by level.");
    for (int k = 0; k <= PL_LOG_INFO; k++)
        write_line(s, "paceline_log_lines_total{level=\"%s\"} %" PRIu64 "\n", levels[k],
                   view->log_levels[k]);
}

char *pl_run_view_metrics(pl_run_view_t *view)
{
    sheet_t sheet = {0};
    pthread_mutex_lock(&view->lock);
    for (int k = 0; k < RUNS_MAX; k++)
        if (view->run[k])
            sheet.run[sheet.runs++] = view->run[k];
    write_engine(&sheet, view);
    write_runs(&sheet);
    write_steps(&sheet);
    write_ranks(&sheet);
    write_standstill(&sheet, view);
    pthread_mutex_unlock(&view->lock);
    if (!sheet.failed)
        return sheet.text;
    pl_free(sheet.text);
    return NULL;
}
