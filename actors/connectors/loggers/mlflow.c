/* mlflow.c - sends metrics to an MLflow tracking server, by its REST API
 *
 * It is a plug-in, because it alone needs libcurl.  Requests wait for the server up to
 * `timeout`, which delays nothing else; metrics that the server does not accept are
 * lost. A resumed run keeps its MLflow run, from which nothing can be removed: so it
 * requests the newest step of each metric from the server, and does not send older
 * steps again. https://mlflow.org/docs/latest/rest-api.html */
#include <curl/curl.h>
#include <jansson.h>
#include <math.h>
#include <paceline.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "actors/connectors/loggers/mlflow.h"

enum { METRICS_MAX = 1000, PARAMS_MAX = 100, VALUE_MAX = 500, ANSWER_MAX = 1 << 20 };

typedef struct mlflow {
    mlflow_options_t options;                          /* first: the table refers to it */
    CURL *curl;
    char *run_id;
    json_t *metrics;                          /* not yet sent */
    json_t *newest;                           /* in a resumed run: the newest step of each
                                                 metric that the server has */
    atomic_bool interrupted;
} mlflow_t;

/* ---- HTTP ---- */

/* The answer's text, up to a limit. */
typedef struct http_response {
    char *text;
    size_t size;
} http_response_t;

static size_t answer_take(char *data, size_t one, size_t count, void *user)
{
    http_response_t *answer = user;
    size_t size = one * count;
    if (answer->size + size > ANSWER_MAX)
        return 0;
    char *joined = pl_text("%s%.*s", answer->text ? answer->text : "", (int)size, data);
    if (!joined)
        return 0;
    pl_text_free(answer->text);
    answer->text = joined;
    answer->size += size;
    return size;
}

static int is_interrupted(void *user, curl_off_t a, curl_off_t b, curl_off_t c,
                          curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    return atomic_load(&((mlflow_t *)user)->interrupted);
}

static const char *server_of(const mlflow_t *m)
{
    const char *given = *m->options.tracking_uri ? m->options.tracking_uri
                                                 : getenv("MLFLOW_TRACKING_URI");
    return given && *given ? given : "http://127.0.0.1:5000";
}

/* The server's JSON object, to be freed by json_decref(), or NULL. */
static json_t *perform(mlflow_t *m, const char *what, const char *url, const char *body,
                       pl_error_t *err)
{
    struct curl_slist *headers = curl_slist_append(NULL,
                                                   "Content-Type: application/json");
    http_response_t answer = {0};
    long status = 0, limit = (long)(m->options.timeout * 1000) + 1;
    curl_easy_reset(m->curl);
    curl_easy_setopt(m->curl, CURLOPT_URL, url);
    curl_easy_setopt(m->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(m->curl, CURLOPT_TIMEOUT_MS, limit);
    curl_easy_setopt(m->curl, CURLOPT_CONNECTTIMEOUT_MS, limit);
    curl_easy_setopt(m->curl, CURLOPT_WRITEFUNCTION, answer_take);
    curl_easy_setopt(m->curl, CURLOPT_WRITEDATA, &answer);
    curl_easy_setopt(m->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(m->curl, CURLOPT_XFERINFOFUNCTION, is_interrupted);
    curl_easy_setopt(m->curl, CURLOPT_XFERINFODATA, m);
    curl_easy_setopt(m->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(m->curl, CURLOPT_USERNAME, getenv("MLFLOW_TRACKING_USERNAME"));
    curl_easy_setopt(m->curl, CURLOPT_PASSWORD, getenv("MLFLOW_TRACKING_PASSWORD"));
    if (body)
        curl_easy_setopt(m->curl, CURLOPT_POSTFIELDS, body);
    CURLcode code = curl_easy_perform(m->curl);
    curl_easy_getinfo(m->curl, CURLINFO_RESPONSE_CODE, &status);
    json_t *json = json_loads(answer.text ? answer.text : "", 0, NULL);
    pl_text_free(answer.text);
    curl_slist_free_all(headers);
    if (code == CURLE_OK && status == 200 && json_is_object(json))
        return json;
    const char *text = json_string_value(json_object_get(json, "message"));
    if (code != CURLE_OK)
        pl_fail(err, PL_EIO, "%s: %s: %s", server_of(m), what, curl_easy_strerror(code));
    else if (status == 200)
        pl_fail(err, PL_EFORMAT,
                "%s: %s: the answer is not a JSON object: is this an MLflow server?",
                server_of(m), what);
    else
        pl_fail(err, status == 404 ? PL_ENOTFOUND : PL_EIO, "%s: %s: status %ld%s%.200s",
                server_of(m), what, status, text ? ": " : "", text ? text : "");
    json_decref(json);
    return NULL;
}

static json_t *no_memory(pl_error_t *err)
{
    pl_fail(err, PL_ENOMEM, "out of memory");
    return NULL;
}

/* Frees a text that jansson made. */
static void text_free(char *text)
{
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
}

/* Consumes the request  [NULL: out of memory]. */
static json_t *post(mlflow_t *m, const char *what, json_t *request, pl_error_t *err)
{
    char *body = request ? json_dumps(request, JSON_COMPACT) : NULL;
    char *url = pl_text("%s/api/2.0/mlflow/%s", server_of(m), what);
    json_t *answer = body && url ? perform(m, what, url, body, err) : no_memory(err);
    json_decref(request);
    pl_text_free(url);
    if (body)
        text_free(body);
    return answer;
}

static int post_only(mlflow_t *m, const char *what, json_t *request, pl_error_t *err)
{
    pl_error_t local = {0};
    json_t *answer = post(m, what, request, &local);
    if (!answer)
        return pl_fail(err, local.code, "%s", local.text);
    json_decref(answer);
    return PL_OK;
}

/* ---- the run ---- */

static json_int_t milliseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (json_int_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A copy of the text at a path of one or two names; NULL with an error. */
static char *text_at(const json_t *answer, const char *outer, const char *name,
                     pl_error_t *err)
{
    const json_t *holder = outer ? json_object_get(answer, outer) : answer;
    const char *text = json_string_value(json_object_get(holder, name));
    if (!text) {
        pl_fail(err, PL_EFORMAT, "the MLflow server's answer has no %s", name);
        return NULL;
    }
    char *copy = pl_text("%s", text);
    if (!copy)
        no_memory(err);
    return copy;
}

/* Requests the newest step of each metric. */
static int newest_read(mlflow_t *m, pl_error_t *err)
{
    static const char what[] = "runs/get";
    pl_error_t why = {0};
    size_t k;
    json_t *metric;
    int failed = 0;
    char *url = pl_text("%s/api/2.0/mlflow/%s?run_id=%s", server_of(m), what, m->run_id);
    json_t *answer = url ? perform(m, what, url, NULL, &why) : no_memory(&why);
    pl_text_free(url);
    if (!answer)
        return pl_fail(err, why.code, "%s", why.text);
    const json_t *data = json_object_get(json_object_get(answer, "run"), "data");
    json_array_foreach(json_object_get(data, "metrics"), k, metric) {
        const char *name = json_string_value(json_object_get(metric, "key"));
        json_t *step = json_object_get(metric, "step");
        failed |= name && step && json_object_set(m->newest, name, step);
    }
    json_decref(answer);
    return failed ? pl_fail(err, PL_ENOMEM, "out of memory") : PL_OK;
}

/* ---- hyperparameters ---- */

/* Adds "trainer.max_epochs": "20" and so on, for each value of the run file. */
static int params_add(json_t *params, const char *path, const json_t *value)
{
    const char *name;
    json_t *member;
    int failed = 0;
    json_object_foreach((json_t *)value, name, member) {
        char *longer = pl_text("%s%s%s", path, *path ? "." : "", name);
        failed = failed || !longer || params_add(params, longer, member);
        pl_text_free(longer);
    }
    if (json_is_object(value))
        return failed;
    char *text = json_is_string(value)
                     ? pl_text("%.*s", VALUE_MAX, json_string_value(value))
                     : NULL;
    char *dumped = text ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (dumped)
        text = pl_text("%.*s", VALUE_MAX, dumped);
    if (dumped)
        text_free(dumped);
    failed = !text
             || json_array_append_new(params, json_pack("{s:s, s:s}", "key", path,
                                                        "value", text));
    pl_text_free(text);
    return failed;
}

/* A server accepts at most `max` elements in a request. */
static int batches_send(mlflow_t *m, const char *what, const json_t *all, size_t max,
                        pl_error_t *err)
{
    const size_t count = json_array_size(all);
    int code = PL_OK;
    for (size_t from = 0; code == PL_OK && from < count; from += max) {
        json_t *piece = json_array();
        int failed = !piece;
        for (size_t k = from; k < from + max && k < count; k++)
            failed |= json_array_append(piece, json_array_get(all, k));
        json_t *request = failed
                              ? NULL
                              : json_pack("{s:s, s:O}", "run_id", m->run_id, what, piece);
        json_decref(piece);
        code = post_only(m, "runs/log-batch", request, err);
    }
    return code;
}

/* ---- the table ---- */

static void mlflow_release(mlflow_t *m)
{
    if (m->curl)
        curl_easy_cleanup(m->curl);
    pl_text_free(m->run_id);
    json_decref(m->metrics);
    json_decref(m->newest);
    m->curl = NULL;
    m->run_id = NULL;
    m->metrics = m->newest = NULL;
}

static void curl_start(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int run_begin(mlflow_t *m, const pl_log_run_t *run, pl_error_t *err)
{
    if (!*run->position) {
        static const char what[] = "experiments/get-by-name";
        pl_error_t why = {0};
        char *name = curl_easy_escape(m->curl, m->options.experiment, 0);
        char *url = name ? pl_text("%s/api/2.0/mlflow/%s?experiment_name=%s",
                                   server_of(m), what, name)
                         : NULL;
        json_t *answer = url ? perform(m, what, url, NULL, &why) : no_memory(&why);
        char *experiment = answer ? text_at(json_object_get(answer, "experiment"), NULL,
                                            "experiment_id", err)
                                  : NULL;
        json_decref(answer);
        pl_text_free(url);
        curl_free(name);
        if (!experiment && why.code == PL_ENOTFOUND) {
            answer = post(m, "experiments/create",
                          json_pack("{s:s}", "name", m->options.experiment), err);
            experiment = answer ? text_at(answer, NULL, "experiment_id", err) : NULL;
            json_decref(answer);
        } else if (why.code) {
            pl_fail(err, why.code, "%s", why.text);
        }
        const char *slash = strrchr(run->run_dir, '/');
        if (!experiment)
            return PL_EIO;
        answer = post(m, "runs/create",
                      json_pack("{s:s, s:I, s:s}", "experiment_id", experiment,
                                "start_time", milliseconds_now(), "run_name",
                                slash ? slash + 1 : run->run_dir),
                      err);
        pl_text_free(experiment);
        m->run_id = answer
                        ? text_at(json_object_get(answer, "run"), "info", "run_id", err)
                        : NULL;
        json_decref(answer);
        if (!m->run_id)
            return PL_EIO;
        json_t *given = json_loads(run->run, 0, NULL), *params = json_array();
        int code = params && !params_add(params, "", given)
                       ? batches_send(m, "params", params, PARAMS_MAX, err)
                       : pl_fail(err, PL_ENOMEM, "out of memory");
        json_decref(given);
        json_decref(params);
        return code;
    }
    m->run_id = pl_text("%s", run->position);
    if (!m->run_id)
        return pl_fail(err, PL_ENOMEM, "out of memory");
    int code =
        post_only(m, "runs/update",
                  json_pack("{s:s, s:s}", "run_id", m->run_id, "status", "RUNNING"), err);
    return code == PL_OK ? newest_read(m, err) : code;
}

static int mlflow_open(void *self, const pl_log_run_t *run, pl_error_t *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    mlflow_t *m = self;
    if (mlflow_address_check(server_of(m), err) != PL_OK)
        return PL_EINVAL;
    pthread_once(&once, curl_start);
    m->curl = curl_easy_init();
    m->metrics = json_array();
    m->newest = json_object();
    int code = m->curl && m->metrics && m->newest
                   ? run_begin(m, run, err)
                   : pl_fail(err, PL_ENOMEM, "out of memory");
    if (code != PL_OK)
        mlflow_release(m);
    return code;
}

static int mlflow_log(void *self, const pl_record_t *record, pl_error_t *err)
{
    mlflow_t *m = self;
    const char *name;
    json_t *value, *given = json_loads(record->metrics, 0, NULL);
    int failed = 0;
    if (!given)
        return pl_fail(err, PL_EFORMAT, "the metrics are not a JSON object");
    json_object_foreach(given, name, value) {
        /* Steps are texts or numbers, depending on the server's version. */
        const json_t *newest = json_object_get(m->newest, name);
        const char *text = json_string_value(newest);
        const double step = text ? strtod(text, NULL) : json_number_value(newest);
        if (newest && (double)record->global_step <= step)
            continue;
        if (json_is_number(value) && !failed)
            failed = json_array_append_new(
                m->metrics, json_pack("{s:s, s:f, s:I, s:I}", "key", name, "value",
                                      json_number_value(value), "timestamp",
                                      (json_int_t)(record->time * 1000), "step",
                                      (json_int_t)record->global_step));
    }
    json_decref(given);
    return failed ? pl_fail(err, PL_ENOMEM, "out of memory") : PL_OK;
}

static int mlflow_flush(void *self, pl_error_t *err)
{
    mlflow_t *m = self;
    int code = batches_send(m, "metrics", m->metrics, METRICS_MAX, err);
    json_array_clear(m->metrics);
    return code;
}

static char *mlflow_position(const void *self)
{
    return pl_text("%s", ((const mlflow_t *)self)->run_id);
}

static void mlflow_close(void *self, const char *status)
{
    mlflow_t *m = self;
    const char *ended = !strcmp(status, "ok")        ? "FINISHED"
                        : !strcmp(status, "stopped") ? "KILLED"
                                                     : "FAILED";
    if (!atomic_load(&m->interrupted))
        post_only(m, "runs/update",
                  json_pack("{s:s, s:s, s:I}", "run_id", m->run_id, "status", ended,
                            "end_time", milliseconds_now()),
                  NULL);
    mlflow_release(m);
}

static void mlflow_interrupt(void *self)
{
    atomic_store(&((mlflow_t *)self)->interrupted, true);
}

static const pl_logger_ops_t mlflow_logger = {
    .name = "mlflow",
    .help = MLFLOW_HELP,
    .size = sizeof(mlflow_t),
    .options = mlflow_table,
    .check = mlflow_check,
    .open = mlflow_open,
    .log = mlflow_log,
    .flush = mlflow_flush,
    .position = mlflow_position,
    .close = mlflow_close,
    .interrupt = mlflow_interrupt,
};

PL_PLUGIN({"logger", &mlflow_logger})
