/* search.h - how a search ends: what it suggests, and the trials that say why */
#ifndef PL_LOOPS_SEARCH_H
#define PL_LOOPS_SEARCH_H

#include <jansson.h>

#include "runtime/cargo.h"

typedef struct pl_findings {
    json_t *figures;                                    /* an object: what is suggested */
    json_t *trials;                                     /* a list */
    int64_t began;                                      /* pl_now() */
    bool stopped;
} pl_findings_t;

/* Fills in the outcome and answers the run with it; takes both JSON values over, each of
 * which may be NULL for want of memory: then, as whenever it lacks, the run fails. */
void pl_search_end(pl_call_t *run, pl_outcome_t *outcome, const pl_findings_t *found);

#endif
