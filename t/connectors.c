/* connectors.c - tests of actors/connectors/data.c and what it is made of: reader.c,
 * data_loaders.c, prefetch_queue.c, sampler.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/connectors/connectors.h"
#include "actors/connectors/datasets/datasets.h"
#include "base/error.h"
#include "files.h"
#include "queen.h"
#include "scarce.h"
#include "tap.h"

#define MAX 4096                                            /* samples a test looks at */

static pl_address_t data;
static asked_t life;

/* ---- asking ---- */

/* Starts the connector for a "data" section; everything else of the run is default. */
static void start(const char *section)
{
    queen_open();
    pl_job_t *job = queen_job("{\"data\": %s, \"trainer\": {\"seed\": 7}}", section);
    data = queen_spawn(&pl_data_connector,
                       &(pl_start_t){.options = "", .context = &job->object}, &life);
    pl_object_unref(job);
}

static asked_t *open_partition(pl_stage_t stage, uint32_t partition, uint32_t partitions)
{
    const pl_open_data_t fields = {.stage = stage,
                                   .partition = partition,
                                   .partitions = partitions};
    return queen_call(data, PL_MESSAGE_open_data, &fields);
}

static asked_t *open_data(pl_stage_t stage)
{
    return open_partition(stage, 0, 1);
}

/* Starts, opens for a fit and leaves the signature with the caller. */
static pl_batch_signature_t start_open(const char *section)
{
    pl_batch_signature_t signature = {.object = {0}};
    start(section);
    asked_t *opened = open_data(PL_TRAIN);
    if (opened->object)
        signature = *(pl_batch_signature_t *)opened->object;
    return signature;
}

static asked_t *begin(pl_stage_t stage, uint32_t epoch)
{
    const pl_begin_t fields = {.stage = stage, .epoch = epoch};
    return queen_call(data, PL_MESSAGE_begin, &fields);
}

static asked_t *fetch(pl_stage_t stage)
{
    return queen_call(data, PL_MESSAGE_fetch_batch, &(pl_fetch_batch_t){.stage = stage});
}

/* Without waiting. */
static void ask_fetch(asked_t *asked)
{
    const pl_fetch_batch_t fields = {.stage = PL_TRAIN};
    queen_ask(asked, data, PL_MESSAGE_fetch_batch, &fields);
}

/* ---- what came ---- */

typedef struct pass {
    int batches, samples;
    int size[MAX];                                          /* of each batch */
    int64_t x[MAX], noise[MAX];                             /* of each sample */
    bool stage_is_right, aligned, numbered;
} pass_t;

static void pass_add(pass_t *pass, pl_stage_t stage, const asked_t *fetched)
{
    const pl_batch_t *batch = (const pl_batch_t *)fetched->object;
    const int64_t *x = batch->field[0];
    const uint8_t *y = batch->field[1];
    for (int k = 0; k < batch->count; k++) {
        pass->x[pass->samples] = x[2 * k];
        pass->noise[pass->samples++] = x[2 * k + 1];
        pass->stage_is_right &= y[k] == stage;
    }
    pass->aligned &= (uintptr_t)x % 64 == 0 && (uintptr_t)y % 64 == 0;
    pass->numbered &= fetched->body.fetch_batch_reply.batch_idx == (uint32_t)pass->batches
                      && fetched->body.fetch_batch_reply.samples == batch->count;
    pass->size[pass->batches++] = (int)batch->count;
}

/* Fetches up to the end of a pass that has begun; from malloc(). */
static pass_t *iter_idle(pl_stage_t stage)
{
    pass_t *pass = calloc(1, sizeof *pass);
    pass->stage_is_right = pass->aligned = pass->numbered = true;
    for (asked_t *fetched; (fetched = fetch(stage))->object;)
        pass_add(pass, stage, fetched);
    return pass;
}

static pass_t *pass_of(pl_stage_t stage, uint32_t epoch)
{
    begin(stage, epoch);
    return iter_idle(stage);
}

static bool passes_equal(const pass_t *a, const pass_t *b)
{
    return a->samples == b->samples && a->batches == b->batches
           && !memcmp(a->size, b->size, sizeof a->size)
           && !memcmp(a->x, b->x, sizeof a->x)
           && !memcmp(a->noise, b->noise, sizeof a->noise);
}

/* How often each of [0, samples) came, as one number: -1 when not all as often. */
static int count_per_sample(const pass_t *a, const pass_t *b, int samples)
{
    int seen[MAX] = {0};
    for (int k = 0; k < a->samples; k++)
        seen[a->x[k]]++;
    for (int k = 0; b && k < b->samples; k++)
        seen[b->x[k]]++;
    for (int k = 1; k < samples; k++)
        if (seen[k] != seen[0])
            return -1;
    return seen[0];
}

static bool is_rising(const pass_t *pass)
{
    for (int k = 1; k < pass->samples; k++)
        if (pass->x[k] <= pass->x[k - 1])
            return false;
    return true;
}

/* ---- order ---- */

static void batches_are_the_same_whatever_reads_them(void)
{
    static const struct {
        int workers, prefetch;
    } ways[] = {{1, 1}, {1, 4}, {2, 1}, {2, 3}, {3, 64}};
    pass_t *first[2] = {NULL};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        char section[256];
        snprintf(section, sizeof section,
                 "{\"name\": \"numbers\", \"samples\": 1000, \"batch_size\": 16, "
                 "\"workers\": %d, \"prefetch\": %d}",
                 ways[way].workers, ways[way].prefetch);
        start_open(section);
        for (uint32_t epoch = 0; epoch < 2; epoch++) {
            pass_t *pass = pass_of(PL_TRAIN, epoch);
            if (!first[epoch])
                first[epoch] = pass;
            ok(passes_equal(pass, first[epoch]), "%d readers, %d ahead, epoch %u",
               ways[way].workers, ways[way].prefetch, epoch);
            if (pass != first[epoch])
                free(pass);
        }
        queen_close();
    }
    ok(first[0]->stage_is_right && first[0]->aligned && first[0]->numbered,
       "batches are aligned, numbered and read for their stage");
    ok(memcmp(first[0]->x, first[1]->x, sizeof first[0]->x) != 0,
       "the second epoch has another order");
    ok(!is_rising(first[0]), "not the order of the file");
    free(first[0]);
    free(first[1]);
}

static void every_sample_comes_once_in_an_epoch(void)
{
    start_open("{\"name\": \"numbers\", \"samples\": 1000, \"batch_size\": 7}");
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        pass_t *pass = pass_of(PL_TRAIN, epoch);
        is_int(count_per_sample(pass, NULL, 1000), 1, "in epoch %u", epoch);
        free(pass);
    }
    queen_close();
}

static void the_order_without_shuffle_is_the_order_of_the_data(void)
{
    start_open("{\"name\": \"numbers\", \"samples\": 100, \"batch_size\": 7, "
               "\"shuffle\": false, \"val_split\": 0.25}");
    pass_t *train = pass_of(PL_TRAIN, 3), *validation = pass_of(PL_VALIDATE, 3);
    ok(is_rising(train) && train->samples == 75, "training");
    ok(is_rising(validation) && validation->samples == 25, "validation");
    is_int(count_per_sample(train, validation, 100), 1, "with the split in it");
    free(train);
    free(validation);
    queen_close();
}

static void the_last_batch_is_smaller(void)
{
    pl_batch_signature_t signature = start_open(
        "{\"name\": \"numbers\", \"samples\": 10, "
        "\"batch_size\": 4}");
    is_int(signature.stage[PL_TRAIN].size[1].count, 2, "the signature says so");
    is_int(signature.stage[PL_TRAIN].batch_size, 4, "and how large the others are");
    is_int(begin(PL_TRAIN, 0)->body.begin_reply.batches, 3, "3 batches of 10 samples");
    pass_t *pass = iter_idle(PL_TRAIN);
    ok(pass->batches == 3 && pass->size[0] == 4 && pass->size[1] == 4
           && pass->size[2] == 2,
       "4, 4 and 2");
    ok(!fetch(PL_TRAIN)->object && fetch(PL_TRAIN)->error.code == PL_OK,
       "the end stays the end");
    free(pass);
    queen_close();
    signature = start_open("{\"name\": \"numbers\", \"samples\": 8, \"batch_size\": 4}");
    is_int(signature.stage[PL_TRAIN].size[1].count, 0, "none is when they come out even");
    queen_close();
}

/* A pass over one part of the samples, and what the signature said of its batches. */
static pass_t *pass_of_partition(const char *section, uint32_t partition,
                                 uint32_t partitions, pl_batch_signature_t *signature)
{
    start(section);
    *signature =
        *(pl_batch_signature_t *)open_partition(PL_TRAIN, partition, partitions)->object;
    pass_t *pass = pass_of(PL_TRAIN, 3);
    queen_close();
    return pass;
}

/* Every sample in one partition, as many batches in each, of the announced sizes. */
static void components_check(const char *section, uint32_t partitions, int samples)
{
    pass_t *all = calloc(1, sizeof *all);
    bool reported = true, alike = true;
    for (uint32_t partition = 0; partition < partitions; partition++) {
        pl_batch_signature_t signature;
        pass_t *pass = pass_of_partition(section, partition, partitions, &signature);
        alike &= pass->batches == all->batches || partition == 0;
        all->batches = pass->batches;
        for (int k = 0; k < pass->batches; k++) {
            bool found = pass->size[k] == 0;
            for (int s = 0; s < signature.stage[PL_TRAIN].size_count; s++)
                found |= signature.stage[PL_TRAIN].size[s].count == pass->size[k];
            reported &= found && pass->size[k] <= signature.stage[PL_TRAIN].batch_size;
        }
        memcpy(all->x + all->samples, pass->x, sizeof *all->x * (size_t)pass->samples);
        all->samples += pass->samples;
        free(pass);
    }
    ok(all->samples == samples && count_per_sample(all, NULL, samples) == 1,
       "%d samples in %u parts: each is in one", samples, partitions);
    ok(alike, "all have %d batches", all->batches);
    ok(reported, "of the announced sizes");
    free(all);
}

static void partitions_share_the_samples(void)
{
    components_check("{\"name\": \"numbers\", \"samples\": 10, \"batch_size\": 2}", 3,
                     10);
    components_check("{\"name\": \"numbers\", \"samples\": 13, \"batch_size\": 3}", 4,
                     13);
    components_check("{\"name\": \"numbers\", \"samples\": 2, \"batch_size\": 4}", 4, 2);
    start("{\"name\": \"numbers\", \"samples\": 10, \"batch_size\": 2}");
    is_int(open_partition(PL_TRAIN, 3, 3)->error.code, PL_EINVAL,
           "there is no partition 3 of 3");
    queen_close();
}

/* What one rank takes for a batch of b, n ranks take for one of b/n each. */
static void partitions_of_a_batch_make_the_whole_one(void)
{
    pl_batch_signature_t signature;
    pass_t *whole = pass_of_partition("{\"name\": \"numbers\", \"samples\": 20, "
                                      "\"batch_size\": 4}",
                                      0, 1, &signature);
    pass_t *half[2];
    for (uint32_t partition = 0; partition < 2; partition++)
        half[partition] = pass_of_partition("{\"name\": \"numbers\", \"samples\": 20, "
                                            "\"batch_size\": 2}",
                                            partition, 2, &signature);
    bool same = true;
    for (int k = 0; k < 20; k++)
        same &= whole->x[k] == half[k % 2]->x[k / 2];
    ok(same, "sample by sample");
    free(whole), free(half[0]), free(half[1]);
}

static void an_iteration_begins_at_the_given_batch(void)
{
    start_open("{\"name\": \"numbers\", \"samples\": 10, \"batch_size\": 3}");
    pass_t *whole = pass_of(PL_TRAIN, 1), *rest = calloc(1, sizeof *rest);
    const pl_begin_t later = {.stage = PL_TRAIN, .epoch = 1, .first = 2},
                     past = {.stage = PL_TRAIN, .epoch = 1, .first = 9};
    is_int(queen_call(data, PL_MESSAGE_begin, &later)->body.begin_reply.batches, 4,
           "of 4 batches two are passed over");
    for (asked_t *fetched; (fetched = fetch(PL_TRAIN))->object;)
        pass_add(rest, PL_TRAIN, fetched);
    ok(rest->batches == 2 && rest->samples == 4
           && !memcmp(rest->noise, whole->noise + 6, 4 * sizeof *rest->noise),
       "the others are what they are in the whole pass");
    queen_call(data, PL_MESSAGE_begin, &past);
    ok(!fetch(PL_TRAIN)->object, "past the end is nothing");
    free(whole), free(rest);
    queen_close();
}

/* ---- sources ---- */

static void a_split_is_disjoint_and_complete(void)
{
    pl_batch_signature_t signature = start_open(
        "{\"name\": \"numbers\", \"samples\": 1001, "
        "\"val_split\": 0.2, \"batch_size\": 32}");
    is_int(signature.stage[PL_VALIDATE].samples, 200, "a fifth is held back");
    is_int(signature.stage[PL_TRAIN].samples, 801, "the rest is trained on");
    pass_t *train = pass_of(PL_TRAIN, 0), *validation = pass_of(PL_VALIDATE, 0),
           *again = pass_of(PL_VALIDATE, 5);
    is_int(count_per_sample(train, validation, 1001), 1, "together they are all");
    ok(is_rising(validation), "what is held back comes in the order of the data");
    ok(passes_equal(validation, again), "and is the same in every epoch");
    ok(validation->stage_is_right && train->stage_is_right, "each is read for its stage");
    is_int(numbers_state.opened, 1, "the data was opened once");
    free(train), free(validation), free(again);
    queen_close();
}

static void ordered_data_is_split_in_order(void)
{
    start_open("{\"name\": \"numbers\", \"samples\": 100, \"ordered\": true, "
               "\"val_split\": 0.1}");
    pass_t *train = pass_of(PL_TRAIN, 0), *validation = pass_of(PL_VALIDATE, 0);
    is_int(numbers_state.opened, 2, "it is opened twice");
    is_int(train->samples, 90, "training has the first share");
    ok(validation->samples == 10 && validation->x[0] == 90 && is_rising(validation),
       "validation the last");
    is_int(count_per_sample(train, validation, 100), 1, "nothing is lost");
    free(train), free(validation);
    queen_close();
}

static void sources_may_be_separate(void)
{
    pl_batch_signature_t signature = start_open(
        "{\"train\": {\"name\": \"numbers\", \"samples\": 20}, "
        "\"val\": {\"name\": \"numbers\", \"samples\": 5}, "
        "\"batch_size\": 4}");
    is_int(signature.stage[PL_TRAIN].samples, 20, "training data");
    is_int(signature.stage[PL_VALIDATE].samples, 5, "validation data");
    is_int(signature.stage[PL_VALIDATE].size[1].count, 1, "with its own last batch");
    ok(!signature.stage[PL_PREDICT].present, "no data to predict in a fit");
    ok(signature.stage[PL_VALIDATE].field_count == 2
           && !strcmp(signature.stage[PL_VALIDATE].field[0].name, "x")
           && signature.stage[PL_VALIDATE].field[0].shape.dim[0] == 2,
       "the signature has the fields");
    queen_close();
}

static void validation_data_may_be_missing(void)
{
    pl_batch_signature_t signature = start_open("{\"name\": \"numbers\"}");
    ok(signature.stage[PL_TRAIN].present && !signature.stage[PL_VALIDATE].present,
       "not there");
    is_int(begin(PL_VALIDATE, 0)->error.code, PL_ESTATE, "no pass begins");
    like(begin(PL_VALIDATE, 0)->error.text, "no validation data", "with the reason");
    is_int(fetch(PL_TRAIN)->error.code, PL_ESTATE, "nothing is fetched before a pass");
    is_int(begin(99, 0)->error.code, PL_EINVAL, "a stage must be one");
    queen_close();
}

static void data_to_predict_comes_in_order(void)
{
    start("{\"name\": \"numbers\", \"samples\": 50, \"batch_size\": 8, "
          "\"val_split\": 0.5}");
    pl_batch_signature_t *signature =
        (pl_batch_signature_t *)open_data(PL_PREDICT)->object;
    ok(signature->stage[PL_PREDICT].present && !signature->stage[PL_TRAIN].present,
       "alone");
    pass_t *pass = pass_of(PL_PREDICT, 0);
    ok(pass->samples == 50 && is_rising(pass) && pass->stage_is_right, "all, in order");
    free(pass);
    queen_close();
}

static void data_info_comes_with_the_signature(void)
{
    start("{\"name\": \"numbers\", \"vocabulary\": \"abc\"}");
    is_text(open_data(PL_TRAIN)->text, "{\"classes\": 10, \"vocabulary\": \"abc\"}",
            "as announced");
    is_int(open_data(PL_TRAIN)->error.code, PL_ESTATE, "data is opened once");
    queen_close();
}

#define KNOWN "{\"classes\": 10, \"vocabulary\": \"abc\"}"

static asked_t *open_knowing(pl_stage_t stage)
{
    const pl_open_data_t fields = {.stage = stage, .partitions = 1, .data_info = KNOWN};
    return queen_call(data, PL_MESSAGE_open_data, &fields);
}

/* Files that are no pictures cannot be decoded, which reading of a batch reports. */
static void a_stratified_split_of_files_reads_no_file(void)
{
    char text[4400], name[64];
    snprintf(text, sizeof text, "%s/kinds", tap_folder());
    mkdir(text, 0700);
    for (int k = 0; k < 8; k++) {
        snprintf(text, sizeof text, "%s/kinds/%s", tap_folder(), k % 2 ? "a" : "b");
        mkdir(text, 0700);
        snprintf(name, sizeof name, "kinds/%s/%d.png", k % 2 ? "a" : "b", k);
        file_put_text(name, "no picture");
    }
    snprintf(text, sizeof text,
             "{\"name\": \"pictures\", \"path\": \"%s/kinds\", \"stages\": "
             "[\"random_resized_crop 4\"], \"val_split\": 0.5, \"stratify\": true}",
             tap_folder());
    start(text);
    asked_t *opened = open_data(PL_TRAIN);
    is_int(opened->error.code, PL_OK, "the classes are known: %s", opened->error.text);
    queen_close();
}

static void data_sets_get_the_info_of_the_training_data(void)
{
    start("{\"train\": {\"name\": \"numbers\", \"vocabulary\": \"abc\"}, "
          "\"val\": {\"name\": \"numbers\", \"vocabulary\": \"abc\"}}");
    is_int(open_data(PL_TRAIN)->error.code, PL_OK, "opened");
    is_text(numbers_state.reported[PL_TRAIN], "", "training data stands for itself");
    is_text(numbers_state.reported[PL_VALIDATE], KNOWN, "validation data get it");
    queen_close();

    start("{\"name\": \"numbers\", \"ordered\": true, \"val_split\": 0.5}");
    open_knowing(PL_TRAIN);
    is_text(numbers_state.reported[PL_TRAIN], KNOWN,
            "with weights there was data before it");
    is_text(numbers_state.reported[PL_VALIDATE],
            "{\"classes\": 10, \"vocabulary\": \"\"}",
            "validation data still follows the training data of the run");
    queen_close();

    start("{\"name\": \"numbers\"}");
    open_knowing(PL_PREDICT);
    is_text(numbers_state.reported[PL_PREDICT], KNOWN, "data to predict too");
    queen_close();
}

static int64_t predicted(const char *section)
{
    start(section);
    pl_batch_signature_t *signature =
        (pl_batch_signature_t *)open_data(PL_PREDICT)->object;
    int64_t samples = signature ? signature->stage[PL_PREDICT].samples : -1;
    queen_close();
    return samples;
}

static void test_data_is_the_default_of_predictions(void)
{
    is_int(predicted("{\"train\": \"numbers\", "
                     "\"test\": {\"name\": \"numbers\", \"samples\": 5}}"),
           5, "the test data");
    is_int(predicted("{\"test\": {\"name\": \"numbers\", \"samples\": 5}, "
                     "\"predict\": {\"name\": \"numbers\", \"samples\": 6}}"),
           6, "or what is to be predicted");
    start("{\"train\": \"numbers\"}");
    like(open_data(PL_PREDICT)->error.text, "data.predict",
         "with neither, what lacks is named");
    queen_close();
}

/* 60 rows of class 0, 20 of class 1. */
static const char *put_classes(void)
{
    char text[1024] = "";
    for (int k = 0; k < 80; k++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%d,%d\n", k,
                 k % 4 == 3);
    return file_put_text("classes.csv", text);
}

/* Counts what a part validates on, by class, and adds up its samples. */
static void held_count(const char *section, uint32_t partition, uint32_t partitions,
                       int count[2], double *sum)
{
    start(section);
    open_partition(PL_TRAIN, partition, partitions);
    begin(PL_VALIDATE, 0);
    for (asked_t *fetched; (fetched = fetch(PL_VALIDATE))->object;) {
        const pl_batch_t *batch = (const pl_batch_t *)fetched->object;
        for (int k = 0; k < batch->count; k++) {
            count[((const int64_t *)batch->field[1])[k]]++;
            *sum += (double)((const float *)batch->field[0])[k];
        }
    }
    queen_close();
}

static void a_stratified_split_is_the_same_for_any_number_of_ranks(void)
{
    char section[512];
    int alone[2] = {0}, together[2] = {0};
    double sum = 0, other = 0;
    snprintf(section, sizeof section,
             "{\"name\": \"csv\", \"path\": \"%s\", \"standardize\": false, "
             "\"val_split\": 0.25, \"stratify\": true}",
             put_classes());
    held_count(section, 0, 1, alone, &sum);
    ok(alone[0] == 15 && alone[1] == 5, "a quarter of each class: %d and %d", alone[0],
       alone[1]);
    for (uint32_t partition = 0; partition < 3; partition++)
        held_count(section, partition, 3, together, &other);
    ok(together[0] == 15 && together[1] == 5 && other == sum, "of three ranks as well");
}

/* What opening a data section comes to. */
static void open_refused(const char *section, int code, const char *pattern)
{
    start(section);
    asked_t *opened = open_data(PL_TRAIN);
    is_int(opened->error.code, code, "%s", section);
    like(opened->error.text, pattern, "and says why");
    queen_close();
    is_int(numbers_state.closed, numbers_state.opened, "nothing stays open");
}

static void a_file_that_is_missing_is_named_with_its_key(void)
{
    open_refused("{\"name\": \"csv\", \"path\": \"none.csv\"}", PL_ENOTFOUND,
                 "^[^ ]+:1:[0-9]+: \"data.path\": data set \"csv\": none.csv: No such");
    open_refused("{\"name\": \"csv\", \"path\": \"none.csv\", "
                 "\"package\": \"none-data\"}",
                 PL_ENOTFOUND, "none.csv: No such .*; .*: apt-get install none-data$");
    open_refused("{\"name\": \"csv\", \"path\": \"none.csv\", \"package\": \"a; rm b\"}",
                 PL_ENOTFOUND, "none.csv: No such file or directory$");
    open_refused("{\"train\": \"numbers\", \"val\": [\"numbers\", {\"name\": \"npy\", "
                 "\"x\": \"none.npy\"}]}",
                 PL_ENOTFOUND, "^[^ ]+:1:[0-9]+: \"data.val.1.x\": .*none.npy: No such");
    char columns[1024];
    snprintf(columns, sizeof columns,
             "{\"package\": \"none-data\", \"train\": {\"name\": \"csv\", \"path\": "
             "\"%s\"}, \"val\": {\"name\": \"csv\", \"path\": \"%s\"}}",
             file_put_text("columns.csv", "a,b\n1,0\n2,1\n"),
             file_put_text("others.csv", "c,b\n1,0\n2,1\n"));
    open_refused(columns, PL_ENOTFOUND, "data.val.path\": .*no column \"a\"[^;]*$");
    open_refused("{\"train\": {\"name\": \"csv\", \"header\": \"no\", "
                 "\"path\": \"none.csv\"}}",
                 PL_ENOTFOUND, ": \"data.train.path\": .*csv\": none.csv: No such");
    open_refused("{\"name\": \"npy\", \"y\": \"x.npy\", \"x\": \"no_x.npy\", \"fields\": "
                 "{\"w\": \"directory\"}}",
                 PL_ENOTFOUND, ": \"data.x\": .*: no_x.npy: No such");
    open_refused("{\"name\": \"idx\", \"path\": \"no-such-folder\", \"images\": \"a\", "
                 "\"labels\": \"folder\"}",
                 PL_ENOTFOUND, ": \"data.images\": .*: no-such-folder/a: No such");
    open_refused("{\"name\": \"idx\", \"path\": \"no-such-folder\", \"prefix\": \"no\"}",
                 PL_ENOTFOUND, ": \"data.path\": .*: no-such-folder/no");
}

static void data_without_classes_cannot_be_split_by_class(void)
{
    char section[512];
    snprintf(section, sizeof section,
             "{\"name\": \"csv\", \"path\": \"%s\", \"target\": \"value\", "
             "\"val_split\": 0.25, \"stratify\": true}",
             put_classes());
    open_refused(section, PL_EINVAL, "data set \"csv\": data.stratify needs classes");
    open_refused("{\"name\": \"numbers\", \"ordered\": true, \"val_split\": 0.5, "
                 "\"stratify\": true}",
                 PL_EINVAL, "data set \"numbers\": data.stratify needs classes");
}

static void data_that_cannot_be_used_is_refused(void)
{
    open_refused("{\"name\": \"numbers\", \"samples\": 0}", PL_EFORMAT,
                 "data set \"numbers\".*no samples");
    open_refused("{\"name\": \"numbers\", \"broken\": true}", PL_EIO,
                 "data set \"numbers\": numbers.txt: cannot be opened");
    open_refused("{\"name\": \"numbers\", \"val_split\": 0.01}", PL_EINVAL,
                 "val_split 0.01 of 10 samples leaves nothing to validate on");
    open_refused("{\"name\": \"numbers\", \"val_split\": 0.99}", PL_EINVAL,
                 "nothing to train on");
    open_refused("{\"name\": \"numbers\", \"ordered\": true, \"val_split\": 0.01}",
                 PL_EFORMAT, "no samples");
    open_refused("{\"name\": \"halves\"}", PL_EUSER, "\"halves\": its table lacks");
    open_refused("{\"name\": \"unknown\"}", PL_ENOTFOUND, "no dataset \"unknown\"");
    open_refused("{\"val\": \"numbers\"}", PL_ENOTFOUND, "data.train");
    open_refused("{\"train\": {\"name\": \"numbers\", \"vocabulary\": \"ab\"}, "
                 "\"val\": {\"name\": \"numbers\", \"vocabulary\": \"abc\"}}",
                 PL_EINVAL, "another \"vocabulary\"");
    start("{\"name\": \"numbers\"}");
    is_int(open_data(PL_PREDICT)->error.code, PL_OK, "others can be opened");
    queen_close();
}

/* ---- errors ---- */

static void a_record_that_cannot_be_read_is_named(void)
{
    for (int mute = 0; mute < 2; mute++) {
        char section[256];
        snprintf(section, sizeof section,
                 "{\"name\": \"numbers\", \"samples\": 20, \"fail\": 13, \"mute\": %s, "
                 "\"batch_size\": 4, \"shuffle\": false}",
                 mute ? "true" : "false");
        start_open(section);
        begin(PL_TRAIN, 0);
        for (int k = 0; k < 3; k++)
            ok(fetch(PL_TRAIN)->object, "batch %d is fine", k);
        asked_t *failed = fetch(PL_TRAIN);
        is_int(failed->error.code, mute ? PL_EUSER : PL_EIO, "the fourth is not");
        like(failed->error.text,
             mute ? "\"numbers\", record 13: it failed without"
                  : "\"numbers\", record 13: numbers.txt: cut off",
             "data set, record and reason");
        like(failed->error.where, "io.reader", "and the reader");
        asked_t *next = fetch(PL_TRAIN);
        is_int(next->object ? ((int64_t *)((pl_batch_t *)next->object)->field[0])[0] : -1,
               16, "the one after it comes");
        ok(!fetch(PL_TRAIN)->object, "then the end");
        queen_close();
    }
}

/* ---- passes and fetches ---- */

static void a_new_iteration_drops_the_old_one(void)
{
    start_open("{\"name\": \"numbers\", \"samples\": 100, \"batch_size\": 5, "
               "\"workers\": 2}");
    pass_t *whole = pass_of(PL_TRAIN, 1);
    begin(PL_TRAIN, 0);
    fetch(PL_TRAIN);
    numbers_allow(0);
    asked_t waiting;
    begin(PL_TRAIN, 7);
    ask_fetch(&waiting);
    begin(PL_TRAIN, 1);
    queen_wait(&waiting);
    is_int(waiting.error.code, PL_ECANCELLED, "a fetch of the old pass ends");
    numbers_allow(-1);
    pass_t *pass = iter_idle(PL_TRAIN);
    ok(passes_equal(pass, whole), "nothing of it is in the new one");
    free(pass), free(whole);
    queen_close();
}

static bool were_read(int batches)
{
    for (int k = 0;
         k < 2000 && __atomic_load_n(&numbers_state.batches, __ATOMIC_ACQUIRE) < batches;
         k++)
        queen_turn();
    return __atomic_load_n(&numbers_state.batches, __ATOMIC_ACQUIRE) == batches;
}

static void the_next_epoch_is_read_ahead(void)
{
    pl_begin_t first = {.stage = PL_TRAIN, .again = true};
    start_open("{\"name\": \"numbers\", \"samples\": 100, \"batch_size\": 5, "
               "\"prefetch\": 4}");
    pass_t *whole = pass_of(PL_TRAIN, 1), *other = pass_of(PL_TRAIN, 3);
    queen_call(data, PL_MESSAGE_begin, &first);
    pass_t *pass = iter_idle(PL_TRAIN);
    is_int(pass->batches, 20, "a pass ends where it did, though more is read");
    ok(were_read(3 * 20 + 4), "what data.prefetch says of the next one is read");
    free(pass);
    pass = pass_of(PL_TRAIN, 1);
    ok(passes_equal(pass, whole), "which is then as ever");
    is_int(numbers_state.batches, 4 * 20, "and nothing is read twice");
    free(pass);
    first.epoch = 1;
    queen_call(data, PL_MESSAGE_begin, &first);
    pass = iter_idle(PL_TRAIN);
    free(pass);
    pass = pass_of(PL_TRAIN, 3);
    ok(passes_equal(pass, other), "another pass than that may follow as well");
    free(pass), free(whole), free(other);
    queen_close();
}

static void no_more_is_read_than_requested(void)
{
    const pl_fetch_batch_t one_of_two = {.stage = PL_TRAIN, .until = 2};
    start_open("{\"name\": \"numbers\", \"samples\": 100, \"batch_size\": 5, "
               "\"prefetch\": 4}");
    begin(PL_TRAIN, 0);
    queen_turn();
    is_int(numbers_state.batches, 0, "a pass of which nothing is fetched reads nothing");
    for (int k = 0; k < 2; k++)
        ok(queen_call(data, PL_MESSAGE_fetch_batch, &one_of_two)->object, "batch %d", k);
    queen_turn();
    is_int(numbers_state.batches, 2, "nor is more read than the two requested");
    ok(fetch(PL_TRAIN)->object, "a further request");
    ok(were_read(2 + 1 + 4), "has it, and what is read ahead of all");
    queen_close();
}

/* Beyond data.prefetch, and to a reader in company: all of it comes. */
static void an_awaited_batch_is_read(void)
{
    for (int workers = 1; workers <= 3; workers++) {
        enum { ASKED = 9 };
        char options[128];
        asked_t asked[ASKED];
        snprintf(options, sizeof options,
                 "{\"name\": \"numbers\", \"samples\": 100, \"batch_size\": 5, "
                 "\"prefetch\": 1, \"workers\": %d}",
                 workers);
        start_open(options);
        begin(PL_TRAIN, 0);
        for (int k = 0; k < ASKED; k++)
            ask_fetch(&asked[k]);
        for (int k = 0; k < ASKED; k++) {
            queen_wait(&asked[k]);
            is_int(asked[k].body.fetch_batch_reply.batch_idx, k, "batch %d comes", k);
            pl_object_unref(asked[k].object);
        }
        ok(were_read(ASKED + 1), "and one more is read ahead by %d", workers);
        queen_close();
    }
}

static void stages_have_iterations_of_their_own(void)
{
    start_open("{\"name\": \"numbers\", \"samples\": 100, \"val_split\": 0.5, "
               "\"batch_size\": 5, \"prefetch\": 2}");
    pass_t *whole = pass_of(PL_TRAIN, 2);
    begin(PL_TRAIN, 2);
    pass_t *pass = calloc(1, sizeof *pass);
    pass_add(pass, PL_TRAIN, fetch(PL_TRAIN));
    pass_add(pass, PL_TRAIN, fetch(PL_TRAIN));
    pass_t *validation = pass_of(PL_VALIDATE, 2);
    is_int(validation->samples, 50, "a validation in the midst of an epoch");
    for (asked_t *fetched; (fetched = fetch(PL_TRAIN))->object;)
        pass_add(pass, PL_TRAIN, fetched);
    ok(passes_equal(pass, whole), "leaves the epoch as it is");
    free(pass), free(whole), free(validation);
    queen_close();
}

static void fetches_are_answered_in_order(void)
{
    enum { FETCHES = 12 };
    asked_t asked[FETCHES];
    start_open("{\"name\": \"numbers\", \"samples\": 50, \"batch_size\": 5, "
               "\"workers\": 2, \"prefetch\": 3}");
    numbers_allow(0);
    begin(PL_TRAIN, 0);
    for (int k = 0; k < FETCHES; k++)
        ask_fetch(&asked[k]);
    queen_cancel(&asked[4]);
    numbers_allow(-1);
    int in_order = 0, expected = 0;
    for (int k = 0; k < FETCHES; k++) {
        queen_wait(&asked[k]);
        if (k == 4)
            continue;
        in_order += asked[k].body.fetch_batch_reply.batch_idx == (uint32_t)expected
                    || !asked[k].object;
        expected += asked[k].object != NULL;
        pl_object_unref(asked[k].object);
    }
    is_int(asked[4].error.code, PL_ECANCELLED, "a cancelled one ends");
    is_int(in_order, FETCHES - 1, "the others have the batches in order");
    is_int(expected, 10, "all batches");
    queen_close();
}

/* ---- checksums ---- */

/* A table of 64 MiB and 7 samples more; where its reads began. */
enum { WIDE_SAMPLES = (1 << 20) + 7, WIDE_READS = 8192 };

static struct {
    int count;
    int64_t first[WIDE_READS], last;
} wide;

static int wide_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                     pl_error_t *err)
{
    (void)self, (void)request, (void)err;
    *info = (pl_data_info_t){.samples = WIDE_SAMPLES,
                             .field_count = 1,
                             .field = {{"x", PL_F32, {1, {16}}}}};
    return PL_OK;
}

static int wide_read(const void *self, const pl_read_request_t *request,
                     void *const field[], pl_error_t *err)
{
    (void)self, (void)field, (void)err;
    if (wide.count < WIDE_READS)
        wide.first[wide.count++] = request->index[0];
    wide.last = request->index[request->count - 1];
    return PL_OK;
}

/* Under the name of a data set with samples that are compared by content. */
static const pl_dataset_ops_t wide_dataset = {.name = "lines",
                                              .size = 1,
                                              .open = wide_open,
                                              .read = wide_read};

static void the_checksum_of_large_data_takes_samples_at_even_distances(void)
{
    int64_t min = WIDE_SAMPLES, max = 0;
    memset(&wide, 0, sizeof wide);
    start("\"lines\"");
    is_int(open_data(PL_TRAIN)->error.code, PL_OK, "opened");
    for (int k = 1; k < wide.count; k++) {
        const int64_t gap = wide.first[k] - wide.first[k - 1];
        min = gap < min ? gap : min;
        max = gap > max ? gap : max;
    }
    ok(wide.count * 64 * 64 >= 15 << 20 && wide.count * 64 * 64 <= 17 << 20,
       "about 16 MiB are read: %d blocks of 64 samples", wide.count);
    is_int(wide.first[0], 0, "the first sample is among them");
    is_int(wide.last, WIDE_SAMPLES - 1, "and the last");
    ok(min == 4 * 64 && max == 5 * 64, "%d to %d samples lie between two blocks",
       (int)min, (int)max);
    queen_close();
}

/* ---- memory ---- */

static void reading_stops_while_all_batches_are_out(void)
{
    enum { OUT = 3 + 32 };
    asked_t asked[OUT], one_more;
    start_open("{\"name\": \"numbers\", \"samples\": 100, \"batch_size\": 1, "
               "\"prefetch\": 3}");
    begin(PL_TRAIN, 0);
    for (int k = 0; k < OUT; k++) {
        ask_fetch(&asked[k]);
        queen_wait(&asked[k]);
    }
    ask_fetch(&one_more);
    queen_turn();
    ok(!one_more.ended, "there is no batch for another fetch");
    is_int(numbers_state.batches, OUT, "and nothing more was read");
    pl_object_unref(asked[5].object);
    queen_wait(&one_more);
    is_int(one_more.body.fetch_batch_reply.batch_idx, OUT, "until one is given back");
    pl_object_unref(one_more.object);
    for (int k = 0; k < OUT; k++)
        if (k != 5)
            pl_object_unref(asked[k].object);
    queen_close();
}

static void batches_outlive_the_connector(void)
{
    long before = scarce_live();
    start_open("{\"name\": \"numbers\", \"samples\": 100, \"batch_size\": 8, "
               "\"shuffle\": false}");
    begin(PL_TRAIN, 0);
    asked_t kept, waiting[5];
    ask_fetch(&kept);
    queen_wait(&kept);
    numbers_allow(0);
    for (int k = 0; k < 5; k++)
        ask_fetch(&waiting[k]);
    queen_cancel(&life);
    numbers_allow(-1);
    queen_end(&life);
    is_int(life.error.code, PL_OK, "it ended in order, in the midst of a pass");
    ok(numbers_state.closed == 1 && numbers_state.closed_elsewhere == 0,
       "the data set is closed on the thread that opened it");
    pl_batch_t *batch = (pl_batch_t *)kept.object;
    is_int(((int64_t *)batch->field[0])[2 * 7], 7, "a batch that is out is whole");
    for (int k = 0; k < 5; k++)
        pl_object_unref(waiting[k].object);
    queen_close();
    pl_object_unref(kept.object);
    is_int(scarce_live() - before, 0, "no memory is left");
    is_int(queen_in_flight(), 0, "no object is on its way");
}

/* All that a run does, whatever fails on the way. */
static void short_life(void)
{
    for (int stage = PL_TRAIN; stage <= PL_VALIDATE; stage++) {
        bool continues = begin((pl_stage_t)stage, 0)->error.code == PL_OK;
        for (int k = 0; continues && k < 4; k++) {
            asked_t *fetched = fetch((pl_stage_t)stage);
            continues = fetched->object || fetched->error.code;
        }
    }
}

static int still_open;

static bool lives_shortly(int nth)
{
    queen_open();
    pl_job_t *job = queen_job("{\"data\": {\"name\": \"numbers\", \"samples\": 30, "
                              "\"batch_size\": 4, \"workers\": 2, \"val_split\": 0.2, "
                              "\"prefetch\": 2}}");
    scarce_fail(nth);
    data = queen_spawn(&pl_data_connector,
                       &(pl_start_t){.options = "", .context = &job->object}, &life);
    const bool succeeded = open_knowing(PL_TRAIN)->error.code == PL_OK;
    short_life();
    scarce_stop();
    pl_object_unref(job);
    queen_close();
    still_open += numbers_state.opened != numbers_state.closed;
    return succeeded;
}

static void every_call_ends_whichever_allocation_fails(void)
{
    queen_lacks_memory(lives_shortly, 100);
    is_int(still_open, 0, "no data set stays open");
}

int main(void)
{
    scarce_init();
    static const pl_dataset_ops_t halves = {.name = "halves", .size = 1};
    static const pl_registration_t components[] = {{"dataset", &numbers_dataset},
                                                   {"dataset", &halves},
                                                   {"dataset", &pl_csv_dataset},
                                                   {"dataset", &pl_npy_dataset},
                                                   {"dataset", &pl_pictures_dataset},
                                                   {"dataset", &pl_idx_dataset},
                                                   {"dataset", &wide_dataset},
                                                   PL_REGISTRATIONS_END};
    pl_register(components, NULL);
    run(batches_are_the_same_whatever_reads_them);
    run(every_sample_comes_once_in_an_epoch);
    run(the_order_without_shuffle_is_the_order_of_the_data);
    run(the_last_batch_is_smaller);
    run(partitions_share_the_samples);
    run(partitions_of_a_batch_make_the_whole_one);
    run(an_iteration_begins_at_the_given_batch);
    run(a_split_is_disjoint_and_complete);
    run(ordered_data_is_split_in_order);
    run(sources_may_be_separate);
    run(validation_data_may_be_missing);
    run(data_to_predict_comes_in_order);
    run(data_info_comes_with_the_signature);
    run(a_stratified_split_of_files_reads_no_file);
    run(data_sets_get_the_info_of_the_training_data);
    run(test_data_is_the_default_of_predictions);
    run(a_stratified_split_is_the_same_for_any_number_of_ranks);
    run(a_file_that_is_missing_is_named_with_its_key);
    run(data_without_classes_cannot_be_split_by_class);
    run(data_that_cannot_be_used_is_refused);
    run(a_record_that_cannot_be_read_is_named);
    run(a_new_iteration_drops_the_old_one);
    run(the_next_epoch_is_read_ahead);
    run(no_more_is_read_than_requested);
    run(an_awaited_batch_is_read);
    run(stages_have_iterations_of_their_own);
    run(fetches_are_answered_in_order);
    run(reading_stops_while_all_batches_are_out);
    run(batches_outlive_the_connector);
    run(the_checksum_of_large_data_takes_samples_at_even_distances);
    run(every_call_ends_whichever_allocation_fails);
    return tap_done();
}
