/* manual_rank.c - a program for t/manual_ranks.t: it sends the batches of a rank
 *
 *     manual_rank ROOT SCENARIO [OPTION]
 *
 * Each rank writes what it sees to out.RANK.  The samples of a step are the same for any
 * number of ranks, which share them. */
#include <math.h>
#include <paceline.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "two_sides.h"

enum { FEATURES = 5, ROWS = 12, STEPS = 6, PIECES = 6 };

static const pl_module_objective_t pair_objectives[] = {
    {.name = "first", .parameters = "a.*", .describe = two_sides_first_objective},
    {.name = "second", .parameters = "b.*", .describe = two_sides_second_objective},
    PL_OBJECTIVES_END,
};
static const pl_module_ops_t pair = {.name = "pair",
                                     .help = "",
                                     .size = 1,
                                     .step = two_sides_step,
                                     .objectives = pair_objectives};

typedef struct answer {
    bool done;
    pl_error_t error;
    uint64_t step;
    double loss, norm;
    double accuracy;
    double number[64];
    int numbers;
    int outputs;
    double sum;                                             /* of all outputs */
    int64_t rows;
} answer_t;

static FILE *out;
static int rank, ranks;
static pl_engine_t *engine;
static pl_loop_t *loop;
static pl_dtype_t exchanged = PL_F64;

static void take(pl_loop_t *of, const pl_loop_result_t *result, void *user)
{
    answer_t *answer = user;
    (void)of;
    *answer = (answer_t){.done = true,
                         .error = result->error,
                         .step = result->global_step,
                         .loss = result->loss,
                         .norm = result->grad_norm,
                         .outputs = result->output_count};
    pl_loop_metric(result, "val_acc", &answer->accuracy);
    for (int k = 0; k < result->output_count; k++) {
        const pl_result_tensor_t *t = &result->output[k];
        int64_t count = 1;
        for (int d = 0; d < t->shape.rank; d++)
            count *= t->shape.dim[d];
        for (int64_t i = 0; i < count; i++)
            answer->sum += fabs((double)t->data[i]);
        answer->rows = t->shape.rank ? t->shape.dim[0] : 1;
    }
    for (int k = 0; k < result->data_count && result->data && k < 64;
         k++, answer->numbers++)
        answer->number[k] = exchanged == PL_F64   ? ((const double *)result->data)[k]
                            : exchanged == PL_F32 ? ((const float *)result->data)[k]
                            : exchanged == PL_I32 ? ((const int32_t *)result->data)[k]
                            : exchanged == PL_I64
                                ? (double)((const int64_t *)result->data)[k]
                                : ((const uint8_t *)result->data)[k];
}

static void leave(const char *what, const char *why)
{
    fprintf(out, "%s: %s\n", what, why);
    fflush(out);
    exit(3);
}

/* Waits for an answer, and prints its error. */
static bool await(const char *what, answer_t *answer, int code, const pl_error_t *err)
{
    pl_error_t late = {0};
    if (code == PL_OK && pl_engine_run_until(engine, &answer->done, &late) != PL_OK)
        leave(what, late.text);
    const char *why = code == PL_OK ? answer->error.text : err->text;
    if (code != PL_OK || answer->error.code != PL_OK)
        fprintf(out, "%s fails: %s\n", what, why);
    fflush(out);
    return code == PL_OK && answer->error.code == PL_OK;
}

static float x[(ROWS + 1) * FEATURES];
static int64_t y[ROWS + 1];

/* This rank's rows of the batch of a step: as many as all others have, or one apart. */
static pl_arrays_t batch(int step, int from, int rows, bool bad)
{
    for (int k = 0; k < rows; k++) {
        const int row = step * ROWS + from + k;
        y[k] = row % 3;
        for (int f = 0; f < FEATURES; f++)
            x[k * FEATURES + f] = (float)(sin(row * 1.7 + f) + (f == y[k] ? 1.5 : 0));
    }
    if (bad)
        x[0] = NAN;
    return (
        pl_arrays_t){.samples = rows,
                     .field_count = 2,
                     .field = {{"x", PL_F32, {1, {FEATURES}}}, {"y", PL_I64, {0, {0}}}},
                     .data = {x, y}};
}

/* The first row of a rank: each has its share of the pieces of a batch, which are the
 * micro-shards of the strategy "elastic". */
static int first_row(int of)
{
    return ROWS / PIECES * (PIECES * of / ranks);
}

static bool train(int step, bool bad)
{
    pl_error_t err = {0};
    answer_t answer = {0};
    const bool is_uneven = getenv("UNEVEN") && ranks == 2;
    const int more = getenv("MORE") && !rank,
              all = getenv("SHORT") && step == STEPS - 1 ? 5 : ROWS,
              own = (first_row(rank + 1) < all ? first_row(rank + 1) : all)
                    - (first_row(rank) < all ? first_row(rank) : all),
              rows = is_uneven ? rank ? 3 : ROWS - 3 : own + more,
              from = is_uneven ? rank ? ROWS - 3 : 0 : first_row(rank);
    const pl_arrays_t samples = batch(step, from, rows, bad);
    const bool fine = await("train", &answer,
                            pl_loop_train(loop, &samples, take, &answer, &err), &err);
    if (fine)
        fprintf(out, "step %llu: loss %.5f norm %.5f\n", (unsigned long long)answer.step,
                answer.loss, answer.norm);
    return fine;
}

/* A step as of a program that takes it itself, of gradients of two batches or of one. */
static void step_by_hand(int step, const char *objective, int batches)
{
    pl_error_t err = {0};
    answer_t computed = {0}, seen = {0}, stepped = {0};
    for (int k = 0; k < batches; k++) {
        const int rows = ROWS / ranks / batches;
        const pl_arrays_t samples = batch(step, (rank * batches + k) * rows, rows, false);
        computed = (answer_t){0};
        await("backward", &computed,
              pl_loop_backward(loop, objective, &samples, take, &computed, &err), &err);
    }
    if (await("gradients", &seen, pl_loop_gradients(loop, objective, take, &seen, &err),
              &err)
        && !(seen.sum > 0))
        fprintf(out, "no gradients\n");
    if (await("step", &stepped, pl_loop_step(loop, objective, take, &stepped, &err),
              &err))
        fprintf(out, "step %llu: loss %.5f norm %.5f\n", (unsigned long long)stepped.step,
                stepped.loss, stepped.norm);
}

static void measure(void)
{
    pl_error_t err = {0};
    answer_t answer = {0};
    pl_arrays_t samples = batch(40, first_row(rank),
                                first_row(rank + 1) - first_row(rank), false);
    if (await("evaluate", &answer, pl_loop_evaluate(loop, &samples, take, &answer, &err),
              &err))
        fprintf(out, "evaluated: loss %.5f accuracy %.5f\n", answer.loss,
                answer.accuracy);
}

static void predict(int rows)
{
    pl_error_t err = {0};
    answer_t answer = {0};
    pl_arrays_t samples = batch(50, 0, rows, false);
    if (await("predict", &answer, pl_loop_predict(loop, &samples, take, &answer, &err),
              &err))
        fprintf(out, "predicted: %d outputs of %lld rows, %.4f\n", answer.outputs,
                (long long)answer.rows, answer.sum);
}

static void numbers_print(const char *what, const answer_t *answer)
{
    fprintf(out, "%s:", what);
    for (int k = 0; k < answer->numbers; k++)
        fprintf(out, " %.17g", answer->number[k]);
    fprintf(out, "\n");
    fflush(out);
}

static bool reduce(const char *what, pl_loop_reduction_t reduction, pl_dtype_t dtype,
                   const void *data, int64_t count)
{
    pl_error_t err = {0};
    answer_t answer = {0};
    exchanged = dtype;
    const bool fine = await(what, &answer,
                            pl_loop_all_reduce(loop, reduction, dtype, data, count, take,
                                               &answer, &err),
                            &err);
    if (fine)
        numbers_print(what, &answer);
    return fine;
}

static void exchange(void)
{
    pl_error_t err = {0};
    const double wide[] = {1 + rank, rank ? NAN : -0.0, 10.0 * rank - 3};
    const float narrow[] = {0.5F + (float)rank, -1, (float)-rank};
    const int64_t whole[] = {INT64_MAX - 2 + rank, -5 - rank};
    const int32_t small[] = {7 * rank, -2};
    const unsigned char bytes[] = {200, (unsigned char)(3 + rank)};
    answer_t gathered = {0}, sent = {0}, come = {0};
    exchanged = PL_F64;
    if (await("all_gather", &gathered,
              pl_loop_all_gather(loop, PL_F64, wide, 3, take, &gathered, &err), &err))
        numbers_print("gathered", &gathered);
    reduce("sum", PL_LOOP_SUM, PL_F64, wide, 3);
    reduce("mean", PL_LOOP_MEAN, PL_F32, narrow, 3);
    reduce("max", PL_LOOP_MAX, PL_F64, wide, 3);
    reduce("min", PL_LOOP_MIN, PL_F32, narrow, 3);
    reduce("sum of int64", PL_LOOP_SUM, PL_I64, whole + 1, 1);
    reduce("max of int64", PL_LOOP_MAX, PL_I64, whole, 2);
    reduce("sum of int32", PL_LOOP_SUM, PL_I32, small, 2);
    reduce("min of uint8", PL_LOOP_MIN, PL_U8, bytes, 2);
    reduce("mean of int32", PL_LOOP_MEAN, PL_I32, small, 2);
    exchanged = PL_F32;
    if (await("broadcast", &sent,
              pl_loop_broadcast(loop, ranks - 1, PL_F32,
                                rank == ranks - 1 ? narrow : NULL, 3, take, &sent, &err),
              &err))
        numbers_print("broadcast", &sent);
    await("broadcast", &sent,
          pl_loop_broadcast(loop, ranks, PL_F32, narrow, 3, take, &sent, &err), &err);
    if (await("barrier", &come, pl_loop_barrier(loop, take, &come, &err), &err))
        numbers_print("barrier", &come);
}

static void save(const char *name)
{
    pl_error_t err = {0};
    answer_t answer = {0};
    if (await("save", &answer, pl_loop_save(loop, name, take, &answer, &err), &err))
        fprintf(out, "saved after %llu\n", (unsigned long long)answer.step);
}

static void act(const char *scenario)
{
    if (!strcmp(scenario, "bad")) {
        train(0, false);
        train(1, rank == ranks - 1);
        train(2, false);
    } else if (!strcmp(scenario, "exchange")) {
        exchange();
    } else if (!strcmp(scenario, "apart")) {
        pl_error_t err = {0};
        answer_t answer = {0};
        const double number = 1;
        train(0, false);
        if (rank)
            await("barrier", &answer, pl_loop_barrier(loop, take, &answer, &err), &err);
        else
            reduce("sum", PL_LOOP_SUM, PL_F64, &number, 1);
    } else if (!strcmp(scenario, "order")) {
        train(0, false);
        if (rank)
            measure();
        else
            train(1, false);
    } else if (!strcmp(scenario, "less")) {
        for (int k = 0; k < (rank ? 2 : 3); k++)
            train(k, false);
    } else if (!strcmp(scenario, "dies")) {
        train(0, false);
        if (rank)
            kill(getpid(), SIGKILL);
        train(1, false);
    } else if (!strcmp(scenario, "hand") || !strcmp(scenario, "halves")) {
        for (int k = 0; k < STEPS; k++)
            step_by_hand(k, NULL, *scenario == 'h' && scenario[2] == 'l' ? 2 : 1);
        measure();
    } else if (!strcmp(scenario, "objectives")) {
        for (int k = 0; k < STEPS; k++) {
            if (getenv("BY_HAND")) {
                step_by_hand(k, "first", 1);
                step_by_hand(k, "second", 1);
            } else {
                train(k, false);
            }
        }
    } else if (!strcmp(scenario, "stepless")) {
        step_by_hand(0, NULL, 0);
        train(0, false);
    } else if (!strcmp(scenario, "alone")) {
        if (!rank)
            predict(5);
        for (int k = 0; k < STEPS; k++)
            train(k, false);
        predict(2 + rank);
    } else {
        for (int k = 0; k < STEPS; k++) {
            train(k, false);
            if (k == 2 && !strcmp(scenario, "save"))
                save("middle");
        }
        measure();
    }
}

int main(int argc, char **argv)
{
    static const pl_field_t fields[][2] = {{{"x", PL_F32, {1, {FEATURES}}},
                                            {"y", PL_I64, {0, {0}}}},
                                           {{"x", PL_F32, {1, {FEATURES - 1}}},
                                            {"y", PL_I64, {0, {0}}}}};
    pl_error_t err = {0};
    char name[32], run[1200];
    const pl_registration_t components[] = {{"module", &pair}, PL_REGISTRATIONS_END};
    if (pl_init(&argc, &argv, components, &err) != PL_OK || argc < 3)
        return 1;
    signal(SIGTERM, SIG_IGN);               /* of the launcher, when another rank fails */
    rank = pl_rank();
    ranks = atoi(getenv("PACELINE_WORLD_SIZE") ? getenv("PACELINE_WORLD_SIZE") : "1");
    snprintf(name, sizeof name, "out.%d", rank);
    out = fopen(name, "w");
    const bool two = !strcmp(argv[2], "objectives"),
               elastic = argc > 3 && strstr(argv[3], "elastic");
    const int rows = elastic ? ROWS / PIECES
                             : ROWS / ranks + (getenv("UNEVEN") ? ROWS / 2 : 0);
    const bool resumes = !strcmp(argv[2], "resume"), other = !strcmp(argv[2], "fields");
    const pl_loop_spec_t spec = {.field_count = 2,
                                 .field = fields[other && rank],
                                 .targets = 1,
                                 .enable_checkpointing = !strcmp(argv[2], "save"),
                                 .resume = resumes ? argv[3] : NULL};
    snprintf(
        run, sizeof run,
        "{\"module\": %s, \"callbacks\": [%s], "
        "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9}, "
        "\"data\": {\"batch_size\": %d}, \"trainer\": {\"default_root_dir\": \"%s\", "
        "\"step_timeout\": %s, \"accelerator\": {\"name\": \"cpu\", \"threads\": 1}"
        "%s%s}}",
        two ? "\"pair\"" : "{\"name\": \"mlp\", \"hidden\": [7], \"classes\": 3}",
        getenv("CALLBACKS") ? getenv("CALLBACKS") : "", rows, argv[1],
        !strcmp(argv[2], "less") || !strcmp(argv[2], "order") ? "5" : "60",
        argc > 3 && !resumes ? ", " : "", argc > 3 && !resumes ? argv[3] : "");
    engine = pl_engine_new(NULL, &err);
    pl_options_t *options = engine ? pl_options_parse(run, "run", &err) : NULL;
    answer_t opened = {0}, closed = {0};
    loop = options ? pl_loop_open(engine, options, &spec, take, &opened, &err) : NULL;
    pl_options_free(options);
    if (!loop)
        fprintf(out, "open fails: %s\n", err.text);
    else if (await("open", &opened, PL_OK, &err))
        act(argv[2]);
    if (loop) {
        pl_loop_close(loop, take, &closed);
        if (await("close", &closed, PL_OK, &err))
            fprintf(out, "closed after %llu: %d tensors, %.*g\n",
                    (unsigned long long)closed.step, closed.outputs,
                    two || elastic ? 17 : 5, closed.sum);
    }
    pl_engine_free(engine);
    fclose(out);
    return loop && closed.error.code == PL_OK ? 0 : 3;
}
