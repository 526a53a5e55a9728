/* callback_requests.h - combines the requests of all callbacks at one hook */
#ifndef PL_CONNECTORS_CALLBACK_REQUESTS_H
#define PL_CONNECTORS_CALLBACK_REQUESTS_H

#include <jansson.h>

#include "actors/checkpoint_requests.h"
#include "paceline.h"

/* Metrics that callbacks log: a pl_callback_request_t points to them during its hook. */
struct pl_callback_metrics {
    json_t *object;                                         /* [NULL: none so far] */
};

typedef struct pl_callback_requests {
    bool stop, by_clock, skip;                  /* by_clock: all who request to stop go by
                                                   it */
    double lr_factor;
    uint64_t accumulate;
    char freeze[1024], unfreeze[1024];                   /* of all, with spaces between */
    struct pl_callback_metrics metrics;
    pl_checkpoint_requests_t checkpoints;
    char reason[sizeof((pl_callback_request_t *)0)->reason + 64];  /* "NAME: why" */
} pl_callback_requests_t;

void pl_callback_requests_init(pl_callback_requests_t *all);
void pl_callback_requests_release(pl_callback_requests_t *all);
/* A request for nothing, whose metrics go to all others'. */
pl_callback_request_t pl_callback_requests_new(pl_callback_requests_t *all);
/* Adds what the callback of that table requests at a point; PL_EUSER: it is not
 * possible. */
int pl_callback_requests_add(pl_callback_requests_t *all, const pl_callback_ops_t *ops,
                             pl_hook_t point, const pl_callback_request_t *request,
                             pl_error_t *err);

#endif
