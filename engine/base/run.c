/* run.c - the sections of a run file and their options */
#include "base/run.h"

#include <stdio.h>
#include <string.h>

#include "base/option.h"
#include "base/suggestion.h"

const char pl_default_logger[] = "jsonl";

const pl_section_t pl_sections[] = {
    {"module", PL_SECTION_COMPONENT, "module", "network to train", NULL},
    {"data", PL_SECTION_DATA, "dataset", "data to train on", NULL},
    {"optimizer", PL_SECTION_OBJECTIVES, "optimizer", "update rule of the parameters",
     NULL},
    {"scheduler", PL_SECTION_OBJECTIVES, "scheduler", "schedule of the learning rate",
     NULL},
    {"momentum_scheduler", PL_SECTION_OBJECTIVES, "scheduler", "schedule of the momentum",
     NULL},
    {"weight_decay_scheduler", PL_SECTION_OBJECTIVES, "scheduler",
     "schedule of the weight decay", NULL},
    {"averaging", PL_SECTION_COMPONENT, "averaging", "average of the weights", NULL},
    {"trainer", PL_SECTION_TRAINER, NULL, "length, devices and limits of the run", NULL},
    {"callbacks", PL_SECTION_COMPONENTS, "callback", "functions called during the run",
     NULL},
    {"loggers", PL_SECTION_COMPONENTS, "logger", "destinations of metrics",
     pl_default_logger},
    {"plugins", PL_SECTION_FILES, NULL, "shared objects with further components", NULL},
    {NULL, PL_SECTION_COMPONENT, NULL, NULL, NULL},
};

#define TRAINER(kind, field, fallback, range, help) \
    PL_##kind(pl_trainer_options_t, field, fallback, range, help)
#define TRAINER_AMOUNT(field, fallback, range, help) \
    PL_FIELD_(pl_trainer_options_t, field, PL_OPTION_AMOUNT, fallback, range, help)

const pl_option_t pl_trainer_table[] = {
    TRAINER(CHOICE, accelerator, "\"auto\"", "accelerator", "kind of device"),
    TRAINER(SPAN, devices, "\"auto\"", "1..",
            "devices on each node: a count; a range, the least to continue with after "
            "repeated deaths and the most; or a list of device numbers, [0, 2], one rank "
            "for each"),
    TRAINER(INT, num_nodes, "\"auto\"", "1..", "machines"),
    TRAINER(CHOICE, strategy, "\"auto\"", "strategy",
            "algorithm that combines the ranks"),
    TRAINER(CHOICE, launcher, "\"auto\"", "launcher", "method that starts the ranks"),
    TRAINER(CHOICE, precision, "\"32-true\"", "precision",
            "number formats of the computation and of the weights"),
    TRAINER(INT, max_epochs, "\"auto\"", "-1..",
            "epochs, -1 for no limit; auto: 1000 unless max_steps or max_time is given"),
    TRAINER(INT, max_steps, "-1", "-1..", "optimizer steps, -1 for no limit"),
    TRAINER(INT, min_epochs, "0", "0..", "epochs before which no callback ends the run"),
    TRAINER(INT, min_steps, "0", "0..", "steps before which no callback ends the run"),
    TRAINER(TEXT, max_time, "\"\"", NULL,
            "time after which training ends, DD:HH:MM:SS; empty: no limit"),
    TRAINER(INT, accumulate_grad_batches, "1", "1..", "batches per optimizer step"),
    TRAINER(TEXT, freeze, "\"\"", NULL,
            "patterns of parameters that are not trained, separated by spaces: \"h.0.* "
            "wte.*\""),
    TRAINER(FLOAT, gradient_clip_val, "0", "0..",
            "largest norm or element of the gradient; 0: no limit"),
    TRAINER(WORD, gradient_clip_algorithm, "\"norm\"", "norm|value",
            "what gradient_clip_val limits: the whole norm, or each element"),
    TRAINER(WORD, nan_policy, "\"stop\"", "stop|skip|rollback",
            "action when the loss or gradient of a step is not finite: stop fails, skip "
            "skips it, rollback resumes the newest checkpoint and then skips it"),
    TRAINER(
        INT, nan_limit, "10", "1..",
        "limit of skipped steps in a row, or of rollbacks without a newer checkpoint; "
        "beyond it the run fails"),
    PL_BOOL(
        pl_trainer_options_t, detect_anomaly, "false",
        "check the output of every operator, forward and backward, and name the first "
        "that is not finite; slow"),
    PL_FIELD_(pl_trainer_options_t, val_check_interval, PL_OPTION_INTERVAL, "1.0", "(0..",
              "validate after this share of the epoch, this many batches or this time, "
              "DD:HH:MM:SS; the last step of the run is validated in any case"),
    TRAINER(INT, check_val_every_n_epoch, "1", "0..",
            "validate in each n-th epoch; 0: val_check_interval counts across epochs"),
    TRAINER(INT, num_sanity_val_steps, "2", "-1..",
            "validation batches forwarded before training, to test the validation; "
            "-1: all"),
    TRAINER_AMOUNT(limit_train_batches, "1.0", NULL,
                   "share or count of training batches in an epoch"),
    TRAINER_AMOUNT(limit_val_batches, "1.0", NULL,
                   "share or count of validation batches"),
    TRAINER_AMOUNT(limit_test_batches, "1.0", NULL, "share or count of test batches"),
    TRAINER_AMOUNT(limit_predict_batches, "1.0", NULL,
                   "share or count of batches to predict"),
    TRAINER_AMOUNT(overfit_batches, "0", NULL,
                   "train and validate on this share or count of batches, unshuffled; 0: "
                   "off"),
    TRAINER(INT, fast_dev_run, "false", "0..",
            "true (1) or a count: run this many batches of each stage and save nothing"),
    TRAINER(WORD, deterministic, "false", "false|true|elastic",
            "true: refuse options whose result depends on the clock; elastic: the result "
            "is also independent of the number of ranks, bit by bit"),
    TRAINER(INT, global_batch_size, "0", "0..",
            "elastic: samples per batch of all ranks, a multiple of micro_shards; 0: "
            "data.batch_size per micro-shard"),
    PL_BOOL(pl_trainer_options_t, sync_batchnorm, "false",
            "batch norm in training uses the statistics of the batches of all ranks"),
    TRAINER(INT, log_every_n_steps, "50", "1..", "optimizer steps between log records"),
    TRAINER(INT, seed, "42", "0..", "seed of all random numbers"),
    TRAINER(TEXT, default_root_dir, "\"runs\"", NULL, "folder of the run directories"),
    TRAINER(INT, depth, "0", "0..16",
            "limit of steps in flight; 0: as many as take some milliseconds"),
    TRAINER(FLOAT, step_timeout, "60", "(0..",
            "seconds without progress after which a rank counts as stuck"),
    TRAINER(TEXT, run_name, "\"\"", NULL,
            "name of the run directory of a fit; empty: the next number"),
    TRAINER(INT, reload_dataloaders_every_n_epochs, "0", "0..",
            "close and reopen the data sets after this many epochs; 0: never"),
    PL_BOOL(
        pl_trainer_options_t, enable_checkpointing, "true",
        "save the checkpoints that callbacks request, and one when the run is stopped"),
    PL_BOOL(pl_trainer_options_t, enable_progress_bar, "true",
            "show a progress bar on a terminal"),
    PL_BOOL(pl_trainer_options_t, enable_model_summary, "true",
            "log a table of the model's layers"),
    TRAINER(WORD, profiler, "\"none\"", "none|simple|operators",
            "simple: log the time by stage and actor at the end; operators: log the "
            "time of the device by operator, which makes the steps of GPUs slower"),
    PL_OPTIONS_END,
};

#define LOADER_OPTIONS(type, in) \
    {"sampler", \
     PL_OPTION_COMPONENT, \
     offsetof(type, in sampler), \
     "null", \
     "sampler", \
     "which training samples an epoch has, and in which order; null: all of them, as " \
     "shuffle says"}, \
        {"shuffle", PL_OPTION_BOOL, offsetof(type, in shuffle), \
         "true",    NULL,           "train in another order in each epoch"}, \
        {"drop_last", \
         PL_OPTION_BOOL, \
         offsetof(type, in drop_last), \
         "false", \
         NULL, \
         "drop the last training batch of an epoch, or of a bucket, when it is not " \
         "full on every rank"}, \
    { \
        "buckets", PL_OPTION_INT, offsetof(type, in buckets), "4", "1..8", \
            "lengths that samples of different length are padded to; each is compiled" \
    }

const pl_option_t pl_loader_table[] = {LOADER_OPTIONS(pl_loader_options_t, ),
                                       PL_OPTIONS_END};

const pl_option_t pl_data_table[] = {
    PL_TEXT(pl_data_options_t, package, "\"\"", NULL,
            "Debian package with the data, for the error of a missing file"),
    PL_INT(pl_data_options_t, batch_size, "32", "1..", "samples in a batch of one rank"),
    PL_FLOAT(pl_data_options_t, val_split, "0", "[0..1)",
             "share of the training data kept for validation"),
    PL_INT(pl_data_options_t, folds, "0", "0..1000",
           "equal parts of the training data, one of which is for validation in place of "
           "val_split: paceline fit trains once for each part; 0: none"),
    PL_INT(pl_data_options_t, fold, "-1", "-1..999",
           "the part for validation, from 0; -1: each in turn"),
    PL_BOOL(pl_data_options_t, stratify, "false",
            "keep the proportions of the classes in the samples of val_split or of each "
            "fold"),
    LOADER_OPTIONS(pl_data_options_t, loader.),
    PL_INT(pl_data_options_t, prefetch, "4", "1..", "batches prepared ahead"),
    PL_INT(pl_data_options_t, shuffle_window, "0", "0..",
           "shuffle windows of so many neighbouring samples, and the samples in each, so "
           "that a file is read nearly in order; 0: shuffle all samples"),
    PL_INT(pl_data_options_t, workers, "1", "1..256", "data threads of a rank"),
    PL_OPTIONS_END,
};

const pl_option_t pl_module_table[] = {
    PL_TEXT(pl_module_options_t, init_from, "\"\"", NULL,
            "weights to start a fit from: a .safetensors file, a checkpoint or a run "
            "directory"),
    PL_BOOL(pl_module_options_t, init_strict, "true",
            "all tensors of init_from must fit; false: tensors that are missing or have "
            "another shape keep their first values and are listed"),
    PL_OPTIONS_END,
};

const pl_option_t pl_optimizer_table[] = {
    PL_WORD(pl_optimizer_options_t, decay, "\"all\"", "all|matrices",
            "parameters with weight_decay; matrices: not biases and norms, tensors of "
            "fewer than two axes"),
    PL_GROUPS(pl_optimizer_options_t, groups,
              "objects with \"match\" and options of their own; a parameter belongs to "
              "the first that matches"),
    PL_OPTIONS_END,
};

const pl_option_t pl_averaging_table[] = {
    PL_BOOL(pl_averaging_options_t, validate, "true",
            "validate the average; false: the weights in training"),
    PL_OPTIONS_END,
};

const pl_option_t pl_group_table[] = {
    PL_TEXT(
        pl_group_options_t, match, NULL, NULL,
        "pattern of parameters' names: * is any text, ? any letter, [ab] one of them"),
    PL_OPTIONS_END,
};

const pl_option_t pl_source_table[] = {
    PL_CHOICE(pl_data_sources_t, train, "null", "dataset", "training data"),
    PL_FIELD_(pl_data_sources_t, val, PL_OPTION_COMPONENTS, "null", "dataset",
              "validation data, or a list of them"),
    PL_FIELD_(pl_data_sources_t, test, PL_OPTION_COMPONENTS, "null", "dataset",
              "test data, or a list of them"),
    PL_CHOICE(pl_data_sources_t, predict, "null", "dataset", "data to predict"),
    PL_OPTIONS_END,
};

const pl_stage_names_t pl_stages[] = {
    [PL_TRAIN] = {"train", "train_", "training", "train"},
    [PL_VALIDATE] = {"validate", "val_", "validation", "val"},
    [PL_TEST] = {"test", "test_", "test", "test"},
    [PL_PREDICT] = {"predict", "predict_", "prediction", "predict"},
};

const pl_option_t *pl_general_options(const char *role)
{
    if (!strcmp(role, "module"))
        return pl_module_table;
    if (!strcmp(role, "optimizer"))
        return pl_optimizer_table;
    return strcmp(role, "averaging") ? NULL : pl_averaging_table;
}

const pl_option_t *pl_options_of(const char *section)
{
    if (!section)
        return NULL;
    if (!strcmp(section, "trainer"))
        return pl_trainer_table;
    if (!strcmp(section, "data"))
        return pl_data_table;
    if (!strcmp(section, "data.sources"))
        return pl_source_table;
    if (!strcmp(section, "optimizer.groups"))
        return pl_group_table;
    return pl_general_options(section);
}

/* ---- Which key a word means ---- */

/* Whether the section has the key itself, or a component of its role has such an
 * option. */
static bool section_has(const pl_section_t *section, const char *key, bool in_component)
{
    const pl_component_t *component;
    if (!in_component)
        return pl_option_find(pl_options_of(section->name), key) != NULL;
    if (section->kind >= PL_SECTION_COMPONENTS || !section->role)
        return false;
    for (int k = 0; (component = pl_component_at(section->role, k)); k++)
        if (pl_option_find(component->options, key))
            return true;
    return false;
}

const char *pl_run_key(const char *word, char key[PL_RUN_KEY])
{
    const char *synonym = pl_compat_key(word);
    if (synonym)
        return synonym;
    for (const pl_section_t *s = pl_sections; s->name; s++)
        if (!strcmp(s->name, word))
            return s->name;
    const size_t length = strlen(word);
    if (length < 2 || length >= PL_RUN_KEY / 2)
        return NULL;
    for (int in_component = 0; in_component < 2; in_component++)
        for (const pl_section_t *s = pl_sections; s->name; s++)
            if (section_has(s, word, in_component)) {
                snprintf(key, PL_RUN_KEY, "%s.%s", s->name, word);
                return key;
            }
    return NULL;
}
