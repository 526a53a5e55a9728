/* datasets.c - tests of actors/connectors/datasets: idx.c, csv.c, npy.c */
#include "actors/connectors/datasets/datasets.h"
#include "actors/connectors/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"
#include "dataset_rig.h"
#include "files.h"
#include "tap.h"

/* ---- idx ---- */

static const uint8_t two_images[] = {0, 0, 8, 3, 0, 0, 0, 2,   0,  0,
                                     0, 1, 0, 0, 0, 2, 0, 255, 51, 102};
static const uint8_t two_labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 3, 1};

static void put_mnist(void)
{
    file_put("train-images-idx3-ubyte", two_images, sizeof two_images);
    file_put_gzip("train-labels-idx1-ubyte.gz", two_labels, sizeof two_labels);
}

static void idx_gives_scaled_pixels_and_labels(void)
{
    put_mnist();
    rig_t rig = rig_open(&pl_idx_dataset, PL_TRAIN, "{\"path\": \"%s\"}", tap_folder());
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.samples == 2 && !rig.info.ordered
           && has_field(&rig, 0, "x", PL_F32, "1,1,2")
           && has_field(&rig, 1, "y", PL_I64, ""),
       "samples and fields");
    like(rig.info.data_info,
         "^.\"classes\": 4, \"shape\": .1, 1, 2., \"standardize\": ..0", "data info");
    is_int(rig_read(&rig, INDEX(1, 0, 1)), PL_OK, "read");
    const float *x = rig.field[0];
    const int64_t *y = rig.field[1];
    ok(fabsf(x[0] - .2f) < 1e-7f && fabsf(x[1] - .4f) < 1e-7f && x[2] == 0 && x[3] == 1,
       "pixels from 0 to 1");
    ok(y[0] == 1 && y[1] == 3 && y[2] == 1, "labels");
    rig_close(&rig);

    rig = rig_open(&pl_idx_dataset, PL_VALIDATE,
                   "{\"path\": \"%s\", \"mean\": 0.2, \"std\": 0.5}", tap_folder());
    rig_read(&rig, INDEX(0));
    x = rig.field[0];
    ok(fabsf(x[0] + .4f) < 1e-6f && fabsf(x[1] - 1.6f) < 1e-6f, "normalised");
    rig_close(&rig);
}

static void idx_names_what_is_wrong(void)
{
    put_mnist();
    refused(rig_open(&pl_idx_dataset, PL_TEST, "{\"path\": \"%s\"}", tap_folder()),
            PL_ENOTFOUND, "/t10k-images-idx3-ubyte: no such file, neither with .gz",
            "a file that is not there");
    refused(rig_open(&pl_idx_dataset, PL_TRAIN, "{\"path\": \"%s\", \"std\": 0}",
                     tap_folder()),
            PL_EINVAL, "std", "a deviation of 0");
    const uint8_t three[] = {0, 0, 8, 1, 0, 0, 0, 3, 3, 1, 2};
    file_put_gzip("train-labels-idx1-ubyte.gz", three, sizeof three);
    refused(rig_open(&pl_idx_dataset, PL_TRAIN, "{\"path\": \"%s\"}", tap_folder()),
            PL_EFORMAT, "train-labels-idx1-ubyte.gz: record 2: 3 labels for 2 images",
            "labels without images");
    file_put("train-images-idx3-ubyte", two_images, sizeof two_images - 1);
    refused(rig_open(&pl_idx_dataset, PL_TRAIN, "{\"path\": \"%s\"}", tap_folder()),
            PL_EFORMAT,
            "train-images-idx3-ubyte: truncated at byte 19 of 20, in record 1",
            "a cut file");
    file_put("train-images-idx3-ubyte", two_labels, sizeof two_labels);
    refused(rig_open(&pl_idx_dataset, PL_TRAIN, "{\"path\": \"%s\"}", tap_folder()),
            PL_EFORMAT, "train-images.* 4 axes, these have 1",
            "labels in the place of images");
    file_put("train-images-idx3-ubyte", two_images, sizeof two_images);
    file_put_gzip("train-labels-idx1-ubyte.gz", two_images, sizeof two_images);
    refused(rig_open(&pl_idx_dataset, PL_TRAIN, "{\"path\": \"%s\"}", tap_folder()),
            PL_EFORMAT, "train-labels.* 1 axis", "images in the place of labels");
    const uint8_t none[] = {0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2};
    file_put("train-images-idx3-ubyte", none, sizeof none);
    refused(rig_open(&pl_idx_dataset, PL_TRAIN, "{\"path\": \"%s\"}", tap_folder()),
            PL_EFORMAT, "no images", "no images");
}

static rig_t open_idx(pl_stage_t stage, const char *folder, const char *more)
{
    return rig_open(&pl_idx_dataset, stage, "{\"path\": \"%s/%s\"%s}", tap_folder(),
                    folder, more);
}

/* Whether two samples have the labels a and b. */
static bool has_labels(rig_t *rig, int64_t a, int64_t b)
{
    if (rig->code != PL_OK || rig_read(rig, INDEX(0, 1)) != PL_OK)
        return false;
    const int64_t *y = rig->field[1];
    return y[0] == a && y[1] == b;
}

static void idx_files_may_have_other_names(void)
{
    static const uint8_t ints[] = {0, 0, 12, 1, 0, 0, 0, 2, 0, 0, 1, 44, 0, 0, 0, 26};
    static const uint8_t below[] = {0, 0, 12, 1, 0,   0,   0,   2,
                                    0, 0, 0,  1, 255, 255, 255, 255};
    char folder[512];
    snprintf(folder, sizeof folder, "%s/emnist", tap_folder());
    mkdir(folder, 0700);
    file_put_gzip("emnist/emnist-letters-train-images-idx3-ubyte.gz", two_images,
                  sizeof two_images);
    file_put_gzip("emnist/emnist-letters-train-labels-idx1-ubyte.gz", two_labels,
                  sizeof two_labels);
    file_put("emnist/emnist-letters-test-images-idx3-ubyte", two_images,
             sizeof two_images);
    file_put("emnist/emnist-letters-test-labels-idx1-int", ints, sizeof ints);
    rig_t rig = open_idx(PL_TRAIN, "emnist", "");
    ok(has_labels(&rig, 3, 1), "EMNIST's to train on: %s", rig.err.text);
    rig_close(&rig);
    rig = open_idx(PL_TEST, "emnist", "");
    ok(has_labels(&rig, 300, 26), "to test on, with labels of four bytes: %s",
       rig.err.text);
    rig_close(&rig);
    file_put("emnist/emnist-digits-train-images-idx3-ubyte", two_images,
             sizeof two_images);
    refused(open_idx(PL_TRAIN, "emnist", ""), PL_EINVAL,
            "emnist-.* and .*emnist-.* may be the images: choose by \"prefix\"",
            "two sets in one directory");
    rig = open_idx(PL_TRAIN, "emnist", ", \"prefix\": \"emnist-letters-\"");
    ok(has_labels(&rig, 3, 1), "one is chosen by its prefix: %s", rig.err.text);
    rig_close(&rig);
    rig = open_idx(PL_TRAIN, "emnist",
                   ", \"images\": \"emnist-digits-train-images-idx3-ubyte\", "
                   "\"labels\": \"emnist-letters-test-labels-idx1-int\"");
    ok(has_labels(&rig, 300, 26), "or by the files' names: %s", rig.err.text);
    rig_close(&rig);
    refused(open_idx(PL_TRAIN, "emnist", ", \"images\": \"nothing\""), PL_ENOTFOUND,
            "emnist/nothing: No such file", "a name that is not there");
    refused(open_idx(PL_TRAIN, "emnist", ", \"prefix\": \"emnist-digits-\""),
            PL_ENOTFOUND,
            "emnist-digits-train-labels-idx1-ubyte: no such file.*training labels",
            "images without labels");
    file_put("emnist/emnist-letters-test-labels-idx1-int", below, sizeof below);
    refused(open_idx(PL_TEST, "emnist", ""), PL_EFORMAT,
            "idx1-int: record 1: the label is -1", "a label below 0");
}

static void idx_labels_are_those_of_the_images(void)
{
    static const uint8_t labels[][10] = {{0, 0, 8, 1, 0, 0, 0, 2, 5, 6},
                                         {0, 0, 8, 1, 0, 0, 0, 2, 7, 8}};
    static const char own[] = ", \"images\": \"fashion-train-images-idx3-ubyte\"";
    char folder[512], more[1200];
    snprintf(folder, sizeof folder, "%s/two", tap_folder());
    mkdir(folder, 0700);
    snprintf(folder, sizeof folder, "%s/two/apart", tap_folder());
    mkdir(folder, 0700);
    file_put("two/train-images-idx3-ubyte", two_images, sizeof two_images);
    file_put("two/train-labels-idx1-ubyte", two_labels, sizeof two_labels);
    file_put("two/fashion-train-images-idx3-ubyte", two_images, sizeof two_images);
    file_put("two/fashion-train-labels-idx1-ubyte", labels[0], sizeof labels[0]);
    file_put("two/fashion-test-labels-idx1-ubyte", labels[1], sizeof labels[1]);
    rig_t rig = open_idx(PL_TRAIN, "two", "");
    ok(has_labels(&rig, 3, 1), "the usual names come first: %s", rig.err.text);
    rig_close(&rig);
    rig = open_idx(PL_TRAIN, "two", own);
    ok(has_labels(&rig, 5, 6), "images by name have their own labels: %s", rig.err.text);
    rig_close(&rig);
    file_put("two/apart/train-images-idx3-ubyte", two_images, sizeof two_images);
    file_put_gzip("two/apart/train-labels-idx1-ubyte.gz", labels[1], sizeof labels[1]);
    snprintf(more, sizeof more, ", \"images\": \"%s/train-images-idx3-ubyte\"", folder);
    rig = open_idx(PL_TRAIN, "two", more);
    ok(has_labels(&rig, 7, 8), "also in another folder: %s", rig.err.text);
    rig_close(&rig);
    file_put("two/other-images", two_images, sizeof two_images);
    refused(open_idx(PL_TRAIN, "two", ", \"images\": \"other-images\""), PL_ENOTFOUND,
            "two/other-images: there are no labels .*\"other-labels\": set \"labels\"",
            "images without labels");
    file_put("two/other-labels", labels[1], sizeof labels[1]);
    rig = open_idx(PL_TRAIN, "two", ", \"images\": \"other-images\"");
    ok(has_labels(&rig, 7, 8), "any name has labels of that name: %s", rig.err.text);
    rig_close(&rig);
    file_put("two/pixels", two_images, sizeof two_images);
    refused(open_idx(PL_TRAIN, "two", ", \"images\": \"pixels\""), PL_ENOTFOUND,
            "two/pixels: its labels cannot be found .*: set \"labels\"",
            "a name that says nothing of the labels");
    rig = open_idx(PL_PREDICT, "two", ", \"images\": \"pixels\"");
    is_int(rig.code, PL_OK, "which are not needed to predict: %s", rig.err.text);
    rig_close(&rig);
}

static void idx_pixels_may_be_of_any_type(void)
{
    static const uint8_t floats[] = {0, 0, 13, 2, 0, 0, 0,    1, 0, 0,
                                     0, 2, 63, 0, 0, 0, 0xc0, 0, 0, 0};
    char folder[512];
    snprintf(folder, sizeof folder, "%s/floats", tap_folder());
    mkdir(folder, 0700);
    file_put("floats/t10k-images-idx2-float", floats, sizeof floats);
    rig_t rig = open_idx(PL_PREDICT, "floats", ", \"mean\": 0.5, \"std\": 2");
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(has_field(&rig, 0, "x", PL_F32, "2"), "without rows and columns");
    rig_read(&rig, INDEX(0));
    const float *x = rig.field[0];
    ok(x && x[0] == 0 && x[1] == -1.25f, "as they are, but for mean and std");
    like(rig.info.data_info, "\"standardize\": \\[\\[0.5, ?0.5\\]\\]", "data info: %s",
         rig.info.data_info);
    rig_close(&rig);
}

static void idx_predicts_without_labels(void)
{
    const char *images = file_put("t10k-images-idx3-ubyte", two_images,
                                  sizeof two_images);
    rig_t rig = rig_open(&pl_idx_dataset, PL_PREDICT, "{\"path\": \"%s\"}", tap_folder());
    ok(rig.code == PL_OK && rig.info.field_count == 1 && !rig_read(&rig, INDEX(0)),
       "only x is there");
    like(rig.info.data_info, "^.\"shape\": .1, 1, 2., \"standardize\"", "and no classes");
    rig_close(&rig);
    refused(rig_open(&pl_idx_dataset, PL_TEST, "{\"path\": \"%s\"}", tap_folder()),
            PL_ENOTFOUND, "t10k-labels", "a test needs them");
    unlink(images);
}

static void mnist_is_served(void)
{
    const char *path = tap_data("mnist");
    if (!path) {
        tap_skip("PACELINE_TEST_DATA is not set");
        return;
    }
    rig_t rig = rig_open(&pl_idx_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    like(rig.info.data_info, "^.\"classes\": 10, \"shape\": .1, 28, 28., ", "data info");
    int64_t index[64], best = INT64_MAX;
    float *x = malloc(64 * 784 * sizeof *x);
    int64_t y[64];
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < 64; i++)
            index[i] = (i * 7919 + round * 104729) % 60000;
        pl_read_request_t request = {.index = index, .count = 64, .seed = 42};
        int64_t start = pl_now();
        rig.ops->read(rig.self, &request, (void *const[]){x, y}, NULL);
        int64_t taken = pl_now() - start;
        best = taken < best ? taken : best;
    }
    tap_diag("64 samples in %.1f µs", (double)best / 1000);
    index[0] = 0;
    rig.ops->read(rig.self, &(pl_read_request_t){.index = index, .count = 1},
                  (void *const[]){x, y}, NULL);
    ok(y[0] == 5 && fabsf(x[5 * 28 + 12] - 3 / 255.f) < 1e-6f && x[0] == 0,
       "the first is the five that everybody knows");
    free(x);
    rig_close(&rig);
    rig = rig_open(&pl_idx_dataset, PL_TEST, "{\"path\": \"%s\"}", tap_data("mnist"));
    is_int(rig.info.samples, 10000, "the test set is the other one");
    rig_close(&rig);
}

/* ---- splits ---- */

#define SPLIT_SAMPLES 1000

/* 1000 samples: 700 of class 0, 250 of 1, 49 of -7, one of 90000. */
static void put_classes(int64_t target[SPLIT_SAMPLES])
{
    for (int k = 0; k < SPLIT_SAMPLES; k++)
        target[(k * 7) % SPLIT_SAMPLES] = k < 700   ? 0
                                          : k < 950 ? 1
                                          : k < 999 ? -7
                                                    : 90000;
}

static int held_of(const pl_data_split_t *split, const int64_t *target, int64_t class)
{
    int count = 0;
    for (int64_t k = 0; k < split->held_count; k++)
        count += target[split->held[k]] == class;
    return count;
}

static void a_stratified_split_keeps_the_proportions_of_classes(void)
{
    int64_t target[SPLIT_SAMPLES];
    pl_error_t err = {0};
    pl_data_split_t split, again, other;
    put_classes(target);
    pl_data_split_spec_t spec = {.seed = 7,
                                 .total = SPLIT_SAMPLES,
                                 .share = 0.2,
                                 .target = target};
    is_int(pl_data_split_make(&split, &spec, &err), PL_OK, "made");
    is_int(split.held_count, 200, "as many as asked for");
    is_int(held_of(&split, target, 0), 140, "of the largest class its share");
    is_int(held_of(&split, target, 1), 50, "of the next");
    is_int(held_of(&split, target, -7), 10, "of a small one, rounded");
    is_int(held_of(&split, target, 90000), 0, "a single one stays in training");
    bool rising = true;
    for (int64_t k = 1; k < split.held_count; k++)
        rising = rising && split.held[k - 1] < split.held[k];
    ok(rising, "each once, rising");
    pl_data_split_make(&again, &spec, NULL);
    ok(!memcmp(again.held, split.held, 200 * sizeof(int64_t)), "the seed alone decides");
    spec.seed = 8;
    pl_data_split_make(&other, &spec, NULL);
    ok(memcmp(other.held, split.held, 200 * sizeof(int64_t)), "another has others");
    pl_data_split_release(&split);
    pl_data_split_release(&again);
    pl_data_split_release(&other);
    for (int k = 0; k < SPLIT_SAMPLES; k++)
        target[k] = k;
    is_int(pl_data_split_make(&split, &spec, &err), PL_EINVAL, "classes of one sample");
    like(err.text, "data.stratify: no class has two samples", "are refused");
    spec.share = 0.0001;
    is_int(pl_data_split_make(&split, &spec, &err), PL_EINVAL, "a share of nothing");
    like(err.text, "data.val_split 0.0001 of 1000 samples leaves nothing to validate on",
         "is refused");
}

/* Makes all folds and adds 1 to the place of each sample that is held; -> whether all
 * were made. */
static bool folds_make(pl_data_split_spec_t spec, int64_t smallest, int64_t largest,
                       int *times, int64_t *fold_of)
{
    bool made = true;
    for (spec.fold = 0; spec.fold < spec.folds && made; spec.fold++) {
        pl_data_split_t split = {0};
        pl_error_t err = {0};
        made = pl_data_split_make(&split, &spec, &err) == PL_OK
               && split.held_count >= smallest && split.held_count <= largest;
        if (!made)
            tap_diag("fold %d has %d: %s", (int)spec.fold, (int)split.held_count,
                     err.text);
        for (int64_t k = 0; k < split.held_count; k++) {
            times[split.held[k]]++;
            fold_of[split.held[k]] = spec.fold;
        }
        pl_data_split_release(&split);
    }
    return made;
}

static bool all_once(const int *times)
{
    bool once = true;
    for (int k = 0; k < SPLIT_SAMPLES; k++)
        once = once && times[k] == 1;
    return once;
}

static void each_sample_is_in_one_fold(void)
{
    static int times[SPLIT_SAMPLES], by_class[SPLIT_SAMPLES];
    static int64_t fold_of[SPLIT_SAMPLES], target[SPLIT_SAMPLES];
    int64_t least = INT64_MAX, most = 0;
    pl_error_t err = {0};
    pl_data_split_t split;
    pl_data_split_spec_t spec = {.seed = 7, .total = SPLIT_SAMPLES, .folds = 7};
    ok(folds_make(spec, 142, 143, times, fold_of), "seven folds of 142 or 143 of 1000");
    ok(all_once(times), "have each sample once");
    put_classes(target);
    spec.target = target;
    ok(folds_make(spec, 142, 143, by_class, fold_of), "also with classes in proportion");
    ok(all_once(by_class), "have each sample once");
    for (int64_t fold = 0; fold < spec.folds; fold++) {
        int64_t count = 0;
        for (int k = 0; k < SPLIT_SAMPLES; k++)
            count += fold_of[k] == fold && target[k] == -7;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    ok(most - least <= 1, "and of a class as many as the others, or one more");
    spec = (pl_data_split_spec_t){.total = 3, .folds = 4, .fold = 1};
    is_int(pl_data_split_make(&split, &spec, &err), PL_EINVAL, "more folds than samples");
    like(err.text, "data.folds 4 of 3 samples leaves nothing .*choose at most 3",
         "are refused");
}

static void no_group_is_parted(void)
{
    static int times[SPLIT_SAMPLES];
    static int64_t fold_of[SPLIT_SAMPLES], group[SPLIT_SAMPLES], target[SPLIT_SAMPLES];
    int64_t first[61], positive[5] = {0};
    bool parted = false;
    pl_error_t err = {0};
    pl_data_split_t split;
    for (int k = 0; k < SPLIT_SAMPLES; k++) {
        group[k] = k % 61 * 17;
        target[k] = k % 61 < 12;                            /* a fifth of the groups */
    }
    pl_data_split_spec_t spec = {
        .seed = 7, .total = SPLIT_SAMPLES, .folds = 5, .group = group, .target = target};
    ok(folds_make(spec, 180, 220, times, fold_of), "five folds of about 200 of 1000");
    ok(all_once(times), "have each sample once");
    for (int k = 0; k < SPLIT_SAMPLES; k++) {
        if (k < 61)
            first[k] = fold_of[k];
        parted |= fold_of[k] != first[k % 61];
        positive[fold_of[k]] += target[k];
    }
    ok(!parted, "with all samples of a group");
    for (int k = 0; k < 5; k++)
        ok(positive[k] > 24 && positive[k] < 56, "and about a fifth of class 1: %d",
           (int)positive[k]);
    spec.folds = 0;
    spec.share = 0.25;
    spec.target = NULL;
    is_int(pl_data_split_make(&split, &spec, &err), PL_OK, "a share is made");
    ok(split.held_count > 230 && split.held_count < 270, "with about its size: %d",
       (int)split.held_count);
    for (int k = 61; k < SPLIT_SAMPLES; k++)
        parted |= pl_data_split_holds(&split, k) != pl_data_split_holds(&split, k % 61);
    ok(!parted, "and whole groups");
    pl_data_split_release(&split);
    for (int k = 0; k < SPLIT_SAMPLES; k++)
        group[k] = k % 3;
    spec.folds = 4;
    is_int(pl_data_split_make(&split, &spec, &err), PL_EINVAL, "fewer groups than folds");
    like(err.text, "there are 3 groups of samples, too few for 4 parts: lower data.folds",
         "are refused");
}

/* ---- csv ---- */

static void csv_keeps_groups_together(void)
{
    char text[2048] = "place,a,b\n", options[400];
    for (int k = 0; k < 40; k++)
        sprintf(text + strlen(text), "%s,%d,%d\n", k % 4 < 2 ? "north" : "south", k,
                k % 2);
    const char *path = file_put_text("places.csv", text);
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"groups\": \"place\"}", path);
    rig_t rig = rig_open_split(&pl_csv_dataset, 0.5, false, options);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(has_field(&rig, 0, "x", PL_F32, "1"), "the column of groups is no feature");
    ok(rig.info.group && rig.info.group[0] == rig.info.group[1]
           && rig.info.group[0] != rig.info.group[2]
           && rig.info.group[0] == rig.info.group[4],
       "equal texts are one group");
    rig_close(&rig);
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"groups\": \"site\"}", path);
    refused(rig_open_split(&pl_csv_dataset, 0.5, false, options), PL_EINVAL,
            "places.csv: \"groups\": there is no column \"site\"", "a name not there");
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"groups\": \"b\"}", path);
    refused(rig_open_split(&pl_csv_dataset, 0.5, false, options), PL_EINVAL,
            "places.csv: \"groups\" is the target \"b\"", "the target");
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"groups\": \"place\"}",
             file_put_text("one.csv", "place,a,b\nnorth,1,0\nnorth,2,1\n"));
    refused(rig_open_split(&pl_csv_dataset, 0.5, false, options), PL_EINVAL,
            "one.csv: groups by field 1 .place.: there are 1 groups .*remove data.groups",
            "one group");
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"groups\": \"place\"}",
             file_put_text("gap.csv", "place,a,b\nnorth,1,0\n,2,1\n"));
    refused(rig_open_split(&pl_csv_dataset, 0.5, false, options), PL_EFORMAT,
            "gap.csv:3:1: field 1 .place. is empty, but \"groups\" names it",
            "a row without a group");
}

static void csv_tells_classes_from_values(void)
{
    const char *classes = file_put_text("classes.csv", "a,b,c\n1,10,0\n2,10,2\n3,10,1\n");
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"standardize\": false}", classes);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.samples == 3 && has_field(&rig, 0, "x", PL_F32, "2")
           && has_field(&rig, 1, "y", PL_I64, ""),
       "whole labels are classes");
    is_text(rig.info.data_info,
            "{\"classes\": 3, \"shape\": [2], \"columns\": {\"x\":[\"a\",\"b\"],"
            "\"y\":[\"c\"]}, \"class_share\": 0.3333}",
            "data info");
    rig_read(&rig, INDEX(2, 0));
    ok(((float *)rig.field[0])[0] == 3 && ((float *)rig.field[0])[1] == 10
           && ((float *)rig.field[0])[2] == 1,
       "features as they are");
    ok(((int64_t *)rig.field[1])[0] == 1 && ((int64_t *)rig.field[1])[1] == 0, "labels");
    rig_close(&rig);

    rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                   "{\"path\": \"%s\", \"target\": \"value\", \"label\": 0, "
                   "\"standardize\": false}",
                   classes);
    rig_read(&rig, INDEX(1));
    ok(has_field(&rig, 1, "y", PL_F32, "") && ((float *)rig.field[1])[0] == 2,
       "or values, when asked; any column");
    is_text(rig.info.data_info,
            "{\"shape\": [2], \"columns\": {\"x\":[\"b\",\"c\"],\"y\":[\"a\"]}}",
            "without classes");
    rig_close(&rig);

    rig = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\", \"target\": \"none\"}",
                   classes);
    ok(rig.info.field_count == 1 && has_field(&rig, 0, "x", PL_F32, "3"),
       "or no target at all");
    rig_close(&rig);

    rig = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                   file_put_text("v.csv", "1,0.5\n2,-1\n"));
    ok(has_field(&rig, 1, "y", PL_F32, "") && !rig_read(&rig, INDEX(1))
           && ((float *)rig.field[1])[0] == -1,
       "fractions are values by themselves");
    rig_close(&rig);
}

static void csv_columns_may_be_fields_of_their_own(void)
{
    const char *path = file_put_text("f.csv", "a,w,b,c,y\n1,2,3,4,0\n5,6,7,8,1\n");
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"standardize\": false, "
                         "\"fields\": {\"weight\": \"w\", \"place\": \"c,0\"}}",
                         path);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(has_field(&rig, 0, "x", PL_F32, "1") && has_field(&rig, 1, "y", PL_I64, "")
           && has_field(&rig, 2, "weight", PL_F32, "")
           && has_field(&rig, 3, "place", PL_F32, "2"),
       "the rest are features");
    rig_read(&rig, INDEX(1, 0));
    ok(((float *)rig.field[0])[0] == 7 && ((float *)rig.field[2])[0] == 6
           && ((float *)rig.field[2])[1] == 2,
       "by name");
    ok(((float *)rig.field[3])[0] == 8 && ((float *)rig.field[3])[1] == 5
           && ((float *)rig.field[3])[2] == 4,
       "or number, in the order that was given");
    rig_close(&rig);
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"fields\": {\"weight\": \"v\"}}", path),
            PL_EINVAL, "f.csv: field \"weight\": there is no column \"v\"",
            "no such one");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"fields\": {\"weight\": \"y\"}}", path),
            PL_EINVAL, "column \"y\" already has another use", "the target");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"fields\": {\"x\": \"a\"}}", path),
            PL_EINVAL, "cannot be called \"x\"", "a name that is taken");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"fields\": {\"b\": \"a,w,b,c\"}}", path),
            PL_EFORMAT, "there are no features", "all of them");
}

static void csv_lines_may_end_with_a_delimiter(void)
{
    rig_t rig =
        rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                 file_put_text("end.csv", "a,b,y,\n0,1,no,\n2,3,yes,\n4,5,no,\n"));
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(has_field(&rig, 0, "x", PL_F32, "2"), "what is behind the last name is no column");
    like(rig.info.data_info, "\"y\":.\"y\".", "nor the target: %s", rig.info.data_info);
    rig_close(&rig);
}

static void csv_names_have_no_spaces_around_them(void)
{
    rig_t rig =
        rig_open(&pl_csv_dataset, PL_TRAIN,
                 "{\"path\": \"%s\", \"standardize\": false, "
                 "\"fields\": {\"y\": \"kind\", \"both\": \"w, v\"}}",
                 file_put_text("spaces.csv", "a, kind, v, w\n1, 2, 3, 4\n1, 0, 3, 4\n"));
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    rig_read(&rig, INDEX(0));
    ok(has_field(&rig, 2, "both", PL_F32, "2") && ((int64_t *)rig.field[1])[0] == 2
           && ((float *)rig.field[0])[0] == 1,
       "columns are found without them");
    rig_close(&rig);
}

static void csv_takes_the_target_by_its_name(void)
{
    const char *path = file_put_text("n.csv", "a,kind,w\n1,2,3\n5,0,7\n");
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"standardize\": false, "
                         "\"fields\": {\"y\": \"kind\", \"weight\": \"w\"}}",
                         path);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.field_count == 3 && has_field(&rig, 0, "x", PL_F32, "1")
           && has_field(&rig, 1, "y", PL_I64, "")
           && has_field(&rig, 2, "weight", PL_F32, ""),
       "as y among the fields");
    rig_read(&rig, INDEX(0));
    ok(((int64_t *)rig.field[1])[0] == 2 && ((float *)rig.field[2])[0] == 3,
       "which is read from there");
    rig_close(&rig);
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"fields\": {\"y\": \"sort\"}}", path),
            PL_EINVAL, "field \"y\": there is no column \"sort\"", "no such one");
}

static void csv_standardizes_each_column(void)
{
    const char *path = file_put_text("s.csv", "1,0.1,7,0\n2,0.1,7,1\n3,0.1,9,0\n");
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path);
    rig_read(&rig, INDEX(0, 1, 2));
    const float *x = rig.field[0];
    float d = sqrtf(1.5f);
    ok(fabsf(x[0] + d) < 1e-6f && fabsf(x[3]) < 1e-6f && fabsf(x[6] - d) < 1e-6f,
       "mean 0, deviation 1");
    ok(x[1] == 0 && x[4] == 0 && x[7] == 0, "a constant column is 0");
    rig_close(&rig);
}

static rig_t open_with_info(const char *data_info, const char *text, const char *more)
{
    char options[2048];
    const char *path = file_put_text("told.csv", text);
    snprintf(options, sizeof options, "{\"path\": \"%s\"%s}", path, more);
    return rig_open_told(&pl_csv_dataset, PL_PREDICT, data_info, options);
}

static void csv_standardizes_by_the_moments_of_the_training_data(void)
{
    const char *path = file_put_text("train.csv", "1,0.1,7,0\n2,0.1,7,1\n4.5,0.1,9,2\n");
    rig_t train = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path);
    rig_read(&train, INDEX(0, 1, 2));
    const char *rows[] = {"1,0.1,7,0\n", "2,0.1,7,1\n", "4.5,0.1,9,2\n"};
    for (int k = 0; k < 3; k++) {
        rig_t one = open_with_info(train.info.data_info, rows[k], "");
        is_int(one.code, PL_OK, "a file of one row: %s", one.err.text);
        rig_read(&one, INDEX(0));
        ok(!memcmp(one.field[0], (float *)train.field[0] + 3 * k, 3 * sizeof(float)),
           "the row is what it was in training");
        is_text(one.info.data_info, train.info.data_info,
                "and the data info is given on");
        rig_close(&one);
    }
    rig_t plain = open_with_info(train.info.data_info, rows[2],
                                 ", \"standardize\": false");
    rig_read(&plain, INDEX(0));
    ok(*(float *)plain.field[0] == 4.5f, "unless that is switched off");
    rig_close(&plain);
    refused(open_with_info(train.info.data_info, "1,2,0\n", ""), PL_EINVAL,
            "told.csv: 2 features, but the training data had 3", "another table");
    rig_close(&train);
    refused(open_with_info("{\"classes\": 3}", rows[0], ""), PL_EINVAL,
            "training data was not standardized.*\"standardize\": false",
            "training data without moments");
    refused(open_with_info("{\"standardize\": [[1, 2], [1, 2], [1]]}", rows[0], ""),
            PL_EFORMAT, "no mean and factor for feature 2", "half of them");
    refused(open_with_info("{\"standardize\": [[1, 1e300], [1, 2], [1, 1]]}", "2,1,1,1\n",
                           ""),
            PL_EFORMAT, "told.csv:1: field 1 is 2, too large", "a result past float32");
    refused(open_with_info("no JSON", rows[0], ""), PL_EFORMAT, "data_info:1:1",
            "no data info");
}

static void csv_does_not_scale_a_column_that_is_constant(void)
{
    char text[4096] = "";
    for (int k = 0; k < 300; k++)
        sprintf(text + strlen(text), "0.1,%d,%d\n", k, k % 2);
    rig_t train = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                           file_put_text("same.csv", text));
    is_int(train.code, PL_OK, "opened: %s", train.err.text);
    like(train.info.data_info,
         "\"standardize\": ..0.1[0-9]*, ?1(.0)?\\], ?.149.5, ?0.011547",
         "its factor is 1");
    rig_read(&train, INDEX(0, 299));
    ok(((float *)train.field[0])[0] == 0 && ((float *)train.field[0])[2] == 0,
       "it is 0 in training");
    rig_t other = open_with_info(train.info.data_info, "0.2,1,0\n", "");
    rig_read(&other, INDEX(0));
    ok(fabsf(*(float *)other.field[0] - .1f) < 1e-7f, "elsewhere its distance, %g",
       (double)*(float *)other.field[0]);
    rig_close(&other);
    rig_close(&train);
}

/* What the data sets log, one line after the other. */
static char logged[4096];

static void hear(pl_log_level_t level, int rank, const char *actor, const char *text,
                 void *user)
{
    (void)rank, (void)actor, (void)user;
    const size_t length = strlen(logged);
    snprintf(logged + length, sizeof logged - length, "%d %s\n", (int)level, text);
}

static rig_t open_stage(const char *data_info, pl_stage_t stage, const char *text,
                        const char *more)
{
    char options[2048];
    snprintf(options, sizeof options, "{\"path\": \"%s\"%s}",
             file_put_text("other.csv", text), more);
    logged[0] = '\0';
    pl_log_hook(hear, PL_LOG_DEBUG, NULL);
    rig_t rig = rig_open_told(&pl_csv_dataset, stage, data_info, options);
    pl_log_hook(NULL, PL_LOG_ERROR, NULL);
    return rig;
}

static void texts_that_are_all_rare_are_warned_of(void)
{
    rig_t rig = open_stage(NULL, PL_TRAIN,
                           "a,b,y\n1%,0,0\n2%,1,1\n3%,0,0\n4%,1,1\n5%,0,0\n6%,1,1\n", "");
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    like(logged,
         "other.csv: field 1 .a. tells nothing: each of its texts is in fewer than "
         "\"rare\", 2, rows",
         "the log names the column: %s", logged);
    rig_close(&rig);
}

#define NAMED "a,b,w,y\n1,10,5,0\n2,20,6,1\n3,60,7,2\n"

static void csv_columns_are_matched_by_name(void)
{
    static const pl_stage_t stages[] = {PL_VALIDATE, PL_TEST, PL_PREDICT, PL_TRAIN};
    static const char weighed[] = ", \"fields\": {\"weight\": \"2\"}";
    char options[256];
    snprintf(options, sizeof options, "{\"path\": \"%s\"%s}",
             file_put_text("train.csv", NAMED), weighed);
    rig_t train = rig_open_split(&pl_csv_dataset, 0, false, options);
    is_int(train.code, PL_OK, "opened: %s", train.err.text);
    rig_read(&train, INDEX(0, 1, 2));
    for (int k = 0; k < 4; k++) {
        rig_t other = open_stage(train.info.data_info, stages[k],
                                 "y,w,b,z,a\n0,5,10,9,1\n1,6,20,9,2\n2,7,60,9,3\n",
                                 weighed);
        is_int(other.code, PL_OK, "opened: %s", other.err.text);
        rig_read(&other, INDEX(0, 1, 2));
        ok(!memcmp(other.field[0], train.field[0], 6 * sizeof(float)), "the features");
        ok(!memcmp(other.field[1], train.field[1], 3 * sizeof(int64_t)), "the target");
        ok(!memcmp(other.field[2], train.field[2], 3 * sizeof(float)),
           "a further field, which was given by number");
        is_text(other.info.data_info, train.info.data_info,
                "the training data's names stay");
        like(logged,
             stages[k] == PL_TEST || stages[k] == PL_PREDICT
                 ? "^1 .*other.csv: 1 column is not used, .*: \"z\"\n$"
                 : "^2 .*other.csv: 1 column is not used, .*: \"z\"\n$",
             "%s", logged);
        rig_close(&other);
    }
    rig_t bare = open_stage(train.info.data_info, PL_PREDICT, "b,a\n60,3\n", "");
    rig_read(&bare, INDEX(0));
    ok(bare.code == PL_OK && bare.info.field_count == 1
           && !memcmp(bare.field[0], (float *)train.field[0] + 4, 2 * sizeof(float)),
       "what is to be predicted needs no target: %s", bare.err.text);
    rig_close(&bare);
    refused(open_stage(train.info.data_info, PL_TEST, "a,b\n1,2\n", ""), PL_ENOTFOUND,
            "other.csv: there is no column \"y\", which the training data has",
            "a test needs one");
    refused(open_stage(train.info.data_info, PL_TEST, "a,y\n1,2\n", ""), PL_ENOTFOUND,
            "other.csv: there is no column \"b\"", "a feature that is missing");
    refused(open_stage(train.info.data_info, PL_TEST, "a,b,b,y\n1,2,3,0\n", ""),
            PL_EFORMAT, "other.csv: two columns are called \"b\"",
            "a name that is there twice");
    rig_close(&train);
}

static void csv_predicts_without_a_target_that_has_a_name(void)
{
    static const char named[] = ", \"fields\": {\"y\": \"kind\"}";
    rig_t train = open_stage(NULL, PL_TRAIN, "kind,a,b\n0,1,2\n1,3,5\n", named);
    is_int(train.code, PL_OK, "opened: %s", train.err.text);
    rig_t bare = open_stage(train.info.data_info, PL_PREDICT, "b,a\n5,3\n", named);
    rig_read(&train, INDEX(1)), rig_read(&bare, INDEX(0));
    ok(bare.code == PL_OK && bare.info.field_count == 1
           && !memcmp(bare.field[0], train.field[0], 2 * sizeof(float)),
       "the features have the names of the training data: %s", bare.err.text);
    rig_close(&bare);
    bare = open_stage(train.info.data_info, PL_PREDICT, "3,5\n", named);
    ok(bare.code == PL_OK && bare.info.field_count == 1, "or are taken by position: %s",
       bare.err.text);
    rig_close(&bare);
    refused(open_stage(train.info.data_info, PL_TEST, "b,a\n5,3\n", named), PL_ENOTFOUND,
            "no column \"kind\", which the training data has", "a test needs the target");
    rig_close(&train);
}

static void csv_predicts_without_weights(void)
{
    static const char named[] = ", \"fields\": {\"weight\": \"w\", \"id\": \"n\"}";
    rig_t train = open_stage(NULL, PL_TRAIN, "w,n,a,y\n1,7,2,0\n3,8,5,1\n", named);
    is_int(train.info.field_count, 4, "x, y, weight and id: %s", train.err.text);
    rig_t bare = open_stage(train.info.data_info, PL_PREDICT, "a,n\n2,9\n", named);
    ok(bare.code == PL_OK && bare.info.field_count == 2, "x and id are enough: %s",
       bare.err.text);
    rig_close(&bare);
    refused(open_stage(train.info.data_info, PL_TEST, "a,n,y\n2,9,1\n", named), PL_EINVAL,
            "field \"weight\": there is no column \"w\"", "a test weighs its loss");
    refused(open_stage(train.info.data_info, PL_PREDICT, "a,w\n2,1\n", named), PL_EINVAL,
            "field \"id\": there is no column \"n\"", "other fields are needed");
    rig_close(&train);
}

static void csv_columns_without_names_are_taken_by_position(void)
{
    rig_t train = open_stage(NULL, PL_TRAIN, NAMED, "");
    rig_t plain = open_stage(train.info.data_info, PL_TEST, "1,10,5,0\n", "");
    is_int(plain.code, PL_OK, "opened: %s", plain.err.text);
    like(logged, "^1 .*by position: the file has no header", "%s", logged);
    rig_close(&plain);
    rig_close(&train);
    train = open_stage(NULL, PL_TRAIN, "1,10,0\n2,20,1\n", "");
    plain = open_stage(train.info.data_info, PL_TEST, "b,a,y\n1,10,0\n", "");
    is_int(plain.code, PL_OK, "opened: %s", plain.err.text);
    like(logged, "^1 .*by position: the names .* are not known", "%s", logged);
    rig_close(&plain);
    plain = open_stage(train.info.data_info, PL_TEST, "1,10,0\n", "");
    is_text(logged, "", "two without a header are no reason to warn");
    rig_close(&plain);
    refused(open_stage(train.info.data_info, PL_TEST, "1,10,5,0\n",
                       ", \"standardize\": false"),
            PL_EINVAL, "other.csv: 3 features, but the training data had 2",
            "another number of columns");
    rig_close(&train);
}

/* Of 100 rows a third is of class 1; those that are held back are far from the others. */
static void statistics_check(const pl_data_split_t *split, bool stratify)
{
    char text[4096] = "", options[256];
    double sum = 0, squares = 0, worst = 0;
    const double rest = (double)(100 - split->held_count);
    for (int k = 0; k < 100; k++) {
        const bool held = pl_data_split_holds(split, k);
        sprintf(text + strlen(text), "%d,%d\n", held ? 1000000 + k : k, k % 3 == 1);
        sum += held ? 0 : k / rest;
    }
    for (int k = 0; k < 100; k++)
        squares += pl_data_split_holds(split, k) ? 0 : (k - sum) * (k - sum) / rest;
    snprintf(options, sizeof options, "{\"path\": \"%s\"}",
             file_put_text("split.csv", text));
    rig_t rig = rig_open_split(&pl_csv_dataset, 0.3, stratify, options);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    for (int64_t k = 0; k < 100; k++) {
        rig_read(&rig, 1, &k);
        if (!pl_data_split_holds(split, k))
            worst = fmax(worst, fabs(*(float *)rig.field[0]
                                     - ((double)k - sum) / sqrt(squares)));
    }
    ok(worst < 1e-6, "mean and deviation are those of the rows that are trained on%s",
       stratify ? ", of each class" : "");
    rig_close(&rig);
}

static void csv_statistics_leave_out_what_is_kept_for_validation(void)
{
    int64_t target[100];
    pl_data_split_t split = {0};
    pl_data_split_spec_t spec = {.seed = 42, .total = 100, .share = 0.3};
    pl_data_split_make(&split, &spec, NULL);
    statistics_check(&split, false);
    pl_data_split_release(&split);
    for (int k = 0; k < 100; k++)
        target[k] = k % 3 == 1;
    spec.target = target;
    pl_data_split_make(&split, &spec, NULL);
    statistics_check(&split, true);
    pl_data_split_release(&split);
}

static void put_labels(char *text, size_t size, int rows, int classes)
{
    text[0] = '\0';
    for (int k = 0; k < rows; k++)
        snprintf(text + strlen(text), size - strlen(text), "1,%d\n", k % classes);
}

static void csv_decides_once_what_the_target_is(void)
{
    static char text[65536];
    static const struct {
        int rows, classes;
        pl_dtype_t dtype;
    } cases[] = {{10, 10, PL_I64}, {11, 11, PL_F32},   {40, 20, PL_I64},
                 {41, 21, PL_F32}, {301, 301, PL_F32}, {3000, 1001, PL_F32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_labels(text, sizeof text, cases[i].rows, cases[i].classes);
        rig_t rig = open_stage(NULL, PL_TRAIN, text, "");
        ok(rig.code == PL_OK && rig.info.field[1].dtype == cases[i].dtype,
           "%d rows with labels below %d", cases[i].rows, cases[i].classes);
        like(logged,
             cases[i].dtype == PL_I64
                 ? "^2 .*column 1, is one of [0-9]+ classes in [0-9]+ rows; .*value"
                 : "^2 .*column 1, is a value: .*classes in [0-9]+ rows; .*class",
             "%s", logged);
        rig_close(&rig);
    }
    rig_t train = open_stage(NULL, PL_TRAIN, "1,0.5\n2,3\n", "");
    like(logged, "^2 .*is a value: not all values are whole", "%s", logged);
    rig_t beyond = open_stage(NULL, PL_TRAIN, "1,0\n2,1\n3,99999999999\n", "");
    like(logged, "^2 .*is a value: 99999999999 is more than 16777215", "%s", logged);
    rig_close(&beyond);
    rig_t one = open_stage(NULL, PL_TRAIN, "1,0\n", "");
    like(logged, "^2 .*has only 1 class in 1 row;", "%s", logged);
    rig_close(&one);
    rig_t test = open_stage(train.info.data_info, PL_TEST, "1,1\n2,3\n", "");
    ok(test.code == PL_OK && test.info.field[1].dtype == PL_F32,
       "whole numbers of another file are values, too: %s", test.err.text);
    is_text(logged, "", "which is no new decision");
    rig_close(&test);
    rig_close(&train);
    train = open_stage(NULL, PL_TRAIN, "1,0\n2,1\n", "");
    refused(open_stage(train.info.data_info, PL_TEST, "1,0.5\n", ""), PL_EFORMAT,
            "label is 0.5.*training data has classes.*train with \"target\": \"value\"",
            "a value where training had classes");
    rig_close(&train);
}

static void csv_names_what_is_wrong(void)
{
    const char *path = file_put_text("w.csv", "a,b\n1,0\n2,0.5\n1e300,1\n");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"target\": \"class\"}", path),
            PL_EFORMAT, "w.csv:3: the label is 0.5; classes", "a label that is no class");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"target\": \"class\"}",
                     file_put_text("large.csv", "a,b\n1,0\n2,-12345678\n3,5\n")),
            PL_EFORMAT, "large.csv:3: the label is -12345678; classes",
            "a whole number is shown whole");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"target\": \"class\"}",
                     file_put_text("large.csv", "a,b\n1,0\n2,99999999999\n")),
            PL_EFORMAT,
            "label is 99999999999, but the largest possible label is 16777215",
            "a label past the limit");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path), PL_EFORMAT,
            "w.csv:4: field 1 is 1e\\+300, too large", "a number past float32");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\", \"label\": 2}", path),
            PL_EINVAL, "\"label\" is 2, but the columns are 0 to 1",
            "a column that is not there");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\", \"header\": \"no\"}",
                     path),
            PL_EFORMAT, "w.csv:1:3: field 2: \"b\"", "a header that is not wanted");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                     file_put_text("h.csv", "a,b\n")),
            PL_EFORMAT, "nothing below the header", "a header alone");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                     file_put_text("1.csv", "1\n2\n")),
            PL_EFORMAT, "no features", "a label alone");
}

static void iris_and_digits_are_served(void)
{
    const char *path = tap_data("tabular/iris.csv");
    if (!path) {
        tap_skip("PACELINE_TEST_DATA is not set");
        return;
    }
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"header\": \"yes\"}", path);
    ok(rig.info.samples == 150 && has_field(&rig, 0, "x", PL_F32, "4"), "iris");
    like(rig.info.data_info,
         "\\{\"classes\": 3, \"shape\": \\[4\\], \"columns\": .*, \"standardize\": "
         ".*\\]\\]\\}$",
         "data info");
    rig_close(&rig);
    rig = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                   tap_data("tabular/digits.csv.gz"));
    ok(rig.info.samples == 1797 && has_field(&rig, 0, "x", PL_F32, "64"), "digits");
    like(rig.info.data_info, "^\\{\"classes\": 10, \"shape\": \\[64\\], ", "data info");
    rig_close(&rig);
}

/* ---- npy ---- */

static const char *put_npy(const char *name, const char *descr, const char *shape,
                           const void *data, size_t size)
{
    char file[1024] = "\x93NUMPY\x01";
    int length = sprintf(file + 10,
                         "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n",
                         descr, shape);
    memcpy(file + 8, (uint8_t[]){(uint8_t)length, 0}, 2);
    memcpy(file + 10 + length, data, size);
    return file_put(name, file, 10 + (size_t)length + size);
}

static void npy_serves_every_type(void)
{
    static const double doubles[] = {1, 2, 3, 4.5, 5, 6};
    static const int32_t ints[] = {0, 4, 2};
    const char *x = put_npy("x.npy", "<f8", "3, 2", doubles, sizeof doubles);
    const char *y = put_npy("y.npy", "<i4", "3,", ints, sizeof ints);
    rig_t rig = rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"y\": \"%s\"}", x,
                         y);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.samples == 3 && has_field(&rig, 0, "x", PL_F32, "2")
           && has_field(&rig, 1, "y", PL_I64, ""),
       "fields");
    is_text(rig.info.data_info, "{\"classes\": 5, \"shape\": [2]}", "data info");
    is_int(rig_read(&rig, INDEX(1, 0)), PL_OK, "read");
    ok(((float *)rig.field[0])[1] == 4.5f && ((float *)rig.field[0])[2] == 1
           && ((int64_t *)rig.field[1])[0] == 4,
       "doubles as float32, integers as int64");
    rig_close(&rig);

    rig = rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\"}",
                   put_npy("u.npy", "|u1", "2, 1, 2", "\x01\x02\xff\x04", 4));
    rig_read(&rig, INDEX(1));
    ok(has_field(&rig, 0, "x", PL_F32, "1,2") && rig.info.field_count == 1
           && ((float *)rig.field[0])[0] == 255,
       "bytes as float32; no targets");
    rig_close(&rig);

    rig = rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\"}", y);
    rig_read(&rig, INDEX(2));
    ok(has_field(&rig, 0, "x", PL_I32, "") && *(int32_t *)rig.field[0] == 2,
       "integers of x stay");
    rig_close(&rig);
}

static void labels_are_numbers_of_classes(void)
{
    const float x[] = {1, 2, 3};
    const char *xs = put_npy("lx.npy", "<f4", "3, 1", x, sizeof x);
    const char *huge = put_npy("huge.npy", "<i8", "3,",
                               (const int64_t[]){0, 3000000000, 1}, 24);
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"y\": \"%s\"}", xs,
                     huge),
            PL_EFORMAT, "huge.npy: element 1 is 3000000000, .* is 16777215",
            "a label that would fill the memory");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"target\": \"class\"}",
                     file_put_text("huge.csv", "a,y\n1,0\n2,20000000\n")),
            PL_EFORMAT, "huge.csv:3: the label is 20000000, .* is 16777215",
            "also in a table");
    static const unsigned char huge_ints[] = {0, 0, 12, 1, 0, 0, 0, 2,
                                              1, 0, 0,  0, 0, 0, 0, 3};
    char folder[512];
    snprintf(folder, sizeof folder, "%s/huge", tap_folder());
    mkdir(folder, 0700);
    file_put("huge/train-images-idx3-ubyte", two_images, sizeof two_images);
    file_put("huge/train-labels-idx1-int", huge_ints, sizeof huge_ints);
    refused(open_idx(PL_TRAIN, "huge", ""), PL_EFORMAT,
            "record 0: the label is 16777216; .* to 16777215", "and in an IDX file");
}

static void labels_that_start_at_1_are_warned_of(void)
{
    const float x[] = {1, 2, 3};
    static const int64_t labels[2][3] = {{1, 2, 3}, {1, 0, 3}};
    static const char idx_labels[2][10] = {{0, 0, 8, 1, 0, 0, 0, 2, 1, 2},
                                           {0, 0, 8, 1, 0, 0, 0, 2, 0, 2}};
    pl_log_hook(hear, PL_LOG_DEBUG, NULL);
    for (int k = 0; k < 2; k++) {
        *logged = '\0';
        rig_t rig = rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"y\": \"%s\"}",
                             put_npy("lx.npy", "<f4", "3, 1", x, sizeof x),
                             put_npy("from.npy", "<i8", "3,", labels[k], 24));
        is_int(strstr(logged, "from.npy: the labels are 1 to 3 and none is 0") != NULL,
               k == 0, "npy: %s", logged);
        rig_close(&rig);
        *logged = '\0';
        file_put("train-images-idx3-ubyte", two_images, sizeof two_images);
        file_put_gzip("train-labels-idx1-ubyte.gz", idx_labels[k], sizeof idx_labels[k]);
        rig = rig_open(&pl_idx_dataset, PL_TRAIN, "{\"path\": \"%s\"}", tap_folder());
        is_int(strstr(logged, "idx1-ubyte.gz: the labels are 1 to 2 and none is 0")
                   != NULL,
               k == 0, "idx: %s", logged);
        rig_close(&rig);
    }
    pl_log_hook(NULL, PL_LOG_ERROR, NULL);
}

/* One file of 20 rows, of which every third has no class. */
static void put_ignored(int ignored)
{
    char text[512] = "a,y\n";
    uint8_t images[16 + 40] = {0, 0, 8, 3, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 2};
    uint8_t labels[8 + 80] = {0, 0, 12, 1, 0, 0, 0, 20};
    char folder[512];
    int64_t y[20];
    float x[20] = {0};
    for (int k = 0; k < 20; k++) {
        y[k] = k % 3 == 2 ? ignored : k % 3;
        sprintf(text + strlen(text), "%d,%d\n", k, (int)y[k]);
        for (int byte = 0; byte < 4; byte++)
            labels[8 + 4 * k + byte] = (uint8_t)((uint32_t)y[k] >> (24 - 8 * byte));
    }
    snprintf(folder, sizeof folder, "%s/ignored", tap_folder());
    mkdir(folder, 0700);
    file_put_text("ignored.csv", text);
    file_put("ignored/train-images-idx3-ubyte", images, sizeof images);
    file_put("ignored/train-labels-idx1-ubyte", labels, sizeof labels);
    put_npy("ix.npy", "<f4", "20, 1", x, sizeof x);
    put_npy("iy.npy", "<i8", "20,", y, sizeof y);
}

static rig_t open_ignored(int kind, const char *more)
{
    const char *folder = tap_folder();
    char options[2048];
    if (kind == 0)
        snprintf(options, sizeof options, "{\"path\": \"%s/ignored.csv\"%s}", folder,
                 more);
    else if (kind == 1)
        snprintf(options, sizeof options, "{\"path\": \"%s/ignored\"%s}", folder, more);
    else
        snprintf(options, sizeof options,
                 "{\"x\": \"%s/ix.npy\", \"y\": \"%s/iy.npy\"%s}", folder, folder, more);
    return rig_open_split(kind == 0   ? &pl_csv_dataset
                          : kind == 1 ? &pl_idx_dataset
                                      : &pl_npy_dataset,
                          0.3, true, options);
}

static void labels_may_be_ignored(void)
{
    static const char *const none[] = {
        "ignored.csv:4: the label is -7; .*; the label -100 is ignored .ignore_index.",
        "idx1-ubyte: record 2: the label is -7; .*, and -100 is ignored .ignore_index."};
    for (int kind = 0; kind < 3; kind++) {
        put_ignored(-100);
        rig_t rig = open_ignored(kind, "");
        is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
        like(rig.info.data_info, "\"classes\": 2,", "-100 is no class");
        rig_read(&rig, INDEX(1, 2));
        ok(rig.info.field[1].dtype == PL_I64 && ((int64_t *)rig.field[1])[0] == 1
               && ((int64_t *)rig.field[1])[1] == -100,
           "the module gets it as it is");
        rig_close(&rig);
        put_ignored(255);
        rig = open_ignored(kind, ", \"ignore_index\": 255");
        is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
        like(rig.info.data_info, "\"classes\": 2,", "nor is what the option says");
        rig_close(&rig);
        put_ignored(-7);
        if (kind < 2)
            refused(open_ignored(kind, kind ? "" : ", \"target\": \"class\""), PL_EFORMAT,
                    none[kind], "another number below 0");
    }
}

static void labels_that_are_all_ignored_are_warned_of(void)
{
    const float x[] = {1, 2, 3};
    const int64_t y[] = {-1, -1, -100};
    pl_log_hook(hear, PL_LOG_DEBUG, NULL);
    *logged = '\0';
    rig_t rig = rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"y\": \"%s\"}",
                         put_npy("lx.npy", "<f4", "3, 1", x, sizeof x),
                         put_npy("below.npy", "<i8", "3,", y, sizeof y));
    like(logged, "below.npy: every label is negative or the ignore_index", "npy");
    rig_close(&rig);
    *logged = '\0';
    rig = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                   file_put_text("below.csv", "1,-100\n2,-100\n"));
    like(logged, "below.csv: every label is negative or the ignore_index", "csv");
    is_int(rig.info.field[1].dtype, PL_I64, "whose labels stay such");
    rig_close(&rig);
    pl_log_hook(NULL, PL_LOG_ERROR, NULL);
}

static void more_classes_than_samples_are_warned_of(void)
{
    static const int64_t largest[] = {1000000, 15, 9};
    static const int samples[] = {16, 16, 2};
    float x[16] = {0};
    pl_log_hook(hear, PL_LOG_DEBUG, NULL);
    for (int k = 0; k < 3; k++) {
        char shape[2][16];
        int64_t y[16] = {largest[k], 0};
        sprintf(shape[0], "%d, 1", samples[k]), sprintf(shape[1], "%d,", samples[k]);
        *logged = '\0';
        rig_t rig =
            rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"y\": \"%s\"}",
                     put_npy("lx.npy", "<f4", shape[0], x, (size_t)samples[k] * 4),
                     put_npy("many.npy", "<i8", shape[1], y, (size_t)samples[k] * 8));
        is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
        is_int(strstr(logged, "many.npy: the largest label is 1000000, so there are "
                              "1000001 classes, but only 16 samples")
                   != NULL,
               k == 0, "a label of %d in %d samples: %s", (int)largest[k], samples[k],
               logged);
        is_int(*logged != '\0', k == 0, "nothing else is");
        rig_close(&rig);
    }
    pl_log_hook(NULL, PL_LOG_ERROR, NULL);
}

static void npy_has_as_many_fields_as_files(void)
{
    static const float weights[] = {0.5f, 2};
    static const int64_t tokens[] = {7, 8, 9, 10};
    const char *x = put_npy("fx.npy", "|u1", "2,", "\x01\x02", 2);
    const char *w = put_npy("fw.npy", "<f4", "2,", weights, sizeof weights);
    const char *t = put_npy("ft.npy", "<i8", "2, 2", tokens, sizeof tokens);
    rig_t rig = rig_open(&pl_npy_dataset, PL_TRAIN,
                         "{\"x\": \"%s\", \"fields\": {\"weight\": \"%s\", "
                         "\"text\": \"%s\"}}",
                         x, w, t);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.field_count == 3 && has_field(&rig, 1, "weight", PL_F32, "")
           && has_field(&rig, 2, "text", PL_I64, "2"),
       "by the names that were given");
    is_text(rig.info.data_info, "{\"shape\": []}", "classes are y's alone");
    rig_read(&rig, INDEX(1));
    ok(*(float *)rig.field[1] == 2 && ((int64_t *)rig.field[2])[1] == 10, "read");
    rig_close(&rig);
    refused(rig_open(&pl_npy_dataset, PL_TRAIN,
                     "{\"x\": \"%s\", \"fields\": {\"x\": \"%s\"}}", x, w),
            PL_EINVAL, "\"x\" already exists", "a name twice");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN,
                     "{\"x\": \"%s\", \"fields\": {\"one\": \"%s\"}}", x,
                     put_npy("f1.npy", "|u1", "1,", "\x01", 1)),
            PL_EFORMAT, "f1.npy: 1 samples, but .*fx.npy has 2", "another count");
}

/* ---- The scale of values ---- */

enum { VALUES = 100 };

/* The data info has the scale of the values to train on. */
static void scale_check(rig_t *rig, const pl_data_split_t *split, const double *value)
{
    json_t *info = json_loads(rig->info.data_info, 0, NULL);
    const double mean = json_number_value(json_object_get(info, "target_mean")),
                 factor = json_number_value(json_object_get(info, "target_factor"));
    double sum = 0, squares = 0, count = 0;
    for (int k = 0; k < VALUES; k++) {
        const bool held = pl_data_split_holds(split, k);
        count += !held;
        sum += held ? 0 : value[k];
    }
    for (int k = 0; k < VALUES; k++)
        squares += pl_data_split_holds(split, k)
                       ? 0
                       : (value[k] - sum / count) * (value[k] - sum / count);
    ok(fabs(mean - sum / count) < 1e-9 && fabs(factor - sqrt(count / squares)) < 1e-9,
       "mean %g and factor %g of the values that are trained on: %s", sum / count,
       sqrt(count / squares), rig->info.data_info);
    json_decref(info);
}

static void values_of_arrays_have_the_scale_of_the_training_part(void)
{
    double y[VALUES];
    float x[VALUES], both[VALUES][2];
    char options[300];
    pl_data_split_t split = {0}, none = {0};
    pl_data_split_make(&split,
                       &(pl_data_split_spec_t){.seed = 42, .total = VALUES, .share = 0.3},
                       NULL);
    for (int k = 0; k < VALUES; k++) {
        y[k] = pl_data_split_holds(&split, k) ? 1e6 : 300 + k;
        both[k][0] = x[k] = (float)y[k];
        both[k][1] = 0.5f;
    }
    const char *ys = put_npy("sy.npy", "<f8", "100,", y, sizeof y),
               *xs = put_npy("sx.npy", "<f4", "100,", x, sizeof x);
    snprintf(options, sizeof options, "{\"x\": \"%s\", \"y\": \"%s\"}", xs, ys);
    rig_t rig = rig_open_split(&pl_npy_dataset, 0.3, false, options);
    is_int(rig.code, PL_OK, "npy: %s", rig.err.text);
    scale_check(&rig, &split, y);
    rig_t test = rig_open_told(&pl_npy_dataset, PL_TEST, rig.info.data_info, options);
    is_text(test.info.data_info, "{\"shape\": []}", "other data have no scale");
    rig_close(&test);
    rig_close(&rig);
    rig = rig_open_share(&pl_npy_dataset, PL_TRAIN, 0, 1, options);
    scale_check(&rig, &none, y);
    rig_close(&rig);
    rig = rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"y\": \"%s\"}", xs,
                   put_npy("s2.npy", "<f4", "100, 2", both, sizeof both));
    like(rig.info.data_info,
         "\"target_means\": .[0-9.]+,0.5., \"target_factors\": .*,1.0",
         "several targets; one that is constant keeps its size: %s", rig.info.data_info);
    rig_close(&rig);

    pl_arrays_t arrays = {.samples = VALUES,
                          .field_count = 2,
                          .field = {{"x", PL_F32, {0}}, {"y", PL_F32, {0}}},
                          .data = {x, x}};
    pl_memory_arrays("scaled", &arrays, NULL);
    rig = rig_open_split(&pl_memory_dataset, 0.3, false, "{\"source\": \"scaled\"}");
    scale_check(&rig, &split, y);
    rig_close(&rig);
    arrays.data_info = "{\"target_mean\": 7, \"target_factor\": 2}";
    pl_memory_arrays("scaled", &arrays, NULL);
    rig = rig_open_split(&pl_memory_dataset, 0.3, false, "{\"source\": \"scaled\"}");
    is_text(rig.info.data_info, arrays.data_info, "the program's own scale is kept");
    rig_close(&rig);
    pl_memory_data("scaled", NULL, NULL);
    pl_data_split_release(&split);
}

static void npy_samples_may_differ_in_length(void)
{
    static const int64_t offsets[] = {0, 3, 4, 6}, crossed[] = {0, 3, 3, 6};
    static const float weights[] = {1, 2, 3};
    const char *x = put_npy("vx.npy", "|u1", "6,", "\x01\x02\x03\x04\x05\x06", 6);
    const char *w = put_npy("vw.npy", "<f4", "3,", weights, sizeof weights);
    const char *o = put_npy("vo.npy", "<i8", "4,", offsets, sizeof offsets);
    rig_t rig = rig_open(&pl_npy_dataset, PL_TRAIN,
                         "{\"x\": \"%s\", \"y\": \"%s\", \"offsets\": \"%s\", "
                         "\"fields\": {\"weight\": \"%s\"}}",
                         x, x, o, w);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.samples == 3 && has_field(&rig, 0, "x", PL_F32, "-1")
           && has_field(&rig, 1, "y", PL_I64, "-1")
           && has_field(&rig, 2, "weight", PL_F32, ""),
       "what is as long as the last offset varies");
    ok(rig.ops->length(rig.self, 0) == 3 && rig.ops->length(rig.self, 1) == 1
           && rig.ops->length(rig.self, 2) == 2,
       "lengths");
    ok(rig.info.padding[0] == 0 && rig.info.padding[1] == -1, "targets are padded by -1");
    float read[6] = {0}, weight[2];
    int64_t y[6] = {-1, -1, -1, -1, -1, -1};
    const pl_read_request_t request = {.index = (int64_t[]){2, 1},
                                       .count = 2,
                                       .length = 3};
    is_int(rig.ops->read(rig.self, &request, (void *const[]){read, y, weight}, NULL),
           PL_OK, "read");
    ok(read[0] == 5 && read[1] == 6 && read[2] == 0 && read[3] == 4 && read[4] == 0
           && y[1] == 6 && y[2] == -1 && weight[0] == 3,
       "each begins as far behind the one before as the batch is long");
    rig_close(&rig);
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"offsets\": \"%s\"}", x,
                     put_npy("vc.npy", "<i8", "4,", crossed, sizeof crossed)),
            PL_EFORMAT, "vc.npy: offset 2 is 3, not above", "an empty sample");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"offsets\": \"%s\"}",
                     put_npy("v5.npy", "|u1", "5,", "\x01\x02\x03\x04\x05", 5), o),
            PL_EFORMAT, "v5.npy: 5 samples, but .*vo.npy has 3", "another length");
}

static void npy_names_what_is_wrong(void)
{
    const char *x = put_npy("x.npy", "|u1", "3,", "\x01\x02\x03", 3),
               *y = put_npy("y.npy", "|u1", "2,", "\x01\x02", 2);
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"y\": \"%s\"}", x, y),
            PL_EFORMAT, "y.npy: 2 samples, but .*x.npy has 3",
            "different numbers of samples");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\"}",
                     put_npy("s.npy", "|u1", "", "\x01", 1)),
            PL_EFORMAT, "s.npy: it is one number without axes", "a scalar");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\"}",
                     put_npy("e.npy", "|u1", "0, 2", "", 0)),
            PL_EFORMAT, "e.npy: there are no samples", "nothing");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"/nowhere.npy\"}"),
            PL_ENOTFOUND, "/nowhere.npy", "a file that is not there");
}

/* Runs are resumed with the order in which they began, also by later versions. */
static void a_shuffled_order_depends_on_seed_and_epoch_alone(void)
{
    const pl_sampler_t sampler = {.count = 100, .shuffle = true, .seed = 7};
    const uint64_t key = pl_mix(pl_mix(7, pl_hash_text("data.shuffle")), 3);
    int wrong = 0;
    for (int64_t k = 0; k < 100; k++)
        wrong += pl_sampler_at(&sampler, 3, k) != pl_permute_index(key, 100, k);
    is_int(wrong, 0, "the order is the permutation of the key of seed and epoch");
}

static void memory_may_run_out(void)
{
    put_mnist();
    opens_without_memory(&pl_idx_dataset, "path", tap_folder());
    opens_without_memory(&pl_csv_dataset, "path",
                         file_put_text("m.csv", "a,b\n1,2\n3,4\n"));
    opens_without_memory(&pl_npy_dataset, "x",
                         put_npy("m.npy", "|u1", "2,", "\x01\x02", 2));
}

int main(void)
{
    run(a_shuffled_order_depends_on_seed_and_epoch_alone);
    run(idx_gives_scaled_pixels_and_labels);
    run(idx_names_what_is_wrong);
    run(idx_files_may_have_other_names);
    run(idx_labels_are_those_of_the_images);
    run(idx_pixels_may_be_of_any_type);
    run(idx_predicts_without_labels);
    run(mnist_is_served);
    run(csv_tells_classes_from_values);
    run(csv_columns_may_be_fields_of_their_own);
    run(csv_lines_may_end_with_a_delimiter);
    run(csv_names_have_no_spaces_around_them);
    run(csv_takes_the_target_by_its_name);
    run(csv_standardizes_each_column);
    run(csv_standardizes_by_the_moments_of_the_training_data);
    run(csv_does_not_scale_a_column_that_is_constant);
    run(a_stratified_split_keeps_the_proportions_of_classes);
    run(each_sample_is_in_one_fold);
    run(no_group_is_parted);
    run(csv_keeps_groups_together);
    run(csv_columns_are_matched_by_name);
    run(texts_that_are_all_rare_are_warned_of);
    run(csv_predicts_without_a_target_that_has_a_name);
    run(csv_predicts_without_weights);
    run(csv_columns_without_names_are_taken_by_position);
    run(csv_statistics_leave_out_what_is_kept_for_validation);
    run(csv_decides_once_what_the_target_is);
    run(csv_names_what_is_wrong);
    run(iris_and_digits_are_served);
    run(npy_serves_every_type);
    run(labels_are_numbers_of_classes);
    run(labels_that_start_at_1_are_warned_of);
    run(labels_may_be_ignored);
    run(labels_that_are_all_ignored_are_warned_of);
    run(more_classes_than_samples_are_warned_of);
    run(npy_has_as_many_fields_as_files);
    run(values_of_arrays_have_the_scale_of_the_training_part);
    run(npy_samples_may_differ_in_length);
    run(npy_names_what_is_wrong);
    run(memory_may_run_out);
    return tap_done();
}
