/* timer.c - stops a run after a time
 *
 * The time before a resumed checkpoint counts too: the limit is for the training, not for
 * the process.  The newest run file sets the limit. */
#include <stdio.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/option.h"
#include "base/clock.h"
#include "base/error.h"

typedef struct timer {
    const char *duration;
    pl_unit_t interval;
    int64_t every_n_steps;

    int64_t limit, before;                      /* ns; before: time of the resumed runs */
    int64_t began;
} stop_timer_t;

static const pl_option_t timer_options[] = {
    PL_TEXT(stop_timer_t, duration, NULL, NULL, "time limit of the run, DD:HH:MM:SS"),
    PL_WORD(stop_timer_t, interval, "\"step\"", PL_STEP_OR_EPOCH,
            "whether the run stops after a step or after an epoch"),
    PL_INT(stop_timer_t, every_n_steps, "50", "1..",
           "optimizer steps between two checks of the clock"),
    PL_OPTIONS_END,
};

static const char *timer_check(const void *self, pl_error_t *err)
{
    int64_t limit;
    const stop_timer_t *t = self;
    return pl_duration_read(t->duration, &limit, err) == PL_OK ? NULL : "duration";
}

static int64_t timer_every(const void *self)
{
    const stop_timer_t *t = self;
    return t->interval == PL_UNIT_EPOCH ? 0 : t->every_n_steps;
}

static int timer_start(void *self, pl_error_t *err)
{
    stop_timer_t *t = self;
    t->began = pl_now();
    return pl_duration_read(t->duration, &t->limit, err);
}

static int64_t time_used(const stop_timer_t *t)
{
    return t->before + pl_now() - t->began;
}

static int timer_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                    pl_callback_request_t *request, pl_error_t *err)
{
    (void)event, (void)err;
    stop_timer_t *t = self;
    if (point == PL_HOOK_FIT_START)
        t->began = pl_now();
    request->stop = time_used(t) >= t->limit;
    if (request->stop)
        snprintf(request->reason, sizeof request->reason,
                 "the time limit of %s has passed", t->duration);
    return PL_OK;
}

static char *timer_state(const void *self, pl_error_t *err)
{
    return pl_state_write(json_pack("{s:f}", "seconds", (double)time_used(self) / 1e9),
                          err);
}

static int timer_restore(void *self, const char *state, pl_error_t *err)
{
    stop_timer_t *t = self;
    json_t *kept = pl_state_read(state, err);
    if (!kept)
        return err->code;
    t->before = (int64_t)(json_number_value(json_object_get(kept, "seconds")) * 1e9);
    json_decref(kept);
    return PL_OK;
}

const pl_callback_ops_t pl_timer_callback = {
    .name = "timer",
    .help = "stops the run after a time",
    .size = sizeof(stop_timer_t),
    .options = timer_options,
    .check = timer_check,
    .points = PL_AT(FIT_START) | PL_AT(TRAIN_BATCH_END) | PL_AT(TRAIN_EPOCH_END),
    .requests = PL_LOOKS_ON | PL_BY_CLOCK,
    .every_n_steps = timer_every,
    .start = timer_start,
    .on = timer_on,
    .state = timer_state,
    .restore = timer_restore,
};
