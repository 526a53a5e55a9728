/* mlflow.h - the options of the MLflow logger, with libcurl or without */
#ifndef PL_CONNECTORS_LOGGERS_MLFLOW_H
#define PL_CONNECTORS_LOGGERS_MLFLOW_H

#include <paceline.h>
#include <string.h>

#define MLFLOW_HELP "logs to an MLflow tracking server; needs a build with libcurl"

typedef struct mlflow_options {
    const char *tracking_uri, *experiment;
    double timeout;
} mlflow_options_t;

static const pl_option_t mlflow_table[] = {
    PL_TEXT(mlflow_options_t, tracking_uri, "\"\"", NULL,
            "server; empty: $MLFLOW_TRACKING_URI or http://127.0.0.1:5000"),
    PL_TEXT(mlflow_options_t, experiment, "\"paceline\"", NULL,
            "experiment, created if it is missing"),
    PL_FLOAT(mlflow_options_t, timeout, "10", "(0..",
             "seconds to wait for an answer of the server"),
    PL_OPTIONS_END,
};

/* A run file is stored with its run and shown, with all that it contains. */
static int mlflow_address_check(const char *uri, pl_error_t *err)
{
    const char *host = strstr(uri, "://");
    host = host ? host + 3 : uri;
    return memchr(host, '@', strcspn(host, "/?#"))
               ? pl_fail(err, PL_EINVAL,
                         "the address of an MLflow server must not have a user or "
                         "password, because it is saved and shown: set "
                         "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD")
               : PL_OK;
}

static const char *mlflow_check(const void *self, pl_error_t *err)
{
    const mlflow_options_t *options = self;
    return mlflow_address_check(options->tracking_uri, err) == PL_OK ? NULL
                                                                     : "tracking_uri";
}

#endif
