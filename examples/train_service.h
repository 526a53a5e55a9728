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
    const char *state;                      /* queued, running, paused, then as results */
    pl_options_t *options;
    pl_trainer_t *trainer;                                  /* NULL: it does not run */
    char run_dir[512], error[PL_ERROR_TEXT];
    uint64_t global_step;
    json_t *metrics;
    char *event[EVENTS_KEPT];                     /* the newest, by number  [forgotten] */
    uint64_t events;                              /* the next one's number */
    uint64_t end;                                 /* which end that was */
    stream_t *streams;
    struct waiting *waiting;                   /* commands that are open */
    bool is_saving;                            /* weights that predictions are to be by */
    double saving_since, saved_at, save_took;  /* s */
};

struct service {
    struct event_base *base;
    admission_t *admission;
    pl_engine_t *engine;
    predictor_t *predictor;
    const char *root;
    run_t *runs, **last;
    int ids, max, running;                                  /* ids: given so far */
    int streams;                                            /* of all runs */
    uint64_t ended;                                         /* runs, so far */
    uint64_t started;                                       /* microseconds since 1970 */
    bool ends;
};

/* ---- train_reply.c ---- */

/* The headers that all answers have. */
void service_head(struct evhttp_request *request, const char *type);
/* Answers a request with JSON, which is taken over, or {"error": {"text": …}}. */
void service_reply(struct evhttp_request *request, int status, json_t *body);
void service_error(struct evhttp_request *request, int status, const char *text);
/* The answer comes later, unless on_gone is called before, as the client has left: then
 * service_forget().  service_release(): it comes now. */
void service_hold(struct evhttp_request *request,
                  void (*on_gone)(struct evhttp_connection *, void *), void *user);
void service_release(struct evhttp_request *request);
/* Where the connection of an unanswered one is gone: evhttp thinks no more of it. */
void service_forget(struct evhttp_request *request);

/* A run as clients see it. */
json_t *run_show(const run_t *run);

/* ---- train_service.c ---- */

bool run_has_ended(const run_t *run);

/* ---- train_events.c ---- */

/* Answers with all that is kept behind Last-Event-ID, and then what comes. */
void events_get(run_t *run, struct evhttp_request *request);
/* How the run is now, and what has made it so: "state" or an event of progress. */
void run_tell(run_t *run, const char *event);
/* It has ended, and so do the answers to those who follow it; it may be resumed. */
void events_end(run_t *run);

/* ---- train_admission.c ---- */

/* Listens on loopback and says where; what comes is handed to on_request, with the
 * service. */
int admission_open(service_t *service, int port,
                   void (*on_request)(struct evhttp_request *, void *), pl_error_t *err);
void admission_free(admission_t *admission);
/* Streams take a connection each and keep it: so many leave room for requests. */
int admission_streams_max(const admission_t *admission);
/* false: it was refused, and answered. */
bool admission_check(admission_t *admission, struct evhttp_request *request);

/* ---- train_runs.c ---- */

/* A run of that number by the text of a run file, not in the list yet; NULL: the file is
 * not to be taken. */
run_t *run_new(service_t *service, int id, const char *text, pl_error_t *err);
void run_free(run_t *run);
void run_add(run_t *run);
/* Writes down how it is; an errno. */
int run_keep(const run_t *run);
/* Makes the folder, or takes it over with all runs that it has. */
int runs_open(service_t *service, pl_error_t *err);

/* ---- train_notify.c ---- */

/* "READY=1", "STOPPING=1"; nothing when systemd did not start this. */
void tell_systemd(const char *state);

/* ---- train_predict.c ---- */

/* A thread that computes answers, so that the loop does not wait for them. */
predictor_t *predictor_new(struct event_base *base);
/* Once the loop does not turn any more. */
void predictor_free(predictor_t *p);
/* Answers the request, later: what the newest weights of a run make of {"x":
 * [sample, …]}, lists of numbers, or of such lists, that are all alike. */
void predictor_ask(predictor_t *p, struct evhttp_request *request, run_t *run,
                   const json_t *asked);
/* A run ends, or was saved: answers are to be by what it has. */
void predictor_saved(run_t *run);

#endif
