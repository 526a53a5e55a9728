/* samplers.c - tests of actors/connectors/samplers.c, and of strategies that load data in
 * their own way */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "strategies/ddp/ddp.h"
#include "strategies/strategies.h"
#include "tap.h"

enum { SAMPLES = 60, RARE = 10, BATCH = 6, LONGEST = 20 };

/* ---- a data set that counts which of its samples are trained on ---- */

static atomic_int times[SAMPLES];
static int64_t first[8];                                    /* the samples read first */
static atomic_int reads;
static atomic_int padded, widest, unfit;          /* steps of all batches; the largest
                                                     difference of lengths in one; batches
                                                     that are too short for a sample */

typedef struct counted {
    bool values, varies;                                    /* options */
} counted_t;

static int64_t counted_length(const void *self, int64_t index)
{
    (void)self;
    return 1 + index * 7 % LONGEST;
}

static void lengths_count(const pl_read_request_t *request)
{
    int64_t shortest = LONGEST, longest = 0;
    for (int i = 0; i < request->count; i++) {
        const int64_t length = counted_length(NULL, request->index[i]);
        shortest = length < shortest ? length : shortest;
        longest = length > longest ? length : longest;
    }
    if (longest - shortest > widest)
        widest = (int)(longest - shortest);
    atomic_fetch_add(&unfit, request->length < longest);
    atomic_fetch_add(&padded, (int)request->length * request->count);
}

static int counted_open(void *self, const pl_data_request_t *request,
                        pl_data_info_t *info, pl_error_t *err)
{
    const counted_t *counted = self;
    (void)request, (void)err;
    const pl_dtype_t type = counted->values ? PL_F32 : PL_I64;
    *info = (pl_data_info_t){.samples = SAMPLES,
                             .field_count = counted->varies ? 3 : 2,
                             .field = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                       {"y", type, {0, {0}}},
                                       {"words", PL_I64, {1, {PL_VARIES}}}}};
    return PL_OK;
}

/* One sample of ten is of class 1. */
static int counted_read(const void *self, const pl_read_request_t *request,
                        void *const *field, pl_error_t *err)
{
    const counted_t *counted = self;
    (void)err;
    for (int i = 0; i < request->count; i++) {
        const int64_t index = request->index[i];
        int64_t y;
        rig_sample(index, (float *)field[0] + (size_t)i * RIG_FEATURES, &y);
        if (counted->values)
            ((float *)field[1])[i] = (float)index;
        else
            ((int64_t *)field[1])[i] = index % RARE == 0;
    }
    if (counted->varies && request->stage == PL_TRAIN && request->count <= BATCH)
        lengths_count(request);
    /* Classes are read before training, many at a time. */
    for (int i = 0;
         i < request->count && request->stage == PL_TRAIN && request->count <= BATCH;
         i++) {
        const int at = atomic_fetch_add(&reads, 1);
        if (at < 8)
            first[at] = request->index[i];
        atomic_fetch_add(&times[request->index[i]], 1);
    }
    return PL_OK;
}

static const pl_option_t counted_options[] = {
    PL_BOOL(counted_t, values, "false", "y is a number"),
    PL_BOOL(counted_t, varies, "false", "it has words, 1 to 20 of them"),
    PL_OPTIONS_END,
};
static const pl_dataset_ops_t counted_dataset = {.name = "counted",
                                                 .size = sizeof(counted_t),
                                                 .options = counted_options,
                                                 .open = counted_open,
                                                 .read = counted_read,
                                                 .length = counted_length};

/* ---- a sampler of the program: from the last sample to the first ---- */

static int64_t seen_length, seen_batch;                     /* the last time */

typedef struct reversed {
    int64_t samples;
    bool wrong;                                             /* option */
} reversed_t;

static int reversed_open(void *self, const pl_sampler_data_t *data, int64_t *count,
                         pl_error_t *err)
{
    (void)count, (void)err;
    seen_length = data->length ? data->length[data->samples - 1] : 0;
    seen_batch = data->batch_size;
    ((reversed_t *)self)->samples = data->samples;
    return PL_OK;
}

static int64_t reversed_at(const void *self, uint64_t epoch, int64_t place)
{
    const reversed_t *r = self;
    (void)epoch;
    return r->wrong && place == 3 ? r->samples : r->samples - 1 - place;
}

static const pl_option_t reversed_options[] = {
    PL_BOOL(reversed_t, wrong, "false", "names a sample that is not there"),
    PL_OPTIONS_END,
};
static const pl_sampler_ops_t reversed_sampler = {.name = "reversed",
                                                  .size = sizeof(reversed_t),
                                                  .options = reversed_options,
                                                  .open = reversed_open,
                                                  .at = reversed_at};

/* ---- strategies that get the loader and set another ---- */

static char given[200];

static int reply_with(pl_call_t *call, const pl_body_t *body, const char *loader)
{
    snprintf(given, sizeof given, "%s", body->process_dataloader.loader);
    return pl_reply_process_dataloader(
        call, &(pl_process_dataloader_reply_t){.partitions = 1, .loader = loader});
}

static int turn_loader(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)self, (void)err;
    return reply_with(call, body, "{\"sampler\": \"reversed\"}");
}

static int group_loader(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)self, (void)err;
    return reply_with(call, body, "{\"sampler\": \"by_length\", \"buckets\": 8}");
}

static int break_loader(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)self, (void)err;
    return reply_with(call, body, "{\"shufle\": false}");
}

/* A strategy of several ranks that loads data in its own way: each rank replies with its
 * part, and with the loader of the test, which is the same on all. */
static char shared_loader[120];

static int share_loader(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    const pl_replica_t *r = self;
    (void)body, (void)err;
    return pl_reply_process_dataloader(
        call, &(pl_process_dataloader_reply_t){.partition = r->rank,
                                               .partitions = r->ranks,
                                               .loader = shared_loader});
}

static const pl_handler_t share_handlers[] = {PL_ON(process_dataloader, share_loader),
                                              PL_HANDLERS_END};

static const pl_option_t sharing_options[] = {PL_DDP_BUCKETS, PL_DDP_OPTIONS,
                                              PL_OPTIONS_END};

static const pl_actor_ops_t sharing = {.name = "sharing",
                                       .help = "",
                                       .size = sizeof(pl_ddp_t),
                                       .options = sharing_options,
                                       .role = "strategy",
                                       .level = PL_LEVEL_STRATEGY,
                                       .handlers = share_handlers,
                                       .global_batch_semantics = true,
                                       .base = &pl_ddp_strategy};

static const pl_handler_t turn_handlers[] = {PL_ON(process_dataloader, turn_loader),
                                             PL_HANDLERS_END};
static const pl_handler_t group_handlers[] = {PL_ON(process_dataloader, group_loader),
                                              PL_HANDLERS_END};
static const pl_handler_t break_handlers[] = {PL_ON(process_dataloader, break_loader),
                                              PL_HANDLERS_END};

#define STRATEGY(word, table) \
    { \
        .name = word, .help = "", .size = sizeof(pl_replica_t), .role = "strategy", \
        .level = PL_LEVEL_STRATEGY, .devices_max = 1, .handlers = table, \
        .base = &pl_single_strategy \
    }
static const pl_actor_ops_t turning = STRATEGY("turning", turn_handlers),
                            grouping = STRATEGY("grouping", group_handlers),
                            breaking = STRATEGY("breaking", break_handlers);

/* ---- runs ---- */

static const rig_result_t *fit(rig_t **rig, const char *data, const char *trainer)
{
    char dataset[300];
    snprintf(dataset, sizeof dataset,
             "{\"name\": \"counted\", \"batch_size\": %d, \"workers\": 1%s%s}", BATCH,
             *data ? ", " : "", data);
    for (int k = 0; k < SAMPLES; k++)
        times[k] = 0;
    reads = padded = widest = unfit = 0;
    *rig = rig_new(.accelerator = "cpu", .dataset = dataset, .trainer = trainer,
                   .module = "{\"name\": \"mlp\", \"hidden\": [4], \"classes\": 2}");
    return rig_fit(*rig);
}

static const rig_result_t *fit_well(rig_t **rig, const char *data, const char *trainer)
{
    const rig_result_t *result = fit(rig, data, trainer);
    is_text(result->status, "ok", "a run with %s: %s", data, result->error.text);
    return result;
}

static int drawn(bool is_rare)
{
    int sum = 0;
    for (int k = 0; k < SAMPLES; k++)
        sum += (k % RARE == 0) == is_rare ? times[k] : 0;
    return sum;
}

static void balanced_draws_all_classes_equally_often(void)
{
    rig_t *rig;
    fit_well(&rig, "", "\"max_epochs\": 10");
    is_int(drawn(true), 60, "without it a class of 6 in 60 is seen 60 times in 600");
    rig_free(&rig);
    fit_well(&rig, "\"sampler\": \"balanced\"", "\"max_epochs\": 10");
    ok(abs(drawn(true) - 300) < 50, "with it %d times", drawn(true));
    is_int(drawn(true) + drawn(false), 600, "in as many samples");
    rig_free(&rig);
    const rig_result_t *result =
        fit_well(&rig, "\"sampler\": {\"name\": \"balanced\", \"samples\": 15}",
                 "\"max_epochs\": 2");
    is_int((long)result->global_step, 6, "an epoch may have another number of samples");
    rig_free(&rig);
}

static void weights_say_how_often_a_sample_is_drawn(void)
{
    char path[300], data[400];
    float weights[SAMPLES] = {[3] = 1, [20] = 2, [41] = 5};
    const pl_shape_t shape = {1, {SAMPLES}};
    pl_error_t err = {0};
    rig_t *rig;
    fit_well(&rig, "\"sampler\": {\"name\": \"weighted\", \"class_weights\": [0, 1.5]}",
             "\"max_epochs\": 3");
    is_int(drawn(false), 0, "a class of weight 0 is not drawn");
    is_int(drawn(true), 3 * SAMPLES, "the other one is, again and again");
    rig_free(&rig);
    snprintf(path, sizeof path, "%s/weights.npy", tap_folder());
    pl_npy_write(path, PL_F32, &shape, weights, &err);
    snprintf(data, sizeof data, "\"sampler\": {\"name\": \"weighted\", \"path\": \"%s\"}",
             path);
    fit_well(&rig, data, "\"max_epochs\": 8");
    is_int(times[3] + times[20] + times[41], 8 * SAMPLES, "of a file, one for each");
    ok(times[3] > 30 && times[3] < 90 && times[41] > 240 && times[41] < 360,
       "in their proportions: %d, %d, %d", times[3], times[20], times[41]);
    rig_free(&rig);
}

static void a_program_has_a_sampler_of_its_own(void)
{
    rig_t *rig;
    fit_well(&rig, "\"sampler\": \"reversed\"", "\"max_epochs\": 1");
    ok(first[0] == SAMPLES - 1 && first[7] == SAMPLES - 8, "it says the order");
    rig_free(&rig);
    fit_well(&rig, "\"sampler\": \"reversed\", \"val_split\": 0.25", "\"max_epochs\": 2");
    int seen = 0;
    for (int k = 0; k < SAMPLES; k++)
        seen += times[k] == 2;
    is_int(seen, 45, "each sample that is left for training is seen in each epoch");
    rig_free(&rig);
}

static void ranks_share_what_is_drawn(void)
{
    int alone[SAMPLES];
    rig_t *rig;
    fit_well(&rig, "\"sampler\": \"balanced\"", "\"max_epochs\": 2");
    for (int k = 0; k < SAMPLES; k++)
        alone[k] = times[k];
    rig_free(&rig);
    fit_well(&rig, "\"sampler\": \"balanced\"", "\"max_epochs\": 2, \"devices\": 2");
    int other = 0;
    for (int k = 0; k < SAMPLES; k++)
        other += alone[k] != times[k];
    is_int(other, 0, "two ranks draw the samples of one");
    rig_free(&rig);
}

static void check_resume(const char *data, const char *trainer)
{
    char whole_run[100], half_run[120];
    rig_t *rig;
    snprintf(whole_run, sizeof whole_run, "\"max_epochs\": 4%s", trainer);
    snprintf(half_run, sizeof half_run, "%s, \"max_steps\": 17", whole_run);
    rig_result_t *whole = rig_keep(fit_well(&rig, data, whole_run));
    rig_free(&rig);
    rig_result_t *half = rig_keep(fit_well(&rig, data, half_run));
    rig_free(&rig);
    fit(&rig, data, whole_run);
    const rig_result_t *rest = rig_resume(rig, half->run_dir);
    is_text(rest->status, "ok", "a run with %s continues in an epoch: %s", data,
            rest->error.text);
    ok(rig_same_bits(whole, rest) && !rig_same_bits(whole, half),
       "to the weights of a run without a break");
    rig_free(&rig);
    rig_result_free(whole);
    rig_result_free(half);
}

static void a_run_that_resumes_draws_the_same(void)
{
    check_resume("\"sampler\": \"balanced\"", "");
    check_resume("\"varies\": true, \"sampler\": \"by_length\"", "");
}

/* The samples drawn in two epochs of batches by length, each twice. */
static const rig_result_t *fit_by_length(rig_t **rig, const char *data,
                                         const char *trainer)
{
    char all[100], epochs[100];
    snprintf(all, sizeof all, "\"varies\": true, %s", data);
    snprintf(epochs, sizeof epochs, "\"max_epochs\": 2%s", trainer);
    const rig_result_t *result = fit_well(rig, all, epochs);
    int wrong = 0;
    for (int k = 0; k < SAMPLES; k++)
        wrong += times[k] != 2;
    is_int(wrong, 0, "each sample is seen once in an epoch");
    is_int(unfit, 0, "no batch is too short for its samples");
    return result;
}

static void by_length_draws_batches_of_nearly_one_length(void)
{
    static const char grouped[] = "\"buckets\": 8, \"sampler\": "
                                  "{\"name\": \"by_length\", \"window\": 2}";
    rig_t *rig;
    fit_by_length(&rig, "\"sampler\": \"reversed\"", "");
    ok(widest >= LONGEST / 2, "another order has lengths that differ by %d", widest);
    is_int(seen_length, (int)counted_length(NULL, SAMPLES - 1),
           "a sampler of the program receives the lengths");
    is_int(seen_batch, BATCH, "and the size of batches");
    const int any = padded;
    rig_free(&rig);
    fit_by_length(&rig, grouped, "");
    ok(widest <= 4, "this one at most by %d", widest);
    ok(padded < any * 3 / 4, "so %d steps are computed in place of %d", padded, any);
    rig_free(&rig);
    fit_by_length(&rig, "\"buckets\": 1, \"sampler\": \"by_length\"", "");
    is_int(padded, 2 * SAMPLES * LONGEST, "with one length to pad to, all have it");
    rig_free(&rig);
    const rig_result_t *strategy = fit_by_length(&rig, "\"shuffle\": false",
                                                 ", \"strategy\": \"grouping\"");
    like(given, "\"buckets\": *4", "a strategy receives how lengths are padded");
    ok(widest < LONGEST / 2 && padded < any && strategy->global_step == 20,
       "and groups by length: %d, %d", widest, padded);
    rig_free(&rig);
    fit_by_length(&rig, grouped, ", \"devices\": 2");
    ok(widest <= 8 && padded < any, "two ranks share the batches: %d, %d", widest,
       padded);
    rig_free(&rig);
}

static void a_strategy_replaces_the_sampler(void)
{
    rig_t *rig;
    rig_result_t *own =
        rig_keep(fit_well(&rig, "\"sampler\": \"reversed\"", "\"max_epochs\": 2"));
    rig_free(&rig);
    const rig_result_t *result = fit_well(&rig, "\"drop_last\": true",
                                          "\"max_epochs\": 2, "
                                          "\"strategy\": \"turning\"");
    like(given,
         "\"sampler\": *null.*\"shuffle\": *true.*\"drop_last\": *true.*"
         "\"buckets\": *4",
         "it receives how the run loads data");
    ok(rig_same_bits(own, result), "and its own sampler is in use");
    rig_free(&rig);
    rig_result_free(own);
}

/* What the strategy sets, as it would be written in "data". */
static const struct {
    const char *name, *loader;
} shared[] = {
    {"weights", "\"sampler\": {\"name\": \"weighted\", \"class_weights\": [1, 9]}"},
    {"groups", "\"sampler\": {\"name\": \"by_length\", \"window\": 2}, \"buckets\": 8"},
    {"another sampler", "\"sampler\": \"reversed\""},
};
enum { WEIGHTS, GROUPS, SHARED = sizeof shared / sizeof *shared };

#define SHARING ", \"devices\": 2, \"strategy\": \"sharing\""
#define PLAIN "\"varies\": true, \"shuffle\": false"

static void ranks_share_what_their_strategy_loads(void)
{
    for (int k = 0; k < SHARED; k++) {
        int alone[SAMPLES], other = 0, unequal = 0;
        char data[160];
        rig_t *rig;
        snprintf(data, sizeof data, "\"varies\": true, %s", shared[k].loader);
        fit_well(&rig, data, "\"max_epochs\": 4");
        memcpy(alone, times, sizeof alone);
        rig_free(&rig);
        snprintf(shared_loader, sizeof shared_loader, "{%s}", shared[k].loader);
        fit_well(&rig, PLAIN, "\"max_epochs\": 4" SHARING);
        for (int i = 0; i < SAMPLES; i++) {
            other += times[i] != alone[i];
            unequal += times[i] != 4;
        }
        is_int(other, 0, "%s: both ranks draw together what one draws", shared[k].name);
        if (k == WEIGHTS)
            ok(abs(drawn(true) - 120) < 30, "the rare half of the time: %d of 240",
               drawn(true));
        else
            is_int(unequal, 0, "each sample once in an epoch");
        ok(k != GROUPS || (widest <= 8 && !unfit), "batches have lengths of up to %d",
           widest);
        rig_free(&rig);
    }
}

static void ranks_whose_strategy_loads_resume_in_an_epoch(void)
{
    for (int k = 0; k < SHARED; k++) {
        tap_diag("%s", shared[k].name);
        snprintf(shared_loader, sizeof shared_loader, "{%s}", shared[k].loader);
        check_resume(PLAIN, SHARING);
    }
}

static void impossible_samplers_are_refused_with_the_reason(void)
{
    static const struct {
        const char *data, *trainer, *text;
    } wrong[] = {
        {"\"values\": true, \"sampler\": \"balanced\"", "",
         "rig:1:[0-9]*: sampler \"balanced\": it needs classes"},
        {"\"sampler\": \"by_length\"", "", "it groups samples that vary in length"},
        {"\"sampler\": {\"name\": \"weighted\", \"class_weights\": [1]}", "",
         "is a list of 1, and a sample has class 1"},
        {"\"sampler\": {\"name\": \"weighted\", \"class_weights\": [0, 0]}", "",
         "the sum of all weights is 0"},
        {"\"sampler\": {\"name\": \"weighted\", \"path\": \"/nowhere.npy\"}", "",
         "/nowhere.npy.*No such file"},
        {"\"sampler\": {\"name\": \"reversed\", \"wrong\": true}", "",
         "sampler \"reversed\" names a sample that is not one of the 60"},
        {"", ", \"strategy\": \"breaking\"", "the loader that the strategy sets.*shufle"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        char trainer[100];
        rig_t *rig;
        snprintf(trainer, sizeof trainer, "\"max_epochs\": 1%s", wrong[k].trainer);
        const rig_result_t *result = fit(&rig, wrong[k].data, trainer);
        is_text(result->status, "failed", "%s%s", wrong[k].data, wrong[k].trainer);
        like(result->error.text, wrong[k].text, "it is said why");
        rig_free(&rig);
    }
    rig_t *rig = rig_new(.accelerator = "cpu", .data = "\"sampler\": \"weighted\"");
    ok(!rig || !rig_begin(rig), "weights are needed");
    like(rig_error.text, "either \"class_weights\".*or \"path\"", "which is said");
    rig_free(&rig);
    rig = rig_new(.accelerator = "cpu", .data = "\"sampler\": \"balancd\"");
    ok(!rig || !rig_begin(rig), "a name has to be known");
    like(rig_error.text, "balancd.*balanced", "and the nearest is suggested");
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t parts[] = {{"dataset", &counted_dataset},
                                              {"sampler", &reversed_sampler},
                                              {"strategy", &turning},
                                              {"strategy", &grouping},
                                              {"strategy", &breaking},
                                              {"strategy", &sharing},
                                              PL_REGISTRATIONS_END};
    rig_init(parts);
    run(balanced_draws_all_classes_equally_often);
    run(weights_say_how_often_a_sample_is_drawn);
    run(a_program_has_a_sampler_of_its_own);
    run(ranks_share_what_is_drawn);
    run(a_run_that_resumes_draws_the_same);
    run(by_length_draws_batches_of_nearly_one_length);
    run(a_strategy_replaces_the_sampler);
    run(ranks_share_what_their_strategy_loads);
    run(ranks_whose_strategy_loads_resume_in_an_epoch);
    run(impossible_samplers_are_refused_with_the_reason);
    return tap_done();
}
