/* goal.c - a callback of one's own: train until a figure is good enough, more slowly near
 * the end
 *
 *   "callbacks": [{"name": "goal", "figure": "val_acc", "value": 0.95}]
 *
 * It is a shared object, found by its name.  Callbacks decide by answering: what
 * goal_on() writes into the request, the run does.  All points where one may be asked, and
 * what may be wished for there, are in doc/callbacks.md. */
#include <jansson.h>
#include <stdio.h>

#include <paceline.h>

/* Options, filled in before anything is called; then what it remembers. */
typedef struct goal {
    const char *figure;
    double value, near, slow;
    bool slowed;
} goal_t;

static const pl_option_t goal_options[] = {
    PL_TEXT(goal_t, figure, "\"val_acc\"", NULL, "figure to look at"),
    PL_FLOAT(goal_t, value, NULL, NULL, "stops the run once the figure is that large"),
    PL_FLOAT(goal_t, near, "0.05", "0..", "so close to it the learning rate falls"),
    PL_FLOAT(goal_t, slow, "0.5", "(0..1]", "to this share of what it was"),
    PL_OPTIONS_END,
};

/* Asked after each validation, on the rank's thread. */
static int goal_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                   pl_callback_request_t *request, pl_error_t *err)
{
    goal_t *goal = self;
    double value;
    (void)point;
    if (!pl_hook_metric(event, goal->figure, &value))
        return pl_fail(err, PL_ENOTFOUND, "there is no figure \"%s\"", goal->figure);
    double left = goal->value - value;
    if (left <= 0) {
        request->stop = true;
        snprintf(request->reason, sizeof request->reason, "%s is %.4f", goal->figure,
                 value);
    } else if (left <= goal->near && !goal->slowed) {
        goal->slowed = true;
        request->lr_factor = goal->slow;
    }
    return pl_callback_log(request, "goal_left", left > 0 ? left : 0, err);
}

/* A checkpoint keeps what it remembers, so that a run goes on as if never stopped. */
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
        return pl_fail(err, PL_EFORMAT, "the state is no JSON");
    ((goal_t *)self)->slowed = json_is_true(json_object_get(kept, "slowed"));
    json_decref(kept);
    return PL_OK;
}

static const pl_callback_ops_t goal = {
    .name = "goal",
    .help = "trains until a figure is good enough",
    .size = sizeof(goal_t),
    .options = goal_options,
    .points = PL_AT(VALIDATION_END),
    .on = goal_on,
    .state = goal_state,
    .restore = goal_restore,
};

PL_PLUGIN({"callback", &goal})
