/* profile.c - where the time of a rank goes: how long handlers run, by actor and message
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
#include "runtime/message.h"

enum { SHOWN = 32, NAME = 80 };

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

static bool is_row(const pl_profile_row_t *row, const pl_profile_row_t *key)
{
    return row->kind == key->kind && row->message == key->message
           && row->answer == key->answer && !strcmp(row->what, key->what);
}

pl_profile_row_t *pl_profile_row(pl_profile_t *profile, uint32_t kind, uint32_t message,
                                 bool answer, const char *what)
{
    pl_profile_row_t key = {.kind = kind, .message = message, .answer = answer};
    int k = 0;
    if (!profile)
        return NULL;
    snprintf(key.what, sizeof key.what, "%s", what);
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

static int by_total(const void *a, const void *b)
{
    const pl_profile_row_t *x = a, *y = b;
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

static void row_log(const pl_profile_row_t *row, int64_t wall, int rank)
{
    char name[NAME], mean[24], longest[24], total[24];
    row_name(row, name);
    pl_log_line(PL_LOG_INFO, rank, "", "  %-24s %-32s %9llu %10s %10s %10s %6.1f %%",
                pl_kind_name(row->kind), name, (unsigned long long)row->count,
                time_text((double)row->total / (double)row->count, mean),
                time_text((double)row->longest, longest),
                time_text((double)row->total, total),
                100 * (double)row->total / (double)wall);
}

void pl_profile_log(pl_profile_t *profile, void *self)
{
    pl_profile_row_t row[PL_PROFILE_ROWS];
    int rank = pl_actor_rank(self), count = 0;
    int64_t wall = pl_now() - profile->began;
    char time[24];
    pthread_mutex_lock(&profile->lock);
    for (int k = 0; k < profile->count; k++)
        if (profile->row[k].count)
            row[count++] = profile->row[k];
    pthread_mutex_unlock(&profile->lock);
    qsort(row, (size_t)count, sizeof *row, by_total);
    pl_log_line(PL_LOG_INFO, rank, "",
                "profile of rank %d: how long its actors worked on which messages",
                rank);
    pl_log_line(PL_LOG_INFO, rank, "",
                "share: of the %s from start to end; threads work at the same time",
                time_text((double)wall, time));
    pl_log_line(PL_LOG_INFO, rank, "", "  %-24s %-32s %9s %10s %10s %10s %8s", "actor",
                "handled", "times", "mean", "longest", "total", "share");
    for (int k = 0; k < count && k < SHOWN; k++)
        row_log(&row[k], wall, rank);
}
