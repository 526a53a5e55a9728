/* datasets.h - the built-in data sets, and functions that they use
 *
 * Each is one file with its options and one table, and is found by name like a user's. */
#ifndef PL_DATASETS_H
#define PL_DATASETS_H

#include <jansson.h>

#include "paceline.h"

extern const pl_dataset_ops_t pl_csv_dataset;
extern const pl_dataset_ops_t pl_idx_dataset;
extern const pl_dataset_ops_t pl_lines_dataset;
extern const pl_dataset_ops_t pl_memory_dataset;
extern const pl_dataset_ops_t pl_npy_dataset;
extern const pl_dataset_ops_t pl_pictures_dataset;
extern const pl_dataset_ops_t pl_sounds_dataset;
extern const pl_dataset_ops_t pl_sources_dataset;
extern const pl_dataset_ops_t pl_text_dataset;

/* A source of this stage may have no samples, if it is not the only one. */
static inline bool pl_may_be_empty(pl_stage_t stage)
{
    return stage == PL_VALIDATE || stage == PL_TEST;
}

/* For open(), which may read a large file: something more of it was read, so
 * trainer.step_timeout begins again for the run that waits.  Cheap.  True: write a line
 * to the log of how much was read; the first one is due after ten seconds. */
bool pl_dataset_progress(void);

/* The classes of all samples, where a built-in data set knows them without reading any;
 * NULL: it does not.  Borrowed from the open data set. */
const int64_t *pl_dataset_labels(const pl_dataset_ops_t *ops, const void *self);

/* Adds a field to *info, which must have fewer than PL_FIELDS. */
void pl_dataset_field(pl_data_info_t *info, const char *name, pl_dtype_t dtype,
                      pl_shape_t shape);

/* The shape of one sample of an array whose first axis counts samples. */
pl_shape_t pl_dataset_sample_shape(const pl_shape_t *shape);

/* {"classes": 10, "shape": [1, 28, 28]} for pl_data_info_t; without classes if there are
 * none.  NULL: out of memory. */
char *pl_dataset_data_info(int64_t classes, const pl_shape_t *shape);

/* Labels are numbers of classes, and a module has an output for each class up to the
 * largest.  A larger label is hardly a class, and its outputs would fill the memory. */
#define PL_LABEL_MAX ((1 << 24) - 1)

/* This many classes are plausible with any number of samples. */
#define PL_CLASSES_FEW 10

/* Range and help of an option ignore_index. */
#define PL_LABELS "-2147483648..2147483647"
#define PL_IGNORE_HELP \
    "label of the samples that the module ignores, as its own ignore_index: it is no " \
    "class"

/* Warns if labels of training data start at 1, so that class 0 has no samples; if there
 * are more classes than samples; or if there are no classes (largest -1). */
void pl_dataset_warn_of_labels(const pl_data_request_t *request, const char *path,
                               int64_t samples, int64_t smallest, int64_t largest);

/* The option of data sets whose files can stay on the disk, and its value in bytes. */
#define PL_MEMORY_MB(struct_t) \
    PL_INT( \
        struct_t, memory_mb, "128", "0..1048576", \
        "a plain file of more MiB stays on the disk, and samples are read from there")
static inline size_t pl_memory_bytes(int64_t memory_mb)
{
    return (size_t)memory_mb << 20;
}

/* Adds a member, whose value is JSON, to a data info, an object; consumes both texts,
 * also NULL.  NULL: out of memory. */
char *pl_data_info_add(char **data_info_p, const char *key, char **json_p);

/* ---- Moments: the scaling of the numbers of "x" ----
 *
 * They are in the data info: predictions with the same weights need the same scaling. */

/* The key in the data info: [[mean, factor], …], one for each number of a sample, or one
 * for all. */
#define PL_MOMENTS "standardize"

/* x = (value - mean) * factor */
typedef struct pl_moments {
    double mean, factor;
} pl_moments_t;

/* Fills moments [size of the list]; -1, or the index of a malformed pair. */
int pl_moments_read(const json_t *list, pl_moments_t *moments);

/* Adds moments to a data info, which is not empty; both are from pl_text().  Consumes
 * *data_info_p.  NULL: out of memory. */
char *pl_moments_add(char **data_info_p, const pl_moments_t *moments, int count);

/* The scale of values to predict: (y - mean) * factor has mean 0 and deviation 1 in the
 * training data.  Modules such as mlp learn that, and predict y.  A list has a number for
 * each of several targets. */
#define PL_TARGET_MEAN "target_mean"
#define PL_TARGET_FACTOR "target_factor"
#define PL_TARGET_MEANS "target_means"
#define PL_TARGET_FACTORS "target_factors"

/* Reads the scales of `count` targets; a factor 0: there is none. */
void pl_scales_read(const json_t *data_info, pl_moments_t *scales, int count);

/* Adds them to a data info as pl_moments_add() does. */
char *pl_scales_add(char **data_info_p, const pl_moments_t *scales, int count);

/* Values to predict, which can be read again. */
typedef struct pl_values {
    int64_t samples, targets;
    /* Reads numbers [count] from place `first` of [samples, targets] on. */
    int (*read)(const void *user, int64_t first, size_t count, float *value,
                pl_error_t *err);
    const void *user;
} pl_values_t;

/* Adds the scale of the values that are trained on to the data info of a request without
 * one, unless it has a scale, or there are more targets than a list holds.  *data_info_p
 * is from pl_text(), an object, and stays so after an error.  PL_ENOMEM, errors of
 * read. */
int pl_dataset_scale_add(const pl_data_request_t *request, const pl_values_t *values,
                         char **data_info_p, pl_error_t *err);

static inline float pl_moments_apply(const pl_moments_t *moments, double value)
{
    return (float)((value - moments->mean) * moments->factor);
}

#endif
