/* online_learning.c - a program that learns from a stream and predicts at the same time
 *
 *     online_learning [still]   still: stops learning when the stream drifts
 *
 * Points come in small batches with their true classes.  Halfway, the meaning of the
 * classes changes.  Each batch is first evaluated, with weights that have not seen it,
 * and then trained on (prequential evaluation, Dawid 1984).  So the accuracy falls when
 * the meaning changes, and recovers as the weights adapt. */
#include <event2/event.h>
#include <math.h>
#include <paceline.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 16, BATCHES = 400, DRIFT = 200, SHOWN = 25 };

/* The module: a point in, logits of two classes out. */
static void side_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t hidden = pl_relu(g, pl_linear(g, "hidden", pl_input(g, "x"), 16));
    pl_node_t logits = pl_linear(g, "out", hidden, 2);      /* [B, 2] */
    pl_loss(g, pl_cross_entropy(g, logits, pl_input(g, "y"), NULL));
    pl_log(g, "acc", pl_accuracy(g, logits, pl_input(g, "y"), NULL), PL_ON_EPOCH);
}

static const pl_module_ops_t side = {.name = "side", .size = 1, .step = side_step};
static const pl_registration_t components[] = {{"module", &side}, PL_REGISTRATIONS_END};
static const char run[] =
    "{\"module\": \"side\", \"optimizer\": {\"name\": \"adamw\", \"lr\": 2e-2},"
    " \"data\": {\"name\": \"memory\", \"source\": \"\", \"batch_size\": 16},"
    " \"trainer\": {\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}}}";
static const pl_field_t fields[] = {{"x", PL_F32, {1, {2}}}, {"y", PL_I64, {0, {0}}}};

typedef struct program {
    struct event_base *base;
    struct event *clock;                                /* at each tick a batch arrives */
    pl_loop_t *loop;
    bool still;
    int batches, measured, under_way;
    uint32_t random;
    double window[BATCHES];                                 /* accuracy on each batch */
    int status;
} program_t;

/* ---- the stream ---- */

static float next_number(program_t *p)                      /* in [-1, 1) */
{
    p->random = p->random * 1664525u + 1013904223u;
    return (float)(p->random >> 8) / (float)(1 << 23) - 1;
}

/* The class is the side of a line through the middle, which turns when the data
 * drifts. */
static void next_batch(program_t *p, float x[BATCH][2], int64_t y[BATCH])
{
    const float angle = p->batches < DRIFT ? 0.5f : 3.0f;
    for (int k = 0; k < BATCH; k++) {
        x[k][0] = next_number(p), x[k][1] = next_number(p);
        y[k] = x[k][0] * cosf(angle) + x[k][1] * sinf(angle) > 0;
    }
}

/* ---- the program ---- */

static double mean(const program_t *p, int from, int to)
{
    double sum = 0;
    for (int k = from; k < to; k++)
        sum += p->window[k];
    return sum / (to - from);
}

static void program_fail(program_t *p, const char *text)
{
    fprintf(stderr, "online_learning: %s\n", text);
    p->status = 1;
    event_base_loopbreak(p->base);
}

static void on_closed(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop;
    program_t *p = user;
    if (result->error.code != PL_OK) {
        program_fail(p, result->error.text);
        return;
    }
    printf("%llu steps; accuracy before %.2f, just after %.2f, at the end %.2f\n",
           (unsigned long long)result->global_step, mean(p, DRIFT - 50, DRIFT),
           mean(p, DRIFT, DRIFT + 5), mean(p, BATCHES - 50, BATCHES));
    event_base_loopbreak(p->base);
}

static void on_trained(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop;
    program_t *p = user;
    p->under_way--;
    if (result->error.code != PL_OK)
        program_fail(p, result->error.text);
}

static void on_measured(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    program_t *p = user;
    p->under_way--;
    if (result->error.code != PL_OK) {
        program_fail(p, result->error.text);
        return;
    }
    pl_loop_metric(result, "val_acc", &p->window[p->measured++]);
    if (p->measured % SHOWN == 0)
        printf("batch %d: accuracy %.2f%s\n", p->measured,
               mean(p, p->measured - SHOWN, p->measured),
               p->measured == DRIFT ? "; the meaning of the classes changes here" : "");
    if (p->measured == BATCHES)
        pl_loop_close(loop, on_closed, p);
}

/* A batch arrives: evaluates it, then trains on it.  Both calls copy it and return. */
static void on_tick(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    program_t *p = user;
    float x[BATCH][2];
    int64_t y[BATCH];
    pl_error_t err = {0};
    if (p->under_way || p->batches == BATCHES)
        return;
    next_batch(p, x, y);
    const pl_arrays_t samples = {.samples = BATCH,
                                 .field_count = 2,
                                 .field = {fields[0], fields[1]},
                                 .data = {x, y}};
    const bool learns = !p->still || p->batches < DRIFT;
    p->batches++;
    p->under_way += 1 + learns;
    if (pl_loop_evaluate(p->loop, &samples, on_measured, p, &err) != PL_OK
        || (learns && pl_loop_train(p->loop, &samples, on_trained, p, &err) != PL_OK))
        program_fail(p, err.text);
}

static void on_ready(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop;
    program_t *p = user;
    if (result->error.code != PL_OK)
        program_fail(p, result->error.text);
    else
        event_add(p->clock, &(struct timeval){.tv_usec = 500});
}

int main(int argc, char **argv)
{
    pl_error_t err = {0};
    program_t p = {.random = 1};
    int code = pl_init(&argc, &argv, components, &err);     /* always first */
    const pl_loop_spec_t spec = {.field_count = 2, .field = fields, .targets = 1};
    p.still = argc > 1 && !strcmp(argv[1], "still");
    if (code == PL_OK && argc > 1 + p.still)
        code = pl_fail(&err, PL_EINVAL, "unknown argument %s: the only one is \"still\"",
                       argv[1 + p.still]);
    p.base = event_base_new();
    p.clock = event_new(p.base, -1, EV_PERSIST, on_tick, &p);
    pl_engine_t *engine = code == PL_OK ? pl_engine_new(p.base, &err) : NULL;
    pl_options_t *options = engine ? pl_options_parse(run, "run", &err) : NULL;
    p.loop = options ? pl_loop_open(engine, options, &spec, on_ready, &p, &err) : NULL;
    if (p.loop)
        event_base_dispatch(p.base);
    else
        program_fail(&p, err.text);
    if (fflush(stdout) != 0)
        program_fail(&p, "standard output cannot be written");
    pl_options_free(options);
    pl_engine_free(engine);
    event_free(p.clock);
    event_base_free(p.base);
    return p.status;
}
