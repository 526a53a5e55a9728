/* setup.c - the sequence by which a worker builds what a run needs, from the bottom up
 *
 * The strategy says which partition of the data is this rank's, the data say what they
 * are, the strategy sets the module up for them, weights are imported, the run gets its
 * directory and its loops, and each component gets its state from the checkpoint. `steps`
 * at the end is the order. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/auto_select.h"
#include "actors/connectors/connectors.h"
#include "actors/connectors/data_loaders.h"
#include "actors/loops/loops.h"
#include "actors/monitors.h"
#include "actors/request.h"
#include "actors/worker/parts.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"
#include "base/run.h"
#include "tensor/graph.h"
#include "tensor/operators.h"

/* Most bytes of options in a report, for viewers.  A report must fit into a message of a
 * link: without it a launcher would not know the run directory from which to restart. */
#define OPTIONS_REPORTED_MAX ((size_t)512 << 10)

/* ---- The steps: strategy, callbacks, partition ---- */

static uint64_t strategy_start(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    if (pl_worker_spawn_components(w, err) != PL_OK)
        return 0;
    return pl_call_role(w, w->strategy, &(pl_role_t){0}, how, err);
}

/* The ranks have connected: `decide` is possible from here on. */
static int role_known(void *self, const pl_body_t *reply, pl_error_t *err)
{
    (void)err;
    pl_worker_t *w = self;
    w->does_io = reply->role_reply.does_io;
    if (reply->role_reply.agrees)
        w->hooks.coordinator = w->strategy;
    return PL_OK;
}

static uint64_t connectors_start(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    const pl_start_t start = {.options = "", .context = &w->job->object};
    const bool another_has_callbacks = !pl_is_nobody(w->hooks.coordinator) && !w->does_io;
    if ((!another_has_callbacks
         && !pl_worker_spawn(w, &pl_callback_connector, PL_SAME_THREAD, &start,
                             &w->callback, err))
        || (!w->job->prompt && !w->job->manual_signature
            && !pl_worker_spawn(w, &pl_data_connector, PL_SAME_THREAD, &start, &w->data,
                                err)))
        return 0;
    if (w->measures)
        pl_worker_measure_device(w);
    w->hooks.callback = w->callback;
    char *loader = pl_loader_text(w->job, err);
    const pl_process_dataloader_t msg = {.stage = w->job->stage, .loader = loader};
    const uint64_t call = loader
                              ? pl_call_process_dataloader(w, w->strategy, &msg, how, err)
                              : 0;
    pl_text_free(loader);
    return call;
}

static int partition_known(void *self, const pl_body_t *reply, pl_error_t *err)
{
    pl_worker_t *w = self;
    w->partition = reply->process_dataloader_reply.partition;
    w->partitions = reply->process_dataloader_reply.partitions;
    w->micro_shards = reply->process_dataloader_reply.micro_shards;
    w->even = reply->process_dataloader_reply.even;
    w->loader = pl_strdup(reply->process_dataloader_reply.loader);
    return w->loader ? PL_OK : pl_no_memory(err);
}

/* Plans depend on what the callbacks need. */
static uint64_t hooks_query(void *self, pl_how_t how, pl_error_t *err)
{
    return pl_hooks_query(self, &((pl_worker_t *)self)->hooks, how, err);
}

static int hooks_known(void *self, const pl_body_t *reply, pl_error_t *err)
{
    (void)err;
    pl_worker_t *w = self;
    const uint32_t requests = reply->callback_hooks_reply.requests;
    w->accumulates = requests & PL_MAY_ACCUMULATE;
    w->needs_peak = requests & PL_NEEDS_PEAK && w->job->stage == PL_TRAIN;
    return PL_OK;
}

static uint64_t peak_measure(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    return w->needs_peak ? pl_call_measure_peak(w, w->accelerator,
                                                &(pl_measure_peak_t){0}, how, err)
                         : 0;
}

static int peak_measured(void *self, const pl_body_t *reply, pl_error_t *err)
{
    (void)err;
    ((pl_worker_t *)self)->device_flops = reply->measure_peak_reply.flops;
    return PL_OK;
}

/* ---- The steps: the checkpoint or the file that the weights come from ----
 *
 * All ranks resume from the checkpoint that rank 0 found. */

static bool resumes(const pl_worker_t *w)
{
    return w->job->resumes || w->job->again;
}

/* The argument: the checkpoint that rank 0 found  [NULL: the newest]. */
static uint64_t checkpoint_find(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    const bool agreed = w->setup.step->argument;
    pl_find_checkpoint_t msg;
    if (agreed ? !w->agreed
               : !resumes(w) || !(w->does_io || pl_is_nobody(w->hooks.coordinator)))
        return 0;
    if (pl_resume_is_requested(w->job, w->agreed, &msg, err) != PL_OK)
        return 0;
    return pl_call_find_checkpoint(w, w->checkpoint_io, &msg, how, err);
}

static int checkpoint_found(void *self, const pl_body_t *reply, pl_error_t *err)
{
    pl_worker_t *w = self;
    const pl_find_checkpoint_reply_t *found = &reply->find_checkpoint_reply;
    int code = pl_resume_take(&w->resume, w->job, w, found, err);
    if (code == PL_OK)
        w->weights = pl_object_ref(found->weights);
    return code;
}

static uint64_t checkpoint_agree(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    const pl_find_checkpoint_t found = {.from = w->resume.path};
    const pl_decision_t decision = {.message = PL_MESSAGE_find_checkpoint,
                                    .fields = w->resume.path ? &found : NULL};
    return resumes(w) && !pl_is_nobody(w->hooks.coordinator)
               ? pl_loop_decide(w, w->hooks.coordinator, &decision, how, err)
               : 0;
}

static int checkpoint_agreed(void *self, const pl_body_t *reply, pl_error_t *err)
{
    pl_worker_t *w = self;
    pl_body_t body;
    if (w->does_io || !reply->decide_reply.messages.size)
        return PL_OK;
    if (pl_loop_decided(&reply->decide_reply, PL_MESSAGE_find_checkpoint, false, &body,
                        err)
        != PL_OK)
        return err->code;
    w->agreed = pl_strdup(body.find_checkpoint.from);
    return w->agreed ? PL_OK : pl_no_memory(err);
}

static uint64_t first_weights_read(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    const pl_read_weights_t msg = {.path = pl_first_weights_path(w->job)};
    return msg.path && !w->weights ? pl_call_read_weights(w, w->writer, &msg, how, err)
                                   : 0;
}

static int first_weights_known(void *self, const pl_body_t *reply, pl_error_t *err)
{
    pl_worker_t *w = self;
    w->weights = pl_object_ref(reply->read_weights_reply.weights);
    snprintf(w->made, sizeof w->made, "{\"global_step\": %llu, \"epoch\": %u}",
             (unsigned long long)w->weights->global_step, w->weights->epoch);
    return pl_first_weights_check(w, w->job, w->weights, err);
}

/* ---- The steps: the data ---- */

static int signature_keep(pl_worker_t *w, pl_batch_signature_t *signature,
                          const char *data_info, pl_error_t *err)
{
    w->signature = pl_object_ref(signature);
    w->data_info = pl_strdup(data_info);
    return w->data_info ? PL_OK : pl_no_memory(err);
}

/* What the batches look like is in the data; for a prompt, in the weights, which know the
 * data of their training; for a manual loop, in the job. */
static uint64_t data_open(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    const char *known = w->weights && w->weights->data_info ? w->weights->data_info : "";
    const pl_open_data_t msg = {.stage = w->job->stage,
                                .partition = w->partition,
                                .partitions = w->partitions,
                                .micro_shards = w->micro_shards,
                                .even = w->even,
                                .data_info = known,
                                .loader = w->loader};
    if (w->job->manual_signature) {
        signature_keep(w, w->job->manual_signature, w->job->manual_data_info, err);
        return 0;
    }
    if (w->job->prompt) {
        w->signature = pl_generate_signature(known, !w->job->no_cache, err);
        return 0;
    }
    return pl_call_open_data(w, w->data, &msg, how, err);
}

static int data_opened(void *self, const pl_body_t *reply, pl_error_t *err)
{
    pl_worker_t *w = self;
    const pl_open_data_reply_t *data = &reply->open_data_reply;
    w->content = pl_strdup(data->content);
    if (!w->content)
        return pl_no_memory(err);
    int code = pl_resume_data(&w->resume, w->job, w->content, err);
    return code == PL_OK ? signature_keep(w, (pl_batch_signature_t *)data->signature,
                                          data->data_info, err)
                         : code;
}

/* Appends a text to another; consumes both. */
static char *text_append(char *text, char *more)
{
    char *longer = text && more ? pl_text("%s%s", text, more) : NULL;
    pl_text_free(text);
    pl_text_free(more);
    return longer;
}

/* Each rank opens its own data. If a file differed between machines, the ranks would make
 * different numbers of steps, of different sizes, and only their collective would fail.
 * This step comes before plans are made for the data, so that an error names the data. */
static uint64_t data_compare(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    if (!w->content || pl_is_nobody(w->hooks.coordinator))
        return 0;
    char *text = pl_text("%s", "");
    for (int s = 0; s <= PL_PREDICT; s++) {
        if (!w->signature->stage[s].present)
            continue;
        text = text_append(text,
                           pl_text("%s data of %" PRId64 " samples with ",
                                   pl_stages[s].source, w->signature->stage[s].samples));
        text = text_append(text, pl_request_fields(w->signature->stage[s].field,
                                                   w->signature->stage[s].field_count));
        text = text_append(text, pl_text("\n"));
    }
    w->found = text;
    if (!w->found)
        return pl_no_memory(err), 0;
    const pl_decision_t decision = {.message = PL_MESSAGE_compare_data,
                                    .fields = &(pl_compare_data_t){.text = w->found}};
    return pl_loop_decide(w, w->hooks.coordinator, &decision, how, err);
}

/* The error has the first line in which this rank differs from rank 0. */
static int data_compared(void *self, const pl_body_t *reply, pl_error_t *err)
{
    const pl_worker_t *w = self;
    pl_body_t body;
    if (pl_loop_decided(&reply->decide_reply, PL_MESSAGE_compare_data, false, &body, err)
        != PL_OK)
        return err->code;
    const char *own = w->found, *first = body.compare_data.text;
    size_t a = strcspn(own, "\n"), b = strcspn(first, "\n");
    while (*own && *first && a == b && !strncmp(own, first, a)) {
        own += a + 1;
        first += b + 1;
        a = strcspn(own, "\n");
        b = strcspn(first, "\n");
    }
    if (!*own && !*first)
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "rank %d found other data than rank 0: %.*s; rank 0: %.*s; give all "
                   "ranks the same files",
                   pl_actor_rank(self), *own ? (int)a : 4, *own ? own : "none",
                   *first ? (int)b : 4, *first ? first : "none");
}

/* ---- The steps: the module ---- */

/* Of weights that are not trained further, the data info of their training applies. */
static uint64_t module_set_up(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    const bool known = w->weights && w->weights->data_info && w->job->stage != PL_TRAIN;
    const pl_setup_t msg = {.job = &w->job->object,
                            .data_info = known ? w->weights->data_info : w->data_info,
                            .signature = &w->signature->object,
                            .accumulates = w->accumulates,
                            .imports = w->weights && !pl_first_weights_partly(w->job)};
    w->set_up = pl_now();
    w->validates = w->signature->stage[PL_VALIDATE].present;
    return pl_call_setup(w, w->strategy, &msg, how, err);
}

static int module_show(void *self, const pl_body_t *reply, pl_error_t *err)
{
    pl_worker_t *w = self;
    const pl_setup_reply_t *module = &reply->setup_reply;
    const bool validates = w->validates && w->job->trainer->limit_val_batches.value > 0;
    const pl_show_model_t msg = {.model = module->model,
                                 .device_flops = w->device_flops,
                                 .validates = validates};
    const pl_how_t how = {.on_answer = pl_worker_component_ended};
    if (w->job->compiles)
        return PL_OK;
    if (w->does_io && w->job->stage == PL_TRAIN && !w->job->manual_signature
        && !w->job->tuning.num_training
        && pl_monitors_find(w->job, module->train_metrics,
                            validates ? module->val_metrics : "", err)
               != PL_OK)
        return err->code;
    if (!pl_is_nobody(w->callback) && !pl_call_show_model(w, w->callback, &msg, how, err))
        return err->code;
    return PL_OK;
}

/* For viewers, and for pl_trainer_compile(), which alone waits for it. */
/* The error of an option of the module, which begins with its key, has the option's place
 * in the run file. */
static bool module_failed(void *self, pl_error_t *error)
{
    static const char key_begins[] = "\"module.";
    const pl_worker_t *w = self;
    char text[PL_ERROR_TEXT], key[128];
    snprintf(text, sizeof text, "%s", error->text);
    const char *from = strstr(text, key_begins),
               *to = from ? strchr(from + 1, '"') : NULL;
    if (!to || to - from > (long)sizeof key)
        return false;
    snprintf(key, sizeof key, "%.*s", (int)(to - from) - 1, from + 1);
    pl_options_fail(error, error->code, w->job->options, key, "%s", from);
    return false;
}

static uint64_t plans_describe(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    if (!w->describes)
        return 0;
    if (!w->job->compiles)
        how = (pl_how_t){.on_answer = pl_loop_ignore};
    const uint64_t call = pl_call_describe_plans(w, w->accelerator,
                                                 &(pl_describe_plans_t){0}, how, err);
    return w->job->compiles ? call : 0;
}

/* The end of a run that only compiles. Later runs read the kernels, so it is an error if
 * the cache could not be written. */
static int plans_described(void *self, const pl_body_t *reply, pl_error_t *err)
{
    pl_worker_t *w = self;
    const char *cache = reply->describe_plans_reply.cache;
    json_int_t pieces = 0, stored = 0;
    json_t *plan;
    size_t k;
    if (!*cache)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "the accelerator \"%s\" keeps no compiled kernels here: there is "
                       "nothing to compile; set its options cache and cache_dir, or HOME",
                       pl_options_choice(w->job->options, "trainer.accelerator",
                                         pl_accelerator_auto(w->job->options)));
    json_t *plans = json_loads(reply->describe_plans_reply.plans, 0, NULL);
    json_array_foreach(plans, k, plan) {
        pieces += json_integer_value(json_object_get(plan, "pieces"));
        stored += json_integer_value(json_object_get(plan, "stored"));
    }
    json_t *text = json_pack("{s:s,s:o}", "cache", cache, "plans", plans);
    pl_outcome_t *outcome = pl_outcome_new(err);
    int code = outcome ? PL_OK : err->code;
    if (code == PL_OK && stored != pieces)
        code = pl_fail(err, PL_EIO,
                       "kept %lld of %lld pieces of kernels in %.256s, which cannot be "
                       "written to: set the accelerator's option cache_dir",
                       (long long)stored, (long long)pieces, cache);
    if (code == PL_OK) {
        outcome->seconds = (double)(pl_now() - w->set_up) / 1e9;
        outcome->metrics = pl_strdup("{}");
        outcome->text = text ? pl_json_write(text, PL_JSON_COMPACT) : NULL;
        code = outcome->text && outcome->metrics ? PL_OK : pl_no_memory(err);
    }
    if (code == PL_OK) {
        pl_call_t *call = w->run;
        w->run = NULL;
        pl_sequence_end(&w->setup);
        pl_reply_run(call, &(pl_run_reply_t){.outcome = &outcome->object});
    }
    json_decref(text);
    pl_object_unref(outcome);
    return code;
}

static uint64_t weights_import(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    if (!w->weights)
        return 0;
    const pl_import_weights_t msg = {.weights = &w->weights->object,
                                     .whole = w->resume.manifest != NULL,
                                     .take_ownership = true};
    return pl_call_import_weights(w, w->strategy, &msg, how, err);
}

/* The device has the tensors. The generate loop needs what else the weights say. */
static int weights_imported(void *self, const pl_body_t *reply, pl_error_t *err)
{
    (void)reply, (void)err;
    pl_worker_t *w = self;
    if (w->job->prompt)
        return PL_OK;
    pl_object_unref(w->weights);
    w->weights = NULL;
    return PL_OK;
}

static bool import_failed(void *self, pl_error_t *error)
{
    const pl_worker_t *w = self;
    pl_error_prefix(error, "%s",
                    w->resume.manifest ? w->resume.path : pl_first_weights_path(w->job));
    return false;
}

/* ---- The steps: run directory and loops ---- */

static uint64_t run_dir_make(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    if (!w->does_io || !pl_request_writes(w->job))
        return 0;
    char *run = pl_options_print(w->job->options, err),
         *root = run ? pl_request_root(w->job, err) : NULL;
    const pl_make_run_dir_t msg = {.root = root,
                                   .name = pl_request_name(w->job),
                                   .run = run,
                                   .there = w->resume.run_dir ? w->resume.run_dir : "",
                                   .aside = resumes(w) && !w->resume.run_dir
                                            && (!w->resume.elsewhere || w->job->again)};
    uint64_t call = root ? pl_call_make_run_dir(w, w->writer, &msg, how, err) : 0;
    pl_text_free(root);
    pl_text_free(run);
    return call;
}

/* Reports the directory, and what viewers show of the run. */
static int run_dir_made(void *self, const pl_body_t *reply, pl_error_t *err)
{
    pl_worker_t *w = self;
    const pl_trainer_options_t *t = w->job->trainer;
    const bool by_norm = t->gradient_clip_algorithm == PL_CLIP_NORM;
    w->run_dir = pl_strdup(reply->make_run_dir_reply.path);
    if (!w->run_dir)
        return pl_no_memory(err);
    char *options = pl_options_text(w->job->options, NULL);
    const bool fits = options && strlen(options) < OPTIONS_REPORTED_MAX;
    const pl_run_progress_t report = {.event = PL_RUN_EVENT_ALIVE,
                                      .metrics = "",
                                      .run_dir = w->run_dir,
                                      .module = pl_options_choice(w->job->options,
                                                                  "module", ""),
                                      .options = fits ? options : "",
                                      .clip = by_norm ? t->gradient_clip_val : 0};
    pl_progress_run(w->run, &report);
    pl_text_free(options);
    return pl_worker_spawn_savers(w, err) ? PL_OK : err->code;
}

/* Only now: the run resumes from it for certain, and no other run writes there. */
static uint64_t checkpoint_finish(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    const pl_finish_checkpoint_t msg = {.path = w->resume.path,
                                        .run_dir = w->resume.run_dir};
    return w->run_dir && w->resume.run_dir
               ? pl_call_finish_checkpoint(w, w->checkpoint_io, &msg, how, err)
               : 0;
}

static uint64_t loops_start(void *self, pl_how_t how, pl_error_t *err)
{
    (void)how;
    pl_worker_spawn_loops(self, err);
    return 0;
}

/* A component with a state in checkpoints; at: its address in the worker. */
typedef struct saved {
    const char *component;
    size_t at;
} saved_t;

static uint64_t state_restore(void *self, pl_how_t how, pl_error_t *err)
{
    pl_worker_t *w = self;
    const saved_t *saved = w->setup.step->argument;
    const pl_address_t at = *(const pl_address_t *)((const char *)w + saved->at);
    if (!w->resume.manifest || pl_is_nobody(at))
        return 0;
    char *state = pl_resume_state(&w->resume, saved->component, err);
    const pl_set_state_t msg = {.state = state};
    uint64_t call = state ? pl_call_set_state(w, at, &msg, how, err) : 0;
    pl_text_free(state);
    return call;
}

/* ---- The order ---- */

static const pl_sequence_step_t steps[] = {
    {"starting the strategy", strategy_start, role_known},
    {"starting callbacks and data readers", connectors_start, partition_known},
    {NULL, hooks_query, hooks_known},
    {"measuring the device", peak_measure, peak_measured},
    {"finding the checkpoint", checkpoint_find, checkpoint_found},
    {"waiting until all ranks agree on a checkpoint", checkpoint_agree, checkpoint_agreed,
     .all_ranks = true},
    {"finding the checkpoint", checkpoint_find, checkpoint_found, .argument = "agreed"},
    {"reading the first weights", first_weights_read, first_weights_known},
    {"opening the data", data_open, data_opened},
    {"comparing the data with rank 0", data_compare, data_compared, .all_ranks = true,
     .unlimited = true},
    {"compiling the module's objectives", module_set_up, module_show,
     .on_error = module_failed},
    {NULL, plans_describe, plans_described, .on_error = module_failed},
    {"importing weights", weights_import, weights_imported, .on_error = import_failed},
    {"making the run directory", run_dir_make, run_dir_made},
    {"completing the checkpoint that the run resumes from", checkpoint_finish},
    {NULL, loops_start},
    {"restoring the state of the run", state_restore,
     .argument = &(saved_t){"loggers", offsetof(pl_worker_t, logger)}},
    {"restoring the state of the run", state_restore,
     .argument = &(saved_t){"resumed", offsetof(pl_worker_t, checkpoint)}},
    {"restoring the state of the run", state_restore,
     .argument = &(saved_t){"callbacks", offsetof(pl_worker_t, callback)}},
    {"restoring the state of the run", state_restore,
     .argument = &(saved_t){"progress", offsetof(pl_worker_t, loop)}},
    {0},
};

static void step_begin(void *self, const pl_sequence_step_t *step)
{
    if (step->what)
        pl_worker_phase(self, step);
}

static void step_progress(void *self)
{
    pl_watchdog_reset(&((pl_worker_t *)self)->watchdog);
}

void pl_worker_set_up(pl_worker_t *w)
{
    static const pl_sequence_ops_t ops = {.steps = steps,
                                          .begin_step = step_begin,
                                          .on_progress = step_progress,
                                          .done = pl_worker_run_loop,
                                          .fail = pl_worker_fail};
    pl_sequence_begin(&w->setup, w, &ops);
}
