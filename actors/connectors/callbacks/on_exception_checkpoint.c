/* on_exception_checkpoint.c - saves a checkpoint when a run fails */
#include <stdio.h>

#include "actors/connectors/callbacks/callbacks.h"

typedef struct on_exception {
    const char *filename;
} on_exception_t;

static const pl_option_t on_exception_options[] = {
    PL_TEXT(on_exception_t, filename, "\"on_exception\"", NULL, "name of the checkpoint"),
    PL_OPTIONS_END,
};

static int on_exception_start(void *self, pl_error_t *err)
{
    const on_exception_t *o = self;
    if (*o->filename)
        return PL_OK;
    return pl_fail(err, PL_EINVAL, "set \"filename\" to the name of a checkpoint");
}

static int on_exception_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                           pl_callback_request_t *request, pl_error_t *err)
{
    (void)point, (void)event, (void)err;
    const on_exception_t *o = self;
    snprintf(request->save, sizeof request->save, "%s", o->filename);
    return PL_OK;
}

const pl_callback_ops_t pl_on_exception_checkpoint_callback = {
    .name = "on_exception_checkpoint",
    .help = "saves a checkpoint when the run fails",
    .size = sizeof(on_exception_t),
    .options = on_exception_options,
    .points = PL_AT(EXCEPTION),
    .start = on_exception_start,
    .on = on_exception_on,
};
