/* fit.c - paceline fit: train as a run file says, show how it goes and how it ended */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/session.h"

typedef struct fit {
    cli_session_t session;
    cli_progress_t progress;
} fit_t;

static int fit_start(cli_session_t *session, pl_on_done_t on_done, pl_error_t *err)
{
    return pl_trainer_fit(session->trainer, on_done, session, err);
}

static void fit_progress(cli_session_t *session, const pl_progress_t *now)
{
    if (session->json)
        cli_print_json(cli_progress_json(now));
    else
        cli_progress_show(&((fit_t *)session)->progress, now);
}

/* ---- how it ended ---- */

static void show_metrics(json_t *metrics, const char *beginning)
{
    const char *name;
    json_t *value;
    json_object_foreach(metrics, name,
                        value) if (!strncmp(name, beginning, strlen(beginning)))
    {
        if (json_is_number(value))
            cli_print("%-12s %.4f\n", name, json_number_value(value));
        else
            cli_print("%-12s not finite\n", name);
    }
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void show_end(const pl_result_t *result, int signal)
{
    char clock[24];
    bool stopped = !strcmp(result->status, "stopped");
    cli_print("%s after %u epoch%s, %llu step%s in ",
              !stopped ? "done"
              : signal ? "stopped by a signal"
                       : "stopped",
              result->epoch, plural(result->epoch),
              (unsigned long long)result->global_step, plural(result->global_step));
    if (result->seconds < 60)
        cli_print("%.1f s\n", result->seconds);
    else
        cli_print("%s min\n", cli_clock(result->seconds, clock));
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void show_files(const char *run_dir)
{
    struct dirent **entries = NULL;
    int count = scandir(run_dir, &entries, is_shown, alphasort);
    cli_print("written to %s:", run_dir);
    for (int k = 0; k < count; k++) {
        cli_print(" %s", entries[k]->d_name);
        free(entries[k]);
    }
    free(entries);
    cli_print("\n");
}

/* A prompt is for modules that write text: those whose data knew a vocabulary. */
static bool writes_text(const char *run_dir)
{
    json_t *facts = cli_weights_facts(run_dir);
    bool text = json_object_get(facts, "vocabulary") != NULL;
    json_decref(facts);
    return text;
}

static void show_hints(const char *run_file, const char *run_dir)
{
    const char *paceline = cli_program();
    cli_print("\nnext you could try\n");
    if (writes_text(run_dir))
        cli_print("  %s predict %s --checkpoint %s --prompt 'ROMEO:'\n", paceline,
                  run_file, run_dir);
    else
        cli_print("  %s predict %s --checkpoint %s | head\n", paceline, run_file,
                  run_dir);
    cli_print("  %s inspect %s\n", paceline, run_dir);
    cli_print("  %s fit %s --set optimizer.lr=3e-4\n", paceline, run_file);
}

static int fit_done(cli_session_t *session, const pl_result_t *result)
{
    const cli_fit_t *arguments = session->arguments;
    if (session->json) {
        cli_print_json(cli_result_json(result));
        return CLI_DONE;
    }
    json_t *metrics = json_loads(result->metrics, JSON_REJECT_DUPLICATES, NULL);
    if (cli_columns(stdout))
        cli_print("\n");                               /* apart from the progress above */
    show_metrics(metrics, "val_");
    show_metrics(metrics, "train_");
    json_decref(metrics);
    show_end(result, session->signal);
    if (*result->run_dir)
        show_files(result->run_dir);
    if (*result->run_dir && !session->signal
        && (isatty(STDOUT_FILENO) || getenv("PACELINE_HINTS")))
        show_hints(arguments->run, result->run_dir);
    return CLI_DONE;
}

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

int cli_fit(const cli_fit_t *arguments)
{
    static const cli_work_t work = {fit_start, fit_progress, fit_done};
    pl_error_t err = {0};
    cli_run_t run = {.file = arguments->run,
                     .set = arguments->set,
                     .plugins = arguments->plugin};
    pl_options_t *options = cli_run_load(&run, &err);
    if (!options) {
        cli_failure(&err, arguments->json);
        return CLI_WRONG;
    }
    if (arguments->print_config)
        return print_config(options, arguments->json);
    fit_t fit = {.session = {.work = &work,
                             .arguments = arguments,
                             .json = arguments->json,
                             .options = options}};
    cli_progress_begin(&fit.progress, options);
    return cli_session_run(&fit.session, arguments->monitor);
}
