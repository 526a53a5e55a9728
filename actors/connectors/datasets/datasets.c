/* datasets.c - functions that the built-in data sets use: checks, fields, the data
 * info */
#include "actors/connectors/datasets/datasets.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/connectors/datasets/class_files.h"
#include "actors/connectors/sampler.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/log.h"

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
        data_info = pl_text("%.*s%s\"%s\": %s}", (int)strlen(*data_info_p) - 1,
                            *data_info_p, strcmp(*data_info_p, "{}") ? ", " : "", key,
                            *json_p);
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

void pl_scales_read(const json_t *data_info, pl_moments_t *scales, int count)
{
    const json_t *means = json_object_get(data_info, PL_TARGET_MEANS),
                 *factors = json_object_get(data_info, PL_TARGET_FACTORS);
    scales[0] =
        (pl_moments_t){json_number_value(json_object_get(data_info, PL_TARGET_MEAN)),
                       json_number_value(json_object_get(data_info, PL_TARGET_FACTOR))};
    for (int k = 0; k < count && count > 1; k++)
        scales[k] =
            (pl_moments_t){json_number_value(json_array_get(means, (size_t)k)),
                           json_number_value(json_array_get(factors, (size_t)k))};
}

char *pl_scales_add(char **data_info_p, const pl_moments_t *scales, int count)
{
    json_t *means = json_array(), *factors = json_array();
    for (int k = 0; k < count; k++) {
        means = pl_json_append(means, json_real(scales[k].mean));
        factors = pl_json_append(factors, json_real(scales[k].factor));
    }
    char *mean = means ? pl_json_write(count > 1 ? means : json_array_get(means, 0),
                                       PL_JSON_COMPACT)
                       : NULL,
         *factor = factors ? pl_json_write(count > 1 ? factors
                                                     : json_array_get(factors, 0),
                                           PL_JSON_COMPACT)
                           : NULL;
    json_decref(means);
    json_decref(factors);
    *data_info_p = pl_data_info_add(
        data_info_p, count > 1 ? PL_TARGET_MEANS : PL_TARGET_MEAN, &mean);
    return pl_data_info_add(data_info_p,
                            count > 1 ? PL_TARGET_FACTORS : PL_TARGET_FACTOR, &factor);
}

/* B. P. Welford's sums (csv_learn.c) of the values to train on, for each target. */
static int values_measure(const pl_values_t *values, const pl_data_split_t *split,
                          pl_moments_t *moments, pl_error_t *err)
{
    enum { PIECE = 1024 };
    const size_t targets = (size_t)values->targets;
    double count = 0;
    float *value = pl_alloc_array(PIECE * targets, sizeof *value);
    int code = value ? PL_OK : pl_no_memory(err);
    for (int64_t i = 0; i < values->samples && code == PL_OK; i++) {
        const int64_t left = values->samples - i;
        if (i % PIECE == 0)
            code = values->read(values->user, i * values->targets,
                                (size_t)(left < PIECE ? left : PIECE) * targets, value,
                                err);
        if (code || pl_data_split_holds(split, i))
            continue;
        count++;
        for (size_t k = 0; k < targets; k++) {
            const double number = value[(size_t)(i % PIECE) * targets + k],
                         distance = number - moments[k].mean;
            moments[k].mean += distance / count;
            moments[k].factor += distance * (number - moments[k].mean);
        }
    }
    for (size_t k = 0; k < targets; k++)
        moments[k].factor = moments[k].factor > 0 ? sqrt(count / moments[k].factor) : 1;
    pl_free(value);
    return code;
}

int pl_dataset_scale_add(const pl_data_request_t *request, const pl_values_t *values,
                         char **data_info_p, pl_error_t *err)
{
    pl_moments_t moments[sizeof((pl_reals_t *)0)->value / sizeof(double)] = {{0}};
    json_t *info = pl_json_value(*data_info_p, strlen(*data_info_p), NULL);
    const bool has_scale = json_object_get(info, PL_TARGET_FACTOR)
                           || json_object_get(info, PL_TARGET_FACTORS);
    pl_data_split_t split = {0};
    const pl_data_split_spec_t spec = {.seed = request->seed,
                                       .total = values->samples,
                                       .share = request->val_split,
                                       .folds = request->folds,
                                       .fold = request->fold};
    bool is_finite = true;
    int code = PL_OK;
    if (request->data_info || has_scale || values->targets < 1
        || values->targets > (int64_t)(sizeof moments / sizeof *moments)) {
        json_decref(info);
        return PL_OK;
    }
    /* If the split is impossible, the run reports that. */
    if (request->val_split > 0 && pl_data_split_make(&split, &spec, NULL) == PL_ENOMEM)
        code = pl_no_memory(err);
    code = code ? code : values_measure(values, &split, moments, err);
    pl_data_split_release(&split);
    for (int k = 0; k < values->targets; k++)               /* a loss says it better */
        is_finite &= isfinite(moments[k].mean) && isfinite(moments[k].factor);
    char *scaled = NULL;
    if (!code && is_finite && !(scaled = pl_text("%s", *data_info_p)))
        code = pl_no_memory(err);
    if (scaled) {
        scaled = pl_scales_add(&scaled, moments, (int)values->targets);
        code = scaled ? code : pl_no_memory(err);
    }
    if (scaled) {
        pl_text_free(*data_info_p);
        *data_info_p = scaled;
    }
    json_decref(info);
    return code;
}
