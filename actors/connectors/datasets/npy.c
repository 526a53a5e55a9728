/* npy.c - samples in NumPy's .npy files, .npz archives of them, and HDF5 files
 *
 * One file has x, one may have y, and others have further fields; the first axis of all
 * counts samples.  Types that graphs do not compute with are converted on reading: bytes
 * and doubles to float32, whole numbers of y to int64.
 *
 * Samples may differ in length: then they follow one another, and a file of offsets has
 * the begin of each. */
#include "formats/array.h"

#include <string.h>

#include "actors/connectors/datasets/datasets.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "tensor/graph.h"

typedef struct npy_field {
    const char *name, *path;
    pl_array_t array;
    pl_dtype_t dtype;                                       /* after conversion */
    pl_shape_t shape;                                       /* of a sample */
    size_t elements;                                        /* of a sample, or one step */
    bool varies;
} npy_field_t;

typedef struct npy {
    const char *x_path, *y_path, *offsets_path;
    pl_texts_t others;
    int64_t ignore_index, memory_mb;
    int64_t *offset;                                        /* [samples + 1]  [none] */
    npy_field_t field[PL_FIELDS];                           /* x, y, others */
    int fields;
    int64_t samples;
    bool may_be_empty;
} npy_t;

static const pl_option_t npy_options[] = {
    {"x", PL_OPTION_TEXT, offsetof(npy_t, x_path), NULL, NULL,
     ".npy file whose first axis is the samples, or an array of an archive, as "
     "\"FILE.npz:NAME\"; or a data set of HDF5, as \"FILE.h5:/NAME\""},
    {"y", PL_OPTION_TEXT, offsetof(npy_t, y_path), "\"\"", NULL,
     ".npy file of the targets, whose first axis is the samples; \"\": none"},
    {"offsets", PL_OPTION_TEXT, offsetof(npy_t, offsets_path), "\"\"", NULL,
     ".npy file of whole numbers: sample i is [offsets[i], offsets[i + 1]) of the files "
     "whose length is the last offset; y is padded with -1, others with 0"},
    {"fields", PL_OPTION_TEXTS, offsetof(npy_t, others), "{}", NULL,
     ".npy files of further fields by name, such as {\"weight\": \"w.npy\"}"},
    PL_INT(npy_t, ignore_index, "-100", PL_LABELS, PL_IGNORE_HELP),
    PL_MEMORY_MB(npy_t),
    PL_OPTIONS_END,
};

/* Opens FILE.h5:NAME; false: the path is no such one. */
static bool hdf5_open(const char *path, size_t memory, pl_array_t *array, int *code,
                      pl_error_t *err)
{
    static const char *const endings[] = {".h5", ".hdf5"};
    for (size_t k = 0; k < sizeof endings / sizeof *endings; k++) {
        const char *dot = strstr(path, endings[k]);
        const char *end = dot ? dot + strlen(endings[k]) : NULL;
        if (!dot || (*end && *end != ':'))
            continue;
        char *file = pl_text("%.*s", (int)(end - path), path);
        *code = !file ? pl_no_memory(err)
                : *end && end[1]
                    ? pl_hdf5_open(file, end + 1, memory, array, err)
                    : pl_fail(err, PL_EINVAL,
                              "%s: name the data set in it, as in \"%s:/images\"", file,
                              file);
        pl_text_free(file);
        return true;
    }
    return false;
}

/* Opens FILE.npy, FILE.npz:NAME or FILE.h5:NAME. */
static int array_open(const char *path, size_t memory, pl_array_t *array, pl_error_t *err)
{
    const char *dot = strstr(path, ".npz");
    int found;
    if (hdf5_open(path, memory, array, &found, err))
        return found;
    if (!dot || (dot[4] && dot[4] != ':'))
        return pl_npy_open(path, memory, array, err);
    char *file = pl_text("%.*s", (int)(dot + 4 - path), path);
    const int code = file ? pl_npz_open(file, dot[4] ? dot + 5 : "", memory, array, err)
                          : pl_no_memory(err);
    pl_text_free(file);
    return code;
}

/* Opens one file as the next field. */
static int npy_add(npy_t *npy, const char *name, const char *path, pl_error_t *err)
{
    const size_t name_max = sizeof(((pl_field_t *)0)->name) - 1;
    for (int i = 0; i < npy->fields; i++)
        if (!strcmp(npy->field[i].name, name))
            return pl_fail(err, PL_EINVAL, "fields: \"%.40s\" already exists", name);
    if (npy->fields == PL_FIELDS || !*name || strlen(name) > name_max)
        return pl_fail(
            err, PL_EINVAL,
            "fields: at most %d in all, with names of 1 to %zu bytes; this one "
            "is \"%.40s\"",
            PL_FIELDS, name_max, name);
    npy_field_t *field = &npy->field[npy->fields];
    field->name = name;
    field->path = path;
    int code = array_open(path, pl_memory_bytes(npy->memory_mb), &field->array, err);
    if (code)
        return code;
    const bool target = !strcmp(name, "y"), first = npy->fields == 0 && !npy->offset;
    npy->fields++;
    const pl_array_t *array = &field->array;
    if (array->shape.rank == 0)
        return pl_fail(err, PL_EFORMAT,
                       "%s: it is one number without axes; the first axis must count the "
                       "samples",
                       path);
    if (array->shape.dim[0] == 0 && !npy->may_be_empty)
        return pl_fail(err, PL_EFORMAT,
                       "%s: there are no samples, because the first axis is empty", path);
    field->varies = npy->offset && array->shape.dim[0] == npy->offset[npy->samples];
    if (!first && !field->varies && array->shape.dim[0] != npy->samples)
        return pl_fail(err, PL_EFORMAT, "%s: %lld samples, but %s has %lld", path,
                       (long long)array->shape.dim[0],
                       npy->offset ? npy->offsets_path : npy->x_path,
                       (long long)npy->samples);
    npy->samples = first ? array->shape.dim[0] : npy->samples;
    field->shape = pl_dataset_sample_shape(&array->shape);
    field->elements = (size_t)pl_elements(field->shape);
    bool keep = array->dtype == PL_I32 || array->dtype == PL_I64;
    field->dtype = target && pl_is_integer(array->dtype) ? PL_I64
                   : keep                           ? array->dtype
                                                    : PL_F32;
    return PL_OK;
}

/* Offsets begin with 0, and each sample has at least one step. */
static int npy_load_offsets(npy_t *npy, pl_error_t *err)
{
    pl_array_t array = {0};
    int code = array_open(npy->offsets_path, SIZE_MAX, &array, err);
    if (code)
        return code;
    if (!pl_is_integer(array.dtype) || array.shape.rank != 1 || array.count < 2)
        code = pl_fail(err, PL_EFORMAT,
                       "%s: offsets are whole numbers [samples + 1], with at least one "
                       "sample",
                       npy->offsets_path);
    if (!code && !(npy->offset = pl_alloc_array((size_t)array.count, sizeof(int64_t))))
        code = pl_no_memory(err);
    if (!code) {
        pl_convert(array.dtype, array.data, PL_I64, npy->offset, (size_t)array.count);
        npy->samples = array.count - 1;
    }
    pl_array_release(&array);
    if (!code && npy->offset[0] != 0)
        code = pl_fail(err, PL_EFORMAT, "%s: the first offset is %lld; it must be 0",
                       npy->offsets_path, (long long)npy->offset[0]);
    for (int64_t i = 0; !code && i < npy->samples; i++)
        if (npy->offset[i] >= npy->offset[i + 1])
            code = pl_fail(err, PL_EFORMAT,
                           "%s: offset %lld is %lld, not above the %lld before it",
                           npy->offsets_path, (long long)i + 1,
                           (long long)npy->offset[i + 1], (long long)npy->offset[i]);
    return code;
}

/* One more than the largest label; 0 if targets are not whole numbers.  *labels: how many
 * a sample has that are 0 or 1 each  [0: none]. */
static int npy_classes(const npy_t *npy, const pl_data_request_t *request,
                       int64_t *classes, int64_t *labels, pl_error_t *err)
{
    enum { PIECE = 1024 };
    const pl_array_t *y = &npy->field[1].array;
    int64_t largest = -1, smallest = INT64_MAX, piece[PIECE];
    bool are_labels = y->shape.rank == 2 && y->shape.dim[1] > 1 && !npy->field[1].varies;
    *classes = *labels = 0;
    if (npy->fields < 2 || strcmp(npy->field[1].name, "y") || !pl_is_integer(y->dtype))
        return PL_OK;
    for (int64_t i = 0; i < y->count; i++) {
        const int64_t left = y->count - i;
        if (i % PIECE == 0
            && pl_array_read(y, npy->y_path, i, (size_t)(left < PIECE ? left : PIECE),
                             PL_I64, piece, err)
                   != PL_OK)
            return err->code;
        const int64_t value = piece[i % PIECE];
        are_labels = are_labels && value >= 0 && value <= 1;
        if (value == npy->ignore_index)
            continue;
        largest = value > largest ? value : largest;
        smallest = value < smallest ? value : smallest;
        if (value > PL_LABEL_MAX)
            return pl_fail(err, PL_EFORMAT,
                           "%s: element %lld is %lld, but the largest possible label is "
                           "%d: number the classes from 0, or give values as floats",
                           npy->y_path, (long long)i, (long long)value, PL_LABEL_MAX);
    }
    if (!request->data_info && y->shape.rank == 1 && !npy->field[1].varies)
        pl_dataset_warn_of_labels(request, npy->y_path, y->count, smallest, largest);
    *classes = largest + 1;
    *labels = are_labels ? y->shape.dim[1] : 0;
    return PL_OK;
}

static int npy_values(const void *user, int64_t first, size_t count, float *value,
                      pl_error_t *err)
{
    const npy_field_t *y = user;
    return pl_array_read(&y->array, y->path, first, count, PL_F32, value, err);
}

static int npy_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                    pl_error_t *err)
{
    npy_t *npy = self;
    npy->may_be_empty = pl_may_be_empty(request->stage) && !*npy->offsets_path;
    int code = *npy->offsets_path ? npy_load_offsets(npy, err) : PL_OK;
    if (!code)
        code = npy_add(npy, "x", npy->x_path, err);
    if (!code && *npy->y_path)
        code = npy_add(npy, "y", npy->y_path, err);
    for (int i = 0; i < npy->others.count && !code; i++)
        code = npy_add(npy, npy->others.name[i], npy->others.text[i], err);
    if (code)
        return code;
    pl_data_info_t found = {.same_samples = true, .samples = npy->samples};
    int64_t classes, labels;
    if (npy_classes(npy, request, &classes, &labels, err) != PL_OK)
        return err->code;
    found.data_info = pl_dataset_data_info(classes, &npy->field[0].shape);
    char *count = labels ? pl_text("%lld", (long long)labels) : NULL;
    if (labels)
        found.data_info = pl_data_info_add(&found.data_info, "labels", &count);
    if (!found.data_info)
        return pl_no_memory(err);
    const npy_field_t *y = &npy->field[1];
    const pl_values_t values = {npy->samples, (int64_t)y->elements, npy_values, y};
    if (npy->fields > 1 && !strcmp(y->name, "y") && y->dtype == PL_F32 && !y->varies
        && y->shape.rank <= 1)
        code = pl_dataset_scale_add(request, &values, &found.data_info, err);
    if (code) {
        pl_text_free(found.data_info);
        return code;
    }
    for (int i = 0; i < npy->fields; i++) {
        const npy_field_t *field = &npy->field[i];
        pl_shape_t shape = field->shape;
        if (field->varies) {
            memmove(shape.dim + 1, shape.dim, (size_t)shape.rank++ * sizeof *shape.dim);
            shape.dim[0] = PL_VARIES;
        }
        found.padding[found.field_count] = strcmp(field->name, "y") ? 0 : -1;
        pl_dataset_field(&found, field->name, field->dtype, shape);
    }
    *info = found;
    return PL_OK;
}

static int npy_read(const void *self, const pl_read_request_t *request,
                    void *const field[], pl_error_t *err)
{
    const npy_t *npy = self;
    int code = PL_OK;
    for (int k = 0; k < npy->fields; k++) {
        const npy_field_t *one = &npy->field[k];
        char *out = field[k];
        const size_t to = one->elements * pl_array_width(one->dtype);
        for (int i = 0; i < request->count && code == PL_OK; i++) {
            int64_t at = request->index[i], steps = 1, apart = 1;
            if (one->varies) {
                steps = npy->offset[at + 1] - npy->offset[at];
                at = npy->offset[at];
                apart = request->length;
            } else if (i + 1 < request->count) {
                pl_array_expect(&one->array,
                                request->index[i + 1] * (int64_t)one->elements,
                                one->elements);
            }
            code = pl_array_read(&one->array, one->path, at * (int64_t)one->elements,
                                 one->elements * (size_t)steps, one->dtype,
                                 out + (size_t)(i * apart) * to, err);
        }
    }
    return code;
}

static int64_t npy_length(const void *self, int64_t index)
{
    const npy_t *npy = self;
    return npy->offset[index + 1] - npy->offset[index];
}

static void npy_close(void *self)
{
    npy_t *npy = self;
    for (int i = 0; i < PL_FIELDS; i++)
        pl_array_release(&npy->field[i].array);
    pl_free(npy->offset);
    npy->offset = NULL;
}

const pl_dataset_ops_t pl_npy_dataset = {
    .name = "npy",
    .help = "samples in NumPy .npy and .npz files, and in HDF5 files",
    .size = sizeof(npy_t),
    .options = npy_options,
    .open = npy_open,
    .read = npy_read,
    .close = npy_close,
    .length = npy_length,
};
