/* throughput_monitor.c - logs how fast a run trains
 *
 * Over the newest few looks, so that one that was slow does not stand for all; the time
 * of validations is not counted. */
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/clock.h"

enum { LOOKS_MOST = 256 };

/* How far the run was at a look; time goes on while it trains only. */
typedef struct look {
    int64_t trained;                                        /* ns */
    uint64_t samples, steps;
} look_t;

typedef struct throughput {
    int64_t every_n_steps, window_size;

    int64_t since;                          /* it trains, ns; 0: it does something else */
    int64_t trained;                        /* until then, ns */
    uint64_t looks;
    look_t look[LOOKS_MOST + 1];                            /* the newest, a ring */
} throughput_t;

static const pl_option_t throughput_options[] = {
    PL_INT(throughput_t, every_n_steps, "50", "1..", "optimizer steps between two looks"),
    PL_INT(throughput_t, window_size, "20", "1..256", "looks that a figure is of"),
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
    return &t->look[number % (LOOKS_MOST + 1)];
}

static void look_add(throughput_t *t, const pl_hook_event_t *event)
{
    *look_at(t, t->looks++) = (look_t){t->trained, event->samples, event->global_step};
}

/* From the oldest look of the window to the newest. */
static int rates_log(throughput_t *t, pl_wish_t *wish, pl_error_t *err)
{
    uint64_t back = t->looks - 1 < (uint64_t)t->window_size ? t->looks - 1
                                                            : (uint64_t)t->window_size;
    const look_t *newest = look_at(t, t->looks - 1),
                 *oldest = look_at(t, t->looks - 1 - back);
    double seconds = (double)(newest->trained - oldest->trained) * 1e-9;
    if (!(seconds > 0))
        return PL_OK;
    double samples = (double)(newest->samples - oldest->samples) / seconds;
    int code = pl_wish_figure(wish, "samples_per_second", samples, err);
    if (code == PL_OK)
        code = pl_wish_figure(wish, "steps_per_second",
                              (double)(newest->steps - oldest->steps) / seconds, err);
    return code;
}

static int throughput_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                         pl_wish_t *wish, pl_error_t *err)
{
    throughput_t *t = self;
    clock_go(t);
    if (point == PL_HOOK_TRAIN_EPOCH_START && !t->looks)
        look_add(t, event);
    if (point == PL_HOOK_VALIDATION_START || point == PL_HOOK_TRAIN_EPOCH_END)
        clock_stop(t);
    if (point != PL_HOOK_TRAIN_BATCH_END)
        return PL_OK;
    look_add(t, event);
    return rates_log(t, wish, err);
}

const pl_callback_ops_t pl_throughput_monitor_callback = {
    .name = "throughput_monitor",
    .help = "logs samples and steps a second",
    .size = sizeof(throughput_t),
    .options = throughput_options,
    .points = PL_AT(TRAIN_EPOCH_START) | PL_AT(TRAIN_BATCH_END) | PL_AT(VALIDATION_START)
              | PL_AT(VALIDATION_END) | PL_AT(TRAIN_EPOCH_END),
    .every_n_steps = throughput_every,
    .on = throughput_on,
};
