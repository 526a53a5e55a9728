/* fit_reload.c - reload_dataloaders_every_n_epochs: between two epochs data sets are
 * closed and opened anew, and batches of new sizes get their plans */
#include "actors/loops/fit.h"
#include "base/clock.h"
#include "base/error.h"

bool pl_fit_reload_is_due(const pl_fit_t *fit)
{
    const uint64_t every = (uint64_t)fit->options->reload_dataloaders_every_n_epochs,
                   epochs = fit->epochs.completed;
    return every && epochs && epochs % every == 0 && fit->reloaded != epochs;
}

/* True unless it is a reply; an error ends the run. */
static bool reload_failed(pl_fit_t *fit, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_error_t err = *answer->error;
        pl_error_prefix(&err, "reloading the data after %llu epoch%s",
                        (unsigned long long)fit->epochs.completed,
                        pl_plural((int64_t)fit->epochs.completed));
        pl_fit_fail(fit, &err);
    }
    return answer->kind != PL_ANSWER_REPLY || !fit->call;
}

static void signature_set(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (!reload_failed(fit, answer))
        fit->reloaded_then(fit);
}

static void data_reloaded(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    if (reload_failed(fit, answer))
        return;
    const pl_set_signature_t msg = {
        .signature = answer->body->reload_data_reply.signature};
    if (!pl_call_set_signature(fit, fit->strategy, &msg,
                               (pl_how_t){.on_answer = signature_set}, &err))
        pl_fit_fail(fit, &err);
}

void pl_fit_reload(pl_fit_t *fit, void (*then)(pl_fit_t *fit))
{
    pl_error_t err = {0};
    fit->reloaded = fit->epochs.completed;
    fit->reloaded_then = then;
    if (!pl_call_reload_data(fit, fit->data, &(pl_reload_data_t){0},
                             (pl_how_t){.on_answer = data_reloaded}, &err))
        pl_fit_fail(fit, &err);
}
