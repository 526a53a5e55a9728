/* manual_program.c - the program of a manual loop, for tests */
#include "manual_program.h"

#include <stdio.h>
#include <string.h>

#include "tap.h"

float x[SAMPLES][RIG_FEATURES];
static int64_t y[SAMPLES];

const char *callbacks = "";
bool saves;
char run_dir[300], metrics[1000];
static pl_engine_t *engine;
pl_loop_t *loop;
pl_error_t err;

void program_take(pl_loop_t *of, const pl_loop_result_t *result, void *user)
{
    answer_t *a = user;
    (void)of;
    snprintf(run_dir, sizeof run_dir, "%s", result->run_dir);
    snprintf(metrics, sizeof metrics, "%s", result->metrics);
    *a = (answer_t){.done = true,
                    .error = result->error,
                    .step = result->global_step,
                    .loss = result->loss,
                    .norm = result->grad_norm,
                    .count = result->error.code == PL_OK ? result->output_count : 0};
    for (int k = 0; k < a->count && k < TENSORS; k++) {
        size_t elements = 1;
        snprintf(a->name[k], sizeof a->name[k], "%s", result->output[k].name);
        a->shape[k] = result->output[k].shape;
        for (int d = 0; d < a->shape[k].rank; d++)
            elements *= (size_t)a->shape[k].dim[d];
        memcpy(a->data[k], result->output[k].data, elements * sizeof(float));
    }
}

answer_t program_wait(int code, answer_t *answer)
{
    if (code == PL_OK && pl_engine_run_until(engine, &answer->done, &err) == PL_OK)
        return *answer;
    answer->error = err;
    return *answer;
}

const char *program_open(const char *module, const char *optimizer, const char *trainer)
{
    static const pl_field_t fields[] = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                        {"y", PL_I64, {0, {0}}}};
    const pl_loop_spec_t spec = {.field_count = 2,
                                 .field = fields,
                                 .targets = 1,
                                 .enable_checkpointing = saves};
    static answer_t opened;
    char run[2000];
    snprintf(run, sizeof run,
             "{\"module\": %s, \"optimizer\": %s, \"data\": {\"batch_size\": %d}, "
             "\"callbacks\": [%s], \"trainer\": {\"default_root_dir\": \"%s\", "
             "\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}%s%s}}",
             module, optimizer, BATCH, callbacks, tap_folder(), *trainer ? ", " : "",
             trainer);
    opened = (answer_t){0};
    for (int k = 0; k < SAMPLES; k++)
        rig_sample(k, x[k], &y[k]);
    engine = pl_engine_new(NULL, &err);
    pl_options_t *options = pl_options_parse(run, "run", &err);
    loop = options ? pl_loop_open(engine, options, &spec, program_take, &opened, &err)
                   : NULL;
    pl_options_free(options);
    if (!loop)
        return err.text;
    program_wait(PL_OK, &opened);
    return opened.error.text;
}

bool program_begin(const char *module, const char *optimizer, const char *trainer)
{
    return is_text(program_open(module, optimizer, trainer), "", "a loop is opened");
}

answer_t program_end(void)
{
    static answer_t closed;
    closed = (answer_t){0};
    if (loop) {
        pl_loop_close(loop, program_take, &closed);
        program_wait(PL_OK, &closed);
    }
    loop = NULL;
    pl_engine_free(engine);
    return closed;
}

pl_arrays_t program_batch(int first, int count)
{
    return (pl_arrays_t){.samples = count,
                         .field_count = 2,
                         .field = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                   {"y", PL_I64, {0, {0}}}},
                         .data = {x[first], &y[first]}};
}

answer_t program_train(int first, int count)
{
    const pl_arrays_t samples = program_batch(first, count);
    answer_t a = {0};
    return program_wait(pl_loop_train(loop, &samples, program_take, &a, &err), &a);
}

answer_t program_backward(const char *objective, int first, int count)
{
    const pl_arrays_t samples = program_batch(first, count);
    answer_t a = {0};
    return program_wait(pl_loop_backward(loop, objective, &samples, program_take, &a,
                                         &err),
                        &a);
}

answer_t program_step(const char *objective)
{
    answer_t a = {0};
    return program_wait(pl_loop_step(loop, objective, program_take, &a, &err), &a);
}

answer_t program_gradients(const char *objective)
{
    answer_t a = {0};
    return program_wait(pl_loop_gradients(loop, objective, program_take, &a, &err), &a);
}

answer_t program_set(const char *objective, const answer_t *to)
{
    pl_result_tensor_t tensor[TENSORS];
    answer_t a = {0};
    for (int k = 0; k < to->count && k < TENSORS; k++)
        tensor[k] = (pl_result_tensor_t){to->name[k], to->shape[k], to->data[k]};
    return program_wait(pl_loop_set_gradients(loop, objective, tensor, to->count,
                                              program_take, &a, &err),
                        &a);
}

bool program_same(const answer_t *a, const answer_t *b)
{
    bool equal = a->count == b->count && a->count > 0;
    for (int k = 0; k < a->count && equal; k++)
        equal = !strcmp(a->name[k], b->name[k])
                && !memcmp(a->data[k], b->data[k], sizeof a->data[k]);
    return equal;
}
