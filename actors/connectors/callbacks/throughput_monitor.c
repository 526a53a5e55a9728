/* throughput_monitor.c - logs how fast a run trains
 *
 * Rates are over a window of measurements, so one slow interval changes them little; the
 * time of validations is not counted.  FLOP are the model's, as pl_graph_flops() counts
 * them, not what a device computes twice or in addition. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/clock.h"
#include "base/json_text.h"

enum { POINTS_MAX = 256 };

/* A measurement. */
typedef struct throughput_sample {
    int64_t trained;                                        /* time of training, ns */
    uint64_t samples, steps;
} throughput_sample_t;

typedef struct throughput {
    int64_t every_n_steps, window_size;
    double peak_flops;                                      /* NaN: as measured */

    double tokens, flops;                        /* of a sample */
    int64_t since;                               /* start of training, ns; 0: it pauses */
    int64_t trained;                             /* time of training until then, ns */
    uint64_t count;                              /* measurements */
    throughput_sample_t ring[POINTS_MAX + 1];    /* the newest ones */
} throughput_t;

static const pl_option_t throughput_options[] = {
    PL_INT(throughput_t, every_n_steps, "50", "1..",
           "optimizer steps between two measurements"),
    PL_INT(throughput_t, window_size, "20", "1..256",
           "measurements in the window of a metric"),
    PL_FLOAT(throughput_t, peak_flops, "null", "(0..",
             "peak FLOP per second of the device, for model_flops_utilization; null: "
             "measured at the start"),
    PL_OPTIONS_END,
};

static int64_t throughput_every(const void *self)
{
    return ((const throughput_t *)self)->every_n_steps;
}

static void clock_stop(throughput_t *t)
{
    if (t->since)
        t->trained += pl_now() - t->since;
    t->since = 0;
}

static void point_add(throughput_t *t, const pl_hook_event_t *event)
{
    t->ring[t->count++ % (POINTS_MAX + 1)] =
        (throughput_sample_t){t->trained, event->samples, event->global_step};
}

static int throughput_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                         pl_callback_request_t *request, pl_error_t *err)
{
    throughput_t *t = self;
    double peak = isnan(t->peak_flops) ? event->device_flops : t->peak_flops;
    if (point == PL_HOOK_FIT_START) {
        json_t *model = pl_json_read(event->model, strlen(event->model), "model", err);
        if (!model)
            return err->code;
        t->tokens = json_number_value(json_object_get(model, "tokens"));
        t->flops = json_number_value(json_object_get(model, "train_flops"));
        json_decref(model);
        return PL_OK;
    }
    clock_stop(t);
    t->since = pl_now();
    if (point == PL_HOOK_TRAIN_EPOCH_START && !t->count)
        point_add(t, event);
    if (point == PL_HOOK_VALIDATION_START || point == PL_HOOK_TRAIN_EPOCH_END)
        clock_stop(t);
    if (point != PL_HOOK_TRAIN_BATCH_END)
        return PL_OK;
    point_add(t, event);
    /* The rates between the oldest and the newest measurement of the window. */
    const uint64_t last = t->count - 1, window = (uint64_t)t->window_size,
                   first = last < window ? 0 : last - window;
    const throughput_sample_t *newest = &t->ring[last % (POINTS_MAX + 1)],
                              *oldest = &t->ring[first % (POINTS_MAX + 1)];
    const double seconds = (double)(newest->trained - oldest->trained) * 1e-9,
                 samples = (double)(newest->samples - oldest->samples) / seconds,
                 steps = (double)(newest->steps - oldest->steps) / seconds;
    const struct {
        const char *name;
        double value;
        bool known;
    } rates[] = {
        {"samples_per_second", samples, true},
        {"tokens_per_second", samples * t->tokens, t->tokens > 0},
        {"model_flops_per_second", samples * t->flops, true},
        {"model_flops_utilization", samples * t->flops / peak, peak > 0},
        {"steps_per_second", steps, true},
    };
    int code = PL_OK;
    for (size_t k = 0; seconds > 0 && k < sizeof rates / sizeof *rates && code == PL_OK;
         k++)
        if (rates[k].known)
            code = pl_callback_log(request, rates[k].name, rates[k].value, err);
    return code;
}

const pl_callback_ops_t pl_throughput_monitor_callback = {
    .name = "throughput_monitor",
    .help = "logs samples, tokens, steps and FLOP per second",
    .size = sizeof(throughput_t),
    .options = throughput_options,
    .points = PL_AT(FIT_START) | PL_AT(TRAIN_EPOCH_START) | PL_AT(TRAIN_BATCH_END)
              | PL_AT(VALIDATION_START) | PL_AT(VALIDATION_END) | PL_AT(TRAIN_EPOCH_END),
    .requests = PL_NEEDS_PEAK | PL_LOOKS_ON,
    .every_n_steps = throughput_every,
    .on = throughput_on,
};
