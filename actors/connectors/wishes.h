/* wishes.h - what the callbacks asked at one point together wish for */
#ifndef PL_CONNECTORS_WISHES_H
#define PL_CONNECTORS_WISHES_H

#include <jansson.h>

#include "actors/wanted.h"
#include "paceline.h"

/* Metrics that callbacks log: a pl_callback_request_t points to them during its hook. */
struct pl_callback_metrics {
    json_t *object;                                         /* [NULL: none so far] */
};

typedef struct pl_wishes {
    bool stop, by_clock, skip;                     /* by_clock: all who wish to stop go by
                                                      it */
    double lr_factor;
    uint64_t accumulate;
    char freeze[1024], unfreeze[1024];                   /* of all, with spaces between */
    struct pl_callback_metrics figures;
    pl_wanted_t wanted;
    char reason[sizeof((pl_callback_request_t *)0)->reason + 64];  /* "NAME: why" */
} pl_wishes_t;

void pl_wishes_begin(pl_wishes_t *all);
void pl_wishes_end(pl_wishes_t *all);
/* A wish for nothing, whose figures go to all others'. */
pl_callback_request_t pl_wishes_new(pl_wishes_t *all);
/* Adds what the callback of that table wishes at a point; PL_EUSER: it is not
 * possible. */
int pl_wishes_add(pl_wishes_t *all, const pl_callback_ops_t *ops, pl_hook_t point,
                  const pl_callback_request_t *wish, pl_error_t *err);

#endif
