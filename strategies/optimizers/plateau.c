/* plateau.c - reduce_on_plateau: a lower learning rate when a metric does not improve
 *
 * torch's ReduceLROnPlateau, called after each validation or, without validation, each
 * epoch. It is the only schedule with state: checkpoints hold it as JSON. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/suggestion.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/optimizers/schedules.h"

typedef enum threshold_mode { THRESHOLD_REL, THRESHOLD_ABS } threshold_mode_t;

typedef struct plateau {
    const char *monitor;
    pl_mode_t mode;
    threshold_mode_t threshold_mode;
    double factor, threshold, min_lr_ratio;
    int64_t patience, cooldown, warmup_steps;

    bool begun;                                             /* there is a best value */
    double best;
    int64_t bad, cooling;                                   /* validations */
    double scale;                                           /* 0: at the start, means 1 */
} plateau_t;

static const pl_option_t plateau_options[] = {
    PL_TEXT(plateau_t, monitor, "\"val_loss\"", NULL, "metric to monitor"),
    PL_WORD(plateau_t, mode, "\"min\"", PL_MIN_OR_MAX,
            "whether smaller or larger values are better"),
    PL_FLOAT(plateau_t, factor, "0.1", "[0..1)",
             "factor of the learning rate at each reduction"),
    PL_INT(plateau_t, patience, "10", "0..",
           "validations in a row without a better value that cause no reduction"),
    PL_FLOAT(plateau_t, threshold, "1e-4", "0..",
             "smallest change that counts as better"),
    PL_WORD(plateau_t, threshold_mode, "\"rel\"", "rel|abs",
            "whether the threshold is a share of the best value or a difference"),
    PL_INT(plateau_t, cooldown, "0", "0..",
           "validations after a reduction that do not count"),
    PL_FLOOR(plateau_t, "0"),
    PL_WARMUP(plateau_t),
    PL_OPTIONS_END,
};

static double plateau_factor(const void *self, const pl_moment_t *when)
{
    const plateau_t *p = self;
    return pl_warming(p->warmup_steps, when) * (p->scale > 0 ? p->scale : 1);
}

static void plateau_take(plateau_t *p, double value)
{
    const bool share = p->threshold_mode == THRESHOLD_REL;
    const double by = share ? p->threshold * p->best : p->threshold;
    const bool is_better = p->mode == PL_MODE_MIN ? value < p->best - by
                                                  : value > p->best + by;
    if (!isnan(value) && (!p->begun || is_better)) {
        p->best = value;
        p->begun = true;
        p->bad = 0;
    } else {
        p->bad++;
    }
    if (p->cooling > 0) {
        p->cooling--;
        p->bad = 0;
    }
    if (p->bad <= p->patience)
        return;
    p->scale = fmax((p->scale > 0 ? p->scale : 1) * p->factor, p->min_lr_ratio);
    p->cooling = p->cooldown;
    p->bad = 0;
}

static int plateau_observe(void *self, const char *text, pl_error_t *err)
{
    plateau_t *p = self;
    char nearest_text[PL_SUGGESTION_TEXT];
    const char *name;
    json_t *other, *metrics = pl_json_value(text, strlen(text), err);
    pl_suggestion_t nearest;
    int code = PL_OK;
    if (!metrics)
        return PL_EFORMAT;
    const json_t *value = json_object_get(metrics, p->monitor);
    if (value) {
        plateau_take(p, json_is_number(value) ? json_number_value(value) : NAN);
    } else {
        pl_suggestion_init(&nearest, p->monitor);
        json_object_foreach(metrics, name, other) {
            pl_suggestion_offer(&nearest, name);
        }
        code = pl_fail(err, PL_ENOTFOUND,
                       "reduce_on_plateau: there is no metric \"%s\": %s", p->monitor,
                       pl_suggestion_text(&nearest, nearest_text));
    }
    json_decref(metrics);
    return code;
}

static const char *plateau_monitor(const void *self)
{
    return ((const plateau_t *)self)->monitor;
}

static char *plateau_save(const void *self, pl_error_t *err)
{
    const plateau_t *p = self;
    json_t *state = json_pack("{s:b, s:f, s:I, s:I, s:f}", "begun", p->begun, "best",
                              p->best, "bad", (json_int_t)p->bad, "cooling",
                              (json_int_t)p->cooling, "scale", p->scale);
    char *text = state ? pl_json_write(state, PL_JSON_COMPACT) : NULL;
    json_decref(state);
    if (!text)
        pl_no_memory(err);
    return text;
}

static int plateau_restore(void *self, const char *saved, pl_error_t *err)
{
    plateau_t *p = self;
    json_t *state = pl_json_value(saved, strlen(saved), err);
    if (!state)
        return PL_EFORMAT;
    p->begun = json_is_true(json_object_get(state, "begun"));
    p->best = json_number_value(json_object_get(state, "best"));
    p->bad = json_integer_value(json_object_get(state, "bad"));
    p->cooling = json_integer_value(json_object_get(state, "cooling"));
    p->scale = json_number_value(json_object_get(state, "scale"));
    json_decref(state);
    return PL_OK;
}

const pl_scheduler_ops_t pl_reduce_on_plateau_scheduler = {
    .name = "reduce_on_plateau",
    .help = "falls when a metric of the validation no longer gets better",
    .size = sizeof(plateau_t),
    .options = plateau_options,
    .factor = plateau_factor,
    .observe = plateau_observe,
    .monitor = plateau_monitor,
    .save = plateau_save,
    .restore = plateau_restore,
};
