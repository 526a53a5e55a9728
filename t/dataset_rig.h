/* dataset_rig.h - a data set with its options, opened, and what it read */
#ifndef T_DATASET_RIG_H
#define T_DATASET_RIG_H

#include <jansson.h>

#include "paceline.h"

typedef struct rig {
    const pl_dataset_ops_t *ops;
    void *self;
    json_t *given;                                      /* what text options point into */
    pl_data_info_t info;
    pl_stage_t stage;                                   /* of opening, and of reads */
    int code;                                           /* of opening */
    pl_error_t err;                                     /* of the last call */
    void *field[PL_FIELDS];                             /* what the last read gave */
    int64_t length;                                     /* of its samples, if they vary */
} rig_t;

/* Opens with options (JSON: {"path": "…"}; the others have their defaults) and a share of
 * the data. */
rig_t rig_open_share(const pl_dataset_ops_t *ops, pl_stage_t stage, double from,
                     double to, const char *options);

/* The same with all of the data, told the data info of the training data  [NULL]. */
rig_t rig_open_told(const pl_dataset_ops_t *ops, pl_stage_t stage, const char *data_info,
                    const char *options);

/* The same for training, of which a share is kept for validation. */
rig_t rig_open_split(const pl_dataset_ops_t *ops, double val_split, bool stratify,
                     const char *options);

/* With all of the data, options by printf. */
rig_t rig_open(const pl_dataset_ops_t *ops, pl_stage_t stage, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads samples of an epoch [0] into field; -> the data set's code. */
int rig_read(rig_t *rig, int count, const int64_t *index);
int rig_read_epoch(rig_t *rig, uint64_t epoch, int count, const int64_t *index);
#define COUNT_(...) (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define INDEX(...) \
    COUNT_(__VA_ARGS__), (const int64_t[]) \
    { \
        __VA_ARGS__ \
    }

void rig_close(rig_t *rig);

/* Whether field k is called that, of that type and that sample shape ("1,28,28"). */
bool has_field(const rig_t *rig, int k, const char *name, pl_dtype_t dtype,
               const char *shape);

/* That opening failed with that code and a text like that; closes. */
void refused(rig_t rig, int code, const char *pattern, const char *what);

/* That each allocation of opening may fail. */
void opens_without_memory(const pl_dataset_ops_t *ops, const char *option,
                          const char *value);

#endif
