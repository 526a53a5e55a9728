/* session.h - one run of the engine for a command: fit and predict */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include <jansson.h>

#include "cli/command.h"
#include "cli/output.h"

struct event_base;
struct event;

typedef struct cli_session cli_session_t;

enum { CLI_SIGNALS = 3 };                                   /* that stop a run */

/* Carries out the command's part: starts the run; hears of progress and of the end. */
typedef struct cli_work {
    bool trains;                                    /* the result has steps and metrics */
    bool measures;                                  /* it has metrics */
    int (*start)(cli_session_t *session, pl_on_done_t on_done, pl_error_t *err);
    void (*progress)(cli_session_t *session, const pl_progress_t *progress);
    int (*done)(
        cli_session_t *session,
        const pl_result_t *result);      /* the exit status, of a run that did not fail */
    /* Says what there is of a run that failed  [nothing] */
    void (*failed)(const pl_result_t *result);
    /* Hears how any run ended; the options of the next one in the same session, or NULL
     * with its part of the work done  [there is but one run] */
    pl_options_t *(*next)(cli_session_t *session, const pl_result_t *result);
} cli_work_t;

struct cli_session {
    const cli_work_t *work;
    const void *arguments;                                  /* of the command */
    bool json;
    pl_options_t *options;
    struct event_base *base;
    pl_engine_t *engine;
    pl_trainer_t *trainer;
    struct event *signals[CLI_SIGNALS];
    int signal;                                         /* the first that came; 0: none */
    double signalled;                                   /* s: when it came */
    bool has_begun;                                     /* it has told of its progress */
    bool is_cut;                                        /* not all its runs were begun */
    bool ended;                                         /* status is the run's */
    int status;
};

/* Where a run can be seen, in every command that reads a run file  [NULL: not there]. */
typedef struct cli_telemetry {
    const char *monitor, *dashboard, *control, *journal, *trace;
} cli_telemetry_t;

/* Of the arguments of a command. */
#define CLI_TELEMETRY(arguments) \
    ((cli_telemetry_t){.monitor = (arguments)->monitor, \
                       .dashboard = (arguments)->dashboard, \
                       .control = (arguments)->control, \
                       .journal = (arguments)->journal, \
                       .trace = (arguments)->trace})

/* What stands in every command that reads a run file. */
typedef struct cli_run {
    const char *file;
    cli_telemetry_t telemetry;
    cli_texts_t set, plugins;
} cli_run_t;

/* The run file with what --set and --plugin say. */
pl_options_t *cli_run_load(const cli_run_t *run, pl_error_t *err);

/* Whether a key is there and is no empty text. */
bool cli_is_set(const pl_options_t *options, const char *key);
/* Training data alone cannot be predicted; one source has its test data. */
bool cli_has_data_to_predict(const pl_options_t *options);

/* Runs session->work with session->options, which it consumes; the exit status. */
int cli_session_run(cli_session_t *session, cli_telemetry_t telemetry);

/* {"event": …, "global_step": …} for --json. */
json_t *cli_progress_json(const pl_progress_t *progress);
/* {"event": "result", …}: what applies to that work. */
json_t *cli_result_json(const cli_session_t *session, const pl_result_t *result);
/* nohup has SIGHUP ignored, and so it stays. */
bool cli_is_ignored(int number);

/* The metrics of a result whose names begin so, one a line. */
void cli_show_metrics(const pl_result_t *result, const char *beginning);
/* Tells of an error without a result of the engine's: on standard error and, when events
 * are wanted, as the result too. */
void cli_failure(const pl_error_t *error, bool json);

#endif
