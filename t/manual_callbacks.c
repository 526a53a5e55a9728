/* manual_callbacks.c - tests of actors/loops/manual_callbacks.c: callbacks that act after
 * the steps of a manual loop */
#include <stdio.h>
#include <string.h>

#include "manual_program.h"
#include "tap.h"

/* ---- a callback ---- */

typedef struct watcher {
    int64_t every;
    double factor;
    int64_t stop;
} watcher_t;

static const pl_option_t watcher_options[] = {
    PL_INT(watcher_t, every, "1", "1..", "steps between two calls"),
    PL_FLOAT(watcher_t, factor, "1", NULL, "on the learning rate, each time"),
    PL_INT(watcher_t, stop, "0", NULL, "the step that is the last; 0: none"),
    PL_OPTIONS_END,
};

static char seen[400];

static int64_t watcher_every(const void *self)
{
    return ((const watcher_t *)self)->every;
}

static int watcher_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                      pl_callback_request_t *request, pl_error_t *error)
{
    const watcher_t *w = self;
    const size_t at = strlen(seen);
    snprintf(seen + at, sizeof seen - at, "%s %d;",
             point == PL_HOOK_FIT_START ? "start"
             : point == PL_HOOK_FIT_END ? "end"
                                        : "step",
             (int)event->global_step);
    if (point != PL_HOOK_TRAIN_BATCH_END)
        return PL_OK;
    request->lr_factor = w->factor;
    request->stop = w->stop && event->global_step == (uint64_t)w->stop;
    snprintf(request->reason, sizeof request->reason, "enough");
    return pl_callback_log(request, "watched", (double)event->global_step, error);
}

static const pl_callback_ops_t watcher = {.name = "watcher",
                                          .help = "",
                                          .size = sizeof(watcher_t),
                                          .options = watcher_options,
                                          .points = PL_AT(FIT_START) | PL_AT(FIT_END)
                                                    | PL_AT(TRAIN_BATCH_END),
                                          .every_n_steps = watcher_every,
                                          .on = watcher_on};

/* All batches are sent at once: callbacks act between two of them. */
static void callbacks_act_after_steps(void)
{
    answer_t a[STEPS] = {{0}};
    seen[0] = '\0';
    callbacks = "{\"name\": \"watcher\", \"every\": 2, \"factor\": 0.5}, \"lr_monitor\"";
    if (program_begin(MLP, SGD, "")) {
        for (int k = 0; k < STEPS; k++) {
            const pl_arrays_t samples = program_batch(k * BATCH, BATCH);
            pl_loop_train(loop, &samples, program_take, &a[k], &err);
        }
        program_wait(PL_OK, &a[STEPS - 1]);
        like(metrics, "\"lr-sgd\":0.025", "the rate has two factors: %s", metrics);
        program_backward(NULL, 0, BATCH);
        is_int((long)program_step(NULL).step, 6, "a step of the program is one");
    }
    program_end();
    is_text(seen, "start 0;step 2;step 4;step 6;end 6;", "at their interval");
    callbacks = "";
}

static void a_callback_ends_the_training(void)
{
    callbacks = "{\"name\": \"watcher\", \"stop\": 2}";
    if (program_begin(MLP, SGD, "")) {
        program_train(0, BATCH);
        is_text(program_train(0, BATCH).error.text, "", "the last step");
        like(program_train(0, BATCH).error.text, "trains no more: watcher: enough",
             "the next one is refused with the reason");
        const pl_arrays_t samples = program_batch(0, BATCH);
        answer_t a = {0};
        is_text(program_wait(pl_loop_evaluate(loop, &samples, program_take, &a, &err), &a)
                    .error.text,
                "", "and measuring is not");
    }
    const answer_t closed = program_end();
    ok(closed.error.code == PL_OK && closed.count == 4, "the loop has its weights");
    callbacks = "";
}

static void a_callback_saves_every_few_steps(void)
{
    char path[400];
    saves = true;
    callbacks = "{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 2, "
                "\"save_top_k\": -1}";
    if (program_begin(MLP, SGD, ""))
        for (int k = 0; k < STEPS; k++)
            program_train(k * BATCH, BATCH);
    answer_t whole = program_end();
    for (int k = 1; k <= STEPS; k++) {
        snprintf(path, sizeof path, "%s/checkpoints/epoch=0-step=%d", run_dir, k);
        char *text = pl_checkpoint_describe(path, true, &err);
        ok(!text == (k % 2 != 0), "step %d %s a checkpoint: %s", k,
           k % 2 ? "has not" : "has", text ? "" : err.text);
        pl_text_free(text);
    }
    ok(whole.count == 4, "and the loop ends well");
    saves = false;
    callbacks = "";
}

static void callbacks_that_never_act_are_refused(void)
{
    static const struct {
        const char *callback, *text;
    } wrong[] = {
        {"\"early_stopping\"", "early_stopping.*on_validation_end.*steps alone"},
        {"\"model_checkpoint\"",
         "model_checkpoint.*on_validation_end.*interval in steps"},
        {"\"prediction_writer\"", "on_predict_start"},
        {"{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 2}",
         "no run directory: open it with `enable_checkpointing`"},
        {"\"watchr\"", "watcher"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        callbacks = wrong[k].callback;
        like(program_open(MLP, SGD, ""), wrong[k].text, "%s is refused", callbacks);
        program_end();
    }
    callbacks = "";
}

int main(void)
{
    const pl_registration_t components[] = {{"callback", &watcher}, PL_REGISTRATIONS_END};
    rig_init(components);
    run(callbacks_act_after_steps);
    run(a_callback_ends_the_training);
    run(a_callback_saves_every_few_steps);
    run(callbacks_that_never_act_are_refused);
    return tap_done();
}
