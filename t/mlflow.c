/* mlflow.c - tests of actors/connectors/loggers/mlflow.c against a server of our own */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/connectors/connectors.h"
#include "base/options.h"
#include "http_server.h"
#include "queen.h"
#include "tap.h"

const pl_registration_t *mlflow_plugin(void);

static pl_address_t logger;
static asked_t life;
static int warnings;
static char first_warning[PL_ERROR_TEXT + 100];

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)rank, (void)actor, (void)user;
    if (level == PL_LOG_WARNING && warnings++ == 0)
        snprintf(first_warning, sizeof first_warning, "%s", text);
}

static void start(const char *uri, double timeout)
{
    char options[PATH_MAX];
    pl_job_t *job = queen_job("{\"loggers\": [{\"name\": \"mlflow\", \"tracking_uri\": "
                              "\"%s\", \"timeout\": %g, \"experiment\": \"a b\"}], "
                              "\"trainer\": {\"max_epochs\": 3}}",
                              uri, timeout);
    warnings = 0;
    first_warning[0] = '\0';
    queen_open();
    snprintf(options, sizeof options, "{\"run_dir\": \"%s/0042\"}", tap_folder());
    const pl_start_t reported = {.options = options, .context = &job->object};
    logger = queen_spawn(&pl_logger_connector, &reported, &life);
    pl_object_unref(job);
}

static void log_step(uint64_t step, const char *metrics)
{
    const pl_log_metrics_t fields = {.epoch = 1, .global_step = step, .metrics = metrics};
    is_int(queen_call(logger, PL_MESSAGE_log_metrics, &fields)->error.code, PL_OK,
           "the run is not troubled");
}

static void end(pl_run_status_t status)
{
    const pl_end_log_t fields = {.status = status};
    queen_call(logger, PL_MESSAGE_end_log, &fields);
    queen_end(&life);
    queen_close();
    is_int(life.error.code, PL_OK, "the end is orderly");
}

static void a_run_is_made_filled_and_ended(void)
{
    start(http_start(HTTP_NORMAL), 10);
    log_step(50, "{\"train_loss\": 0.5, \"bad\": null, \"list\": [1]}");
    log_step(100, "{\"val_loss\": 0.25}");
    end(PL_RUN_STATUS_OK);
    const char *made = http_requests();
    like(made, "^GET /api/2.0/mlflow/experiments/get-by-name\\?experiment_name=a%20b",
         "the experiment is looked for");
    like(made, "POST /api/2.0/mlflow/experiments/create \\{\"name\":\"a b\"\\}",
         "and made");
    like(made,
         "runs/create \\{\"experiment_id\":\"7\",\"start_time\":[0-9]{13},"
         "\"run_name\":\"0042\"\\}",
         "then a run in it");
    like(made,
         "runs/log-batch \\{\"run_id\":\"abc\",\"params\":\\[.*\\{\"key\":"
         "\"trainer.max_epochs\",\"value\":\"3\"\\}",
         "its hyperparameters");
    like(made,
         "\"metrics\":\\[\\{\"key\":\"train_loss\",\"value\":0.5,\"timestamp\":"
         "[0-9]{13},\"step\":50\\},\\{\"key\":\"val_loss\",\"value\":0.25,",
         "its metrics, those that are numbers");
    like(made, "runs/update \\{\"run_id\":\"abc\",\"status\":\"FINISHED\"",
         "and how it ended");
    is_int(warnings, 0, "without a warning");
    http_stop();
}

static void a_run_that_fails_or_stops_has_its_status(void)
{
    start(http_start(HTTP_NORMAL), 10);
    log_step(1, "{\"a\": 1}");
    end(PL_RUN_STATUS_FAILED);
    like(http_requests(), "\"status\":\"FAILED\"", "failed");
    http_stop();
    start(http_start(HTTP_NORMAL), 10);
    log_step(1, "{\"a\": 1}");
    end(PL_RUN_STATUS_STOPPED);
    like(http_requests(), "\"status\":\"KILLED\"", "stopped");
    http_stop();
}

static void costs_metrics_only(http_mood_t mood, const char *what, const char *why)
{
    start(http_start(mood), 0.3);
    log_step(1, "{\"a\": 1}");
    end(PL_RUN_STATUS_OK);
    like(first_warning,
         "^logger \"mlflow\": metrics are lost, the run continues and counts them at its "
         "end: http://",
         "%s: metrics are lost", what);
    like(first_warning, why, "and why is said");
    http_stop();
}

static void a_bad_server_costs_metrics_only(void)
{
    costs_metrics_only(HTTP_BROKEN, "an error of the server",
                       "status 500: the server says why");
    costs_metrics_only(HTTP_MUTE, "a server that never answers", "Timeout");
    costs_metrics_only(HTTP_DYING, "one that dies", "experiments/(get|create)");
    costs_metrics_only(HTTP_ODD, "one that is no MLflow", "is this an MLflow");
}

static void no_server_costs_metrics_only(void)
{
    char gone[64];
    snprintf(gone, sizeof gone, "%s", http_start(HTTP_NORMAL));
    http_stop();
    start(gone, 10);
    log_step(1, "{\"a\": 1}");
    end(PL_RUN_STATUS_OK);
    like(first_warning, "metrics are lost.*connect", "a refused connection");
}

static void a_long_wait_is_interrupted_at_the_end(void)
{
    start(http_start(HTTP_MUTE), 600);
    log_step(1, "{\"a\": 1}");
    end(PL_RUN_STATUS_OK);
    like(first_warning, "callback", "a server that never answers holds nothing up");
    http_stop();
}

static void a_resumed_run_continues_its_record(void)
{
    const pl_logger_ops_t *ops = mlflow_plugin()[0].table;
    char *self = calloc(1, ops->size);
    static const char again[] = "{\"train_loss\": 1, \"val_loss\": 2}";
    const pl_log_run_t run = {.run_dir = "x", .run = "{}", .position = "abc"};
    pl_error_t err = {0};
    setenv("MLFLOW_TRACKING_URI", http_start(HTTP_NORMAL), 1);
    *(const char **)(self + ops->options[0].offset) = "";
    *(double *)(self + ops->options[2].offset) = 10;
    is_int(ops->open(self, &run, &err), PL_OK, "opened %s", err.text);
    ops->log(self, &(pl_record_t){.global_step = 100, .metrics = again}, &err);
    ops->log(self, &(pl_record_t){.global_step = 150, .metrics = again}, &err);
    is_int(ops->flush(self, &err), PL_OK, "metrics are sent %s", err.text);
    char *position = ops->position(self);
    is_text(position, "abc", "the same run");
    ops->close(self, "");
    like(http_requests(),
         "^POST /api/2.0/mlflow/runs/update \\{\"run_id\":\"abc\",\"status\":\"RUNNING\"",
         "is running again");
    ok(!strstr(http_requests(), "runs/create"), "and no other is made");
    like(http_requests(), "GET /api/2.0/mlflow/runs/get\\?run_id=abc",
         "the server is asked what it has");
    like(http_requests(),
         "\"metrics\":\\[\\{\"key\":\"val_loss\",\"value\":2.0,[^}]*\"step\":100\\},"
         "\\{\"key\":\"train_loss\",\"value\":1.0,[^}]*\"step\":150\\},"
         "\\{\"key\":\"val_loss\",\"value\":2.0,[^}]*\"step\":150\\}\\]",
         "and what it has is not sent again");
    pl_text_free(position);
    free(self);
    http_stop();
}

static void a_password_comes_from_the_environment(void)
{
    pl_error_t err = {0};
    pl_options_t *o =
        pl_options_parse("{\"loggers\": [{\"name\": \"mlflow\", \"tracking_uri\": "
                         "\"http://me:secret@127.0.0.1:1/x\"}]}",
                         "run.json", &err);
    is_int(pl_options_check(o, &err), PL_EINVAL, "none stands in the address");
    like(err.text, "loggers.*tracking_uri.*MLFLOW_TRACKING_PASSWORD",
         "the error names the variable");
    ok(!strstr(err.text, "secret"), "without it");
    pl_options_free(o);
    setenv("MLFLOW_TRACKING_URI", "https://me:secret@127.0.0.1:1", 1);
    start("", 10);
    log_step(1, "{\"a\": 1}");
    end(PL_RUN_STATUS_OK);
    unsetenv("MLFLOW_TRACKING_URI");
    like(first_warning, "MLFLOW_TRACKING_PASSWORD", "nor in the environment's");
    ok(!strstr(first_warning, "secret"), "and the log does not show it either");
    setenv("MLFLOW_TRACKING_USERNAME", "me", 1);
    setenv("MLFLOW_TRACKING_PASSWORD", "secret", 1);
    start(http_start(HTTP_NORMAL), 10);
    log_step(1, "{\"a\": 1}");
    end(PL_RUN_STATUS_OK);
    unsetenv("MLFLOW_TRACKING_USERNAME");
    unsetenv("MLFLOW_TRACKING_PASSWORD");
    is_text(http_authorization(), "Basic bWU6c2VjcmV0", "the server gets it");
    http_stop();
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    setenv("no_proxy", "*", 1);
    pl_register(mlflow_plugin(), NULL);
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    run(a_run_is_made_filled_and_ended);
    run(a_run_that_fails_or_stops_has_its_status);
    run(a_bad_server_costs_metrics_only);
    run(no_server_costs_metrics_only);
    run(a_long_wait_is_interrupted_at_the_end);
    run(a_resumed_run_continues_its_record);
    run(a_password_comes_from_the_environment);
    return tap_done();
}
