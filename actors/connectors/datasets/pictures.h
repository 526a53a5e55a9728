/* pictures.h - parts of the data set "pictures": its files, and the stages that a picture
 * passes */
#ifndef PL_PICTURES_H
#define PL_PICTURES_H

#include "actors/connectors/datasets/datasets.h"
#include "formats/picture.h"
#include "formats/stream.h"

/* ---- pictures_find.c: the files and their classes ---- */

typedef struct pl_picture_list {
    int64_t count;
    char **path;    /* [count], each owned */
    int64_t *label; /* [count]; -1: no class */
    int64_t capacity;
    json_t *class_names; /* list, sorted */
    int64_t others;      /* files that are left out */
    char *other;         /* one of them  [none] */
} pl_picture_list_t;

typedef struct pl_picture_source {
    const char *path;          /* a folder of classes, or a table */
    const char *file, *label;  /* columns of the table, by name or number
                                                ["": the first, the last] */
    const char *what;          /* in errors  [picture] */
    const char *endings;       /* of names: ".wav, .flac"  [those of pictures] */
    bool links;                /* follow links out of the folder */
    bool without_classes;      /* classes have no meaning: predictions */
    const json_t *class_names; /* of the training data; borrowed  [found] */
} pl_picture_source_t;

/* Lists the pictures of a source: of a folder in the order of classes and names, of a
 * table in its order.  The caller releases *list, also after an error.  PL_ENOTFOUND,
 * PL_EFORMAT, PL_EINVAL, PL_EIO, PL_ENOMEM. */
int pl_pictures_find(const pl_picture_source_t *source, pl_picture_list_t *list,
                     pl_error_t *err);
void pl_pictures_release(pl_picture_list_t *list);

/* Proposes a run for a folder of classes, as pl_data_propose() does: replaces *run, adds
 * to *reasons; either may become NULL: out of memory.  PL_EFORMAT: no such folder.
 * propose_pictures.c */
int pl_pictures_propose(const char *path, json_t **run, json_t **reasons,
                        pl_error_t *err);

/* ---- picture_stages.c: stages that a picture passes ---- */

#define PL_PICTURE_STAGES 16
#define PL_STAGE_NUMBERS 4

typedef struct pl_picture_stage {
    int kind;
    int width, height; /* height 0: width is the shorter side's */
    double number[PL_STAGE_NUMBERS];
} pl_picture_stage_t;

typedef struct pl_picture_stages {
    int count;
    pl_picture_stage_t stage[PL_PICTURE_STAGES];
    double mean[3], std[3]; /* of normalize  [0, 1] */
    bool normalizes;
    double mixup; /* alpha  [0: no mixup] */
} pl_picture_stages_t;

/* Reads a list such as ["resize 256", "center_crop 224", "normalize imagenet"].
 * PL_EINVAL names the place, "stages.1". */
int pl_picture_stages_read(pl_picture_stages_t *stages, const char *json, int *place,
                           pl_error_t *err);

/* The numbers of a draw are pure functions of these and of the stage. */
typedef struct pl_picture_draw {
    uint64_t key;   /* of seed, epoch, sample */
    bool is_random; /* training; otherwise random stages are at
                                                their middle or left out */
} pl_picture_draw_t;

/* The size of a picture behind all stages; true if it is the same for each picture. */
bool pl_picture_stages_size(const pl_picture_stages_t *stages, int *width, int *height);

/* The factor by which a JPEG may be decoded smaller, because its first stage makes it at
 * least that much smaller: 1, 2, 4 or 8.  width, height: as it is displayed. */
int pl_picture_stages_shrink(const pl_picture_stages_t *stages,
                             const pl_picture_draw_t *draw, int width, int height);

/* Memory of a thread that is used for one picture after another. */
typedef struct pl_picture_work {
    pl_picture_t picture, spare;
    float *row; /* of a resize */
    size_t row_size;
} pl_picture_work_t;

/* Makes all stages of work->picture, which was decoded from width x height pixels. */
int pl_picture_stages_run(const pl_picture_stages_t *stages,
                          const pl_picture_draw_t *draw, int width, int height,
                          pl_picture_work_t *work, pl_error_t *err);
void pl_picture_work_release(pl_picture_work_t *work);

#endif
