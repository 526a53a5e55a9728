/* mlflow.h - the MLflow logger as run files know it, with libcurl or without */
#ifndef PL_CONNECTORS_LOGGERS_MLFLOW_H
#define PL_CONNECTORS_LOGGERS_MLFLOW_H

#include <paceline.h>

#define MLFLOW_HELP "an MLflow tracking server; needs a build with libcurl"

typedef struct mlflow_options {
    const char *tracking_uri, *experiment;
    double timeout;
} mlflow_options_t;

static const pl_option_t mlflow_table[] = {
    PL_TEXT(mlflow_options_t, tracking_uri, "\"\"", NULL,
            "server; empty: $MLFLOW_TRACKING_URI or http://127.0.0.1:5000"),
    PL_TEXT(mlflow_options_t, experiment, "\"paceline\"", NULL,
            "made when it is not there"),
    PL_FLOAT(mlflow_options_t, timeout, "10", "(0..",
             "seconds for an answer of the server"),
    PL_OPTIONS_END,
};

#endif
