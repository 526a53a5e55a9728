/* run_view_parts.h - the types of the run view, for run_view.c (which run a message
 * belongs to), run_view_run.c (one run), and the renderers run_view_json.c and
 * metrics.c */
#ifndef PL_TELEMETRY_RUN_VIEW_PARTS_H
#define PL_TELEMETRY_RUN_VIEW_PARTS_H

#include <jansson.h>
#include <pthread.h>

#include "base/map.h"
#include "runtime/payload.h"
#include "telemetry/call_graph.h"
#include "telemetry/run_view.h"

enum {
    RUNS_MAX = 16,                                   /* shown; a new run replaces one that
                                                        has ended */
    COLUMNS_MAX = 48,
    POINTS_MAX = 1 << 17,                       /* of a run; then neighbours are merged */
    CELLS_MAX = 1 << 22,                        /* in the points of all runs; then those
                                                   of the run with the most are merged */
    CHUNK_POINTS = 4096,                        /* in one event */
    OVERVIEW_POINTS = 1000,                     /* of a run, in /state */
    RANKS_MAX = 64,                             /* shown; of more, neighbours share a
                                                   place, which shows the slowest */
    STRIP_SLOTS = 120,
    KINDS_MAX = 96,                                         /* of actors */
    KIND_SLOTS = 40,
    NEWEST_MAX = 48,
    LOG_MAX = 200,
    SAVES_MAX = 24,
    CALLS_MAX = 1 << 16,                                    /* open */
    ABSENT_MAX = RANKS_MAX,
    DURATION_CELLS = 480,                  /* 16 for each doubling, from 1 us to 17 min */
};

/* A histogram of durations with logarithmic cells, each 4.4 % wide.  Zeros: empty. */
typedef struct durations {
    uint64_t count, cell[DURATION_CELLS];
    double sum;                                             /* s */
} durations_t;

/* Columns that the view measures; the others are metrics that the run reports. */
enum {
    COLUMN_SAMPLES_RATE,
    COLUMN_STEP_RATE,
    COLUMN_STEP_P50,
    COLUMN_STEP_P95,
    COLUMNS_OWN
};

/* A rank that sends nothing, or whose process has ended. */
typedef struct absent {
    int rank;
    pl_rank_event_t event;
    double since;                                           /* s of the stream */
    char text[160];                                         /* for people */
} absent_t;

typedef struct curve_point {
    double time;                                            /* s of the stream */
    uint64_t step;
    double epoch;                                           /* done, with fractions */
    double value[COLUMNS_MAX];                              /* NaN: not reported there */
} curve_point_t;

/* Points, column by column: a metric takes memory from its first value on.  All items of
 * a view are numbered in one sequence: a reader asks for those after its newest. */
typedef struct curves {
    int count, capacity;
    uint64_t *item, *step;                               /* [capacity], as all of these */
    double *time, *epoch;
    double *value[COLUMNS_MAX];                             /* [NULL: no value yet] */
} curves_t;

/* The time of the steps of each rank without the waits for other ranks. */
typedef struct strip_slot {
    uint64_t item;
    double time;
    float own[RANKS_MAX];                                   /* s a step */
} strip_slot_t;

typedef struct save {
    uint64_t item, number;
    double time;
    bool failed, removed;
    char text[256];                                         /* path, or the error */
} save_t;

/* The newest value of a metric that is a matrix or a curve. */
enum { DRAWINGS_MAX = 16 };
typedef struct drawing {
    char name[48], *json;
    uint64_t item;
} drawing_t;

enum { RUN_STATUSES = PL_RUN_STATUS_FAILED + 1 };
enum { BATCHES_AHEAD = 256 };                     /* fetched before they are trained on */

/* The counts from which rates are computed. */
typedef struct counted {
    uint64_t samples, steps;                       /* of rank 0 */
    uint64_t timed;                                /* of these steps, those with a time */
    double seconds;                                /* of those */
} counted_t;

typedef struct viewed_run {
    uint64_t call;                      /* the engine's call of the run */
    uint64_t number;                    /* among the engine's runs, from 1 */
    uint64_t trainer;                   /* thread and number of the actor  [0: unknown] */
    bool ended, is_paused, has_trained;
    bool is_over;                        /* as the engine says */
    char doing[16];                      /* "train", "validate", …; ended: its status */
    char dir[256], module[48], error[640];
    char reason[160];                                /* of its stop */
    char *options;                                   /* JSON, as given  [NULL: unknown] */
    uint64_t options_item;
    drawing_t drawing[DRAWINGS_MAX];
    int drawings;
    char *class_names;                                    /* JSON list  [NULL: unknown] */
    uint64_t class_names_item;
    double began, ended_at;                        /* s of the stream */
    double paused_at, paused;                      /* begin of the pause; s, of earlier
                                                      pauses */
    double clip;                                   /* of the norm of gradients; 0: none */
    uint64_t step, total_steps;
    uint32_t epoch, batch, batches;
    int64_t epochs;                                    /* done, at its end; -1: unknown */
    int64_t moved;                                     /* ns; newest progress of an active
                                                          epoch or validation  [0: none is
                                                          active] */
    char name[COLUMNS_MAX][48];
    int columns;
    double newest[COLUMNS_MAX];
    char *unread;                              /* JSON: the newest metrics, that are read
                                                  when they are shown  [NULL: none] */

    /* From here on: what only the stream says; run_forget() clears it. */
    curves_t curves;
    int stride, gathered;                      /* reports in a point; in the next point */
    curve_point_t next;
    uint64_t rewritten;                       /* item at which older points were merged */
    uint64_t steps_seen, samples, saves_done, saves_failed;
    counted_t counted;                         /* when rates were last computed */
    uint32_t batch_size[BATCHES_AHEAD];        /* samples of rank 0's newest batches */
    uint64_t fetched, trained;                 /* batches of rank 0 */
    uint64_t samples_fetched, samples_trained;  /* of these */
    int64_t held_since;                        /* ns; all ranks pause  [0: they do not] */
    int64_t steps_began;                       /* ns; 0: the next time is no step's */
    unsigned steps_together;                   /* since then */
    int64_t step_ended;                        /* the newest */
    durations_t recent, all;                   /* of steps since the newest report; of
                                                  all steps */
    absent_t absent[ABSENT_MAX];
    int absents;
    int ranks, all_ranks;                                   /* shown; existing */
    double spent[RANKS_MAX][PL_TIMINGS];                    /* s, in the next slot */
    uint64_t timed_steps;
    float stage[RANKS_MAX][PL_TIMINGS];                   /* s a step, in the newest */
    pl_device_stats_t device[RANKS_MAX];                  /* of the first ranks, newest */
    bool has_device[RANKS_MAX];
    int64_t slot_began;
    strip_slot_t strip[STRIP_SLOTS];
    uint64_t slots;                                         /* that there have been */
    save_t save[SAVES_MAX];                                 /* the oldest first */
    int saves;
} viewed_run_t;

/* The actors of one kind. */
typedef struct actor_kind {
    uint64_t messages;                      /* that they received */
    int64_t open;                           /* calls that they have not answered yet */
    uint32_t slot[KIND_SLOTS];              /* messages that they received in each slot */
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
    double wall;                          /* s, at the stream's zero */
    int shown;                            /* atomic: how many show it */
    bool is_fed;                          /* the hub's thread: see pl_run_view_is_fed() */
    uint64_t item;                        /* the newest */
    viewed_run_t *run[RUNS_MAX];          /* [NULL: free] */
    uint64_t runs;                        /* that there have been */
    uint64_t ended[RUN_STATUSES];         /* by pl_run_status_t */
    pl_call_graph_t graph;
    pl_map_t ranks;                                         /* pl_rank_times_t */
    uint64_t messages[PL_KINDS], missing;
    bool was_kept;                       /* its messages are of an earlier time, and so is
                                            its clock */
    bool guesses;                        /* it may have missed the calls of a run: a
                                            message of unknown run is the newest run's */
    actor_kind_t kinds[KINDS_MAX];
    int64_t kind_slot;                                      /* newest, since the zero */
    int64_t last;                                           /* ns of the stream */
    newest_t newest[NEWEST_MAX];
    uint64_t newest_count;
    log_entry_t *log;                                       /* [LOG_MAX]  [NULL: none] */
    uint64_t logs, log_levels[PL_LOG_DEBUG + 1];
};

extern const char *const run_view_own_columns[COLUMNS_OWN];

/* All functions below: with the lock held; `now` is in s of the stream. */
double run_view_now(const pl_run_view_t *view);

void durations_add(durations_t *d, double seconds);
/* The duration that so large a share does not exceed, within 5 %; NaN: there are none. */
double durations_quantile(const durations_t *d, double share);
/* How many take at most so long, within 5 %. */
uint64_t durations_within(const durations_t *d, double seconds);

viewed_run_t *run_new(uint64_t call, uint64_t number,
                      double now);                          /* NULL: out of memory */
void run_free(viewed_run_t *run);
/* Clears what only the stream says. */
void run_forget(viewed_run_t *run);
/* is_of_stream: it makes points; the engine's own reports do not, and their metrics wait
 * for run_read(), because mostly nothing shows them. */
void run_report(pl_run_view_t *view, viewed_run_t *run, const pl_run_progress_t *report,
                double now, bool is_of_stream);
void run_read(pl_run_view_t *view, viewed_run_t *run);
void run_end(pl_run_view_t *view, viewed_run_t *run);
/* A metric whose value is no number; the class names among the data info.  Both are sent
 * to readers whose items end before them.  run_view_drawings.c */
void run_drawing(pl_run_view_t *view, viewed_run_t *run, const char *name,
                const json_t *value);
void run_data_info(pl_run_view_t *view, viewed_run_t *run, const char *data_info);
void run_drawings_free(viewed_run_t *run);
json_t *run_drawings_json(const viewed_run_t *run, uint64_t since, uint64_t until);
json_t *run_class_names_json(const viewed_run_t *run, uint64_t since);
/* Merges point k into `point`, whose values stay where point k has none. */
void run_point_merge(const viewed_run_t *run, int k, curve_point_t *point);
void run_pause(viewed_run_t *run, bool pauses, double now);
/* Time without pauses, as in its result. */
double run_seconds(const pl_run_view_t *view, const viewed_run_t *run);
/* An epoch begins [time 0: something else]; the times of steps before it are complete. */
void run_steps_begin(viewed_run_t *run, int64_t time);
void run_fetched(viewed_run_t *run, bool is_of_0, uint32_t samples);
void run_step(viewed_run_t *run, int64_t time);
/* Seconds since the last progress of an epoch, if that is much longer than a step; 0: the
 * run progresses. */
double run_stalled(const pl_run_view_t *view, const viewed_run_t *run);
/* All ranks begin an epoch: dead ranks were replaced or left out; silent ones remain. */
void run_gathers(viewed_run_t *run);
void run_watched(viewed_run_t *run, const pl_watch_progress_t *reported, double now);
void run_timings(pl_run_view_t *view, viewed_run_t *run, pl_bytes_t spent, int64_t time);
void run_device(viewed_run_t *run, int rank, const pl_measure_device_reply_t *reported);
void run_save(pl_run_view_t *view, viewed_run_t *run, const char *text, bool failed);
/* The checkpoints of these names, one a line, were removed. */
void run_removed(pl_run_view_t *view, viewed_run_t *run, const char *names);

#endif
