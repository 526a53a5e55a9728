/* datasets.h - the data sets that are built in, and what they share
 *
 * Each is one file with its options and one table, found by name like a user's own. */
#ifndef PL_DATASETS_H
#define PL_DATASETS_H

#include "paceline.h"

extern const pl_dataset_ops_t pl_csv_dataset;
extern const pl_dataset_ops_t pl_idx_dataset;
extern const pl_dataset_ops_t pl_lines_dataset;
extern const pl_dataset_ops_t pl_memory_dataset;
extern const pl_dataset_ops_t pl_npy_dataset;
extern const pl_dataset_ops_t pl_text_dataset;

/* Whether a source of a stage may have no samples, as a further one to validate on. */
static inline bool pl_may_be_empty(pl_stage_t stage)
{
    return stage == PL_VALIDATE || stage == PL_TEST;
}

/* Guards a read: every index lies in [0, samples).  PL_EINVAL names `what` and the index.
 * */
int pl_dataset_check(const char *what, const pl_read_request_t *request, int64_t samples,
                     pl_error_t *err);

/* Adds a field of that name, type and sample shape to *info, which has room. */
void pl_dataset_field(pl_data_info_t *info, const char *name, pl_dtype_t dtype,
                      pl_shape_t shape);

/* The shape of one sample of an array whose first axis counts samples. */
pl_shape_t pl_dataset_sample_shape(const pl_shape_t *shape);

/* {"classes": 10, "shape": [1, 28, 28]} for pl_data_info_t, classes only when there are
 * any; NULL: out of memory. */
char *pl_dataset_data_info(int64_t classes, const pl_shape_t *shape);

/* Labels are numbers of classes, and a module has an output for each class up to the
 * largest: what is larger is hardly a class, and would fill the memory. */
#define PL_LABEL_MAX ((1 << 24) - 1)

/* So many classes are plausible with any number of samples. */
#define PL_CLASSES_FEW 10

/* Of an option ignore_index. */
#define PL_LABELS "-2147483648..2147483647"
#define PL_IGNORE_HELP \
    "label of the samples that the module ignores, as its own ignore_index: it is no " \
    "class"

/* Warns of the labels of so many samples of training data that start at 1, for class 0
 * would have no samples, that are more classes than samples, or none; largest -1: none
 * has a class. */
void pl_dataset_warn_of_labels(const pl_data_request_t *request, const char *path,
                               int64_t samples, int64_t smallest, int64_t largest);

/* The data info, not empty, with one more, whose value is JSON; both texts are
 * consumed, also NULL.  NULL: out of memory. */
char *pl_dataset_tell(char **data_info_p, const char *key, char **json_p);

#endif
