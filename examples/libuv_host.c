/* libuv_host.c - training in a program with a libuv loop
 *
 * A uv_poll_t watches the engine's descriptor and calls pl_engine_dispatch() when it is
 * readable.  All notifications come from there, on the loop's thread.  The program's own
 * timer runs at the same time. */
#include <paceline.h>
#include <stdio.h>
#include <uv.h>

enum { SAMPLES = 2000, TICK = 10 };                         /* ms */

static float x[SAMPLES][2];                                 /* points of a square */
static int64_t y[SAMPLES];                                  /* 1: inside a circle */

/* The module: two numbers in, logits of two classes out. */
static void circle_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t hidden = pl_relu(g, pl_linear(g, "hidden", pl_input(g, "x"), 32));
    pl_node_t logits = pl_linear(g, "out", hidden, 2);      /* [B, 2] */
    pl_loss(g, pl_cross_entropy(g, logits, pl_input(g, "y"), NULL));
    pl_log(g, "acc", pl_accuracy(g, logits, pl_input(g, "y"), NULL), PL_ON_EPOCH);
}

static const pl_module_ops_t circle = {.name = "circle", .size = 1, .step = circle_step};
static const pl_registration_t components[] = {{"module", &circle}, PL_REGISTRATIONS_END};
static const char run[] =
    "{\"module\": \"circle\", \"optimizer\": {\"name\": \"adamw\", \"lr\": 1e-2},"
    " \"data\": {\"name\": \"memory\", \"source\": \"points\", \"val_split\": 0.1},"
    " \"trainer\": {\"max_epochs\": 100, \"accelerator\": {\"name\": \"cpu\", "
    "\"threads\": 1}}}";

typedef struct program {
    uv_poll_t readable;                                     /* notifications wait */
    uv_timer_t timer;                                       /* the program's own */
    int ticks, reports;
    bool failed;
} program_t;

/* With no handle left the loop returns. */
static void program_end(program_t *program)
{
    uv_close((uv_handle_t *)&program->readable, NULL);
    uv_close((uv_handle_t *)&program->timer, NULL);
}

static void on_progress(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)trainer;
    program_t *program = user;
    if (program->reports++ % 20 == 0)
        printf("epoch %u, step %llu, %d ticks\n", progress->epoch + 1,
               (unsigned long long)progress->global_step, program->ticks);
}

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    program_t *program = user;
    double accuracy = 0;
    pl_result_metric(result, "val_acc", &accuracy);
    program->failed = result->error.code != PL_OK;
    if (program->failed)
        fprintf(stderr, "libuv_host: %s\n", result->error.text);
    else
        printf("%s\nval_acc %.3f; %d ticks of %d ms in %.2f s\n", result->status,
               accuracy, program->ticks, TICK, result->seconds);
    program_end(program);
}

static int arrays_register(pl_error_t *err)
{
    const pl_arrays_t points = {.samples = SAMPLES,
                                .field_count = 2,
                                .field = {{"x", PL_F32, PL_SHAPE(2)}, {"y", PL_I64, {0}}},
                                .data = {x, y}};
    for (int k = 0; k < SAMPLES; k++) {
        x[k][0] = (float)(k * 37 % SAMPLES) / (SAMPLES / 2) - 1;
        x[k][1] = (float)(k * 997 % SAMPLES) / (SAMPLES / 2) - 1;
        y[k] = x[k][0] * x[k][0] + x[k][1] * x[k][1] < 0.5f;
    }
    return pl_memory_arrays("points", &points, err);
}

static void on_tick(uv_timer_t *timer)
{
    ((program_t *)timer->data)->ticks++;
}

static void on_readable(uv_poll_t *readable, int status, int events)
{
    (void)status, (void)events;
    pl_engine_dispatch(readable->data);          /* on_progress, on_done come from here */
}

static void program_begin(program_t *program, pl_engine_t *engine, uv_loop_t *loop)
{
    uv_poll_init(loop, &program->readable, pl_engine_fd(engine));
    program->readable.data = engine;
    uv_poll_start(&program->readable, UV_READABLE, on_readable);
    uv_timer_init(loop, &program->timer);
    program->timer.data = program;
    uv_timer_start(&program->timer, on_tick, TICK, TICK);
}

int main(int argc, char **argv)
{
    pl_error_t err = {0};
    program_t program = {0};
    int code = pl_init(&argc, &argv, components, &err);     /* always first */
    if (code == PL_OK && argc > 1)
        code = pl_fail(&err, PL_EINVAL, "unexpected argument %s: the program takes none",
                       argv[1]);
    pl_engine_t *engine = code == PL_OK ? pl_engine_new(NULL, &err) : NULL;
    pl_options_t *options = engine ? pl_options_parse(run, "run", &err) : NULL;
    pl_trainer_t *trainer = NULL;
    if (options && arrays_register(&err) == PL_OK
        && (trainer = pl_trainer_new(engine, options, &err))) {
        pl_trainer_on_progress(trainer, on_progress, &program);
        if (pl_trainer_fit(trainer, on_done, &program, &err) == PL_OK) {
            program_begin(&program, engine, uv_default_loop());
            uv_run(uv_default_loop(), UV_RUN_DEFAULT);
            uv_loop_close(uv_default_loop());
        }
    }
    if (err.code == PL_OK && fflush(stdout) != 0)
        pl_fail(&err, PL_EIO, "standard output: %m");
    if (err.code != PL_OK)
        fprintf(stderr, "libuv_host: %s\n", err.text);
    pl_options_free(options);
    pl_engine_free(engine);                                 /* with its trainers */
    return program.failed || err.code != PL_OK;
}
