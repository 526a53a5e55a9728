/* sources.c - tests of actors/connectors/datasets/sources.c: several data sets as one */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "files.h"
#include "rig.h"
#include "tap.h"

enum { MOST = 2048, TABLES = 3 };

/* ---- data sets that count which of their samples are read in training ---- */

static atomic_int times[TABLES][MOST];
static int64_t came[TABLES][MOST];                          /* those read, in turn */
static atomic_int reads[TABLES];

typedef struct counted {
    int64_t samples, table;                                 /* options */
    bool wide;
} counted_t;

static int counted_open(void *self, const pl_data_request_t *request,
                        pl_data_info_t *info, pl_error_t *err)
{
    const counted_t *counted = self;
    (void)request, (void)err;
    *info =
        (pl_data_info_t){.samples = counted->samples,
                         .field_count = 2,
                         .field = {{"x", PL_F32, {1, {counted->wide ? 7 : RIG_FEATURES}}},
                                   {"y", PL_I64, {0, {0}}}},
                         .data_info = pl_text("{\"classes\": %d, \"shape\": [%d]}",
                                              RIG_CLASSES, RIG_FEATURES)};
    return PL_OK;
}

static int counted_read(const void *self, const pl_read_request_t *request,
                        void *const *field, pl_error_t *err)
{
    const counted_t *counted = self;
    (void)err;
    for (int i = 0; i < request->count; i++) {
        const int64_t index = request->index[i];
        rig_sample(index, (float *)field[0] + (size_t)i * RIG_FEATURES,
                   &((int64_t *)field[1])[i]);
        if (request->stage != PL_TRAIN)
            continue;
        atomic_fetch_add(&times[counted->table][index], 1);
        came[counted->table][atomic_fetch_add(&reads[counted->table], 1) % MOST] = index;
    }
    return PL_OK;
}

static const pl_option_t counted_options[] = {
    PL_INT(counted_t, samples, "8", "1..2048", "samples"),
    PL_INT(counted_t, table, "0", "0..2", "where it counts"),
    PL_BOOL(counted_t, wide, "false", "its samples have another shape"),
    PL_OPTIONS_END,
};
static const pl_dataset_ops_t counted_dataset = {.name = "counted",
                                                 .size = sizeof(counted_t),
                                                 .options = counted_options,
                                                 .open = counted_open,
                                                 .read = counted_read};

#define TABLE(number, samples) \
    "{\"name\": \"counted\", \"table\": " #number ", \"samples\": " #samples "}"

/* ---- runs ---- */

static rig_t *rig_of(const char *sources, const char *more, const char *trainer,
                     const char *callbacks)
{
    char dataset[900];
    snprintf(dataset, sizeof dataset,
             "{\"name\": \"sources\", \"sources\": [%s], \"batch_size\": 8%s%s}", sources,
             *more ? ", " : "", more);
    for (int k = 0; k < TABLES; k++) {
        reads[k] = 0;
        for (int i = 0; i < MOST; i++)
            times[k][i] = 0;
    }
    return rig_new(.accelerator = "cpu", .dataset = dataset, .trainer = trainer,
                   .callbacks = callbacks);
}

static int sum_of(int table)
{
    int sum = 0;
    for (int k = 0; k < MOST; k++)
        sum += times[table][k];
    return sum;
}

static void fit_well(const char *sources, const char *more, const char *trainer)
{
    rig_t *rig = rig_of(sources, more, trainer, NULL);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "a run with %s: %s", more, result->error.text);
    rig_free(&rig);
}

#define ONCE "\"max_epochs\": 1"

static void sources_are_mixed_by_their_weights(void)
{
    int least = 1 << 30, most = 0;
    fit_well(TABLE(0, 200) ", " TABLE(1, 2000), "\"weights\": [3, 1], \"samples\": 2048",
             ONCE);
    is_int(sum_of(0), 1536, "three of four samples");
    is_int(sum_of(1), 512, "one of four");
    for (int k = 0; k < 200; k++) {
        least = times[0][k] < least ? times[0][k] : least;
        most = times[0][k] > most ? times[0][k] : most;
    }
    ok(least == 7 && most == 8, "a source comes whole before it comes again");
    for (int k = 0; k < 2000; k++)
        most = k == 0 || times[1][k] > most ? times[1][k] : most;
    is_int(most, 1, "none comes twice before all have come");
    fit_well(TABLE(0, 96) ", " TABLE(1, 928), "\"workers\": 2", ONCE);
    ok(sum_of(0) == 96 && sum_of(1) == 928, "without weights, as many as there are");
    fit_well(TABLE(0, 96) ", " TABLE(1, 928), "\"weights\": [0, 2]", ONCE);
    ok(sum_of(0) == 0 && sum_of(1) == 1024, "a weight of 0 leaves a source out");
    fit_well(TABLE(0, 200) ", " TABLE(1, 2000), "\"weights\": [3, 1], \"samples\": 2048",
             "\"max_epochs\": 1, \"devices\": 2");
    ok(sum_of(0) == 1536 && sum_of(1) == 512, "ranks share the samples");
}

/* Reads that are not of the sample behind the one before, or of the first behind the
 * last. */
static int jumps(int table, int samples)
{
    int count = came[table][0] != 0;
    for (int k = 1; k < reads[table]; k++)
        count += came[table][k] != (came[table][k - 1] + 1) % samples;
    return count;
}

static void samples_of_sources_may_keep_their_order(void)
{
    static const struct {
        const char *mode, *trainer;
    } modes[] = {
        {"\"weights\": [3, 1], \"samples\": 1300", "\"max_epochs\": 2"},
        {"\"mode\": \"sequential\"", ONCE},
        {"\"mode\": \"max_size_cycle\"", ONCE},
        {"\"mode\": \"min_size\"", ONCE},
    };
    for (int k = 0; k < 4; k++) {
        char more[160];
        for (int in_order = 1; in_order >= 0; in_order--) {
            snprintf(more, sizeof more, "\"in_order\": %s, \"shuffle\": false, %s",
                     in_order ? "true, \"workers\": 1" : "false", modes[k].mode);
            fit_well(TABLE(0, 200) ", " TABLE(1, 900), more, modes[k].trainer);
            if (in_order)
                ok(reads[0] >= 200 && reads[1] >= 200 && !jumps(0, 200) && !jumps(1, 900),
                   "in order: %d with %d jumps, %d with %d", reads[0], jumps(0, 200),
                   reads[1], jumps(1, 900));
            else
                ok(k == 1 || jumps(1, 900) > 100, "else not: %d", jumps(1, 900));
        }
    }
}

static void sources_follow_each_other(void)
{
    fit_well(TABLE(0, 10) ", " TABLE(1, 30) ", " TABLE(2, 8),
             "\"mode\": \"sequential\", \"shuffle\": false",
             ONCE ", \"limit_train_batches\": 4");
    ok(sum_of(0) == 10 && sum_of(1) >= 22 && times[1][29] == 0,
       "one behind the other: %d, %d", sum_of(0), sum_of(1));
    fit_well(TABLE(0, 10) ", " TABLE(1, 30) ", " TABLE(2, 8), "\"mode\": \"sequential\"",
             ONCE);
    ok(sum_of(0) == 10 && sum_of(1) == 30 && sum_of(2) == 8, "all samples of each");
}

static void a_sample_may_have_one_of_each_source(void)
{
    static const struct {
        const char *mode;
        int first, second;
    } modes[] = {{"min_size", 12, 12}, {"max_size_cycle", 30, 30}, {"max_size", 12, 30}};
    for (int k = 0; k < 3; k++) {
        char more[80];
        snprintf(more, sizeof more, "\"mode\": \"%s\"", modes[k].mode);
        fit_well(TABLE(0, 12) ", " TABLE(1, 30), more, ONCE);
        is_int(sum_of(0), modes[k].first, "%s: of the shorter source", modes[k].mode);
        is_int(sum_of(1), modes[k].second, "of the longer one");
        ok(times[0][3] >= 1 && (k != 1 || times[0][3] <= 3), "none is left out");
    }
}

/* A module that sees both sources, and whether the first one has a sample. */
static void both_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t there = pl_input(g, "there"), other = pl_input(g, "other_x"),
                    x = pl_linear(g, "fc", pl_add(g, pl_input(g, "x"), other), 3);
    pl_log(g, "there", pl_pair(pl_sum(g, there, NULL, 0, false), pl_scalar(g, 4)),
           PL_ON_EPOCH);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "other_y"), NULL));
}

static const pl_module_ops_t both = {.name = "both", .size = 1, .step = both_step};

static void a_module_sees_the_fields_of_each_source(void)
{
    rig_t *rig = rig_new(.accelerator = "cpu", .module = "\"both\"", .trainer = ONCE,
                         .dataset = "{\"name\": \"sources\", \"mode\": \"max_size\", "
                                    "\"names\": \",other\", \"batch_size\": 4, "
                                    "\"sources\": [" TABLE(0, 10) ", " TABLE(1, 40) "]}");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "a run: %s", result->error.text);
    is_near(rig_metric(result, "train_there"), 0.25, 1e-6,
            "a quarter has a sample of the first");
    rig_free(&rig);
}

static void a_resumed_run_continues_with_the_same_samples(void)
{
    static const char two[] = TABLE(0, 64) ", " TABLE(1, 512),
                      mixed[] = "\"weights\": [3, 1], \"samples\": 512";
    rig_t *rig = rig_of(two, mixed, "\"max_epochs\": 3", NULL);
    rig_result_t *whole = rig_keep(rig_fit(rig));
    rig_free(&rig);
    rig = rig_of(two, mixed, "\"max_epochs\": 3, \"max_steps\": 100", NULL);
    rig_result_t *half = rig_keep(rig_fit(rig));
    rig_free(&rig);
    rig = rig_of(two, mixed, "\"max_epochs\": 3", NULL);
    const rig_result_t *rest = rig_resume(rig, half->run_dir);
    is_text(rest->status, "ok", "a run continues in an epoch: %s", rest->error.text);
    ok(rig_same_bits(whole, rest), "to the weights of a run without a break");
    rig_free(&rig);
    rig_result_free(whole);
    rig_result_free(half);
}

static void mistakes_are_named(void)
{
    static const struct {
        const char *sources, *more, *pattern;
    } wrong[] = {
        {TABLE(0, 8) ", " TABLE(1, 8), "\"weights\": [1]", "1 weights for 2 sources"},
        {TABLE(0, 8) ", " TABLE(1, 8), "\"weights\": [0, 0]", "a weight above 0"},
        {TABLE(0, 8), "\"mode\": \"min_size\", \"samples\": 4",
         "only the mode .weighted."},
        {TABLE(0, 8) ", {\"name\": \"counted\", \"wide\": true}", "\"samples\": 9",
         "source 1 has other fields than source 0"},
        {TABLE(0, 8) ", " TABLE(1, 8), "\"val_split\": 0.5", "val_split cannot divide"},
        {TABLE(0, 8) ", " TABLE(1, 8), "\"mode\": \"min_size\", \"names\": \"a,a\"",
         "two sources have a field .a_x."},
        {TABLE(0, 8) ", {\"name\": \"npy\", \"x\": \"/nowhere.npy\"}", "\"samples\": 9",
         "source 1, .npy.: /nowhere.npy"},
    };
    char table[400];
    snprintf(table, sizeof table, "{\"name\": \"csv\", \"path\": \"%s\"}",
             file_put_text("o.csv", "a,y\n1,1.5\n2,2.5\n3,3.5\n"));
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        rig_t *rig = rig_of(wrong[k].sources, wrong[k].more, ONCE, NULL);
        const char *text = rig ? rig_fit(rig)->error.text : rig_error.text;
        like(text, wrong[k].pattern, "%s", wrong[k].more);
        rig_free(&rig);
    }
    rig_t *rig = rig_of(table, "\"mode\": \"sequential\", \"val_split\": 0.3", ONCE,
                        NULL);
    like(rig ? rig_fit(rig)->error.text : rig_error.text,
         "its moments and categories would be those of the samples for validation",
         "a table with a part of all samples");
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t more[] = {{"dataset", &counted_dataset},
                                             {"module", &both},
                                             PL_REGISTRATIONS_END};
    rig_init(more);
    if (!rig_has("cpu"))
        return tap_done();
    run(sources_are_mixed_by_their_weights);
    run(samples_of_sources_may_keep_their_order);
    run(sources_follow_each_other);
    run(a_sample_may_have_one_of_each_source);
    run(a_module_sees_the_fields_of_each_source);
    run(a_resumed_run_continues_with_the_same_samples);
    run(mistakes_are_named);
    return tap_done();
}
