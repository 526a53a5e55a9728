/* model_inputs.c - samples in memory as the module was trained to take them
 *
 * A data set may have changed the numbers of its files before the module saw them.  It
 * told how in its data info, so whoever asks gives samples as the files have them. */
#include "actors/model_inputs.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/array.h"
#include "formats/convert.h"
#include "tensor/graph.h"

static int moments_take(pl_model_inputs_t *inputs, const json_t *list, pl_error_t *err)
{
    const size_t count = json_array_size(list);
    inputs->moments = pl_alloc_array(count, sizeof *inputs->moments);
    if (!inputs->moments)
        return pl_no_memory(err);
    inputs->count = (int)count;
    const int bad = pl_moments_read(list, inputs->moments);
    return bad < 0 ? PL_OK
                   : pl_fail(err, PL_EFORMAT,
                             "the file of the weights has no mean and factor for "
                             "feature %d",
                             bad);
}

int pl_model_inputs_init(pl_model_inputs_t *inputs, const char *data_info,
                         pl_error_t *err)
{
    *inputs = (pl_model_inputs_t){0};
    if (!data_info || !*data_info)
        return PL_OK;
    json_t *known = pl_json_value(data_info, strlen(data_info), err);
    const json_t *list = json_object_get(known, PL_MOMENTS);
    int code = known ? PL_OK : err->code;
    if (code == PL_OK && json_array_size(list))
        code = moments_take(inputs, list, err);
    json_decref(known);
    return code;
}

void pl_model_inputs_release(pl_model_inputs_t *inputs)
{
    pl_free(inputs->moments);
    *inputs = (pl_model_inputs_t){0};
}

static bool is_number(pl_dtype_t dtype)
{
    return dtype == PL_F32 || dtype == PL_F64 || dtype == PL_U8;
}

static bool is_prepared(const pl_model_inputs_t *inputs, const pl_field_t *given)
{
    return inputs->count && !strcmp(given->name, "x") && is_number(given->dtype);
}

int pl_model_inputs_field(const pl_model_inputs_t *inputs, const pl_field_t *given,
                          pl_field_t *field, pl_error_t *err)
{
    const int64_t numbers = pl_elements(given->shape);
    if (is_prepared(inputs, given) && inputs->count != 1 && inputs->count != numbers)
        return pl_fail(err, PL_EINVAL,
                       "a sample of \"x\" has %lld numbers, but the training data had "
                       "%d features",
                       (long long)numbers, inputs->count);
    *field = *given;
    if (is_number(given->dtype))
        field->dtype = PL_F32;
    return PL_OK;
}

static double number_at(pl_dtype_t dtype, const void *data, int64_t i)
{
    return dtype == PL_F64  ? ((const double *)data)[i]
           : dtype == PL_U8 ? ((const uint8_t *)data)[i]
                            : (double)((const float *)data)[i];
}

void pl_model_inputs_fill(const pl_model_inputs_t *inputs, const pl_field_t *given,
                          const void *data, int64_t at, int64_t samples, void *out)
{
    const int64_t per_sample = pl_elements(given->shape);
    const char *from = (const char *)data
                       + (size_t)(at * per_sample) * pl_array_width(given->dtype);
    if (!is_prepared(inputs, given)) {
        pl_convert(given->dtype, from, is_number(given->dtype) ? PL_F32 : given->dtype,
                   out, (size_t)(samples * per_sample));
        return;
    }
    for (int64_t i = 0; i < samples * per_sample; i++) {
        const pl_moments_t *moments =
            &inputs->moments[inputs->count == 1 ? 0 : i % per_sample];
        ((float *)out)[i] = pl_moments_apply(moments, number_at(given->dtype, from, i));
    }
}
