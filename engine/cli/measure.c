/* measure.c - paceline validate and paceline test: the metrics of given weights */
#include <string.h>

#include "cli/commands.h"
#include "cli/session.h"
#include "cli/weights.h"

typedef struct measure_command {
    cli_session_t session;
    bool tests;                                             /* [validates] */
    const char *checkpoint;
} measure_command_t;

static int measure_start(cli_session_t *session, pl_on_done_t on_done, pl_error_t *err)
{
    const measure_command_t *m = (measure_command_t *)session;
    return (m->tests ? pl_trainer_test : pl_trainer_validate)(session->trainer,
                                                              m->checkpoint, on_done,
                                                              session, err);
}

static int measure_done(cli_session_t *session, const pl_result_t *result)
{
    if (session->json) {
        cli_print_json(cli_result_json(session, result));
        return CLI_DONE;
    }
    cli_show_metrics(result, "");
    cli_print("%s in %.1f s\n", strcmp(result->status, "stopped") ? "done" : "stopped",
              result->seconds);
    if (*result->run_dir)
        cli_print("logged to %s\n", result->run_dir);
    return CLI_DONE;
}

static int measure(const cli_run_t *run, bool tests, const char *checkpoint, bool json)
{
    static const cli_work_t work = {.measures = true,
                                    .start = measure_start,
                                    .done = measure_done};
    measure_command_t m = {.session = {.work = &work, .json = json},
                           .tests = tests,
                           .checkpoint = checkpoint};
    pl_error_t err = {0};
    int code = checkpoint ? cli_weights_check(checkpoint, &err)
                          : pl_fail(&err, PL_EINVAL,
                                    "%s needs --checkpoint: a run directory or a "
                                    ".safetensors file",
                                    tests ? "test" : "validate");
    m.session.options = code == PL_OK ? cli_run_load(run, &err) : NULL;
    if (m.session.options)
        code = cli_weights_module(m.session.options, checkpoint, &err);
    if (!m.session.options || code != PL_OK) {
        cli_failure(&err, json);
        pl_options_free(m.session.options);
        return CLI_WRONG;
    }
    cli_progress_begin(&m.session.progress, m.session.options);
    return cli_session_run(&m.session, &run->telemetry);
}

int cli_validate(const cli_validate_t *a)
{
    const cli_run_t run = CLI_RUN_OF(a);
    return measure(&run, false, a->checkpoint, a->json);
}

int cli_test(const cli_test_t *a)
{
    const cli_run_t run = CLI_RUN_OF(a);
    return measure(&run, true, a->checkpoint, a->json);
}
