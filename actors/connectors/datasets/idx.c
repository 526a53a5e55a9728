/* idx.c - images and labels in IDX files: MNIST and its relatives
 *
 * A directory holds four files under the names that MNIST gave them, plain or gzip.
 * Pixels stay bytes in memory and become floats when they are read, scaled and normalised
 * in one multiplication and one addition. */
#include "formats/idx.h"

#include "actors/connectors/datasets/datasets.h"
#include "actors/connectors/datasets/moments.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/convert.h"

typedef struct idx {
    const char *path;
    double mean, std;
    pl_array_t images;                                   /* [samples, rows, columns] u8 */
    pl_array_t labels;                                   /* [samples] u8; count 0: none */
    size_t pixels;
    float scale, shift;
} idx_t;

static const pl_option_t idx_options[] = {
    PL_TEXT(idx_t, path, NULL, NULL,
            "directory with train-images-idx3-ubyte and the like, .gz or not"),
    PL_FLOAT(idx_t, mean, "0", NULL, "subtracted from pixels, which go from 0 to 1"),
    PL_FLOAT(idx_t, std, "1", "(0..", "pixels are divided by it, after the mean"),
    PL_OPTIONS_END,
};

/* PATH/PART-KIND-ubyte or the same with .gz. */
static int idx_load(const idx_t *idx, const char *part, const char *kind,
                    pl_array_t *array, pl_error_t *err)
{
    static const char *const endings[] = {"", ".gz"};
    int code = PL_ENOTFOUND;
    for (int i = 0; i < 2 && code == PL_ENOTFOUND; i++) {
        char *file = pl_text("%s/%s-%s-ubyte%s", idx->path, part, kind, endings[i]);
        if (!file)
            return pl_no_memory(err);
        code = pl_idx_load(file, pl_file_limit(), array, err);
        pl_free(file);
    }
    if (code == PL_ENOTFOUND)
        return pl_fail(err, code,
                       "%s/%s-%s-ubyte: no such file, neither with .gz nor without",
                       idx->path, part, kind);
    return code;
}

static int idx_check_images(const idx_t *idx, const char *part, pl_error_t *err)
{
    const pl_array_t *images = &idx->images;
    if (images->dtype != PL_U8 || images->shape.rank != 3)
        return pl_fail(
            err, PL_EFORMAT,
            "%s/%s-images-idx3-ubyte: images are bytes with 3 axes, these have %d axes",
            idx->path, part, images->shape.rank);
    if (images->count == 0)
        return pl_fail(err, PL_EFORMAT,
                       "%s/%s-images-idx3-ubyte: there are no images in it", idx->path,
                       part);
    return PL_OK;
}

static int idx_check_labels(const idx_t *idx, const char *part, pl_error_t *err)
{
    const pl_array_t *labels = &idx->labels;
    int64_t images = idx->images.shape.dim[0];
    if (labels->dtype != PL_U8 || labels->shape.rank != 1)
        return pl_fail(
            err, PL_EFORMAT,
            "%s/%s-labels-idx1-ubyte: labels are bytes with 1 axis, these have %d axes",
            idx->path, part, labels->shape.rank);
    if (labels->count != images)
        return pl_fail(
            err, PL_EFORMAT,
            "%s/%s-labels-idx1-ubyte: record %lld: %lld labels for %lld images",
            idx->path, part, (long long)(labels->count < images ? labels->count : images),
            (long long)labels->count, (long long)images);
    return PL_OK;
}

/* Labels may be missing when predicting. */
static int idx_load_all(idx_t *idx, pl_stage_t stage, pl_error_t *err)
{
    const char *part = stage == PL_TRAIN || stage == PL_VALIDATE ? "train" : "t10k";
    int code = idx_load(idx, part, "images-idx3", &idx->images, err);
    if (!code)
        code = idx_check_images(idx, part, err);
    if (code)
        return code;
    code = idx_load(idx, part, "labels-idx1", &idx->labels, err);
    if (code == PL_ENOTFOUND && stage == PL_PREDICT)
        return PL_OK;
    return code ? code : idx_check_labels(idx, part, err);
}

static int64_t idx_classes(const idx_t *idx)
{
    const uint8_t *label = idx->labels.data;
    int64_t classes = 0;
    for (int64_t i = 0; i < idx->labels.count; i++)
        classes = label[i] >= classes ? label[i] + 1 : classes;
    return classes;
}

static int idx_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                    pl_error_t *err)
{
    idx_t *idx = self;
    if (!(idx->std > 0))
        return pl_fail(err, PL_EINVAL, "idx: std is %g; it must be greater than 0",
                       idx->std);
    int code = idx_load_all(idx, request->stage, err);
    if (code)
        return code;
    const int64_t *dim = idx->images.shape.dim;
    pl_shape_t shape = PL_SHAPE(1, dim[1], dim[2]);
    const pl_moments_t moments = {255 * idx->mean, 1 / (255 * idx->std)};
    char *facts = pl_dataset_facts(idx_classes(idx), &shape);
    pl_data_info_t found = {.samples = dim[0],
                            .facts = pl_moments_tell(&facts, &moments, 1)};
    if (!found.facts)
        return pl_no_memory(err);
    pl_dataset_field(&found, "x", PL_F32, shape);
    if (idx->labels.count > 0)
        pl_dataset_field(&found, "y", PL_I64, (pl_shape_t){0});
    idx->pixels = (size_t)(dim[1] * dim[2]);
    idx->scale = (float)(1 / (255 * idx->std));
    idx->shift = (float)(-idx->mean / idx->std);
    *info = found;
    return PL_OK;
}

static int idx_read(const void *self, const pl_read_request_t *request,
                    void *const field[], pl_error_t *err)
{
    const idx_t *idx = self;
    const uint8_t *image = idx->images.data, *label = idx->labels.data;
    int code = pl_dataset_check(idx->path, request, idx->images.shape.dim[0], err);
    if (code)
        return code;
    float *x = field[0];
    for (int i = 0; i < request->count; i++, x += idx->pixels)
        pl_convert_u8_f32(image + (size_t)request->index[i] * idx->pixels, idx->pixels,
                          idx->scale, idx->shift, x);
    if (idx->labels.count == 0)
        return PL_OK;
    int64_t *y = field[1];
    for (int i = 0; i < request->count; i++)
        y[i] = label[request->index[i]];
    return PL_OK;
}

static void idx_close(void *self)
{
    idx_t *idx = self;
    pl_array_release(&idx->images);
    pl_array_release(&idx->labels);
}

const pl_dataset_ops_t pl_idx_dataset = {
    .name = "idx",
    .help = "images and labels in IDX files, as MNIST has them",
    .size = sizeof(idx_t),
    .options = idx_options,
    .open = idx_open,
    .read = idx_read,
    .close = idx_close,
};
