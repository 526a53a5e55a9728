/* mlflow_none.c - the MLflow logger of a build without libcurl
 *
 * It has the same options, so a run file is valid in every build or in none; its error
 * names the missing package. */
#include "actors/connectors/loggers/mlflow.h"

static int mlflow_open(void *self, const pl_log_run_t *run, pl_error_t *err)
{
    (void)self, (void)run;
    return pl_fail(err, PL_EUNSUPPORTED,
                   "Paceline was built without libcurl: apt-get install "
                   "libcurl4-openssl-dev, configure and build again");
}

static int mlflow_log(void *self, const pl_record_t *record, pl_error_t *err)
{
    (void)self, (void)record, (void)err;
    return PL_OK;
}

static const pl_logger_ops_t mlflow_logger = {
    .name = "mlflow",
    .help = MLFLOW_HELP,
    .size = sizeof(mlflow_options_t),
    .options = mlflow_table,
    .check = mlflow_check,
    .open = mlflow_open,
    .log = mlflow_log,
};

PL_PLUGIN({"logger", &mlflow_logger})
