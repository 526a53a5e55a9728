/* picture_stages.c - what a picture passes between its file and a batch
 *
 * Every random number is a function of (seed, epoch, sample, stage), so that a resumed
 * run sees the same pictures.  Pictures stay bytes up to the end: a stage reads them
 * faster than floats, and what is left to do then is one table of 256 values a channel.
 *
 * Random resized crops: Szegedy et al., 2015.  Cut-out: DeVries and Taylor, 2017. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/connectors/datasets/picture_pixels.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/random.h"
#include "formats/table.h"

typedef enum stage_kind {
    STAGE_RESIZE,
    STAGE_CENTER_CROP,
    STAGE_RANDOM_CROP,
    STAGE_RANDOM_RESIZED_CROP,
    STAGE_FLIP,
    STAGE_FLIP_VERTICAL,
    STAGE_ROTATE,
    STAGE_COLOR,
    STAGE_CUTOUT,
    STAGE_NORMALIZE,
    STAGE_MIXUP,
} stage_kind_t;

typedef struct stage_number {
    const char *name;
    double fallback, from, to;
} stage_number_t;

static const struct {
    const char *name;
    bool has_size;
    stage_number_t number[PL_STAGE_NUMBERS];
} rules[] = {
    [STAGE_RESIZE] = {"resize", true, {{0}}},
    [STAGE_CENTER_CROP] = {"center_crop", true, {{0}}},
    [STAGE_RANDOM_CROP] = {"random_crop", true, {{"padding", 0, 0, 4096}}},
    [STAGE_RANDOM_RESIZED_CROP] = {"random_resized_crop",
                                   true,
                                   {{"scale", 0.08, 0.001, 1}, {"ratio", 0.75, 0.1, 1}}},
    [STAGE_FLIP] = {"flip", false, {{"p", 0.5, 0, 1}}},
    [STAGE_FLIP_VERTICAL] = {"flip_vertical", false, {{"p", 0.5, 0, 1}}},
    [STAGE_ROTATE] = {"rotate", false, {{"degrees", 15, 0, 180}}},
    [STAGE_COLOR] = {"color",
                     false,
                     {{"brightness", 0.2, 0, 1},
                      {"contrast", 0.2, 0, 1},
                      {"saturation", 0.2, 0, 1},
                      {"hue", 0, 0, 0.5}}},
    [STAGE_CUTOUT] = {"cutout", true, {{"p", 1, 0, 1}, {"value", 0, 0, 1}}},
    [STAGE_NORMALIZE] = {"normalize", false, {{0}}},
    [STAGE_MIXUP] = {"mixup", false, {{"alpha", 0.2, 0.001, 100}}},
};

enum { RULES = sizeof rules / sizeof *rules, SIDE_MAX = 16384 };

static const struct {
    const char *name;
    double mean[3], std[3];
} presets[] = {
    {"imagenet", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
    {"cifar10", {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}},
    {"half", {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
};

/* ---- Reading ---- */

/* "224" or "HEIGHTxWIDTH". */
static bool read_size(const char *word, pl_picture_stage_t *stage)
{
    char *end;
    const long first = strtol(word, &end, 10);
    const long second = *end == 'x' ? strtol(end + 1, &end, 10) : 0;
    stage->height = second ? (int)first : 0;
    stage->width = second ? (int)second : (int)first;
    return *end == '\0' && end > word && first > 0 && first <= SIDE_MAX && second >= 0
           && second <= SIDE_MAX;
}

/* "0.5,0.4,0.3", or one number for all channels. */
static bool read_channels(const char *word, double channel[3])
{
    int count = 0;
    for (size_t length; count < 3; count++, word += length + 1) {
        length = strcspn(word, ",");
        if (!pl_number(word, length, '.', &channel[count]))
            return false;
        if (!word[length])
            break;
    }
    if (count == 0)
        channel[1] = channel[2] = channel[0];
    return count == 0 || count == 2;
}

static int normalize_read(pl_picture_stages_t *stages, char *rest, pl_error_t *err)
{
    bool known = false;
    for (char *word, *at = rest; (word = strsep(&at, " "));) {
        for (size_t k = 0; k < sizeof presets / sizeof *presets; k++)
            if (!strcmp(word, presets[k].name)) {
                memcpy(stages->mean, presets[k].mean, sizeof stages->mean);
                memcpy(stages->std, presets[k].std, sizeof stages->std);
                known = true;
            }
        if (!strncmp(word, "mean=", 5) && read_channels(word + 5, stages->mean))
            known = true;
        else if (!strncmp(word, "std=", 4) && read_channels(word + 4, stages->std))
            known = true;
        else if (!known)
            break;
    }
    stages->normalizes = true;
    if (!known || !(stages->std[0] > 0 && stages->std[1] > 0 && stages->std[2] > 0))
        return pl_fail(err, PL_EINVAL,
                       "normalize takes imagenet, cifar10, half, or numbers as "
                       "\"mean=0.5,0.4,0.3 std=0.2,0.2,0.2\", with std above 0");
    return PL_OK;
}

/* The words behind the name: a size, numbers in order, numbers by name. */
static int arguments_read(pl_picture_stage_t *stage, char *rest, pl_error_t *err)
{
    const stage_number_t *number = rules[stage->kind].number;
    const char *name = rules[stage->kind].name;
    bool lacks_size = rules[stage->kind].has_size;
    int next = 0;
    for (int k = 0; k < PL_STAGE_NUMBERS; k++)
        stage->number[k] = number[k].fallback;
    for (char *word; (word = strsep(&rest, " "));) {
        if (!*word)
            continue;
        if (lacks_size) {
            if (!read_size(word, stage))
                return pl_fail(err, PL_EINVAL,
                               "%s: \"%.30s\" is no size: give pixels as \"224\" or "
                               "\"HEIGHTxWIDTH\", from 1 to %d",
                               name, word, SIDE_MAX);
            lacks_size = false;
            continue;
        }
        char *equals = strchr(word, '=');
        const char *value = equals ? equals + 1 : word;
        int k = next;
        for (k = equals ? 0 : next; equals && k < PL_STAGE_NUMBERS && number[k].name; k++)
            if (strlen(number[k].name) == (size_t)(equals - word)
                && !strncmp(number[k].name, word, (size_t)(equals - word)))
                break;
        if (k >= PL_STAGE_NUMBERS || !number[k].name)
            return pl_fail(err, PL_EINVAL, "%s: \"%.30s\" is no argument of it", name,
                           word);
        if (!pl_number(value, strlen(value), '.', &stage->number[k])
            || stage->number[k] < number[k].from || stage->number[k] > number[k].to)
            return pl_fail(err, PL_EINVAL, "%s: %s is \"%.30s\"; it must be %g to %g",
                           name, number[k].name, value, number[k].from, number[k].to);
        next = k + 1;
    }
    return lacks_size ? pl_fail(err, PL_EINVAL, "%s: a size is missing, as in \"%s 224\"",
                                name, name)
                      : PL_OK;
}

static int stage_read(pl_picture_stages_t *stages, const char *text, pl_error_t *err)
{
    char words[200];
    if (!text || strlen(text) >= sizeof words)
        return pl_fail(err, PL_EINVAL, "a stage is a text, such as \"center_crop 224\"");
    strcpy(words, text);
    char *rest = words, *name = strsep(&rest, " ");
    int kind = 0;
    while (kind < RULES && strcmp(rules[kind].name, name))
        kind++;
    if (kind == RULES)
        return pl_fail(err, PL_EINVAL,
                       "there is no stage \"%.40s\"; there are resize, center_crop, "
                       "random_crop, random_resized_crop, flip, flip_vertical, rotate, "
                       "color, cutout, normalize and mixup",
                       name);
    if (stages->mixup > 0 || (stages->normalizes && kind != STAGE_MIXUP))
        return pl_fail(err, PL_EINVAL,
                       "%s comes too late: normalize and mixup are the last stages, in "
                       "this order",
                       rules[kind].name);
    if (kind == STAGE_NORMALIZE)
        return normalize_read(stages, rest ? rest : name + strlen(name), err);
    if (stages->count == PL_PICTURE_STAGES)
        return pl_fail(err, PL_EINVAL, "there are more than %d stages",
                       PL_PICTURE_STAGES);
    pl_picture_stage_t *stage = &stages->stage[stages->count];
    stage->kind = kind;
    const int code = arguments_read(stage, rest, err);
    if (!code && kind == STAGE_MIXUP)
        stages->mixup = stage->number[0];
    else if (!code)
        stages->count++;
    return code;
}

int pl_picture_stages_read(pl_picture_stages_t *stages, const char *json, int *place,
                           pl_error_t *err)
{
    *stages = (pl_picture_stages_t){.std = {1, 1, 1}};
    json_t *list = pl_json_value(json, strlen(json), err);
    int code = list ? PL_OK : err ? err->code : PL_EINVAL;
    *place = -1;
    if (list && !json_is_array(list))
        code = pl_fail(err, PL_EINVAL, "it is a list of texts, such as [\"resize 64\"]");
    for (size_t k = 0; !code && k < json_array_size(list); k++) {
        *place = (int)k;
        code = stage_read(stages, json_string_value(json_array_get(list, k)), err);
    }
    json_decref(list);
    return code;
}

/* ---- Sizes ---- */

static double uniform(const pl_picture_draw_t *draw, int stage, int which)
{
    return pl_random_uniform(pl_mix(draw->key, (uint64_t)stage), (uint64_t)which);
}

static int height_of(const pl_picture_stage_t *stage)
{
    return stage->height ? stage->height : stage->width;
}

/* A side in proportion; at most what no limit of pixels allows. */
static int in_proportion(int side, int longer, int shorter)
{
    return (int)lround(fmin((double)longer * side / shorter, INT32_MAX));
}

/* The size that a resize gives; one number is the length of the shorter side. */
static void resized(const pl_picture_stage_t *stage, int width, int height, int *to_width,
                    int *to_height)
{
    const int side = stage->width;
    *to_width = stage->height     ? side
                : width <= height ? side
                                  : in_proportion(side, width, height);
    *to_height = stage->height     ? stage->height
                 : height <= width ? side
                                   : in_proportion(side, height, width);
}

double pl_picture_stages_pixels(const pl_picture_stages_t *stages, int width, int height)
{
    double most = (double)width * height;
    for (int k = 0; k < stages->count; k++)
        if (stages->stage[k].kind == STAGE_RESIZE) {
            resized(&stages->stage[k], width, height, &width, &height);
            most = fmax(most, (double)width * height);
        } else if (rules[stages->stage[k].kind].has_size
                   && stages->stage[k].kind != STAGE_CUTOUT) {
            width = stages->stage[k].width;
            height = height_of(&stages->stage[k]);
        }
    return most;
}

bool pl_picture_stages_size(const pl_picture_stages_t *stages, int *width, int *height)
{
    bool is_same = false;
    for (int k = 0; k < stages->count; k++) {
        const pl_picture_stage_t *stage = &stages->stage[k];
        if (stage->kind == STAGE_RESIZE) {
            resized(stage, *width, *height, width, height);
            is_same = is_same || stage->height;
        } else if (rules[stage->kind].has_size && stage->kind != STAGE_CUTOUT) {
            *width = stage->width;
            *height = height_of(stage);
            is_same = true;
        }
    }
    return is_same;
}

/* The part of a picture that its first stage resizes.  A random resized crop without
 * randomness has the middle, 7/8 of the largest part with its proportions. */
static pl_picture_box_t first_box(const pl_picture_stage_t *stage,
                                  const pl_picture_draw_t *draw, int index, int width,
                                  int height)
{
    pl_picture_box_t box = {0, 0, width, height};
    if (stage->kind != STAGE_RANDOM_RESIZED_CROP)
        return box;
    const double wanted = (double)stage->width / height_of(stage);
    for (int attempt = 0; draw->is_random && attempt < 10; attempt++) {
        const double least = stage->number[0], narrow = log(stage->number[1]);
        const double area = (least + (1 - least) * uniform(draw, index, 4 * attempt))
                            * width * height;
        const double ratio =
            wanted * exp(narrow - 2 * narrow * uniform(draw, index, 4 * attempt + 1));
        const double w = round(sqrt(area * ratio)), h = round(sqrt(area / ratio));
        if (w < 1 || h < 1 || w > width || h > height)
            continue;
        return (pl_picture_box_t){
            floor(uniform(draw, index, 4 * attempt + 2) * (width - w + 1)),
            floor(uniform(draw, index, 4 * attempt + 3) * (height - h + 1)), w, h};
    }
    box.width = fmin(width, height * wanted) * (draw->is_random ? 1 : 0.875);
    box.height = box.width / wanted;
    box.x = (width - box.width) / 2;
    box.y = (height - box.height) / 2;
    return box;
}

int pl_picture_stages_shrink(const pl_picture_stages_t *stages,
                             const pl_picture_draw_t *draw, int width, int height)
{
    const pl_picture_stage_t *first = stages->stage;
    int to_width, to_height, shrink = 1;
    if (stages->count == 0
        || (first->kind != STAGE_RESIZE && first->kind != STAGE_RANDOM_RESIZED_CROP))
        return 1;
    const pl_picture_box_t box = first_box(first, draw, 0, width, height);
    if (first->kind == STAGE_RESIZE) {
        resized(first, width, height, &to_width, &to_height);
    } else {
        to_width = first->width;
        to_height = height_of(first);
    }
    while (shrink < 8 && box.width >= 2.0 * shrink * to_width
           && box.height >= 2.0 * shrink * to_height)
        shrink *= 2;
    return shrink;
}

/* ---- Running ---- */

/* One stage of the picture, which is `shrunk` from width x height pixels if it is the
 * first. */
static int stage_run(const pl_picture_stage_t *stage, const pl_picture_draw_t *draw,
                     int index, int width, int height, pl_picture_work_t *work,
                     pl_error_t *err)
{
    pl_picture_t *picture = &work->picture;
    const int to_height = height_of(stage);
    int w = stage->width, h = to_height;
    switch ((stage_kind_t)stage->kind) {
    case STAGE_RESIZE:
    case STAGE_RANDOM_RESIZED_CROP: {
        pl_picture_box_t box = first_box(stage, draw, index, width, height);
        const double fx = (double)picture->width / width,
                     fy = (double)picture->height / height;
        if (stage->kind == STAGE_RESIZE)
            resized(stage, width, height, &w, &h);
        box = (pl_picture_box_t){box.x * fx, box.y * fy, box.width * fx, box.height * fy};
        return pl_picture_resize(work, box, w, h, err);
    }
    case STAGE_CENTER_CROP:
    case STAGE_RANDOM_CROP: {
        const int padding = draw->is_random ? (int)stage->number[0] : 0;
        int x = (picture->width - w) / 2, y = (picture->height - h) / 2;
        const int more_x = picture->width + 2 * padding - w,
                  more_y = picture->height + 2 * padding - h;
        if (stage->kind == STAGE_RANDOM_CROP && draw->is_random && more_x > 0)
            x = (int)(uniform(draw, index, 0) * (more_x + 1)) - padding;
        if (stage->kind == STAGE_RANDOM_CROP && draw->is_random && more_y > 0)
            y = (int)(uniform(draw, index, 1) * (more_y + 1)) - padding;
        return pl_picture_crop(work, x, y, w, h, err);
    }
    default: break;
    }
    if (!draw->is_random)
        return PL_OK;
    const double first = uniform(draw, index, 0), second = uniform(draw, index, 1),
                 third = uniform(draw, index, 2), fourth = uniform(draw, index, 3);
    switch ((stage_kind_t)stage->kind) {
    case STAGE_FLIP:
    case STAGE_FLIP_VERTICAL:
        if (first < stage->number[0])
            pl_picture_mirror(picture, stage->kind == STAGE_FLIP_VERTICAL);
        return PL_OK;
    case STAGE_ROTATE:
        return pl_picture_rotate(work, (2 * first - 1) * stage->number[0], err);
    case STAGE_COLOR:
        pl_picture_recolor(picture,
                           (const double[]){1 + (2 * first - 1) * stage->number[0],
                                            1 + (2 * second - 1) * stage->number[1],
                                            1 + (2 * third - 1) * stage->number[2]},
                           (2 * fourth - 1) * stage->number[3]);
        return PL_OK;
    case STAGE_CUTOUT:
        if (first < stage->number[0])
            pl_picture_cut_out(picture, w, h, second, third,
                               (uint8_t)lround(stage->number[1] * 255));
        return PL_OK;
    default: return PL_OK;
    }
}

int pl_picture_stages_run(const pl_picture_stages_t *stages,
                          const pl_picture_draw_t *draw, int width, int height,
                          pl_picture_work_t *work, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < stages->count && !code; k++) {
        code = stage_run(&stages->stage[k], draw, k, width, height, work, err);
        width = work->picture.width;
        height = work->picture.height;
    }
    return code;
}
