/* actor_times.c - the time of a device by operator and kind of kernel
 *
 * The table has a few hundred rows, found by a hash of operator and kind. It is logged
 * when the device ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerators/actor_internal.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "base/json_path.h"
#include "base/log.h"

enum { SHOWN = 40 };

json_t *pl_device_times_add(pl_device_times_t *times, const pl_device_span_t *span,
                            int count, json_t *spans)
{
    static const char *const names[] = {"", "copy to the device", "copy to the host"};
    double end = 0;
    if (!spans) {                                           /* first replay of a call */
        times->before = 0;
        spans = json_array();
    }
    for (int k = 0; k < count; k++) {
        pl_device_span_t s = span[k];
        s.what = s.stream > 0 && s.stream < 3 ? names[s.stream] : s.what;
        const uint64_t what = pl_hash(PL_HASH_EMPTY + (unsigned)s.stream, s.what,
                                      strlen(s.what)),
                       key = pl_hash(what * 31, s.path, strlen(s.path)) | 1;
        uintptr_t number = (uintptr_t)pl_map_get(&times->row_of, key);
        if (!number && PL_GROW(times->row, times->rows, times->capacity) == PL_OK
            && pl_map_put(&times->row_of, key, (void *)(uintptr_t)(times->rows + 1))
                   == PL_OK) {
            pl_time_row_t *added = &times->row[times->rows];
            *added = (pl_time_row_t){.stream = s.stream};
            snprintf(added->what, sizeof added->what, "%s", s.what);
            snprintf(added->operator, sizeof added->operator, "%s", s.path);
            number = (uintptr_t)++times->rows;
        }
        pl_time_row_t *row = number ? &times->row[number - 1] : NULL;
        if (row)
            *(row->count++ ? &row->seconds : &row->first) += s.end - s.begin;
        end = s.end > end ? s.end : end;
        spans = pl_json_append(spans,
                               json_pack("[i,s,s,I,I]", s.stream, s.what, s.path,
                                         (json_int_t)((times->before + s.begin) * 1e9),
                                         (json_int_t)((times->before + s.end) * 1e9)));
    }
    times->replays++;
    times->before += end;
    return spans;
}

static double mean_of(const pl_time_row_t *row)
{
    return row->count > 1 ? row->seconds / (double)(row->count - 1) : row->first;
}

/* The first call counts as the mean of the others. */
static double total_of(const pl_time_row_t *row)
{
    return mean_of(row) * (double)row->count;
}

static int by_total(const void *a, const void *b)
{
    const double x = total_of(a), y = total_of(b);
    return (x < y) - (x > y);
}

static const char *time_text(double seconds, char text[24])
{
    if (seconds < 1e-3)
        snprintf(text, 24, "%.1f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, 24, "%.1f ms", seconds * 1e3);
    else
        snprintf(text, 24, "%.1f s", seconds);
    return text;
}

void pl_device_times_log(pl_device_times_t *times, int rank)
{
    double all = 0;
    if (!times->rows)
        return;
    qsort(times->row, (size_t)times->rows, sizeof *times->row, by_total);
    pl_map_release(&times->row_of);                         /* rows have moved */
    for (int k = 0; k < times->rows; k++)
        all += total_of(&times->row[k]);
    pl_log_line(PL_LOG_INFO, rank, "",
                "profile of the device: %.3f s in %llu replays, by layer", all,
                (unsigned long long)times->replays);
    pl_log_line(PL_LOG_INFO, rank, "", "  %-22s %-18s %6s %9s %9s %7s", "layer", "kernel",
                "calls", "mean", "total", "share");
    for (int k = 0; k < times->rows && k < SHOWN; k++) {
        const pl_time_row_t *row = &times->row[k];
        char mean[24], total[24];
        pl_log_line(PL_LOG_INFO, rank, "", "  %-22s %-18s %6llu %9s %9s %5.1f %%",
                    *row->operator ? row->operator : "-", row->what,
                    (unsigned long long)row->count, time_text(mean_of(row), mean),
                    time_text(total_of(row), total),
                    all > 0 ? 100 * total_of(row) / all : 0);
    }
    if (times->rows > SHOWN)
        pl_log_line(PL_LOG_INFO, rank, "", "  and %d more", times->rows - SHOWN);
}

void pl_device_times_release(pl_device_times_t *times)
{
    pl_map_release(&times->row_of);
    pl_free(times->row);
    times->row = NULL;
}
