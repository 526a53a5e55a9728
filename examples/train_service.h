/* train_service.h - what the files of the service share: train_service.c (runs and
 * requests), train_predict.c (answers by their weights), train_notify.c (systemd) */
#ifndef TRAIN_SERVICE_H
#define TRAIN_SERVICE_H

#include <event2/http.h>
#include <jansson.h>

/* Answers a request with JSON, which is taken over, or {"error": {"text": …}}. */
void service_reply(struct evhttp_request *request, int status, json_t *body);
void service_error(struct evhttp_request *request, int status, const char *text);
/* Where the connection of an unanswered one is gone: evhttp thinks no more of it. */
void service_forget(struct evhttp_request *request);

/* "READY=1", "STOPPING=1"; nothing when systemd did not start this. */
void tell_systemd(const char *state);

/* A thread that computes answers, so that the loop does not wait for them. */
typedef struct predictor predictor_t;
predictor_t *predictor_new(struct event_base *base);
/* Once the loop does not turn any more. */
void predictor_free(predictor_t *p);
/* Answers the request, later: what the newest weights of a run make of {"x": [sample,
 * …]}, lists of numbers, or of such lists, that are all alike. */
void predictor_ask(predictor_t *p, struct evhttp_request *request, const char *run_dir,
                   const json_t *asked);

#endif
