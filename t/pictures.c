/* pictures.c - tests of the data set "pictures" */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/connectors/datasets/pictures.h"
#include "dataset_rig.h"
#include "files.h"
#include "pictures_rig.h"
#include "tap.h"

/* A folder of this test below tap_folder(); its path, until the next call. */
static const char *folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", tap_folder(), name);
    return path;
}

static rig_t open_stages(const char *name, pl_stage_t stage, const char *stages)
{
    return rig_open(&pl_pictures_dataset, stage, "{\"path\": \"%s\", \"stages\": [%s]}",
                    folder(name), stages);
}

static float level(uint32_t byte)
{
    return (float)byte / 255;
}

/* 4 x 2 pixels: red counts columns, green rows. */
static const uint8_t grid[] = {0, 0,  9, 10, 0,  9, 20, 0,  9, 30, 0,  9,
                               0, 40, 9, 10, 40, 9, 20, 40, 9, 30, 40, 9};

static void a_folder_of_classes_gives_samples_and_names(void)
{
    picture_put_plain("two/dog/a.png", 4, 3, 0x804020);
    picture_put_plain("two/cat/b.png", 4, 3, 0xff0001);
    picture_put_plain("two/cat/more/a.PNG.png", 4, 3, 0x000000);
    bytes_put("two/cat/notes.txt", "no picture", 10);
    bytes_put("two/cat/.hidden.png", "", 0);
    rig_t rig = open_stages("two", PL_TRAIN, "");
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.samples == 3 && has_field(&rig, 0, "x", PL_F32, "3,3,4")
           && has_field(&rig, 1, "y", PL_I64, ""),
       "samples and fields");
    like(rig.info.data_info,
         "\"classes\": 2, \"shape\": .3, 3, 4., \"class_names\": .\"cat\",\"dog\".",
         "classes have the names of the folders");
    is_int(rig_read(&rig, INDEX(0, 2)), PL_OK, "read: %s", rig.err.text);
    const float *x = rig.field[0];
    const int64_t *y = rig.field[1];
    ok(y[0] == 0 && y[1] == 1, "classes in the order of the names");
    is_near(x[0], 1, 0, "red of the first picture of cats");
    is_near(x[12], 0, 0, "its green");
    is_near(x[35], level(1), 1e-7, "its blue");
    is_near(x[36], level(0x80), 1e-7, "red of the dog");
    char options[600];
    snprintf(options, sizeof options, "{\"path\": \"%s\"}", folder("two"));
    rig_t val = rig_open_told(&pl_pictures_dataset, PL_VALIDATE,
                              "{\"class_names\": [\"ant\", \"dog\", \"cat\"]}", options);
    rig_read(&val, INDEX(0, 2));
    y = val.field[1];
    ok(y[0] == 2 && y[1] == 1, "classes have the numbers of the training data");
    rig_close(&val);
    rig_close(&rig);
    refused(rig_open_told(&pl_pictures_dataset, PL_TEST, "{\"class_names\": [\"cat\"]}",
                          "{\"path\": \"/dev/null\"}"),
            PL_EINVAL, "/dev/null is not a regular file",
            "a path that is neither folder nor table");
    rig = rig_open(&pl_pictures_dataset, PL_PREDICT, "{\"path\": \"%s\"}",
                   folder("two/cat"));
    ok(rig.code == PL_OK && rig.info.samples == 2 && rig.info.field_count == 1,
       "pictures to predict need no classes: %s", rig.err.text);
    rig_close(&rig);
}

static void classes_that_training_did_not_have_are_errors(void)
{
    picture_put_plain("new/cat/a.png", 2, 2, 0);
    picture_put_plain("new/owl/a.png", 2, 2, 0);
    char options[600];
    snprintf(options, sizeof options, "{\"path\": \"%s\"}", folder("new"));
    refused(rig_open_told(&pl_pictures_dataset, PL_TEST, "{\"class_names\": [\"cat\"]}",
                          options),
            PL_EFORMAT, "new/owl: the training data have no class \"owl\"", "an owl");
    mkdir(folder("new/void"), 0777);
    refused(open_stages("new", PL_TRAIN, ""), PL_EFORMAT,
            "new/void: there is no picture of this class", "an empty class");
    refused(open_stages("new/cat", PL_TRAIN, ""), PL_EFORMAT,
            "new/cat has no folders: put the pictures of each class", "no classes");
    refused(open_stages("nowhere", PL_TRAIN, ""), PL_ENOTFOUND, "nowhere: No such file",
            "no folder");
}

static void folders_of_training_and_test_are_found(void)
{
    picture_put_plain("parts/train/a/1.png", 1, 1, 0x111111);
    picture_put_plain("parts/train/b/1.png", 1, 1, 0x222222);
    picture_put_plain("parts/val/b/1.png", 1, 1, 0x333333);
    rig_t rig = open_stages("parts", PL_TRAIN, "");
    is_int(rig.info.samples, 2, "train/ is for training: %s", rig.err.text);
    rig_close(&rig);
    rig = open_stages("parts", PL_TEST, "");
    rig_read(&rig, INDEX(0));
    is_near(*(float *)rig.field[0], level(0x33), 1e-7, "val/ is for tests");
    rig_close(&rig);
    picture_put_plain("parts/test/b/1.png", 1, 1, 0x444444);
    rig = open_stages("parts", PL_TEST, "");
    rig_read(&rig, INDEX(0));
    is_near(*(float *)rig.field[0], level(0x44), 1e-7, "unless there is test/");
    rig_close(&rig);
}

static void a_table_names_pictures_and_classes(void)
{
    picture_put_plain("table/p/1.png", 1, 1, 0x010101);
    picture_put_plain("table/p/2.png", 1, 1, 0x020202);
    bytes_put("table/all.csv", "id,kind,file\n7,owl,p/2.png\n8,ant,p/1.png\n", 41);
    bytes_put("table/bare.csv", "p/1.png,ant\np/2.png,owl\n", 24);
    bytes_put("table/lacks.csv", "file,kind\np/1.png,ant\np/2.png,\n", 31);
    rig_t rig = rig_open(&pl_pictures_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"file\": \"file\", \"label\": \"kind\"}",
                         folder("table/all.csv"));
    is_int(rig.info.samples, 2, "columns by name: %s", rig.err.text);
    like(rig.info.data_info, "\"class_names\": .\"ant\",\"owl\".", "classes by name");
    rig_read(&rig, INDEX(0, 1));
    const int64_t *y = rig.field[1];
    ok(y[0] == 1 && y[1] == 0, "samples are in the order of the rows");
    is_near(*(float *)rig.field[0], level(2), 1e-7, "paths begin at the table");
    rig_close(&rig);
    rig = rig_open(&pl_pictures_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                   folder("table/bare.csv"));
    is_int(rig.info.samples, 2, "a table without a header, first and last column");
    rig_close(&rig);
    refused(rig_open(&pl_pictures_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                     folder("table/lacks.csv")),
            PL_EFORMAT, "lacks.csv:3:.*the class is missing", "a row without a class");
    refused(rig_open(&pl_pictures_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"file\": \"picture\"}",
                     folder("table/all.csv")),
            PL_EINVAL, "no column \"picture\" of paths", "a column that is not there");
}

/* x of sample 0 of folder "grid" in an epoch of training, or in validation (-1). */
static float *read_grid(const char *stages, int epoch)
{
    static rig_t rig;
    static bool is_open;
    if (is_open)
        rig_close(&rig);
    picture_put("grid/a/a.png", 4, 2, grid);
    rig = open_stages("grid", epoch < 0 ? PL_VALIDATE : PL_TRAIN, stages);
    is_open = true;
    if (!ok(rig.code == PL_OK
                && rig_read_epoch(&rig, (uint64_t)abs(epoch), INDEX(0)) == PL_OK,
            "%s: %s", stages, rig.err.text))
        exit(1);
    return rig.field[0];
}

static void stages_change_pictures(void)
{
    const float *x = read_grid("\"flip p=1\"", 0);
    ok(x[0] == level(30) && x[3] == 0 && x[12] == level(40), "flip mirrors columns");
    x = read_grid("\"flip_vertical 1\"", 0);
    ok(x[0] == 0 && x[8] == level(40) && x[12] == 0, "flip_vertical mirrors rows");
    x = read_grid("\"center_crop 2\"", 0);
    ok(x[0] == level(10) && x[1] == level(20) && x[2] == level(10), "center_crop");
    x = read_grid("\"center_crop 4x2\"", 0);
    ok(x[0] == 0 && x[2] == level(10) && x[5] == level(20) && x[8] == 0,
       "center_crop of more rows than there are");
    x = read_grid("\"resize 1x2\"", 0);
    is_near(x[0], level(8), 0.004,
            "resize covers all pixels with the weights of bilinear");
    is_near(x[1], level(23), 0.01, "the right half");
    is_near(x[2], level(20), 0.004, "and both rows");
    x = read_grid("\"resize 1\"", 0);
    ok(x[2] == level(20), "one number is the shorter side");
    x = read_grid("\"rotate 0\"", 0);
    ok(x[1] == level(10) && x[12] == level(40), "a rotation by nothing changes nothing");
    x = read_grid("\"color 0 0 0 0\"", 0);
    ok(x[1] == level(10) && x[12] == level(40), "colours with no range are the same");
    x = read_grid("\"cutout 4x8 value=1\"", 0);
    ok(x[0] == 1 || x[3] == 1 || x[4] == 1 || x[7] == 1, "cutout paints");
    x = read_grid("\"normalize mean=0.5,0,0 std=0.5,1,2\"", 0);
    is_near(x[1], 2 * (10 / 255.0 - 0.5), 1e-6, "normalize: a channel");
    is_near(x[16], 9 / 255.0 / 2, 1e-6, "and another");
    x = read_grid("\"normalize imagenet\"", -1);
    is_near(x[0], -0.485 / 0.229, 1e-5, "the numbers of ImageNet, in validation, too");
}

static void a_whole_turn_of_hues_and_greys_are_as_before(void)
{
    uint8_t pixel[] = {200, 100, 50, 90, 90, 90};
    pl_picture_work_t work = {0};
    int place;
    pl_picture_stages_t stages;
    pl_error_t err;
    picture_put("hue/a/a.png", 2, 1, pixel);
    pl_picture_stages_read(&stages, "[\"color 0 0 0 0.5\"]", &place, &err);
    pl_picture_reserve(&work.picture, 2, 1, &err);
    memcpy(work.picture.pixel, pixel, sizeof pixel);
    const pl_picture_draw_t draw = {.key = 5, .is_random = true};
    is_int(pl_picture_stages_run(&stages, &draw, 2, 1, &work, &err), PL_OK, "turned");
    const uint8_t *p = work.picture.pixel;
    ok(p[3] == 90 && p[4] == 90 && p[5] == 90, "a grey has no hue");
    ok(p[0] != 200 && abs(p[0] + p[1] + p[2] - 350) < 60, "a colour has");
    pl_picture_work_release(&work);
}

static void random_stages_are_functions_of_the_counters(void)
{
    const char *stages = "\"random_crop 2 padding=1\", \"flip\", \"color\", \"rotate\", "
                         "\"cutout 1\"";
    float first[12], again[12];
    int different = 0;
    memcpy(first, read_grid(stages, 3), sizeof first);
    memcpy(again, read_grid(stages, 3), sizeof again);
    ok(!memcmp(first, again, sizeof first), "the same epoch gives the same bits");
    for (int epoch = 4; epoch < 12; epoch++)
        different += memcmp(first, read_grid(stages, epoch), sizeof first) != 0;
    ok(different >= 6, "other epochs give other pictures: %d of 8", different);
    memcpy(first, read_grid(stages, -1), sizeof first);
    memcpy(again, read_grid("\"center_crop 2\"", -1), sizeof again);
    ok(!memcmp(first, again, sizeof first), "validation has the middle, unchanged");
    different = 0;
    for (int epoch = 0; epoch < 8; epoch++)
        different += read_grid("\"random_resized_crop 2x4\"", epoch)[0] != 0;
    ok(different >= 2, "a random resized crop is anywhere: %d of 8", different);
    is_near(read_grid("\"random_resized_crop 2x4\"", -1)[8 + 4], level(33), 0.02,
            "and in the middle in validation");
}

static void mixup_mixes_pictures_and_targets(void)
{
    char name[32], options[700];
    for (int k = 0; k < 20; k++) {
        snprintf(name, sizeof name, "mix/%c/%02d.png", 'a' + k % 2, k);
        picture_put_plain(name, 1, 1, k % 2 ? 0xffffff : 0);
    }
    snprintf(options, sizeof options,
             "{\"path\": \"%s\", \"stages\": [\"mixup alpha=1\"]}", folder("mix"));
    rig_t rig = rig_open_split(&pl_pictures_dataset, 0.2, false, options);
    ok(rig.code == PL_OK && has_field(&rig, 1, "y", PL_F32, "2"),
       "a target has a share for each class: %s", rig.err.text);
    int mixed = 0, wrong = 0;
    for (int k = 0; k < 20; k++) {
        rig_read(&rig, 1, &(int64_t){k});
        const float *x = rig.field[0], *y = rig.field[1];
        wrong += fabsf(y[0] + y[1] - 1) > 1e-6f || fabsf(x[0] - y[1]) > 1e-6f;
        mixed += y[0] > 0.01f && y[0] < 0.99f;
    }
    is_int(wrong, 0, "picture and target have the same shares");
    ok(mixed >= 3, "of two classes: %d of 20", mixed);
    rig_close(&rig);
    rig = rig_open_told(&pl_pictures_dataset, PL_VALIDATE, NULL, options);
    rig_read(&rig, INDEX(0, 19));
    const float *y = rig.field[1];
    ok(y[0] == 1 && y[1] == 0 && y[2] == 0 && y[3] == 1, "validation mixes nothing");
    rig_close(&rig);
}

static void grey_and_bytes_are_possible(void)
{
    picture_put_plain("grey/a/a.png", 1, 1, 0x646464);
    picture_put_plain("grey/a/b.png", 1, 1, 0xff0000);
    rig_t rig = rig_open(&pl_pictures_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"channels\": 1, \"format\": \"uint8\"}",
                         folder("grey"));
    ok(has_field(&rig, 0, "x", PL_U8, "1,1,1"), "bytes: %s", rig.err.text);
    rig_read(&rig, INDEX(0, 1));
    const uint8_t *x = rig.field[0];
    ok(x[0] == 0x64 && x[1] == 76, "a grey is the same, red is as bright as its weight");
    rig_close(&rig);
}

static void jpeg_and_webp_are_read(void)
{
    uint8_t pixel[64 * 48 * 3];
    for (int y = 0; y < 48; y++)
        for (int x = 0; x < 64; x++)
            for (int channel = 0; channel < 3; channel++)
                pixel[(y * 64 + x) * 3 + channel] = (uint8_t)(4 * x);
    const char *endings[] = {"jpg", "webp"};
    for (int k = 0; k < 2; k++) {
        char name[32];
        snprintf(name, sizeof name, "%s/a/a.%s", endings[k], endings[k]);
        if (!picture_put(name, 64, 48, pixel)) {
            tap_skip("no library writes %s here", endings[k]);
            continue;
        }
        rig_t rig = open_stages(endings[k], PL_TRAIN, "");
        ok(has_field(&rig, 0, "x", PL_F32, "3,48,64")
               && rig_read(&rig, INDEX(0)) == PL_OK,
           "%s: %s", name, rig.err.text);
        is_near(((float *)rig.field[0])[40], level(160), 0.02, "its pixels");
        rig_close(&rig);
        rig = open_stages(endings[k], PL_TRAIN, "\"resize 6x8\"");
        rig_read(&rig, INDEX(0));
        is_near(((float *)rig.field[0])[5], level(4 * 44 - 2), 0.02,
                "resized, which a JPEG is while it is decoded");
        rig_close(&rig);
    }
}

static void the_orientation_is_honoured(void)
{
    /* The displayed picture of each orientation has pixels 1 2 3 in its first row. */
    static const uint8_t a[] = {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6};
    static const int stored[9][6] = {{0},
                                     {1, 2, 3, 4, 5, 6},
                                     {3, 2, 1, 6, 5, 4},
                                     {6, 5, 4, 3, 2, 1},
                                     {4, 5, 6, 1, 2, 3},
                                     {1, 4, 2, 5, 3, 6},
                                     {3, 6, 2, 5, 1, 4},
                                     {6, 3, 5, 2, 4, 1},
                                     {4, 1, 5, 2, 6, 3}};
    for (int orientation = 1; orientation <= 8; orientation++) {
        uint8_t pixel[18];
        size_t size;
        const int width = orientation < 5 ? 3 : 2, height = orientation < 5 ? 2 : 3;
        for (int k = 0; k < 6; k++)
            memset(pixel + 3 * k, stored[orientation][k], 3);
        uint8_t *png = png_make(width, height, pixel, orientation, &size);
        bytes_put("turned/a/a.png", png, size);
        free(png);
        rig_t rig = open_stages("turned", PL_TRAIN, "");
        const bool opened = has_field(&rig, 0, "x", PL_F32, "3,2,3")
                            && rig_read(&rig, INDEX(0)) == PL_OK;
        bool same = opened;
        for (int k = 0; k < 6; k++)
            same = same && ((float *)rig.field[0])[k] == level(a[3 * k]);
        ok(same, "orientation %d: %s", orientation, rig.err.text);
        rig_close(&rig);
    }
}

static void damaged_pictures_are_named(void)
{
    size_t size;
    uint8_t *png = png_make(4, 2, grid, 0, &size);
    const struct {
        const char *name;
        const void *data;
        size_t size;
        const char *why;
    } bad[] = {{"bad1/a/a.png", "", 0, "bad1/a/a.png: the file is empty"},
               {"bad2/a/a.png", "GIF89a and so on", 16, "bad2/a/a.png: no picture"},
               {"bad3/a/a.png", png, size - 13, "bad3/a/a.png: truncated: the PNG"},
               {"bad4/a/a.jpg", "\xff\xd8\xff\xe0\0\x10JFIF", 10,
                "bad4/a/a.jpg: truncated: the JPEG"},
               {"bad5/a/a.webp", "RIFF\xff\0\0\0WEBPVP8 ", 16,
                "bad5/a/a.webp: truncated: the WebP"}};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        char name[8];
        bytes_put(bad[k].name, bad[k].data, bad[k].size);
        snprintf(name, sizeof name, "%.4s", bad[k].name);
        refused(open_stages(name, PL_TRAIN, ""), PL_EFORMAT, bad[k].why, bad[k].name);
    }
    size_t jpeg_size;
    uint8_t *jpeg = jpeg_make(4, 2, grid, &jpeg_size);
    const uint8_t *scan = jpeg ? memmem(jpeg, jpeg_size, "\xff\xda", 2) : NULL;
    if (scan) {
        bytes_put("bad8/a/a.jpg", jpeg, (size_t)(scan - jpeg));
        rig_t cut = open_stages("bad8", PL_TRAIN, "");
        is_int(cut.code ? cut.code : rig_read(&cut, INDEX(0)), PL_EFORMAT,
               "a JPEG that ends in its headers");
        like(cut.err.text, "bad8/a/a.jpg: ", "by name: %s", cut.err.text);
        rig_close(&cut);
    }
    free(jpeg);
    png[size - 20] ^= 0xff;                                 /* in the compressed data */
    bytes_put("bad6/a/a.png", png, size);
    free(png);
    rig_t rig = open_stages("bad6", PL_TRAIN, "");
    is_int(rig_read(&rig, INDEX(0)), PL_EFORMAT, "damaged data");
    like(rig.err.text, "bad6/a/a.png: the PNG data are damaged", "name the file");
    rig_close(&rig);
    picture_put_plain("bad7/a/a.png", 2, 2, 0);
    picture_put_plain("bad7/a/b.png", 3, 2, 0);
    rig = open_stages("bad7", PL_TRAIN, "");
    is_int(rig_read(&rig, INDEX(1)), PL_EINVAL, "another size");
    like(rig.err.text, "b.png has 3 x 2 pixels .*first picture has 2 x 2: add a stage",
         "the text says what to do");
    rig_close(&rig);
}

static char logged[2000];

static void hook(pl_log_level_t at, int rank, const char *actor, const char *text,
                 void *user)
{
    (void)at, (void)rank, (void)actor, (void)user;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s\n", text);
}

static void damaged_pictures_are_skipped_and_counted_on_request(void)
{
    picture_put_plain("skip/a/1.png", 2, 2, 0xffffff);
    bytes_put("skip/a/0.png", "nothing", 7);
    bytes_put("skip/a/2.png", "\x89PNG\r\n\x1a\n", 8);
    pl_log_hook(hook, PL_LOG_WARNING, NULL);
    rig_t rig = rig_open(&pl_pictures_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"damaged\": \"skip\"}", folder("skip"));
    is_int(rig.code, PL_OK, "opened, with the size of the second: %s", rig.err.text);
    is_int(rig_read(&rig, INDEX(0, 1, 2, 0)), PL_OK, "read: %s", rig.err.text);
    const float *x = rig.field[0];
    const int64_t *y = rig.field[1];
    ok(y[0] == -100 && y[1] == 0 && y[2] == -100, "they have no class");
    ok(x[0] == 0 && x[12] == 1 && x[24] == 0, "and zeros");
    like(logged,
         "0.png: no picture.*1 skipped so far.*2.png: truncated.*2 skipped so far",
         "the log names and counts them");
    ok(!strstr(logged, "(3"), "once");
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
    rig_close(&rig);
}

static void huge_headers_are_refused_before_memory_is_reserved(void)
{
    size_t size;
    uint8_t *png = png_make(4, 2, grid, 0, &size);
    memcpy(png + 16, "\0\0\xea\x60\0\0\xea\x60", 8);        /* 60000 x 60000 */
    bytes_put("huge/a/a.png", png, size);
    refused(open_stages("huge", PL_TRAIN, ""), PL_EFORMAT,
            "a.png: 60000 x 60000 pixels are more than \"max_pixels\"", "a bomb");
    rig_t rig = open_stages("huge", PL_TRAIN, "\"resize 2x2\"");
    is_int(rig_read(&rig, INDEX(0)), PL_EFORMAT, "also where stages give the size");
    rig_close(&rig);
    memcpy(png + 16, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    bytes_put("huge/a/a.png", png, size);
    refused(open_stages("huge", PL_TRAIN, ""), PL_EFORMAT, "more than \"max_pixels\"",
            "the largest numbers");
    free(png);
    picture_put("huge/a/a.png", 4, 2, grid);
    refused(rig_open(&pl_pictures_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"max_pixels\": 7}", folder("huge")),
            PL_EFORMAT, "4 x 2 pixels are more", "the limit is an option");
    picture_put_plain("tall/a/a.png", 1, 4000, 0x777777);
    refused(open_stages("tall", PL_TRAIN, "\"resize 2000\""), PL_EFORMAT,
            "a stage would resize 1 x 4000 pixels to more than", "and holds for stages");
}

static void links_out_of_the_folder_are_refused(void)
{
    char target[600], link[600];
    picture_put_plain("outside/a.png", 1, 1, 0x777777);
    picture_put_plain("linked/a/b.png", 1, 1, 0);
    snprintf(target, sizeof target, "%s", folder("outside/a.png"));
    snprintf(link, sizeof link, "%s", folder("linked/a/c.png"));
    ok(symlink(target, link) == 0, "a link to a picture elsewhere");
    refused(open_stages("linked", PL_TRAIN, ""), PL_EINVAL,
            "linked/a/c.png is a link that leads out of .*set \"links\": true",
            "refused");
    rig_t rig = rig_open(&pl_pictures_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"links\": true}", folder("linked"));
    is_int(rig.info.samples, 2, "allowed by an option: %s", rig.err.text);
    rig_close(&rig);
    unlink(link);
    ok(symlink("b.png", link) == 0, "a link within the folder");
    rig = open_stages("linked", PL_TRAIN, "");
    is_int(rig.info.samples, 2, "is followed: %s", rig.err.text);
    rig_close(&rig);
    unlink(link);
    ok(symlink("..", link) == 0, "a loop of links");
    refused(open_stages("linked", PL_TRAIN, ""), PL_EINVAL, "nested too deep", "ends");
    unlink(link);
    ok(symlink("gone.png", link) == 0, "a link to nothing");
    refused(open_stages("linked", PL_TRAIN, ""), PL_ENOTFOUND, "c.png: the target",
            "is named");
}

static void wrong_stages_are_named(void)
{
    static const struct {
        const char *stages;
        int place;
        const char *why;
    } wrong[] = {
        {"{}", -1, "list of texts"},
        {"[3]", 0, "a stage is a text"},
        {"[\"flip\", \"shear 3\"]", 1, "there is no stage \"shear\"; there are resize"},
        {"[\"resize\"]", 0, "resize: a size is missing, as in \"resize 224\""},
        {"[\"resize 0\"]", 0, "\"0\" is no size"},
        {"[\"resize 12y3\"]", 0, "\"12y3\" is no size"},
        {"[\"resize 99999\"]", 0, "from 1 to 16384"},
        {"[\"flip 2\"]", 0, "flip: p is \"2\"; it must be 0 to 1"},
        {"[\"flip q=1\"]", 0, "\"q=1\" is no argument"},
        {"[\"flip 1 1\"]", 0, "\"1\" is no argument"},
        {"[\"normalize\"]", 0, "normalize takes imagenet, cifar10, half"},
        {"[\"normalize std=0,1,1\"]", 0, "std above 0"},
        {"[\"normalize half\", \"flip\"]", 1, "flip comes too late"},
        {"[\"mixup 0\"]", 0, "alpha is \"0\""},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        pl_picture_stages_t stages;
        pl_error_t err = {0};
        int place;
        ok(pl_picture_stages_read(&stages, wrong[k].stages, &place, &err) == PL_EINVAL
               && place == wrong[k].place,
           "%s", wrong[k].stages);
        like(err.text, wrong[k].why, "the text says why");
    }
}

static void a_lack_of_memory_leaves_nothing_behind(void)
{
    picture_put_plain("less/a/a.png", 2, 2, 0);
    opens_without_memory(&pl_pictures_dataset, "path", folder("less"));
}

int main(void)
{
    run(a_folder_of_classes_gives_samples_and_names);
    run(classes_that_training_did_not_have_are_errors);
    run(folders_of_training_and_test_are_found);
    run(a_table_names_pictures_and_classes);
    run(stages_change_pictures);
    run(a_whole_turn_of_hues_and_greys_are_as_before);
    run(random_stages_are_functions_of_the_counters);
    run(mixup_mixes_pictures_and_targets);
    run(grey_and_bytes_are_possible);
    run(jpeg_and_webp_are_read);
    run(the_orientation_is_honoured);
    run(damaged_pictures_are_named);
    run(damaged_pictures_are_skipped_and_counted_on_request);
    run(huge_headers_are_refused_before_memory_is_reserved);
    run(links_out_of_the_folder_are_refused);
    run(wrong_stages_are_named);
    run(a_lack_of_memory_leaves_nothing_behind);
    return tap_done();
}
