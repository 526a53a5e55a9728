/* gradient_accumulation_scheduler.c - changes the batches for one optimizer step by
 * epoch */
#include "actors/connectors/callbacks/callbacks.h"
#include "base/error.h"

typedef struct accumulation {
    pl_ints_t epochs, batches;
} accumulation_t;

static const pl_option_t accumulation_options[] = {
    PL_INTS(accumulation_t, epochs, NULL, "0..",
            "epochs at which the number changes, from 0, ascending"),
    PL_INTS(accumulation_t, batches, NULL, "1..",
            "batches for one optimizer step, from each of epochs on"),
    PL_OPTIONS_END,
};

static int accumulation_start(void *self, pl_error_t *err)
{
    const accumulation_t *a = self;
    if (a->epochs.count == 0)
        return pl_fail(err, PL_EINVAL, "\"epochs\" is empty: give at least one epoch");
    return pl_epochs_check(&a->epochs, "batches", a->batches.count, err);
}

/* Before the first of the epochs the trainer's option applies. */
static int accumulation_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                           pl_callback_request_t *request, pl_error_t *err)
{
    (void)point, (void)err;
    const accumulation_t *a = self;
    for (int k = 0; k < a->epochs.count; k++)
        if (event->epoch >= a->epochs.value[k])
            request->accumulate = a->batches.value[k];
    return PL_OK;
}

const pl_callback_ops_t pl_gradient_accumulation_scheduler_callback = {
    .name = "gradient_accumulation_scheduler",
    .help = "changes the batches for one optimizer step by epoch",
    .size = sizeof(accumulation_t),
    .options = accumulation_options,
    .points = PL_AT(TRAIN_EPOCH_START),
    .requests = PL_MAY_ACCUMULATE,
    .start = accumulation_start,
    .on = accumulation_on,
};
