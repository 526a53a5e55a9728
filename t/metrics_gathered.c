/* metrics_gathered.c - tests of metrics whose states are compared or gathered:
 * engine/tensor/metrics_custom.c, actors/loops/metric_combined.c, gathered_metrics.c */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/loops/metrics.h"
#include "base/alloc.h"
#include "files.h"
#include "rig.h"
#include "tap.h"
#include "tensor/graph.h"

enum { SAMPLES = 61, WIDTH = 6 };

static json_t *data;                                      /* "gathered" of metrics.json */

static float x[SAMPLES], target[SAMPLES], score[SAMPLES], relevance[SAMPLES];
static int64_t query[SAMPLES], predicted[SAMPLES * WIDTH], reference[SAMPLES * WIDTH];

static double number(const json_t *of, const char *name, int k)
{
    return json_number_value(json_array_get(json_object_get(of, name), (size_t)k));
}

static void samples_make(const json_t *all)
{
    for (int k = 0; k < SAMPLES; k++) {
        x[k] = (float)number(data, "rounded", k);
        target[k] = (float)number(all, "target", k);
        score[k] = (float)number(data, "score", k);
        relevance[k] = (float)number(data, "relevance", k);
        query[k] = (int64_t)number(data, "query", k);
    }
    for (int k = 0; k < SAMPLES * WIDTH; k++) {
        predicted[k] = (int64_t)number(data, "predicted", k);
        reference[k] = (int64_t)number(data, "reference", k);
    }
    const pl_arrays_t arrays = {.samples = SAMPLES,
                                .field_count = 7,
                                .field = {{"x", PL_F32, {0}},
                                          {"target", PL_F32, {0}},
                                          {"score", PL_F32, {0}},
                                          {"relevance", PL_F32, {0}},
                                          {"query", PL_I64, {0}},
                                          {"predicted", PL_I64, PL_SHAPE(WIDTH)},
                                          {"reference", PL_I64, PL_SHAPE(WIDTH)}},
                                .data = {x, target, score, relevance, query, predicted,
                                         reference}};
    pl_memory_arrays("gathered", &arrays, NULL);
}

/* ---- a metric of the program: (largest - smallest) / count, and how many came ---- */

static int spread_result(const pl_gathered_t *state, int states, double parameter,
                         double *value, pl_error_t *err)
{
    if (states != 4 || state[3].columns != 2 || state[3].count != 2 * SAMPLES)
        return pl_fail(err, PL_EUSER, "%zu numbers came", state[3].count);
    *value = parameter * (*state[0].value - *state[1].value) / *state[2].value;
    return PL_OK;
}

static const pl_metric_ops_t spread = {.name = "spread", .result = spread_result};

static pl_metric_t spread_of(pl_graph_t *g, pl_node_t values)
{
    const pl_node_t both[] = {values, pl_neg(g, values)};
    const pl_metric_state_t states[] = {
        {pl_max(g, values, 0, false), PL_COMBINE_MAX},
        {pl_min(g, values, 0, false), PL_COMBINE_MIN},
        {pl_scalar(g, (double)pl_dim(g, values, 0)), PL_COMBINE_SUM},
        {pl_stack(g, both, 2, 1), PL_COMBINE_GATHER},
    };
    return pl_custom_metric(g, "spread", 2, states, 4);
}

/* ---- another, of two numbers alone: the mean ---- */

static int share_result(const pl_gathered_t *state, int states, double parameter,
                        double *value, pl_error_t *err)
{
    (void)states, (void)parameter, (void)err;
    *value = *state[0].value / *state[1].value;
    return PL_OK;
}

static const pl_metric_ops_t share = {.name = "share", .result = share_result};

static pl_metric_t share_of(pl_graph_t *g, pl_node_t values)
{
    const pl_metric_state_t states[] = {
        {pl_sum(g, values, NULL, 0, false), PL_COMBINE_SUM},
        {pl_scalar(g, (double)pl_dim(g, values, 0)), PL_COMBINE_SUM},
    };
    return pl_custom_metric(g, "share", 0, states, 2);
}

/* ---- runs ---- */

static void gathers_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t value = pl_input(g, "x"), is = pl_input(g, "target"),
                    found = pl_input(g, "score"), good = pl_input(g, "relevance"),
                    asked = pl_input(g, "query"), said = pl_input(g, "predicted"),
                    text = pl_input(g, "reference"),
                    bias = pl_param(g, "bias", PL_SHAPE(1), pl_zeros());
    pl_loss(g, pl_mse(g, pl_add(g, value, pl_scale(g, bias, 0)), is));
    const struct {
        const char *name;
        pl_metric_t metric;
    } all[] = {
        {"spearman", pl_spearman(g, value, is)},
        {"precision", pl_retrieval_precision(g, found, good, asked, 3)},
        {"recall", pl_retrieval_recall(g, found, good, asked, 3)},
        {"mrr", pl_retrieval_mrr(g, found, good, asked, 0)},
        {"map", pl_retrieval_map(g, found, good, asked, 0)},
        {"ndcg", pl_retrieval_ndcg(g, found, good, asked, 5)},
        {"bleu", pl_bleu(g, said, text, 0)},
        {"rouge_1", pl_rouge_1(g, said, text, 0)},
        {"rouge_2", pl_rouge_2(g, said, text, 0)},
        {"rouge_l", pl_rouge_l(g, said, text, 0)},
        {"wer", pl_word_error_rate(g, said, text, 0)},
        {"spread", spread_of(g, value)},
        {"share", share_of(g, value)},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        pl_log(g, all[k].name, all[k].metric, PL_ON_EPOCH);
}

static const pl_module_ops_t gathers = {.name = "gathers",
                                        .size = 1,
                                        .step = gathers_step};

#define MEMORY "{\"name\": \"memory\", \"source\": \"gathered\"}"

static void check_run(const char *accelerator, const char *trainer)
{
    const char *name;
    const json_t *want;
    float least = x[0], most = x[0];
    double sum = 0;
    rig_t *rig = rig_new(.accelerator = accelerator, .module = "\"gathers\"",
                         .trainer = trainer,
                         .dataset = "{\"train\": " MEMORY ", \"val\": " MEMORY
                                    ", \"batch_size\": 7}");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "%s: %s", trainer, result->error.text);
    json_object_foreach(json_object_get(data, "expected"), name, want) {
        char full[64];
        snprintf(full, sizeof full, "val_%s", name);
        is_near(rig_metric(result, full), json_number_value(want), 1e-6,
                "%s equals torchmetrics'", name);
        snprintf(full, sizeof full, "\"train_%s\"", name);
        ok(!strstr(result->metrics, full), "training does not log it");
    }
    for (int k = 0; k < SAMPLES; k++) {
        sum += x[k];
        least = x[k] < least ? x[k] : least;
        most = x[k] > most ? x[k] : most;
    }
    is_near(rig_metric(result, "val_share"), sum / SAMPLES, 1e-6,
            "so is one of two numbers");
    is_near(rig_metric(result, "val_spread"),
            2 * ((double)most - (double)least) / SAMPLES, 1e-6,
            "a metric of the program has all states");
    rig_free(&rig);
}

/* 61 samples in batches of 7: the last is short, and a rank has fewer. */
static void samples_of_all_batches_and_ranks_are_gathered(void)
{
    if (!rig_has("cpu"))
        return;
    check_run("cpu", "\"devices\": 1, \"max_epochs\": 2");
    check_run("cpu", "\"devices\": 2, \"max_epochs\": 1");
    check_run("cpu", "\"devices\": 3, \"max_epochs\": 1");
    check_run("cpu", "\"devices\": 2, \"max_epochs\": 1, \"precision\": \"64-true\"");
}

static void micro_shards_are_gathered(void)
{
    if (rig_has("cpu"))
        check_run("cpu", "\"devices\": 2, \"max_epochs\": 1, \"strategy\": {\"name\": "
                         "\"elastic\", \"micro_shards\": 4}");
}

/* ---- samples of different length, and a short last batch ---- */

enum { TEXTS = 43 };

static int64_t said[TEXTS * 9], meant[TEXTS * 9], text_from[TEXTS + 1];
static float off[TEXTS], first[TEXTS * 9];

static void texts_make(void)
{
    for (int i = 0; i < TEXTS; i++) {
        text_from[i + 1] = text_from[i] + 1 + i * 5 % 9;
        off[i] = (float)(i - 20);
        for (int64_t k = text_from[i]; k < text_from[i + 1]; k++)
            said[k] = 3, meant[k] = 4, first[k] = (float)k;
    }
    const pl_arrays_t arrays = {.samples = TEXTS,
                                .field_count = 4,
                                .field = {{"said", PL_I64, PL_SHAPE(PL_VARIES)},
                                          {"meant", PL_I64, PL_SHAPE(PL_VARIES)},
                                          {"first", PL_F32, PL_SHAPE(PL_VARIES)},
                                          {"off", PL_F32, {0}}},
                                .data = {said, meant, first, off},
                                .offset = text_from,
                                .padding = {-1, -1}};
    pl_memory_arrays("texts", &arrays, NULL);
}

static int batches_result(const pl_gathered_t *state, int states, double parameter,
                          double *value, pl_error_t *err)
{
    (void)states, (void)parameter, (void)err;
    *value = (double)state->count;
    return PL_OK;
}

static const pl_metric_ops_t batches = {.name = "batches", .result = batches_result};

static void ragged_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t is = pl_input(g, "off"), zero = pl_scale(g, is, 0),
                    rows = pl_input(g, "first"), worst = pl_max(g, is, 0, false),
                    bias = pl_param(g, "bias", PL_SHAPE(1), pl_zeros());
    const pl_metric_state_t one = {worst, PL_COMBINE_GATHER};
    pl_loss(g, pl_mse(g, pl_add(g, zero, bias), is));
    pl_log(g, "before", pl_mae(g, is, zero), PL_ON_EPOCH);
    pl_log(g, "rank", pl_spearman(g, rows, rows), PL_ON_EPOCH);
    pl_log(g, "batches", pl_custom_metric(g, "batches", 0, &one, 1), PL_ON_EPOCH);
    pl_log(g, "wer", pl_word_error_rate(g, pl_input(g, "said"), pl_input(g, "meant"), -1),
           PL_ON_EPOCH);
    pl_log(g, "behind", pl_mae(g, is, zero), PL_ON_EPOCH);
}

static const pl_module_ops_t ragged = {.name = "ragged", .size = 1, .step = ragged_step};

#define TEXTS_DATA "{\"name\": \"memory\", \"source\": \"texts\"}"

static void lengths_and_a_short_batch_change_no_metric(void)
{
    double sum = 0;
    for (int i = 0; i < TEXTS; i++)
        sum += fabs((double)off[i]);
    for (int ranks = 1; ranks <= 2 && rig_has("cpu"); ranks++) {
        char trainer[64];
        snprintf(trainer, sizeof trainer, "\"devices\": %d, \"max_epochs\": 1", ranks);
        rig_t *rig = rig_new(.accelerator = "cpu", .module = "\"ragged\"",
                             .trainer = trainer,
                             .dataset = "{\"train\": " TEXTS_DATA ", \"val\": " TEXTS_DATA
                                        ", \"batch_size\": 8, \"buckets\": 4}");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "ok", "%d ranks: %s", ranks, result->error.text);
        is_near(rig_metric(result, "val_before"), sum / TEXTS, 1e-6, "one before");
        is_near(rig_metric(result, "val_rank"), 1, 1e-6, "one whose rows have lengths");
        ok(rig_metric(result, "val_batches") >= TEXTS / 8.0, "a number of each batch: %g",
           rig_metric(result, "val_batches"));
        is_near(rig_metric(result, "val_wer"), 1, 1e-9, "padding is no word");
        is_near(rig_metric(result, "val_behind"), sum / TEXTS, 1e-6,
                "and one behind them");
        rig_free(&rig);
    }
}

/* ---- the loops' part alone ---- */

static void more_than_the_limit_is_an_error_with_the_name(void)
{
    enum { ROWS = 60000 };
    double *sums = pl_alloc_array(2 * (1 + ROWS), sizeof *sums);
    pl_metrics_t metrics = {0};
    pl_error_t err = {0};
    json_t *got = json_object();
    char names[200];
    snprintf(names, sizeof names,
             "spearman\t%d\t0\t%d\t%d\t0\tspearman\t1\t2\t3\t%d\t1\t3\t%d\t1\n",
             PL_METRIC_CUSTOM, 2 * (1 + ROWS), 2 * (1 + ROWS), ROWS, ROWS);
    pl_metrics_name(&metrics, "val_", names);
    for (int k = 0; k < ROWS; k++)
        sums[1 + k] = sums[2 + ROWS + k] = k % 100;
    sums[0] = sums[1 + ROWS] = ROWS;
    for (int k = 0; k < PL_GATHERED_MAX / ROWS; k++)
        pl_metrics_add(&metrics, (pl_bytes_t){sums, metrics.size * sizeof *sums});
    is_int(pl_metrics_put(&metrics, PL_METRICS_OF_PASS, got, &err), PL_OK, "up to it: %s",
           err.text);
    is_near(json_number_value(json_object_get(got, "val_spearman")), 1, 1e-9, "a value");
    pl_metrics_add(&metrics, (pl_bytes_t){sums, metrics.size * sizeof *sums});
    is_int(pl_metrics_put(&metrics, PL_METRICS_OF_PASS, got, &err), PL_EUNSUPPORTED,
           "beyond it not");
    like(err.text, "\"val_spearman\" has gathered more than 8388608 .*limit_val_batches",
         "the error says what to do");
    json_object_clear(got);
    pl_metrics_clear(&metrics);
    is_int(pl_metrics_put(&metrics, PL_METRICS_OF_PASS, got, NULL), PL_OK,
           "the next pass begins with nothing");
    is_int(json_object_size(got), 0, "and has no value");
    json_decref(got);
    pl_metrics_release(&metrics);
    pl_free(sums);
}

static const char *mistake(void (*make)(pl_graph_t *g))
{
    static pl_error_t err;
    const pl_field_t fields[] = {{"x", PL_F32, {0}}, {"y", PL_F32, PL_SHAPE(2)}};
    pl_graph_t *g = pl_graph_new(NULL, PL_VALIDATE, fields, 2, 8, NULL);
    err = (pl_error_t){0};
    make(g);
    pl_graph_check(g, &err);
    pl_graph_free(g);
    return err.text;
}

static void an_unknown_name(pl_graph_t *g)
{
    const pl_metric_state_t state = {pl_input(g, "x"), PL_COMBINE_SUM};
    pl_custom_metric(g, "spreat", 0, &state, 1);
}

static void no_states(pl_graph_t *g)
{
    pl_custom_metric(g, "spread", 0, NULL, 0);
}

static void other_shapes(pl_graph_t *g)
{
    pl_retrieval_map(g, pl_input(g, "x"), pl_input(g, "y"), pl_input(g, "x"), 0);
}

static void no_rows_of_tokens(pl_graph_t *g)
{
    pl_bleu(g, pl_input(g, "x"), pl_input(g, "y"), 0);
}

static void mistakes_are_reported(void)
{
    like(mistake(an_unknown_name), "metric \"spreat\".*spread", "a name");
    like(mistake(no_states), "\"spread\" has 0 states.*1 to 4", "a number of states");
    like(mistake(other_shapes), "retrieval_map takes .*\\[8, 2\\]", "shapes");
    like(mistake(no_rows_of_tokens), "bleu takes tokens \\[B, T\\]", "tokens");
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &gathers},
                                                   {"module", &ragged},
                                                   {"metric", &batches},
                                                   {"metric", &spread},
                                                   {"metric", &share},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    json_t *all = json_load_file(file_of_tests("data/metrics.json"), 0, NULL);
    data = json_object_get(all, "gathered");
    if (!ok(data != NULL, "t/data/metrics.json can be read"))
        return tap_done();
    samples_make(all);
    texts_make();
    run(samples_of_all_batches_and_ranks_are_gathered);
    run(micro_shards_are_gathered);
    run(lengths_and_a_short_batch_change_no_metric);
    run(more_than_the_limit_is_an_error_with_the_name);
    run(mistakes_are_reported);
    json_decref(all);
    return tap_done();
}
