/* embed.c - a program that trains on arrays in memory, in its own event loop
 *
 * The loop has a timer, as a server would have.  Training runs on Paceline's threads; the
 * loop receives only notifications, and the timer keeps its pace. */
#include <event2/event.h>
#include <paceline.h>
#include <stdio.h>

enum { SAMPLES = 2000, TICK = 10 };                         /* ms */

static float x[SAMPLES][2];                                 /* points of a square */
static int64_t y[SAMPLES];                                  /* 1: inside a circle */
static int ticks, failed;

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
    " \"trainer\": {\"max_epochs\": 100}}";

static void on_tick(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what, ++*(int *)user;
}

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    double accuracy = 0;
    (void)trainer, pl_result_metric(result, "val_acc", &accuracy);
    if ((failed = result->error.code != PL_OK))
        fprintf(stderr, "embed: %s\n", result->error.text);
    else
        printf("%s\nval_acc %.3f; %d ticks of %d ms in %.2f s\n", result->status,
               accuracy, ticks, TICK, result->seconds);
    event_base_loopbreak(user);
}

int main(int argc, char **argv)
{
    pl_error_t err = {0};
    int code = pl_init(&argc, &argv, components, &err);          /* always first */
    if (code == PL_OK && argc > 1)
        code = pl_fail(&err, PL_EINVAL, "unexpected argument %s", argv[1]);
    const pl_arrays_t points = {
        SAMPLES, 2, {{"x", PL_F32, PL_SHAPE(2)}, {"y", PL_I64, {0}}}, {x, y}};
    for (int k = 0; k < SAMPLES; k++) {
        x[k][0] = (float)(k * 37 % SAMPLES) / (SAMPLES / 2) - 1;
        x[k][1] = (float)(k * 997 % SAMPLES) / (SAMPLES / 2) - 1;
        y[k] = x[k][0] * x[k][0] + x[k][1] * x[k][1] < 0.5f;
    }
    struct event_base *base = event_base_new();
    struct event *timer = event_new(base, -1, EV_PERSIST, on_tick, &ticks);
    event_add(timer, &(struct timeval){.tv_usec = TICK * 1000});
    pl_engine_t *engine = pl_engine_new(base, &err);
    pl_options_t *options = pl_options_parse(run, "run", &err);
    pl_trainer_t *trainer = NULL;
    if (code == PL_OK && engine && options
        && pl_memory_arrays("points", &points, &err) == PL_OK
        && (trainer = pl_trainer_new(engine, options, &err))
        && pl_trainer_fit(trainer, on_done, base, &err) == PL_OK)
        event_base_dispatch(base);   /* the program's own loop: on_done comes from here */
    else
        fprintf(stderr, "embed: %s\n", err.text);
    pl_options_free(options);
    pl_engine_free(engine);                                 /* with its trainers */
    event_free(timer);
    event_base_free(base);
    return failed || err.code != PL_OK;
}
