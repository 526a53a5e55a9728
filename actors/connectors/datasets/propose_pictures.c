/* propose_pictures.c - a run for a folder of pictures: sizes, stages, model
 *
 * A convolutional network with residual connections learns small sets of pictures in a
 * few minutes on a CPU.  The side of its input grows with the pictures, but not beyond
 * 96 pixels, where a step still takes a fraction of a second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/connectors/datasets/pictures.h"
#include "actors/connectors/datasets/propose_parts.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"

enum { LOOKED_AT = 64, SIDE_LARGE = 96 };

/* What the pictures of a folder have in common. */
typedef struct look {
    int side;                                            /* median of the shorter sides */
    bool same_size, grey;
    bool signs;                                /* each class is called by one character */
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
static int look_at_pictures(const pl_file_list_t *list, look_t *look, pl_error_t *err)
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

/* The stages, and the side of the picture behind them. */
static json_t *propose_stages(proposal_t *p, const class_folder_t *folder,
                              const look_t *look, int *side)
{
    const char *key = PROPOSE_SOURCE_KEY(folder, "stages");
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
    propose_reason(
        p, key,
        "The shorter side of most pictures has %d pixels; the network gets %d x "
        "%d.",
        look->side, *side, *side);
    propose_reason(p, key,
                   look->signs
                       ? "Each epoch sees other parts of them; they are not "
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
    if (side >= 64) {                              /* few channels while there is space */
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

int propose_pictures(proposal_t *p, const class_folder_t *folder, pl_error_t *err)
{
    look_t look = {.signs = true};
    size_t k;
    json_t *name;
    int side;
    json_array_foreach(folder->list.class_names, k, name)
        look.signs = look.signs && json_string_length(name) == 1;
    const int code = look_at_pictures(&folder->list, &look, err);
    if (code)
        return code;
    json_t *stages = propose_stages(p, folder, &look, &side);
    propose_reason(p, PROPOSE_SOURCE_KEY(folder, "channels"),
                   look.grey ? "The pictures are grey." : "The pictures have colours.");
    propose_class_folder(p, folder, &pl_picture_files,
                         json_pack("{s:s, s:i, s:o}", "name", "pictures", "channels",
                                   look.grey ? 1 : 3, "stages", stages));
    propose_set(p, "module",
                json_pack("{s:s, s:o}", "name", "layers", "layers",
                          propose_layers(side)));
    propose_reason(p, "module.layers",
                   "A convolutional network with residual connections; it halves the "
                   "picture at each pool.");
    return PL_OK;
}
