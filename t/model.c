/* model.c - tests of actors/api/model.c and strategies/replica/weights_match.c: answers
 * without a trainer, weights that do not fit, and files of other programs */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/connectors/weights.h"
#include "base/alloc.h"
#include "rig.h"
#include "runtime/payload.h"
#include "scarce.h"
#include "tap.h"

enum { SAMPLES = 150, WIDTH = 6 };

static float numbers[SAMPLES][WIDTH];
static int64_t classes[SAMPLES];

static const pl_arrays_t labelled = {
    .samples = SAMPLES,
    .field_count = 2,
    .field = {{"x", PL_F32, {1, {WIDTH}}}, {"y", PL_I64, {0, {0}}}},
    .data = {numbers, classes},
    .data_info = "{\"classes\": 3}",
};

/* What a service has: no labels. */
static pl_arrays_t inputs(int64_t from, int64_t count)
{
    return (pl_arrays_t){.samples = count,
                         .field_count = 1,
                         .field = {{"x", PL_F32, {1, {WIDTH}}}},
                         .data = {numbers[from]}};
}

static char *run_dir;
static float predicted[SAMPLES][3];                         /* the logits */

static rig_t *numbers_rig(const char *module, const char *trainer)
{
    return rig_new(.accelerator = "cpu", .module = module, .trainer = trainer,
                   .dataset = "{\"name\": \"memory\", \"source\": \"numbers\", "
                              "\"batch_size\": 10}");
}

static void make_run(void)
{
    for (int k = 0; k < SAMPLES; k++) {
        classes[k] = k % 3;
        for (int i = 0; i < WIDTH; i++)
            numbers[k][i] = (float)sin(1 + 7 * k + 3 * i) + (i == k % 3);
    }
    pl_memory_arrays("numbers", &labelled, NULL);
    rig_t *rig = numbers_rig("{\"name\": \"mlp\", \"hidden\": [7], \"classes\": 3}",
                             "\"max_steps\": 4");
    run_dir = strdup(rig_fit(rig)->run_dir);
    const rig_result_t *result = rig_predict(rig, run_dir);
    const rig_tensor_t *logits = rig_find(result->output, result->output_count, "logits");
    if (ok(logits && logits->count == SAMPLES * 3, "a prediction"))
        memcpy(predicted, logits->data, sizeof predicted);
    rig_free(&rig);
}

static double distance(const pl_answers_t *answers, int64_t from, int64_t count)
{
    const pl_result_tensor_t *output = &answers->output[0];
    if (answers->count != 1 || strcmp(output->name, "logits")
        || output->shape.dim[0] != count || output->shape.dim[1] != 3)
        return INFINITY;
    double worst = 0;
    for (int64_t k = 0; k < count * 3; k++)
        worst = tap_larger(worst, fabs((double)output->data[k]
                                       - predicted[from + k / 3][k % 3]));
    return worst;
}

static void any_number_of_samples_is_answered_as_by_a_prediction(void)
{
    static const int64_t counts[] = {1, 2, 3, 40, 64, 65, SAMPLES, 1};
    pl_error_t err;
    pl_answers_t answers;
    pl_loaded_model_t *model = pl_model_load(run_dir, 0, &err);
    if (!ok(model != NULL, "a run's model is loaded")) {
        tap_diag("%s", err.text);
        return;
    }
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        pl_arrays_t samples = inputs(SAMPLES - counts[k], counts[k]);
        ok(pl_model_run(model, &samples, &answers, &err) == PL_OK
               && distance(&answers, SAMPLES - counts[k], counts[k]) < 1e-6,
           "%d samples", (int)counts[k]);
    }
    ok(pl_model_run(model, &labelled, &answers, &err) == PL_OK
           && distance(&answers, 0, SAMPLES) < 1e-6,
       "labels may be there");
    pl_model_unload(model);
    pl_model_unload(NULL);
}

static void a_module_may_be_a_name_alone(void)
{
    pl_error_t err = {0};
    pl_answers_t answers;
    pl_arrays_t samples = inputs(0, 3);
    rig_t *rig = numbers_rig("\"mlp\"", "\"max_steps\": 1");
    pl_loaded_model_t *model = pl_model_load(rig_fit(rig)->run_dir, 1, &err);
    ok(model && pl_model_run(model, &samples, &answers, &err) == PL_OK,
       "its run is loaded: %s", err.text);
    pl_model_unload(model);
    rig_free(&rig);
}

static void wrong_samples_are_refused(void)
{
    pl_error_t err;
    pl_answers_t answers;
    pl_loaded_model_t *model = pl_model_load(run_dir, 2, &err);
    pl_arrays_t none = inputs(0, 0), other = inputs(0, 3), wide = inputs(0, 3),
                empty = inputs(0, 3);
    strcpy(other.field[0].name, "z");
    wide.field[0].shape.dim[0] = 3;
    empty.data[0] = NULL;
    is_int(pl_model_run(model, &none, &answers, &err), PL_EINVAL, "no samples");
    ok(pl_model_run(model, &other, &answers, &err) != PL_OK, "no input of the module's");
    like(err.text, "\"x\"", "it is named");
    is_int(pl_model_run(model, &wide, &answers, &err), PL_EINVAL, "another shape");
    like(err.text,
         "\"x\" of shape .3. do not fit: \"fc1.weight\" .* shape .7, 6., but .* .7, 3.",
         "what is given and what is wanted is said: %s", err.text);
    is_int(pl_model_run(model, &empty, &answers, &err), PL_EINVAL, "no data");
    pl_arrays_t good = inputs(0, 3);
    ok(pl_model_run(model, &good, &answers, &err) == PL_OK
           && distance(&answers, 0, 3) < 1e-6,
       "and right ones are answered after that");
    pl_model_unload(model);
}

/* ---- What a data set does to its files ---- */

static void same_as_predicted(const char *dataset, const pl_arrays_t *samples)
{
    pl_error_t err = {0};
    pl_answers_t answers;
    double worst = INFINITY;
    rig_t *rig = rig_new(.accelerator = "cpu", .dataset = dataset, .module = "\"mlp\"",
                         .trainer = "\"max_steps\": 4");
    char *trained = strdup(rig_fit(rig)->run_dir);
    const rig_result_t *result = rig_predict(rig, trained);
    const rig_tensor_t *logits = rig_find(result->output, result->output_count, "logits");
    pl_loaded_model_t *model = pl_model_load(trained, 1, &err);
    if (logits && model && pl_model_run(model, samples, &answers, &err) == PL_OK) {
        worst = 0;
        for (size_t k = 0; k < logits->count; k++)
            worst = tap_larger(worst, fabs(answers.output[0].data[k] - logits->data[k]));
    }
    ok(worst < 1e-4, "the answers are the prediction's (%g): %s", worst, err.text);
    pl_model_unload(model);
    free(trained);
    rig_free(&rig);
}

static void csv_rows_are_answered_as_the_file_has_them(void)
{
    static double rows[SAMPLES][2];
    static float narrow[SAMPLES][2];
    char path[512], dataset[640];
    snprintf(path, sizeof path, "%s/rows.csv", tap_folder());
    FILE *file = fopen(path, "we");
    for (int k = 0; k < SAMPLES; k++) {
        rows[k][0] = 1000 + 5 * (k % 3) + k % 7;
        rows[k][1] = 0.01 * (k % 11);
        narrow[k][0] = (float)rows[k][0];
        narrow[k][1] = (float)rows[k][1];
        fprintf(file, "%.17g,%.17g,%d\n", rows[k][0], rows[k][1], k % 3);
    }
    fclose(file);
    snprintf(dataset, sizeof dataset, "{\"name\": \"csv\", \"path\": \"%s\"}", path);
    pl_arrays_t samples = {.samples = SAMPLES,
                           .field_count = 1,
                           .field = {{"x", PL_F32, {1, {2}}}},
                           .data = {narrow}};
    same_as_predicted(dataset, &samples);
    samples.field[0].dtype = PL_F64;
    samples.data[0] = rows;
    same_as_predicted(dataset, &samples);
}

/* "train-images-idx3-ubyte" and the like: a head, then bytes. */
static void put_idx(const char *name, const uint8_t *head, size_t size,
                    const uint8_t *bytes, size_t count)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s-ubyte", tap_folder(), name);
    FILE *file = fopen(path, "we");
    fwrite(head, 1, size, file);
    fwrite(bytes, 1, count, file);
    fclose(file);
}

static void idx_pixels_are_answered_as_the_file_has_them(void)
{
    enum { IMAGES = 30, PIXELS = 6 };
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, IMAGES, 0, 0, 0, 2, 0, 0, 0, 3},
                         labels[] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    static uint8_t pixel[IMAGES][PIXELS], label[IMAGES];
    char dataset[640];
    for (int k = 0; k < IMAGES * PIXELS; k++)
        pixel[k / PIXELS][k % PIXELS] = (uint8_t)(k * 37);
    for (int k = 0; k < IMAGES; k++)
        label[k] = (uint8_t)(k % 3);
    for (int k = 0; k < 2; k++) {
        put_idx(k ? "t10k-images-idx3" : "train-images-idx3", images, sizeof images,
                pixel[0], sizeof pixel);
        put_idx(k ? "t10k-labels-idx1" : "train-labels-idx1", labels, sizeof labels,
                label, sizeof label);
    }
    snprintf(dataset, sizeof dataset,
             "{\"name\": \"idx\", \"path\": \"%s\", \"mean\": 0.3, \"std\": 0.2}",
             tap_folder());
    same_as_predicted(dataset, &(pl_arrays_t){.samples = IMAGES,
                                              .field_count = 1,
                                              .field = {{"x", PL_U8, {3, {1, 2, 3}}}},
                                              .data = {pixel}});
}

/* A file with the run's weights after `change`; its path. */
static const char *changed(void (*change)(pl_weights_t *weights))
{
    static char path[512];
    pl_error_t err;
    pl_weights_t *weights = pl_weights_read(run_dir, &err);
    snprintf(path, sizeof path, "%s/changed.safetensors", tap_folder());
    change(weights);
    ok(pl_weights_write(path, weights, 0, &err) == PL_OK, "a file");
    pl_object_unref(weights);
    return path;
}

static void rename_one(pl_weights_t *weights)
{
    strcpy(weights->tensor[0].name, "stranger");
}

static void reshape_one(pl_weights_t *weights)
{
    for (int k = 0; k < weights->count; k++)
        if (weights->tensor[k].shape.rank == 2)
            weights->tensor[k].shape =
                (pl_shape_t){1, {pl_elements(weights->tensor[k].shape)}};
}

static void forget_module(pl_weights_t *weights)
{
    pl_free(weights->module);
    weights->module = NULL;
}

static void name_another(pl_weights_t *weights)
{
    pl_free(weights->module);
    weights->module = pl_strdup("{\"name\": \"nowhere\"}");
}

static void refuses(void (*change)(pl_weights_t *weights), const char *text)
{
    pl_error_t err;
    pl_answers_t answers;
    pl_arrays_t samples = inputs(0, 2);
    pl_loaded_model_t *model = pl_model_load(changed(change), 1, &err);
    ok(!model || pl_model_run(model, &samples, &answers, &err) != PL_OK, "refused");
    like(err.text, text, "because: %s", err.text);
    pl_model_unload(model);
}

static void weights_that_do_not_fit_are_listed(void)
{
    refuses(rename_one, "1 missing .fc1.weight.; 1 that the module does not have "
                        ".stranger.");
    refuses(reshape_one,
            "of another shape .fc1.weight: .42. in the file, .7, 6. in the module.");
}

static void files_that_cannot_be_loaded_are_refused(void)
{
    pl_error_t err;
    ok(!pl_model_load("/nowhere/at/all", 1, &err) && err.code == PL_ENOTFOUND, "no file");
    refuses(forget_module, "does not name its module");
    refuses(name_another, "nowhere");
}

/* ---- Files of other programs ---- */

enum { GPT_SAMPLES = 2, GPT_CONTEXT = 6, GPT_LOGITS = GPT_SAMPLES * GPT_CONTEXT * 11 };

static int64_t tokens[GPT_SAMPLES * GPT_CONTEXT];
static double expected[GPT_LOGITS];

static const char *top(void)
{
    return getenv("top_srcdir") ? getenv("top_srcdir") : "..";
}

static void read_gpt(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/t/data/gpt2.json", top());
    json_t *root = json_load_file(path, 0, NULL);
    for (size_t k = 0; k < GPT_SAMPLES * GPT_CONTEXT; k++)
        tokens[k] =
            json_integer_value(json_array_get(json_object_get(root, "tokens"), k));
    for (size_t k = 0; k < GPT_LOGITS; k++)
        expected[k] =
            json_number_value(json_array_get(json_object_get(root, "logits"), k));
    json_decref(root);
}

static const pl_arrays_t sentences = {
    .samples = GPT_SAMPLES,
    .field_count = 2,
    .field = {{"x", PL_I64, {1, {GPT_CONTEXT}}}, {"y", PL_I64, {1, {GPT_CONTEXT}}}},
    .data = {tokens, tokens},
};

/* A fit that changes nothing, from the file of another program. */
static rig_result_t *gpt_fit(const char *options)
{
    char module[1024];
    snprintf(module, sizeof module,
             "{\"name\": \"gpt\", \"layers\": 2, \"heads\": 2, %s, "
             "\"vocabulary_size\": 11, \"init_from\": \"%s/t/data/gpt2.safetensors\"}",
             options, top());
    rig_t *rig = rig_new(.accelerator = "cpu", .module = module,
                         .dataset = "{\"name\": \"memory\", \"source\": \"sentences\"}",
                         .optimizer = "{\"name\": \"sgd\", \"lr\": 0}",
                         .trainer = "\"max_steps\": 1");
    rig_result_t *result = rig_keep(rig_fit(rig));
    rig_free(&rig);
    return result;
}

static void gpt_2_of_hugging_face_is_loaded(void)
{
    pl_error_t err;
    pl_answers_t answers;
    double worst = INFINITY;
    read_gpt();
    pl_memory_arrays("sentences", &sentences, NULL);
    rig_result_t *result = gpt_fit("\"width\": 8, \"context\": 6, \"bias\": true");
    is_text(result->status, "ok", "a fit starts from it: %s", result->error.text);
    pl_loaded_model_t *model = pl_model_load(result->run_dir, 1, &err);
    if (model && pl_model_run(model, &sentences, &answers, &err) == PL_OK) {
        worst = 0;
        for (int k = 0; k < GPT_LOGITS; k++)
            worst = tap_larger(worst, fabs(answers.output[0].data[k] - expected[k]));
    }
    ok(worst < 2e-5, "its logits are transformers' (%g)", worst);
    pl_model_unload(model);
    rig_result_free(result);
}

static void tensors_of_another_file_that_do_not_fit_are_listed(void)
{
    rig_result_t *result = gpt_fit("\"width\": 8, \"context\": 9, \"bias\": false");
    is_text(result->status, "failed", "a module of another shape and without biases");
    like(result->error.text,
         "gpt2.safetensors.*1 of another shape .wpe.weight: .6, 8. in the file, "
         ".9, 8. in the module.*8 that the module does not have .h.0.attn.c_attn.bias.*, "
         "and [0-9]* more.$",
         "%s", result->error.text);
    rig_result_free(result);
    result = gpt_fit("\"width\": 12, \"context\": 6, \"bias\": true");
    like(result->error.text,
         "h.0.attn.c_attn.weight: .8, 24. in the file .transposed., .36, 12. in the "
         "module.*, and [0-9]* more.$",
         "a file's matrix has the shape it has there: %s", result->error.text);
    rig_result_free(result);
}

static char warned[1024];

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)rank, (void)actor, (void)user;
    if (level == PL_LOG_WARNING)
        snprintf(warned, sizeof warned, "%s", text);
}

/* One step that changes nothing, of a module that starts from the run. */
static rig_result_t *start_from_run(const char *options)
{
    char module[512];
    snprintf(module, sizeof module, "{\"name\": \"mlp\", \"init_from\": \"%s\", %s}",
             run_dir, options);
    rig_t *rig = rig_new(.accelerator = "cpu", .module = module,
                         .dataset = "{\"name\": \"memory\", \"source\": \"numbers\"}",
                         .optimizer = "{\"name\": \"sgd\", \"lr\": 0}",
                         .trainer = "\"max_steps\": 1");
    rig_result_t *result = rig_keep(rig_fit(rig));
    rig_free(&rig);
    return result;
}

static void tensors_that_fit_may_be_taken_alone(void)
{
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    rig_result_t *all = start_from_run("\"hidden\": [7], \"classes\": 3"),
                 *refused = start_from_run("\"hidden\": [7], \"classes\": 5"),
                 *part = start_from_run("\"hidden\": [7], \"classes\": 5, "
                                        "\"init_strict\": false");
    is_text(refused->status, "failed", "a head of another shape is refused");
    is_text(part->status, "ok", "unless that is asked for: %s", part->error.text);
    ok(rig_same_tensor(all, part, "fc1.weight") && rig_same_tensor(all, part, "fc1.bias"),
       "what fits is taken");
    const rig_tensor_t *head = rig_find(part->weight, part->weight_count, "fc2.weight");
    bool drawn = false;
    for (size_t k = 0; head && k < head->count; k++)
        drawn = drawn || head->data[k] != 0;
    ok(drawn, "what does not has its first values");
    like(warned,
         "2 of 4 tensors are used.*2 of another shape .fc2.weight: .3, 7. in the file, "
         ".5, 7. in the module, fc2.bias: .3. in the file, .5. in the module.",
         "and is listed: %s", warned);
    rig_result_t *none = start_from_run("\"hidden\": [2, 9], \"classes\": 5, "
                                        "\"init_strict\": false");
    like(none->error.text, "none of the tensors fits", "nothing is no start");
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
    rig_result_free(all);
    rig_result_free(refused);
    rig_result_free(part);
    rig_result_free(none);
}

static int load_and_run(void *user)
{
    (void)user;
    pl_error_t err = {0};
    pl_answers_t answers;
    pl_arrays_t samples = inputs(0, 5);
    pl_loaded_model_t *model = pl_model_load(run_dir, 1, &err);
    int code = model ? pl_model_run(model, &samples, &answers, &err) : err.code;
    pl_model_unload(model);
    return code;
}

static void an_output_without_an_axis_of_samples_is_refused(void)
{
    pl_error_t err = {0};
    pl_answers_t answers;
    pl_arrays_t samples = inputs(0, 3);
    rig_t *rig = numbers_rig(
        "{\"name\": \"graph\", \"calls\": [[\"input\", {\"name\": \"x\"}], "
        "[\"linear\", {\"name\": \"fc\", \"x\": 0, \"units\": 3}], "
        "[\"sum\", {\"x\": 1, \"axes\": [0, 1], \"keep\": false}], "
        "[\"output\", {\"name\": \"all\", \"x\": 2}], [\"input\", {\"name\": \"y\"}], "
        "[\"cross_entropy\", {\"logits\": 1, \"targets\": 4}], "
        "[\"loss\", {\"loss\": 5}]]}",
        "\"max_steps\": 1");
    pl_loaded_model_t *model = pl_model_load(rig_fit(rig)->run_dir, 1, &err);
    ok(model && pl_model_run(model, &samples, &answers, &err) == PL_EUNSUPPORTED,
       "samples could not be told apart");
    like(err.text,
         "the first axis of output \"all\" must have the [0-9]+ samples of a batch, but "
         "its shape is \\[\\]",
         "which the error says");
    pl_model_unload(model);
    rig_free(&rig);
}

static void memory_may_run_out(void)
{
    scarce_try(load_and_run, NULL, "a model that is loaded and run");
}

int main(void)
{
    scarce_init_own();
    rig_init(NULL);
    if (!rig_has("cpu"))
        return tap_done();
    make_run();
    run(any_number_of_samples_is_answered_as_by_a_prediction);
    run(a_module_may_be_a_name_alone);
    run(csv_rows_are_answered_as_the_file_has_them);
    run(idx_pixels_are_answered_as_the_file_has_them);
    run(wrong_samples_are_refused);
    run(weights_that_do_not_fit_are_listed);
    run(files_that_cannot_be_loaded_are_refused);
    run(gpt_2_of_hugging_face_is_loaded);
    run(tensors_of_another_file_that_do_not_fit_are_listed);
    run(tensors_that_fit_may_be_taken_alone);
    run(an_output_without_an_axis_of_samples_is_refused);
    run(memory_may_run_out);
    free(run_dir);
    return tap_done();
}
