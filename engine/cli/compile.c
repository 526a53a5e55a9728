/* compile.c - paceline compile: the kernels of a run, compiled before it begins
 *
 * The plans of a fit come first, those of a prediction behind them, where the run file
 * has data for it. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/session.h"

typedef struct compile {
    cli_session_t session;
    pl_stage_t stage;
    json_t *plans;                                          /* of all stages */
    char cache[512];
    double seconds;
} compile_t;

static int compile_start(cli_session_t *session, pl_on_done_t on_done, pl_error_t *err)
{
    return pl_trainer_compile(session->trainer, ((compile_t *)session)->stage, on_done,
                              session, err);
}

/* The accelerator logs how far it is. */
static void compile_progress(cli_session_t *session, const pl_progress_t *now)
{
    (void)session, (void)now;
}

static double number_of(const json_t *plan, const char *key)
{
    return json_number_value(json_object_get(plan, key));
}

static void show_plans(const compile_t *c)
{
    size_t k;
    json_t *plan;
    double pieces = 0, kept = 0, compiling = 0;
    cli_print("%-12s %7s  %8s  %6s  %10s  %s\n", "plan", "samples", "launches", "pieces",
              "from cache", "compiled in");
    json_array_foreach(c->plans, k, plan) {
        cli_print("%-12s %7.0f  %8.0f  %6.0f  %10.0f  %.2f s\n",
                  json_string_value(json_object_get(plan, "name")),
                  number_of(plan, "samples"), number_of(plan, "launches"),
                  number_of(plan, "pieces"), number_of(plan, "kept"),
                  number_of(plan, "seconds"));
        pieces += number_of(plan, "pieces");
        kept += number_of(plan, "kept");
        compiling += number_of(plan, "seconds");
    }
    cli_print("%.0f pieces in %.1f s: %.0f compiled, %.0f from the cache %s\n", pieces,
              c->seconds, pieces - kept, kept, c->cache);
}

static int compile_done(cli_session_t *session, const pl_result_t *result)
{
    compile_t *c = (compile_t *)session;
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
    compile_t *c = (compile_t *)session;
    pl_error_t err = {0};
    const bool is_well = !strcmp(result->status, "ok");
    if (is_well && !session->signal && c->stage == PL_TRAIN
        && cli_has_data_to_predict(session->options)) {
        c->stage = PL_PREDICT;
        pl_options_t *options = pl_options_clone(session->options, &err);
        if (options)
            return options;
        cli_error("%s", err.text);
    }
    if (is_well && session->json)
        cli_print_json(json_pack("{s:s, s:s, s:s, s:f, s:O}", "event", "result", "status",
                                 "ok", "cache", c->cache, "seconds", c->seconds, "plans",
                                 c->plans));
    else if (is_well)
        show_plans(c);
    return NULL;
}

/* The accelerator's other options stay, if it is the one that has cards. */
static int card_set(pl_options_t *options, const char *card, pl_error_t *err)
{
    char *value = pl_options_get(options, "trainer.accelerator");
    json_t *given = value ? json_loads(value, 0, NULL) : NULL;
    const char *name = given ? json_string_value(json_object_get(given, "name")) : value;
    int code = name && !strcmp(name, "cuda")
                   ? PL_OK
                   : pl_options_set(options, "trainer.accelerator", "cuda", err);
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
    const cli_run_t run = {.file = arguments->run,
                           .set = arguments->set,
                           .plugins = arguments->plugin};
    compile_t c = {
        .session = {.work = &work, .arguments = arguments, .json = arguments->json},
        .stage = PL_TRAIN,
        .plans = json_array()};
    c.session.options = cli_run_load(&run, &err);
    if (c.session.options && arguments->card
        && card_set(c.session.options, arguments->card, &err) != PL_OK) {
        pl_options_free(c.session.options);
        c.session.options = NULL;
    }
    int status = CLI_WRONG;
    if (c.session.options)
        status = cli_session_run(&c.session, CLI_SIGHT(arguments));
    else
        cli_failure(&err, arguments->json);
    json_decref(c.plans);
    return status;
}
