/* profile.c - where the time of a rank goes: how long handlers run, by stage, actor and
 * message
 *
 * A few dozen rows, so they are looked for one after the other under a lock; without a
 * profile nothing of this happens. */
#include "runtime/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"
#include "runtime/message.h"
#include "runtime/payload.h"

enum { SHOWN = 24, NAME = 80 };                             /* shown: of each part */

/* What is of no stage. */
enum { SAVING = PL_PREDICT + 1, LOGGING, CALLBACKS, AMONG_RANKS, REST };

static const char *stage_name(int stage)
{
    static const char *const others[] = {"save", "log", "callbacks", "ranks", "rest"};
    return stage < SAVING ? pl_stages[stage].verb : others[stage - SAVING];
}

static void profile_release(pl_object_t *object)
{
    pl_profile_t *profile = (pl_profile_t *)object;
    pthread_mutex_destroy(&profile->lock);
    pl_free(profile);
}

pl_profile_t *pl_profile_new(pl_error_t *err)
{
    pl_profile_t *profile = pl_alloc(sizeof *profile);
    if (!profile) {
        pl_no_memory(err);
        return NULL;
    }
    pl_object_init(&profile->object, profile_release);
    pthread_mutex_init(&profile->lock, NULL);
    profile->began = pl_now();
    return profile;
}

/* ---- Counting ---- */

static int stage_of_batch(const pl_object_t *batch)
{
    return batch ? (int)((const pl_batch_t *)batch)->stage : PL_TRAIN;
}

static int stage_row(uint32_t stage)
{
    return stage <= PL_PREDICT ? (int)stage : REST;
}

static int stage_of(uint32_t message, const pl_body_t *fields)
{
    switch (message) {
    case PL_MESSAGE_train_epoch:
    case PL_MESSAGE_observe_metrics: return PL_TRAIN;
    case PL_MESSAGE_train_batch: return stage_of_batch(fields->train_batch.batch);
    case PL_MESSAGE_replay_plan: return stage_of_batch(fields->replay_plan.batch);
    case PL_MESSAGE_read_batch: return stage_of_batch(fields->read_batch.batch);
    case PL_MESSAGE_begin: return stage_row(fields->begin.stage);
    case PL_MESSAGE_fetch_batch: return stage_row(fields->fetch_batch.stage);
    case PL_MESSAGE_evaluate: return stage_row(fields->evaluate.stage);
    case PL_MESSAGE_evaluate_batch: return stage_row(fields->evaluate_batch.stage);
    case PL_MESSAGE_get_state:
    case PL_MESSAGE_export_weights:
    case PL_MESSAGE_read_region:
    case PL_MESSAGE_save:
    case PL_MESSAGE_save_checkpoint:
    case PL_MESSAGE_write_checkpoint:
    case PL_MESSAGE_write_weights: return SAVING;
    case PL_MESSAGE_log_metrics:
    case PL_MESSAGE_log_weights:
    case PL_MESSAGE_write_records: return LOGGING;
    case PL_MESSAGE_run_hook: return CALLBACKS;
    case PL_MESSAGE_all_gather:
    case PL_MESSAGE_all_reduce:
    case PL_MESSAGE_barrier:
    case PL_MESSAGE_broadcast:
    case PL_MESSAGE_decide:
    case PL_MESSAGE_reduce_scatter: return AMONG_RANKS;
    default: return REST;
    }
}

static bool is_row(const pl_profile_row_t *row, const pl_profile_row_t *key)
{
    return row->stage == key->stage && row->kind == key->kind
           && row->message == key->message && row->answer == key->answer
           && !strcmp(row->what, key->what);
}

/* What a plan is for is worth a row of its own. */
pl_profile_row_t *pl_profile_row(pl_profile_t *profile, uint32_t kind, uint32_t message,
                                 const void *fields, bool answer)
{
    pl_profile_row_t key = {.kind = kind, .message = message, .answer = answer};
    int k = 0;
    if (!profile)
        return NULL;
    key.stage = stage_of(message, fields);
    if (message == PL_MESSAGE_replay_plan && !answer)
        snprintf(key.what, sizeof key.what, "%s",
                 ((const pl_replay_plan_t *)fields)->what);
    pthread_mutex_lock(&profile->lock);
    while (k < profile->count && !is_row(&profile->row[k], &key))
        k++;
    if (k == profile->count && k < PL_PROFILE_ROWS)
        profile->row[profile->count++] = key;
    pthread_mutex_unlock(&profile->lock);
    return k < PL_PROFILE_ROWS ? &profile->row[k] : NULL;
}

void pl_profile_add(pl_profile_t *profile, pl_profile_row_t *row, int64_t time)
{
    pthread_mutex_lock(&profile->lock);
    row->count++;
    row->total += time;
    if (time > row->longest)
        row->longest = time;
    pthread_mutex_unlock(&profile->lock);
}

/* ---- The table ---- */

static int by_part_and_total(const void *a, const void *b)
{
    const pl_profile_row_t *x = a, *y = b;
    if (x->stage != y->stage)
        return x->stage - y->stage;
    return (x->total < y->total) - (x->total > y->total);
}

/* "replay_plan forward_backward", "answer to fetch_batch" */
static void row_name(const pl_profile_row_t *row, char text[NAME])
{
    snprintf(text, NAME, "%s%s%s%s", row->answer ? "answer to " : "",
             pl_message_info(row->message)->name, *row->what ? " " : "", row->what);
}

/* "12 us", "3.4 ms", "1.20 s" */
static const char *time_text(double ns, char text[24])
{
    if (ns < 1e6)
        snprintf(text, 24, "%.1f us", ns / 1e3);
    else if (ns < 1e9)
        snprintf(text, 24, "%.1f ms", ns / 1e6);
    else
        snprintf(text, 24, "%.2f s", ns / 1e9);
    return text;
}

/* Where it is written, and what the shares are of. */
typedef struct table {
    int rank;
    double wall;                                            /* ns */
} table_t;

static void row_log(const table_t *t, const pl_profile_row_t *row)
{
    char name[NAME], mean[24], longest[24], total[24];
    row_name(row, name);
    pl_log_line(PL_LOG_INFO, t->rank, "", "    %-24s %-30s %9llu %10s %10s %10s %6.1f %%",
                pl_kind_name(row->kind), name, (unsigned long long)row->count,
                time_text((double)row->total / (double)row->count, mean),
                time_text((double)row->longest, longest),
                time_text((double)row->total, total), 100 * (double)row->total / t->wall);
}

/* A part's rows behind their sum. */
static void stage_log(const table_t *t, const pl_profile_row_t *row, int count)
{
    char text[24];
    double total = 0;
    for (int k = 0; k < count; k++)
        total += (double)row[k].total;
    pl_log_line(PL_LOG_INFO, t->rank, "", "  %-88s %10s %6.1f %%", stage_name(row->stage),
                time_text(total, text), 100 * total / t->wall);
    for (int k = 0; k < count && k < SHOWN; k++)
        row_log(t, &row[k]);
}

void pl_profile_log(pl_profile_t *profile, void *self)
{
    pl_profile_row_t row[PL_PROFILE_ROWS];
    const table_t t = {.rank = pl_actor_rank(self),
                       .wall = (double)(pl_now() - profile->began)};
    char time[24];
    int count = 0;
    pthread_mutex_lock(&profile->lock);
    for (int k = 0; k < profile->count; k++)
        if (profile->row[k].count)
            row[count++] = profile->row[k];
    pthread_mutex_unlock(&profile->lock);
    qsort(row, (size_t)count, sizeof *row, by_part_and_total);
    pl_log_line(PL_LOG_INFO, t.rank, "",
                "profile of rank %d: working time of its actors in each stage of the "
                "run; share: part of the %s from start to end; threads run in parallel",
                t.rank, time_text(t.wall, time));
    pl_log_line(PL_LOG_INFO, t.rank, "", "    %-24s %-30s %9s %10s %10s %10s %8s",
                "actor", "handled", "times", "mean", "longest", "total", "share");
    for (int from = 0, to; from < count; from = to) {
        for (to = from; to < count && row[to].stage == row[from].stage;)
            to++;
        stage_log(&t, &row[from], to - from);
    }
}
