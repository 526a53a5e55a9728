/* pictures.c - pictures of classes: PNG, JPEG and WebP in folders, or in a table of paths
 *
 * Pictures are read and decoded when a batch needs them, on the data threads, so memory
 * does not limit their number.  A picture that cannot be read keeps its place: a sample
 * that vanished would change the order of all others, and a resumed run would differ. */
#include "actors/connectors/datasets/pictures.h"

#include <math.h>
#include <string.h>

#include "actors/connectors/datasets/class_files.h"
#include "actors/connectors/sampler.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

enum { FORMAT_FLOAT32, FORMAT_UINT8 };

typedef struct pictures {
    pl_class_files_t files;
    const char *stages_json;
    int format;
    int64_t channels, max_pixels, ignore_index;
    pl_picture_stages_t stages;
    pl_data_split_t split;                                  /* of a mixup's partners */
    int width, height;
    float value[3][256];                                    /* of a byte, by channel */
} pictures_t;

static const pl_option_t pictures_options[] = {
    PL_CLASS_FILES_OPTIONS(pictures_t, files, "pictures"),
    {"stages", PL_OPTION_JSON, offsetof(pictures_t, stages_json), "[]", NULL,
     "what each picture passes, in order: [\"random_resized_crop 224\", \"flip\", "
     "\"normalize imagenet\"]; without one all pictures have one size"},
    PL_INT(pictures_t, channels, "3", "1..3", "3: red, green and blue; 1: grey"),
    PL_WORD(pictures_t, format, "\"float32\"", "float32|uint8",
            "numbers of \"x\": float32 from 0 to 1, or bytes"),
    PL_INT(pictures_t, max_pixels, "100000000", "1..1000000000",
           "pixels of the largest picture that is decoded; a header beyond that is "
           "refused before memory is reserved"),
    PL_INT(pictures_t, ignore_index, "-100", PL_LABELS, PL_IGNORE_HELP),
    PL_OPTIONS_END,
};

static const char *pictures_check(const void *self, pl_error_t *err)
{
    static const char *const places[] = {"stages.0",  "stages.1",  "stages.2",
                                         "stages.3",  "stages.4",  "stages.5",
                                         "stages.6",  "stages.7",  "stages.8",
                                         "stages.9",  "stages.10", "stages.11",
                                         "stages.12", "stages.13", "stages.14",
                                         "stages.15", "stages.16", "stages.17"};
    const pictures_t *p = self;
    pl_picture_stages_t stages;
    int place;
    if (pl_picture_stages_read(&stages, p->stages_json, &place, err) != PL_OK)
        return place >= 0 && place < (int)(sizeof places / sizeof *places) ? places[place]
                                                                           : "stages";
    if (p->channels == 2) {
        pl_fail(err, PL_EINVAL, "it is 3 (colours) or 1 (grey)");
        return "channels";
    }
    if (p->format == FORMAT_UINT8 && (stages.normalizes || stages.mixup > 0)) {
        pl_fail(err, PL_EINVAL, "normalize and mixup make no bytes");
        return "format";
    }
    return NULL;
}

/* ---- Reading ---- */

static pl_picture_draw_t draw_of(const pl_read_request_t *request, int64_t sample)
{
    const uint64_t key = pl_mix(pl_mix(request->seed, request->epoch),
                                pl_hash_text("pictures"));
    return (pl_picture_draw_t){.key = pl_mix(key, (uint64_t)sample),
                               .is_random = request->stage == PL_TRAIN};
}

/* The sizes of a picture as it is displayed, if they are within the limit. */
static int header_read(const pictures_t *p, const char *path,
                       const pl_file_bytes_t *bytes, pl_picture_header_t *header,
                       int *width, int *height, pl_error_t *err)
{
    int code = pl_picture_header(bytes->data, bytes->size, path, header, err);
    if (code)
        return code;
    if ((int64_t)header->width * header->height > p->max_pixels)
        return pl_fail(err, PL_EFORMAT,
                       "%s: %d x %d pixels are more than \"max_pixels\", %lld", path,
                       header->width, header->height, (long long)p->max_pixels);
    *width = pl_picture_is_turned(header) ? header->height : header->width;
    *height = pl_picture_is_turned(header) ? header->width : header->height;
    if (pl_picture_stages_pixels(&p->stages, *width, *height) > (double)p->max_pixels)
        return pl_fail(err, PL_EFORMAT,
                       "%s: a stage would resize %d x %d pixels to more than "
                       "\"max_pixels\", %lld",
                       path, *width, *height, (long long)p->max_pixels);
    return PL_OK;
}

/* Reads a picture and makes its stages: work->picture. */
static int picture_load(const pictures_t *p, const pl_picture_draw_t *draw,
                        int64_t sample, pl_picture_work_t *work, pl_error_t *err)
{
    const char *path = p->files.list.path[sample];
    pl_file_bytes_t bytes = {0};
    pl_picture_header_t header;
    int width = 0, height = 0, code = pl_file_read(path, pl_file_limit(), &bytes, err);
    if (!code)
        code = header_read(p, path, &bytes, &header, &width, &height, err);
    if (!code)
        code =
            pl_picture_decode(bytes.data, bytes.size, path, &header,
                              pl_picture_stages_shrink(&p->stages, draw, width, height),
                              &work->picture, &work->spare, err);
    pl_file_bytes_release(&bytes);
    if (!code)
        code = pl_picture_stages_run(&p->stages, draw, width, height, work, err);
    if (!code && (work->picture.width != p->width || work->picture.height != p->height))
        code = pl_fail(err, PL_EINVAL,
                       "%s has %d x %d pixels behind its stages, but the first picture "
                       "has %d x %d: add a stage that makes all of one size, such as "
                       "\"center_crop %d\" or \"resize %dx%d\"",
                       path, work->picture.width, work->picture.height, p->width,
                       p->height, p->width < p->height ? p->width : p->height, p->height,
                       p->width);
    return code;
}

/* Writes the picture as [channels, height, width]. */
static void picture_store(const pictures_t *p, const pl_picture_t *picture, void *out)
{
    const size_t pixels = (size_t)p->width * (size_t)p->height;
    for (int channel = 0; channel < p->channels; channel++) {
        const uint8_t *from = picture->pixel + channel;
        const float *value = p->value[channel];
        float *number = (float *)out + (size_t)channel * pixels;
        uint8_t *byte = (uint8_t *)out + (size_t)channel * pixels;
        for (size_t k = 0; k < pixels; k++, from += 3) {
            const uint8_t level =
                p->channels == 3
                    ? *from
                    : (uint8_t)((299 * from[0] + 587 * from[1] + 114 * from[2] + 500)
                                / 1000);
            if (p->format == FORMAT_UINT8)
                byte[k] = level;
            else
                number[k] = value[level];
        }
    }
}

/* A picture as a sample: its place in `out` and its class.  A damaged one may have zeros
 * and no class (-1). */
static int sample_read(const pictures_t *p, const pl_picture_draw_t *draw, int64_t sample,
                       pl_picture_work_t *work, void *out, int64_t *label,
                       pl_error_t *err)
{
    const size_t size = (size_t)p->channels * (size_t)p->width * (size_t)p->height
                        * (p->format == FORMAT_UINT8 ? 1 : sizeof(float));
    pl_error_t why = {0};
    const int code = picture_load(p, draw, sample, work, &why);
    if (pl_class_files_answer(&p->files, sample, code, &why, label, err) != PL_OK)
        return code;
    if (code)
        memset(out, 0, size);
    else
        picture_store(p, &work->picture, out);
    return PL_OK;
}

/* The share of a sample in its mix, from Beta(alpha, alpha) (Jöhnk, 1964), and the other
 * sample, which is none of those that are held out for validation. */
static double mix_draw(const pictures_t *p, const pl_picture_draw_t *draw,
                       int64_t *partner)
{
    const uint64_t key = pl_mix(draw->key, pl_hash_text("mixup"));
    const double power = 1 / p->stages.mixup;
    for (uint64_t k = 0; k < 64; k++) {
        *partner = (int64_t)(pl_random_u64(key, k) % (uint64_t)p->files.list.count);
        if (!pl_data_split_holds(&p->split, *partner))
            break;
    }
    for (uint64_t k = 64; k < 2048; k += 2) {
        const double a = pow(pl_random_uniform(key, k), power),
                     b = pow(pl_random_uniform(key, k + 1), power);
        if (a + b <= 1 && a + b > 0)
            return a / (a + b);
    }
    return 1;
}

/* Mixes another sample into out and target (Zhang et al., "mixup", 2018). */
static int sample_mix(const pictures_t *p, const pl_read_request_t *request,
                      const pl_picture_draw_t *draw, pl_picture_work_t *work, float *out,
                      float *other, float *target, pl_error_t *err)
{
    const size_t size = (size_t)p->channels * (size_t)p->width * (size_t)p->height;
    int64_t partner = 0, label;
    const float share = (float)mix_draw(p, draw, &partner);
    const pl_picture_draw_t its = draw_of(request, partner);
    const int code = sample_read(p, &its, partner, work, other, &label, err);
    for (size_t k = 0; !code && k < size; k++)
        out[k] = share * out[k] + (1 - share) * other[k];
    for (int64_t k = 0; !code && k < p->files.classes; k++)
        target[k] = share * target[k] + (k == label ? 1 - share : 0);
    return code;
}

static int pictures_read(const void *self, const pl_read_request_t *request,
                         void *const field[], pl_error_t *err)
{
    const pictures_t *p = self;
    const size_t size = (size_t)p->channels * (size_t)p->width * (size_t)p->height;
    const size_t width = p->format == FORMAT_UINT8 ? 1 : sizeof(float);
    const bool mixes = p->stages.mixup > 0 && request->stage == PL_TRAIN
                       && p->files.has_target;
    pl_picture_work_t work = {0};
    float *other = mixes ? pl_alloc_array(size, sizeof *other) : NULL;
    int code = mixes && !other ? pl_no_memory(err) : PL_OK;
    for (int i = 0; i < request->count && !code; i++) {
        const int64_t sample = request->index[i];
        const pl_picture_draw_t draw = draw_of(request, sample);
        char *out = (char *)field[0] + (size_t)i * size * width;
        int64_t label;
        code = sample_read(p, &draw, sample, &work, out, &label, err);
        if (code || !p->files.has_target)
            continue;
        if (p->stages.mixup > 0) {
            float *target = (float *)field[1] + (size_t)i * (size_t)p->files.classes;
            for (int64_t k = 0; k < p->files.classes; k++)
                target[k] = k == label;
            if (mixes)
                code = sample_mix(p, request, &draw, &work, (float *)out, other, target,
                                  err);
        } else {
            ((int64_t *)field[1])[i] = label < 0 ? p->ignore_index : label;
        }
    }
    pl_free(other);
    pl_picture_work_release(&work);
    return code;
}

/* ---- Opening ---- */

/* The size of all pictures: set by the stages, or else by the first picture that can be
 * read. */
static int find_size(pictures_t *p, pl_error_t *err)
{
    p->width = p->height = 1;
    if (pl_picture_stages_size(&p->stages, &p->width, &p->height))
        return PL_OK;
    int code = pl_fail(err, PL_EFORMAT,
                       "there is no picture whose size could be the size of all: add a "
                       "stage that sets it, such as \"resize 32x32\"");
    for (int64_t k = 0; k < p->files.list.count; k++) {
        pl_file_bytes_t bytes = {0};
        pl_picture_header_t header;
        code = pl_file_read(p->files.list.path[k], pl_file_limit(), &bytes, err);
        if (!code)
            code = header_read(p, p->files.list.path[k], &bytes, &header, &p->width,
                               &p->height, err);
        pl_file_bytes_release(&bytes);
        if (p->files.damaged != PL_DAMAGED_SKIP
            || (code != PL_EFORMAT && code != PL_EUNSUPPORTED))
            break;
    }
    if (!code)
        pl_picture_stages_size(&p->stages, &p->width, &p->height);
    return code;
}

/* Partners of a mix are of the training part alone. */
static int find_partners(pictures_t *p, const pl_data_request_t *request, pl_error_t *err)
{
    const pl_data_split_spec_t spec = {.seed = request->seed,
                                       .total = p->files.list.count,
                                       .share = request->val_split,
                                       .folds = request->folds,
                                       .fold = request->fold,
                                       .target = request->stratify ? p->files.list.label
                                                                   : NULL};
    pl_error_t why = {0};
    if (!(request->val_split > 0) || request->stage != PL_TRAIN)
        return PL_OK;
    const int code = pl_data_split_make(&p->split, &spec, &why);
    return code == PL_ENOMEM ? pl_no_memory(err) : PL_OK;
}

static int describe(const pictures_t *p, pl_data_info_t *info, pl_error_t *err)
{
    pl_data_info_t found = {.samples = p->files.list.count, .same_samples = true};
    const pl_shape_t shape = PL_SHAPE(p->channels, p->height, p->width);
    found.data_info = pl_class_files_data_info(&p->files, &shape);
    if (!found.data_info)
        return pl_no_memory(err);
    pl_dataset_field(&found, "x", p->format == FORMAT_UINT8 ? PL_U8 : PL_F32, shape);
    if (p->files.has_target && p->stages.mixup > 0)
        pl_dataset_field(&found, "y", PL_F32, PL_SHAPE(p->files.classes));
    else if (p->files.has_target)
        pl_dataset_field(&found, "y", PL_I64, (pl_shape_t){0});
    *info = found;
    return PL_OK;
}

static int pictures_open(void *self, const pl_data_request_t *request,
                         pl_data_info_t *info, pl_error_t *err)
{
    pictures_t *p = self;
    int place;
    int code = pl_picture_stages_read(&p->stages, p->stages_json, &place, err);
    if (!code)
        code = pl_class_files_open(&p->files, &pl_picture_files, request, err);
    for (int channel = 0; channel < 3; channel++)
        for (int level = 0; level < 256; level++)
            p->value[channel][level] = (float)((level / 255.0 - p->stages.mean[channel])
                                               / p->stages.std[channel]);
    if (!code)
        code = find_size(p, err);
    if (!code && p->stages.mixup > 0)
        code = find_partners(p, request, err);
    return code ? code : describe(p, info, err);
}

static void pictures_close(void *self)
{
    pictures_t *p = self;
    pl_class_files_close(&p->files);
    pl_data_split_release(&p->split);
}

const pl_dataset_ops_t pl_pictures_dataset = {
    .name = "pictures",
    .help = "pictures of classes: PNG, JPEG and WebP in folders, or by a table of paths",
    .size = sizeof(pictures_t),
    .options = pictures_options,
    .check = pictures_check,
    .open = pictures_open,
    .read = pictures_read,
    .close = pictures_close,
};
