/* tune.c - paceline tune: finds a learning rate or a batch size by trials */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/watch.h"

enum { LINES = 24, BAR = 40, MIB = 1 << 20 };
static const double EVERY = 3;                        /* s: lines where none is redrawn */
static const double GAIN = 0.1;                       /* as in the search */

typedef struct tune {
    cli_session_t session;
    size_t shown;                                           /* batch sizes in the table */
    double noted;                                           /* s: the newest line */
} tune_t;

static int tune_start(cli_session_t *session, pl_on_done_t on_done, pl_error_t *err)
{
    const cli_tune_t *arguments = session->arguments;
    const pl_tuning_t what = {.min_lr = arguments->min_lr,
                              .max_lr = arguments->max_lr,
                              .num_training = arguments->num_training,
                              .early_stop_threshold = arguments->early_stop_threshold,
                              .batch_size = arguments->batch_size,
                              .steps_per_trial = arguments->steps_per_trial,
                              .init_val = arguments->init_val,
                              .max_trials = arguments->max_trials,
                              .max_memory = arguments->max_memory * MIB};
    return pl_trainer_tune(session->trainer, &what, on_done, session, err);
}

/* ---- learning rates ---- */

static double loss_of(const json_t *trials, size_t k)
{
    const json_t *loss = json_object_get(json_array_get(trials, k), "loss");
    return json_is_number(loss) ? json_number_value(loss) : NAN;
}

/* The lowest loss, and the highest loss before it: with rates that are too large the loss
 * may be many times as high, which is no information. */
static void useful_range(const json_t *trials, double *low, double *high)
{
    double highest = -INFINITY;
    *low = INFINITY, *high = -INFINITY;
    for (size_t k = 0; k < json_array_size(trials); k++) {
        highest = fmax(highest, loss_of(trials, k));
        if (!(loss_of(trials, k) < *low))
            continue;
        *low = loss_of(trials, k);
        *high = highest;
    }
    if (!(*high > *low))                                    /* it never fell */
        *high = highest;
}

/* Some of the trials, with bars over the useful range; ">" marks a loss beyond it. */
static void show_trials(const json_t *trials)
{
    const size_t count = json_array_size(trials), lines = count < LINES ? count : LINES;
    double low, high;
    char number[24];
    useful_range(trials, &low, &high);
    cli_print("%-10s  loss\n", "lr");
    for (size_t line = 0; line < lines; line++) {
        const size_t k = lines > 1 ? line * (count - 1) / (lines - 1) : 0;
        const double loss = loss_of(trials, k);
        const double share = high > low ? (loss - low) / (high - low) : 0;
        const int bar = share > 1 ? BAR : share > 0 ? (int)(share * BAR) : 0;
        cli_print("%-10.3g  %-10s  %.*s%s\n",
                  json_number_value(json_object_get(json_array_get(trials, k), "lr")),
                  cli_number(loss, 4, number), bar,
                  "########################################",
                  share > 1 || isnan(share) ? ">" : "");
    }
}

/* After a stop the trials allow no suggestion. */
static void show_rate(const cli_tune_t *arguments, const json_t *trials,
                      const pl_result_t *result)
{
    double lr;
    show_trials(trials);
    if (pl_result_metric(result, "lr", &lr))
        cli_print("the loss falls most steeply at a learning rate of %.3g:\n"
                  "  %s fit %s --set optimizer.lr=%.3g\n",
                  lr, cli_program(), arguments->run, lr);
    else if (!strcmp(result->status, "stopped"))
        cli_print("stopped before all learning rates were tried: no suggestion\n");
    else
        cli_print("no suggestion: too few steps, or the loss was never "
                  "finite\n");
}

/* ---- batch sizes ---- */

/* A row of the table, which grows during the search. The memory of a batch is
 * known if the process has grown for it. */
static void show_trial(tune_t *tune, const json_t *trial)
{
    char memory[24];
    cli_live_line("");
    if (tune->shown++ == 0)
        cli_print("%-10s  %-10s  memory\n", "batch_size", "samples/s");
    if (!json_is_true(json_object_get(trial, "fits")))
        cli_print("%-10.0f  does not fit\n", cli_get_number(trial, "batch_size"));
    else
        cli_print("%-10.0f  %-10.0f  %s\n", cli_get_number(trial, "batch_size"),
                  cli_get_number(trial, "samples_per_second"),
                  cli_get_number(trial, "memory") > 0
                      ? cli_bytes(cli_get_number(trial, "memory"), memory)
                      : "unknown");
    cli_flush();
}

/* The suggested size, and why no larger one. */
static void show_suggestion(const json_t *trials, double size, double largest)
{
    size_t k;
    json_t *trial;
    double best = 0, rate = 0;
    json_array_foreach((json_t *)trials, k, trial) {
        const double speed = cli_get_number(trial, "samples_per_second"),
                     batch = cli_get_number(trial, "batch_size");
        if (!json_is_true(json_object_get(trial, "fits")))
            continue;
        if (batch > size)
            best = fmax(best, speed);
        else if (batch == size && !(rate > 0))
            rate = speed;
    }
    cli_print("suggested: %.0f, with %.0f samples/s; batches of up to %.0f fit\n", size,
              rate, largest);
    if (size == largest)
        return;
    if (best > rate / (1 - GAIN))
        cli_print(
            "larger ones reach %.0f samples/s, but leave too few steps in an epoch\n",
            best);
    else if (best > rate)
        cli_print("larger ones are at most %.0f %% faster\n",
                  ceil(100 * (best / rate - 1)));
    else
        cli_print("larger ones are not faster\n");
}

static void show_size(tune_t *tune, const json_t *trials, const pl_result_t *result)
{
    const cli_tune_t *arguments = tune->session.arguments;
    double largest, size;
    const bool found = pl_result_metric(result, "batch_size", &largest)
                       && pl_result_metric(result, "suggested_batch_size", &size),
               is_stopped = !strcmp(result->status, "stopped");
    while (tune->shown < json_array_size(trials))      /* those of which no report came */
        show_trial(tune, json_array_get(trials, tune->shown));
    if (is_stopped && found)
        cli_print(
            "stopped before the search ended: batches of %.0f samples fit, larger ones "
            "may; suggested of those tried: %.0f\n",
            largest, size);
    else if (is_stopped)
        cli_print("stopped before a batch size was found: no suggestion\n");
    else if (found) {
        show_suggestion(trials, size, largest);
        cli_print("  %s fit %s --set data.batch_size=%.0f\n", cli_program(),
                  arguments->run, size);
    } else
        cli_print("no batch size that was tried fits: lower --init-val or raise "
                  "--max-memory\n");
}

/* ---- progress and result ---- */

/* Shows the batch size or rate that is tried now. */
static void tune_progress(cli_session_t *session, const pl_progress_t *now)
{
    tune_t *tune = (tune_t *)session;
    char text[128], line[128], loss[24];
    if (session->json) {
        cli_session_progress(session, now);
        return;
    }
    json_t *metrics = json_loads(now->metrics, 0, NULL);
    if (!strcmp(now->event, "trial")) {
        show_trial(tune, metrics);
    } else if (!strcmp(now->event, "train") && json_object_size(metrics)) {
        if (cli_get_number(metrics, "batch_size") > 0)
            snprintf(text, sizeof text, "trial %llu: batches of %.0f samples",
                     (unsigned long long)now->global_step + 1,
                     cli_get_number(metrics, "batch_size"));
        else
            snprintf(text, sizeof text, "trial %llu of %llu: learning rate %.3g, loss %s",
                     (unsigned long long)now->global_step,
                     (unsigned long long)now->total_steps, cli_get_number(metrics, "lr"),
                     cli_number(cli_get_number(metrics, "train_loss"), 4, loss));
        snprintf(line, sizeof line, "%.*s",
                 (int)cli_bytes_of(text, cli_columns(stderr) - 1), text);
        if (session->progress.bar) {
            cli_live_line(line);
        } else if (!tune->shown && cli_now() - tune->noted >= EVERY) {
            tune->noted = cli_now();                /* rows of batch sizes say the same */
            cli_note("%s", text);
        }
    }
    json_decref(metrics);
}

static int tune_done(cli_session_t *session, const pl_result_t *result)
{
    const cli_tune_t *arguments = session->arguments;
    json_t *found = json_loads(result->text, 0, NULL);
    json_t *trials = json_object_get(found, "trials");
    if (session->json) {
        json_t *json = cli_result_json(session, result);
        json_object_set(json, "trials", trials);
        cli_print_json(json);
    } else {
        if (arguments->batch_size)
            show_size((tune_t *)session, trials, result);
        else
            show_rate(arguments, trials, result);
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
    const cli_run_t run = CLI_RUN_OF(arguments);
    tune_t tune = {.session = {.work = &work,
                               .arguments = arguments,
                               .json = arguments->json,
                               .options = cli_run_load(&run, &err)}};
    if (!tune.session.options) {
        cli_failure(&err, arguments->json);
        return CLI_WRONG;
    }
    cli_progress_begin(&tune.session.progress, tune.session.options);
    tune.noted = cli_now();
    return cli_session_run(&tune.session, &run.telemetry);
}
