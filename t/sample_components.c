/* sample_components.c - components with options of every type, that do nothing */
#include "sample_components.h"

#include <stdio.h>

#include "tap.h"
#include "tensor/precision.h"

typedef struct adamw {
    double lr, weight_decay;
} adamw_t;

typedef struct watcher {
    const char *monitor;
    int64_t patience;
} watcher_t;

static const pl_option_t mlp_options[] = {
    PL_INTS(sample_mlp_t, hidden, "[128]", "1..", "units of each hidden layer"),
    PL_TEXT(sample_mlp_t, activation, "\"relu\"", "relu|gelu|tanh",
            "what follows a layer"),
    PL_INT(sample_mlp_t, classes, "\"auto\"", "2..", "classes"),
    PL_TEXT(sample_mlp_t, vocabulary, "\"\"", NULL, "characters"),
    PL_INTS(sample_mlp_t, shape, "\"auto\"", "1..", "of a sample"),
    PL_FLOAT(sample_mlp_t, dropout, "0.1", "[0..1)", "share of units left out"),
    PL_OPTIONS_END,
};

static const pl_option_t idx_options[] = {
    PL_TEXT(sample_idx_t, path, NULL, NULL, "folder of the files"),
    PL_OPTIONS_END,
};

static const pl_option_t adamw_options[] = {
    PL_FLOAT(adamw_t, lr, "1e-3", "(0..", "learning rate"),
    PL_FLOAT(adamw_t, weight_decay, "0.01", "0..", "decay per step and lr"),
    PL_OPTIONS_END,
};

static const pl_option_t ddp_options[] = {
    PL_INT(sample_ddp_t, bucket_mb, "25", "1..", "size of a bucket, MiB"),
    PL_BOOL(sample_ddp_t, replace_sampler, "true", "split the data among ranks"),
    PL_CHOICE(sample_ddp_t, collective, "\"auto\"", "collective", "what moves gradients"),
    PL_CHOICE(sample_ddp_t, spare, "null", "collective",
              "what moves them when that fails"),
    PL_AMOUNT(sample_ddp_t, share, "0.5", "share or count of ranks"),
    PL_OPTIONS_END,
};

#define NUMBER(type, name, fallback, range, help) \
    { \
#name, PL_OPTION_INT, offsetof(type, number), fallback, range, help \
    }

static const pl_option_t shm_options[] = {NUMBER(sample_number_t, slots, "2", "1..64",
                                                 "slots"),
                                          PL_OPTIONS_END};
static const pl_option_t cpu_options[] = {NUMBER(sample_number_t, threads, "0", "0..",
                                                 "threads"),
                                          PL_OPTIONS_END};
static const pl_option_t cuda_options[] = {NUMBER(sample_number_t, stream, "0", "0..9",
                                                  "stream"),
                                           PL_OPTIONS_END};
static const pl_option_t cosine_options[] = {NUMBER(sample_number_t, warmup_steps, "0",
                                                    "0..", "steps"),
                                             PL_OPTIONS_END};
static const pl_option_t watcher_options[] = {
    PL_TEXT(watcher_t, monitor, "\"val_loss\"", NULL, "metric to watch"),
    PL_INT(watcher_t, patience, "3", "1..", "validations without a better one"),
    PL_OPTIONS_END,
};

static const pl_module_ops_t mlp = {.name = "mlp",
                                    .help = "a sample",
                                    .size = sizeof(sample_mlp_t),
                                    .options = mlp_options};
static const pl_component_t idx = {"idx", "a sample", sizeof(sample_idx_t), idx_options};
static const pl_component_t adamw = {"adamw", "a sample", sizeof(adamw_t), adamw_options};
static const pl_component_t sgd = {"sgd", "a sample", 0, NULL};
static const pl_component_t cosine = {"cosine", "a sample", sizeof(sample_number_t),
                                      cosine_options};
static const pl_component_t ddp = {"ddp", "a sample", sizeof(sample_ddp_t), ddp_options};
static const pl_component_t single = {"single", "a sample", 0, NULL};
static const pl_component_t shm = {"shm", "a sample", sizeof(sample_number_t),
                                   shm_options};
static const pl_component_t cpu = {"cpu", "a sample", sizeof(sample_number_t),
                                   cpu_options};
static const pl_component_t cuda = {"cuda", "a sample", sizeof(sample_number_t),
                                    cuda_options};
static const pl_component_t in_line = {"inline", "a sample", 0, NULL};
static const pl_component_t model_checkpoint = {"model_checkpoint", "a sample",
                                                sizeof(watcher_t), watcher_options};
static const pl_component_t early_stopping = {"early_stopping", "a sample",
                                              sizeof(watcher_t), watcher_options};
static const pl_component_t csv = {"csv", "a sample", 0, NULL};
static const pl_component_t jsonl = {"jsonl", "a sample", 0, NULL};
static const pl_component_t tensorboard = {"tensorboard", "a sample", 0, NULL};

const pl_registration_t sample_components[] = {
    {"module", &mlp},
    {"dataset", &idx},
    {"precision", &pl_precision_32_true},
    {"optimizer", &adamw},
    {"optimizer", &sgd},
    {"scheduler", &cosine},
    {"strategy", &ddp},
    {"strategy", &single},
    {"collective", &shm},
    {"accelerator", &cpu},
    {"accelerator", &cuda},
    {"launcher", &in_line},
    {"callback", &model_checkpoint},
    {"callback", &early_stopping},
    {"logger", &csv},
    {"logger", &jsonl},
    {"logger", &tensorboard},
    PL_REGISTRATIONS_END,
};

pl_options_t *sample_run(const char *text)
{
    pl_error_t err = {0};
    pl_options_t *o = pl_options_parse(text, "run.json", &err);
    if (!o)
        tap_diag("%s", err.text);
    return o;
}

const char *sample_file(const char *name, const char *bytes, size_t length)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", tap_folder(), name);
    FILE *file = fopen(path, "wb");
    fwrite(bytes, 1, length, file);
    fclose(file);
    return path;
}
