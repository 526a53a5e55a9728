/* run_view_parts.h - what run_view.c (taking from the stream), run_view_run.c (what a
 * run has done), run_view_json.c and metrics.c (telling) share */
#ifndef PL_TELEMETRY_RUN_VIEW_PARTS_H
#define PL_TELEMETRY_RUN_VIEW_PARTS_H

#include <pthread.h>

#include "base/map.h"
#include "runtime/payload.h"
#include "telemetry/run_view.h"
#include "telemetry/durations.h"

enum {
    RUNS_MAX = 16,                                /* that are shown: a newer one takes the
                                                     place of one that has ended */
    COLUMNS_MAX = 48,
    POINTS_MAX = 1 << 17,                       /* of a run; then neighbours become one */
    CELLS_MAX = 1 << 22,                        /* of all runs' points; then those of the
                                                   run with the most become fewer */
    CHUNK_POINTS = 4096,                        /* in one event */
    OVERVIEW_POINTS = 1000,                     /* of a run, in /state */
    RANKS_MAX = 64,                             /* told apart; of more, neighbours share a
                                                   place, which shows the slowest */
    STRIP_SLOTS = 120,
    KINDS_MAX = 96,                                         /* of actors */
    KIND_SLOTS = 40,
    NEWEST_MAX = 48,
    LOG_MAX = 200,
    SAVES_MAX = 24,
    CALLS_MAX = 1 << 16,                               /* open ones that are remembered */
    ABSENT_MAX = RANKS_MAX,
    NO_RUN = RUNS_MAX,
};

/* Measurements of a run beside the metrics that it reports itself. */
enum {
    COLUMN_SAMPLES_RATE,
    COLUMN_STEP_RATE,
    COLUMN_STEP_P50,
    COLUMN_STEP_P95,
    COLUMNS_OWN
};

/* A rank of which nothing is heard, or whose process is no more. */
typedef struct absent {
    int rank;
    pl_rank_event_t event;
    double since;                                           /* s of the stream */
    char text[160];                                         /* for people */
} absent_t;

typedef struct point {
    double time;                                            /* s of the stream */
    uint64_t step;
    double epoch;                                           /* done, with fractions */
    double value[COLUMNS_MAX];                              /* NaN: not reported there */
} point_t;

/* Points column by column: a metric takes memory from its first value on.  Items have
 * numbers of one sequence: a reader that has some asks for those behind. */
typedef struct curves {
    int count, capacity;
    uint64_t *item, *step;                               /* [capacity], as all of these */
    double *time, *epoch;
    double *value[COLUMNS_MAX];                             /* [NULL: no value yet] */
} curves_t;

/* What the steps of each rank took without waiting for the others. */
typedef struct strip_slot {
    uint64_t item;
    double time;
    float own[RANKS_MAX];                                   /* s a step */
} strip_slot_t;

typedef struct save {
    uint64_t item, number;
    double time;
    bool failed, removed;
    char text[256];                                         /* path, or why not */
} save_t;

enum { BATCHES_AHEAD = 256 };                     /* fetched before they are trained on */

/* What rates are made of. */
typedef struct counted {
    uint64_t samples, steps;                     /* of rank 0 */
    uint64_t timed;                              /* of these steps: their time is known */
    double seconds;                              /* of those */
} counted_t;

typedef struct run {
    uint64_t call;                        /* by which the program asked for it; 0: free */
    uint64_t number;                      /* of the engine's runs, from 1 */
    bool ended, is_paused, has_trained;
    char doing[16];                      /* "train", "validate", …; ended: its status */
    char dir[256], module[48], error[640];
    char reason[160];                                /* why it was stopped */
    char *options;                                   /* JSON, as given  [NULL: unknown] */
    uint64_t options_item;
    double began, ended_at;                        /* s of the stream */
    double paused_at, paused;                      /* since when; s, of pauses before */
    double clip;                                   /* of the norm of gradients; 0: none */
    uint64_t step, total_steps, steps_seen, samples, saves_done, saves_failed;
    uint32_t epoch, batch, batches;
    int64_t epochs;                                    /* done, at its end; -1: unknown */

    char name[COLUMNS_MAX][48];
    int columns;
    double newest[COLUMNS_MAX];
    curves_t curves;
    int stride, gathered;                 /* a point is of so many reports; in the next */
    point_t next;
    uint64_t rewritten;                       /* item at which older points were merged */
    counted_t counted;                        /* when rates were taken last */
    uint32_t batch_size[BATCHES_AHEAD];       /* samples of rank 0's newest batches */
    uint64_t fetched, trained;                /* batches of rank 0 */
    uint64_t samples_fetched, samples_trained;  /* of these */

    int64_t steps_began;                         /* ns; 0: what comes is no step's time */
    int64_t moved;                               /* ns; when something of the epoch or
                                                    validation that is under way was done
                                                    last  [0: none is] */
    unsigned steps_together;                     /* since then, */
    int64_t step_ended;                          /* the newest */
    pl_durations_t recent, all;                  /* of steps since the report before, and
                                                    of the run's */

    absent_t absent[ABSENT_MAX];
    int absents;
    int ranks, all_ranks;                                   /* told apart; there are */
    double spent[RANKS_MAX][PL_TIMINGS];                    /* s, in the slot to come */
    uint64_t timed_steps;
    float stage[RANKS_MAX][PL_TIMINGS];                   /* s a step, in the newest */
    pl_device_stats_t device[RANKS_MAX];                  /* of the first ranks, newest */
    bool has_device[RANKS_MAX];
    int64_t slot_began;
    strip_slot_t strip[STRIP_SLOTS];
    uint64_t slots;                                         /* there have been */
    save_t save[SAVES_MAX];                                 /* the oldest first */
    int saves;
} run_t;

/* One sort of actor. */
typedef struct actor_kind {
    uint64_t messages;                      /* that it got */
    int64_t open;                           /* calls to it that it has not answered yet */
    uint32_t slot[KIND_SLOTS];              /* messages that it got in each */
} actor_kind_t;

typedef struct newest {
    int64_t time;
    int rank;
    uint16_t message;
    uint8_t kind;
    uint32_t from, to;
} newest_t;

typedef struct log_entry {
    uint64_t item;
    double time;
    int level, rank;
    char actor[48], text[400];
} log_entry_t;

struct pl_run_view {
    pthread_mutex_t lock;
    int64_t began;
    double wall;                                            /* s, at the stream's zero */
    uint64_t item;                                          /* the newest */
    run_t run[RUNS_MAX];
    uint64_t runs;                  /* there have been */
    uint64_t ended[3];              /* ok, stopped, failed */
    pl_map_t open, lasting;         /* by call: see opened_t; those that go on for long
                                       apart, as what belongs to a run is known by them */
    uint64_t messages[PL_KINDS], missing;
    bool was_kept;                      /* what it gets: its clock is that of messages */
    bool guesses;                       /* it has not seen how all began: what fits no run
                                           is taken for one of the newest */
    actor_kind_t kinds[KINDS_MAX];
    int64_t kind_slot;                                      /* newest, since the zero */
    int64_t last;                                           /* ns of the stream */
    newest_t newest[NEWEST_MAX];
    uint64_t newest_count;
    log_entry_t log[LOG_MAX];
    uint64_t logs, log_levels[PL_LOG_DEBUG + 1];
};

extern const char *const run_view_ended[3];
extern const char *const run_view_own_columns[COLUMNS_OWN];

/* With the lock held: */
double run_view_now(const pl_run_view_t *view);             /* s of the stream */
const char *run_view_run_name(const run_t *run);            /* of its folder, or "" */

/* Of a run, what the stream has said: */
void run_begin(run_t *run, uint64_t call, uint64_t number, double now);
void run_release(run_t *run);
void run_report(pl_run_view_t *view, run_t *run, const pl_run_progress_t *report,
                double now);
void run_end(pl_run_view_t *view, run_t *run);
/* Point k in `point`, where values that it lacks stay. */
void run_point_merge(const run_t *run, int k, point_t *point);
/* Whether it is paused from then on; now: s of the stream. */
void run_pause(run_t *run, bool pauses, double now);
/* Without pauses, as in its result. */
double run_seconds(const pl_run_view_t *view, const run_t *run);
/* An epoch, or what is no part of one (0): steps before it are told of. */
void run_steps_begin(run_t *run, int64_t time);
void run_fetched(run_t *run, bool is_of_0, uint32_t samples);
void run_trained(run_t *run);
void run_step(run_t *run, int64_t time);
/* How long nothing of an epoch has been done, where that is much longer than a step took;
 * 0: it goes on. */
double run_stalled(const pl_run_view_t *view, const run_t *run);
/* All begin an epoch: who had died is there again or left out; who was silent may be. */
void run_gathers(run_t *run);
/* What `watch` tells of a rank. */
void run_watched(run_t *run, const pl_watch_progress_t *reported, double now);
void run_timings(pl_run_view_t *view, run_t *run, pl_bytes_t spent, int64_t time);
/* What the device of a rank does. */
void run_device(run_t *run, int rank, const pl_measure_device_reply_t *reported);
void run_save(pl_run_view_t *view, run_t *run, const char *text, bool failed);
/* Checkpoints of these names, one a line, are gone. */
void run_removed(pl_run_view_t *view, run_t *run, const char *names);

#endif
