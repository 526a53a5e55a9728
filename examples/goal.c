/* goal.c - a user-defined callback: trains until a metric reaches a value, and lowers the
 * learning rate near it
 *
 *   "callbacks": [{"name": "goal", "monitor": "val_acc", "value": 0.95}]
 *
 * It is a shared object that Paceline finds by its name.  goal_on() writes requests,
 * which the run carries out.  doc/callbacks.md lists all hooks and their permitted
 * requests. */
#include <jansson.h>
#include <stdio.h>

#include <paceline.h>

/* Options, set before any function is called; then the state. */
typedef struct goal {
    const char *monitor;
    double value, near, slow;
    bool slowed;
} goal_t;

static const pl_option_t goal_options[] = {
    PL_TEXT(goal_t, monitor, "\"val_acc\"", NULL, "metric to monitor"),
    PL_FLOAT(goal_t, value, NULL, NULL, "value of the metric at which the run stops"),
    PL_FLOAT(goal_t, near, "0.05", "0..",
             "distance from value at which the learning rate is lowered"),
    PL_FLOAT(goal_t, slow, "0.5", "(0..1]", "factor on the learning rate there"),
    PL_OPTIONS_END,
};

/* Called after each validation, on the rank's thread. */
static int goal_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                   pl_callback_request_t *request, pl_error_t *err)
{
    goal_t *goal = self;
    double value;
    (void)point;
    if (!pl_hook_metric(event, goal->monitor, &value))
        return pl_fail(err, PL_ENOTFOUND, "there is no metric \"%s\"", goal->monitor);
    double left = goal->value - value;
    if (left <= 0) {
        request->stop = true;
        snprintf(request->reason, sizeof request->reason, "%s is %.4f", goal->monitor,
                 value);
    } else if (left <= goal->near && !goal->slowed) {
        goal->slowed = true;
        request->lr_factor = goal->slow;
    }
    return pl_callback_log(request, "goal_left", left > 0 ? left : 0, err);
}

/* A checkpoint keeps the state, so that a resumed run equals an uninterrupted one. */
static char *goal_state(const void *self, pl_error_t *err)
{
    char *text = pl_text("{\"slowed\": %s}",
                         ((const goal_t *)self)->slowed ? "true" : "false");
    if (!text)
        pl_fail(err, PL_ENOMEM, "out of memory");
    return text;
}

static int goal_restore(void *self, const char *state, pl_error_t *err)
{
    json_t *kept = json_loads(state, JSON_REJECT_DUPLICATES, NULL);
    if (!kept)
        return pl_fail(err, PL_EFORMAT, "the state of the callback is not JSON");
    ((goal_t *)self)->slowed = json_is_true(json_object_get(kept, "slowed"));
    json_decref(kept);
    return PL_OK;
}

static const pl_callback_ops_t goal = {
    .name = "goal",
    .help = "trains until a metric reaches a value",
    .size = sizeof(goal_t),
    .options = goal_options,
    .points = PL_AT(VALIDATION_END),
    .on = goal_on,
    .state = goal_state,
    .restore = goal_restore,
};

PL_PLUGIN({"callback", &goal})
