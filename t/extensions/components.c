/* components.c - a callback as users write them, against installed headers */
#include <paceline.h>
#include <string.h>

typedef struct enough {
    int64_t steps;
} enough_t;

static const pl_option_t enough_options[] = {
    PL_INT(enough_t, steps, "7", "1..", "after which the run ends"),
    PL_OPTIONS_END,
};

static int enough_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                     pl_callback_request_t *request, pl_error_t *err)
{
    (void)point, (void)err;
    request->stop = event->global_step >= (uint64_t)((const enough_t *)self)->steps;
    strcpy(request->reason, "enough");
    return PL_OK;
}

static const pl_callback_ops_t enough = {
    .name = "enough",
    .help = "from a plug-in",
    .size = sizeof(enough_t),
    .options = enough_options,
    .points = PL_AT(TRAIN_BATCH_END),
    .on = enough_on,
};

PL_PLUGIN({"callback", &enough})
