/* sequences.c - schedules that consist of other schedules: one after the other, or all at
 * once
 *
 * torch's SequentialLR and ChainedScheduler. A part of a sequence counts from where it
 * begins, and the run that it sees is as long as it is. So a part is any schedule, also a
 * program's own or another sequence. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/optimizers/schedules.h"

/* The options of both; a chain has no milestones. */
typedef struct sequence {
    pl_instances_t schedules;
    pl_ints_t milestones;
    pl_unit_t interval;
} sequence_t;

static const pl_option_t sequential_options[] = {
    PL_PARTS(sequence_t, schedules, "scheduler", "schedules, in their order"),
    PL_INTS(sequence_t, milestones, NULL, "1..",
            "steps or epochs at which the second schedule begins, the third, and so on"),
    PL_WORD(sequence_t, interval, "\"step\"", PL_STEP_OR_EPOCH,
            "unit of the milestones: optimizer steps, or epochs"),
    PL_OPTIONS_END,
};

static const pl_option_t chained_options[] = {
    PL_PARTS(sequence_t, schedules, "scheduler",
             "schedules whose factors are multiplied"),
    PL_OPTIONS_END,
};

/* ---- one after the other ---- */

static uint64_t behind(uint64_t at, uint64_t begin)
{
    return at > begin ? at - begin : 0;
}

/* A moment as the k-th schedule counts it: from its beginning, in a run that ends with
 * it. */
static pl_moment_t moment_within(const sequence_t *s, int k, const pl_moment_t *when)
{
    const bool epochs = s->interval == PL_UNIT_EPOCH, is_last = k == s->milestones.count;
    const uint64_t per_epoch = when->epoch_steps,
                   begin = k ? (uint64_t)s->milestones.value[k - 1] : 0,
                   end = is_last ? 0 : (uint64_t)s->milestones.value[k],
                   step = epochs ? begin * per_epoch : begin,
                   end_step = is_last  ? when->total_steps
                              : epochs ? end * per_epoch
                                       : end,
                   epoch = epochs      ? begin
                           : per_epoch ? begin / per_epoch
                                       : 0,
                   end_epoch = is_last     ? when->total_epochs
                               : epochs    ? end
                               : per_epoch ? (end + per_epoch - 1) / per_epoch
                                           : 0;
    pl_moment_t own = *when;
    own.step = behind(when->step, step);
    own.total_steps = behind(end_step, step);
    own.epoch = behind(when->epoch, epoch);
    own.total_epochs = behind(end_epoch, epoch);
    return own;
}

static int schedule_at(const sequence_t *s, const pl_moment_t *when)
{
    const uint64_t at = s->interval == PL_UNIT_EPOCH ? when->epoch : when->step;
    int k = 0;
    while (k < s->milestones.count && at >= (uint64_t)s->milestones.value[k])
        k++;
    return k;
}

static double sequential_factor(const void *self, const pl_moment_t *when)
{
    const sequence_t *s = self;
    const int k = schedule_at(s, when);
    const pl_instance_t *part = &s->schedules.value[k];
    const pl_scheduler_ops_t *ops = part->ops;
    const pl_moment_t own = moment_within(s, k, when);
    return ops->factor(part->self, &own);
}

/* Momentum of the k-th schedule. */
static double momentum_of(const sequence_t *s, int k, const pl_moment_t *own)
{
    const pl_scheduler_ops_t *ops = s->schedules.value[k].ops;
    return ops->momentum ? ops->momentum(s->schedules.value[k].self, own) : NAN;
}

/* A schedule without momentum leaves it where the one before it ended or, as in PyTorch,
 * where the first that has one begins. */
static double sequential_momentum(const void *self, const pl_moment_t *when)
{
    const sequence_t *s = self;
    const int at = schedule_at(s, when);
    pl_moment_t own = moment_within(s, at, when);
    double momentum = momentum_of(s, at, &own);
    for (int k = at - 1; k >= 0 && isnan(momentum); k--) {
        own = moment_within(s, k, when);
        own.step = behind(own.total_steps, 1);
        own.epoch = behind(own.total_epochs, 1);
        momentum = momentum_of(s, k, &own);
    }
    for (int k = at + 1; k < s->schedules.count && isnan(momentum); k++) {
        own = moment_within(s, k, when);
        own.step = own.epoch = 0;
        momentum = momentum_of(s, k, &own);
    }
    return momentum;
}

/* ---- all at once ---- */

static double chained_factor(const void *self, const pl_moment_t *when)
{
    const sequence_t *s = self;
    double factor = 1;
    for (int k = 0; k < s->schedules.count; k++) {
        const pl_scheduler_ops_t *ops = s->schedules.value[k].ops;
        factor *= ops->factor(s->schedules.value[k].self, when);
    }
    return factor;
}

/* The last that has one sets it last. */
static double chained_momentum(const void *self, const pl_moment_t *when)
{
    const sequence_t *s = self;
    double momentum = NAN;
    for (int k = s->schedules.count - 1; k >= 0 && isnan(momentum); k--)
        momentum = momentum_of(s, k, when);
    return momentum;
}

/* ---- what both pass on ---- */

static int sequence_observe(void *self, const char *metrics, pl_error_t *err)
{
    const sequence_t *s = self;
    int code = PL_OK;
    for (int k = 0; k < s->schedules.count && code == PL_OK; k++) {
        const pl_scheduler_ops_t *ops = s->schedules.value[k].ops;
        if (ops->observe)
            code = ops->observe(s->schedules.value[k].self, metrics, err);
    }
    return code;
}

static const char *monitor_of(const pl_instance_t *part)
{
    const pl_scheduler_ops_t *ops = part->ops;
    const char *monitor = ops->monitor ? ops->monitor(part->self) : NULL;
    return monitor && *monitor ? monitor : NULL;
}

/* All that follow a metric follow the same one: the check below. */
static const char *sequence_monitor(const void *self)
{
    const sequence_t *s = self;
    const char *monitor = NULL;
    for (int k = 0; k < s->schedules.count && !monitor; k++)
        monitor = monitor_of(&s->schedules.value[k]);
    return monitor ? monitor : "";
}

static const char *sequence_check(const void *self, pl_error_t *err)
{
    const sequence_t *s = self;
    static const char *const place[] = {"schedules.0", "schedules.1", "schedules.2",
                                        "schedules.3", "schedules.4", "schedules.5",
                                        "schedules.6", "schedules.7"};
    const char *first = sequence_monitor(self);
    _Static_assert(sizeof place / sizeof *place == PL_INSTANCES, "a place for each");
    for (int k = 0; k < s->schedules.count; k++) {
        const char *monitor = monitor_of(&s->schedules.value[k]);
        if (!monitor || !strcmp(monitor, first))
            continue;
        pl_fail(err, PL_EINVAL,
                "it follows \"%s\", and a schedule before it \"%s\": schedules of one "
                "sequence can follow only one metric",
                monitor, first);
        return place[k];
    }
    return NULL;
}

static const char *sequential_check(const void *self, pl_error_t *err)
{
    const sequence_t *s = self;
    const pl_ints_t *at = &s->milestones;
    if (at->count != s->schedules.count - 1) {
        pl_fail(
            err, PL_EINVAL,
            "there are %d, and %d schedules need %d: each but the first begins at one",
            at->count, s->schedules.count, s->schedules.count - 1);
        return "milestones";
    }
    for (int k = 1; k < at->count; k++)
        if (at->value[k] <= at->value[k - 1]) {
            pl_fail(err, PL_EINVAL, "they must rise, and %lld comes after %lld",
                    (long long)at->value[k], (long long)at->value[k - 1]);
            return "milestones";
        }
    return sequence_check(self, err);
}

/* A list of the states of all schedules, null for one without. */
static char *sequence_save(const void *self, pl_error_t *err)
{
    const sequence_t *s = self;
    json_t *states = json_array();
    for (int k = 0; k < s->schedules.count && states; k++) {
        const pl_scheduler_ops_t *ops = s->schedules.value[k].ops;
        char *text = ops->save ? ops->save(s->schedules.value[k].self, err) : NULL;
        json_t *state = text ? pl_json_value(text, strlen(text), err) : NULL;
        const bool failed = ops->save && !state;
        pl_text_free(text);
        states = pl_json_append(states, state ? state : json_null());
        if (failed) {
            json_decref(states);
            return NULL;
        }
    }
    char *all = states ? pl_json_write(states, PL_JSON_COMPACT) : NULL;
    json_decref(states);
    if (!all)
        pl_no_memory(err);
    return all;
}

static int sequence_restore(void *self, const char *saved, pl_error_t *err)
{
    const sequence_t *s = self;
    json_t *states = pl_json_value(saved, strlen(saved), err);
    if (!states)
        return PL_EFORMAT;
    int code = PL_OK;
    if (json_array_size(states) != (size_t)s->schedules.count)
        code =
            pl_fail(err, PL_EFORMAT,
                    "the checkpoint has the states of %zu schedules of a sequence, and "
                    "the run has %d",
                    json_array_size(states), s->schedules.count);
    for (int k = 0; k < s->schedules.count && code == PL_OK; k++) {
        const pl_scheduler_ops_t *ops = s->schedules.value[k].ops;
        const json_t *state = json_array_get(states, (size_t)k);
        if (!ops->restore)
            continue;
        char *text = json_is_null(state) ? NULL : pl_json_write(state, PL_JSON_COMPACT);
        code = text
                   ? ops->restore(s->schedules.value[k].self, text, err)
                   : pl_fail(err, PL_EFORMAT,
                             "the checkpoint has no state of schedule \"%s\"", ops->name);
        pl_text_free(text);
    }
    json_decref(states);
    return code;
}

#define SEQUENCE_TABLE(of) \
    .size = sizeof(sequence_t), .options = of, .observe = sequence_observe, \
    .monitor = sequence_monitor, .save = sequence_save, .restore = sequence_restore

const pl_scheduler_ops_t pl_sequential_scheduler = {
    .name = "sequential",
    .help = "schedules one after the other, each from a milestone on",
    .check = sequential_check,
    .factor = sequential_factor,
    .momentum = sequential_momentum,
    SEQUENCE_TABLE(sequential_options),
};

const pl_scheduler_ops_t pl_chained_scheduler = {
    .name = "chained",
    .help = "schedules at the same time: their factors are multiplied",
    .check = sequence_check,
    .factor = chained_factor,
    .momentum = chained_momentum,
    SEQUENCE_TABLE(chained_options),
};
