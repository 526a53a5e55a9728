/* given.c - tests of strategies/replica/weights.c: weights whose memory the device may
 * keep */
#include <string.h>

#include "accelerators/actor.h"
#include "queen.h"
#include "rig.h"
#include "runtime/payload.h"
#include "strategies/strategies.h"
#include "tap.h"

static void normed_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_linear(g, "fc1", pl_input(g, "x"), 5);
    x = pl_linear(g, "fc2", pl_batch_norm(g, "norm", x, 0.1, 1e-5), 3);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static const pl_module_ops_t normed = {.name = "normed", .help = "", .step = normed_step};

/* ---- A strategy and its device ---- */

static asked_t life[16];
static int lives;

static pl_address_t begin(const char *device, int seed)
{
    pl_peers_t peers = {0};
    pl_batch_signature_t *signature = pl_batch_signature_new(NULL);
    pl_job_t *job = queen_job(
        "{\"module\": \"normed\", \"optimizer\": \"adamw\", \"data\": \"numbers\", "
        "\"trainer\": {\"accelerator\": \"%s\", \"seed\": %d}}",
        device, seed);
    signature->stage[PL_TRAIN].present = true;
    signature->stage[PL_TRAIN].batch_size = 4;
    signature->stage[PL_TRAIN].size_count = 1;
    signature->stage[PL_TRAIN].size[0] = (pl_batch_size_t){4, 0};
    signature->stage[PL_TRAIN].field_count = 2;
    signature->stage[PL_TRAIN].field[0] = (pl_field_t){"x", PL_F32, PL_SHAPE(6)};
    signature->stage[PL_TRAIN].field[1] = (pl_field_t){"y", PL_I64, pl_shape(0)};
    const pl_start_t start = {.options = "", .context = &job->object};
    pl_peers_add(&peers, "accelerator",
                 queen_spawn(pl_accelerator_actor(device, NULL), &start, &life[lives++]));
    const pl_start_t above = {.options = "", .context = &job->object, .peers = peers};
    pl_address_t strategy = queen_spawn(&pl_single_strategy, &above, &life[lives++]);
    const pl_setup_t setup = {.job = &job->object,
                              .data_info = "{}",
                              .signature = &signature->object};
    is_text(queen_call(strategy, PL_MESSAGE_setup, &setup)->error.text, "",
            "%s: it is set up", device);
    pl_object_unref(signature);
    pl_object_unref(job);
    return strategy;
}

static pl_weights_t *export(pl_address_t strategy)
{
    const pl_export_weights_t msg = {.whole = true};
    return pl_object_ref(queen_call(strategy, PL_MESSAGE_export_weights, &msg)->object);
}

static void import(pl_address_t strategy, pl_weights_t *weights, bool gives)
{
    const pl_import_weights_t msg = {.weights = &weights->object,
                                     .whole = true,
                                     .take_ownership = gives};
    is_text(queen_call(strategy, PL_MESSAGE_import_weights, &msg)->error.text, "",
            "weights are taken over");
}

static bool same_block(const pl_weights_t *a, const pl_weights_t *b, pl_region_t region)
{
    const pl_floats_t *x = a->block[region], *y = b->block[region];
    return x->count == y->count && !memcmp(x->data, y->data, x->count * sizeof *x->data);
}

static bool same_weights(const pl_weights_t *a, const pl_weights_t *b)
{
    return same_block(a, b, PL_REGION_PARAMS) && same_block(a, b, PL_REGION_STATE)
           && same_block(a, b, PL_REGION_SLOT0) && same_block(a, b, PL_REGION_SLOT0 + 1);
}

/* What is imported after `weights` were: does it lie where they were? */
static bool lies_there(const char *device, bool gives, pl_region_t region)
{
    queen_open();
    lives = 0;
    pl_address_t a = begin(device, 1), b = begin(device, 2), to = begin(device, 3);
    pl_weights_t *weights = export(a), *others = export(b), *copy = export(a);
    memset(others->block[PL_REGION_STATE]->data, 0x3f,
           others->block[PL_REGION_STATE]->count * sizeof(float));
    import(to, weights, gives);
    pl_weights_t *back = export(to);
    ok(same_weights(back, copy), "%s: they are the device's", device);
    pl_object_unref(back);
    import(to, others, false);
    bool there = same_block(weights, others, region);
    ok(there || same_block(weights, copy, region), "all of it or nothing");
    pl_object_unref(weights);
    back = export(to);
    ok(same_weights(back, others), "others take their place");
    pl_object_unref(back);
    pl_object_unref(others);
    pl_object_unref(copy);
    queen_close();
    return there;
}

static void a_device_may_keep_memory_that_is_given(void)
{
    ok(lies_there("cpu", true, PL_REGION_PARAMS), "parameters stay where they came");
    ok(lies_there("cpu", true, PL_REGION_SLOT0), "and so does what the optimizer has");
}

static void memory_that_is_not_given_is_copied(void)
{
    ok(!lies_there("cpu", false, PL_REGION_PARAMS), "parameters lie elsewhere");
}

static void memory_of_two_regions_is_given_to_neither(void)
{
    ok(!lies_there("cpu", true, PL_REGION_STATE), "state lies elsewhere");
}

static void a_device_with_memory_of_its_own_copies(void)
{
    ok(!lies_there("fake", true, PL_REGION_PARAMS), "parameters lie elsewhere");
}

int main(void)
{
    const pl_registration_t components[] = {{"module", &normed}, PL_REGISTRATIONS_END};
    rig_init(components);
    run(a_device_may_keep_memory_that_is_given);
    run(memory_that_is_not_given_is_copied);
    run(memory_of_two_regions_is_given_to_neither);
    run(a_device_with_memory_of_its_own_copies);
    return tap_done();
}
