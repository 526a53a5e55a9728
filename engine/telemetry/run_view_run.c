/* run_view_run.c - what the stream has said of one run
 *
 * Points are kept for the whole run, however long it is: when there are too many, two
 * neighbours become one, and from then on a point gathers twice as many reports.  The
 * points of all runs share one bound on memory; the run that holds most pays first. */
#include "telemetry/run_view_parts.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "runtime/payload.h"

void run_release(run_t *run)
{
    curves_t *curves = &run->curves;
    pl_free(curves->item);
    pl_free(curves->step);
    pl_free(curves->time);
    pl_free(curves->epoch);
    for (int k = 0; k < COLUMNS_MAX; k++)
        pl_free(curves->value[k]);
    *curves = (curves_t){0};
    pl_text_free(run->options);
    run->options = NULL;
}

void run_begin(run_t *run, uint64_t call, uint64_t number, double now)
{
    run_release(run);
    *run = (run_t){.call = call,
                   .number = number,
                   .doing = "start",
                   .began = now,
                   .epochs = -1,
                   .columns = COLUMNS_OWN,
                   .stride = 1};
    for (int k = 0; k < COLUMNS_MAX; k++)
        run->newest[k] = NAN;
    for (int k = 0; k < COLUMNS_OWN; k++)
        snprintf(run->name[k], sizeof run->name[k], "%s", run_view_own_columns[k]);
}

/* ---- metrics ---- */

/* The column of a metric, new or not; -1: there are too many.  Names are kept as they are
 * shown: two that look the same would be one series twice. */
static int column_of(run_t *run, const char *name)
{
    char shown[sizeof run->name[0]];
    pl_utf8_show(name, shown, sizeof shown);
    for (int k = COLUMNS_OWN; k < run->columns; k++)
        if (!strcmp(run->name[k], shown))
            return k;
    if (run->columns == COLUMNS_MAX)
        return -1;
    strcpy(run->name[run->columns], shown);
    return run->columns++;
}

/* A report has the newest metrics of all names: those of epochs and validations are
 * points where they are told or new, those of steps always. */
static bool is_of_steps(const char *name)
{
    const size_t length = strlen(name);
    const bool is_of_epoch = length > 6 && !strcmp(name + length - 6, "_epoch");
    return !is_of_epoch
           && (!strncmp(name, "train_loss", 10) || !strncmp(name, "lr", 2)
               || !strncmp(name, "grad_norm", 9));
}

static bool is_reported_by(pl_run_event_t event, const char *name)
{
    const bool is_validation = !strncmp(name, "val_", 4);
    return event == (is_validation ? PL_RUN_EVENT_VALIDATED : PL_RUN_EVENT_EPOCH);
}

static void metrics_take_values(run_t *run, pl_run_event_t event, const char *metrics,
                                double value[COLUMNS_MAX])
{
    json_t *all = pl_json_value(metrics, strlen(metrics), NULL), *metric;
    const char *name;
    json_object_foreach(all, name, metric) {
        const int column = json_is_number(metric) ? column_of(run, name) : -1;
        if (column < 0)
            continue;
        const double number = json_number_value(metric);
        if (number != run->newest[column] || is_of_steps(name)
            || is_reported_by(event, name))
            value[column] = number;
        run->newest[column] = number;
    }
    json_decref(all);
}

/* ---- points ---- */

/* Batches are fetched ahead, and belong to the steps that they are trained on in. */
void run_fetched(run_t *run, bool is_of_0, uint32_t samples)
{
    run->samples += samples;
    if (!is_of_0 || !samples)
        return;
    run->batch_size[run->fetched++ % BATCHES_AHEAD] = samples;
    run->samples_fetched += samples;
    if (run->fetched - run->trained > BATCHES_AHEAD)
        run->trained = run->fetched - 1;
}

void run_trained(run_t *run)
{
    if (run->trained < run->fetched)
        run->samples_trained += run->batch_size[run->trained++ % BATCHES_AHEAD];
}

/* Of the time in steps alone: validations, pauses and checkpoints between them are not
 * counted. */
static void rates_take(run_t *run, double value[COLUMNS_MAX])
{
    const counted_t now = {.samples = run->samples_trained,
                           .steps = run->steps_seen,
                           .timed = run->all.count,
                           .seconds = run->all.sum},
                    *then = &run->counted;
    if (now.timed > then->timed && now.seconds > then->seconds) {
        const double rate = (double)(now.timed - then->timed)
                            / (now.seconds - then->seconds);
        value[COLUMN_STEP_RATE] = rate;
        if (now.samples > then->samples)
            value[COLUMN_SAMPLES_RATE] = rate * (double)(now.samples - then->samples)
                                         / (double)(now.steps - then->steps)
                                         * (double)run->samples
                                         / (double)run->samples_fetched;
    }
    value[COLUMN_STEP_P50] = pl_durations_quantile(&run->recent, 0.5);
    value[COLUMN_STEP_P95] = pl_durations_quantile(&run->recent, 0.95);
    memset(&run->recent, 0, sizeof run->recent);
    run->counted = now;
    for (int k = 0; k < COLUMNS_OWN; k++)
        if (!isnan(value[k]))
            run->newest[k] = value[k];
}

/* The newer value counts; one that is missing there stays. */
static void point_merge(point_t *point, const point_t *newer)
{
    point->time = newer->time;
    point->step = newer->step;
    point->epoch = newer->epoch;
    for (int k = 0; k < COLUMNS_MAX; k++)
        if (!isnan(newer->value[k]))
            point->value[k] = newer->value[k];
}

void run_point_merge(const run_t *run, int k, point_t *point)
{
    const curves_t *curves = &run->curves;
    point->time = curves->time[k];
    point->step = curves->step[k];
    point->epoch = curves->epoch[k];
    for (int c = 0; c < run->columns; c++)
        if (curves->value[c] && !isnan(curves->value[c][k]))
            point->value[c] = curves->value[c][k];
}

static void point_set(curves_t *curves, int k, uint64_t item, const point_t *point)
{
    curves->item[k] = item;
    curves->time[k] = point->time;
    curves->step[k] = point->step;
    curves->epoch[k] = point->epoch;
    for (int c = 0; c < COLUMNS_MAX; c++)
        if (curves->value[c])
            curves->value[c][k] = point->value[c];
}

static void point_clear(point_t *point)
{
    for (int k = 0; k < COLUMNS_MAX; k++)
        point->value[k] = NAN;
}

/* All of them get new numbers, behind `rewritten`: whoever has old ones takes them again,
 * in as many parts as it likes. */
static void points_thin(pl_run_view_t *view, run_t *run)
{
    curves_t *curves = &run->curves;
    const int count = curves->count;
    run->rewritten = ++view->item;
    curves->count = 0;
    for (int k = 0; k < count; k += 2) {
        point_t point;
        point_clear(&point);
        run_point_merge(run, k, &point);
        if (k + 1 < count)
            run_point_merge(run, k + 1, &point);
        point_set(curves, curves->count++, ++view->item, &point);
    }
    run->stride *= 2;
}

static int array_resize(void *array_p, int capacity)
{
    void **array = array_p, *resized = pl_resize(*array, (size_t)capacity * 8);
    if (!resized)
        return PL_ENOMEM;
    *array = resized;
    return PL_OK;
}

/* Arrays that have grown before one that cannot are larger than `capacity` says. */
static int curves_resize(curves_t *curves, int capacity)
{
    int code = array_resize(&curves->item, capacity);
    if (code == PL_OK)
        code = array_resize(&curves->step, capacity);
    if (code == PL_OK)
        code = array_resize(&curves->time, capacity);
    if (code == PL_OK)
        code = array_resize(&curves->epoch, capacity);
    for (int k = 0; k < COLUMNS_MAX && code == PL_OK; k++)
        if (curves->value[k])
            code = array_resize(&curves->value[k], capacity);
    if (code == PL_OK)
        curves->capacity = capacity;
    return code;
}

static int64_t cells_per_point(const curves_t *curves)
{
    int64_t cells = 4;
    for (int k = 0; k < COLUMNS_MAX; k++)
        cells += curves->value[k] != NULL;
    return cells;
}

static int64_t cells_held(const curves_t *curves)
{
    return curves->capacity * cells_per_point(curves);
}

/* Frees memory for `more` cells of `run`; false: `run` itself has become shorter. */
static bool cells_free(pl_run_view_t *view, run_t *run, int64_t more)
{
    for (;;) {
        int64_t held = more;
        run_t *largest = run;
        for (int k = 0; k < RUNS_MAX; k++) {
            held += cells_held(&view->run[k].curves);
            if (cells_held(&view->run[k].curves) > cells_held(&largest->curves))
                largest = &view->run[k];
        }
        if (held <= CELLS_MAX)
            return true;
        points_thin(view, largest);
        if (largest == run)
            return false;
        curves_resize(&largest->curves, largest->curves.capacity / 2);
    }
}

/* False: without memory the point is lost. */
static bool curves_grow(pl_run_view_t *view, run_t *run)
{
    enum { FIRST_CAPACITY = 256 };
    curves_t *curves = &run->curves;
    const int capacity = curves->capacity ? 2 * curves->capacity : FIRST_CAPACITY;
    if (curves->count < curves->capacity)
        return true;
    if (capacity > POINTS_MAX)
        points_thin(view, run);
    else if (cells_free(view, run,
                        (capacity - curves->capacity) * cells_per_point(curves))
             && curves_resize(curves, capacity) != PL_OK && curves->count)
        points_thin(view, run);
    return curves->count < curves->capacity;
}

static void columns_begin(pl_run_view_t *view, run_t *run, const point_t *point)
{
    curves_t *curves = &run->curves;
    for (int k = 0; k < run->columns; k++) {
        if (curves->value[k] || isnan(point->value[k]))
            continue;
        cells_free(view, run, curves->capacity);
        curves->value[k] = pl_alloc_array((size_t)curves->capacity, sizeof(double));
        for (int p = 0; curves->value[k] && p < curves->capacity; p++)
            curves->value[k][p] = NAN;
    }
}

static void point_end(pl_run_view_t *view, run_t *run)
{
    if (curves_grow(view, run)) {
        columns_begin(view, run, &run->next);
        point_set(&run->curves, run->curves.count++, ++view->item, &run->next);
    }
    run->gathered = 0;
}

static void point_add(pl_run_view_t *view, run_t *run, const point_t *report)
{
    if (run->gathered)
        point_merge(&run->next, report);
    else
        run->next = *report;
    if (++run->gathered >= run->stride)
        point_end(view, run);
}

void run_end(pl_run_view_t *view, run_t *run)
{
    if (run->gathered)
        point_end(view, run);
}

void run_pause(run_t *run, bool pauses, double now)
{
    if (pauses && !run->is_paused)
        run->paused_at = now;
    if (!pauses && run->is_paused)
        run->paused += now - run->paused_at;
    run->is_paused = pauses;
}

double run_seconds(const pl_run_view_t *view, const run_t *run)
{
    const double until = run->is_paused ? run->paused_at
                         : run->ended   ? run->ended_at
                                        : run_view_now(view);
    return until - run->began - run->paused;
}

static bool is_rare(pl_run_event_t event)
{
    return event == PL_RUN_EVENT_VALIDATED || event == PL_RUN_EVENT_EPOCH;
}

/* Without memory, and of a size that no page needs, they are unknown. */
static void options_keep(pl_run_view_t *view, run_t *run, const char *options)
{
    enum { OPTIONS_MAX = 1 << 16 };
    pl_text_free(run->options);
    run->options = *options && strlen(options) < OPTIONS_MAX ? pl_strdup(options) : NULL;
    run->options_item = ++view->item;
}

void run_report(pl_run_view_t *view, run_t *run, const pl_run_progress_t *report,
                double now)
{
    point_t point;
    if (*report->run_dir) {
        snprintf(run->dir, sizeof run->dir, "%s", report->run_dir);
        snprintf(run->module, sizeof run->module, "%s", report->module);
        run->clip = report->clip;
        options_keep(view, run, report->options);
    }
    if (report->event == PL_RUN_EVENT_ALIVE || report->event == PL_RUN_EVENT_TEXT)
        return;
    if (!is_rare(report->event)) {
        snprintf(run->doing, sizeof run->doing, "%s", pl_run_event_names[report->event]);
        run->batch = report->batch;
        run->batches = report->batches;
    }
    run->step = report->global_step;
    run->epoch = report->epoch;
    if (report->total_steps)
        run->total_steps = report->total_steps;
    point_clear(&point);
    point.time = now;
    point.step = report->global_step;
    point.epoch = report->epoch
                  + (report->batches ? (double)report->batch / report->batches : 0);
    metrics_take_values(run, report->event, report->metrics, point.value);
    const bool trains = report->event == PL_RUN_EVENT_TRAIN;
    run->has_trained |= trains;
    if (trains)
        run_pause(run, false, now);               /* one that began anew does not pause */
    if (trains || report->event == PL_RUN_EVENT_EPOCH)  /* which may be short */
        rates_take(run, point.value);
    if (trains || is_rare(report->event))
        point_add(view, run, &point);
}

/* ---- steps ---- */

void run_steps_begin(run_t *run, int64_t time)
{
    const double seconds = (double)(run->step_ended - run->steps_began) * 1e-9;
    for (unsigned k = 0; run->steps_began && k < run->steps_together; k++) {
        pl_durations_add(&run->recent, seconds / run->steps_together);
        pl_durations_add(&run->all, seconds / run->steps_together);
    }
    run->steps_together = 0;
    run->steps_began = time;
}

/* Of short steps several are told at once, a millisecond or two after the last that were:
 * each of them took its share of that. */
void run_step(run_t *run, int64_t time)
{
    run->steps_seen++;
    run->steps_together++;
    run->step_ended = time;
    if (time - run->steps_began >= PL_MILLISECOND)
        run_steps_begin(run, time);
}

double run_stalled(const pl_run_view_t *view, const run_t *run)
{
    enum { SECONDS_MIN = 3, TIMES = 4, UNKNOWN_SECONDS = 60 };  /* before any step */
    const double seconds = run_view_now(view) - (double)run->moved * 1e-9;
    const double usual = pl_durations_quantile(&run->all, 0.95);
    const double bound = isnan(usual)                  ? UNKNOWN_SECONDS
                         : usual * TIMES < SECONDS_MIN ? SECONDS_MIN
                                                       : usual * TIMES;
    return run->moved && !run->ended && !run->is_paused && seconds > bound ? seconds : 0;
}

static absent_t *absent_of(run_t *run, int rank)
{
    for (int k = 0; k < run->absents; k++)
        if (run->absent[k].rank == rank)
            return &run->absent[k];
    return NULL;
}

void run_gathers(run_t *run)
{
    int kept = 0;
    for (int k = 0; k < run->absents; k++) {
        const pl_rank_event_t event = run->absent[k].event;
        if (event == PL_RANK_EVENT_MUTE || event == PL_RANK_EVENT_CUT)
            run->absent[kept++] = run->absent[k];
    }
    run->absents = kept;
}

/* Of one that is mute `since` says it all. */
void run_watched(run_t *run, const pl_watch_progress_t *reported, double now)
{
    const bool is_there = reported->event == PL_RANK_EVENT_HEARD
                          || reported->event == PL_RANK_EVENT_BACK;
    absent_t *absent = absent_of(run, (int)reported->rank);
    if (is_there && absent)
        *absent = run->absent[--run->absents];
    if (is_there || (!absent && run->absents == ABSENT_MAX))
        return;
    if (!absent)
        absent = &run->absent[run->absents++];
    *absent = (absent_t){.rank = (int)reported->rank,
                         .event = reported->event,
                         .since = now - reported->seconds};
    const bool says_more = *reported->cause && reported->event != PL_RANK_EVENT_MUTE;
    snprintf(absent->text, sizeof absent->text, "%s%sprocess %u%s%s",
             says_more ? reported->cause : "", says_more ? "; " : "", reported->process,
             *reported->host ? " on " : "", reported->host);
}

static double own_of(const double seconds[PL_TIMINGS])
{
    double own = 0;
    for (int k = 0; k < PL_TIMINGS; k++)
        own += k == PL_TIMING_COLLECTIVE ? 0 : seconds[k];
    return own;
}

static void slot_end(pl_run_view_t *view, run_t *run, int64_t time)
{
    const double steps = (double)run->timed_steps;
    strip_slot_t *slot = &run->strip[run->slots++ % STRIP_SLOTS];
    *slot = (strip_slot_t){.item = ++view->item, .time = (double)time * 1e-9};
    for (int rank = 0; rank < run->ranks; rank++) {
        slot->own[rank] = (float)(own_of(run->spent[rank]) / steps);
        for (int k = 0; k < PL_TIMINGS; k++)
            run->stage[rank][k] = (float)(run->spent[rank][k] / steps);
    }
    memset(run->spent, 0, sizeof run->spent);
    run->timed_steps = 0;
    run->slot_began = time;
}

/* spent: seconds, [ranks][PL_TIMINGS].  Of ranks that share a place the slowest. */
void run_timings(pl_run_view_t *view, run_t *run, pl_bytes_t spent, int64_t time)
{
    double slowest[RANKS_MAX][PL_TIMINGS] = {0}, seconds[PL_TIMINGS];
    const size_t ranks = spent.size / sizeof seconds;
    if (!ranks)
        return;
    if (!run->slot_began)
        run->slot_began = time;
    run->all_ranks = (int)ranks;
    run->ranks = ranks < RANKS_MAX ? (int)ranks : RANKS_MAX;
    for (size_t rank = 0; rank < ranks; rank++) {
        double *place = slowest[rank * (size_t)run->ranks / ranks];
        memcpy(seconds, (const char *)spent.data + rank * sizeof seconds, sizeof seconds);
        if (own_of(seconds) >= own_of(place))
            memcpy(place, seconds, sizeof seconds);
    }
    for (int rank = 0; rank < run->ranks; rank++)
        for (int k = 0; k < PL_TIMINGS; k++)
            run->spent[rank][k] += slowest[rank][k];
    run->timed_steps++;
    if (time - run->slot_began >= PL_SECOND)
        slot_end(view, run, time);
}

/* Room for one more: in place of the oldest that is no more, or of the oldest. */
static save_t *save_reserve(run_t *run)
{
    int gone = 0;
    if (run->saves < SAVES_MAX)
        return &run->save[run->saves++];
    while (gone < SAVES_MAX && !run->save[gone].removed && !run->save[gone].failed)
        gone++;
    gone %= SAVES_MAX;
    memmove(&run->save[gone], &run->save[gone + 1],
            (size_t)(SAVES_MAX - 1 - gone) * sizeof *run->save);
    return &run->save[SAVES_MAX - 1];
}

void run_device(run_t *run, int rank, const pl_measure_device_reply_t *reported)
{
    if (rank < 0 || rank >= RANKS_MAX)
        return;
    run->has_device[rank] = true;
    run->device[rank] = (pl_device_stats_t){.memory_used = reported->memory_used,
                                            .memory_total = reported->memory_total,
                                            .utilization = reported->utilization,
                                            .power = reported->power,
                                            .temperature = reported->temperature};
}

void run_save(pl_run_view_t *view, run_t *run, const char *text, bool failed)
{
    save_t *save = save_reserve(run);
    *save = (save_t){.item = ++view->item,
                     .number = run->saves_done + run->saves_failed,
                     .time = run_view_now(view),
                     .failed = failed};
    snprintf(save->text, sizeof save->text, "%s", text);
    run->saves_done += !failed;
    run->saves_failed += failed;
}

static bool is_called(const save_t *save, const char *name, size_t length)
{
    const char *slash = strrchr(save->text, '/'), *own = slash ? slash + 1 : save->text;
    return !save->failed && strlen(own) == length && !memcmp(own, name, length);
}

void run_removed(pl_run_view_t *view, run_t *run, const char *names)
{
    for (size_t length; *names; names += length + (names[length] == '\n')) {
        length = strcspn(names, "\n");
        for (int k = 0; k < run->saves; k++) {
            save_t *save = &run->save[k];
            if (save->removed || !is_called(save, names, length))
                continue;
            save->removed = true;
            save->item = ++view->item;
        }
    }
}
