/* gpu_memory.c - tests of a GPU's memory: it grows, moves and shrinks, plans follow, and
 * replays share it */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "accelerators/gpu/memory.h"
#include "device_rig.h"
#include "backend_emulated.h"
#include "tap.h"

enum { SMALL = 16, LARGE = 64, PRODUCTS = 3 };
static const float X = 1.0f / SMALL;             /* every parameter: products are exact */

static emulated_t device;
static device_rig_t rig = {.ops = &emulated_accelerator, .self = &device};
static float y[LARGE * LARGE];

static void device_open(void)
{
    pl_device_info_t info = {.ranks = 1, .device = -1};
    for (int k = 0; k < LARGE * LARGE; k++)
        y[k] = X;
    memset(&device, 0, sizeof device);
    ok(rig.ops->open(&device, &info, &rig.err) == PL_OK
           && rig.ops->region(&device, PL_REGION_PARAMS, PL_F32, LARGE * LARGE, &rig.err)
                  == PL_OK
           && rig.ops->write(&device, PL_REGION_PARAMS, 0, y, LARGE * LARGE, &rig.err)
                  == PL_OK,
       "(a device is opened)");
}

static void device_close(void)
{
    is_int(device.stale, 0, "(nothing used memory that was freed)");
    is_int(rig.ops->held(&device), device.used, "(the core counts the same bytes)");
    rig.ops->close(&device);
    is_int(device.used + device.pinned, 0, "(and all of it is freed)");
}

/* y = x x … x of matrices [n, n], with the products in the plan's arena. */
static pl_graph_t *power_of(int n)
{
    pl_graph_t *g = pl_graph_new(NULL, PL_PREDICT, NULL, 0, 1, NULL);
    pl_node_t x = pl_region_view(g, PL_REGION_PARAMS, 0, PL_SHAPE(n, n)), power = x;
    for (int k = 0; k < PRODUCTS; k++)
        power = pl_matmul(g, power, x, false, false);
    pl_output(g, "y", power);
    return g;
}

static pl_plan_t *plan_of(pl_graph_t *g)
{
    pl_plan_t *plan = NULL;
    rig.ops->compile(&device, g, &plan, &rig.err);
    pl_graph_free(g);
    return plan;
}

static bool is_all(float want, int n)
{
    int wrong = 0;
    for (int k = 0; k < n * n; k++)
        wrong += y[k] != want;
    return !wrong;
}

static bool is_power(int n)
{
    return is_all(X * powf((float)n * X, PRODUCTS), n);
}

static void ignore(pl_replay_t *replay, const pl_device_span_t *span, int count)
{
    (void)replay, (void)span, (void)count;
}

/* So often that each set has a recording, unless it is measured. */
static bool replays_right(pl_plan_t *plan, int n, bool is_measured)
{
    bool right = true;
    for (int k = 0; k < 3 * GPU_SETS && right; k++) {
        pl_replay_t replay = {.output = {y}, .measured = is_measured ? ignore : NULL};
        memset(y, 0, sizeof y);
        right = device_replay_alone(&rig, plan, &replay) == PL_OK && is_power(n);
    }
    if (!right)
        tap_diag("%s, %g", rig.err.text, (double)*y);
    return right;
}

/* ---- Blocks and regions ---- */

static void a_plan_fits_or_not_whatever_ran_before(void)
{
    gpu_block_t block = {0};
    device_open();
    device.capacity = device.used + 1000;
    is_int(gpu_reserve(&device.gpu, &block, 600, false, "test", NULL), PL_OK, "a block");
    is_int(gpu_reserve(&device.gpu, &block, 900, false, "test", NULL), PL_OK,
           "grows although there is no memory for both");
    is_int(block.bytes, 900, "to that size");
    rig.ops->region(&device, PL_REGION_GRADS, PL_F32, 0, NULL);
    device.capacity += 1000;
    is_int(rig.ops->region(&device, PL_REGION_GRADS, PL_F32, 150, NULL), PL_OK,
           "a region");
    is_int(rig.ops->region(&device, PL_REGION_GRADS, PL_F32, 225, &rig.err), PL_OK,
           "grows likewise: %s", rig.err.text);
    is_int(rig.ops->region(&device, PL_REGION_GRADS, PL_F32, 300, &rig.err), PL_ENOMEM,
           "%s", rig.err.text);
    is_int(device.gpu.memory->region[PL_REGION_GRADS].count, 0, "a larger one is not");
    device.gpu.backend->memory_free(&device, block.address);
    device.gpu.memory->held -= block.bytes;
    device_close();
}

static void a_block_that_cannot_grow_is_as_large_as_before(void)
{
    static const uint32_t ones[16] = {1, 1, 1, 1};
    uint32_t got[16] = {1};
    gpu_block_t block = {0};
    pl_gpu_t *gpu = &device.gpu;
    device_open();
    gpu_reserve(gpu, &block, sizeof ones, true, "test", NULL);
    gpu->backend->copy_in(gpu, PL_STREAM_MAIN, block.address, ones, sizeof ones, NULL);
    device.capacity = device.used + 1000;
    const unsigned before = gpu->memory->generation;
    is_int(gpu_reserve(gpu, &block, 2000, true, "test", &rig.err), PL_ENOMEM, "%s",
           rig.err.text);
    is_int(block.bytes, sizeof ones, "it is as large");
    ok(gpu->memory->generation > before, "elsewhere");
    gpu->backend->copy_out(gpu, PL_STREAM_MAIN, got, block.address, sizeof got, NULL);
    gpu_drain(gpu, NULL);
    int wrong = 0;
    for (int k = 0; k < 16; k++)
        wrong += got[k] != 0;
    is_int(wrong, 0, "and zeros, where they are asked for");
    device.limit = 1;
    is_int(gpu_reserve(gpu, &block, 2000, false, "test", &rig.err), PL_ENOMEM,
           "where not even that is possible");
    is_int(block.bytes, 0, "nothing is left");
    device_close();
}

/* ---- Plans ---- */

static void plans_follow_memory_that_moves(void)
{
    for (int is_measured = 0; is_measured < 2; is_measured++) {
        device_open();
        pl_plan_t *small = plan_of(power_of(SMALL));
        ok(replays_right(small, SMALL, is_measured), "a plan %s",
           is_measured ? "whose launches are measured" : "that is recorded");
        const pl_device_ptr_t was = device.gpu.memory->arena.address;
        pl_plan_t *large = plan_of(power_of(LARGE));
        ok(device.gpu.memory->arena.address != was, "a larger plan moves the memory");
        ok(replays_right(small, SMALL, is_measured), "the first follows");
        ok(replays_right(large, LARGE, is_measured), "the second has it");
        ok(replays_right(small, SMALL, is_measured), "and the first again");
        device_close();
    }
}

static void plans_outlive_one_that_does_not_fit(void)
{
    device_open();
    pl_plan_t *small = plan_of(power_of(SMALL));
    ok(replays_right(small, SMALL, false), "a plan");
    device.capacity = device.used + 1000;
    ok(!plan_of(power_of(LARGE)), "one that does not fit: %s", rig.err.text);
    ok(replays_right(small, SMALL, false), "the first plan still replays");
    device.limit = 1;
    ok(!plan_of(power_of(LARGE)), "nor does it without any memory");
    pl_replay_t replay = {.output = {y}};
    is_int(device_replay_alone(&rig, small, &replay), PL_ENOMEM, "then no plan has any");
    device.limit = 0;
    ok(replays_right(small, SMALL, false), "and later it has");
    device_close();
}

static bool is_released;

/* Runs when finish() has waited for it for long, or when the test says so. */
static int hold(void *data)
{
    int *polls = data;
    *polls += __atomic_load_n(&device.waiting, __ATOMIC_ACQUIRE);
    return *polls > 100 || __atomic_load_n(&is_released, __ATOMIC_ACQUIRE)
               ? 0
               : STREAMS_AGAIN;
}

static void on_done(pl_replay_t *replay, const pl_error_t *err)
{
    replay->step = err ? 100 : 1;
}

static bool collect(const pl_replay_t *replay)
{
    while (!replay->step) {
        struct pollfd news = {.fd = rig.ops->descriptor(&device), .events = POLLIN};
        if (poll(&news, 1, 30000) != 1)
            return false;
        rig.ops->collect(&device);
    }
    return replay->step == 1;
}

static void memory_moves_after_running_work(void)
{
    const int polls = 0;
    device_open();
    is_released = false;
    pl_plan_t *small = plan_of(power_of(SMALL));
    pl_replay_t replay = {.output = {y}, .done = on_done};
    streams_put(device.streams, PL_STREAM_MAIN, hold, &polls, sizeof polls);
    is_int(rig.ops->replay(&device, small, &replay, &rig.err), PL_OK,
           "a replay that takes its time");
    pl_plan_t *large = plan_of(power_of(LARGE));
    __atomic_store_n(&is_released, true, __ATOMIC_RELEASE);
    ok(collect(&replay) && is_power(SMALL), "a larger plan does not take its memory");
    ok(replays_right(large, LARGE, false), "but has its own");
    device_close();
}

static bool is_read;

static void on_read(pl_transfer_t *transfer, const pl_error_t *err)
{
    (void)transfer;
    is_read = !err;
}

static void results_do_not_wait_for_reads(void)
{
    static float host[LARGE * LARGE];
    const int polls = 0;
    device_open();
    is_released = is_read = false;
    pl_plan_t *plan = plan_of(power_of(SMALL));
    pl_transfer_t read = {.region = PL_REGION_PARAMS,
                          .count = LARGE * LARGE,
                          .host = host,
                          .done = on_read};
    streams_put(device.streams, PL_STREAM_SAVE, hold, &polls, sizeof polls);
    is_int(rig.ops->read_later(&device, &read, &rig.err), PL_OK,
           "a read that takes its time");
    ok(replays_right(plan, SMALL, false) && !is_read, "replays end before it");
    __atomic_store_n(&is_released, true, __ATOMIC_RELEASE);
    while (!is_read) {
        struct pollfd news = {.fd = rig.ops->descriptor(&device), .events = POLLIN};
        if (!ok(poll(&news, 1, 30000) == 1, "then there is news"))
            break;
        rig.ops->collect(&device);
    }
    ok(is_read && host[0] == X && host[LARGE * LARGE - 1] == X, "and the read ends");
    device_close();
}

/* h = x x, which ranks add up; y = h times what comes of it. */
static pl_graph_t *exchanged(int n)
{
    pl_graph_t *g = pl_graph_new(NULL, PL_PREDICT, NULL, 0, 1, NULL);
    pl_node_t x = pl_region_view(g, PL_REGION_PARAMS, 0, PL_SHAPE(n, n)),
              h = pl_matmul(g, x, x, false, false);
    const int64_t from = pl_graph_collective_reserve(g, (int64_t)n * n);
    pl_node_t sum = pl_region_view(g, PL_REGION_COLLECTIVE, from, PL_SHAPE(n, n));
    pl_assign(g, sum, h);
    pl_graph_collective(g, PL_GRAPH_COLLECTIVE_SUM, from, (int64_t)n * n, NULL);
    pl_output(g, "y", pl_matmul(g, h, sum, false, false));
    return g;
}

static void compiling_a_plan_keeps_the_values_of_a_waiting_replay(void)
{
    pl_replay_t replay = {.output = {y}};
    device_open();
    rig.ops->region(&device, PL_REGION_COLLECTIVE, PL_F32, SMALL * SMALL, &rig.err);
    pl_plan_t *plan = plan_of(exchanged(SMALL));
    is_int(device_replay_alone(&rig, plan, &replay), PL_OK, "a replay: %s", rig.err.text);
    is_int(replay.collective, 1, "waits at a collective");
    pl_plan_t *large = plan_of(power_of(LARGE));
    ok(large != NULL, "a larger plan is compiled while it waits");
    replay.continues = true;
    replay.collective = 0;
    is_int(device_replay_alone(&rig, plan, &replay), PL_OK, "it continues");
    ok(is_all(X * X * X * X * SMALL * SMALL * SMALL, SMALL), "with its earlier values");
    ok(replays_right(large, LARGE, false), "the other is replayed after it");
    is_int(rig.ops->replay(&device, plan, &replay, NULL), PL_ESTATE,
           "it does not continue twice");
    device_close();
}

static void a_waiting_replay_is_given_up_once(void)
{
    pl_replay_t replay = {.output = {y}}, other = {.output = {y}, .done = on_done};
    device_open();
    rig.ops->region(&device, PL_REGION_COLLECTIVE, PL_F32, SMALL * SMALL, &rig.err);
    pl_plan_t *plan = plan_of(exchanged(SMALL)), *large = plan_of(power_of(LARGE));
    ok(device_replay_alone(&rig, plan, &replay) == PL_OK && replay.collective,
       "a replay waits");
    device.pin_limit = 64;
    is_int(rig.ops->replay(&device, large, &other, &rig.err), PL_ENOMEM,
           "for another there is no memory: %s", rig.err.text);
    device.pin_limit = 0;
    replay = (pl_replay_t){.done = on_done};
    other.step = 0;
    ok(rig.ops->replay(&device, large, &other, &rig.err) == PL_OK
           && rig.ops->replay(&device, plan, &replay, &rig.err) == PL_OK
           && collect(&other) && collect(&replay) && is_power(LARGE),
       "then both are replayed: %s", rig.err.text);
    device_close();
}

static void without_plans_their_memory_is_given_back(void)
{
    device_open();
    const size_t before = device.used;
    pl_plan_t *small = plan_of(power_of(SMALL)), *large = plan_of(power_of(LARGE));
    ok(replays_right(small, SMALL, false) && replays_right(large, LARGE, false),
       "two plans");
    rig.ops->discard(&device, small);
    ok(replays_right(large, LARGE, false), "without the first the second has it");
    rig.ops->discard(&device, large);
    is_int(device.used, before, "both are freed");
    is_int(device.pinned, 0, "nor memory of the host");
    small = plan_of(power_of(SMALL));
    ok(replays_right(small, SMALL, false), "the next has its own");
    device_close();
}

static void unused_outputs_take_no_memory_of_the_host(void)
{
    device_open();
    pl_plan_t *plan = plan_of(power_of(LARGE));
    pl_replay_t replay = {.step = 0};
    is_int(device_replay_alone(&rig, plan, &replay), PL_OK, "a replay without outputs");
    ok(device.pinned < sizeof y, "%zu bytes", device.pinned);
    ok(replays_right(plan, LARGE, false) && device.pinned > sizeof y, "and with them %zu",
       device.pinned);
    device_close();
}

/* ---- Replays that are announced ---- */

enum { SHARED = 32 };

/* Adds the batch to the parameters, or multiplies them by the step's scalar; and logs
 * their mean. */
static pl_plan_t *shared_plan(bool adds)
{
    static const pl_field_t field = {"x", PL_F32, PL_SHAPE(SHARED)};
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, &field, 1, 1, NULL);
    pl_node_t p = pl_region_view(g, PL_REGION_PARAMS, 0, PL_SHAPE(1, SHARED)),
              next = adds ? pl_add(g, p, pl_input(g, "x"))
                          : pl_mul(g, p, pl_step_scalar(g, 3));
    pl_assign(g, p, next);
    pl_log(g, "p", pl_pair(pl_sum(g, next, NULL, 0, false), pl_scalar(g, SHARED)),
           PL_ON_STEP);
    return plan_of(g);
}

enum { PAIRS = 7 };
typedef struct shared_replay {
    pl_replay_t replay;                                     /* first */
    double metric[2];
    int ended, code;                                        /* its turn  [0: not yet] */
    float x[SHARED];
} shared_replay_t;
static shared_replay_t shared[PAIRS][2];
static int turn;

static void on_shared_done(pl_replay_t *replay, const pl_error_t *err)
{
    shared_replay_t *s = (shared_replay_t *)replay;
    s->ended = s->ended ? -1 : ++turn;
    s->code = err ? err->code : PL_OK;
}

static void shared_init(int pair, int which, double number)
{
    shared_replay_t *s = &shared[pair][which];
    *s = (shared_replay_t){.replay = {.step = (uint64_t)pair + 1,
                                      .input = {s->x},
                                      .metrics = s->metric,
                                      .done = on_shared_done}};
    s->replay.scalar[3] = number;
    for (int k = 0; k < SHARED; k++)
        s->x[k] = (float)number;
}

/* Waits for the ends of so many replays. */
static bool shared_wait(int ends)
{
    while (turn < ends) {
        struct pollfd news = {.fd = rig.ops->descriptor(&device), .events = POLLIN};
        if (poll(&news, 1, 30000) != 1)
            return false;
        rig.ops->collect(&device);
    }
    return true;
}

typedef enum shared_form {
    FOLLOWED,                                   /* the announced replay is started next */
    MEASURED,                                   /* and both are measured */
    LARGE_RECORDS,                              /* and records are copied one by one */
    READS_A_BATCH,                              /* but it has a batch of its own */
    NOT_FOLLOWED,                               /* another one is started next */
    NOT_ANNOUNCED,
    WITHOUT_A_BATCH,                                        /* the one that announces */
    SHARED_FORMS,
} shared_form_t;

/* Replays in pairs, several pairs at a time, find the batch and the scalar of their own
 * and have the results of their own, in order. */
static void an_announced_replay_ends_with_the_one_before(void)
{
    static const char *const forms[] = {"followed",       "measured",
                                        "large records",  "that reads a batch",
                                        "not followed",   "not announced",
                                        "without a batch"};
    for (int form = 0; form < SHARED_FORMS; form++) {
        int wrong = 0, ends[PAIRS] = {0};
        double p = 1.0 / SMALL;
        turn = 0;
        device_open();
        for (int k = 0; k < GPU_SETS && form == LARGE_RECORDS; k++)
            gpu_reserve(&device.gpu, &device.gpu.memory->set[k].records, 20000, false,
                        "test", NULL);
        pl_plan_t *add = shared_plan(true), *multiply = shared_plan(false),
                  *second = form == READS_A_BATCH ? add : multiply,
                  *opening = form == WITHOUT_A_BATCH ? multiply : add;
        pl_replay_t single = {.scalar[3] = 1};
        if (form == WITHOUT_A_BATCH)                   /* the set's second slot is next */
            device_replay_alone(&rig, multiply, &single);
        for (int k = 0; k < PAIRS && !wrong; k++) {
            pl_replay_t *first = &shared[k][0].replay, *then = &shared[k][1].replay;
            static pl_replay_t other;
            shared_init(k, 0, k + 1);
            shared_init(k, 1, k % 3 + 2);
            first->next = form == NOT_FOLLOWED    ? &other
                          : form == NOT_ANNOUNCED ? NULL
                                                  : then;
            if (form == MEASURED)
                first->measured = then->measured = ignore;
            wrong += rig.ops->replay(&device, opening, first, &rig.err) != PL_OK
                     || rig.ops->replay(&device, second, then, &rig.err) != PL_OK
                     || (k > 2 && !shared_wait(2 * k - 4));
            ends[k] = turn;
        }
        ok(!wrong && shared_wait(2 * PAIRS), "%s: pairs end: %s", forms[form],
           rig.err.text);
        for (int k = 0; k < PAIRS; k++) {
            const double is = form == WITHOUT_A_BATCH ? p * (k + 1) : p + k + 1,
                         then = form == READS_A_BATCH ? is + k % 3 + 2 : is * (k % 3 + 2);
            const shared_replay_t *one = &shared[k][0], *two = &shared[k][1];
            wrong += one->metric[0] != SHARED * is || two->metric[0] != SHARED * then
                     || one->code || two->code || one->ended != 2 * k + 1
                     || two->ended != 2 * k + 2 || !(one->replay.seconds > 0)
                     || !(two->replay.seconds > 0);
            if (form <= LARGE_RECORDS && form != MEASURED)
                wrong += ends[k] % 2;                       /* they end together */
            p = then;
        }
        is_int(wrong, 0, "and have their own results, in order");
        device_close();
    }
}

/* The first of a pair has run when the second cannot be started. */
static void a_pair_whose_second_fails_ends_once(void)
{
    for (int launch = 1; launch <= 2; launch++) {
        turn = 0;
        device_open();
        pl_plan_t *add = shared_plan(true), *multiply = shared_plan(false);
        for (int k = 0; k < 2; k++) {
            shared_init(k, 0, k + 1);
            shared_init(k, 1, 2);
            shared[k][0].replay.next = &shared[k][1].replay;
        }
        is_int(rig.ops->replay(&device, add, &shared[0][0].replay, &rig.err), PL_OK,
               "the first");
        device.fails_at = device.launches + launch;
        is_int(rig.ops->replay(&device, multiply, &shared[0][1].replay, &rig.err), PL_EIO,
               "the second is not started: %s", rig.err.text);
        device.fails_at = 0;
        ok(shared_wait(1) && shared[0][0].ended == 1 && !shared[0][0].code
               && shared[0][0].metric[0] == SHARED * (X + 1) && !shared[0][1].ended,
           "the first ends as it should");
        ok(rig.ops->replay(&device, add, &shared[1][0].replay, &rig.err) == PL_OK
               && rig.ops->replay(&device, multiply, &shared[1][1].replay, &rig.err)
                      == PL_OK
               && shared_wait(3) && shared[1][0].metric[0] == SHARED * (X + 3)
               && shared[1][1].metric[0] == 2 * SHARED * (X + 3),
           "and the next pair too: %g, %g", shared[1][0].metric[0],
           shared[1][1].metric[0]);
        device_close();
    }
}

/* ---- Parameters as halves ---- */

static operator_case_t halves_case(void)
{
    int i = 0;
    while (strcmp(operator_cases[i].name, "linear, gelu_tanh, linear") != 0)
        i++;
    operator_case_t c = operator_cases[i];
    c.precision = device_precision("bf16-mixed");
    return c;
}

/* With parameters that are so many times those of the case; -> how far it is off. */
static double written_and_replayed(const operator_case_t *c, pl_plan_t *plan, float by,
                                   int fails)
{
    operator_run_t run;
    device_results_t got = {0};
    float params[1024];
    operator_run_init(&run, c, &rig.err);
    for (size_t k = 0; k < run.size[PL_REGION_PARAMS]; k++)
        run.region[PL_REGION_PARAMS][k] = params[k] =
            by * (float)run.region[PL_REGION_PARAMS][k];
    rig.ops->write(&device, PL_REGION_PARAMS, 0, params, run.size[PL_REGION_PARAMS],
                   &rig.err);
    device.fails_at = fails ? device.launches + fails : 0;
    if (fails)
        is_int(device_replay(&rig, &run, plan, &got), PL_EIO, "a replay: %s",
               rig.err.text);
    device.fails_at = 0;
    device_results_release(&got);
    const int code = device_replay(&rig, &run, plan, &got);
    const double off = code == PL_OK ? device_difference(&run, &got) : INFINITY;
    device_results_release(&got);
    operator_run_release(&run);
    return off;
}

static void halves_follow_parameters_that_the_host_writes(void)
{
    const operator_case_t c = halves_case();
    const double tolerance = 3 * 0x1p-8;
    operator_run_t run;
    pl_plan_t *plan = NULL;
    device_open();
    ok(operator_run_init(&run, &c, &rig.err) == PL_OK && device_load(&rig, &run) == PL_OK
           && rig.ops->compile(&device, run.graph, &plan, &rig.err) == PL_OK,
       "a plan in bf16-mixed: %s", rig.err.text);
    double off = written_and_replayed(&c, plan, 1, 0);
    ok(off < tolerance, "is off by %g", off);
    off = written_and_replayed(&c, plan, -0.5f, 0);
    ok(off < tolerance, "with others by %g", off);
    off = written_and_replayed(&c, plan, 0.5f, 1);
    ok(off < tolerance, "after a conversion that failed by %g", off);
    operator_run_release(&run);
    device_close();
}

/* ---- Counters ---- */

static void counters_are_zeros_after_a_wrong_index(void)
{
    static const uint32_t ones[16] = {1, 1, 1, 1};
    uint32_t got[16] = {1};
    int wrong = 0, i = 0;
    operator_run_t run;
    device_results_t results;
    pl_plan_t *plan = NULL;
    pl_gpu_t *gpu = &device.gpu;
    gpu_block_t *counters;
    device_open();
    while (!strstr(operator_cases[i].name, "embedding") || operator_cases[i].narrow)
        i++;
    ok(operator_run_init(&run, &operator_cases[i], &rig.err) == PL_OK
           && device_load(&rig, &run) == PL_OK
           && rig.ops->compile(&device, run.graph, &plan, &rig.err) == PL_OK,
       "a plan with an embedding: %s", rig.err.text);
    counters = &gpu->memory->counters;
    gpu_reserve(gpu, counters, sizeof ones, true, "counters", NULL);
    gpu->backend->copy_in(gpu, PL_STREAM_MAIN, counters->address, ones, sizeof ones,
                          NULL);
    ((int64_t *)run.index)[0] = operator_cases[i].classes + 100;
    is_int(device_replay(&rig, &run, plan, &results), PL_EINVAL, "%s", rig.err.text);
    gpu->backend->copy_out(gpu, PL_STREAM_MAIN, got, counters->address, sizeof got, NULL);
    gpu_drain(gpu, NULL);
    for (int k = 0; k < 16; k++)
        wrong += got[k] != 0;
    is_int(wrong, 0, "and what groups had counted is forgotten");
    device_results_release(&results);
    operator_run_release(&run);
    device_close();
}

/* ---- Compiled in the background ---- */

static pl_error_t compiling_error;
static int compilings;

static void on_compiled(pl_compiling_t *compiling, const pl_error_t *err)
{
    (void)compiling;
    compiling_error = err ? *err : (pl_error_t){0};
    compilings++;
}

static bool is_compiled(void)
{
    rig.ops->collect(&device);
    return compilings;
}

static void a_descriptor_that_cannot_be_written_to_is_an_error(void)
{
    pl_compiling_t compiling = {.done = on_compiled};
    device_open();
    pl_graph_t *g = power_of(SMALL);
    const int was = device.descriptor;
    device.descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    is_int(rig.ops->compile_later(&device, g, &compiling, &rig.err), PL_OK, "a plan");
    ok(eventually(is_compiled()), "ends");
    is_int(compiling_error.code, PL_EIO, "with an error");
    like(compiling_error.text,
         "^writing to the descriptor of the device: ", "with the reason");
    close(device.descriptor);
    device.descriptor = was;
    pl_graph_free(g);
    device_close();
}

int main(void)
{
    pl_init(NULL, NULL, NULL, NULL);
    run(a_plan_fits_or_not_whatever_ran_before);
    run(a_block_that_cannot_grow_is_as_large_as_before);
    run(plans_follow_memory_that_moves);
    run(plans_outlive_one_that_does_not_fit);
    run(memory_moves_after_running_work);
    run(results_do_not_wait_for_reads);
    run(compiling_a_plan_keeps_the_values_of_a_waiting_replay);
    run(a_waiting_replay_is_given_up_once);
    run(without_plans_their_memory_is_given_back);
    run(unused_outputs_take_no_memory_of_the_host);
    run(an_announced_replay_ends_with_the_one_before);
    run(a_pair_whose_second_fails_ends_once);
    run(halves_follow_parameters_that_the_host_writes);
    run(counters_are_zeros_after_a_wrong_index);
    run(a_descriptor_that_cannot_be_written_to_is_an_error);
    return tap_done();
}
