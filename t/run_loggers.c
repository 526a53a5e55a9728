/* run_loggers.c - tests of loggers in whole runs: which files a run writes */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

/* ---- A logger that writes steps, another that cannot ---- */

typedef struct steps {
    FILE *file;
    const char *before;
} steps_t;

static const pl_option_t steps_options[] = {
    PL_TEXT(steps_t, before, "\"step\"", NULL, "what each line begins with"),
    PL_OPTIONS_END,
};

static int steps_open(void *self, const pl_log_run_t *run, pl_error_t *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/steps.txt", run->run_dir);
    ((steps_t *)self)->file = fopen(path, "w");
    return ((steps_t *)self)->file ? PL_OK : pl_fail(err, PL_EIO, "%s", path);
}

static int steps_log(void *self, const pl_record_t *record, pl_error_t *err)
{
    const steps_t *to = self;
    (void)err;
    fprintf(to->file, "%s %d\n", to->before, (int)record->global_step);
    return PL_OK;
}

static void steps_close(void *self, const char *status)
{
    const steps_t *to = self;
    fprintf(to->file, "end %s\n", status);
    fclose(to->file);
}

static int steps_tensors(void *self, const pl_record_t *record,
                         const pl_result_tensor_t *tensor, int count, pl_error_t *err)
{
    (void)err;
    bool small = count > 0;
    for (int64_t k = 0; small && k < tensor[0].shape.dim[0]; k++)
        small = fabsf(tensor[0].data[k]) < 1;
    fprintf(((steps_t *)self)->file, "tensors %d %s%s\n", (int)record->global_step,
            count ? tensor[0].name : "", small ? ", small" : "");
    return PL_OK;
}

static int broken_log(void *self, const pl_record_t *record, pl_error_t *err)
{
    (void)self, (void)record;
    return pl_fail(err, PL_EIO, "the pencil is broken");
}

static const pl_logger_ops_t steps = {.name = "steps",
                                      .size = sizeof(steps_t),
                                      .options = steps_options,
                                      .open = steps_open,
                                      .log = steps_log,
                                      .tensors = steps_tensors,
                                      .close = steps_close};
static const pl_logger_ops_t broken = {.name = "broken", .size = 1, .log = broken_log};
static const pl_logger_ops_t hollow = {.name = "hollow", .size = 1};

static int lines_of(const rig_result_t *result, const char *name, const char *beginning)
{
    char path[4200], line[4096];
    int count = 0;
    snprintf(path, sizeof path, "%s/%s", result->run_dir, name);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        count += !strncmp(line, beginning, strlen(beginning));
    if (file)
        fclose(file);
    return count;
}

#define THREE "\"max_steps\": 3, \"log_every_n_steps\": 1"

static void a_run_without_loggers_has_the_default_one(void)
{
    rig_t *rig = rig_new(.trainer = THREE);
    const rig_result_t *result = rig_fit(rig);
    ok(lines_of(result, "metrics.jsonl", "{\"global_step\":") >= 3, "metrics.jsonl");
    ok(lines_of(result, "run.json", "  \"loggers\": [") == 1, "and its run file says so");
    rig_free(&rig);
}

static void all_listed_loggers_write_and_no_other(void)
{
    rig_t *rig = rig_new(.trainer = THREE ", \"enable_checkpointing\": false",
                         .loggers = "[{\"name\": \"steps\", \"before\": \"at\"}, "
                                    "\"jsonl\"]");
    const rig_result_t *result = rig_fit(rig);
    int lines = lines_of(result, "metrics.jsonl", "{");
    ok(lines >= 3, "a line a step");
    is_int(lines_of(result, "steps.txt", "at "), lines, "in both, with its options");
    is_int(lines_of(result, "steps.txt", "end ok"), 1, "it gets the end of the run");
    is_int(lines_of(result, "steps.txt", "tensors 3 fc"), 1, "and sees the tensors once");
    rig_free(&rig);
    rig = rig_new(.trainer = THREE ", \"enable_checkpointing\": false, "
                                   "\"precision\": \"64-true\"",
                  .loggers = "[\"steps\"]");
    result = rig_fit(rig);
    is_int(lines_of(result, "steps.txt", "tensors 3 fc1.weight, small"), 1,
           "as float32, whatever the run computes in");
    rig_free(&rig);
    rig = rig_new(.trainer = THREE, .loggers = "[\"steps\"]");
    result = rig_fit(rig);
    ok(rig_has_file(result, "steps.txt") && !rig_has_file(result, "metrics.jsonl"),
       "one instead of the usual one");
    rig_free(&rig);
    rig = rig_new(.trainer = THREE, .loggers = "[]");
    result = rig_fit(rig);
    is_text(result->status, "ok", "a run may have none");
    ok(!rig_has_file(result, "metrics.jsonl"), "then nothing is written");
    rig_free(&rig);
}

static void tensors_of_a_step_are_logged_once(void)
{
    rig_t *rig = rig_new(.trainer = THREE, .loggers = "[\"steps\"]");
    const rig_result_t *result = rig_fit(rig);
    ok(rig_has_file(result, "checkpoints"),
       "a run that ends within an epoch saves there");
    is_int(lines_of(result, "steps.txt", "tensors 3 "), 1,
           "and the weights at the end are those that were shown then");
    rig_free(&rig);
}

static void a_logger_that_fails_costs_its_lines_only(void)
{
    rig_t *rig = rig_new(.trainer = THREE, .loggers = "[\"broken\", \"steps\"]");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "the run continues");
    ok(lines_of(result, "steps.txt", "step ") >= 3, "as does the other logger");
    rig_free(&rig);
}

static void a_component_that_is_no_logger_is_refused(void)
{
    ok(!rig_new(.loggers = "[\"jsonl\", \"parchment\"]"), "an unknown name");
    like(rig_error.text,
         "^rig:1:[0-9]+: \"loggers.1\": there is no logger \"parchment\": known "
         "are .*jsonl",
         "is refused at its place, and the known ones listed");
    rig_t *rig = rig_new(.loggers = "[\"hollow\"]");
    is_int(rig_fit(rig)->error.code, PL_EUSER, "one without functions fails the run");
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t components[] = {{"logger", &steps},
                                                   {"logger", &broken},
                                                   {"logger", &hollow},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(a_run_without_loggers_has_the_default_one);
    run(all_listed_loggers_write_and_no_other);
    run(tensors_of_a_step_are_logged_once);
    run(a_logger_that_fails_costs_its_lines_only);
    run(a_component_that_is_no_logger_is_refused);
    return tap_done();
}
