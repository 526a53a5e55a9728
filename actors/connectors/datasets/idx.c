/* idx.c - images and labels in IDX files: MNIST and its relatives
 *
 * A directory has a pair of files to train on and one to test on, plain or gzip: with the
 * names of MNIST, with similar names (EMNIST), or with names from options.  Pixels that
 * are bytes stay bytes in memory; reading converts them to floats, scaled and normalised
 * in one multiplication and one addition. */
#include "formats/array.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "actors/connectors/datasets/datasets.h"
#include "base/alloc.h"
#include "base/error.h"

typedef struct idx {
    const char *path, *prefix, *images_name, *labels_name;
    double mean, std;
    int64_t ignore_index, memory_mb;
    char *images_file, *labels_file;                        /* found  [none] */
    pl_array_t images;                                      /* [samples, …] */
    pl_array_t labels;                                      /* [samples]; count 0: none */
    size_t pixels;
    float scale, shift;
} idx_t;

static const pl_option_t idx_options[] = {
    PL_TEXT(idx_t, path, NULL, NULL,
            "directory with train-images-idx3-ubyte and its companions, plain or .gz, "
            "or with one pair of files with \"train\" and one with \"test\" in their "
            "names, such as EMNIST"),
    PL_TEXT(idx_t, prefix, "\"\"", NULL,
            "start of the files' names, if the directory has several sets, such as "
            "\"emnist-letters-\""),
    {"images", PL_OPTION_TEXT, offsetof(idx_t, images_name), "\"\"", NULL,
     "file of the images, in path or with its own path; \"\": found by its name"},
    {"labels", PL_OPTION_TEXT, offsetof(idx_t, labels_name), "\"\"", NULL,
     "file of the labels, in path or with its own path; \"\": the file beside the images "
     "whose name has \"labels\" for \"images\""},
    PL_INT(idx_t, ignore_index, "-100", PL_LABELS, PL_IGNORE_HELP),
    PL_FLOAT(idx_t, mean, "0", NULL,
             "subtracted from pixels, which are scaled to 0 to 1 if they are bytes"),
    PL_FLOAT(idx_t, std, "1", "(0..", "divides pixels, after the mean is subtracted"),
    PL_MEMORY_MB(idx_t),
    PL_OPTIONS_END,
};

/* ---- Which files ---- */

/* The required parts of a file's name. */
typedef struct pattern {
    const char *folder, *begin, *kind;                      /* kind: "images", "labels" */
    const char *format;                                     /* "idx", or "" */
    bool trains, tests;                                     /* the set that it names */
    size_t memory;                                          /* of pl_idx_open() */
} pattern_t;

static bool is_of_training(pl_stage_t stage)
{
    return stage == PL_TRAIN || stage == PL_VALIDATE;
}

static bool names_training(const char *name)
{
    return strstr(name, "train") != NULL;
}

static bool names_test(const char *name)
{
    return !names_training(name) && (strstr(name, "t10k") || strstr(name, "test"));
}

/* The length of a name without ".gz". */
static size_t stem(const char *name)
{
    const size_t length = strlen(name);
    return length > 3 && !strcmp(name + length - 3, ".gz") ? length - 3 : length;
}

/* ---- Loading ---- */

/* A file by its name, in a folder unless the name has its own. */
static int idx_load_as(const pattern_t *pattern, const char *name, const char *ending,
                       char **file_p, pl_array_t *array, pl_error_t *err)
{
    char *file = *name == '/' ? pl_text("%s%s", name, ending)
                              : pl_text("%s/%s%s", pattern->folder, name, ending);
    if (!file)
        return pl_no_memory(err);
    const int code = pl_idx_open(file, pattern->memory, array, err);
    if (code == PL_OK)
        *file_p = file;
    else
        pl_text_free(file);
    return code;
}

/* A file with the name of MNIST  [NULL], with or without .gz, or the one whose name fits;
 * PL_ENOTFOUND without a text: there is none. */
static int idx_load_found(const char *usual, const pattern_t *pattern, char **file_p,
                          pl_array_t *array, pl_error_t *err)
{
    int code = PL_ENOTFOUND;
    if (usual)
        code = idx_load_as(pattern, usual, "", file_p, array, err);
    if (usual && code == PL_ENOTFOUND)
        code = idx_load_as(pattern, usual, ".gz", file_p, array, err);
    if (code != PL_ENOTFOUND)
        return code;
    char *found = NULL;
    code = PL_OK;
    DIR *folder = opendir(pattern->folder);
    if (!folder && errno == ENOMEM)
        return pl_no_memory(err);
    for (struct dirent *entry; folder && !code && (entry = readdir(folder));) {
        const char *name = entry->d_name;
        const size_t length = stem(name);
        if (strncmp(name, pattern->begin, strlen(pattern->begin))
            || !strstr(name, pattern->kind) || !strstr(name, pattern->format)
            || names_training(name) != pattern->trains
            || names_test(name) != pattern->tests)
            continue;
        if (found && (stem(found) != length || strncmp(found, name, length)))
            code = pl_fail(err, PL_EINVAL,
                           "%s: \"%s\" and \"%s\" may be the %s: choose by \"prefix\", "
                           "or name the files by \"images\" and \"labels\"",
                           pattern->folder, found, name, pattern->kind);
        if (found)
            continue;                                       /* with .gz and without */
        found = pl_text("%s", name);
        code = found ? PL_OK : pl_no_memory(err);
    }
    if (folder)
        closedir(folder);
    if (!code && !found)
        return PL_ENOTFOUND;
    if (!code && !(*file_p = pl_text("%s/%s", pattern->folder, found)))
        code = pl_no_memory(err);
    pl_text_free(found);
    return code ? code : pl_idx_open(*file_p, pattern->memory, array, err);
}

static int64_t idx_label(const idx_t *idx, int64_t sample)
{
    const void *label = idx->labels.data;
    return idx->labels.dtype == PL_U8 ? ((const uint8_t *)label)[sample]
                                      : ((const int32_t *)label)[sample];
}

static int idx_check_labels(const idx_t *idx, pl_error_t *err)
{
    const pl_array_t *labels = &idx->labels;
    int64_t images = idx->images.shape.dim[0];
    if ((labels->dtype != PL_U8 && labels->dtype != PL_I32) || labels->shape.rank != 1)
        return pl_fail(
            err, PL_EFORMAT,
            "%s: labels are whole numbers with 1 axis, these are %s with %d axes",
            idx->labels_file,
            pl_is_integer(labels->dtype) ? "whole" : "not whole",
            labels->shape.rank);
    if (labels->count != images)
        return pl_fail(err, PL_EFORMAT, "%s: record %lld: %lld labels for %lld images",
                       idx->labels_file,
                       (long long)(labels->count < images ? labels->count : images),
                       (long long)labels->count, (long long)images);
    for (int64_t i = 0; i < images; i++)
        if (idx_label(idx, i) != idx->ignore_index
            && (idx_label(idx, i) < 0 || idx_label(idx, i) > PL_LABEL_MAX))
            return pl_fail(err, PL_EFORMAT,
                           "%s: record %lld: the label is %lld; classes are whole "
                           "numbers from 0 to %d, and %lld is ignored (ignore_index)",
                           idx->labels_file, (long long)i, (long long)idx_label(idx, i),
                           PL_LABEL_MAX, (long long)idx->ignore_index);
    return PL_OK;
}

/* The names of MNIST's files, with the prefix. */
typedef struct usual {
    char *images, *labels;
} usual_t;

/* Labels are in the folder of the images, and their names have the same beginning up
 * to the word "images": a folder may have several sets. */
static int idx_load_labels(idx_t *idx, const usual_t *usual, pl_stage_t stage,
                           pl_error_t *err)
{
    const char *file = idx->images_file, *slash = strrchr(file, '/'), *name = slash + 1,
               *word = strstr(name, "images");
    const bool is_usual = !strncmp(name, usual->images, strlen(usual->images));
    const pattern_t named = {.folder = idx->path, .memory = SIZE_MAX};
    if (*idx->labels_name)
        return idx_load_as(&named, idx->labels_name, "", &idx->labels_file, &idx->labels,
                           err);
    char *folder = pl_text("%.*s", slash > file ? (int)(slash - file) : 1, file),
         *begin = word ? pl_text("%.*slabels", (int)(word - name), name) : NULL;
    const pattern_t pattern = {folder,
                               begin,
                               "labels",
                               strstr(name, "idx") ? "idx" : "",
                               names_training(name),
                               names_test(name),
                               SIZE_MAX};
    int code = PL_ENOTFOUND;
    if (!folder || (word && !begin))
        code = pl_no_memory(err);
    else if (word)
        code = idx_load_found(is_usual ? usual->labels : NULL, &pattern,
                              &idx->labels_file, &idx->labels, err);
    if (code == PL_ENOTFOUND && *idx->images_name)
        pl_fail(err, code,
                word ? "%s: there are no labels beside it, in a file whose name begins "
                       "with \"%s\": set \"labels\""
                     : "%s: its labels cannot be found without \"images\" in its name: "
                       "set \"labels\"",
                file, begin);
    else if (code == PL_ENOTFOUND)
        pl_fail(err, code,
                "%s/%s: no such file, neither with .gz nor without, nor another of %s "
                "labels",
                folder, usual->labels, is_of_training(stage) ? "training" : "test");
    pl_text_free(folder);
    pl_text_free(begin);
    return code;
}

/* Labels may be missing if the stage predicts. */
static int idx_load_all(idx_t *idx, pl_stage_t stage, pl_error_t *err)
{
    const char *part = is_of_training(stage) ? "train" : "t10k";
    const usual_t usual = {pl_text("%s%s-images-idx3-ubyte", idx->prefix, part),
                           pl_text("%s%s-labels-idx1-ubyte", idx->prefix, part)};
    pl_error_t why = {0};
    const bool trains = is_of_training(stage);
    const pattern_t pattern = {idx->path,
                               idx->prefix,
                               "images",
                               "idx",
                               trains,
                               !trains,
                               pl_memory_bytes(idx->memory_mb)};
    int code = usual.images && usual.labels ? PL_OK : pl_no_memory(&why);
    if (!code && *idx->images_name) {
        code = idx_load_as(&pattern, idx->images_name, "", &idx->images_file,
                           &idx->images, &why);
    } else if (!code) {
        code = idx_load_found(usual.images, &pattern, &idx->images_file, &idx->images,
                              &why);
        if (code == PL_ENOTFOUND)
            pl_fail(&why, code,
                    "%s/%s: no such file, neither with .gz nor without, nor another of "
                    "%s images",
                    idx->path, usual.images, trains ? "training" : "test");
    }
    if (!code && (idx->images.shape.rank < 2 || idx->images.shape.rank > 4))
        code = pl_fail(&why, PL_EFORMAT, "%s: images have 2, 3 or 4 axes, these have %d",
                       idx->images_file, idx->images.shape.rank);
    else if (!code && idx->images.count == 0)
        code = pl_fail(&why, PL_EFORMAT, "%s: the file has no images", idx->images_file);
    if (!code) {
        code = idx_load_labels(idx, &usual, stage, &why);
        if (code == PL_ENOTFOUND && stage == PL_PREDICT && !*idx->labels_name)
            code = PL_OK;
        else if (!code)
            code = idx_check_labels(idx, &why);
    }
    if (code)
        pl_fail(err, code, "%s", why.text);
    pl_text_free(usual.images);
    pl_text_free(usual.labels);
    return code;
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
    const int64_t samples = idx->images.shape.dim[0];
    const double one = idx->images.dtype == PL_U8 ? 255 : 1;
    const int64_t *dim = idx->images.shape.dim;
    /* Images without channels are [1, rows, columns]. */
    const pl_shape_t shape = idx->images.shape.rank == 3
                                 ? PL_SHAPE(1, dim[1], dim[2])
                                 : pl_dataset_sample_shape(&idx->images.shape);
    const pl_moments_t moments = {one * idx->mean, 1 / (one * idx->std)};
    int64_t smallest = INT64_MAX, largest = -1;
    for (int64_t i = 0; i < idx->labels.count; i++) {
        const int64_t label = idx_label(idx, i);
        if (label == idx->ignore_index)
            continue;
        smallest = label < smallest ? label : smallest;
        largest = label > largest ? label : largest;
    }
    if (idx->labels.count)
        pl_dataset_warn_of_labels(request, idx->labels_file, idx->labels.count, smallest,
                                  largest);
    char *data_info = pl_dataset_data_info(largest + 1, &shape);
    pl_data_info_t found = {.samples = samples,
                            .data_info = pl_moments_add(&data_info, &moments, 1)};
    if (!found.data_info)
        return pl_no_memory(err);
    pl_dataset_field(&found, "x", PL_F32, shape);
    if (idx->labels.count > 0)
        pl_dataset_field(&found, "y", PL_I64, (pl_shape_t){0});
    idx->pixels = (size_t)(idx->images.count / samples);
    idx->scale = (float)(1 / (one * idx->std));
    idx->shift = (float)(-idx->mean / idx->std);
    *info = found;
    return PL_OK;
}

/* Scales pixels [n] as they are in the file. */
static void idx_scale(const idx_t *idx, const void *pixels, size_t n, float *x)
{
    const pl_dtype_t dtype = idx->images.dtype;
    if (dtype == PL_U8)
        pl_convert_u8_f32(pixels, n, idx->scale, idx->shift, x);
    for (size_t k = 0; dtype != PL_U8 && k < n; k++) {
        const double pixel = dtype == PL_I32   ? ((const int32_t *)pixels)[k]
                             : dtype == PL_F32 ? (double)((const float *)pixels)[k]
                                               : ((const double *)pixels)[k];
        x[k] = (float)((pixel - idx->mean) / idx->std);
    }
}

static int idx_read(const void *self, const pl_read_request_t *request,
                    void *const field[], pl_error_t *err)
{
    enum { PIECE = 16384 };                                 /* bytes */
    const idx_t *idx = self;
    const pl_array_t *images = &idx->images;
    const size_t width = pl_array_width(images->dtype), most = PIECE / width;
    uint64_t piece[PIECE / sizeof(uint64_t)];
    int code = PL_OK;
    float *x = field[0];
    for (int i = 0; i < request->count && code == PL_OK; i++, x += idx->pixels) {
        const int64_t from = request->index[i] * (int64_t)idx->pixels;
        if (i + 1 < request->count)
            pl_array_expect(images, request->index[i + 1] * (int64_t)idx->pixels,
                            idx->pixels);
        if (!images->in_file)
            idx_scale(idx, (const char *)images->data + (size_t)from * width, idx->pixels,
                      x);
        for (size_t k = 0; images->in_file && k < idx->pixels && code == PL_OK;
             k += most) {
            const size_t left = idx->pixels - k, n = left < most ? left : most;
            code = pl_array_read(images, idx->images_file, from + (int64_t)k, n,
                                 images->dtype, piece, err);
            if (code == PL_OK)
                idx_scale(idx, piece, n, x + k);
        }
    }
    if (code != PL_OK || idx->labels.count == 0)
        return code;
    int64_t *y = field[1];
    for (int i = 0; i < request->count; i++)
        y[i] = idx_label(idx, request->index[i]);
    return PL_OK;
}

static void idx_close(void *self)
{
    idx_t *idx = self;
    pl_array_release(&idx->images);
    pl_array_release(&idx->labels);
    pl_text_free(idx->images_file);
    pl_text_free(idx->labels_file);
    idx->images_file = idx->labels_file = NULL;
}

const pl_dataset_ops_t pl_idx_dataset = {
    .name = "idx",
    .help = "images and labels in IDX files, such as MNIST",
    .size = sizeof(idx_t),
    .options = idx_options,
    .open = idx_open,
    .read = idx_read,
    .close = idx_close,
};
