/* board_json.c - the board as the page gets it
 *
 * Points, log lines and the like have numbers and are sent once: a page says up to which
 * it has them, also one that was away for a while.  All else is small and sent whole. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/json_text.h"
#include "base/utf8.h"
#include "sight/board_parts.h"

/* JSON knows no NaN. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Cut texts may end within a character. */
static json_t *text(const char *value)
{
    char shown[600];
    return json_string(pl_utf8_show(value, shown, sizeof shown));
}

/* The first of a ring's entries that is still there. */
static uint64_t oldest(uint64_t count, uint64_t most)
{
    return count > most ? count - most : 0;
}

/* ---- a run ---- */

static json_t *point_json(const point_t *point, int columns)
{
    json_t *row = json_pack("[f, I]", point->time, (json_int_t)point->step);
    for (int k = 0; k < columns; k++)
        json_array_append_new(row, number(point->value[k]));
    return row;
}

static json_t *points_json(const run_t *run, uint64_t since)
{
    json_t *all = json_array();
    for (int k = 0; k < run->points; k++)
        if (run->point[k].item > since)
            json_array_append_new(all, point_json(&run->point[k], run->columns));
    return all;
}

static json_t *strip_json(const run_t *run, uint64_t since)
{
    json_t *all = json_array();
    for (uint64_t k = oldest(run->slots, STRIP_SLOTS); k < run->slots; k++) {
        const strip_slot_t *slot = &run->strip[k % STRIP_SLOTS];
        if (slot->item <= since)
            continue;
        json_t *own = json_array();
        for (int rank = 0; rank < run->ranks; rank++)
            json_array_append_new(own, number((double)slot->own[rank]));
        json_array_append_new(all, json_pack("[f, o]", slot->time, own));
    }
    return all;
}

/* Of each rank what its steps took in the newest slot, by stage. */
static json_t *stages_json(const run_t *run)
{
    json_t *all = json_array();
    for (int rank = 0; run->slots && rank < run->ranks; rank++) {
        json_t *row = json_array();
        for (int k = 0; k < PL_SPENT_KINDS; k++)
            json_array_append_new(row, number((double)run->stage[rank][k]));
        json_array_append_new(all, row);
    }
    return all;
}

/* Ranks that the run has to do without: which, how and for how long. */
static json_t *absent_json(const pl_board_t *b, const run_t *run)
{
    json_t *all = json_array();
    for (int k = 0; k < run->absents && !run->ended; k++) {
        const absent_t *a = &run->absent[k];
        json_array_append_new(all, json_pack("{s:i, s:s, s:f, s:o}", "rank", a->rank,
                                             "event", a->event, "seconds",
                                             board_now(b) - a->since, "text",
                                             text(a->text)));
    }
    return all;
}

/* All of them, once one is new or changed; else none. */
static json_t *saves_json(const run_t *run, uint64_t since)
{
    json_t *all = json_array();
    bool changed = false;
    for (int k = 0; k < run->saves; k++)
        changed |= run->save[k].item > since;
    for (int k = 0; changed && k < run->saves; k++) {
        const save_t *save = &run->save[k];
        json_array_append_new(all, json_pack("{s:I, s:f, s:b, s:b, s:o}", "number",
                                             (json_int_t)save->number, "time", save->time,
                                             "failed", save->failed, "removed",
                                             save->removed, "text", text(save->text)));
    }
    return all;
}

/* A rate is as old as the steps that it was taken of. */
static double newest_of(const pl_board_t *b, const run_t *run, int column)
{
    const bool is_rate = column == COLUMN_SAMPLES_RATE || column == COLUMN_STEP_RATE;
    return is_rate && run_stalled(b, run) > 0 ? 0 : run->newest[column];
}

static json_t *columns_json(const pl_board_t *b, const run_t *run)
{
    json_t *all = json_array();
    for (int k = 0; k < run->columns; k++)
        json_array_append_new(all, json_pack("{s:o, s:o}", "name", text(run->name[k]),
                                             "newest", number(newest_of(b, run, k))));
    return all;
}

/* `whole`: the page is to forget the points that it has. */
static json_t *run_json(const pl_board_t *b, const run_t *run, uint64_t since)
{
    const bool whole = since < run->rewritten;
    json_t *all = json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:b, s:f, s:f, s:f}",
                            "number", (json_int_t)run->number, "call",
                            (json_int_t)run->call, "name", text(board_run_name(run)),
                            "dir", text(run->dir), "module", text(run->module), "doing",
                            text(run->is_paused && !run->ended ? "paused" : run->doing),
                            "error", text(run->error), "ended", run->ended, "began",
                            run->began, "seconds", run_seconds(b, run), "clip",
                            run->clip);
    json_t *more = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:b, s:o, s:o, s:f, s:o}", "step",
        (json_int_t)run->step, "total_steps", (json_int_t)run->total_steps, "epoch",
        (json_int_t)run->epoch, "batch", (json_int_t)run->batch, "batches",
        (json_int_t)run->batches, "samples", (json_int_t)run->samples, "run_p50",
        number(pl_durations_quantile(&run->all, 0.5)), "run_p95",
        number(pl_durations_quantile(&run->all, 0.95)), "whole", whole, "epochs",
        run->epochs < 0 ? json_null() : json_integer(run->epochs), "reason",
        text(run->reason), "stalled", run_stalled(b, run), "absent", absent_json(b, run));
    json_t *lists =
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "columns", columns_json(b, run), "points",
                  points_json(run, whole ? 0 : since), "strip", strip_json(run, since),
                  "stages", stages_json(run), "saves", saves_json(run, since));
    json_object_update_missing(all, more);
    json_object_update_missing(all, lists);
    json_decref(more);
    json_decref(lists);
    return all;
}

static json_t *runs_json(const pl_board_t *b, uint64_t since)
{
    json_t *all = json_array();
    for (int k = 0; k < RUNS_MOST; k++)
        if (b->run[k].call)
            json_array_append_new(all, run_json(b, &b->run[k], since));
    return all;
}

/* ---- messages ---- */

static json_t *lane_json(const pl_board_t *b, int kind)
{
    const lane_t *lane = &b->lane[kind];
    json_t *slots = json_array();
    for (int64_t slot = b->lane_slot - LANE_SLOTS + 1; slot <= b->lane_slot; slot++)
        json_array_append_new(slots,
                              json_integer(slot < 0 ? 0 : lane->slot[slot % LANE_SLOTS]));
    return json_pack("{s:o, s:i, s:I, s:I, s:o}", "name", text(pl_kind_name(kind)),
                     "level", pl_kind_level(kind), "messages", (json_int_t)lane->messages,
                     "open", (json_int_t)lane->open, "slots", slots);
}

static json_t *lanes_json(const pl_board_t *b)
{
    json_t *all = json_array();
    for (int k = 1; k < KINDS_MOST; k++)
        if (b->lane[k].messages)
            json_array_append_new(all, lane_json(b, k));
    return all;
}

static json_t *newest_json(const pl_board_t *b)
{
    json_t *all = json_array();
    for (uint64_t k = oldest(b->newest_count, NEWEST_MOST); k < b->newest_count; k++) {
        const newest_t *n = &b->newest[k % NEWEST_MOST];
        json_array_append_new(all,
                              json_pack("[f, i, s, s, s, s]", (double)n->time * 1e-9,
                                        n->rank, pl_kind_name(n->from),
                                        pl_kind_name(n->to), pl_message_kinds[n->kind],
                                        pl_message_info(n->message)->name));
    }
    return all;
}

static json_t *log_json(const pl_board_t *b, uint64_t since)
{
    static const char *const levels[] = {"error", "warning", "info", "debug"};
    json_t *all = json_array();
    for (uint64_t k = oldest(b->logs, LOG_MOST); k < b->logs; k++) {
        const log_entry_t *e = &b->log[k % LOG_MOST];
        if (e->item > since)
            json_array_append_new(all,
                                  json_pack("[f, s, i, o, o]", e->time, levels[e->level],
                                            e->rank, text(e->actor), text(e->text)));
    }
    return all;
}

char *pl_board_json(pl_board_t *b, uint64_t since, uint64_t *until)
{
    pthread_mutex_lock(&b->lock);
    *until = b->item;
    json_t *all = json_pack("{s:I, s:f, s:f, s:I, s:I, s:o, s:o, s:o, s:o}", "since",
                            (json_int_t)since, "now", board_now(b), "wall", b->wall,
                            "messages", (json_int_t)b->newest_count, "missing",
                            (json_int_t)b->missing, "runs", runs_json(b, since), "lanes",
                            lanes_json(b), "newest", newest_json(b), "log",
                            log_json(b, since));
    pthread_mutex_unlock(&b->lock);
    char *written = all ? pl_json_write(all, PL_JSON_COMPACT) : NULL;
    json_decref(all);
    return written;
}
