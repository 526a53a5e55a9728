/* each.c - a program for t/script.t, of which every process has its say
 *
 *     each same | differ | stage
 *
 * It trains on arrays of its own, which no file tells of.  Every process prints its
 * number, how the run was and after how many steps; "differ": their options are not the
 * same; "stage": nor is what they do. */
#include <event2/event.h>
#include <paceline.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 48 };

static float x[SAMPLES][2];
static int64_t y[SAMPLES];
static int status = 1;

static const char run[] =
    "{\"module\": {\"name\": \"mlp\", \"hidden\": [4], \"classes\": 2},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 1e-2},"
    " \"data\": {\"name\": \"memory\", \"source\": \"points\", \"batch_size\": 4, "
    "\"val_split\": 0.25},"
    " \"trainer\": {\"max_epochs\": 2, \"devices\": 2, \"launcher\": \"script\","
    " \"default_root_dir\": \"each\", \"accelerator\": {\"name\": \"cpu\", "
    "\"threads\": 1}}}";

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *base)
{
    (void)trainer;
    status = strcmp(result->status, "ok") != 0;
    printf("%d %s %llu\n", pl_rank(), result->status,
           (unsigned long long)result->global_step);
    fflush(stdout);
    if (status && pl_rank() == 0)
        fprintf(stderr, "%s\n", result->error.text);
    event_base_loopbreak(base);
}

int main(int argc, char **argv)
{
    pl_error_t err = {0};
    const char *how = argc > 1 ? argv[1] : "same";
    const pl_arrays_t points = {.samples = SAMPLES,
                                .field_count = 2,
                                .field = {{"x", PL_F32, PL_SHAPE(2)}, {"y", PL_I64, {0}}},
                                .data = {x, y}};
    int code = pl_init(&argc, &argv, NULL, &err);
    for (int k = 0; k < SAMPLES; k++) {
        y[k] = k % 2;
        x[k][k % 2] = (float)k / SAMPLES;
    }
    struct event_base *base = event_base_new();
    pl_engine_t *engine = code == PL_OK ? pl_engine_new(base, &err) : NULL;
    pl_options_t *options = engine ? pl_options_parse(run, "run", &err) : NULL;
    if (options && !strcmp(how, "differ") && pl_rank() == 2)
        pl_options_set(options, "optimizer.lr", "1e-3", &err);
    pl_trainer_t *trainer = options && pl_memory_arrays("points", &points, &err) == PL_OK
                                ? pl_trainer_new(engine, options, &err)
                                : NULL;
    if (trainer && !strcmp(how, "stage") && pl_rank() == 2)
        code = pl_trainer_validate(trainer, "none.safetensors", on_done, base, &err);
    else if (trainer)
        code = pl_trainer_fit(trainer, on_done, base, &err);
    if (trainer && code == PL_OK)
        event_base_dispatch(base);
    if (err.code != PL_OK)
        fprintf(stderr, "each: %s\n", err.text);
    pl_options_free(options);
    pl_engine_free(engine);
    event_base_free(base);
    return status;
}
