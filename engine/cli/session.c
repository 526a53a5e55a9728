/* session.c - the engine and the event loop of a command that runs something
 *
 * The event loop carries signals and notifications. The first Ctrl-C, SIGTERM or SIGHUP
 * asks the trainer to stop; a later one ends the process at once. A second signal within
 * half a second belongs to the same request: timeout(1) signals its child and then the
 * process group, which contains the child. */
#include "cli/session.h"

#include <event2/event.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/watch.h"

enum { DESCRIPTORS = 65536, DESCRIPTORS_MIN = 64 };
enum { CLI_MISTAKES = 20 };                          /* as pl_options_check_all() tells */
#define SAME_REQUEST 0.5                             /* s: signals that belong together */

/* ---- options ---- */

bool cli_is_set(const pl_options_t *options, const char *key)
{
    char *value = pl_options_get(options, key);
    bool set = value && *value;
    pl_text_free(value);
    return set;
}

bool cli_has_data_to_predict(const pl_options_t *options)
{
    return cli_is_set(options, "data.predict") || cli_is_set(options, "data.test")
           || !(cli_is_set(options, "data.train") || cli_is_set(options, "data.val"));
}

/* ---- JSON ---- */

static json_t *parsed(const char *text)
{
    json_t *value = json_loads(text && *text ? text : "{}",
                               JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    return value ? value : json_object();
}

void cli_session_progress(cli_session_t *session, const pl_progress_t *p)
{
    if (!session->json)
        cli_progress_show(&session->progress, p);
    else if (!strcmp(p->event, "text"))
        cli_print_json(
            json_pack("{s:s, s:o}", "event", "text", "text", parsed(p->metrics)));
    else
        cli_print_json(json_pack("{s:s, s:I, s:I, s:i, s:i, s:i, s:o}", "event", p->event,
                                 "global_step", (json_int_t)p->global_step, "total_steps",
                                 (json_int_t)p->total_steps, "epoch", (int)p->epoch,
                                 "batch", (int)p->batch, "batches", (int)p->batches,
                                 "metrics", parsed(p->metrics)));
}

static json_t *error_json(const pl_error_t *error)
{
    return json_pack("{s:s, s:s, s:s}", "code", pl_code_name(error->code), "where",
                     error->where, "text", error->text);
}

/* The mistakes of the run file that was loaded last. */
static struct mistakes {
    int count;
    pl_error_t mistake[CLI_MISTAKES];
} mistakes;

static void on_mistake(void *user, const pl_error_t *mistake)
{
    (void)user;
    if (mistakes.count < CLI_MISTAKES)
        mistakes.mistake[mistakes.count++] = *mistake;
}

void cli_failure(const pl_error_t *error, bool json)
{
    json_t *result = json ? json_pack("{s:s, s:s, s:o}", "event", "result", "status",
                                      "failed", "error", error_json(error))
                          : NULL;
    json_t *more = json && mistakes.count > 1 ? json_array() : NULL;
    cli_error("%s", error->text);
    for (int k = 1; k < mistakes.count; k++) {
        cli_error("%s", mistakes.mistake[k].text);
        json_array_append_new(more, error_json(&mistakes.mistake[k]));
    }
    if (mistakes.count == CLI_MISTAKES)
        cli_error("there may be more mistakes: correct these first");
    if (more)
        json_object_set_new(result, "more_errors", more);
    if (json)
        cli_print_json(result);
}

json_t *cli_result_json(const cli_session_t *session, const pl_result_t *result)
{
    json_t *json = json_pack("{s:s, s:s}", "event", "result", "status", result->status);
    if (*result->reason)
        json_object_set_new(json, "reason", json_string(result->reason));
    if (*result->run_dir)
        json_object_set_new(json, "run_dir", json_string(result->run_dir));
    if (*result->best_checkpoint)
        json_object_set_new(json, "best_checkpoint",
                            json_string(result->best_checkpoint));
    if (session->work->trains)
        json_object_update_new(json, json_pack("{s:I, s:i, s:o}", "global_step",
                                               (json_int_t)result->global_step, "epoch",
                                               (int)result->epoch, "metrics",
                                               parsed(result->metrics)));
    if (session->work->measures)
        json_object_set_new(json, "metrics", parsed(result->metrics));
    if (result->output_count)
        json_object_set_new(json, "samples",
                            json_integer(result->output[0].shape.dim[0]));
    json_object_set_new(json, "seconds", json_real(result->seconds));
    if (!strcmp(result->status, "failed"))
        json_object_set_new(json, "error", error_json(&result->error));
    return json;
}

void cli_show_metrics(const pl_result_t *result, const char *beginning)
{
    const char *name;
    char number[24];
    json_t *value, *metrics = parsed(result->metrics);
    int width = 12;
    json_object_foreach(metrics, name, value)
        if ((int)strlen(name) > width)
            width = (int)strlen(name);
    json_object_foreach(metrics, name, value) {
        if (strncmp(name, beginning, strlen(beginning)))
            continue;
        if (json_is_number(value))
            cli_print("%-*s %s\n", width, name,
                      cli_number(json_number_value(value), 4, number));
        else if (json_is_null(value))
            cli_print("%-*s not finite\n", width, name);
        else {                                   /* a matrix, or a curve of many points */
            char *text = json_dumps(value, JSON_COMPACT);
            cli_print("%-*s %s\n", width, name,
                      text && strlen(text) <= 160
                          ? text
                          : "a matrix or curve: see metrics.jsonl");
            free(text);
        }
    }
    json_decref(metrics);
}

/* ---- the run file ---- */

static int set_key(pl_options_t *options, const char *word, pl_error_t *err)
{
    char key[256];
    size_t length = strcspn(word, "=");
    if (!word[length] || !length || length >= sizeof key)
        return pl_fail(
            err, PL_EINVAL,
            "--set takes KEY=VALUE, such as trainer.max_epochs=3, not \"%.80s\"", word);
    memcpy(key, word, length);
    key[length] = '\0';
    return pl_options_set(options, key, word + length + 1, err);
}

/* Adds the files of --plugin to the key "plugins", so that the effective run file names
 * them too. */
static int set_plugins(pl_options_t *options, const cli_texts_t *plugins, pl_error_t *err)
{
    char key[32], *list = plugins->count ? pl_options_get(options, "plugins") : NULL;
    json_t *there = json_loads(list ? list : "[]", 0, NULL);
    size_t count = json_array_size(there);
    int code = PL_OK;
    for (int k = 0; code == PL_OK && k < plugins->count; k++) {
        json_t *file = json_string(plugins->text[k]);
        char *quoted = file ? json_dumps(file, JSON_ENCODE_ANY) : NULL;
        snprintf(key, sizeof key, "plugins.%zu", count + (size_t)k);
        code = quoted ? pl_options_set(options, key, quoted, err)
                      : pl_fail(err, PL_EINVAL,
                                "--plugin: the name of the file is not UTF-8");
        free(quoted);
        json_decref(file);
    }
    json_decref(there);
    pl_text_free(list);
    return code;
}

pl_options_t *cli_run_load(const cli_run_t *run, pl_error_t *err)
{
    /* The runs of a sweep begin with the same file, which may be a pipe. */
    static pl_options_t *first;
    if (!first && cli_is_data(run->file)) {
        pl_fail(err, PL_EINVAL,
                "%s is data and no run file: name a run file, such as "
                "runs/latest/run.json, and read these data by --set data.path=%s; "
                "paceline init %s writes a new one",
                run->file, run->file, run->file);
        return NULL;
    }
    if (!first)
        first = pl_options_read(run->file, err);
    pl_options_t *options = first ? pl_options_clone(first, err) : NULL;
    int code = options ? set_plugins(options, &run->plugins, err) : PL_ENOTFOUND;
    for (int k = 0; code == PL_OK && k < run->set.count; k++)
        code = set_key(options, run->set.text[k], err);
    mistakes.count = 0;
    if (code == PL_OK)
        code = pl_options_check_all(options, on_mistake, NULL, err);
    if (code == PL_OK)
        return options;
    pl_options_free(options);
    return NULL;
}

/* ---- signals ---- */

bool cli_signal_is_new(double *requested)
{
    const double now = cli_now();
    const bool is_new = !*requested || now - *requested >= SAME_REQUEST;
    if (is_new)
        *requested = now;
    return is_new;
}

static void on_signal(int number, short what, void *user)
{
    (void)what;
    cli_session_t *session = user;
    if (!cli_signal_is_new(&session->signalled))
        return;
    if (session->signal) {
        cli_live_line("");
        if (session->ended)         /* the result is there, and the engine still closes */
            _exit(cli_output_end(session->status));
        cli_note("aborted: nothing was saved");
        _exit(session->signal == SIGINT ? CLI_INTERRUPTED : CLI_FAILED);
    }
    session->signal = number;
    const char *name = number == SIGINT   ? "SIGINT"
                       : number == SIGHUP ? "SIGHUP"
                                          : "SIGTERM";
    if (pl_trainer_stop(session->trainer, name, NULL) == PL_OK)
        cli_note("stopping%s%s", session->has_begun ? " after this step" : "",
                 number == SIGINT ? "; Ctrl-C again ends at once" : "");
}

bool cli_signals_catch(struct event_base *base, struct event *signals[CLI_SIGNALS],
                       void (*on_signalled)(int number, short what, void *user),
                       void *user)
{
    static const int numbers[CLI_SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
    for (int k = 0; k < CLI_SIGNALS; k++) {
        struct sigaction action;
        if (numbers[k] == SIGHUP && sigaction(SIGHUP, NULL, &action) == 0
            && action.sa_handler == SIG_IGN)
            continue;
        signals[k] = evsignal_new(base, numbers[k], on_signalled, user);
        if (!signals[k] || event_add(signals[k], NULL) != 0)
            return false;
    }
    return true;
}

void cli_signals_free(struct event *signals[CLI_SIGNALS])
{
    for (int k = 0; k < CLI_SIGNALS; k++)
        if (signals[k])
            event_free(signals[k]);
}

/* ---- notifications ---- */

static void on_closed(pl_engine_t *engine, void *user)
{
    (void)engine;
    event_base_loopbreak(((cli_session_t *)user)->base);
}

static void on_progress(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)trainer;
    cli_session_t *session = user;
    session->has_begun = true;
    (session->work->progress ? session->work->progress : cli_session_progress)(session,
                                                                               progress);
}

/* A request may be wrong in ways that only the machine shows where it runs: files that
 * cannot be read or written, devices, ranks.  A device or a connection that fails is no
 * such file. */
static bool is_request_wrong(const pl_result_t *result)
{
    const pl_error_t *error = &result->error;
    const bool is_of_file = !strstr(error->where, "accelerator.")
                            && !strstr(error->where, "collective.");
    return !result->begun
           && (error->code == PL_EINVAL || error->code == PL_ENOTFOUND
               || error->code == PL_EEXIST || error->code == PL_EUNSUPPORTED
               || error->code == PL_EFORMAT || (error->code == PL_EIO && is_of_file));
}

/* The place of an error precedes its text, unless the text contains it, or the error is a
 * wrong request or a file of the only rank. */
static void failure_tell(const pl_result_t *result)
{
    const pl_error_t *error = &result->error;
    const size_t length = strlen(error->where);
    const char *named = length ? strstr(error->text, error->where) : error->text;
    const bool is_named = (named
                           && (named[length] < '0' || named[length] > '9' || !length))
                          || ((is_request_wrong(result) || error->code == PL_EIO)
                              && !strncmp(error->where, "rank 0 ", 7));
    cli_error("%s%s%s", is_named ? "" : error->where, is_named ? "" : ": ", error->text);
}

/* Of several runs the first one that did not end well gives the status. */
static void run_ended(cli_session_t *session, const pl_result_t *result)
{
    const int code = result->error.code;
    const bool is_lost = code == PL_EDIED || code == PL_EPEER || code == PL_ESTUCK;
    /* With CLI_LOST paceline launch starts all ranks again: the loss may not repeat. */
    int status = is_request_wrong(result)                      ? CLI_WRONG
                 : is_lost && getenv("PACELINE_RESTART_COUNT") ? CLI_LOST
                                                               : CLI_FAILED;
    cli_live_line("");
    if (!strcmp(result->status, "failed")) {
        failure_tell(result);
        if (session->work->failed && !session->json)
            session->work->failed(result);
        if (session->json)
            cli_print_json(cli_result_json(session, result));
    } else {
        status = session->work->done(session, result);
    }
    if (session->status == CLI_DONE)
        session->status = status;
}

static bool begin_next(cli_session_t *session, const pl_result_t *result);

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    cli_session_t *session = user;
    run_ended(session, result);
    if (session->work->next && begin_next(session, result))
        return;
    const bool is_cut_short = result->error.code == PL_ECANCELLED;
    if ((session->status == CLI_DONE || session->is_cut || is_cut_short)
        && session->signal == SIGINT)
        session->status = CLI_INTERRUPTED;
    session->ended = true;
    pl_engine_close(session->engine, on_closed, session);
}

/* ---- the run ---- */

/* Frees the trainer of the run before. */
static int run_begin(cli_session_t *session, pl_error_t *err)
{
    pl_trainer_t *trainer = pl_trainer_new(session->engine, session->options, err);
    if (!trainer)
        return PL_EINVAL;
    pl_trainer_free(session->trainer);
    session->trainer = trainer;
    pl_trainer_on_progress(trainer, on_progress, session);
    return session->work->start(session, on_done, err);
}

/* A run that cannot start counts as failed; the next one may start. */
static bool begin_next(cli_session_t *session, const pl_result_t *result)
{
    pl_result_t failed = {.status = "failed",
                          .metrics = "{}",
                          .run_dir = "",
                          .text = "",
                          .best_checkpoint = "",
                          .callbacks = "[]"};
    pl_options_t *options;
    while ((options = session->work->next(session, result))) {
        pl_options_free(session->options);
        session->options = options;
        session->has_begun = false;
        failed.error = (pl_error_t){0};
        if (run_begin(session, &failed.error) == PL_OK)
            return true;
        result = &failed;
        run_ended(session, result);
    }
    return false;
}

/* The absolute path of a file that may not exist; false: its folder does not. */
static bool place_of(const char *name, char place[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *last = strrchr(name, '/');
    const int length = last ? (int)(last - name + 1) : 0;
    snprintf(folder, sizeof folder, "%.*s", length, name);
    if (!realpath(*folder ? folder : ".", place))
        return false;
    const size_t used = strlen(place);
    snprintf(place + used, PATH_MAX - used, "/%s", name + length);
    return true;
}

bool cli_are_one_file(const char *a, const char *b)
{
    char place[2][PATH_MAX];
    struct stat status[2];
    if (stat(a, &status[0]) == 0 && stat(b, &status[1]) == 0)
        return status[0].st_dev == status[1].st_dev
               && status[0].st_ino == status[1].st_ino;
    return place_of(a, place[0]) && place_of(b, place[1]) && !strcmp(place[0], place[1]);
}

/* The path of an endpoint  [NULL: it has none]. */
static const char *socket_of(const char *endpoint)
{
    return endpoint && !strncmp(endpoint, "ipc://", 6) ? endpoint + 6 : NULL;
}

/* Refuses one file for two outputs. */
static int files_check(const cli_telemetry_t *telemetry, pl_error_t *err)
{
    const struct {
        const char *option, *file;
    } files[] = {{"journal", telemetry->journal},
                 {"trace", telemetry->trace},
                 {"monitor", socket_of(telemetry->monitor)},
                 {"control", socket_of(telemetry->control)}};
    enum { FILES = sizeof files / sizeof *files };
    for (int k = 0; k < FILES; k++)
        for (int other = k + 1; other < FILES; other++)
            if (files[k].file && files[other].file
                && cli_are_one_file(files[k].file, files[other].file))
                return pl_fail(err, PL_EINVAL,
                               "--%s %s and --%s %s are the same file: give each its own",
                               files[k].option, files[k].file, files[other].option,
                               files[other].file);
    return PL_OK;
}

/* The stream of all ranks is in the process of rank 0. */
static int telemetry_open(pl_engine_t *engine, const cli_telemetry_t *telemetry,
                          pl_error_t *err)
{
    if (pl_rank() > 0)
        return PL_OK;
    int code = files_check(telemetry, err);
    if (code == PL_OK && telemetry->journal)
        code = pl_engine_journal(engine, telemetry->journal, err);
    if (code == PL_OK && telemetry->trace)
        code = pl_engine_trace(engine, telemetry->trace, err);
    if (code == PL_OK && telemetry->monitor)
        code = pl_engine_monitor(engine, telemetry->monitor, err);
    if (code == PL_OK && telemetry->dashboard)
        code = pl_engine_dashboard(engine, telemetry->dashboard, err);
    if (code == PL_OK && telemetry->control)
        code = pl_engine_control(engine, telemetry->control, err);
    return code;
}

static int session_open(cli_session_t *session, const cli_telemetry_t *telemetry,
                        pl_error_t *err)
{
    /* Each viewer of the stream needs a descriptor. With almost none libevent would end
     * the process without a message. The engine checks whether there are enough for the
     * run. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < DESCRIPTORS) {
        if (limit.rlim_max < DESCRIPTORS_MIN)
            return pl_fail(err, PL_EBUSY,
                           "the limit of open descriptors is %d, too low: raise it to "
                           "1024 or more (ulimit -n)",
                           (int)limit.rlim_max);
        limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    session->base = event_base_new();
    if (!session->base)
        return pl_fail(err, PL_ENOMEM, "no event loop: out of memory or descriptors");
    session->engine = pl_engine_new(session->base, err);
    if (!session->engine)
        return PL_ENOMEM;
    const int code = telemetry_open(session->engine, telemetry, err);
    if (code != PL_OK)
        return code;
    if (!cli_signals_catch(session->base, session->signals, on_signal, session))
        return pl_fail(err, PL_ENOMEM, "out of memory");
    return run_begin(session, err);
}

/* Prints an endpoint and the command that connects to it  [""]. */
static void tell_endpoint(const cli_session_t *session, const char *command,
                          const char *endpoint)
{
    if (!*endpoint)
        return;
    if (session->json)
        cli_print_json(json_pack("{s:s, s:s}", "event", command, "endpoint", endpoint));
    else
        cli_note("%s: %s %s %s", command, cli_program(), command, endpoint);
}

int cli_session_run(cli_session_t *session, const cli_telemetry_t *telemetry)
{
    pl_error_t err = {0};
    session->status = CLI_WRONG;
    cli_flush();                                /* what was printed before, into a file */
    if (session->work->trains && !session->json)
        cli_show_information();
    if (session_open(session, telemetry, &err) != PL_OK) {
        cli_failure(&err, session->json);
    } else {
        tell_endpoint(session, "monitor", pl_engine_monitor_endpoint(session->engine));
        tell_endpoint(session, "control", pl_engine_control_endpoint(session->engine));
        const char *dashboard = pl_engine_dashboard_url(session->engine);
        if (*dashboard)                    /* contains a secret: on standard error only */
            cli_note("dashboard: %s", dashboard);
        session->status = CLI_DONE;
        event_base_dispatch(session->base);
    }
    cli_signals_free(session->signals);
    pl_engine_free(session->engine);
    if (session->base)
        event_base_free(session->base);
    pl_options_free(session->options);
    return session->status;
}
