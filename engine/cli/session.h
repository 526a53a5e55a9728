/* session.h - the runs of the engine that a command makes
 *
 * A command that reads a run file fills a session and calls cli_session_run(). Several
 * runs from one request (--set KEY=a,b) are a sweep: one session, one run after the
 * other. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include <jansson.h>

#include "cli/command.h"
#include "cli/output.h"

struct event_base;
struct event;

typedef struct cli_session cli_session_t;

/* The progress of a run on standard error: progress.c. */
typedef struct cli_progress {
    bool bar;                                  /* one line is redrawn; otherwise lines are
                                                  printed */
    int64_t max_epochs;                        /* 0: unknown */
    int64_t began, drawn, reported;            /* ns, monotonic; 0: not yet */
    uint64_t first_step;                       /* the step at `began` */
    uint64_t newest_step;
    uint64_t result_step;                              /* of the newest line of results */
    int64_t rate_time;                                 /* when rate_batch was */
    uint64_t rate_batch;
    uint32_t rate_epoch;
    double rate;                                         /* batches/s; 0: not known yet */
} cli_progress_t;

void cli_progress_begin(cli_progress_t *progress, const pl_options_t *options);
void cli_progress_show(cli_progress_t *progress, const pl_progress_t *now);

/* What a command does in its session. All are called on the program's thread. */
typedef struct cli_work {
    bool trains;                                    /* the result has steps and metrics */
    bool measures;                                  /* the result has metrics */
    int (*start)(cli_session_t *session, pl_on_done_t on_done, pl_error_t *err);
    /* [cli_session_progress()] */
    void (*progress)(cli_session_t *session, const pl_progress_t *progress);
    /* The exit status of a run that did not fail. */
    int (*done)(cli_session_t *session, const pl_result_t *result);
    /* Prints what is left of a run that failed  [nothing] */
    void (*failed)(const pl_result_t *result);
    /* Called after each run. Returns the options of the next run of this session, or NULL
     * after the last one  [there is one run] */
    pl_options_t *(*next)(cli_session_t *session, const pl_result_t *result);
} cli_work_t;

enum { CLI_SIGNALS = 3 };                                   /* SIGINT, SIGTERM, SIGHUP */

struct cli_session {
    const cli_work_t *work;
    const void *arguments;                                  /* of the command */
    bool json;
    pl_options_t *options;
    cli_progress_t progress;
    struct event_base *base;
    pl_engine_t *engine;
    pl_trainer_t *trainer;
    struct event *signals[CLI_SIGNALS];
    int signal;                                        /* the first that came; 0: none */
    double signalled;                                  /* s: when it came */
    bool has_begun;                                    /* the run has reported progress */
    bool is_cut;                                       /* some of its runs never began */
    bool ended;                                        /* status is the run's */
    int status;
};

/* Where a run can be observed  [NULL: not there]. */
typedef struct cli_telemetry {
    const char *monitor, *dashboard, *control, *journal, *trace;
} cli_telemetry_t;

/* The arguments that all commands with a run file have. */
typedef struct cli_run {
    const char *file;
    cli_texts_t set, plugins;
    cli_telemetry_t telemetry;
} cli_run_t;

#define CLI_RUN_OF(arguments) \
    ((cli_run_t){.file = (arguments)->run, \
                 .set = (arguments)->set, \
                 .plugins = (arguments)->plugin, \
                 .telemetry = {.monitor = (arguments)->monitor, \
                               .dashboard = (arguments)->dashboard, \
                               .control = (arguments)->control, \
                               .journal = (arguments)->journal, \
                               .trace = (arguments)->trace}})

/* The run file with the values of --set and --plugin, checked. cli_failure() shows all
 * mistakes that were found. */
pl_options_t *cli_run_load(const cli_run_t *run, pl_error_t *err);

/* ---- init.c: run files for data ---- */

/* The path is a folder, a file that does not begin as a run file does, or "FILE:NAME"
 * with such a file. */
bool cli_is_data(const char *path);
/* "titanic.json" for "data/titanic.csv.gz", "flowers-iris.json" for "flowers.db:iris",
 * from pl_text()  [NULL: no memory]. */
char *cli_init_name(const char *data);
/* Checks that the run file `path`, which exists, reads `data`; *trains_on: what it trains
 * on, from pl_text(). PL_EINVAL: it is of other data; the text says what to do. */
int cli_init_check(const char *data, const char *path, char **trains_on, pl_error_t *err);

/* A word quoted for a shell where that is needed; to be freed by free()  [NULL: no
 * memory]. */
char *cli_shell_word(const char *word);
/* Proposes a run for data, prints the reasons unless `quiet`, and writes a run file.
 * target: the column or array to predict  [found].
 * PL_EINVAL: the file exists. */
int cli_init_write(const char *data, const char *target, const char *path, bool quiet,
                   pl_error_t *err);

/* Whether two paths lead to one file, which need not exist. */
bool cli_are_one_file(const char *a, const char *b);
/* Whether a key exists and its value is not empty. */
bool cli_is_set(const pl_options_t *options, const char *key);
/* False if the run file names training or validation data, but none to predict. */
bool cli_has_data_to_predict(const pl_options_t *options);

/* Runs session->work with session->options, which it consumes; the exit status. */
int cli_session_run(cli_session_t *session, const cli_telemetry_t *telemetry);

/* Shows progress: an event with --json, otherwise the progress line. */
void cli_session_progress(cli_session_t *session, const pl_progress_t *progress);
/* {"event": "result", …} with the members that apply to the session's work. */
json_t *cli_result_json(const cli_session_t *session, const pl_result_t *result);
/* Prints the metrics whose names begin with `beginning`, one a line. */
void cli_show_metrics(const pl_result_t *result, const char *beginning);
/* Prints an error on standard error; with --json also as the result. */
void cli_failure(const pl_error_t *error, bool json);

/* Calls on_signal for SIGINT, SIGTERM and SIGHUP, unless SIGHUP is ignored, as nohup
 * arranges it. False: no memory. cli_signals_free() is needed in either case. */
bool cli_signals_catch(struct event_base *base, struct event *signals[CLI_SIGNALS],
                       void (*on_signal)(int number, short what, void *user), void *user);
/* Whether a signal is a request of its own: others belong to the one before, as those
 * that a terminal and timeout(1) send together.  requested: when the newest came  [0:
 * none] */
bool cli_signal_is_new(double *requested);
void cli_signals_free(struct event *signals[CLI_SIGNALS]);

/* ---- sweep.c: several runs from one request ---- */

enum { CLI_SWEPT = 8 };                                     /* keys of a sweep at most */

/* A key and its values. */
typedef struct cli_axis {
    int word;                                               /* index of its --set */
    int count;
    char **value;                                           /* [count] */
} cli_axis_t;

typedef struct cli_sweep {
    cli_run_t run;
    const char **words;                                     /* run.set with the fold */
    int axes, runs;                                         /* 1: no sweep */
    int folds;                                              /* values of the last axis, if
                                                               it is data.fold; 0: none */
    int next;                                               /* run to be started */
    cli_axis_t axis[CLI_SWEPT];
    json_t *rows;                                           /* of the runs that ended */
} cli_sweep_t;

/* Finds the keys with several values and checks every run; data.folds without data.fold
 * is a key with a value for each fold. PL_EINVAL names the wrong one. */
int cli_sweep_open(cli_sweep_t *sweep, const cli_run_t *run, pl_error_t *err);
void cli_sweep_close(cli_sweep_t *sweep);
/* Says on standard error why there are several runs, if a comma is the cause. */
void cli_sweep_explain(const cli_sweep_t *sweep);

/* The options of the next run; NULL with an error, or without one after the last run. */
pl_options_t *cli_sweep_next(cli_sweep_t *sweep, pl_error_t *err);
/* The values of the run that began last, such as {"optimizer.lr": 0.001}, and their
 * text. */
json_t *cli_sweep_set(const cli_sweep_t *sweep);
void cli_sweep_words(const json_t *set, char *text, size_t capacity);

/* Adds the result of the run that began last, as events have it; consumes it. */
void cli_sweep_keep(cli_sweep_t *sweep, json_t *result);
/* Prints a table of all runs, also of those that never began; the same as an event. */
void cli_sweep_show(cli_sweep_t *sweep);
json_t *cli_sweep_json(cli_sweep_t *sweep);

#endif
