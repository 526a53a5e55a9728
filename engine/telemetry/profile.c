/* profile.c - the time of a rank: how long handlers run, by stage, actor and message
 *
 * A table has a few dozen rows, so a linear search under a lock finds them.  Without a
 * profile none of this code runs. */
#include "telemetry/profile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"
#include "runtime/payload.h"
#include "runtime/reactor.h"

enum { ROWS = 256, SHOWN = 24, NAME = 80 };                 /* shown: of each stage */

/* Rows of no stage of the run come after those of the stages. */
enum { SAVING = PL_PREDICT + 1, LOGGING, CALLBACKS, AMONG_RANKS, REST };

struct pl_profile_row {
    int stage;                                       /* pl_stage_t, or one of the above */
    uint32_t kind, message;
    bool answer;                            /* to a call of the actor, not a call to it */
    char plan[24];                          /* "forward_backward"  [""] */
    uint64_t count;
    int64_t total, longest;                                 /* ns */
};

typedef struct profile {
    pl_profiler_t profiler;
    pthread_mutex_t lock;
    int64_t began;
    int count;
    pl_profile_row_t row[ROWS];
} profile_t;

/* ---- counting ---- */

static int stage_of(uint32_t message, const pl_body_t *fields)
{
    const pl_object_t *batch = NULL;
    uint32_t stage = PL_TRAIN;
    switch (message) {
    case PL_MESSAGE_train_epoch:
    case PL_MESSAGE_observe_metrics: return PL_TRAIN;
    case PL_MESSAGE_train_batch: batch = fields->train_batch.batch; break;
    case PL_MESSAGE_replay_plan: batch = fields->replay_plan.batch; break;
    case PL_MESSAGE_read_batch: batch = fields->read_batch.batch; break;
    case PL_MESSAGE_begin: stage = fields->begin.stage; break;
    case PL_MESSAGE_fetch_batch: stage = fields->fetch_batch.stage; break;
    case PL_MESSAGE_evaluate: stage = fields->evaluate.stage; break;
    case PL_MESSAGE_evaluate_batch: stage = fields->evaluate_batch.stage; break;
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
    if (batch)
        stage = ((const pl_batch_t *)batch)->stage;
    return stage <= PL_PREDICT ? (int)stage : REST;
}

/* A plan has a row of its own for each purpose. */
static pl_profile_row_t *profile_row(pl_profiler_t *profiler, uint32_t kind,
                                     uint32_t message, const void *fields, bool answer)
{
    profile_t *profile = (profile_t *)profiler;
    const char *plan = message == PL_MESSAGE_replay_plan && !answer
                           ? ((const pl_replay_plan_t *)fields)->what
                           : "";
    pl_profile_row_t key = {.stage = stage_of(message, fields),
                            .kind = kind,
                            .message = message,
                            .answer = answer};
    snprintf(key.plan, sizeof key.plan, "%s", plan);
    pthread_mutex_lock(&profile->lock);
    pl_profile_row_t *row = profile->row, *end = row + profile->count;
    while (row < end
           && (row->stage != key.stage || row->kind != kind || row->message != message
               || row->answer != answer || strcmp(row->plan, key.plan) != 0))
        row++;
    if (row == end && profile->count < ROWS)
        profile->row[profile->count++] = key;
    pthread_mutex_unlock(&profile->lock);
    return row < profile->row + ROWS ? row : NULL;
}

static void profile_add(pl_profiler_t *profiler, pl_profile_row_t *row, int64_t time)
{
    profile_t *profile = (profile_t *)profiler;
    pthread_mutex_lock(&profile->lock);
    row->count++;
    row->total += time;
    if (time > row->longest)
        row->longest = time;
    pthread_mutex_unlock(&profile->lock);
}

static void profile_release(pl_object_t *object)
{
    profile_t *profile = (profile_t *)object;
    pthread_mutex_destroy(&profile->lock);
    pl_free(profile);
}

int pl_profile_start(void *self, pl_error_t *err)
{
    if (pl_actor_profiler(self))
        return PL_OK;
    profile_t *profile = pl_alloc(sizeof *profile);
    if (!profile)
        return pl_no_memory(err);
    pl_object_init(&profile->profiler.object, profile_release);
    profile->profiler.row = profile_row;
    profile->profiler.add = profile_add;
    pthread_mutex_init(&profile->lock, NULL);
    profile->began = pl_now();
    pl_actor_set_profiler(self, &profile->profiler);
    return PL_OK;
}

/* ---- the table ---- */

static int by_stage_and_total(const void *a, const void *b)
{
    const pl_profile_row_t *x = a, *y = b;
    if (x->stage != y->stage)
        return x->stage - y->stage;
    return (x->total < y->total) - (x->total > y->total);
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

/* Writes a stage: its total and its first rows; shares are of `wall` ns. */
static void stage_log(const pl_profile_row_t *row, int count, int rank, double wall)
{
    static const char *const others[] = {"save", "log", "callbacks", "ranks", "rest"};
    const int stage = row->stage;
    char name[NAME], mean[24], longest[24], total[24];
    double sum = 0;
    for (int k = 0; k < count; k++)
        sum += (double)row[k].total;
    pl_log_line(PL_LOG_INFO, rank, "", "  %-88s %10s %6.1f %%",
                stage < SAVING ? pl_stages[stage].verb : others[stage - SAVING],
                time_text(sum, total), 100 * sum / wall);
    for (int k = 0; k < count && k < SHOWN; k++, row++) {
        /* "replay_plan forward_backward", "answer to fetch_batch" */
        snprintf(name, sizeof name, "%s%s%s%s", row->answer ? "answer to " : "",
                 pl_message_info(row->message)->name, *row->plan ? " " : "", row->plan);
        pl_log_line(PL_LOG_INFO, rank, "",
                    "    %-24s %-30s %9llu %10s %10s %10s %6.1f %%",
                    pl_kind_name(row->kind), name, (unsigned long long)row->count,
                    time_text((double)row->total / (double)row->count, mean),
                    time_text((double)row->longest, longest),
                    time_text((double)row->total, total),
                    100 * (double)row->total / wall);
    }
}

void pl_profile_log(void *self)
{
    profile_t *profile = (profile_t *)pl_actor_profiler(self);
    pl_profile_row_t row[ROWS];
    char time[24];
    int count = 0;
    if (!profile)
        return;
    const int rank = pl_actor_rank(self);
    const double wall = (double)(pl_now() - profile->began);
    pthread_mutex_lock(&profile->lock);
    for (int k = 0; k < profile->count; k++)
        if (profile->row[k].count)
            row[count++] = profile->row[k];
    pthread_mutex_unlock(&profile->lock);
    qsort(row, (size_t)count, sizeof *row, by_stage_and_total);
    pl_log_line(PL_LOG_INFO, rank, "",
                "profile of rank %d: working time of its actors in each stage of the "
                "run; share: part of the %s from start to end; threads run in parallel",
                rank, time_text(wall, time));
    pl_log_line(PL_LOG_INFO, rank, "", "    %-24s %-30s %9s %10s %10s %10s %8s", "actor",
                "handled", "times", "mean", "longest", "total", "share");
    for (int from = 0, to; from < count; from = to) {
        for (to = from; to < count && row[to].stage == row[from].stage;)
            to++;
        stage_log(&row[from], to - from, rank, wall);
    }
}
