/* throughput_monitor.c - logs how fast a run trains
 *
 * Over the newest few looks, so that one that was slow does not stand for all; the time
 * of validations is not counted.  FLOP are the model's, as pl_graph_flops() counts them:
 * what a device computes twice, or besides, is no merit of its. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/clock.h"
#include "base/json_text.h"

enum { LOOKS_MAX = 256 };

/* How far the run was at a look; time goes on while it trains only. */
typedef struct look {
    int64_t trained;                                        /* ns */
    uint64_t samples, steps;
} look_t;

typedef struct throughput {
    int64_t every_n_steps, window_size;
    double peak_flops;                                      /* NaN: as measured */

    double tokens, flops;                   /* of a sample */
    int64_t since;                          /* it trains, ns; 0: it does something else */
    int64_t trained;                        /* until then, ns */
    uint64_t looks;
    look_t look[LOOKS_MAX + 1];                             /* the newest, a ring */
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

static void clock_go(throughput_t *t)
{
    clock_stop(t);
    t->since = pl_now();
}

static look_t *look_at(throughput_t *t, uint64_t number)
{
    return &t->look[number % (LOOKS_MAX + 1)];
}

static void look_add(throughput_t *t, const pl_hook_event_t *event)
{
    *look_at(t, t->looks++) = (look_t){t->trained, event->samples, event->global_step};
}

/* What follows from the samples: tokens of sequences, FLOP, and what share that is of
 * what the device can do. */
static int samples_log(const throughput_t *t, double samples, double peak,
                       pl_callback_request_t *request, pl_error_t *err)
{
    int code = pl_callback_log(request, "samples_per_second", samples, err);
    if (code == PL_OK && t->tokens > 0)
        code = pl_callback_log(request, "tokens_per_second", samples * t->tokens, err);
    if (code == PL_OK)
        code = pl_callback_log(request, "model_flops_per_second", samples * t->flops,
                               err);
    if (code == PL_OK && peak > 0)
        code = pl_callback_log(request, "model_flops_utilization",
                               samples * t->flops / peak, err);
    return code;
}

/* From the oldest look of the window to the newest. */
static int rates_log(throughput_t *t, double peak, pl_callback_request_t *request,
                     pl_error_t *err)
{
    uint64_t back = t->looks - 1 < (uint64_t)t->window_size ? t->looks - 1
                                                            : (uint64_t)t->window_size;
    const look_t *newest = look_at(t, t->looks - 1),
                 *oldest = look_at(t, t->looks - 1 - back);
    double seconds = (double)(newest->trained - oldest->trained) * 1e-9;
    if (!(seconds > 0))
        return PL_OK;
    double samples = (double)(newest->samples - oldest->samples) / seconds;
    int code = samples_log(t, samples, peak, request, err);
    if (code == PL_OK)
        code = pl_callback_log(request, "steps_per_second",
                               (double)(newest->steps - oldest->steps) / seconds, err);
    return code;
}

static int model_read(throughput_t *t, const char *text, pl_error_t *err)
{
    json_t *model = pl_json_read(text, strlen(text), "model", err);
    if (!model)
        return err->code;
    t->tokens = json_number_value(json_object_get(model, "tokens"));
    t->flops = json_number_value(json_object_get(model, "train_flops"));
    json_decref(model);
    return PL_OK;
}

static int throughput_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                         pl_callback_request_t *request, pl_error_t *err)
{
    throughput_t *t = self;
    double peak = isnan(t->peak_flops) ? event->device_flops : t->peak_flops;
    if (point == PL_HOOK_FIT_START)
        return model_read(t, event->model, err);
    clock_go(t);
    if (point == PL_HOOK_TRAIN_EPOCH_START && !t->looks)
        look_add(t, event);
    if (point == PL_HOOK_VALIDATION_START || point == PL_HOOK_TRAIN_EPOCH_END)
        clock_stop(t);
    if (point != PL_HOOK_TRAIN_BATCH_END)
        return PL_OK;
    look_add(t, event);
    return rates_log(t, peak, request, err);
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
