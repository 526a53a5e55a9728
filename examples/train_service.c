/* train_service.c - an HTTP service that trains: many runs, one event loop
 *
 *   train_service [PORT [ROOT [RUNS]]]    on 127.0.0.1; RUNS runs at once, others wait
 *
 *   POST /runs                 a run file; the run is queued
 *   GET  /runs, /runs/1        state of the runs
 *   GET  /runs/1/events        server-sent events; Last-Event-ID continues after an event
 *   POST /runs/1/predictions   {"x": [sample, …]}: predictions with its newest weights
 *   POST /runs/1/pause, continue, save, stop, resume; /runs/1/lr {"lr": 0.001}
 *
 * A request with a body has Content-Type: application/json.  Host is a loopback name.
 *
 * Training and predictions run on other threads, so the loop is always free for the next
 * request.  SIGTERM stops all runs, which saves them, and then the service, with exit
 * status 0; a second SIGTERM repeats the request to runs still under way.
 * A service that starts with the same ROOT knows the earlier runs by their numbers and
 * resumes them on request.  The service reports to systemd by sd_notify's protocol. */
#include <event2/event.h>
#include <event2/buffer.h>
#include <event2/http.h>
#include <paceline.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train_service.h"

enum { QUEUED_MAX = 1000 };

/* ---- runs ---- */

bool run_has_ended(const run_t *run)
{
    return !run->trainer && strcmp(run->state, "queued");
}

static void service_advance(service_t *service);

static void state_set(run_t *run, const char *state)
{
    run->state = state;
    run_tell(run, "state");
    const int failed = run_keep(run);
    if (failed)
        fprintf(stderr, "train_service: run %d is not kept in %s: %s\n", run->id,
                run->service->root, strerror(failed));
}

static void metrics_take(run_t *run, const char *text)
{
    json_t *metrics = json_loads(text, 0, NULL);
    json_object_update(run->metrics, metrics);
    json_decref(metrics);
}

static void on_progress(pl_trainer_t *trainer, const pl_progress_t *now, void *user)
{
    run_t *run = user;
    (void)trainer;
    if (strcmp(run->state, "paused") || run->global_step < now->global_step)
        run->global_step = now->global_step;             /* a pause sends its own event */
    metrics_take(run, now->metrics);
    run_tell(run, now->event);
}

static const char *state_of(const pl_result_t *result)
{
    static const char *const states[] = {"ok", "stopped", "failed"};
    int k = 0;
    while (strcmp(states[k], result->status))
        k++;
    return states[k];
}

/* ---- answers to commands ---- */

/* An HTTP request that waits for the answer to a command; its client may leave. */
typedef struct waiting {
    struct waiting *next;
    run_t *run;
    struct evhttp_request *request;
} waiting_t;

static void waiting_closed(struct evhttp_connection *connection, void *user)
{
    waiting_t *waiting = user;
    (void)connection;
    service_forget(waiting->request);
    waiting->request = NULL;
}

/* Frees the entry and returns its request; NULL: the client has left. */
static struct evhttp_request *waiting_end(waiting_t *waiting)
{
    struct evhttp_request *request = waiting->request;
    waiting_t **from = &waiting->run->waiting;
    while (*from != waiting)
        from = &(*from)->next;
    *from = waiting->next;
    free(waiting);
    if (request)
        service_release(request);
    return request;
}

static void on_command(pl_trainer_t *trainer, const pl_command_result_t *result,
                       void *user)
{
    run_t *run = ((waiting_t *)user)->run;
    struct evhttp_request *request = waiting_end(user);
    (void)trainer;
    if (result->error.code == PL_OK && run->global_step < result->global_step)
        run->global_step = result->global_step;
    if (result->error.code == PL_OK && !strcmp(result->command, "pause"))
        state_set(run, "paused");
    if (result->error.code == PL_OK && !strcmp(result->command, "continue"))
        state_set(run, "running");
    if (request && result->error.code != PL_OK)
        service_error(request, 409, result->error.text);
    else if (request)
        service_reply(request, 200,
                      json_pack("{s:s, s:I, s:s}", "command", result->command,
                                "global_step", (json_int_t)result->global_step,
                                "checkpoint", result->checkpoint));
}

/* A trainer that is freed does not answer commands that arrived after its end, so they
 * are answered here. */
static void commands_end(run_t *run)
{
    while (run->waiting) {
        struct evhttp_request *request = waiting_end(run->waiting);
        if (request)
            service_error(request, 409, "the run has ended");
    }
}

/* ---- beginning and end ---- */

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    run_t *run = user;
    run->trainer = NULL;
    run->global_step = result->global_step;
    metrics_take(run, result->metrics);
    if (*result->run_dir)
        snprintf(run->run_dir, sizeof run->run_dir, "%s", result->run_dir);
    snprintf(run->error, sizeof run->error, "%s", result->error.text);
    state_set(run, state_of(result));
    events_end(run);
    commands_end(run);
    predictor_saved(run);
    pl_trainer_free(trainer);
    run->service->running--;
    service_advance(run->service);
}

/* A run that was killed before its first save starts from the beginning: with only its
 * name the engine does so, and renames the previous directory. */
static int run_train(run_t *run, pl_error_t *err)
{
    if (access(run->run_dir, F_OK) != 0)
        return pl_trainer_fit(run->trainer, on_done, run, err);
    char *saved = pl_run_describe(run->run_dir, err);
    const bool is_new = !saved && err->code == PL_ENOTFOUND;
    pl_text_free(saved);
    return pl_trainer_resume(run->trainer, is_new ? NULL : run->run_dir, on_done, run,
                             err);
}

static void run_begin(run_t *run)
{
    pl_error_t err = {0};
    run->trainer = pl_trainer_new(run->service->engine, run->options, &err);
    int code = run->trainer ? PL_OK : err.code;
    if (code == PL_OK) {
        pl_trainer_on_progress(run->trainer, on_progress, run);
        code = run_train(run, &err);
    }
    if (code == PL_OK) {
        run->service->running++;
        state_set(run, "running");
        return;
    }
    pl_trainer_free(run->trainer);
    run->trainer = NULL;
    snprintf(run->error, sizeof run->error, "%s", err.text);
    state_set(run, "failed");
    events_end(run);
}

/* Followers of a run still receive its end. */
static void on_closed(pl_engine_t *engine, void *user)
{
    const struct timeval soon = {0, 100000};
    (void)engine;
    event_base_loopexit(((service_t *)user)->base, &soon);
}

static void service_advance(service_t *service)
{
    for (run_t *run = service->runs; run && !service->ends; run = run->next)
        if (service->running < service->max && !strcmp(run->state, "queued"))
            run_begin(run);
    if (service->ends && !service->running)
        pl_engine_close(service->engine, on_closed, service);
}

static int waiting_runs(const service_t *service)
{
    int count = 0;
    for (const run_t *run = service->runs; run; run = run->next)
        count += !strcmp(run->state, "queued");
    return count;
}

static void runs_post(service_t *service, struct evhttp_request *request,
                      const char *body)
{
    pl_error_t err = {0};
    if (service->ends || waiting_runs(service) == QUEUED_MAX) {
        service_error(request, 503, "the service is ending and accepts no runs");
        return;
    }
    run_t *run = run_new(service, service->ids + 1, body, &err);
    const int failed = run ? run_keep(run) : 0;
    if (failed) {
        pl_fail(&err, PL_EIO, "the run cannot be stored in %s: %s", service->root,
                strerror(failed));
        run_free(run);
    }
    if (!run || failed) {
        service_error(request, failed ? 500 : 400, err.text);
        return;
    }
    service->ids++;
    run_add(run);
    run_tell(run, "state");
    service_reply(request, 201, run_show(run));
    service_advance(service);
}

/* ---- commands to a run ---- */

static int run_command(run_t *run, const char *command, const json_t *asked,
                       waiting_t *waiting, pl_error_t *err)
{
    const json_t *lr = json_object_get(asked, "lr");
    if (!strcmp(command, "pause"))
        return pl_trainer_pause(run->trainer, on_command, waiting, err);
    if (!strcmp(command, "continue"))
        return pl_trainer_continue(run->trainer, on_command, waiting, err);
    if (!strcmp(command, "save"))
        return pl_trainer_save(run->trainer, on_command, waiting, err);
    if (!json_is_number(lr))
        return pl_fail(err, PL_EINVAL, "the body must be {\"lr\": NUMBER}");
    return pl_trainer_set_lr(run->trainer, json_number_value(lr), NULL, on_command,
                             waiting, err);
}

static void command_post(run_t *run, struct evhttp_request *request, const char *command,
                         const json_t *asked)
{
    pl_error_t err = {0};
    waiting_t *waiting = malloc(sizeof *waiting);
    *waiting = (waiting_t){run->waiting, run, request};
    run->waiting = waiting;
    service_hold(request, waiting_closed, waiting);
    const int code = run->trainer ? run_command(run, command, asked, waiting, &err)
                                  : pl_fail(&err, PL_ESTATE, "the run is not under way");
    if (code == PL_OK)
        return;
    waiting_end(waiting);
    service_error(request, code == PL_EINVAL ? 400 : 409, err.text);
}

static void queued_stop(run_t *run)
{
    state_set(run, "stopped");
    events_end(run);
}

static void stop_post(run_t *run, struct evhttp_request *request)
{
    pl_error_t err = {0};
    if (!strcmp(run->state, "queued")) {
        queued_stop(run);
    } else if (!run->trainer) {
        service_error(request, 409, "the run is not under way");
        return;
    } else if (pl_trainer_stop(run->trainer, "a request", &err) != PL_OK) {
        service_error(request, 409, err.text);
        return;
    }
    service_reply(request, 202, run_show(run));
}

/* The reason why a run cannot be resumed; NULL: it can. */
static const char *resume_refusal(const run_t *run)
{
    if (run->service->ends)
        return "the service ends";
    if (!run_has_ended(run))
        return "the run has not ended";
    if (!run->options)
        return run->error;                                  /* of its record */
    if (!strcmp(run->state, "ok"))
        return "the run has come to its end: post a run file for another";
    return NULL;
}

static void resume_post(run_t *run, struct evhttp_request *request)
{
    const char *refusal = resume_refusal(run);
    if (refusal) {
        service_error(request, 409, refusal);
        return;
    }
    *run->error = '\0';
    state_set(run, "queued");
    service_reply(request, 202, run_show(run));
    service_advance(run->service);
}

/* ---- requests ---- */

static void run_get(run_t *run, struct evhttp_request *request, const char *what)
{
    if (!*what)
        service_reply(request, 200, run_show(run));
    else if (!strcmp(what, "events"))
        events_get(run, request);
    else
        service_error(request, 404, "not found: a run has only \"events\"");
}

static void run_post(run_t *run, struct evhttp_request *request, const char *what,
                     const char *body)
{
    static const char *const commands[] = {"pause", "continue", "save", "lr", NULL};
    json_t *asked = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
    int k = 0;
    while (commands[k] && strcmp(commands[k], what))
        k++;
    if (*body && !json_is_object(asked))
        service_error(request, 400, "the body is not a JSON object");
    else if (!strcmp(what, "stop"))
        stop_post(run, request);
    else if (!strcmp(what, "resume"))
        resume_post(run, request);
    else if (!strcmp(what, "predictions"))
        predictor_ask(run->service->predictor, request, run, asked);
    else if (commands[k])
        command_post(run, request, what, asked);
    else
        service_error(
            request, 404,
            "commands of a run: stop, resume, pause, continue, save, lr, predictions");
    json_decref(asked);
}

static void runs_get(const service_t *service, struct evhttp_request *request)
{
    json_t *list = json_array();
    for (const run_t *run = service->runs; run; run = run->next)
        json_array_append_new(list, run_show(run));
    service_reply(request, 200, json_pack("{s:o}", "runs", list));
}

static char *body_of(struct evhttp_request *request)
{
    struct evbuffer *input = evhttp_request_get_input_buffer(request);
    const size_t size = evbuffer_get_length(input);
    char *body = malloc(size + 1);
    evbuffer_remove(input, body, size);
    body[size] = '\0';
    return body;
}

static void on_request(struct evhttp_request *request, void *user)
{
    service_t *service = user;
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    const bool posts = evhttp_request_get_command(request) == EVHTTP_REQ_POST;
    if (!admission_check(service->admission, request))
        return;
    char what[32] = "", *body = body_of(request);
    int id = 0, end = 0;
    run_t *run = service->runs;
    const bool all = !strcmp(path, "/runs");
    const bool one = !all
                     && sscanf(path, "/runs/%9d%n/%31[a-z_]%n", &id, &end, what, &end) > 0
                     && !path[end];
    while (run && run->id != id)
        run = run->next;
    if (all && posts)
        runs_post(service, request, body);
    else if (all)
        runs_get(service, request);
    else if (!one || !run)
        service_error(request, 404,
                      one ? "there is no such run" : "there is /runs alone");
    else if (posts)
        run_post(run, request, what, body);
    else
        run_get(run, request, what);
    free(body);
}

/* ---- the service ---- */

/* Another signal repeats the request: a stop may have been refused. */
static void on_signal(evutil_socket_t number, short what, void *user)
{
    service_t *service = user;
    (void)number, (void)what;
    if (!service->ends)
        tell_systemd("STOPPING=1");
    service->ends = true;
    for (run_t *run = service->runs; run; run = run->next) {
        pl_error_t err = {0};
        if (run->trainer
            && pl_trainer_stop(run->trainer, "the service ends", &err) != PL_OK)
            fprintf(stderr, "train_service: run %d: %s; a signal asks again\n", run->id,
                    err.text);
        else if (!strcmp(run->state, "queued"))
            queued_stop(run);
    }
    service_advance(service);
}

static void service_free(service_t *service)
{
    admission_free(service->admission);              /* reports waiting clients as gone */
    if (service->predictor)
        predictor_free(service->predictor);
    pl_engine_free(service->engine);
    for (run_t *run; (run = service->runs);) {
        service->runs = run->next;
        run_free(run);
    }
}

/* A whole number between min and max; -1: it is not one. */
static int number_of(const char *word, int min, int max)
{
    char *end;
    const long number = *word >= '0' && *word <= '9' ? strtol(word, &end, 10) : -1;
    return number >= min && number <= max && !*end ? (int)number : -1;
}

/* Returns the port; -1: a mistake; -2: help was requested. */
static int words_read(service_t *service, int argc, char **argv)
{
    const char *port = argc > 1 ? argv[1] : "8080";
    service->root = argc > 2 ? argv[2] : "runs";
    service->max = number_of(argc > 3 ? argv[3] : "2", 1, 1000);
    if (!strcmp(port, "-h") || !strcmp(port, "--help"))
        return -2;
    return argc > 4 || service->max < 0 || !*service->root ? -1
                                                           : number_of(port, 0, 65535);
}

static uint64_t microseconds(void)
{
    struct timeval now;
    evutil_gettimeofday(&now, NULL);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_usec;
}

static int serve(service_t *service, int port, pl_error_t *err)
{
    service->last = &service->runs;
    service->started = microseconds();
    service->engine = pl_engine_new(service->base, err);
    service->predictor = predictor_new(service->base);
    if (!service->predictor)
        pl_fail(err, PL_ENOMEM, "the thread of predictions cannot be created");
    struct event *term = evsignal_new(service->base, SIGTERM, on_signal, service),
                 *interrupt = evsignal_new(service->base, SIGINT, on_signal, service);
    event_add(term, NULL);
    event_add(interrupt, NULL);
    if (service->engine && service->predictor && runs_open(service, err) == PL_OK
        && admission_open(service, port, on_request, err) == PL_OK) {
        tell_systemd("READY=1");
        event_base_dispatch(service->base);
    }
    event_free(term);
    event_free(interrupt);
    return err->code;
}

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)level, (void)rank, (void)user;
    fprintf(stderr, "train_service: %s%s%s\n", actor, *actor ? ": " : "", text);
}

int main(int argc, char **argv)
{
    pl_error_t err = {0};
    service_t service = {0};
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    int code = pl_init(&argc, &argv, NULL, &err);  /* always first */
    signal(SIGPIPE, SIG_IGN);          /* a client that leaves does not end the service */
    const int port = words_read(&service, argc, argv);
    if (code == PL_OK && port < 0) {
        fprintf(port == -2 ? stdout : stderr,
                "usage: train_service [PORT [ROOT [RUNS]]]\n"
                "PORT from 0 (any) to 65535 [8080]; ROOT the folder of runs [runs]; "
                "RUNS runs at once,\nfrom 1 to 1000 [2]\n");
        return port == -2 ? 0 : 2;
    }
    json_t *root = json_string(service.root);
    json_decref(root);
    if (code == PL_OK && !root) {             /* run files and answers contain its path */
        fprintf(stderr, "train_service: the name of the folder ROOT is not UTF-8\n");
        return 2;
    }
    if (code == PL_OK) {
        service.base = event_base_new();
        code = serve(&service, port, &err);
        service_free(&service);
        event_base_free(service.base);
    }
    if (code != PL_OK)
        fprintf(stderr, "train_service: %s\n", err.text);
    return code != PL_OK;
}
