/* metrics.c - the run view in Prometheus' text format
 *
 * Names, units and types as prometheus.io/docs/practices/naming has them: base units,
 * counters end in _total, one family in one piece. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "telemetry/run_view_parts.h"

typedef struct sheet {
    char *text;
    size_t length, capacity;
    bool failed;
} sheet_t;

static void write_bytes(sheet_t *s, const char *text, size_t length)
{
    if (s->capacity - s->length <= length && !s->failed) {
        const size_t capacity = s->capacity * 2 + length + 1024;
        char *grown = pl_resize(s->text, capacity);
        s->failed = !grown;
        s->text = grown ? grown : s->text;
        s->capacity = grown ? capacity : s->capacity;
    }
    if (s->failed)
        return;
    memcpy(s->text + s->length, text, length);
    s->length += length;
    s->text[s->length] = '\0';
}

static void PL_PRINTF(2, 3) write_line(sheet_t *s, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (length > 0 && (size_t)length < sizeof line)
        write_bytes(s, line, (size_t)length);
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

/* A label's value. */
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

/* ---- of each run ---- */

typedef struct run_value {
    const char *name, *type, *help;
    double (*value)(const run_t *run);
} run_value_t;

static double step_of(const run_t *run)
{
    return (double)run->step;
}

static double total_steps_of(const run_t *run)
{
    return run->total_steps ? (double)run->total_steps : NAN;
}

static double epoch_of(const run_t *run)
{
    return (double)run->epoch;
}

static double samples_of(const run_t *run)
{
    return (double)run->samples;
}

static double saves_of(const run_t *run)
{
    return (double)run->saves_done;
}

static double failed_saves_of(const run_t *run)
{
    return (double)run->saves_failed;
}

static double clip_of(const run_t *run)
{
    return run->clip > 0 ? run->clip : NAN;
}

static double living_of(const run_t *run)
{
    return run->ended ? 0 : 1;
}

static const run_value_t run_values[] = {
    {"run_active", "gauge", "1 while the run is active, 0 after its end.", living_of},
    {"global_step", "gauge", "Optimizer steps done, those before a resume included.",
     step_of},
    {"planned_steps", "gauge", "Optimizer steps that the run is to do in all.",
     total_steps_of},
    {"epoch", "gauge", "Current epoch, from 0.", epoch_of},
    {"gradient_clip", "gauge", "Norm at which gradients are clipped.", clip_of},
    {"samples_total", "counter", "Samples trained on.", samples_of},
    {"checkpoints_total", "counter", "Checkpoints that are durable.", saves_of},
    {"checkpoint_failures_total", "counter", "Checkpoints that could not be written.",
     failed_saves_of},
};

static void write_run_values(sheet_t *s, const pl_run_view_t *b)
{
    char shown[40];
    for (size_t v = 0; v < sizeof run_values / sizeof *run_values; v++) {
        const run_value_t *what = &run_values[v];
        family(s, what->name, what->type, what->help);
        for (int k = 0; k < RUNS_MAX; k++)
            if (b->run[k].call && !isnan(what->value(&b->run[k])))
                write_line(s, "paceline_%s{run=\"%" PRIu64 "\"} %s\n", what->name,
                           b->run[k].number, number(what->value(&b->run[k]), shown));
    }
}

static void write_run_info(sheet_t *s, const pl_run_view_t *b)
{
    char dir[600], module[600], status[600];
    family(s, "run_info", "gauge", "Always 1; the labels describe the run.");
    for (int k = 0; k < RUNS_MAX; k++)
        if (b->run[k].call)
            write_line(s,
                       "paceline_run_info{run=\"%" PRIu64
                       "\",run_dir=\"%s\",module=\"%s\",status=\"%s\"} 1\n",
                       b->run[k].number, quoted(b->run[k].dir, dir),
                       quoted(b->run[k].module, module), quoted(b->run[k].doing, status));
}

static void write_metrics(sheet_t *s, const pl_run_view_t *b)
{
    char name[600], shown[40];
    family(
        s, "metric", "gauge",
        "Newest value of each metric, such as train_loss, lr-adamw, grad_norm, val_acc.");
    for (int k = 0; k < RUNS_MAX; k++)
        for (int c = COLUMNS_OWN; b->run[k].call && c < b->run[k].columns; c++)
            write_line(s, "paceline_metric{run=\"%" PRIu64 "\",name=\"%s\"} %s\n",
                       b->run[k].number, quoted(b->run[k].name[c], name),
                       number(b->run[k].newest[c], shown));
}

static void write_steps_of(sheet_t *s, const run_t *run)
{
    static const double bounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                    0.01,   0.025,   0.05,   0.1,   0.25,   0.5,
                                    1,      2.5,     5,      10,    30,     60};
    char shown[40];
    for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++)
        write_line(s,
                   "paceline_step_seconds_bucket{run=\"%" PRIu64 "\",le=\"%s\"} %" PRIu64
                   "\n",
                   run->number, number(bounds[k], shown),
                   pl_durations_within(&run->all, bounds[k]));
    write_line(s,
               "paceline_step_seconds_bucket{run=\"%" PRIu64 "\",le=\"+Inf\"} %" PRIu64
               "\n",
               run->number, run->all.count);
    write_line(s, "paceline_step_seconds_sum{run=\"%" PRIu64 "\"} %s\n", run->number,
               number(run->all.sum, shown));
    write_line(s, "paceline_step_seconds_count{run=\"%" PRIu64 "\"} %" PRIu64 "\n",
               run->number, run->all.count);
}

static void write_steps(sheet_t *s, const pl_run_view_t *b)
{
    family(s, "step_seconds", "histogram",
           "Time of each step of the run, from the end of the previous step or the start "
           "of the epoch.");
    for (int k = 0; k < RUNS_MAX; k++)
        if (b->run[k].call)
            write_steps_of(s, &b->run[k]);
}

static void write_stages_of(sheet_t *s, const run_t *run)
{
    char shown[40];
    for (int rank = 0; run->slots && rank < run->ranks; rank++)
        for (int k = 0; k < PL_TIMINGS; k++)
            write_line(s,
                       "paceline_rank_stage_seconds{run=\"%" PRIu64
                       "\",rank=\"%d\",stage=\"%s\"} %s\n",
                       run->number, rank, pl_timing_names[k],
                       number((double)run->stage[rank][k], shown));
}

static void write_ranks(sheet_t *s, const pl_run_view_t *b)
{
    char shown[40];
    family(s, "rank_own_seconds", "gauge",
           "Time of a step of a rank without waits for other ranks, newest second.");
    for (int k = 0; k < RUNS_MAX; k++) {
        const run_t *run = &b->run[k];
        if (!run->call || !run->slots)
            continue;
        const strip_slot_t *slot = &run->strip[(run->slots - 1) % STRIP_SLOTS];
        for (int rank = 0; rank < run->ranks; rank++)
            write_line(s,
                       "paceline_rank_own_seconds{run=\"%" PRIu64 "\",rank=\"%d\"} %s\n",
                       run->number, rank, number((double)slot->own[rank], shown));
    }
    family(s, "rank_stage_seconds", "gauge",
           "Time of a step of a rank in each stage, newest second.");
    for (int k = 0; k < RUNS_MAX; k++)
        if (b->run[k].call)
            write_stages_of(s, &b->run[k]);
}

typedef struct device_value {
    const char *name, *help;
    size_t offset;                                          /* in pl_device_stats_t */
} device_value_t;

static const device_value_t device_values[] = {
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

/* The value of a device; NaN: unknown, or the run has ended. */
static double device_value(const run_t *run, int rank, const device_value_t *what)
{
    double value = NAN;
    if (run->call && !run->ended && run->has_device[rank])
        memcpy(&value, (const char *)&run->device[rank] + what->offset, sizeof value);
    return value;
}

static void write_devices(sheet_t *s, const pl_run_view_t *b)
{
    char shown[40];
    for (size_t v = 0; v < sizeof device_values / sizeof *device_values; v++) {
        const device_value_t *what = &device_values[v];
        family(s, what->name, "gauge", what->help);
        for (int k = 0; k < RUNS_MAX; k++)
            for (int rank = 0; rank < RANKS_MAX; rank++) {
                const double value = device_value(&b->run[k], rank, what);
                if (!isnan(value))
                    write_line(s, "paceline_%s{run=\"%" PRIu64 "\",rank=\"%d\"} %s\n",
                               what->name, b->run[k].number, rank, number(value, shown));
            }
    }
}

/* Of ranks that share a place all are. */
static bool is_up(const run_t *run, int place)
{
    bool is_up = true;
    for (int k = 0; k < run->absents; k++)
        is_up &= (int64_t)run->absent[k].rank * run->ranks / run->all_ranks != place;
    return is_up;
}

static void write_standstill(sheet_t *s, const pl_run_view_t *b)
{
    char shown[40];
    family(s, "stalled_seconds", "gauge",
           "Time since the last batch ended, if it is much longer than a step; otherwise "
           "0.");
    for (int k = 0; k < RUNS_MAX; k++)
        if (b->run[k].call)
            write_line(s, "paceline_stalled_seconds{run=\"%" PRIu64 "\"} %s\n",
                       b->run[k].number, number(run_stalled(b, &b->run[k]), shown));
    family(s, "rank_up", "gauge",
           "1, or 0 when the rank is silent, disconnected or dead.");
    for (int k = 0; k < RUNS_MAX; k++)
        for (int rank = 0; b->run[k].call && !b->run[k].ended && rank < b->run[k].ranks;
             rank++)
            write_line(s, "paceline_rank_up{run=\"%" PRIu64 "\",rank=\"%d\"} %d\n",
                       b->run[k].number, rank, is_up(&b->run[k], rank));
}

/* ---- of the engine ---- */

static void write_engine(sheet_t *s, const pl_run_view_t *b)
{
    static const char *const levels[] = {"error", "warning", "info"};
    family(s, "runs_started_total", "counter", "Runs that the program started.");
    write_line(s, "paceline_runs_started_total %" PRIu64 "\n", b->runs);
    family(s, "runs_ended_total", "counter", "Runs that have ended, by status.");
    for (int k = 0; k < 3; k++)
        write_line(s, "paceline_runs_ended_total{status=\"%s\"} %" PRIu64 "\n",
                   run_view_ended[k], b->ended[k]);
    family(s, "messages_total", "counter", "Messages between actors that were seen.");
    for (int k = 0; k < PL_KINDS; k++)
        write_line(s, "paceline_messages_total{kind=\"%s\"} %" PRIu64 "\n",
                   pl_message_kinds[k], b->messages[k]);
    family(s, "messages_missed_total", "counter",
           "Messages that were dropped because too many came.");
    write_line(s, "paceline_messages_missed_total %" PRIu64 "\n", b->missing);
    family(s, "open_calls", "gauge", "Calls that actors have not answered yet.");
    for (int k = 1; k < KINDS_MAX; k++)
        if (b->kinds[k].messages)
            write_line(s, "paceline_open_calls{actor=\"%s\"} %" PRId64 "\n",
                       pl_kind_name((uint32_t)k), b->kinds[k].open);
    family(s, "log_lines_total", "counter", "Lines of the log, by level.");
    for (int k = 0; k <= PL_LOG_INFO; k++)
        write_line(s, "paceline_log_lines_total{level=\"%s\"} %" PRIu64 "\n", levels[k],
                   b->log_levels[k]);
}

char *pl_run_view_metrics(pl_run_view_t *view)
{
    sheet_t sheet = {0};
    pthread_mutex_lock(&view->lock);
    write_engine(&sheet, view);
    write_run_info(&sheet, view);
    write_run_values(&sheet, view);
    write_metrics(&sheet, view);
    write_steps(&sheet, view);
    write_ranks(&sheet, view);
    write_devices(&sheet, view);
    write_standstill(&sheet, view);
    pthread_mutex_unlock(&view->lock);
    if (!sheet.failed)
        return sheet.text;
    pl_free(sheet.text);
    return NULL;
}
