/* device.c - results and speed of a card: the stages of t/gpu/prove that need the
 * accelerator's table
 *
 *     device facts
 *     device operators SECONDS PRECISION [HASHES]
 *     device training SECONDS FILE
 *     device bits SECONDS
 *     device copies
 *     device bench SECONDS WORKLOAD PRECISION BATCH
 *     device save SECONDS WORKLOAD PRECISION BATCH
 *
 * Each prints objects of JSON, one a line, as soon as they are known.  What does not fit
 * in the seconds is left out and counted.  In the environment, STRICT, TF32 and ANY_ORDER
 * set the options of these names, and CASES is a part of the names of cases.  HASHES is a
 * file of a hash for each case.  The status is 1 when something is wrong. */
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "accelerators/reference/reference.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "runtime/payload.h"
#include "t/device_rig.h"
#include "t/training_cases.h"
#include "tensor/precision.h"

const pl_registration_t *cuda_plugin(void);
const pl_registration_t *cnn_plugin(void);
const pl_registration_t *gpt_plugin(void);
const pl_registration_t *mlp_plugin(void);

static int status;
static int64_t began;
static double seconds_allowed;

static bool is_late(void)
{
    return (double)(pl_now() - began) / 1e9 > seconds_allowed;
}

/* Consumes the object. */
static void print(json_t *object)
{
    char *text = json_dumps(object,
                            JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(7));
    puts(text);
    fflush(stdout);
    free(text);
    json_decref(object);
}

static void print_error(const char *stage, const char *what, const char *text)
{
    print(json_pack("{s:s, s:s, s:s}", "stage", stage, "what", what, "error", text));
    status = 1;
}

/* JSON has no NaN. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "nan" : "infinite");
}

/* ---- The device ---- */

static bool device_open(device_rig_t *rig, pl_device_info_t *info, bool recordings)
{
    char options[128];
    snprintf(options, sizeof options,
             "{\"strict\": %s, \"tf32\": %s, \"any_order\": %s, \"recordings\": %s}",
             getenv("STRICT") ? "true" : "false", getenv("TF32") ? "true" : "false",
             getenv("ANY_ORDER") ? "true" : "false", recordings ? "true" : "false");
    *rig = (device_rig_t){.ops = cuda_plugin()->table};
    *info = (pl_device_info_t){.ranks = 1, .device = -1, .computes = true};
    rig->self = training_component((const pl_component_t *)rig->ops, options);
    if (rig->ops->open(rig->self, info, &rig->err) == PL_OK)
        return true;
    print_error("device", "open", rig->err.text);
    rig->ops->close(rig->self);
    pl_free(rig->self);
    return false;
}

static void device_close(device_rig_t *rig)
{
    rig->ops->close(rig->self);
    pl_free(rig->self);
}

static void print_fact(void *user, const char *name, const char *text)
{
    (void)user;
    print(json_pack("{s:s, s:s, s:s}", "stage", "facts", "name", name ? name : "warning",
                    "text", text));
}

static void facts(void)
{
    device_rig_t rig;
    pl_device_info_t info;
    ((const pl_accelerator_ops_t *)cuda_plugin()->table)->report(print_fact, NULL);
    if (!device_open(&rig, &info, true))
        return;
    print(json_pack("{s:s, s:s, s:s, s:I, s:I}", "stage", "facts", "model", info.model,
                    "library", info.library, "memory", (json_int_t)info.memory,
                    "memory_free", (json_int_t)info.memory_free));
    device_close(&rig);
}

/* ---- Cases of operators ---- */

static uint64_t hash(uint64_t of, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t k = 0; k < bytes; k++)
        of = (of ^ at[k]) * 0x100000001b3u;
    return of;
}

static uint64_t results_hash(const device_results_t *r)
{
    uint64_t of = hash(0xcbf29ce484222325u, r->output, r->output_bytes);
    for (int k = 0; k < PL_REGIONS; k++)
        of = r->wide[k] ? hash(of, r->wide[k], r->size[k] * sizeof(double))
                        : hash(of, r->region[k], r->size[k] * sizeof(float));
    return hash(of, r->metrics, sizeof r->metrics);
}

static double tolerance_of(const char *precision)
{
    if (strncmp(precision, "bf16", 4) == 0)
        return 3 * 0x1p-8;
    if (strncmp(precision, "16", 2) == 0)
        return 3 * 0x1p-11;
    return strcmp(precision, "64-true") == 0 ? 1e-12 : 1e-5;
}

typedef struct tally {
    int right, wrong, missing, left;
    double worst;                             /* the largest difference of correct ones */
} tally_t;

static void check_case(device_rig_t *rig, const operator_case_t *of,
                       const char *precision, FILE *hashes, tally_t *tally)
{
    operator_case_t c = *of;
    operator_run_t run;
    device_results_t got = {0};
    c.precision = device_precision(precision);
    rig->err = (pl_error_t){0};
    if (!c.precision || operator_run_init(&run, &c, &rig->err) != PL_OK) {
        print_error("operators", c.name, rig->err.text);
        tally->wrong++;
        return;
    }
    pl_reference_round(c.precision->params, run.region[PL_REGION_PARAMS],
                       (int64_t)run.size[PL_REGION_PARAMS]);
    const int code = device_run(rig, &run, &got);
    if (code == PL_OK && hashes)
        fprintf(hashes, "%016llx %s, %s\n", (unsigned long long)results_hash(&got),
                precision, c.name);
    const double off = code == PL_OK ? device_difference(&run, &got) : INFINITY;
    if (code == PL_EUNSUPPORTED) {
        tally->missing++;
    } else if (off < tolerance_of(precision)) {
        tally->right++;
        tally->worst = fmax(tally->worst, off);
    } else {
        tally->wrong++;
        status = 1;
        print(json_pack("{s:s, s:s, s:s, s:o, s:s}", "stage", "operators", "precision",
                        precision, "wrong", c.name, "off", number(off), "error",
                        rig->err.text));
    }
    device_results_release(&got);
    operator_run_release(&run);
}

static void operators(const char *precision, const char *file)
{
    device_rig_t rig;
    pl_device_info_t info;
    tally_t tally = {0};
    FILE *hashes = file ? fopen(file, "w") : NULL;
    if (!device_open(&rig, &info, true))
        return;
    const char *only = getenv("CASES");
    for (int i = 0; i < operator_case_count; i++)
        if (only && !strstr(operator_cases[i].name, only))
            continue;
        else if (is_late())
            tally.left++;
        else
            check_case(&rig, &operator_cases[i], precision, hashes, &tally);
    print(json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:o, s:f}", "stage", "operators",
                    "precision", precision, "strict", getenv("STRICT") != NULL, "right",
                    tally.right, "wrong", tally.wrong, "missing", tally.missing, "left",
                    tally.left, "worst", number(tally.worst), "seconds",
                    (double)(pl_now() - began) / 1e9));
    if (hashes)
        fclose(hashes);
    device_close(&rig);
}

/* ---- Trainings ---- */

typedef struct trainer {
    device_rig_t rig;
    training_t t;
    pl_plan_t *step, *update;
    bool is_watched;                                   /* launch by launch */
    bool is_measured;                                  /* all batches are the first one */
    const void *input[2];
    pl_pages_t *pages;                         /* of a measured batch, as batches of the
                                                  engine have them  [NULL] */
    int flying;                                /* replays whose end is not reported yet */
    double busy;                               /* s of all replays, by the card's clock */
    pl_error_t failed;                         /* the first */
} trainer_t;

typedef struct inflight {
    pl_replay_t replay;                                     /* first */
    trainer_t *of;
    double metrics[PL_FIELDS][2];
} inflight_t;

static void on_done(pl_replay_t *replay, const pl_error_t *err)
{
    inflight_t *inflight = (inflight_t *)replay;
    inflight->of->flying--;
    inflight->of->busy += replay->seconds;
    if (err && inflight->of->failed.code == PL_OK)
        inflight->of->failed = *err;
}

/* Elements of a region that are not written are zeros. */
static bool region_fill(trainer_t *r, pl_region_t region)
{
    const pl_model_t *model = r->t.model;
    const pl_dtype_t dtype = pl_region_dtype(model->precision, region);
    const size_t n = (size_t)(model->params + model->state) + PL_SCALING_COUNT;
    const bool has_values = region == PL_REGION_PARAMS || region == PL_REGION_MASTER
                            || region == PL_REGION_STATE;
    if (!has_values)
        return r->rig.ops->region(r->rig.self, region, dtype, n, &r->rig.err) == PL_OK;
    double *wide = pl_alloc_array(n, sizeof *wide);
    float *data = pl_alloc_array(n, sizeof *data);
    if (r->is_measured)                                     /* a cheap formula */
        for (size_t i = 0; i < n; i++)
            wide[i] = (double)(i * 2654435761u >> 16 & 1023) / 25600 - 0.02;
    else
        training_fill(&r->t, region == PL_REGION_MASTER ? PL_REGION_PARAMS : region,
                      wide);
    for (size_t i = 0; i < n; i++)
        data[i] = (float)wide[i];
    const pl_accelerator_ops_t *ops = r->rig.ops;
    int code = ops->region(r->rig.self, region, dtype, n, &r->rig.err);
    if (code == PL_OK)
        code = ops->write(r->rig.self, region, 0,
                          dtype == PL_F64 ? (const void *)wide : data, n, &r->rig.err);
    pl_free(wide);
    pl_free(data);
    return code == PL_OK;
}

static bool trainer_open(trainer_t *r, const training_case_t *c, bool recordings)
{
    pl_device_info_t info;
    *r = (trainer_t){.is_measured = r->is_measured};
    if (!device_open(&r->rig, &info, recordings))
        return false;
    bool is_good = training_init(&r->t, c, &r->rig.err) == PL_OK;
    if (is_good)
        pl_graph_drop_outputs(r->t.step);
    for (int k = 0; k < PL_REGIONS && is_good; k++)
        is_good = region_fill(r, (pl_region_t)k);
    const pl_accelerator_ops_t *ops = r->rig.ops;
    is_good = is_good
              && ops->compile(r->rig.self, r->t.step, &r->step, &r->rig.err) == PL_OK
              && ops->compile(r->rig.self, r->t.update, &r->update, &r->rig.err) == PL_OK;
    if (!is_good)
        print_error("training", c->name, r->rig.err.text);
    return is_good;
}

static void trainer_close(trainer_t *r)
{
    if (r->pages)
        r->rig.ops->unpin(r->rig.self, r->pages->data);
    pl_object_unref(r->pages);
    device_close(&r->rig);
    training_release(&r->t);
}

/* Moves the batch to pinned memory, where its fields lie as in batches of the engine. */
static void trainer_pin(trainer_t *r)
{
    const pl_graph_t *g = r->t.step;
    size_t bytes[2] = {0};
    for (int i = 0; i < g->value_count; i++)
        if (g->value[i].source == PL_FROM_INPUT)
            bytes[g->value[i].index] = (size_t)pl_elements(g->value[i].shape)
                                       * pl_dtype_size(g->value[i].dtype);
    const size_t second = (bytes[0] + 63) / 64 * 64;
    r->pages = pl_pages_new(second + bytes[1], &r->failed);
    if (!r->pages
        || r->rig.ops->pin(r->rig.self, r->pages->data, r->pages->bytes, &r->failed)
               != PL_OK)
        return;
    for (int k = 0; k < 2; k++)
        r->input[k] = memcpy((char *)r->pages->data + k * second, r->input[k], bytes[k]);
}

/* Waits until so few are in progress. */
static bool trainer_wait(trainer_t *r, int flying)
{
    while (r->flying > flying) {
        struct pollfd end = {.fd = r->rig.ops->descriptor(r->rig.self), .events = POLLIN};
        if (poll(&end, 1, 60000) != 1) {
            pl_fail(&r->failed, PL_ETIMEOUT, "a replay does not end within a minute");
            return false;
        }
        r->rig.ops->collect(r->rig.self);
    }
    return r->failed.code == PL_OK;
}

typedef struct share {
    char what[64];
    double ms;
    int count;
} share_t;

enum { SHARES = 64 };
static share_t share[SHARES];

static void on_measured(pl_replay_t *replay, const pl_device_span_t *span, int count)
{
    (void)replay;
    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < SHARES - 1 && *share[k].what && strcmp(share[k].what, span[i].what))
            k++;
        snprintf(share[k].what, sizeof share[k].what, "%s", span[i].what);
        share[k].ms += (span[i].end - span[i].begin) * 1e3;
        share[k].count++;
    }
}

static bool trainer_put(trainer_t *r, pl_plan_t *plan, inflight_t *inflight)
{
    inflight->of = r;
    inflight->replay.done = on_done;
    inflight->replay.metrics = inflight->metrics[0];
    r->flying++;
    if (r->rig.ops->replay(r->rig.self, plan, &inflight->replay, &r->failed) == PL_OK)
        return true;
    r->flying--;
    return false;
}

/* Puts a step on the device; its metrics are known when both replays are over. */
static bool trainer_step(trainer_t *r, int step, inflight_t inflight[2])
{
    inflight[0].replay = (pl_replay_t){.seed = 1, .step = (uint64_t)step + 1};
    inflight[1].replay = (pl_replay_t){.seed = 1, .step = (uint64_t)step + 1};
    if (!r->is_measured || !r->input[0])
        training_batch(&r->t, step, r->input);
    if (r->is_measured && !r->pages)
        trainer_pin(r);
    memcpy(inflight[0].replay.input, r->input, sizeof r->input);
    inflight[0].replay.next = &inflight[1].replay;
    training_scalars(&r->t, step, inflight[1].replay.scalar);
    if (r->is_watched)
        inflight[0].replay.measured = inflight[1].replay.measured = on_measured;
    return trainer_put(r, r->step, &inflight[0])
           && trainer_put(r, r->update, &inflight[1]);
}

static void check_training(const training_case_t *c, const json_t *want)
{
    trainer_t r = {.is_measured = false};
    inflight_t inflight[2];
    double loss = 0, norm = 0;
    const bool is_open = trainer_open(&r, c, true);
    for (int step = 0; step < TRAINING_STEPS && is_open; step++) {
        if (!trainer_step(&r, step, inflight) || !trainer_wait(&r, 0)) {
            print_error("training", c->name, r.failed.text);
            loss = INFINITY;
            break;
        }
        const double *l = inflight[1].metrics[0], *n = inflight[1].metrics[1];
        const double wanted = json_number_value(
                         json_array_get(json_object_get(want, "losses"), (size_t)step)),
                     length = json_number_value(
                         json_array_get(json_object_get(want, "norms"), (size_t)step));
        loss = fmax(loss, fabs(l[0] / l[1] - wanted) / wanted);
        norm = fmax(norm, fabs(n[0] - length) / length);
    }
    const bool is_right = is_open && loss < 1e-4 && norm < 1e-3;
    status |= !is_right;
    if (is_open)
        print(json_pack("{s:s, s:s, s:b, s:o, s:o}", "stage", "training", "case", c->name,
                        "right", is_right, "loss_off", number(loss), "norm_off",
                        number(norm)));
    trainer_close(&r);
}

static void training(const char *file)
{
    json_t *data = json_load_file(file, 0, NULL);
    int left = 0;
    if (!data)
        print_error("training", file, "cannot be read");
    for (int i = 0; data && i < training_case_count; i++)
        if (is_late())
            left++;
        else
            check_training(&training_cases[i],
                           json_object_get(data, training_cases[i].name));
    print(json_pack("{s:s, s:i}", "stage", "training", "left", left));
    json_decref(data);
}

/* ---- The same bits ---- */

enum { BITS_STEPS = 8 };

/* Of the parameters after some steps, `depth` of them under way at once; 0: an error was
 * printed. */
static uint64_t bits_of(const training_case_t *c, bool recordings, int depth)
{
    trainer_t r = {.is_measured = false};
    inflight_t inflight[BITS_STEPS][2];
    uint64_t of = 0;
    bool is_good = trainer_open(&r, c, recordings);
    for (int step = 0; step < BITS_STEPS && is_good; step++)
        is_good = trainer_step(&r, step, inflight[step])
                  && trainer_wait(&r, 2 * depth - 2);
    is_good = is_good && trainer_wait(&r, 0);
    const size_t n = is_good ? (size_t)r.t.model->params : 0;
    float *data = pl_alloc_array(n + 1, sizeof *data);
    if (is_good
        && r.rig.ops->read(r.rig.self, PL_REGION_PARAMS, 0, data, n, &r.failed) == PL_OK)
        of = hash(0xcbf29ce484222325u, data, n * sizeof *data);
    else
        print_error("bits", c->name, r.failed.text);
    pl_free(data);
    trainer_close(&r);
    return of;
}

static void bits(void)
{
    static const int chosen[] = {1, 3, 5, 7};
    int left = 0;
    for (size_t k = 0; k < sizeof chosen / sizeof *chosen; k++) {
        const training_case_t *c = &training_cases[chosen[k]];
        if (is_late()) {
            left++;
            continue;
        }
        const uint64_t first = bits_of(c, true, 1), again = bits_of(c, true, 1),
                       deep = bits_of(c, true, 4), launched = bits_of(c, false, 1);
        const bool is_same = first && first == again && first == deep
                             && first == launched;
        status |= !is_same;
        print(json_pack("{s:s, s:s, s:b, s:b, s:b}", "stage", "bits", "case", c->name,
                        "again", first == again, "four_under_way", first == deep,
                        "without_recordings", first == launched));
    }
    print(json_pack("{s:s, s:i}", "stage", "bits", "left", left));
}

/* ---- Speed ---- */

/* Whole regions to the card and back, from and to memory that is not pinned. */
static void copies(void)
{
    enum { ELEMENTS = 1 << 26, TIMES = 4 };
    device_rig_t rig;
    pl_device_info_t info;
    if (!device_open(&rig, &info, true))
        return;
    float *data = pl_alloc_array(ELEMENTS, sizeof *data);
    int code = rig.ops->region(rig.self, PL_REGION_PARAMS, PL_F32, ELEMENTS, &rig.err);
    int64_t in = INT64_MAX, out = INT64_MAX;
    for (int k = 0; k < TIMES && data && code == PL_OK; k++) {
        const int64_t start = pl_now();
        code = rig.ops->write(rig.self, PL_REGION_PARAMS, 0, data, ELEMENTS, &rig.err);
        const int64_t middle = pl_now();
        if (code == PL_OK)
            code = rig.ops->read(rig.self, PL_REGION_PARAMS, 0, data, ELEMENTS, &rig.err);
        const int64_t end = pl_now();
        in = middle - start < in ? middle - start : in;
        out = end - middle < out ? end - middle : out;
    }
    const double bytes = (double)ELEMENTS * sizeof *data;
    if (code == PL_OK)
        print(json_pack("{s:s, s:f, s:f}", "stage", "copies", "write_gb_s",
                        bytes / (double)in, "read_gb_s", bytes / (double)out));
    else
        print_error("copies", "region", rig.err.text);
    pl_free(data);
    device_close(&rig);
}

#define ADAMW &pl_adamw_optimizer, "{\"lr\": 0.0003, \"weight_decay\": 0.1}", 1.0
static const training_case_t workloads[] = {
    {"mlp", mlp_plugin, "{\"hidden\": [128], \"classes\": 10}", ADAMW, false,
     PL_SHAPE(64, 784), 10},
    {"cnn", cnn_plugin, "{\"classes\": 10}", ADAMW, false, PL_SHAPE(64, 1, 28, 28), 10},
    {"gpt-small", gpt_plugin,
     "{\"layers\": 4, \"heads\": 4, \"width\": 128, \"context\": 64, "
     "\"vocabulary_size\": 65, \"bias\": false}",
     ADAMW, true, PL_SHAPE(12, 64), 65},
    {"gpt2", gpt_plugin,
     "{\"layers\": 12, \"heads\": 12, \"width\": 768, \"context\": 1024, "
     "\"vocabulary_size\": 50304, \"bias\": true}",
     ADAMW, true, PL_SHAPE(8, 1024), 50304},
};

static int by_size(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b)
           - (*(const double *)a < *(const double *)b);
}

enum { DEPTH = 4, PIECES = 64 };

/* Steps with four under way; the milliseconds of each, negative after an error. */
static double piece_run(trainer_t *r, int steps, int *step)
{
    static inflight_t inflight[DEPTH][2];
    const int64_t since = pl_now();
    bool is_good = true;
    for (int k = 0; k < steps && is_good; k++, ++*step)
        is_good = trainer_wait(r, 2 * DEPTH - 2)
                  && trainer_step(r, *step, inflight[*step % DEPTH]);
    is_good = is_good && trainer_wait(r, 0);
    return is_good ? (double)(pl_now() - since) / 1e6 / steps : -1;
}

static const training_case_t *workload_find(const char *name)
{
    for (size_t k = 0; k < sizeof workloads / sizeof *workloads; k++)
        if (strcmp(workloads[k].name, name) == 0)
            return &workloads[k];
    return NULL;
}

/* ---- Time of a step by kind of launch ---- */

static int by_time(const void *a, const void *b)
{
    const double x = ((const share_t *)a)->ms, y = ((const share_t *)b)->ms;
    return (x < y) - (x > y);
}

/* Milliseconds of one step by kind of launch, each launched by itself. */
static void measure(trainer_t *r, int step)
{
    inflight_t inflight[2];
    json_t *shares = json_array();
    r->is_watched = true;
    if (!trainer_step(r, step, inflight) || !trainer_wait(r, 0))
        print_error("measure", "step", r->failed.text);
    qsort(share, SHARES, sizeof *share, by_time);
    for (int k = 0; k < SHARES && *share[k].what && share[k].ms > 0; k++)
        json_array_append_new(shares, json_pack("[s, i, f]", share[k].what,
                                                share[k].count, share[k].ms));
    print(json_pack("{s:s, s:o}", "stage", "measure", "launches_ms", shares));
}

/* Of all threads. */
static double processor_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
           + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* The workload on a card, of so many samples a batch  [0: its own]; false: an error was
 * printed. */
static bool workload_open(trainer_t *r, const char *stage, const char *name,
                          const char *precision, int batch)
{
    static training_case_t c;                               /* the trainer uses it */
    const training_case_t *found = workload_find(name);
    c = found ? *found : (training_case_t){0};
    c.precision = device_precision(precision);
    *r = (trainer_t){.is_measured = true};
    if (!found || !c.precision) {
        print_error(stage, name, "no such workload or precision");
        return false;
    }
    if (batch)
        c.shape.dim[0] = batch;
    const bool is_open = trainer_open(r, &c, true);
    if (!is_open)
        trainer_close(r);
    return is_open;
}

/* Milliseconds of a step, from end to end: the median of pieces of about 50 ms; the
 * processor time of one, and the share of the time in which the card had no step. */
static void bench(const char *name, const char *precision, int batch)
{
    double piece[PIECES];
    int pieces = 0, step = 0;
    trainer_t r;
    const int64_t start = pl_now();
    if (!workload_open(&r, "bench", name, precision, batch))
        return;
    bool is_good = piece_run(&r, 4, &step) > 0;
    const double ready = (double)(pl_now() - start) / 1e9,
                 usual = is_good ? piece_run(&r, 4, &step) : -1;
    const int steps = usual > 50 ? 1 : (int)(50 / (usual + 0.1)) + 1, first = step;
    const double busy = processor_seconds();
    double all = 0;
    r.busy = 0;
    for (is_good = usual > 0; is_good && pieces < PIECES && !(pieces > 2 && is_late());
         is_good = piece[pieces++] > 0) {
        piece[pieces] = piece_run(&r, steps, &step);
        all += piece[pieces] * steps / 1e3;
    }
    qsort(piece, (size_t)pieces, sizeof *piece, by_size);
    if (is_good && pieces)
        print(json_pack("{s:s, s:s, s:s, s:i, s:b, s:f, s:f, s:f, s:i, s:f, s:f, s:f}",
                        "stage", "bench", "workload", name, "precision", precision,
                        "batch", (int)r.t.step->batch_size, "any_order",
                        getenv("ANY_ORDER") != NULL, "ms", piece[pieces / 2], "least",
                        piece[0], "most", piece[pieces - 1], "steps", step, "ready_s",
                        ready, "processor_us",
                        (processor_seconds() - busy) * 1e6 / (step - first),
                        "idle_percent", 100 * (1 - r.busy / all)));
    else
        print_error("bench", name, r.failed.code ? r.failed.text : r.rig.err.text);
    if (is_good)
        measure(&r, step);
    trainer_close(&r);
}

/* ---- A checkpoint beside the steps ---- */

typedef struct save_read {
    pl_transfer_t transfer;                                 /* first */
    int *left;
    int failed;
} save_read_t;

static void on_read(pl_transfer_t *transfer, const pl_error_t *err)
{
    save_read_t *read = (save_read_t *)transfer;
    --*read->left;
    read->failed = err ? err->code : PL_OK;
}

enum { SAVE_STEPS = 24 };

/* Milliseconds by which steps take longer because what a checkpoint has is read beside
 * them, and until it is read; three times, because the first one makes the snapshots. */
static void save(const char *name, const char *precision, int batch)
{
    static const pl_region_t saved[] = {PL_REGION_PARAMS, PL_REGION_SLOT0,
                                        PL_REGION_SLOT0 + 1};  /* with AdamW */
    enum { SAVED = sizeof saved / sizeof *saved };
    save_read_t read[SAVED];
    int step = 0, left = 0;
    trainer_t r;
    if (!workload_open(&r, "save", name, precision, batch))
        return;
    const pl_accelerator_ops_t *ops = r.rig.ops;
    const size_t n = (size_t)r.t.model->params, bytes = SAVED * n * sizeof(float);
    pl_pages_t *pages = pl_pages_new(bytes, &r.failed);
    bool is_good = pages
                   && ops->pin(r.rig.self, pages->data, pages->bytes, &r.failed) == PL_OK
                   && piece_run(&r, 8, &step) > 0;
    for (int turn = 0; turn < 3 && is_good; turn++) {
        const double usual = piece_run(&r, SAVE_STEPS, &step) * SAVE_STEPS;
        const int64_t begin = pl_now();
        is_good = usual > 0;
        for (int k = 0; k < SAVED && is_good; k++) {
            read[k] =
                (save_read_t){.transfer = {.region = saved[k],
                                           .count = n,
                                           .host = (float *)pages->data + (size_t)k * n,
                                           .done = on_read},
                              .left = &left};
            left++;
            is_good = ops->read_later(r.rig.self, &read[k].transfer, &r.failed) == PL_OK;
        }
        const double with = is_good ? piece_run(&r, SAVE_STEPS, &step) * SAVE_STEPS : -1;
        while (left && is_good && with > 0) {
            struct pollfd end = {.fd = ops->descriptor(r.rig.self), .events = POLLIN};
            is_good = poll(&end, 1, 60000) == 1;
            ops->collect(r.rig.self);
        }
        for (int k = 0; k < SAVED && is_good; k++)
            is_good = read[k].failed == PL_OK;
        if (is_good && with > 0)
            print(json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f}", "stage", "save",
                            "workload", name, "precision", precision, "turn", turn, "gb",
                            (double)bytes / 1e9, "step_ms", usual / SAVE_STEPS,
                            "longer_ms", with - usual, "read_ms",
                            (double)(pl_now() - begin) / 1e6));
    }
    if (!is_good || r.failed.code != PL_OK)
        print_error("save", name, r.failed.text);
    if (pages)
        ops->unpin(r.rig.self, pages->data);
    trainer_close(&r);
    pl_object_unref(pages);
}

int main(int argc, char **argv)
{
    const char *stage = argc > 1 ? argv[1] : "";
    began = pl_now();
    seconds_allowed = argc > 2 ? atof(argv[2]) : 60;
    if (strcmp(stage, "facts") == 0)
        facts();
    else if (strcmp(stage, "operators") == 0 && argc > 3)
        operators(argv[3], argc > 4 ? argv[4] : NULL);
    else if (strcmp(stage, "training") == 0 && argc > 3)
        training(argv[3]);
    else if (strcmp(stage, "bits") == 0)
        bits();
    else if (strcmp(stage, "copies") == 0)
        copies();
    else if (strcmp(stage, "bench") == 0 && argc > 5)
        bench(argv[3], argv[4], atoi(argv[5]));
    else if (strcmp(stage, "save") == 0 && argc > 5)
        save(argv[3], argv[4], atoi(argv[5]));
    else
        print_error("device", stage, "no such stage, or it lacks words");
    return status;
}
