/* cpu_plans.c - tests of the CPU accelerator's plans: whole trainings, the same bits,
 * memory, errors */
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cpu_trainer.h"
#include "tap.h"

/* ---- Trainings, against PyTorch ---- */

static void check_training(const training_case_t *c, const char *instructions,
                           int threads, const json_t *want)
{
    cpu_trainer_t r;
    if (!ok(cpu_trainer_open_with(&r, c, instructions, threads) == PL_OK, "%s compiles",
            c->name)) {
        tap_diag("%s", r.rig.err.text);
        cpu_trainer_close(&r);
        return;
    }
    const device_training_off_t off = cpu_train_all(&r, want);
    ok(off.loss < 1e-5, "%s, %s, %d threads: losses are PyTorch's within %.1g", c->name,
       instructions, threads, off.loss);
    ok(off.gradients < 1e-4, "gradients of the first step within %.1g", off.gradients);
    ok(off.norm < 1e-4, "norms within %.1g", off.norm);
    cpu_trainer_close(&r);
}

static bool has_set(const char *instructions)
{
    cpu_rig_t rig;
    const bool has = cpu_rig_open(&rig, instructions, 1);
    if (!has)
        tap_skip("%s", rig.err.text);
    cpu_rig_close(&rig);
    return has;
}

static void trainings_equal_torch(void)
{
    json_t *data = device_training_data("training");
    ok(data != NULL, "t/data/training.json can be read");
    for (int set = 0; set < CPU_SETS; set++) {
        const bool has = has_set(cpu_sets[set]);
        for (int i = 0; has && i < training_case_count; i++)
            for (int threads = 1; threads <= 2; threads++)
                check_training(&training_cases[i], cpu_sets[set], threads,
                               json_object_get(data, training_cases[i].name));
    }
    json_decref(data);
}

/* ---- The same bits ---- */

/* A case of many elements, so that threads share it. */
static operator_case_t large_case(const char *name)
{
    operator_case_t c = cpu_case(name);
    const pl_shape_t x = c.shape[0];
    for (int k = 0; k < c.params; k++)
        if (pl_same_shape(c.shape[k], x))
            c.shape[k].dim[0] *= 64;
    if (c.index.rank)
        c.index.dim[0] *= 64;
    return c;
}

static void check_bits(cpu_rig_t *rig, const operator_case_t *c)
{
    operator_run_t run;
    device_results_t first = {0}, again = {0}, fresh = {0};
    pl_plan_t *plan = NULL;
    bool done =
        operator_run_init(&run, c, NULL) == PL_OK && cpu_load(rig, &run) == PL_OK
        && pl_cpu_accelerator.compile(&rig->cpu, run.graph, &plan, &rig->err) == PL_OK
        && cpu_replay(rig, &run, plan, &first) == PL_OK && cpu_load(rig, &run) == PL_OK
        && cpu_replay(rig, &run, plan, &again) == PL_OK
        && cpu_run(rig, &run, &fresh) == PL_OK;
    ok(done && device_results_same(&first, &again) && device_results_same(&first, &fresh),
       "%s: a second replay and a fresh plan give the same bits", c->name);
    device_results_release(&first);
    device_results_release(&again);
    device_results_release(&fresh);
    operator_run_release(&run);
}

static void the_same_plan_gives_the_same_bits(void)
{
    static const char *const names[] = {
        "a chain",
        "dropout",
        "sum, all",
        "sum, the first axis",
        "linear, ragged",
        "attention, dropout",
        "layer_norm",
        "batch_norm, images",
        "cross_entropy",
        "mse",
        "conv2d, padding",
        "embedding",
        "gather",
        "take",
        "sort",
        "cumsum",
        "rand and randn",
    };
    for (int threads = 1; threads <= 2; threads++) {
        cpu_rig_t rig;
        cpu_rig_open(&rig, "auto", threads);
        for (int i = 0; i < operator_case_count; i++)
            check_bits(&rig, &operator_cases[i]);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            operator_case_t c = large_case(names[i]);
            check_bits(&rig, &c);
        }
        cpu_rig_close(&rig);
    }
}

/* Each result is added up by one thread, in the order of positions. */
static void sums_by_index_do_not_depend_on_threads(void)
{
    static const char *const names[] = {
        "gather",  "take",   "scatter_add", "embedding", "scatter_add, one axis",
        "one_hot", "cumsum", "sort",        "top_k",     "rand and randn"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        operator_case_t c = cpu_case(names[i]);
        const int64_t rows = c.index.rank ? c.index.dim[0] : c.shape[0].dim[0];
        for (int k = 0; k < c.params; k++)           /* enough for more than one thread */
            if (c.shape[k].dim[0] == rows)
                c.shape[k].dim[0] *= 2048;
        c.index.dim[0] *= 2048;
        device_results_t result[2] = {0};
        bool done = true;
        for (int k = 0; k < 2; k++) {
            cpu_rig_t rig;
            operator_run_t run;
            done = cpu_rig_open(&rig, "auto", 1 + 2 * k)
                   && operator_run_init(&run, &c, &rig.err) == PL_OK
                   && cpu_run(&rig, &run, &result[k]) == PL_OK && done;
            operator_run_release(&run);
            cpu_rig_close(&rig);
        }
        ok(done && device_results_same(&result[0], &result[1]),
           "%s has the same bits with one thread and with three", names[i]);
        device_results_release(&result[0]);
        device_results_release(&result[1]);
    }
}

static void two_trainings_end_in_the_same_bits(void)
{
    float *end[2] = {NULL, NULL};
    size_t n = 0;
    for (int k = 0; k < 2; k++) {
        cpu_trainer_t r;
        double metrics[2][2];
        bool fine = cpu_trainer_open(&r, &training_cases[2], 2) == PL_OK;
        for (int step = 0; step < 5 && fine; step++)
            fine = cpu_train(&r, step, metrics);
        n = (size_t)r.t.model->params;
        end[k] = pl_alloc_array(n, sizeof(float));
        pl_cpu_accelerator.read(&r.rig.cpu, PL_REGION_PARAMS, 0, end[k], n, NULL);
        ok(fine, "training %d runs", k + 1);
        cpu_trainer_close(&r);
    }
    ok(memcmp(end[0], end[1], n * sizeof(float)) == 0, "two threads, twice: the same");
    pl_free(end[0]);
    pl_free(end[1]);
}

/* ---- Memory ---- */

static void regions_may_move_between_replays(void)
{
    cpu_rig_t rig;
    operator_run_t run;
    device_results_t before = {0}, after = {0};
    pl_plan_t *plan = NULL;
    operator_case_t c = cpu_case("linear"), large = large_case("linear, ragged");
    cpu_rig_open(&rig, "auto", 1);
    bool done =
        operator_run_init(&run, &c, NULL) == PL_OK && cpu_load(&rig, &run) == PL_OK
        && pl_cpu_accelerator.compile(&rig.cpu, run.graph, &plan, &rig.err) == PL_OK
        && cpu_replay(&rig, &run, plan, &before) == PL_OK;
    operator_run_t other;
    device_results_t elsewhere = {0};
    done = done && operator_run_init(&other, &large, NULL) == PL_OK
           && cpu_run(&rig, &other, &elsewhere) == PL_OK;   /* the arena moves */
    done = done && cpu_load(&rig, &run) == PL_OK
           && cpu_replay(&rig, &run, plan, &after) == PL_OK;
    ok(done && device_results_same(&before, &after),
       "a plan follows its regions and the arena");
    bool shrunk = pl_cpu_accelerator.region(&rig.cpu, PL_REGION_PARAMS, PL_F32, 1, NULL)
                  == PL_OK;
    device_results_release(&after);
    is_int(cpu_replay(&rig, &run, plan, &after), PL_ESTATE, "and refuses one too small");
    ok(shrunk, "a region may shrink");
    device_results_release(&before);
    device_results_release(&after);
    device_results_release(&elsewhere);
    operator_run_release(&run);
    operator_run_release(&other);
    cpu_rig_close(&rig);
}

static void regions_are_read_and_written_within_their_ends(void)
{
    cpu_rig_t rig;
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    cpu_rig_open(&rig, "auto", 1);
    void *cpu = &rig.cpu;
    pl_cpu_accelerator.region(cpu, PL_REGION_STATE, PL_F32, 4, NULL);
    ok(pl_cpu_accelerator.read(cpu, PL_REGION_STATE, 0, y, 4, NULL) == PL_OK && !y[0]
           && !y[3],
       "a new region is zero");
    ok(pl_cpu_accelerator.write(cpu, PL_REGION_STATE, 2, x, 2, NULL) == PL_OK
           && pl_cpu_accelerator.read(cpu, PL_REGION_STATE, 1, y, 3, NULL) == PL_OK
           && y[0] == 0 && y[1] == 1 && y[2] == 2,
       "what is written is read");
    is_int(pl_cpu_accelerator.write(cpu, PL_REGION_STATE, 2, x, 3, &rig.err), PL_EINVAL,
           "but not beyond the end");
    is_int(pl_cpu_accelerator.read(cpu, PL_REGION_STATE, SIZE_MAX, x, 2, NULL), PL_EINVAL,
           "wherever that is");
    is_int(pl_cpu_accelerator.region(cpu, PL_REGION_STATE, PL_F32, SIZE_MAX / 2,
                                     &rig.err),
           PL_ENOMEM, "a region larger than memory is refused");
    ok(pl_cpu_accelerator.read(cpu, PL_REGION_STATE, 1, y, 3, NULL) == PL_OK && y[1] == 1,
       "and the old one stays");
    cpu_rig_close(&rig);
}

/* ---- Every request for memory may fail ---- */

static int requests_left, alive;

static void *allocate(size_t bytes)
{
    void *memory = requests_left-- > 0 ? malloc(bytes) : NULL;
    alive += memory != NULL;
    return memory;
}

static void *resize(void *memory, size_t bytes)
{
    void *larger = requests_left-- > 0 ? realloc(memory, bytes) : NULL;
    alive += larger && !memory;
    return larger;
}

static void release(void *memory)
{
    alive--;
    free(memory);
}

/* Opens, compiles both graphs of a training, trains one step, closes. */
static int everything(training_t *t, pl_error_t *err)
{
    cpu_trainer_t r = {.t = *t};
    double metrics[2][2];
    void *cpu = &r.rig.cpu;
    int code = pl_cpu_accelerator.open(cpu, &r.rig.info, err);
    for (int k = 0; k < PL_REGIONS && code == PL_OK; k++)
        code = pl_cpu_accelerator.region(cpu, (pl_region_t)k, PL_F32,
                                         (size_t)t->model->params + 2, err);
    if (code == PL_OK)
        code = pl_cpu_accelerator.compile(cpu, t->step, &r.step, err);
    if (code == PL_OK)
        code = pl_cpu_accelerator.compile(cpu, t->update, &r.update, err);
    requests_left = 0;                               /* from here on there must be none */
    if (code == PL_OK && !cpu_train(&r, 0, metrics))
        code = cpu_error.code ? cpu_error.code : PL_ENAN;
    pl_cpu_accelerator.close(cpu);
    return code == PL_OK ? PL_OK : code == err->code ? code : PL_EBUG;
}

static void any_request_for_memory_may_fail(void)
{
    int code = PL_ENOMEM, n = 0, other = 0;
    training_t t;
    training_init(&t, &training_cases[6], NULL);
    pl_memory_hooks(allocate, resize, release);
    for (; n < 10000 && code != PL_OK; n++) {
        pl_error_t err = {0};
        requests_left = n;
        alive = 0;
        code = everything(&t, &err);
        other += (code != PL_OK && code != PL_ENOMEM) || alive != 0;
    }
    pl_memory_hooks(NULL, NULL, NULL);
    ok(code == PL_OK && n > 20, "%d requests make a plan, none a replay", n - 1);
    is_int(other, 0, "each may fail, with that error and without a leak");
    training_release(&t);
}

/* ---- What cannot work ---- */

/* ---- Depth ---- */

static pl_graph_t *deep_graph(pl_model_t *model, int layers, pl_error_t *err)
{
    static const pl_field_t field = {.name = "x", .dtype = PL_F32, .shape = {1, {8}}};
    pl_graph_t *g = pl_graph_new(model, PL_TRAIN, &field, 1, 4, err);
    pl_node_t x = pl_input(g, "x");
    for (int k = 0; k < layers; k++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", k);
        x = pl_relu(g, pl_linear(g, name, x, 8));
    }
    pl_loss(g, pl_pair(pl_sum(g, x, NULL, 0, false), pl_scalar(g, 4)));
    if (pl_graph_gradients(g, 4, false, err) == PL_OK)
        pl_graph_prune(g);
    return g;
}

/* Seconds of this thread to describe and compile; less than 0 when it failed. */
static double time_to_compile(int layers)
{
    cpu_rig_t rig;
    pl_plan_t *plan = NULL;
    struct timespec from, to;
    pl_model_t *model = pl_model_new(NULL);
    bool opened = cpu_rig_open(&rig, "auto", 1);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    pl_graph_t *g = deep_graph(model, layers, &rig.err);
    int code = opened ? PL_OK : PL_EUNSUPPORTED;
    for (int region = PL_REGION_PARAMS; region <= PL_REGION_GRADS && code == PL_OK;
         region++)
        code = pl_cpu_accelerator.region(&rig.cpu, (pl_region_t)region, PL_F32,
                                         (size_t)model->params + 2, &rig.err);
    if (code == PL_OK)
        code = pl_cpu_accelerator.compile(&rig.cpu, g, &plan, &rig.err);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    pl_graph_free(g);
    pl_model_free(model);
    cpu_rig_close(&rig);
    double seconds = (double)(to.tv_sec - from.tv_sec)
                     + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    return code == PL_OK ? seconds : -1;
}

static void deep_graphs_compile_in_proportion_to_their_depth(void)
{
    double some = time_to_compile(125), many = time_to_compile(4000);
    ok(some > 0 && many > 0, "both compile");
    ok(many < some * 32 * 10,
       "32 times the layers take %.0f times as long, where squares would take 1000",
       many / some);
}

static void open_refuses_what_cannot_work(void)
{
    cpu_rig_t rig;
    ok(!cpu_rig_open(&rig, "auto", 1000000), "a million threads");
    like(rig.err.text, "^trainer.accelerator.threads is 1000000, .*0 uses all of them",
         "are refused in words");
    cpu_rig_close(&rig);
    ok(!cpu_rig_open(&rig, "sse9", 1) && rig.err.code == PL_EUNSUPPORTED,
       "an unknown instruction set is refused");
    like(rig.err.text, "sse9", "by name");
    cpu_rig_close(&rig);
    ok(cpu_rig_open(&rig, "auto", 0) && rig.info.threads > 0 && rig.info.devices == 1
           && rig.info.memory > 0,
       "without a number of threads there are as many as cores");
    like(rig.info.model, ", (portable|avx2|avx512)$", "the model names the instructions");
    like(rig.info.library, "^oneDNN [0-9]+\\.", "and the library its version");
    cpu_rig_close(&rig);
}

static int priority_now(void)
{
    return getpriority(PRIO_PROCESS, (id_t)gettid());
}

/* Opens a device on this thread; returns the nice value after that. */
static void *compute(void *user)
{
    cpu_rig_t rig = {.cpu = {.threads = 1, .nice = 3, .instructions = "auto"},
                     .info = {.computes = true}};
    const int before = priority_now();
    pl_cpu_accelerator.open(&rig.cpu, &rig.info, &rig.err);
    *(int *)user = priority_now() - before;
    cpu_rig_close(&rig);
    return NULL;
}

static void threads_that_compute_give_way(void)
{
    pthread_t thread;
    cpu_rig_t rig;
    int less = 0;
    const int before = priority_now();
    ok(cpu_rig_open(&rig, "auto", 1) && priority_now() == before,
       "a query of the device does not");
    cpu_rig_close(&rig);
    pthread_create(&thread, NULL, compute, &less);
    pthread_join(thread, NULL);
    is_int(less, before > 16 ? 19 - before : 3, "a thread that computes does");
    is_int(priority_now(), before, "and no other thread");
}

static void a_plan_needs_its_regions(void)
{
    cpu_rig_t rig;
    operator_run_t run;
    operator_case_t c = cpu_case("linear");
    pl_plan_t *plan = NULL;
    cpu_rig_open(&rig, "auto", 1);
    operator_run_init(&run, &c, NULL);
    is_int(pl_cpu_accelerator.compile(&rig.cpu, run.graph, &plan, &rig.err), PL_ESTATE,
           "without regions nothing is compiled");
    like(rig.err.text, "allocate it before compiling", "and the text says what to do");
    ok(!plan, "there is no plan");
    operator_run_release(&run);
    cpu_rig_close(&rig);
}

static void check_bad_index(cpu_rig_t *rig, const char *name, int64_t index)
{
    operator_run_t run;
    device_results_t got = {0};
    operator_case_t c = cpu_case(name);
    operator_run_init(&run, &c, NULL);
    ((int64_t *)run.index)[1] = index;
    is_int(cpu_run(rig, &run, &got), PL_EINVAL, "%s of index %lld ends the replay", name,
           (long long)index);
    like(rig->err.text, "index -?[0-9]+, outside \\[0, ", "with the index and the range");
    device_results_release(&got);
    operator_run_release(&run);
}

static void a_wrong_index_ends_the_replay(void)
{
    cpu_rig_t rig;
    cpu_rig_open(&rig, "auto", 1);
    check_bad_index(&rig, "embedding", 5);
    check_bad_index(&rig, "embedding", -1);
    check_bad_index(&rig, "embedding", INT64_MAX);
    check_bad_index(&rig, "cross_entropy", 5);
    check_bad_index(&rig, "ctc", 5);
    check_bad_index(&rig, "cross_entropy, some ignored", -2);
    check_bad_index(&rig, "accuracy", 4);
    check_bad_index(&rig, "gather", 5);
    check_bad_index(&rig, "take", -1);
    check_bad_index(&rig, "scatter_add", INT64_MIN);
    check_bad_index(&rig, "one_hot", 5);
    cpu_rig_close(&rig);
}

static void a_replay_needs_its_batch(void)
{
    cpu_rig_t rig;
    operator_run_t run;
    device_results_t got = {0};
    operator_case_t c = cpu_case("embedding");
    cpu_rig_open(&rig, "auto", 1);
    operator_run_init(&run, &c, NULL);
    pl_free(run.index);
    run.index = NULL;
    is_int(cpu_run(&rig, &run, &got), PL_EINVAL, "without a batch field it ends");
    like(rig.err.text, "no data for batch field 0", "and names the field");
    device_results_release(&got);
    operator_run_release(&run);
    cpu_rig_close(&rig);
}

static void a_guard_stops_later_launches(void)
{
    cpu_trainer_t r;
    double metrics[2][2];
    float before, after;
    bool open = cpu_trainer_open(&r, &training_cases[0], 1) == PL_OK;
    const size_t loss = (size_t)r.t.model->params;
    ok(open && cpu_train(&r, 0, metrics), "a step is done");
    pl_cpu_accelerator.read(&r.rig.cpu, PL_REGION_PARAMS, 3, &before, 1, NULL);
    pl_cpu_accelerator.write(&r.rig.cpu, PL_REGION_GRADS, loss, &(float){NAN}, 1, NULL);
    pl_replay_t update = {.metrics = metrics[0], .done = cpu_on_done};
    training_scalars(&r.t, 1, update.scalar);
    pl_cpu_accelerator.replay(&r.rig.cpu, r.update, &update, NULL);
    ok(update.skipped && cpu_error.code == PL_OK, "a loss of NaN stops the update");
    ok(isnan(metrics[0][0]) && metrics[1][0] > 0, "metrics from before it are there");
    pl_cpu_accelerator.read(&r.rig.cpu, PL_REGION_PARAMS, 3, &after, 1, NULL);
    ok(before == after, "and parameters stay");
    cpu_trainer_close(&r);
}

static float parameter(cpu_trainer_t *r)
{
    float value = NAN;
    pl_cpu_accelerator.read(&r->rig.cpu, PL_REGION_PARAMS, 3, &value, 1, NULL);
    return value;
}

/* One replay of those that halt, of a batch that may lack its inputs. */
static bool replays(cpu_trainer_t *r, pl_plan_t *plan, int step, bool has_batch)
{
    double metrics[2][2];
    pl_replay_t replay = {.seed = 1,
                          .step = (uint64_t)step + 1,
                          .fail_fast = true,
                          .metrics = metrics[0],
                          .done = cpu_on_done};
    if (has_batch)
        training_batch(&r->t, step, replay.input);
    training_scalars(&r->t, step, replay.scalar);
    pl_cpu_accelerator.replay(&r->rig.cpu, plan, &replay, &cpu_error);
    return cpu_error.code == PL_OK && !replay.skipped;
}

static void launches_behind_a_bad_step_change_nothing(void)
{
    for (int failed = 0; failed < 2; failed++) {
        cpu_trainer_t r;
        cpu_trainer_open(&r, &training_cases[0], 1);
        const size_t loss = (size_t)r.t.model->params;
        ok(replays(&r, r.step, 0, true) && replays(&r, r.update, 0, true),
           "a good step is done");
        float before = parameter(&r);
        if (failed) {
            ok(!replays(&r, r.step, 1, false) && cpu_error.code == PL_EINVAL,
               "one that lacks its batch fails");
        } else {
            replays(&r, r.step, 1, true);
            pl_cpu_accelerator.write(&r.rig.cpu, PL_REGION_GRADS, loss, &(float){NAN}, 1,
                                     NULL);
        }
        ok(!replays(&r, r.update, 1, true) && cpu_error.code == PL_OK,
           "its update ends skipped");
        ok(!replays(&r, r.step, 2, true) && !replays(&r, r.update, 2, true),
           "so does the step behind it");
        ok(parameter(&r) == before, "and parameters stay");
        double metrics[2][2];
        ok(cpu_train(&r, 2, metrics) && parameter(&r) != before,
           "what does not halt runs all the same");
        cpu_trainer_close(&r);
    }
}

int main(void)
{
    run(trainings_equal_torch);
    run(the_same_plan_gives_the_same_bits);
    run(sums_by_index_do_not_depend_on_threads);
    run(two_trainings_end_in_the_same_bits);
    run(regions_may_move_between_replays);
    run(regions_are_read_and_written_within_their_ends);
    run(any_request_for_memory_may_fail);
    run(deep_graphs_compile_in_proportion_to_their_depth);
    run(open_refuses_what_cannot_work);
    run(threads_that_compute_give_way);
    run(a_plan_needs_its_regions);
    run(a_wrong_index_ends_the_replay);
    run(a_replay_needs_its_batch);
    run(a_guard_stops_later_launches);
    run(launches_behind_a_bad_step_change_nothing);
    return tap_done();
}
