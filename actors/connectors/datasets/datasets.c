/* datasets.c - functions that the built-in data sets use: checks, fields, the data
 * info */
#include "actors/connectors/datasets/datasets.h"

#include <stdio.h>
#include <string.h>

#include "actors/connectors/datasets/class_files.h"
#include "base/alloc.h"
#include "base/json_text.h"
#include "base/log.h"

int pl_dataset_check(const char *what, const pl_read_request_t *request, int64_t samples,
                     pl_error_t *err)
{
    for (int i = 0; i < request->count; i++)
        if (request->index[i] < 0 || request->index[i] >= samples)
            return pl_fail(err, PL_EINVAL, "%s: there is no sample %lld of %lld", what,
                           (long long)request->index[i], (long long)samples);
    return PL_OK;
}

const int64_t *pl_dataset_labels(const pl_dataset_ops_t *ops, const void *self)
{
    const bool has_files = ops == &pl_pictures_dataset || ops == &pl_sounds_dataset;
    return has_files ? ((const pl_class_files_t *)self)->list.label : NULL;
}

void pl_dataset_field(pl_data_info_t *info, const char *name, pl_dtype_t dtype,
                      pl_shape_t shape)
{
    pl_field_t *field = &info->field[info->field_count++];
    *field = (pl_field_t){.dtype = dtype, .shape = shape};
    snprintf(field->name, sizeof field->name, "%s", name);
}

pl_shape_t pl_dataset_sample_shape(const pl_shape_t *shape)
{
    pl_shape_t sample = {.rank = shape->rank - 1};
    for (int i = 0; i < sample.rank; i++)
        sample.dim[i] = shape->dim[i + 1];
    return sample;
}

void pl_dataset_warn_of_labels(const pl_data_request_t *request, const char *path,
                               int64_t samples, int64_t smallest, int64_t largest)
{
    if (request->rank != 0 || request->stage != PL_TRAIN)
        return;
    if (largest < 0)
        pl_log_line(PL_LOG_WARNING, 0, "data set",
                    "%s: every label is negative or the ignore_index, so there are no "
                    "classes",
                    path);
    if (largest >= samples && largest >= PL_CLASSES_FEW)
        pl_log_line(PL_LOG_WARNING, 0, "data set",
                    "%s: the largest label is %lld, so there are %lld classes, but only "
                    "%lld samples: number the classes from 0, or make the labels values "
                    "(floats in npy, \"target\": \"value\" in csv)",
                    path, (long long)largest, (long long)largest + 1, (long long)samples);
    if (smallest == 1 && largest > 1)
        pl_log_line(PL_LOG_WARNING, 0, "data set",
                    "%s: the labels are 1 to %lld and none is 0: classes start at 0, so "
                    "class 0 has no samples; subtract 1 from each label",
                    path, (long long)largest);
}

char *pl_dataset_data_info(int64_t classes, const pl_shape_t *shape)
{
    char axes[PL_DIMS * 24] = "", known[48] = "";
    int length = 0;
    for (int i = 0; i < shape->rank; i++)
        length += snprintf(axes + length, sizeof axes - (size_t)length, "%s%lld",
                           i ? ", " : "", (long long)shape->dim[i]);
    if (classes > 0)
        snprintf(known, sizeof known, "\"classes\": %lld, ", (long long)classes);
    return pl_text("{%s\"shape\": [%s]}", known, axes);
}

char *pl_data_info_add(char **data_info_p, const char *key, char **json_p)
{
    char *data_info = NULL;
    if (*data_info_p && *json_p)
        data_info = pl_text("%.*s, \"%s\": %s}", (int)strlen(*data_info_p) - 1,
                            *data_info_p, key, *json_p);
    pl_text_free(*json_p);
    pl_text_free(*data_info_p);
    *data_info_p = *json_p = NULL;
    return data_info;
}

int pl_moments_read(const json_t *list, pl_moments_t *moments)
{
    size_t k;
    json_t *pair;
    json_array_foreach(list, k, pair) {
        const json_t *mean = json_array_get(pair, 0), *factor = json_array_get(pair, 1);
        if (!json_is_number(mean) || !json_is_number(factor))
            return (int)k;
        moments[k] = (pl_moments_t){json_number_value(mean), json_number_value(factor)};
    }
    return -1;
}

char *pl_moments_add(char **data_info_p, const pl_moments_t *moments, int count)
{
    json_t *list = *data_info_p ? json_array() : NULL;
    bool whole = list;
    for (int k = 0; k < count && whole; k++) {
        json_t *pair = json_pack("[f, f]", moments[k].mean, moments[k].factor);
        whole = json_array_append_new(list, pair) == 0;
    }
    char *text = whole ? pl_json_write(list, PL_JSON_COMPACT) : NULL;
    json_decref(list);
    return pl_data_info_add(data_info_p, PL_MOMENTS, &text);
}
