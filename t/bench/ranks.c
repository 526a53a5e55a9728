/* ranks.c - what it costs that ranks train together: two that do against two that have
 * nothing to do with each other
 *
 *     ranks [PAIRS [SECONDS [WORKLOAD [STRATEGY]]]]
 *
 * MLP, CNN and GPT as in step.c, one thread a rank, data in memory; STRATEGY is as in a
 * run file.  Fits of two processes of one rank each, at once, and fits of two ranks of
 * one process take turns, each of so many seconds; each pair gives one ratio of samples a
 * second, so that what the machine does to both cancels.  Rates are those of the time
 * between a fit's first report and its last before it gets the stop, which both processes
 * are at once: how long fits take to begin and to end is none of it, and neither ever
 * has the machine for itself.  All three processes are made before any thread is. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/random.h"
#include "tensor/graph.h"
#include "t/bench/bench.h"

enum { SAMPLES = 4096, EPOCH = 1 << 20, PAIRS_MAX = 101 };

const pl_registration_t *mlp_plugin(void);
const pl_registration_t *cnn_plugin(void);
const pl_registration_t *gpt_plugin(void);

typedef struct workload {
    const char *name, *module, *optimizer;
    const pl_registration_t *(*plugin)(void);
    pl_field_t field[2];
    int batch, classes;
    double bar;
} workload_t;

static const workload_t workloads[] = {
    {"mlp",
     "{\"name\": \"mlp\", \"hidden\": [128], \"classes\": 10}",
     "{\"name\": \"sgd\", \"lr\": 0.01}",
     mlp_plugin,
     {{"x", PL_F32, {1, {784}}}, {"y", PL_I64, {0, {0}}}},
     64,
     10,
     0.70},
    {"cnn",
     "{\"name\": \"cnn\", \"classes\": 10}",
     "\"adam\"",
     cnn_plugin,
     {{"x", PL_F32, {3, {1, 28, 28}}}, {"y", PL_I64, {0, {0}}}},
     64,
     10,
     0.95},
    {"gpt-small",
     "{\"name\": \"gpt\", \"layers\": 4, \"heads\": 4, \"width\": 128, \"context\": 64, "
     "\"vocabulary_size\": 65}",
     "{\"name\": \"adamw\", \"lr\": 0.0003, \"weight_decay\": 0.1}",
     gpt_plugin,
     {{"x", PL_I64, {1, {64}}}, {"y", PL_I64, {1, {64}}}},
     12,
     65,
     0.95},
};

enum { WORKLOADS = sizeof workloads / sizeof *workloads };

/* ---- data ---- */

static void *values_new(const workload_t *w, const pl_field_t *field)
{
    const int64_t count = SAMPLES * pl_elements(field->shape);
    const bool whole = field->dtype == PL_I64;
    void *values = pl_alloc_array((size_t)count, whole ? sizeof(int64_t) : sizeof(float));
    for (int64_t k = 0; k < count; k++)
        if (whole)
            ((int64_t *)values)[k] =
                (int64_t)(pl_random_u64(2, (uint64_t)k) % (uint64_t)w->classes);
        else
            ((float *)values)[k] = (float)pl_random_uniform(1, (uint64_t)k);
    return values;
}

/* An epoch that no run comes to the end of, of the same samples over and over. */
static int read_samples(void *user, const pl_read_request_t *request, void *const field[],
                        pl_error_t *err)
{
    (void)err;
    const pl_arrays_t *arrays = user;
    for (int f = 0; f < arrays->field_count; f++) {
        const size_t bytes = (size_t)pl_elements(arrays->field[f].shape)
                             * (arrays->field[f].dtype == PL_I64 ? sizeof(int64_t)
                                                                 : sizeof(float));
        for (int k = 0; k < request->count; k++)
            memcpy((char *)field[f] + (size_t)k * bytes,
                   (const char *)arrays->data[f]
                       + (size_t)(request->index[k] % SAMPLES) * bytes,
                   bytes);
    }
    return PL_OK;
}

static void data_make(const workload_t *w)
{
    static pl_arrays_t arrays[WORKLOADS];
    pl_error_t err;
    pl_arrays_t *own = &arrays[w - workloads];
    *own = (pl_arrays_t){.field_count = 2, .field = {w->field[0], w->field[1]}};
    for (int f = 0; f < 2; f++)
        own->data[f] = values_new(w, &w->field[f]);
    const pl_memory_data_t data = {.samples = EPOCH,
                                   .field_count = 2,
                                   .field = {w->field[0], w->field[1]},
                                   .read = read_samples,
                                   .user = own};
    bench_must(pl_memory_data(w->name, &data, &err), &err);
}

/* ---- a fit, until it gets a stop ---- */

/* Which, and of how many ranks; of none: it is to stop. */
typedef struct order {
    int workload, ranks;
} order_t;

typedef struct fit {
    double since, at;                                    /* of the first news, the last */
    uint64_t from, step;
    bool stops, done;
} fit_t;

static void fit_goes(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)trainer;
    fit_t *fit = user;
    if (fit->stops || strcmp(progress->event, "train") || !progress->global_step)
        return;
    fit->at = (double)pl_now() / PL_SECOND;
    fit->step = progress->global_step;
    if (fit->from)
        return;
    fit->since = fit->at;
    fit->from = fit->step;
}

static void fit_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    fit_t *fit = user;
    bench_must(strcmp(result->status, "failed") ? PL_OK : result->error.code,
               &result->error);
    fit->done = true;
}

static void fit_follow(pl_engine_t *engine, pl_trainer_t *trainer, fit_t *fit, int orders)
{
    pl_error_t err;
    order_t order;
    while (!fit->done) {
        struct pollfd readable[] = {{pl_engine_fd(engine), POLLIN, 0},
                                    {fit->stops ? -1 : orders, POLLIN, 0}};
        poll(readable, 2, -1);
        pl_engine_dispatch(engine);
        if (fit->done || !readable[1].revents)
            continue;
        fit->stops = true;
        if (read(orders, &order, sizeof order) != sizeof order)
            exit(0);                                        /* the parent is gone */
        bench_must(pl_trainer_stop(trainer, "it was long enough", &err), &err);
    }
}

/* Steps a second. */
static double fit_run(pl_engine_t *engine, const order_t *order, const char *strategy,
                      int orders)
{
    const workload_t *w = &workloads[order->workload];
    char text[2048], together[256] = "";
    pl_error_t err;
    fit_t fit = {0};
    if (order->ranks > 1)
        snprintf(together, sizeof together, "\"strategy\": %s, ", strategy);
    snprintf(text, sizeof text,
             "{\"module\": %s, \"optimizer\": %s, \"loggers\": [],"
             " \"data\": {\"name\": \"memory\", \"source\": \"%s\", \"batch_size\": %d},"
             " \"trainer\": {\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, %s"
             "\"devices\": %d, \"max_epochs\": 1000, \"default_root_dir\": \"%s\"}}",
             w->module, w->optimizer, w->name, w->batch, together, order->ranks,
             bench_folder());
    pl_options_t *options = pl_options_parse(text, "bench", &err);
    pl_trainer_t *trainer = options ? pl_trainer_new(engine, options, &err) : NULL;
    bench_must(trainer ? PL_OK : err.code, &err);
    pl_trainer_on_progress(trainer, fit_goes, &fit);
    bench_must(pl_trainer_fit(trainer, fit_done, &fit, &err), &err);
    fit_follow(engine, trainer, &fit, orders);
    pl_trainer_free(trainer);
    pl_options_free(options);
    if (fit.step == fit.from) {
        fprintf(stderr, "ranks: a fit of %s reported no step but one\n", w->name);
        exit(1);
    }
    return (double)(fit.step - fit.from) / (fit.at - fit.since);
}

/* ---- a process that trains on command ---- */

static void process_work(int orders, int answers, const char *strategy)
{
    pl_registration_t components[WORKLOADS + 1] = {0};
    pl_error_t err;
    order_t order;
    for (int k = 0; k < WORKLOADS; k++)
        components[k] = workloads[k].plugin()[0];
    bench_must(pl_init(NULL, NULL, components, &err), &err);
    for (int k = 0; k < WORKLOADS; k++)
        data_make(&workloads[k]);
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    bench_must(engine ? PL_OK : err.code, &err);
    while (read(orders, &order, sizeof order) == sizeof order) {
        const double rate = fit_run(engine, &order, strategy, orders);
        if (write(answers, &rate, sizeof rate) != sizeof rate)
            break;
    }
    pl_engine_free(engine);
}

typedef struct process {
    pid_t pid;
    int orders, answers;
} process_t;

static process_t process_start(const char *strategy)
{
    int orders[2], answers[2];
    if (pipe(orders) != 0 || pipe(answers) != 0)
        bench_must(PL_EIO, NULL);
    const process_t process = {fork(), orders[1], answers[0]};
    if (process.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(orders[1]);
        close(answers[0]);
        process_work(orders[0], answers[1], strategy);
        exit(0);
    }
    close(orders[0]);
    close(answers[1]);
    return process;
}

static void process_end(const process_t *process)
{
    close(process->orders);
    close(process->answers);
    waitpid(process->pid, NULL, 0);
}

static void process_order(const process_t *process, int workload, int ranks)
{
    const order_t order = {workload, ranks};
    if (write(process->orders, &order, sizeof order) != sizeof order)
        bench_must(PL_EIO, NULL);
}

static double process_answer(const process_t *process)
{
    double rate = 0;
    if (read(process->answers, &rate, sizeof rate) != sizeof rate)
        bench_must(PL_EIO, NULL);
    return rate;
}

/* ---- pairs ---- */

/* Steps a second of all ranks, in so many processes of so many ranks. */
static double rate_of(int which, const process_t *process, int processes, int ranks,
                      double seconds)
{
    double rate = 0;
    for (int k = 0; k < processes; k++)
        process_order(&process[k], which, ranks);
    usleep((useconds_t)(seconds * 1e6));
    for (int k = 0; k < processes; k++)
        process_order(&process[k], which, 0);
    for (int k = 0; k < processes; k++)
        rate += process_answer(&process[k]) * ranks;
    return rate;
}

static void workload_run(int which, const process_t process[3], int pairs, double seconds)
{
    const workload_t *w = &workloads[which];
    double ratio[PAIRS_MAX], apart[PAIRS_MAX], together[PAIRS_MAX], low, high;
    rate_of(which, process, 2, 1, seconds);
    rate_of(which, &process[2], 1, 2, seconds);
    for (int k = 0; k < pairs; k++) {
        const bool together_first = k % 2;
        double both = together_first ? rate_of(which, &process[2], 1, 2, seconds) : 0;
        apart[k] = rate_of(which, process, 2, 1, seconds);
        together[k] = together_first ? both : rate_of(which, &process[2], 1, 2, seconds);
        ratio[k] = together[k] / apart[k];
    }
    bench_interval(ratio, pairs, &low, &high);
    const double middle = bench_median(ratio, pairs);
    printf("{\"name\": \"2 ranks, %s\", \"unit\": \"samples/s\", \"ours\": %.0f, "
           "\"against\": \"2 one-rank processes\", \"theirs\": %.0f, \"ratio\": %.4f, "
           "\"interval\": [%.4f, %.4f], \"pairs\": %d, \"bar\": %.2f, \"holds\": %s}\n",
           w->name, bench_median(together, pairs) * w->batch,
           bench_median(apart, pairs) * w->batch, middle, low, high, pairs, w->bar,
           middle >= w->bar ? "true" : "false");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int pairs = argc > 1 ? atoi(argv[1]) : 11;
    const double seconds = argc > 2 ? atof(argv[2]) : 2;
    const char *only = argc > 3 ? argv[3] : "",
               *strategy = argc > 4 ? argv[4] : "\"ddp\"";
    process_t process[3];
    pairs = pairs < 1 ? 1 : pairs > PAIRS_MAX ? PAIRS_MAX : pairs;
    for (int k = 0; k < 3; k++)
        process[k] = process_start(strategy);
    for (int k = 0; k < WORKLOADS; k++)
        if (!*only || !strcmp(only, workloads[k].name))
            workload_run(k, process, pairs, seconds);
    for (int k = 2; k >= 0; k--)              /* later ones have the pipes of the first */
        process_end(&process[k]);
    return 0;
}
