/* fit.c - paceline fit: train as a run file says, show the progress and the result */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/session.h"
#include "cli/weights.h"

typedef struct fit {
    cli_session_t session;
    cli_sweep_t sweep;
} fit_t;

static int fit_start(cli_session_t *session, pl_on_done_t on_done, pl_error_t *err)
{
    const char *resume = ((const cli_fit_t *)session->arguments)->resume;
    const char *from = resume && strcmp(resume, "last") ? resume : NULL;
    if (resume)
        return pl_trainer_resume(session->trainer, from, on_done, session, err);
    return pl_trainer_fit(session->trainer, on_done, session, err);
}

/* ---- the result ---- */

static void show_end(const pl_result_t *result, int signal)
{
    char clock[24];
    double skipped;
    bool stopped = !strcmp(result->status, "stopped");
    cli_print("%s after %u epoch%s, %llu step%s in ",
              !stopped ? "done"
              : signal ? "stopped by a signal"
                       : "stopped",
              result->epoch, cli_plural(result->epoch),
              (unsigned long long)result->global_step, cli_plural(result->global_step));
    if (result->seconds < 60)
        cli_print("%.1f s", result->seconds);
    else
        cli_print("%s min", cli_clock(result->seconds, clock));
    cli_print("%s%s\n", *result->reason && !signal ? ": " : "",
              signal ? "" : result->reason);
    if (pl_result_metric(result, "skipped_steps", &skipped) && skipped > 0)
        cli_print("%.0f of the steps skipped: loss or gradients were not finite\n",
                  skipped);
}

/* Where a model_checkpoint has restore_best, weights and metrics are those of the best
 * checkpoint, which may be of an earlier step. */
static void show_best(const pl_result_t *result)
{
    char *path = pl_text("%s/manifest.json", result->best_checkpoint);
    json_error_t why;
    json_t *manifest = NULL, *callback;
    if (path && *result->best_checkpoint && !(manifest = json_load_file(path, 0, &why)))
        cli_error("the step of the best checkpoint cannot be read: %s", why.text);
    const json_int_t step = json_integer_value(json_object_get(manifest, "global_step"));
    size_t k;
    json_array_foreach(json_object_get(manifest, "callbacks"), k, callback) {
        const char *text = json_string_value(json_object_get(callback, "state"));
        json_t *state = text ? json_loads(text, 0, NULL) : NULL;
        if (json_is_true(json_object_get(state, "restore_best"))
            && step != (json_int_t)result->global_step)
            cli_print("the weights and metrics are those of step %lld, the best by %s\n",
                      (long long)step,
                      json_string_value(json_object_get(state, "monitor")));
        json_decref(state);
    }
    json_decref(manifest);
    pl_text_free(path);
}

/* Why a result is poor: it is no better than an answer that is always the same, and the
 * run was short, or had few samples, or learnt them by heart.  A longer run is no help
 * where a callback has stopped it. */
static void show_doubts(const cli_session_t *session, const pl_result_t *result)
{
    enum { FEW_STEPS = 100, FEW_SAMPLES = 200 };
    double r2, accuracy, mae, train, val;
    char number[24], other[24];
    json_t *data_info = cli_weights_data_info(result->run_dir);
    const double share = json_number_value(json_object_get(data_info, "class_share")),
                 repeated = json_number_value(json_object_get(data_info, "repeated_mae"));
    bool poor = false;
    json_decref(data_info);
    if (pl_result_metric(result, "val_r2", &r2) && r2 < 0.05) {
        poor = true;
        cli_note("val_r2 is %s: the predictions are %s than the mean of the targets",
                 cli_number(r2, 4, number), r2 > 0 ? "hardly better" : "no better");
    }
    if (pl_result_metric(result, "val_acc", &accuracy) && share > 0
        && accuracy <= share + 0.01) {
        poor = true;
        cli_note("val_acc is %s, but the most frequent class is %s of the samples: the "
                 "predictions are hardly better than that class alone",
                 cli_number(accuracy, 4, number), cli_number(share, 4, other));
    }
    if (pl_result_metric(result, "val_mae", &mae) && repeated > 0 && mae >= repeated)
        cli_note("val_mae is %s, but a forecast that repeats the last value has %s: this "
                 "one is no better",
                 cli_number(mae, 4, number), cli_number(repeated, 4, other));
    if (!poor)
        return;
    char *size = pl_options_get(session->options, "data.batch_size");
    const double samples = (double)result->global_step
                           / (result->epoch ? result->epoch : 1)
                           * (size ? atof(size) : 0);
    pl_text_free(size);
    const bool compares = pl_result_metric(result, "train_loss", &train)
                          && pl_result_metric(result, "val_loss", &val);
    const bool stopped = !strcmp(result->status, "stopped");
    if (result->global_step < FEW_STEPS && !stopped)
        cli_note("the run had %llu step%s: train longer, with more trainer.max_epochs",
                 (unsigned long long)result->global_step,
                 cli_plural(result->global_step));
    else if (samples < FEW_SAMPLES && !(repeated > 0))
        cli_note(
            "about %.0f samples to train on are few: data.folds measures how much the "
            "result varies",
            samples);
    else if (compares && val > 2 * train)
        cli_note(
            "val_loss is much larger than train_loss: the network learns its samples "
            "by heart; try more module.dropout or fewer module.hidden");
    else
        cli_note("what the features say about the target is little, or has another form "
                 "than this module can learn");
}

/* The folder of checkpoints is empty if none could be written. */
static bool is_empty_folder(const char *run_dir, const char *name)
{
    struct dirent **entries = NULL;
    char *path = pl_text("%s/%s", run_dir, name);
    const int count = path ? scandir(path, &entries, cli_is_visible, NULL) : -1;
    for (int k = 0; k < count; k++)
        free(entries[k]);
    free(entries);
    pl_text_free(path);
    return count == 0;
}

static void show_files(const char *run_dir)
{
    struct dirent **entries = NULL;
    int count = scandir(run_dir, &entries, cli_is_visible, alphasort);
    cli_print("written to %s:", run_dir);
    for (int k = 0; k < count; k++) {
        if (!is_empty_folder(run_dir, entries[k]->d_name))
            cli_print(" %s", entries[k]->d_name);
        free(entries[k]);
    }
    free(entries);
    cli_print("\n");
}

/* Whether the state at the stop is saved, and a resumed run would not stop there again,
 * as after a stop by a callback. */
static bool can_resume(const pl_result_t *result)
{
    char *path = pl_text("%s/checkpoints/stopped/manifest.json", result->run_dir);
    json_t *manifest = path ? json_load_file(path, 0, NULL) : NULL;
    const json_t *step = json_object_get(manifest, "global_step");
    const json_t *ends = json_object_get(json_object_get(manifest, "progress"), "stop");
    const bool can = json_integer_value(step) == (json_int_t)result->global_step
                     && !json_is_true(ends);
    json_decref(manifest);
    pl_text_free(path);
    return can;
}

/* ---- next steps ---- */

/* "paceline fit RUN_DIR/run.json --resume RUN_DIR": the effective run file, which has all
 * that was set. To be freed by pl_text_free()  [option ""; NULL: no memory]. */
static char *command_text(const char *command, const char *run_dir, const char *option)
{
    char *path = pl_text("%s/run.json", run_dir),
         *file = path ? cli_shell_word(path) : NULL,
         *folder = *option ? cli_shell_word(run_dir) : NULL;
    char *text = file ? pl_text("%s %s %s%s%s%s%s", cli_program(), command, file,
                                *option ? " " : "", option, *option ? " " : "",
                                folder ? folder : "")
                      : NULL;
    pl_text_free(path);
    free(file);
    free(folder);
    return text;
}

static void print_command(const char *command, const char *run_dir, const char *option)
{
    char *text = command_text(command, run_dir, option);
    cli_print("  %s", text ? text : "");
    pl_text_free(text);
}

/* A prompt that the vocabulary of the weights can express. */
static void prompt_of(const char *vocabulary, char prompt[16])
{
    snprintf(prompt, 16, "ROMEO:");
    for (const char *c = prompt; *vocabulary && *c; c++)    /* "": bytes, all of them */
        if (!strchr(vocabulary, *c)) {
            size_t at = strcspn(vocabulary, "abcdefghijklmnopqrstuvwxyz");
            snprintf(prompt, 16, "%.1s", vocabulary[at] ? vocabulary + at : "");
            return;
        }
}

/* A prompt is for modules that write text: their data info has a vocabulary. */
static void show_next_steps(const pl_options_t *options, const char *run_dir)
{
    char prompt[16] = "", *folder = cli_shell_word(run_dir);
    json_t *data_info = cli_weights_data_info(run_dir);
    const char *vocabulary = json_string_value(json_object_get(data_info, "vocabulary"));
    cli_print("\nnext steps\n");
    if (vocabulary)
        prompt_of(vocabulary, prompt);
    if (*prompt || (!vocabulary && cli_has_data_to_predict(options))) {
        print_command("predict", run_dir, "--checkpoint");
        cli_print(*prompt ? " --prompt '%s'\n" : " | head\n", prompt);
    }
    char *name = pl_options_get(options, "data.name"),
         *path = pl_options_get(options, "data.path");
    if (!vocabulary && name && path && *path && !strcmp(name, "csv")) {
        print_command("predict", run_dir, "--checkpoint");
        cli_print(" --set data.path=NEW%s --output predictions.csv\n",
                  strrchr(path, '.') ? strrchr(path, '.') : "");
    }
    pl_text_free(name);
    pl_text_free(path);
    cli_print("  %s inspect %s\n", cli_program(), folder ? folder : "");
    print_command("fit", run_dir, "");
    cli_print(" --set optimizer.lr=3e-4%s\n",
              cli_is_set(options, "trainer.run_name") ? " --set trainer.run_name=" : "");
    json_decref(data_info);
    free(folder);
}

static void fit_failed(const pl_result_t *result)
{
    char *path = pl_text("%s/checkpoints", result->run_dir),
         *command = command_text("fit", result->run_dir, "--resume");
    if (path && *result->run_dir && access(path, F_OK) == 0
        && !is_empty_folder(result->run_dir, "checkpoints"))
        cli_note("its checkpoints are in %s; to resume from the newest\n  %s", path,
                 command ? command : "");
    pl_text_free(path);
    pl_text_free(command);
}

static int fit_done(cli_session_t *session, const pl_result_t *result)
{
    /* A resumed run that was complete trains nothing. */
    const bool was_complete = !strcmp(result->status, "ok") && *result->reason;
    if (session->json) {
        cli_print_json(cli_result_json(session, result));
        return CLI_DONE;
    }
    if (((fit_t *)session)->sweep.runs > 1)
        return CLI_DONE;                               /* the table at the end shows it */
    if (was_complete) {
        cli_print("%s\n", result->reason);
    } else {
        if (cli_columns(stdout))
            cli_print("\n");                           /* apart from the progress above */
        cli_show_metrics(result, "val_");
        cli_show_metrics(result, "train_");
        show_end(result, session->signal);
        show_best(result);
        if (!session->signal && *result->run_dir)
            show_doubts(session, result);
    }
    if (!*result->run_dir)
        return CLI_DONE;
    show_files(result->run_dir);
    if (!strcmp(result->status, "stopped") && can_resume(result)) {
        cli_print("the state at the stop is saved; to resume\n");
        print_command("fit", result->run_dir, "--resume");
        cli_print("\n");
    }
    if (!session->signal && (isatty(STDOUT_FILENO) || getenv("PACELINE_HINTS")))
        show_next_steps(session->options, result->run_dir);
    return CLI_DONE;
}

/* ---- the runs ---- */

static int print_config(pl_options_t *options, bool json)
{
    pl_error_t err = {0};
    char *text = pl_options_print(options, &err);
    if (text)
        cli_print("%s%s", text, *text && text[strlen(text) - 1] == '\n' ? "" : "\n");
    else
        cli_failure(&err, json);
    int status = text ? CLI_DONE : CLI_WRONG;
    pl_text_free(text);
    pl_options_free(options);
    return status;
}

/* The options of the next run, which it announces in a sweep; NULL: there is none. */
static pl_options_t *fit_load(fit_t *fit, pl_error_t *err)
{
    cli_sweep_t *sweep = &fit->sweep;
    pl_options_t *options = cli_sweep_next(sweep, err);
    if (!options)
        return NULL;
    cli_progress_begin(&fit->session.progress, options);
    if (sweep->runs == 1)
        return options;
    char words[256];
    json_t *set = cli_sweep_set(sweep);
    cli_sweep_words(set, words, sizeof words);
    if (fit->session.json)
        cli_print_json(json_pack("{s:s, s:i, s:i, s:O}", "event", "run", "run",
                                 sweep->next, "runs", sweep->runs, "set", set));
    else
        cli_note("run %d of %d: %s", sweep->next, sweep->runs, words);
    json_decref(set);
    return options;
}

static pl_options_t *fit_next(cli_session_t *session, const pl_result_t *result)
{
    fit_t *fit = (fit_t *)session;
    pl_error_t err = {0};
    if (fit->sweep.runs == 1)
        return NULL;
    cli_sweep_keep(&fit->sweep, cli_result_json(session, result));
    /* What is wrong with the first fold is wrong with all. */
    const bool cannot_fold = fit->sweep.folds && fit->sweep.next == 1
                             && session->status == CLI_WRONG;
    if (cannot_fold && !session->json)
        return NULL;
    pl_options_t *options = session->signal || cannot_fold ? NULL : fit_load(fit, &err);
    if (options)
        return options;
    if (err.code != PL_OK)
        cli_error("%s", err.text);
    if (session->json)
        cli_print_json(cli_sweep_json(&fit->sweep));
    else
        cli_sweep_show(&fit->sweep);
    return NULL;
}

/* For data in place of a run file, the name of its run file, which is written if it is
 * not there; PL_OK with NULL: it is a run file. A run file that is there was perhaps
 * written for other data, whose name is the same up to the first dot. */
static int run_file_of(const cli_fit_t *arguments, char **name_p, pl_error_t *err)
{
    const char *data = arguments->run, *target = arguments->target;
    char *path = NULL;
    if (!cli_is_data(data))
        return !target || access(data, F_OK) != 0
                   ? PL_OK
                   : pl_fail(err, PL_EINVAL,
                             "--target is for data in place of a run file, and %s is a "
                             "run file: change the target there, in its section \"data\"",
                             data);
    *name_p = cli_init_name(data);
    if (!*name_p)
        return pl_fail(err, PL_ENOMEM, "out of memory");
    if (access(*name_p, F_OK) != 0 || cli_are_one_file(*name_p, data)) {
        const bool quiet = arguments->json || arguments->print_config;
        const int code = cli_init_write(data, target, *name_p, quiet, err);
        if (code == PL_OK && !quiet)
            cli_print("the run file is %s\n", *name_p);
        return code;
    }
    int code = cli_init_check(data, *name_p, &path, err);
    if (code == PL_OK && target)
        code = pl_fail(err, PL_EINVAL,
                       "%s exists, and --target is for a new run file: remove it, or "
                       "write another: paceline init %s --target %s --output NAME.json",
                       *name_p, data, target);
    if (code == PL_OK)
        cli_note("%s exists: this run does as it says, and trains on %s", *name_p, path);
    pl_text_free(path);
    return code;
}

int cli_fit(const cli_fit_t *given)
{
    static const cli_work_t work = {.trains = true,
                                    .start = fit_start,
                                    .done = fit_done,
                                    .failed = fit_failed,
                                    .next = fit_next};
    pl_error_t err = {0};
    cli_fit_t with_name = *given;
    const cli_fit_t *arguments = &with_name;
    char *name = NULL;
    int code = run_file_of(given, &name, &err), status = CLI_WRONG;
    with_name.run = name ? name : given->run;
    const cli_run_t run = CLI_RUN_OF(arguments);
    fit_t fit = {
        .session = {.work = &work, .arguments = arguments, .json = arguments->json}};
    if (code == PL_OK)
        code = cli_sweep_open(&fit.sweep, &run, &err);
    if (code == PL_OK && arguments->print_config
        && fit.sweep.runs > (fit.sweep.folds ? fit.sweep.folds : 1))
        code = pl_fail(&err, PL_EINVAL,
                       "--print-config prints one run: give each --set one value");
    if (code == PL_OK && !arguments->json)
        cli_sweep_explain(&fit.sweep);
    if (code == PL_OK)
        fit.session.options = fit_load(&fit, &err);
    if (fit.session.options && arguments->print_config && fit.sweep.folds
        && pl_options_set(fit.session.options, "data.fold", "-1", &err) != PL_OK) {
        pl_options_free(fit.session.options);
        fit.session.options = NULL;
    }
    if (!fit.session.options)
        cli_failure(&err, arguments->json);
    else if (arguments->print_config)
        status = print_config(fit.session.options, arguments->json);
    else
        status = cli_session_run(&fit.session, &run.telemetry);
    cli_sweep_close(&fit.sweep);
    pl_text_free(name);
    return status;
}
