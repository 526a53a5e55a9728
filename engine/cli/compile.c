/* compile.c - paceline compile: compiles the kernels of a run before it begins
 *
 * First come the plans of fit, then those of predict if the run file has data for it. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/session.h"

typedef struct compile_command {
    cli_session_t session;
    pl_stage_t stage;
    json_t *plans;                                          /* of all stages */
    char cache[512];
    double seconds;
} compile_command_t;

static int compile_start(cli_session_t *session, pl_on_done_t on_done, pl_error_t *err)
{
    return pl_trainer_compile(session->trainer, ((compile_command_t *)session)->stage,
                              on_done, session, err);
}

/* The log lines of the accelerator show the progress. */
static void compile_progress(cli_session_t *session, const pl_progress_t *now)
{
    (void)session, (void)now;
}

static void show_plans(const compile_command_t *c)
{
    size_t k;
    json_t *plan;
    double pieces = 0, from_cache = 0;
    int width = 12;                                   /* enough for most names of plans */
    json_array_foreach(c->plans, k, plan) {
        const int length = (int)json_string_length(json_object_get(plan, "name"));
        width = length > width ? length : width;
    }
    cli_print("%-*s %7s  %8s  %6s  %10s  %s\n", width, "plan", "samples", "launches",
              "pieces", "from cache", "compiled in");
    json_array_foreach(c->plans, k, plan) {
        char samples[24];
        snprintf(samples, sizeof samples, "%.0f", cli_get_number(plan, "samples"));
        cli_print("%-*s %7s  %8.0f  %6.0f  %10.0f  %.2f s\n", width,
                  json_string_value(json_object_get(plan, "name")),
                  cli_get_number(plan, "samples") > 0 ? samples : "-",
                  cli_get_number(plan, "launches"), cli_get_number(plan, "pieces"),
                  cli_get_number(plan, "from_cache"), cli_get_number(plan, "seconds"));
        pieces += cli_get_number(plan, "pieces");
        from_cache += cli_get_number(plan, "from_cache");
    }
    cli_print("%.0f piece%s of kernels in %.1f s: %.0f compiled, %.0f from the cache "
              "%s\n",
              pieces, cli_plural((uint64_t)pieces), c->seconds, pieces - from_cache,
              from_cache, c->cache);
}

static int compile_done(cli_session_t *session, const pl_result_t *result)
{
    compile_command_t *c = (compile_command_t *)session;
    json_t *found = json_loads(result->text, 0, NULL);
    const char *cache = json_string_value(json_object_get(found, "cache"));
    json_array_extend(c->plans, json_object_get(found, "plans"));
    snprintf(c->cache, sizeof c->cache, "%s", cache ? cache : "");
    c->seconds += result->seconds;
    json_decref(found);
    return CLI_DONE;
}

static pl_options_t *compile_next(cli_session_t *session, const pl_result_t *result)
{
    compile_command_t *c = (compile_command_t *)session;
    pl_error_t err = {0};
    if (strcmp(result->status, "ok") != 0)
        return NULL;
    const bool is_over = c->stage != PL_TRAIN
                         || !cli_has_data_to_predict(session->options);
    if (is_over || session->signal) {
        if (session->json)
            cli_print_json(json_pack("{s:s, s:s, s:s, s:f, s:O}", "event", "result",
                                     "status", is_over ? "ok" : "stopped", "cache",
                                     c->cache, "seconds", c->seconds, "plans", c->plans));
        else
            show_plans(c);
        if (!is_over) {
            cli_note("stopped: the plans of predict are not compiled");
            session->status = CLI_FAILED;
            session->is_cut = true;
        }
        return NULL;
    }
    c->stage = PL_PREDICT;
    pl_options_t *options = pl_options_clone(session->options, &err);
    if (!options) {
        cli_failure(&err, session->json);
        session->status = CLI_FAILED;
    }
    return options;
}

/* Sets the option of the accelerator cuda; an accelerator without cards is refused. */
static int card_set(pl_options_t *options, const char *card, pl_error_t *err)
{
    char *value = pl_options_get(options, "trainer.accelerator");
    json_t *given = value ? json_loads(value, 0, NULL) : NULL;
    const char *name = given ? json_string_value(json_object_get(given, "name")) : value;
    const bool is_named = name && *name && strcmp(name, "auto") != 0;
    int code = PL_OK;
    if (!*card)
        code = pl_fail(err, PL_EINVAL, "--card needs a kind of card, such as sm_90");
    else if (is_named && strcmp(name, "cuda") != 0)
        code = pl_fail(err, PL_EINVAL,
                       "--card is for the accelerator \"cuda\", and trainer.accelerator "
                       "is \"%.40s\": set that to cuda",
                       name);
    else if (!is_named)
        code = pl_options_set(options, "trainer.accelerator", "cuda", err);
    if (code == PL_OK)
        code = pl_options_set(options, "trainer.accelerator.compile_for", card, err);
    json_decref(given);
    pl_text_free(value);
    return code;
}

int cli_compile(const cli_compile_t *arguments)
{
    static const cli_work_t work = {.start = compile_start,
                                    .progress = compile_progress,
                                    .done = compile_done,
                                    .next = compile_next};
    pl_error_t err = {0};
    const cli_run_t run = CLI_RUN_OF(arguments);
    compile_command_t c = {.session = {.work = &work,
                                       .arguments = arguments,
                                       .json = arguments->json},
                           .stage = PL_TRAIN,
                           .plans = json_array()};
    c.session.options = cli_run_load(&run, &err);
    if (c.session.options && arguments->card
        && card_set(c.session.options, arguments->card, &err) != PL_OK) {
        pl_options_free(c.session.options);
        c.session.options = NULL;
    }
    int status = CLI_WRONG;
    if (!arguments->json)
        cli_show_information();
    if (c.session.options)
        status = cli_session_run(&c.session, &run.telemetry);
    else
        cli_failure(&err, arguments->json);
    json_decref(c.plans);
    return status;
}
