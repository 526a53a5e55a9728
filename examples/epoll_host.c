/* epoll_host.c - training in a program with a plain epoll loop
 *
 * The program has one descriptor, a timer, in place of the connections of a server.  The
 * engine adds one descriptor.  When it is readable, notifications wait:
 * pl_engine_dispatch() delivers them on the calling thread.  libevent is not needed. */
#include <paceline.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

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
    int ticks, reports;
    bool over, failed;
} program_t;

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
        fprintf(stderr, "epoll_host: %s\n", result->error.text);
    else
        printf("%s\nval_acc %.3f; %d ticks of %d ms in %.2f s\n", result->status,
               accuracy, program->ticks, TICK, result->seconds);
    program->over = true;
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

/* The program's own descriptor. */
static int timer_open(void)
{
    const struct timespec tick = {.tv_nsec = TICK * 1000000L};
    const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    timerfd_settime(timer, 0, &(struct itimerspec){tick, tick}, NULL);
    return timer;
}

static void timer_read(int timer, program_t *program)
{
    uint64_t ticks = 0;
    if (read(timer, &ticks, sizeof ticks) == sizeof ticks)
        program->ticks += (int)ticks;
}

static void loop(pl_engine_t *engine, int timer, program_t *program)
{
    const int poll = epoll_create1(EPOLL_CLOEXEC), fd = pl_engine_fd(engine);
    epoll_ctl(poll, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {.fd = fd}});
    epoll_ctl(poll, EPOLL_CTL_ADD, timer, &(struct epoll_event){EPOLLIN, {.fd = timer}});
    while (!program->over) {
        struct epoll_event event[8];
        const int count = epoll_wait(poll, event, 8, -1);
        for (int k = 0; k < count; k++)
            if (event[k].data.fd == fd)
                pl_engine_dispatch(engine);      /* on_progress, on_done come from here */
            else
                timer_read(timer, program);
    }
    close(poll);
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
    const int timer = timer_open();
    if (options && arrays_register(&err) == PL_OK
        && (trainer = pl_trainer_new(engine, options, &err))) {
        pl_trainer_on_progress(trainer, on_progress, &program);
        if (pl_trainer_fit(trainer, on_done, &program, &err) == PL_OK)
            loop(engine, timer, &program);
    }
    if (err.code == PL_OK && fflush(stdout) != 0)
        pl_fail(&err, PL_EIO, "standard output: %m");
    if (err.code != PL_OK)
        fprintf(stderr, "epoll_host: %s\n", err.text);
    close(timer);
    pl_options_free(options);
    pl_engine_free(engine);                                 /* with its trainers */
    return program.failed || err.code != PL_OK;
}
