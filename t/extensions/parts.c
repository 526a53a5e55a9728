/* parts.c - a data set and a callback as users write them, against installed headers */
#include <math.h>
#include <paceline.h>
#include <string.h>

/* ---- Rings around each other ---- */

typedef struct rings {
    int64_t samples;
} rings_t;

static const pl_option_t rings_options[] = {
    PL_INT(rings_t, samples, "400", "1..", "points in all"),
    PL_OPTIONS_END,
};

static int rings_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                      pl_error_t *err)
{
    (void)request;
    info->samples = ((const rings_t *)self)->samples;
    info->field_count = 2;
    info->field[0] = (pl_field_t){"x", PL_F32, pl_shape(1, 2)};
    info->field[1] = (pl_field_t){"y", PL_I64, pl_shape(0)};
    info->facts = pl_text("{\"classes\": 2}");
    return info->facts ? PL_OK : pl_fail(err, PL_ENOMEM, "out of memory");
}

static int rings_read(const void *self, const pl_read_request_t *request,
                      void *const field[], pl_error_t *err)
{
    (void)self, (void)err;
    for (int k = 0; k < request->count; k++) {
        const int64_t i = request->index[k];
        const double radius = i % 2 ? 1 : 2.5, angle = (double)i * 2.399;
        ((float *)field[0])[2 * k] = (float)(radius * cos(angle));
        ((float *)field[0])[2 * k + 1] = (float)(radius * sin(angle));
        ((int64_t *)field[1])[k] = i % 2;
    }
    return PL_OK;
}

static const pl_dataset_ops_t rings = {
    .name = "rings",
    .help = "from a plug-in",
    .size = sizeof(rings_t),
    .options = rings_options,
    .open = rings_open,
    .read = rings_read,
};

/* ---- Enough ---- */

typedef struct enough {
    int64_t steps;
} enough_t;

static const pl_option_t enough_options[] = {
    PL_INT(enough_t, steps, "7", "1..", "after which the run ends"),
    PL_OPTIONS_END,
};

static int enough_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                     pl_wish_t *wish, pl_error_t *err)
{
    (void)point, (void)err;
    wish->stop = event->global_step >= (uint64_t)((const enough_t *)self)->steps;
    strcpy(wish->reason, "enough");
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

PL_PLUGIN({"dataset", &rings}, {"callback", &enough})
