/* run_view_run.c - one run: its metrics, points, step times, ranks and checkpoints
 *
 * Points are kept for the whole run, however long it is: when there are too many, each
 * two neighbours are merged, and from then on a point gathers twice as many reports.  The
 * points of all runs share one bound on memory; those of the largest run are merged
 * first. */
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

/* ---- a run's life ---- */

viewed_run_t *run_new(uint64_t call, uint64_t number, double now)
{
    viewed_run_t *run = pl_alloc(sizeof *run);
    if (!run)
        return NULL;
    *run = (viewed_run_t){.call = call,
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
    return run;
}

void run_forget(viewed_run_t *run)
{
    curves_t *curves = &run->curves;
    pl_free(curves->item);
    pl_free(curves->step);
    pl_free(curves->time);
    pl_free(curves->epoch);
    for (int k = 0; k < COLUMNS_MAX; k++)
        pl_free(curves->value[k]);
    memset((char *)run + offsetof(viewed_run_t, curves), 0,
           sizeof *run - offsetof(viewed_run_t, curves));
    run->stride = 1;
    for (int k = 0; k < COLUMNS_OWN; k++)
        run->newest[k] = NAN;
}

void run_free(viewed_run_t *run)
{
    if (!run)
        return;
    run_forget(run);
    pl_text_free(run->options);
    pl_text_free(run->unread);
    run_drawings_free(run);
    pl_free(run);
}

/* ---- metrics ---- */

/* Takes the metrics of a report; `value` gets those that are points.  Names are stored as
 * they are shown: two names that look the same would be one series twice. */
static void metrics_take_values(pl_run_view_t *view, viewed_run_t *run,
                                pl_run_event_t event, const char *metrics,
                                double value[COLUMNS_MAX])
{
    json_t *all = pl_json_value(metrics, strlen(metrics), NULL), *metric;
    const char *name;
    char shown[sizeof run->name[0]];
    json_object_foreach(all, name, metric) {
        int column = COLUMNS_OWN;
        if (json_is_array(metric) || json_is_object(metric)) {
            run_drawing(view, run, name, metric);
            continue;
        }
        pl_utf8_show(name, shown, sizeof shown);
        while (column < run->columns && strcmp(run->name[column], shown) != 0)
            column++;
        if (!json_is_number(metric) || column == COLUMNS_MAX)
            continue;
        if (column == run->columns)
            strcpy(run->name[run->columns++], shown);
        const double number = json_number_value(metric);
        /* Whether the value is a point in the chart. A report has the
         * newest value of every metric: one of steps is always a point, another one
         * where it is new, or where its epoch or validation ends. */
        const size_t length = strlen(name);
        const bool is_of_epoch = length > 6 && !strcmp(name + length - 6, "_epoch"),
                   is_of_validation = !strncmp(name, "val_", 4);
        const bool is_of_steps = !is_of_epoch
                                 && (!strncmp(name, "train_loss", 10)
                                     || !strncmp(name, "lr", 2)
                                     || !strncmp(name, "grad_norm", 9));
        const bool is_point =
            number != run->newest[column] || is_of_steps
            || event == (is_of_validation ? PL_RUN_EVENT_VALIDATED : PL_RUN_EVENT_EPOCH);
        if (is_point)
            value[column] = number;
        run->newest[column] = number;
    }
    json_decref(all);
}

/* ---- points ---- */

/* Batches are fetched ahead.  Their samples count for the steps that train on them. */
void run_fetched(viewed_run_t *run, bool is_of_0, uint32_t samples)
{
    run->samples += samples;
    if (!is_of_0 || !samples)
        return;
    run->batch_size[run->fetched++ % BATCHES_AHEAD] = samples;
    run->samples_fetched += samples;
    if (run->fetched - run->trained > BATCHES_AHEAD)
        run->trained = run->fetched - 1;
}

/* Rates of the time in steps alone: validations, pauses and checkpoints between steps do
 * not count. */
static void rates_take(viewed_run_t *run, double value[COLUMNS_MAX])
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
    value[COLUMN_STEP_P50] = durations_quantile(&run->recent, 0.5);
    value[COLUMN_STEP_P95] = durations_quantile(&run->recent, 0.95);
    memset(&run->recent, 0, sizeof run->recent);
    run->counted = now;
    for (int k = 0; k < COLUMNS_OWN; k++)
        if (!isnan(value[k]))
            run->newest[k] = value[k];
}

void run_point_merge(const viewed_run_t *run, int k, curve_point_t *point)
{
    const curves_t *curves = &run->curves;
    point->time = curves->time[k];
    point->step = curves->step[k];
    point->epoch = curves->epoch[k];
    for (int c = 0; c < run->columns; c++)
        if (curves->value[c] && !isnan(curves->value[c][k]))
            point->value[c] = curves->value[c][k];
}

static void point_set(curves_t *curves, int k, uint64_t item, const curve_point_t *point)
{
    curves->item[k] = item;
    curves->time[k] = point->time;
    curves->step[k] = point->step;
    curves->epoch[k] = point->epoch;
    for (int c = 0; c < COLUMNS_MAX; c++)
        if (curves->value[c])
            curves->value[c][k] = point->value[c];
}

static void point_clear(curve_point_t *point)
{
    for (int k = 0; k < COLUMNS_MAX; k++)
        point->value[k] = NAN;
}

/* All points get new item numbers, after `rewritten`, so that a reader that has old ones
 * reads all of them again, in as many pieces as it likes. */
static void points_thin(pl_run_view_t *view, viewed_run_t *run)
{
    curves_t *curves = &run->curves;
    const int count = curves->count;
    run->rewritten = ++view->item;
    curves->count = 0;
    for (int k = 0; k < count; k += 2) {
        curve_point_t point;
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

/* On failure `capacity` stays: arrays that have grown already are larger. */
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

static int64_t cells_held(const viewed_run_t *run)
{
    return run ? run->curves.capacity * cells_per_point(&run->curves) : 0;
}

/* Frees memory for `more` cells of `run`; false: the points of `run` itself were
 * merged. */
static bool cells_free(pl_run_view_t *view, viewed_run_t *run, int64_t more)
{
    for (;;) {
        int64_t held = more;
        viewed_run_t *largest = run;
        for (int k = 0; k < RUNS_MAX; k++) {
            held += cells_held(view->run[k]);
            if (cells_held(view->run[k]) > cells_held(largest))
                largest = view->run[k];
        }
        if (held <= CELLS_MAX)
            return true;
        points_thin(view, largest);
        if (largest == run)
            return false;
        curves_resize(&largest->curves, largest->curves.capacity / 2);
    }
}

/* Adds the gathered point, unless memory is short.  A metric gets its array with its
 * first value. */
static void point_end(pl_run_view_t *view, viewed_run_t *run)
{
    enum { FIRST_CAPACITY = 256 };
    curves_t *curves = &run->curves;
    const int capacity = curves->capacity ? 2 * curves->capacity : FIRST_CAPACITY;
    run->gathered = 0;
    if (curves->count == curves->capacity && capacity > POINTS_MAX)
        points_thin(view, run);
    else if (curves->count == curves->capacity
             && cells_free(view, run,
                           (capacity - curves->capacity) * cells_per_point(curves))
             && curves_resize(curves, capacity) != PL_OK && curves->count)
        points_thin(view, run);
    if (curves->count >= curves->capacity)
        return;
    for (int k = 0; k < run->columns; k++) {
        if (curves->value[k] || isnan(run->next.value[k]))
            continue;
        cells_free(view, run, curves->capacity);
        curves->value[k] = pl_alloc_array((size_t)curves->capacity, sizeof(double));
        for (int p = 0; curves->value[k] && p < curves->capacity; p++)
            curves->value[k][p] = NAN;
    }
    point_set(curves, curves->count++, ++view->item, &run->next);
}

/* Gathers a report; in a point of several the newest value of each metric counts. */
static void point_add(pl_run_view_t *view, viewed_run_t *run, const curve_point_t *report)
{
    curve_point_t *next = &run->next;
    if (!run->gathered)
        point_clear(next);
    next->time = report->time;
    next->step = report->step;
    next->epoch = report->epoch;
    for (int k = 0; k < COLUMNS_MAX; k++)
        if (!isnan(report->value[k]))
            next->value[k] = report->value[k];
    if (++run->gathered >= run->stride)
        point_end(view, run);
}

void run_end(pl_run_view_t *view, viewed_run_t *run)
{
    if (run->gathered)
        point_end(view, run);
}

void run_pause(viewed_run_t *run, bool pauses, double now)
{
    if (pauses && !run->is_paused)
        run->paused_at = now;
    if (!pauses && run->is_paused)
        run->paused += now - run->paused_at;
    if (!pauses)
        run->held_since = 0;
    run->is_paused = pauses;
}

double run_seconds(const pl_run_view_t *view, const viewed_run_t *run)
{
    const double until = run->is_paused ? run->paused_at
                         : run->ended   ? run->ended_at
                                        : run_view_now(view);
    return until - run->began - run->paused;
}

void run_read(pl_run_view_t *view, viewed_run_t *run)
{
    curve_point_t point;
    if (run->unread)
        metrics_take_values(view, run, PL_RUN_EVENT_TRAIN, run->unread, point.value);
    pl_text_free(run->unread);
    run->unread = NULL;
}

void run_report(pl_run_view_t *view, viewed_run_t *run, const pl_run_progress_t *report,
                double now, bool is_of_stream)
{
    enum { OPTIONS_MAX = 1 << 16 };
    const pl_run_event_t event = report->event;
    const bool trains = event == PL_RUN_EVENT_TRAIN,
               ends_epoch = event == PL_RUN_EVENT_EPOCH,
               is_result = ends_epoch || event == PL_RUN_EVENT_VALIDATED;
    curve_point_t point;
    if (*report->run_dir) {
        snprintf(run->dir, sizeof run->dir, "%s", report->run_dir);
        snprintf(run->module, sizeof run->module, "%s", report->module);
        run->clip = report->clip;
        pl_text_free(run->options);                      /* a page needs no larger ones */
        run->options = *report->options && strlen(report->options) < OPTIONS_MAX
                           ? pl_strdup(report->options)
                           : NULL;
        run->options_item = ++view->item;
    }
    if (event == PL_RUN_EVENT_ALIVE || event == PL_RUN_EVENT_TEXT
        || event == PL_RUN_EVENT_TRIAL)
        return;
    if (!is_result) {
        snprintf(run->doing, sizeof run->doing, "%s", pl_run_event_names[event]);
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
    run->has_trained |= trains;
    if (trains)
        run_pause(run, false, now);                /* ranks that restarted do not pause */
    if (!is_of_stream) {                           /* batches of the program: no epoch */
        run->moved = report->batches ? (int64_t)(now * 1e9) : 0;
        pl_text_free(run->unread);
        run->unread = pl_strdup(report->metrics);
        return;
    }
    metrics_take_values(view, run, event, report->metrics, point.value);
    if (trains || ends_epoch)                               /* an epoch may be short */
        rates_take(run, point.value);
    if (trains || is_result)
        point_add(view, run, &point);
}

/* ---- steps ---- */

void run_steps_begin(viewed_run_t *run, int64_t time)
{
    const double seconds = (double)(run->step_ended - run->steps_began) * 1e-9;
    for (unsigned k = 0; run->steps_began && k < run->steps_together; k++) {
        durations_add(&run->recent, seconds / run->steps_together);
        durations_add(&run->all, seconds / run->steps_together);
    }
    run->steps_together = 0;
    run->steps_began = time;
}

/* Several short steps end together, a millisecond or two after the previous ones: each
 * took its share of that time. */
void run_step(viewed_run_t *run, int64_t time)
{
    run->steps_seen++;
    run->steps_together++;
    run->step_ended = time;
    if (time - run->steps_began >= PL_MILLISECOND)
        run_steps_begin(run, time);
}

double run_stalled(const pl_run_view_t *view, const viewed_run_t *run)
{
    enum { SECONDS_MIN = 3, TIMES = 4, UNKNOWN_SECONDS = 60 };  /* before any step */
    const double seconds = run_view_now(view) - (double)run->moved * 1e-9;
    const double usual = durations_quantile(&run->all, 0.95);
    const double bound = isnan(usual)                  ? UNKNOWN_SECONDS
                         : usual * TIMES < SECONDS_MIN ? SECONDS_MIN
                                                       : usual * TIMES;
    return run->moved && !run->ended && !run->is_paused && seconds > bound ? seconds : 0;
}

void run_gathers(viewed_run_t *run)
{
    int kept = 0;
    for (int k = 0; k < run->absents; k++) {
        const pl_rank_event_t event = run->absent[k].event;
        if (event == PL_RANK_EVENT_MUTE || event == PL_RANK_EVENT_CUT)
            run->absent[kept++] = run->absent[k];
    }
    run->absents = kept;
}

/* The text of a mute rank has no cause: the time of its last message says all. */
void run_watched(viewed_run_t *run, const pl_watch_progress_t *reported, double now)
{
    const bool is_there = reported->event == PL_RANK_EVENT_HEARD
                          || reported->event == PL_RANK_EVENT_BACK;
    absent_t *absent = NULL;
    for (int k = 0; k < run->absents; k++)
        if (run->absent[k].rank == (int)reported->rank)
            absent = &run->absent[k];
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

/* The time of a rank without the waits for other ranks. */
static double own_of(const double seconds[PL_TIMINGS])
{
    double own = 0;
    for (int k = 0; k < PL_TIMINGS; k++)
        own += k == PL_TIMING_COLLECTIVE ? 0 : seconds[k];
    return own;
}

/* spent: seconds, [ranks][PL_TIMINGS].  Of ranks that share a place the slowest
 * counts. */
void run_timings(pl_run_view_t *view, viewed_run_t *run, pl_bytes_t spent, int64_t time)
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
    if (time - run->slot_began < PL_SECOND)
        return;
    strip_slot_t *slot = &run->strip[run->slots++ % STRIP_SLOTS];
    *slot = (strip_slot_t){.item = ++view->item, .time = (double)time * 1e-9};
    for (int rank = 0; rank < run->ranks; rank++) {
        const double steps = (double)run->timed_steps;
        slot->own[rank] = (float)(own_of(run->spent[rank]) / steps);
        for (int k = 0; k < PL_TIMINGS; k++)
            run->stage[rank][k] = (float)(run->spent[rank][k] / steps);
    }
    memset(run->spent, 0, sizeof run->spent);
    run->timed_steps = 0;
    run->slot_began = time;
}

void run_device(viewed_run_t *run, int rank, const pl_measure_device_reply_t *reported)
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

void run_save(pl_run_view_t *view, viewed_run_t *run, const char *text, bool failed)
{
    int place = 0;
    if (run->saves < SAVES_MAX) {
        place = run->saves++;
    } else {                                         /* the oldest that is not there, else
                                                        the oldest, makes room */
        while (place < SAVES_MAX && !run->save[place].removed && !run->save[place].failed)
            place++;
        place %= SAVES_MAX;
        memmove(&run->save[place], &run->save[place + 1],
                (size_t)(SAVES_MAX - 1 - place) * sizeof *run->save);
        place = SAVES_MAX - 1;
    }
    save_t *save = &run->save[place];
    *save = (save_t){.item = ++view->item,
                     .number = run->saves_done + run->saves_failed,
                     .time = run_view_now(view),
                     .failed = failed};
    snprintf(save->text, sizeof save->text, "%s", text);
    run->saves_done += !failed;
    run->saves_failed += failed;
}

void run_removed(pl_run_view_t *view, viewed_run_t *run, const char *names)
{
    for (size_t length; *names; names += length + (names[length] == '\n')) {
        length = strcspn(names, "\n");
        for (int k = 0; k < run->saves; k++) {
            save_t *save = &run->save[k];
            const char *slash = strrchr(save->text, '/'),
                       *name = slash ? slash + 1 : save->text;
            if (save->removed || save->failed || strlen(name) != length
                || memcmp(name, names, length) != 0)
                continue;
            save->removed = true;
            save->item = ++view->item;
        }
    }
}
