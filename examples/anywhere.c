/* anywhere.c - a program that trains with any launcher: its ranks are threads, processes
 * that it starts, or processes that another program starts
 *
 *     anywhere [KEY=VALUE]…           such as trainer.launcher=script trainer.devices=4
 *
 * Every process of this program registers the module and the data set by name, so each of
 * them can be a rank.  The program trains and then evaluates the trained weights; process
 * 0 prints the result. */
#include <event2/event.h>
#include <math.h>
#include <paceline.h>
#include <stdio.h>
#include <string.h>

/* ---- data: points of two rings around each other, computed when they are read ---- */

typedef struct rings {
    int64_t samples;
} rings_t;

static const pl_option_t rings_options[] = {
    PL_INT(rings_t, samples, "600", "1..", "points"),
    PL_OPTIONS_END,
};

static int rings_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                      pl_error_t *err)
{
    (void)request;
    *info = (pl_data_info_t){.samples = ((const rings_t *)self)->samples,
                             .field_count = 2,
                             .field = {{"x", PL_F32, PL_SHAPE(2)}, {"y", PL_I64, {0}}},
                             .data_info = pl_text("{\"classes\": 2}")};
    return info->data_info ? PL_OK : pl_fail(err, PL_ENOMEM, "out of memory");
}

static int rings_read(const void *self, const pl_read_request_t *request,
                      void *const field[], pl_error_t *err)
{
    (void)self, (void)err;
    float(*x)[2] = field[0];
    int64_t *y = field[1];
    for (int k = 0; k < request->count; k++) {
        const double angle = (double)request->index[k] * 2.399;
        y[k] = request->index[k] % 2;
        x[k][0] = (float)((y[k] ? 1 : 2.5) * cos(angle));
        x[k][1] = (float)((y[k] ? 1 : 2.5) * sin(angle));
    }
    return PL_OK;
}

static const pl_dataset_ops_t rings = {.name = "rings",
                                       .help = "points of two rings",
                                       .size = sizeof(rings_t),
                                       .options = rings_options,
                                       .open = rings_open,
                                       .read = rings_read};

/* ---- the module ---- */

static void ring_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t hidden = pl_relu(g, pl_linear(g, "hidden", pl_input(g, "x"), 32));
    pl_node_t logits = pl_linear(g, "out", hidden, 2);      /* [B, 2] */
    pl_loss(g, pl_cross_entropy(g, logits, pl_input(g, "y"), NULL));
    pl_log(g, "acc", pl_accuracy(g, logits, pl_input(g, "y"), NULL), PL_ON_EPOCH);
}

static const pl_module_ops_t ring = {.name = "ring", .size = 1, .step = ring_step};

static const pl_registration_t components[] = {{"dataset", &rings},
                                               {"module", &ring},
                                               PL_REGISTRATIONS_END};

static const char run[] =
    "{\"module\": \"ring\", \"optimizer\": {\"name\": \"adamw\", \"lr\": 1e-2},"
    " \"data\": {\"name\": \"rings\", \"val_split\": 0.2, \"batch_size\": 16},"
    " \"trainer\": {\"max_epochs\": 10, \"strategy\": \"ddp\", \"devices\": 2,"
    " \"accelerator\": {\"name\": \"cpu\", \"threads\": 1}}}";

/* ---- the program ---- */

typedef struct program {
    struct event_base *base;
    int status;
} program_t;

static void program_end(program_t *program, const char *what, const char *text,
                        int status)
{
    if (pl_rank() == 0)
        fprintf(status ? stderr : stdout, "%s %s\n", what, text);
    program->status = status;
    event_base_loopbreak(program->base);
}

static void on_measured(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    if (!strcmp(result->status, "ok"))
        program_end(user, "measured", result->metrics, 0);
    else
        program_end(user, "failed", result->error.text, 1);
}

static void on_trained(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    pl_error_t err = {0};
    if (strcmp(result->status, "ok")) {
        program_end(user, result->status,
                    result->error.code ? result->error.text : result->reason, 1);
        return;
    }
    if (pl_rank() == 0)
        printf("trained %s\n", result->run_dir);
    if (pl_trainer_validate(trainer, result->run_dir, on_measured, user, &err) != PL_OK)
        program_end(user, "failed", err.text, 1);
}

static int option_set(pl_options_t *options, char *word, pl_error_t *err)
{
    char *value = strchr(word, '=');
    if (!value)
        return pl_fail(err, PL_EINVAL, "KEY=VALUE is expected, not %s", word);
    *value++ = '\0';
    return pl_options_set(options, word, value, err);
}

int main(int argc, char **argv)
{
    pl_error_t err = {0};
    int code = pl_init(&argc, &argv, components, &err);     /* always first */
    program_t program = {.base = event_base_new(), .status = 2};
    pl_engine_t *engine = code == PL_OK ? pl_engine_new(program.base, &err) : NULL;
    pl_options_t *options = engine ? pl_options_parse(run, "run", &err) : NULL;
    if (!options)
        code = err.code;
    for (int k = 1; k < argc && code == PL_OK; k++)
        code = option_set(options, argv[k], &err);
    pl_trainer_t *trainer = code == PL_OK ? pl_trainer_new(engine, options, &err) : NULL;
    if (trainer && pl_trainer_fit(trainer, on_trained, &program, &err) == PL_OK)
        event_base_dispatch(program.base);
    if (err.code == PL_OK && fflush(stdout) != 0)
        program.status = pl_fail(&err, PL_EIO, "standard output: %m") != PL_OK;
    if (err.code != PL_OK)
        fprintf(stderr, "anywhere: %s\n", err.text);
    pl_options_free(options);
    pl_engine_free(engine);
    event_base_free(program.base);
    return program.status;
}
