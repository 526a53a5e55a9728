/* train_service.h - declarations that the files of the service share: train_service.c
 * (requests and commands), train_admission.c (admission), train_reply.c (replies in
 * JSON), train_events.c (subscribers of runs), train_runs.c (folder of runs),
 * train_predict.c (predictions), train_notify.c (systemd) */
#ifndef TRAIN_SERVICE_H
#define TRAIN_SERVICE_H

#include <event2/http.h>
#include <jansson.h>
#include <paceline.h>

enum { EVENTS_KEPT = 1000 };

typedef struct run run_t;
typedef struct service service_t;
typedef struct predictor predictor_t;
typedef struct admission admission_t;
typedef struct stream stream_t;

struct run {
    run_t *next;
    service_t *service;
    int id;
    const char *state;                      /* queued, running, paused, then the result */
    pl_options_t *options;
    pl_trainer_t *trainer;                               /* NULL: the run is not active */
    char run_dir[512], error[PL_ERROR_TEXT];
    uint64_t global_step;
    json_t *metrics;
    char *event[EVENTS_KEPT];                     /* the newest, by number  [forgotten] */
    uint64_t events;                              /* number of the next event */
    uint64_t end;                                 /* its number among the ended runs */
    stream_t *streams;
    struct waiting *waiting;                              /* commands without an answer */
    bool is_saving;                                       /* weights for predictions */
    double saving_since, saved_at, save_took;             /* s */
};

struct service {
    struct event_base *base;
    admission_t *admission;
    pl_engine_t *engine;
    predictor_t *predictor;
    const char *root;
    run_t *runs, **last;
    int ids, max, running;                                  /* ids: assigned so far */
    int streams;                                            /* of all runs */
    uint64_t ended;                                         /* runs, so far */
    uint64_t started;                                       /* microseconds since 1970 */
    bool ends;
};

/* ---- train_reply.c ---- */

/* Adds the headers of all answers. */
void service_head(struct evhttp_request *request, const char *type);
/* Answers a request with JSON, which it consumes, or {"error": {"text": …}}. */
void service_reply(struct evhttp_request *request, int status, json_t *body);
void service_error(struct evhttp_request *request, int status, const char *text);
/* The answer follows later, after service_release().  If the client leaves before,
 * on_gone is called and calls service_forget(). */
void service_hold(struct evhttp_request *request,
                  void (*on_gone)(struct evhttp_connection *, void *), void *user);
void service_release(struct evhttp_request *request);
/* Frees a request whose connection ended before its answer. */
void service_forget(struct evhttp_request *request);

/* The JSON of a run for clients. */
json_t *run_show(const run_t *run);

/* ---- train_service.c ---- */

bool run_has_ended(const run_t *run);

/* ---- train_events.c ---- */

/* Answers with all kept events after Last-Event-ID, and then with new ones. */
void events_get(run_t *run, struct evhttp_request *request);
/* Sends the state of the run, as an event "state" or an event of progress. */
void run_tell(run_t *run, const char *event);
/* Ends the streams of an ended run, which may be resumed. */
void events_end(run_t *run);

/* ---- train_admission.c ---- */

/* Listens on loopback and prints the address; calls on_request for each request, with
 * the service. */
int admission_open(service_t *service, int port,
                   void (*on_request)(struct evhttp_request *, void *), pl_error_t *err);
void admission_free(admission_t *admission);
/* Each stream keeps a connection: the maximum that leaves enough for requests. */
int admission_streams_max(const admission_t *admission);
/* false: the request was refused and answered. */
bool admission_check(admission_t *admission, struct evhttp_request *request);

/* ---- train_runs.c ---- */

/* Makes a run with that number from the text of a run file, without listing it; NULL: the
 * file is refused. */
run_t *run_new(service_t *service, int id, const char *text, pl_error_t *err);
void run_free(run_t *run);
void run_add(run_t *run);
/* Writes the record of a run; returns an errno. */
int run_keep(const run_t *run);
/* Makes the folder, or reads all runs of an existing one. */
int runs_open(service_t *service, pl_error_t *err);

/* ---- train_notify.c ---- */

/* Sends "READY=1" or "STOPPING=1" if systemd started the service. */
void tell_systemd(const char *state);

/* ---- train_predict.c ---- */

/* Starts the thread that computes predictions, so that the loop does not wait. */
predictor_t *predictor_new(struct event_base *base);
/* Call it after the loop has ended. */
void predictor_free(predictor_t *p);
/* Answers the request later with predictions of the newest weights of a run for {"x":
 * [sample, …]}, nested lists of numbers of equal lengths. */
void predictor_ask(predictor_t *p, struct evhttp_request *request, run_t *run,
                   const json_t *asked);
/* A run has ended or was saved: answers its questions with the saved weights. */
void predictor_saved(run_t *run);

#endif
