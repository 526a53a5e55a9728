/* fit_state.c - what a checkpoint keeps of the fit loop, and how it goes on from there */
#include <string.h>

#include "actors/loops/fit_parts.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"

char *pl_fit_state(const pl_fit_t *fit, const char *epoch, pl_error_t *err)
{
    json_t *inner = pl_json_read(epoch, strlen(epoch), "the epoch loop's state", err);
    if (!inner)
        return NULL;
    json_t *kept = json_pack("{s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:b, s:O, s:o}",
                             "epochs", (json_int_t)fit->epochs, "global_step",
                             (json_int_t)fit->global_step, "samples",
                             (json_int_t)fit->samples, "serial", (json_int_t)fit->serial,
                             "lr_factor", fit->lr_factor, "in_epoch", fit->in_epoch,
                             "stop", fit->wished, "has_stopped_one", fit->has_stopped_one,
                             "metrics", fit->metrics, "epoch", inner);
    char *text = kept ? pl_json_write(kept, PL_JSON_COMPACT) : NULL;
    json_decref(kept);
    if (!text)
        pl_no_memory(err);
    return text;
}

static int64_t count_of(const json_t *kept, const char *key)
{
    return json_integer_value(json_object_get(kept, key));
}

static int state_take(pl_fit_t *fit, const json_t *kept, pl_error_t *err)
{
    json_t *metrics = json_object_get(kept, "metrics");
    fit->epochs = (uint32_t)count_of(kept, "epochs");
    fit->global_step = (uint64_t)count_of(kept, "global_step");
    fit->samples = (uint64_t)count_of(kept, "samples");
    fit->serial = (uint64_t)count_of(kept, "serial");
    fit->lr_factor = json_number_value(json_object_get(kept, "lr_factor"));
    fit->in_epoch = fit->resumes = json_is_true(json_object_get(kept, "in_epoch"));
    fit->batch = (uint32_t)count_of(json_object_get(kept, "epoch"), "batch");
    fit->ended = fit->stopped = fit->wished = json_is_true(json_object_get(kept, "stop"));
    fit->has_stopped_one = json_is_true(json_object_get(kept, "has_stopped_one"));
    return metrics && json_object_update(fit->metrics, metrics) ? pl_no_memory(err)
                                                                : PL_OK;
}

/* The epoch loop has its own. */
static void epoch_has(void *self, const pl_answer_t *answer)
{
    (void)self;
    if (answer->kind == PL_ANSWER_REPLY)
        pl_reply_set_state(answer->context, &(pl_set_state_reply_t){0});
    if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(answer->context, answer->error);
}

int pl_fit_set_state(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_fit_t *fit = self;
    const char *text = body->set_state.state;
    json_t *kept = pl_json_read(text, strlen(text), "the loops' state", err);
    char *epoch = kept ? pl_json_write(json_object_get(kept, "epoch"), PL_JSON_COMPACT)
                       : NULL;
    pl_how_t how = {.on_answer = epoch_has, .context = call};
    int code = kept ? PL_OK : err->code;
    if (kept && !epoch)
        code = pl_no_memory(err);
    if (code == PL_OK)
        code = state_take(fit, kept, err);
    if (code == PL_OK
        && !pl_call_set_state(fit, fit->epoch, &(pl_set_state_t){.state = epoch}, how,
                              err))
        code = err->code;
    pl_text_free(epoch);
    json_decref(kept);
    return code;
}
