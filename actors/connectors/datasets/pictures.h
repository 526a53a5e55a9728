/* pictures.h - a part of the data set "pictures": the stages that a picture passes */
#ifndef PL_PICTURES_H
#define PL_PICTURES_H

#include "actors/connectors/datasets/datasets.h"
#include "formats/picture.h"
#include "formats/stream.h"

/* ---- picture_stages.c: stages that a picture passes ---- */

#define PL_PICTURE_STAGES 16
#define PL_STAGE_NUMBERS 4

typedef struct pl_picture_stage {
    int kind;
    int width, height;                         /* height 0: width is the shorter side's */
    double number[PL_STAGE_NUMBERS];
} pl_picture_stage_t;

typedef struct pl_picture_stages {
    int count;
    pl_picture_stage_t stage[PL_PICTURE_STAGES];
    double mean[3], std[3];                                 /* of normalize  [0, 1] */
    bool normalizes;
    double mixup;                                           /* alpha  [0: no mixup] */
} pl_picture_stages_t;

/* Reads a list such as ["resize 256", "center_crop 224", "normalize imagenet"].
 * PL_EINVAL names the place, "stages.1". */
int pl_picture_stages_read(pl_picture_stages_t *stages, const char *json, int *place,
                           pl_error_t *err);

/* The numbers of a draw are pure functions of these and of the stage. */
typedef struct pl_picture_draw {
    uint64_t key;                              /* of seed, epoch, sample */
    bool is_random;                            /* training; otherwise random stages are at
                                                  their middle or left out */
} pl_picture_draw_t;

/* Pixels of the largest picture that stages make of one of these sizes. */
double pl_picture_stages_pixels(const pl_picture_stages_t *stages, int width, int height);
/* The size of a picture behind all stages; true if it is the same for each picture. */
bool pl_picture_stages_size(const pl_picture_stages_t *stages, int *width, int *height);

/* The factor by which a JPEG may be decoded smaller, because its first stage makes it at
 * least that much smaller: 1, 2, 4 or 8.  width, height: as it is displayed. */
int pl_picture_stages_shrink(const pl_picture_stages_t *stages,
                             const pl_picture_draw_t *draw, int width, int height);

/* Memory of a thread that is used for one picture after another. */
typedef struct pl_picture_work {
    pl_picture_t picture, spare;
    float *row;                                             /* of a resize */
    size_t row_size;
} pl_picture_work_t;

/* Makes all stages of work->picture, which was decoded from width x height pixels. */
int pl_picture_stages_run(const pl_picture_stages_t *stages,
                          const pl_picture_draw_t *draw, int width, int height,
                          pl_picture_work_t *work, pl_error_t *err);
void pl_picture_work_release(pl_picture_work_t *work);

#endif
