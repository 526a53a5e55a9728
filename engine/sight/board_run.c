/* board_run.c - what the stream has said of one run
 *
 * Points are kept for the whole run, however long it is: when there are too many, every
 * other one goes, and from then on only every other report becomes one. */
#include "sight/board_parts.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "runtime/cargo.h"

void run_release(run_t *run)
{
    pl_free(run->point);
    run->point = NULL;
}

void run_begin(run_t *run, uint64_t call, uint64_t number, double now)
{
    run_release(run);
    *run = (run_t){.call = call,
                   .number = number,
                   .doing = "start",
                   .began = now,
                   .columns = COLUMNS_OWN,
                   .stride = 1};
    for (int k = 0; k < COLUMNS_MOST; k++)
        run->newest[k] = NAN;
    for (int k = 0; k < COLUMNS_OWN; k++)
        snprintf(run->name[k], sizeof run->name[k], "%s", board_own_columns[k]);
    run->point = pl_alloc_array(POINTS_MOST, sizeof *run->point);
}

void run_describe(run_t *run, const char *effective)
{
    json_t *all = pl_json_value(effective, strlen(effective), NULL);
    const json_t *module = json_object_get(all, "module");
    const char *name = json_string_value(
        json_is_object(module) ? json_object_get(module, "name") : module);
    run->clip = json_number_value(
        json_object_get(json_object_get(all, "trainer"), "gradient_clip_val"));
    snprintf(run->module, sizeof run->module, "%s", name ? name : "");
    json_decref(all);
}

/* ---- figures ---- */

/* The column of a figure, new or not; -1: there are too many. */
static int column_of(run_t *run, const char *name)
{
    for (int k = COLUMNS_OWN; k < run->columns; k++)
        if (!strncmp(run->name[k], name, sizeof run->name[k] - 1))
            return k;
    if (run->columns == COLUMNS_MOST)
        return -1;
    snprintf(run->name[run->columns], sizeof run->name[0], "%s", name);
    return run->columns++;
}

/* A report has the newest figures of all names: those of epochs and validations are
 * points where they are new, those of steps always. */
static bool is_of_steps(const char *name)
{
    const size_t length = strlen(name);
    const bool is_of_epoch = length > 6 && !strcmp(name + length - 6, "_epoch");
    return !is_of_epoch
           && (!strncmp(name, "train_loss", 10) || !strncmp(name, "lr", 2)
               || !strncmp(name, "grad_norm", 9));
}

static void figures_take(run_t *run, const char *metrics, double value[COLUMNS_MOST])
{
    json_t *all = pl_json_value(metrics, strlen(metrics), NULL), *figure;
    const char *name;
    json_object_foreach(all, name, figure) {
        const int column = json_is_number(figure) ? column_of(run, name) : -1;
        if (column < 0)
            continue;
        const double number = json_number_value(figure);
        if (number != run->newest[column] || is_of_steps(name))
            value[column] = number;
        run->newest[column] = number;
    }
    json_decref(all);
}

/* ---- points ---- */

static void rates_take(run_t *run, double now, double value[COLUMNS_MOST])
{
    const double seconds = now - run->point_time;
    const bool goes_on = run->point_time > 0 && seconds > 0
                         && run->step > run->point_step;
    if (goes_on && run->samples > run->point_samples)
        value[COLUMN_SAMPLES_RATE] = (double)(run->samples - run->point_samples)
                                     / seconds;
    if (goes_on)
        value[COLUMN_STEP_RATE] = (double)(run->step - run->point_step) / seconds;
    value[COLUMN_STEP_P50] = pl_durations_quantile(&run->recent, 0.5);
    value[COLUMN_STEP_P95] = pl_durations_quantile(&run->recent, 0.95);
    memset(&run->recent, 0, sizeof run->recent);
    run->point_time = now;
    run->point_step = run->step;
    run->point_samples = run->samples;
    for (int k = 0; k < COLUMNS_OWN; k++)
        if (!isnan(value[k]))
            run->newest[k] = value[k];
}

static void points_thin(pl_board_t *board, run_t *run)
{
    int kept = 0;
    for (int k = 0; k < run->points; k += 2)
        run->point[kept++] = run->point[k];
    run->points = kept;
    run->stride *= 2;
    run->rewritten = ++board->item;
}

static bool is_rare(const char *event)
{
    return !strcmp(event, "validated") || !strcmp(event, "epoch");
}

static void point_add(pl_board_t *board, run_t *run, const char *event, double now,
                      const double value[COLUMNS_MOST])
{
    if (!run->point || (++run->passed < run->stride && !is_rare(event)))
        return;
    run->passed = 0;
    if (run->points == POINTS_MOST)
        points_thin(board, run);
    point_t *point = &run->point[run->points++];
    *point = (point_t){.item = ++board->item, .time = now, .step = run->step};
    memcpy(point->value, value, sizeof point->value);
}

void run_report(pl_board_t *board, run_t *run, const pl_run_progress_t *report,
                double now)
{
    double value[COLUMNS_MOST];
    if (*report->run_dir)
        snprintf(run->dir, sizeof run->dir, "%s", report->run_dir);
    if (!strcmp(report->event, "alive") || !strcmp(report->event, "text"))
        return;
    if (!is_rare(report->event)) {
        snprintf(run->doing, sizeof run->doing, "%s", report->event);
        run->batch = report->batch;
        run->batches = report->batches;
    }
    run->step = report->global_step;
    run->epoch = report->epoch;
    if (report->total_steps)
        run->total_steps = report->total_steps;
    for (int k = 0; k < COLUMNS_MOST; k++)
        value[k] = NAN;
    figures_take(run, report->metrics, value);
    const bool trains = !strcmp(report->event, "train");
    if (trains)
        rates_take(run, now, value);
    if (trains || is_rare(report->event))
        point_add(board, run, report->event, now, value);
    else
        run->point_time = 0;
}

/* ---- steps ---- */

void run_step(run_t *run, int64_t time)
{
    run->steps_seen++;
    if (run->step_ended && time > run->step_ended) {
        const double seconds = (double)(time - run->step_ended) * 1e-9;
        pl_durations_add(&run->recent, seconds);
        pl_durations_add(&run->all, seconds);
    }
    run->step_ended = time;
}

static void slot_end(pl_board_t *board, run_t *run, int64_t time)
{
    strip_slot_t *slot = &run->strip[run->slots++ % STRIP_SLOTS];
    *slot = (strip_slot_t){.item = ++board->item, .time = (double)time * 1e-9};
    for (int k = 0; k < run->ranks; k++) {
        slot->own[k] = (float)(run->own[k] / (double)run->own_steps);
        run->own[k] = 0;
    }
    run->own_steps = 0;
    run->slot_began = time;
}

/* spent: seconds, [ranks][PL_SPENT_KINDS]. */
void run_spent(pl_board_t *board, run_t *run, pl_bytes_t spent, int64_t time)
{
    const size_t of_rank = PL_SPENT_KINDS * sizeof(double);
    const size_t ranks = spent.size / of_rank;
    if (!ranks)
        return;
    if (!run->slot_began)
        run->slot_began = time;
    run->ranks = ranks < RANKS_MOST ? (int)ranks : RANKS_MOST;
    double slowest[RANKS_MOST] = {0};
    for (size_t rank = 0; rank < ranks; rank++) {
        double seconds[PL_SPENT_KINDS], own = 0;
        memcpy(seconds, (const char *)spent.data + rank * of_rank, of_rank);
        for (int k = 0; k < PL_SPENT_KINDS; k++)
            own += k == PL_SPENT_COLLECTIVE ? 0 : seconds[k];
        double *place = &slowest[rank * (size_t)run->ranks / ranks];
        *place = own > *place ? own : *place;
    }
    for (int k = 0; k < run->ranks; k++)
        run->own[k] += slowest[k];
    run->own_steps++;
    if (time - run->slot_began >= PL_SECOND)
        slot_end(board, run, time);
}

void run_save(pl_board_t *board, run_t *run, const char *text, bool failed)
{
    save_t *save = &run->save[run->saves++ % SAVES_MOST];
    *save = (save_t){.item = ++board->item, .time = board_now(board), .failed = failed};
    snprintf(save->text, sizeof save->text, "%s", text);
    run->saves_done += !failed;
    run->saves_failed += failed;
}
