/* freeze.c - tests of strategies/replica/freeze.c: parameters that are not trained */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerators/actor.h"
#include "queen.h"
#include "rig.h"
#include "strategies/strategies.h"
#include "tap.h"

/* ---- A callback that freezes and unfreezes at a step ---- */

typedef struct thaw {
    int64_t step;
    const char *freeze, *unfreeze;
} thaw_t;

static const pl_option_t thaw_options[] = {
    PL_INT(thaw_t, step, "2", "0..", "after which it sends its request"),
    PL_TEXT(thaw_t, freeze, "\"\"", NULL, "patterns"),
    PL_TEXT(thaw_t, unfreeze, "\"\"", NULL, "patterns"),
    PL_OPTIONS_END,
};

static int thaw_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                   pl_callback_request_t *request, pl_error_t *err)
{
    const thaw_t *thaw = self;
    (void)point, (void)err;
    if (event->global_step != (uint64_t)thaw->step)
        return PL_OK;
    snprintf(request->freeze, sizeof request->freeze, "%s", thaw->freeze);
    snprintf(request->unfreeze, sizeof request->unfreeze, "%s", thaw->unfreeze);
    return PL_OK;
}

static const pl_callback_ops_t thaw = {.name = "thaw",
                                       .help = "",
                                       .size = sizeof(thaw_t),
                                       .options = thaw_options,
                                       .points = PL_AT(FIT_START)
                                                 | PL_AT(TRAIN_BATCH_END),
                                       .on = thaw_on};

/* ---- Runs ---- */

#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.01, \"weight_decay\": 0.5}"

static rig_result_t *fit(const char *device, const char *callbacks, const char *trainer)
{
    rig_t *rig = rig_new(.accelerator = device, .optimizer = ADAMW,
                         .callbacks = callbacks, .data = "\"batch_size\": 8",
                         .trainer = trainer);
    rig_result_t *result = rig_keep(rig_fit(rig));
    is_text(result->status, "ok", "it trains: %s %s", trainer, callbacks);
    rig_free(&rig);
    return result;
}

static void frozen_parameters_keep_their_bits(void)
{
    static const char *const devices[] = {"fake", "cpu"};
    for (int k = 0; k < 2; k++) {
        rig_result_t *one = fit(devices[k], "[]",
                                "\"max_steps\": 1, \"freeze\": \"fc1.*\"");
        rig_result_t *many = fit(devices[k], "[]",
                                 "\"max_steps\": 9, \"freeze\": \"fc1.*\", "
                                 "\"gradient_clip_val\": 0.1");
        ok(rig_same_tensor(one, many, "fc1.weight")
               && rig_same_tensor(one, many, "fc1.bias"),
           "%s: neither gradient nor decay reaches them", devices[k]);
        ok(!rig_same_tensor(one, many, "fc2.weight")
               && !rig_same_tensor(one, many, "fc2.bias"),
           "the others are trained");
        rig_result_free(one);
        rig_result_free(many);
    }
}

static void frozen_parameters_count_nothing_in_the_norm(void)
{
    rig_result_t *all = fit("cpu", "[]", "\"max_steps\": 1, \"log_every_n_steps\": 1");
    rig_result_t *half = fit("cpu", "[]",
                             "\"max_steps\": 1, \"log_every_n_steps\": 1, "
                             "\"freeze\": \"fc1.*\"");
    ok(rig_metric(half, "grad_norm") < rig_metric(all, "grad_norm"), "it is smaller");
    ok(rig_metric(half, "train_loss") == rig_metric(all, "train_loss"),
       "while the loss is the same");
    rig_result_free(all);
    rig_result_free(half);
}

static void a_callback_unfreezes_between_two_steps(void)
{
    static const char *const depths[] = {"1", "5"};
    rig_result_t *frozen = fit("cpu", "[]", "\"max_steps\": 4, \"freeze\": \"fc1.*\"");
    rig_result_t *result[2];
    for (int k = 0; k < 2; k++) {
        char trainer[128];
        snprintf(trainer, sizeof trainer,
                 "\"max_steps\": 8, \"freeze\": \"fc1.*\", \"depth\": %s", depths[k]);
        result[k] = fit("cpu",
                        "[{\"name\": \"thaw\", \"step\": 4, \"unfreeze\": "
                        "\"fc1.*\"}]",
                        trainer);
    }
    ok(!rig_same_tensor(frozen, result[0], "fc1.weight"),
       "from then on they are trained");
    ok(rig_same_bits(result[0], result[1]), "at the same step, whatever was under way");
    rig_result_t *late = fit("cpu",
                             "[{\"name\": \"thaw\", \"step\": 4, \"unfreeze\": "
                             "\"fc1.*\"}]",
                             "\"max_steps\": 4, \"freeze\": \"fc1.*\"");
    ok(rig_same_bits(frozen, late), "up to then nothing differs");
    rig_result_free(frozen);
    rig_result_free(result[0]);
    rig_result_free(result[1]);
    rig_result_free(late);
}

static void a_callback_freezes_before_the_first_step(void)
{
    rig_result_t *option = fit("cpu", "[]",
                               "\"max_steps\": 5, \"freeze\": \"*.weight fc1.bias\"");
    rig_result_t *request = fit("cpu",
                                "[{\"name\": \"thaw\", \"step\": 0, \"freeze\": \"*\", "
                                "\"unfreeze\": \"fc2.bias\"}]",
                                "\"max_steps\": 5");
    ok(rig_same_bits(option, request), "as if the run file had it");
    rig_result_free(option);
    rig_result_free(request);
}

static void fails(const char *callbacks, const char *trainer, const char *pattern)
{
    rig_t *rig = rig_new(.callbacks = callbacks, .data = "\"batch_size\": 8",
                         .trainer = trainer);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "it fails: %s %s", trainer, callbacks);
    like(result->error.text, pattern, "and says why");
    rig_free(&rig);
}

static void patterns_that_fit_nothing_are_refused(void)
{
    fails("[]", "\"max_steps\": 2, \"freeze\": \"fc1.* fc2.wieght\"",
          "\"fc2.wieght\" of \"trainer.freeze\" matches no parameter: did you mean "
          "\"fc2.weight\"");
    fails("[]", "\"max_steps\": 2, \"freeze\": \"*\"", "all parameters are frozen");
    fails("[{\"name\": \"thaw\", \"unfreeze\": \"fc9.*\"}]", "\"max_steps\": 6",
          "\"fc9.*\" of the patterns to freeze matches no parameter: known are fc1");
    fails("[{\"name\": \"thaw\", \"freeze\": \"fc?.*\"}]", "\"max_steps\": 6",
          "all parameters are frozen");
}

static void earlier_plans_are_given_back(void)
{
    rig_t *rig = rig_new(.callbacks = "[{\"name\": \"thaw\", \"freeze\": \"fc1.*\"}]",
                         .stream = true, .data = "\"batch_size\": 8",
                         .trainer = "\"max_steps\": 4");
    is_text(rig_fit(rig)->status, "ok", "it trains");
    rig_free(&rig);
    json_t *stream = rig_stream(), *message;
    size_t k;
    int made = 0, discarded = 0;
    json_array_foreach(stream, k, message) {
        const char *name = json_string_value(json_object_get(message, "name"));
        const char *kind = json_string_value(json_object_get(message, "kind"));
        made += !strcmp(name, "compile") && !strcmp(kind, "reply");
        discarded += !strcmp(name, "discard_plan") && !strcmp(kind, "reply");
    }
    json_decref(stream);
    ok(discarded > 1 && made == 2 * discarded, "%d of %d plans", discarded, made);
}

static void a_device_that_cannot_make_the_plans_ends_the_run(void)
{
    rig_t *rig = rig_new(.callbacks = "[{\"name\": \"thaw\", \"freeze\": \"fc1.*\"}]",
                         .script = "compile 4 fails", .data = "\"batch_size\": 8",
                         .trainer = "\"max_steps\": 6");
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_EIO, "with the device's error");
    rig_free(&rig);
}

/* ---- Kept with the weights ---- */

typedef struct pair {
    asked_t device_life, strategy_life;
    pl_address_t strategy;
} pair_t;

static void begin(pair_t *pair, const char *freeze)
{
    pl_peers_t peers = {0};
    pl_batch_signature_t *signature = pl_batch_signature_new(NULL);
    pl_job_t *job = queen_job(
        "{\"module\": {\"name\": \"mlp\", \"classes\": 3}, \"optimizer\": \"adamw\", "
        "\"data\": \"numbers\", \"trainer\": {\"freeze\": \"%s\"}}",
        freeze);
    signature->stage[PL_TRAIN].present = true;
    signature->stage[PL_TRAIN].batch_size = 4;
    signature->stage[PL_TRAIN].size_count = 1;
    signature->stage[PL_TRAIN].size[0] = (pl_batch_size_t){4, 0};
    signature->stage[PL_TRAIN].field_count = 2;
    signature->stage[PL_TRAIN].field[0] = (pl_field_t){"x", PL_F32, PL_SHAPE(6)};
    signature->stage[PL_TRAIN].field[1] = (pl_field_t){"y", PL_I64, pl_shape(0)};
    const pl_start_t start = {.options = "", .context = &job->object};
    pl_peers_add(&peers, "accelerator",
                 queen_spawn(pl_accelerator_actor("fake", NULL), &start,
                             &pair->device_life));
    pair->strategy =
        queen_spawn(&pl_single_strategy,
                    &(pl_start_t){.options = "", .context = &job->object, .peers = peers},
                    &pair->strategy_life);
    const pl_setup_t setup = {.job = &job->object,
                              .data_info = "{}",
                              .signature = &signature->object};
    is_int(queen_call(pair->strategy, PL_MESSAGE_setup, &setup)->error.code, PL_OK,
           "it is set up");
    pl_object_unref(signature);
    pl_object_unref(job);
}

static pl_weights_t *export(const pair_t *pair, bool whole)
{
    const pl_export_weights_t msg = {.whole = whole};
    return pl_object_ref(
        queen_call(pair->strategy, PL_MESSAGE_export_weights, &msg)->object);
}

static void import(const pair_t *pair, pl_weights_t *weights)
{
    const pl_import_weights_t msg = {.weights = &weights->object, .whole = true};
    is_text(queen_call(pair->strategy, PL_MESSAGE_import_weights, &msg)->error.text, "",
            "it takes them");
}

static void frozen_parameters_are_saved_with_the_weights(void)
{
    static const char state[] = "^\\{\"frozen\":\\[\"fc1.bias\",\"fc2.weight\"\\],";
    pair_t from, to;
    queen_open();
    begin(&from, "fc1.*");
    const pl_freeze_t msg = {.freeze = "fc2.weight", .unfreeze = "fc1.weight"};
    asked_t *asked = queen_call(from.strategy, PL_MESSAGE_freeze, &msg);
    is_int((long)asked->body.freeze_reply.trained, 6 * 128 + 3, "some are left");
    pl_weights_t *weights = export(&from, true);
    like(weights->state, state, "they are named in the state that training resumes from");
    begin(&to, "");
    import(&to, weights);
    pl_object_unref(weights);
    weights = export(&to, true);
    like(weights->state, state, "another strategy resumes with them");
    pl_object_unref(weights);
    weights = export(&to, false);
    ok(!weights->state, "weights alone say nothing of it");
    pl_object_unref(weights);
    queen_close();
}

int main(void)
{
    const pl_registration_t components[] = {{"callback", &thaw}, PL_REGISTRATIONS_END};
    rig_init(components);
    run(frozen_parameters_keep_their_bits);
    run(frozen_parameters_count_nothing_in_the_norm);
    run(a_callback_unfreezes_between_two_steps);
    run(a_callback_freezes_before_the_first_step);
    run(patterns_that_fit_nothing_are_refused);
    run(earlier_plans_are_given_back);
    run(frozen_parameters_are_saved_with_the_weights);
    run(a_device_that_cannot_make_the_plans_ends_the_run);
    return tap_done();
}
