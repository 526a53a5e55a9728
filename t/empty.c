/* empty.c - tests of runs with empty data, or with an empty part */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

static rig_result_t *fit(const char *trainer, const char *data, const char *dataset)
{
    rig_t *rig = rig_new(.trainer = trainer, .data = data, .dataset = dataset);
    rig_result_t *result = rig ? rig_keep(rig_fit(rig)) : calloc(1, sizeof *result);
    if (!rig)
        ok(false, "the run is taken: %s", rig_error.text);
    rig_free(&rig);
    return result;
}

static void fails(rig_result_t *result, const char *why)
{
    is_text(result->status, "failed", "it fails");
    like(result->error.text, why, "and says why: %s", result->error.text);
    rig_result_free(result);
}

#define SPLIT "\"batch_size\": 4, \"val_split\": 0.2"

static void training_on_nothing_fails(void)
{
    fails(fit("\"max_epochs\": 1, \"limit_train_batches\": 0", SPLIT, NULL),
          "limit_train_batches excludes every batch of an epoch, which has 8: raise it");
    fails(fit("\"max_epochs\": 1, \"limit_train_batches\": 0.01", SPLIT, NULL),
          "limit_train_batches excludes every batch");
    fails(fit("\"max_epochs\": 1", "\"val_split\": 0.999", NULL),
          "data.val_split .* leaves nothing to train on");
}

static void an_empty_validation_is_skipped(void)
{
    rig_result_t *result = fit("\"max_epochs\": 2, \"limit_val_batches\": 0", SPLIT,
                               NULL);
    is_text(result->status, "ok", "a run without it: %s", result->error.text);
    is_int(result->global_step, 16, "has all steps");
    ok(isnan(rig_metric(result, "val_loss")), "and no metrics of it");
    rig_result_free(result);
    fails(fit("\"max_epochs\": 1", "\"val_split\": 0.001", NULL),
          "data.val_split .* leaves nothing to validate on");
}

static int warnings;
static char warned[512];

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)rank, (void)actor, (void)user;
    if (level != PL_LOG_WARNING)
        return;
    warnings++;
    snprintf(warned, sizeof warned, "%s", text);
}

static void a_limit_of_zero_batches_is_no_warning(void)
{
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    rig_result_free(fit("\"max_epochs\": 1, \"limit_val_batches\": 0", SPLIT, NULL));
    is_int(warnings, 0, "an empty limit is no warning");
    rig_result_free(fit("\"max_epochs\": 1, \"limit_val_batches\": 0.01", SPLIT, NULL));
    ok(warnings > 0, "a share that gives none is hardly: %s", warned);
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
}

static void put(const char *name, const char *text)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", tap_folder(), name);
    FILE *file = fopen(path, "w");
    if (file && fputs(text, file) >= 0)
        fclose(file);
}

static void an_empty_further_source_is_skipped(void)
{
    char dataset[13000];
    const char *folder = tap_folder();
    put("full.csv", "a,b,c\n1,2,0\n2,3,1\n4,3,2\n5,1,0\n3,1,1\n1,7,2\n");
    put("none.csv", "a,b,c\n");
    snprintf(dataset, sizeof dataset,
             "{\"batch_size\": 2, \"train\": {\"name\": \"csv\", \"path\": "
             "\"%s/full.csv\"}, \"val\": [{\"name\": \"csv\", \"path\": "
             "\"%s/full.csv\"}, {\"name\": \"csv\", \"path\": \"%s/none.csv\"}]}",
             folder, folder, folder);
    warnings = 0;
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    rig_result_t *result = fit("\"max_epochs\": 1", NULL, dataset);
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
    is_text(result->status, "ok", "the run continues: %s", result->error.text);
    ok(!isnan(rig_metric(result, "val_loss/dataloader_idx_0"))
           && isnan(rig_metric(result, "val_loss/dataloader_idx_1")),
       "with metrics of the other: %s", result->metrics);
    ok(warnings == 1, "%d warning", warnings);
    like(warned, "source 1 of data.val has no samples", "it is named: %s", warned);
    rig_result_free(result);
}

static void empty_tables_are_refused(void)
{
    char path[4200], dataset[4300];
    static const char *const texts[] = {"", "a,b,c\n"};
    snprintf(path, sizeof path, "%s/empty.csv", tap_folder());
    snprintf(dataset, sizeof dataset, "{\"name\": \"csv\", \"path\": \"%s\"}", path);
    for (int k = 0; k < 2; k++) {
        FILE *file = fopen(path, "w");
        if (file && fputs(texts[k], file) >= 0)
            fclose(file);
        fails(fit("\"max_epochs\": 1", NULL, dataset), "empty.csv: .*(empty|nothing)");
    }
}

static void an_evaluation_without_samples_has_no_metrics(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1, \"limit_test_batches\": 0, "
                                    "\"limit_predict_batches\": 0",
                         .data = SPLIT);
    char *run_dir = strdup(rig_fit(rig)->run_dir);
    const rig_result_t *result = rig_test(rig, run_dir);
    is_text(result->status, "ok", "a test of nothing goes well: %s", result->error.text);
    is_text(result->metrics, "{}", "and has no metrics");
    result = rig_predict(rig, run_dir);
    is_text(result->status, "failed", "a prediction of nothing does not");
    like(result->error.text, "limit_predict_batches excludes every batch of 10: raise it",
         "and says why");
    rig_free(&rig);
    free(run_dir);
}

/* ---- what is read ---- */

enum { COUNTED = 40 };

static int reads[PL_PREDICT + 1];                          /* atomic: batches, by stage */

static int counted_open(void *self, const pl_data_request_t *request,
                        pl_data_info_t *info, pl_error_t *err)
{
    (void)self, (void)request;
    *info = (pl_data_info_t){.samples = COUNTED,
                             .field_count = 2,
                             .field = {{"x", PL_F32, pl_shape(1, RIG_FEATURES)},
                                       {"y", PL_I64, pl_shape(0)}},
                             .data_info = pl_text("{\"classes\": %d}", RIG_CLASSES)};
    return info->data_info ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
}

static int counted_read(const void *self, const pl_read_request_t *request,
                        void *const field[], pl_error_t *err)
{
    (void)self, (void)err;
    __atomic_add_fetch(&reads[request->stage], 1, __ATOMIC_RELAXED);
    for (int i = 0; i < request->count; i++)
        rig_sample(request->index[i], (float *)field[0] + i * RIG_FEATURES,
                   (int64_t *)field[1] + i);
    return PL_OK;
}

static const pl_dataset_ops_t counted = {.name = "counted",
                                         .size = 1,
                                         .open = counted_open,
                                         .read = counted_read};

#define COUNTED_DATA \
    "{\"name\": \"counted\", \"batch_size\": 2, \"val_split\": 0.5, \"prefetch\": 4}"

static void reads_are(const char *trainer, int train, int validate)
{
    memset(reads, 0, sizeof reads);
    rig_result_t *result = fit(trainer, NULL, COUNTED_DATA);
    is_text(result->status, "ok", "%s %s", trainer, result->error.text);
    is_int(reads[PL_TRAIN], train, "so many batches are read to train");
    is_int(reads[PL_VALIDATE], validate, "and so many to validate");
    rig_result_free(result);
}

/* All that is there is read ahead, but nothing beyond what is asked for. */
static void data_of_a_skipped_validation_are_not_read(void)
{
    reads_are("\"max_epochs\": 1", 10, 10);
    reads_are("\"max_epochs\": 1, \"limit_val_batches\": 0", 10, 0);
    reads_are("\"max_epochs\": 2, \"limit_val_batches\": 1", 20, 2);
    reads_are("\"max_epochs\": 2, \"limit_train_batches\": 3, \"limit_val_batches\": 0.2",
              6, 4);
    reads_are("\"max_steps\": 2, \"limit_val_batches\": 0", 2, 0);
    reads_are("\"max_epochs\": 1, \"num_sanity_val_steps\": 2, "
              "\"limit_train_batches\": 1, \"limit_val_batches\": 3",
              1, 5);
}

static void a_skipped_test_reads_nothing(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1, \"limit_test_batches\": 0, "
                                    "\"limit_predict_batches\": 3",
                         .dataset = COUNTED_DATA);
    char *run_dir = strdup(rig_fit(rig)->run_dir);
    memset(reads, 0, sizeof reads);
    is_text(rig_test(rig, run_dir)->status, "ok", "a test of nothing");
    is_int(reads[PL_TEST], 0, "reads nothing");
    is_text(rig_predict(rig, run_dir)->status, "ok", "a prediction of three batches");
    is_int(reads[PL_PREDICT], 3, "reads three");
    rig_free(&rig);
    free(run_dir);
}

int main(void)
{
    static const pl_registration_t components[] = {{"dataset", &counted},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(training_on_nothing_fails);
    run(an_empty_validation_is_skipped);
    run(a_limit_of_zero_batches_is_no_warning);
    run(an_empty_further_source_is_skipped);
    run(empty_tables_are_refused);
    run(an_evaluation_without_samples_has_no_metrics);
    run(data_of_a_skipped_validation_are_not_read);
    run(a_skipped_test_reads_nothing);
    return tap_done();
}
