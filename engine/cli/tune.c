/* tune.c - paceline tune: a learning rate for a run, by a trial of many */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/session.h"

enum { LINES = 24, BAR = 40 };

typedef struct tune {
    cli_session_t session;
    cli_progress_t progress;
} tune_t;

static int tune_start(cli_session_t *session, pl_on_done_t on_done, pl_error_t *err)
{
    const cli_tune_t *arguments = session->arguments;
    const pl_tuning_t what = {.min_lr = arguments->min_lr,
                              .max_lr = arguments->max_lr,
                              .num_training = arguments->num_training,
                              .early_stop_threshold = arguments->early_stop_threshold};
    return pl_trainer_tune(session->trainer, &what, on_done, session, err);
}

static void tune_progress(cli_session_t *session, const pl_progress_t *now)
{
    if (session->json)
        cli_print_json(cli_progress_json(now));
    else
        cli_progress_show(&((tune_t *)session)->progress, now);
}

/* ---- what it found ---- */

static double loss_of(const json_t *trials, size_t k)
{
    const json_t *loss = json_object_get(json_array_get(trials, k), "loss");
    return json_is_number(loss) ? json_number_value(loss) : NAN;
}

/* Some of the trials, with bars from the lowest loss to the highest. */
static void show_trials(const json_t *trials)
{
    size_t count = json_array_size(trials);
    double low = INFINITY, high = -INFINITY;
    for (size_t k = 0; k < count; k++) {
        low = fmin(low, loss_of(trials, k));
        high = fmax(high, loss_of(trials, k));
    }
    size_t lines = count < LINES ? count : LINES;
    cli_print("%-10s  loss\n", "lr");
    for (size_t line = 0; line < lines; line++) {
        size_t k = lines > 1 ? line * (count - 1) / (lines - 1) : 0;
        double loss = loss_of(trials, k);
        int bar = high > low ? (int)((loss - low) / (high - low) * BAR) : 0;
        cli_print("%-10.3g  %-10.4f  %.*s\n",
                  json_number_value(json_object_get(json_array_get(trials, k), "lr")),
                  loss, bar, "########################################");
    }
}

static int tune_done(cli_session_t *session, const pl_result_t *result)
{
    const cli_tune_t *arguments = session->arguments;
    json_t *found = json_loads(result->text, 0, NULL);
    json_t *trials = json_object_get(found, "trials");
    double lr;
    bool known = pl_result_metric(result, "lr", &lr);
    if (session->json) {
        json_t *json = cli_result_json(session, result);
        json_object_set(json, "trials", trials);
        cli_print_json(json);
    } else {
        show_trials(trials);
        if (known)
            cli_print("the loss falls most steeply at %.3g:\n"
                      "  %s fit %s --set optimizer.lr=%.3g\n",
                      lr, cli_program(), arguments->run, lr);
        else
            cli_print("no learning rate stands out: too few steps, or the loss was never "
                      "finite\n");
    }
    json_decref(found);
    return CLI_DONE;
}

int cli_tune(const cli_tune_t *arguments)
{
    static const cli_work_t work = {.trains = true,
                                    .start = tune_start,
                                    .progress = tune_progress,
                                    .done = tune_done};
    pl_error_t err = {0};
    const cli_run_t run = {.file = arguments->run,
                           .set = arguments->set,
                           .plugins = arguments->plugin};
    tune_t tune = {.session = {.work = &work,
                               .arguments = arguments,
                               .json = arguments->json,
                               .options = cli_run_load(&run, &err)}};
    if (!tune.session.options) {
        cli_failure(&err, arguments->json);
        return CLI_WRONG;
    }
    cli_progress_begin(&tune.progress, tune.session.options);
    return cli_session_run(&tune.session, arguments->monitor);
}
