/* propose_pictures.c - a run for a folder of pictures: sizes, stages, model
 *
 * A convolutional network with residual connections learns small sets of pictures in a
 * few minutes on a CPU.  The side of its input grows with the pictures, but not beyond
 * 96 pixels, where a step still takes a fraction of a second. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/connectors/datasets/pictures.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"

enum { LOOKED_AT = 64, STEPS = 3000, SIDE_LARGE = 96 };

/* What the pictures of a folder have in common. */
typedef struct look {
    int64_t pictures, classes;
    int side; /* median of the shorter sides */
    bool same_size, grey;
    bool signs;      /* each class is called by one character */
    const char *val; /* folder beside train/  [none] */
    bool test;       /* train/ and test/ */
} look_t;

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static bool is_grey(const pl_picture_t *picture)
{
    const size_t pixels = (size_t)picture->width * (size_t)picture->height;
    for (size_t k = 0; k < pixels; k++) {
        const uint8_t *pixel = picture->pixel + 3 * k;
        if (pixel[0] != pixel[1] || pixel[1] != pixel[2])
            return false;
    }
    return true;
}

/* Reads pictures at even distances; their headers are enough once one has colours. */
static int look_at_pictures(const pl_picture_list_t *list, look_t *look, pl_error_t *err)
{
    const int count = list->count < LOOKED_AT ? (int)list->count : LOOKED_AT;
    int side[LOOKED_AT], width = 0, height = 0, code = PL_OK;
    pl_picture_work_t work = {0};
    look->same_size = look->grey = true;
    for (int k = 0; k < count && !code; k++) {
        const char *path = list->path[list->count * k / count];
        pl_file_bytes_t bytes = {0};
        pl_picture_header_t header = {0};
        code = pl_file_read(path, pl_file_limit(), &bytes, err);
        if (!code)
            code = pl_picture_header(bytes.data, bytes.size, path, &header, err);
        if (!code && look->grey && (int64_t)header.width * header.height < 1 << 26) {
            code = pl_picture_decode(bytes.data, bytes.size, path, &header, 1,
                                     &work.picture, &work.spare, err);
            look->grey = !code && is_grey(&work.picture);
        }
        pl_file_bytes_release(&bytes);
        look->same_size = look->same_size
                          && (k == 0
                              || (header.width == width && header.height == height));
        width = header.width;
        height = header.height;
        side[k] = width < height ? width : height;
    }
    pl_picture_work_release(&work);
    if (!code) {
        qsort(side, (size_t)count, sizeof *side, by_number);
        look->side = side[count / 2];
    }
    return code;
}

static PL_PRINTF(3, 4) void give_reason(json_t **reasons, const char *key,
                                        const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *reasons = pl_json_append(*reasons,
                              json_pack("{s:s, s:s}", "key", key, "text", text));
}

/* The stages, and the side of the picture behind them. */
static json_t *propose_stages(const look_t *look, int *side, json_t **reasons)
{
    const char *key = look->val ? "data.train" : "data.stages";
    char first[48];
    const bool small = look->side <= 48;
    json_t *stages = json_array();
    *side = small ? (look->side + 7) / 8 * 8 : look->side < 128 ? 64 : SIDE_LARGE;
    if (small && !look->same_size) {
        snprintf(first, sizeof first, "resize %dx%d", *side, *side);
        stages = pl_json_append(stages, json_string(first));
    }
    if (small)
        snprintf(first, sizeof first, "random_crop %d padding=%d", *side, *side / 8);
    else
        snprintf(first, sizeof first, "random_resized_crop %d scale=0.35", *side);
    stages = pl_json_append(stages, json_string(first));
    if (!look->signs)
        stages = pl_json_append(stages, json_string("flip"));
    if (!look->grey && !small)
        stages = pl_json_append(stages, json_string("color 0.2 0.2 0.2"));
    stages = pl_json_append(stages, json_string("normalize half"));
    give_reason(reasons, key,
                "The shorter side of most pictures has %d pixels; the network gets %d x "
                "%d.",
                look->side, *side, *side);
    give_reason(reasons, key,
                look->signs ? "Each epoch sees other parts of them; they are not "
                              "mirrored, because classes of one character look like "
                              "letters or digits."
                            : "Each epoch sees other parts of them, and mirrored ones: "
                              "so few pictures teach more.");
    return stages;
}

static json_t *propose_layers(int side)
{
    static const char block[] =
        "[\"conv %d 3 same\", \"batch_norm\", \"relu\", \"pool 2\", {\"residual\": "
        "[\"conv %d 3 same\", \"batch_norm\", \"relu\", \"conv %d 3 same\", "
        "\"batch_norm\"]}, \"relu\"]";
    json_t *layers = json_array();
    if (side >= 64) { /* few channels while there is space */
        layers = pl_json_append(layers, json_string("conv 16 3 same stride=2"));
        layers = pl_json_append(layers, json_string("batch_norm"));
        layers = pl_json_append(layers, json_string("relu"));
    }
    for (int width = 32; width <= 128; width *= 2) {
        char text[300];
        snprintf(text, sizeof text, block, width, width, width);
        json_t *more = json_loads(text, 0, NULL);
        if (!more || json_array_extend(layers, more) != 0) {
            json_decref(layers);
            layers = NULL;
        }
        json_decref(more);
    }
    layers = pl_json_append(layers, json_string("global_pool"));
    layers = pl_json_append(layers, json_string("dropout 0.2"));
    return pl_json_append(layers, json_string("linear auto"));
}

/* One source of pictures. */
static json_t *source_of(const char *path, const char *part, const look_t *look,
                         const json_t *stages)
{
    char *folder = pl_text("%s%s%s", path, part ? "/" : "", part ? part : "");
    json_t *source = json_pack("{s:s, s:s, s:i, s:O}", "name", "pictures", "path",
                               folder ? folder : "", "channels", look->grey ? 1 : 3,
                               "stages", stages);
    pl_text_free(folder);
    return source;
}

static json_t *propose_run(const char *path, const look_t *look, json_t **reasons)
{
    int side;
    json_t *stages = propose_stages(look, &side, reasons), *data;
    const int batch = look->pictures < 500    ? 16
                      : look->pictures < 2000 ? 32
                                              : 64;
    const int64_t train = look->val ? look->pictures : look->pictures * 4 / 5,
                  steps = (train + batch - 1) / batch;
    int64_t epochs = STEPS / (steps ? steps : 1);
    epochs = epochs > 40 ? 40 : epochs < 5 ? 5 : epochs;
    if (look->val) {
        data = json_pack("{s:o, s:o, s:o*}", "train",
                         source_of(path, "train", look, stages), "val",
                         source_of(path, look->val, look, stages), "test",
                         look->test ? source_of(path, "test", look, stages) : NULL);
        give_reason(reasons, "data.train", "The folders train%s %s%s were found.",
                    look->test ? "," : " and", look->val, look->test ? " and test" : "");
    } else {
        data = source_of(path, NULL, look, stages);
        if (data)
            json_object_set_new(data, "val_split", json_real(0.2));
        give_reason(reasons, "data.val_split",
                    "A fifth of the %lld pictures is for validation%s.",
                    (long long)look->pictures,
                    look->test ? "; those in the folder test are for paceline test" : "");
    }
    json_decref(stages);
    if (data) {
        json_object_set_new(data, "batch_size", json_integer(batch));
        json_object_set_new(data, "workers", json_integer(2));
    }
    give_reason(reasons, "data.workers",
                "Two threads decode pictures while the network computes.");
    give_reason(reasons, look->val ? "data.train" : "data.channels",
                look->grey ? "The pictures are grey." : "The pictures have colours.");
    give_reason(reasons, "module.layers",
                "A convolutional network with residual connections; it halves the "
                "picture at each pool.");
    give_reason(reasons, "trainer.max_epochs", "%lld steps of %d pictures are an epoch.",
                (long long)steps, batch);
    return json_pack("{s:o, s:{s:s, s:o}, s:{s:s, s:f, s:f}, s:{s:s}, s:{s:I}}", "data",
                     data, "module", "name", "layers", "layers", propose_layers(side),
                     "optimizer", "name", "adamw", "lr", 0.002, "weight_decay", 0.05,
                     "scheduler", "name", "cosine", "trainer", "max_epochs",
                     (json_int_t)epochs);
}

static bool has_folder(const char *path, const char *name)
{
    char *folder = pl_text("%s/%s", path, name);
    struct stat status;
    const bool found = folder && stat(folder, &status) == 0 && S_ISDIR(status.st_mode);
    pl_text_free(folder);
    return found;
}

int pl_pictures_propose(const char *path, json_t **run, json_t **reasons, pl_error_t *err)
{
    static const char *const vals[] = {"val", "valid", "validation"};
    const bool has_train = has_folder(path, "train");
    char *root = pl_text("%s%s", path, has_train ? "/train" : "");
    const pl_picture_source_t source = {.path = root ? root : "",
                                        .file = "",
                                        .label = ""};
    pl_picture_list_t list = {0};
    look_t look = {.signs = true};
    int code = root ? pl_pictures_find(&source, &list, err) : pl_no_memory(err);
    for (size_t k = 0; has_train && k < sizeof vals / sizeof *vals && !look.val; k++)
        look.val = has_folder(path, vals[k]) ? vals[k] : NULL;
    look.test = has_train && has_folder(path, "test");
    size_t k;
    json_t *name;
    json_array_foreach(list.class_names, k, name)
        look.signs = look.signs && json_string_length(name) == 1;
    look.pictures = list.count;
    look.classes = (int64_t)json_array_size(list.class_names);
    if (!code && look.classes < 2)
        code = pl_fail(err, PL_EFORMAT,
                       "%s has one folder of pictures; a class to learn needs another "
                       "one beside it",
                       root);
    if (!code)
        code = look_at_pictures(&list, &look, err);
    if (!code) {
        give_reason(reasons, look.val ? "data.train" : "data.name",
                    "%lld pictures of %lld classes, which are folders.",
                    (long long)look.pictures, (long long)look.classes);
        json_decref(*run);
        *run = propose_run(path, &look, reasons);
    }
    pl_pictures_release(&list);
    pl_text_free(root);
    return code;
}
