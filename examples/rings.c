/* rings.c - a user-defined data set: points of two rings around each other
 *
 *   "data": {"name": "rings", "samples": 400, "val_split": 0.1}
 *
 * A data set reports its number of samples and their fields, and writes requested samples
 * into memory that the caller provides.  Its data info sets a module's option "classes"
 * that is "auto". */
#include <math.h>
#include <paceline.h>

typedef struct rings {
    int64_t samples;
} rings_t;

static const pl_option_t rings_options[] = {
    PL_INT(rings_t, samples, "400", "1..", "number of points"),
    PL_OPTIONS_END,
};

/* On a data thread: reports samples and fields.  It would open and check files here. */
static int rings_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                      pl_error_t *err)
{
    (void)request;
    info->samples = ((const rings_t *)self)->samples;
    info->field_count = 2;
    info->field[0] = (pl_field_t){"x", PL_F32, pl_shape(1, 2)};
    info->field[1] = (pl_field_t){"y", PL_I64, pl_shape(0)};
    info->data_info = pl_text("{\"classes\": 2}");
    return info->data_info ? PL_OK : pl_fail(err, PL_ENOMEM, "out of memory");
}

/* On several data threads at once: reads the samples with these numbers, in this order.
 * The engine shuffles the numbers and divides them among ranks. */
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
    .help = "points of two rings around each other",
    .size = sizeof(rings_t),
    .options = rings_options,
    .open = rings_open,
    .read = rings_read,
};

PL_PLUGIN({"dataset", &rings})
