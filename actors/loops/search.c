/* search.c - how a search ends: what it suggests, and the trials that say why */
#include "actors/loops/search.h"

#include "actors/loops/figures.h"
#include "base/clock.h"
#include "base/error.h"

static char *text_of(const json_t *object, pl_error_t *err)
{
    if (object)
        return pl_metrics_text(object, err);
    pl_no_memory(err);
    return NULL;
}

void pl_search_end(pl_call_t *run, pl_outcome_t *outcome, const pl_findings_t *found)
{
    pl_error_t err = {0};
    json_t *why = found->trials ? json_pack("{s:o}", "trials", found->trials) : NULL;
    outcome->stopped = found->stopped;
    outcome->seconds = (double)(pl_now() - found->began) / 1e9;
    outcome->metrics = text_of(found->figures, &err);
    outcome->text = outcome->metrics ? text_of(why, &err) : NULL;
    json_decref(found->figures);
    json_decref(why);
    if (outcome->text)
        pl_reply_run(run, &(pl_run_reply_t){.outcome = &outcome->object});
    else
        pl_call_fail(run, &err);
}
