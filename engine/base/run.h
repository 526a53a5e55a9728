/* run.h - the sections of a run file and their options
 *
 * The tables are like those of components: checks, defaults, --print-config, help and the
 * manual page are made from them. */
#ifndef PL_BASE_RUN_H
#define PL_BASE_RUN_H

#include "paceline.h"

/* How a section of a run file is read. */
typedef enum pl_section_kind {
    PL_SECTION_COMPONENT,            /* "adamw" or {"name": "adamw", …}; null: none */
    PL_SECTION_OBJECTIVES,           /* the same, or a component for each objective of the
                                        module */
    PL_SECTION_DATA,                 /* the same, or {"train": …, "val": …} */
    PL_SECTION_TRAINER,
    PL_SECTION_COMPONENTS,                                  /* a list of components */
    PL_SECTION_FILES,                                       /* a list of texts */
} pl_section_kind_t;

typedef struct pl_section {
    const char *name;                                       /* "optimizer" */
    pl_section_kind_t kind;
    const char *role;                                 /* of its component or components */
    const char *help;
    const char *usual;                /* the component if the list is not given  [none] */
} pl_section_t;

/* In the order in which a run is printed; the last has no name. */
extern const pl_section_t pl_sections[];

/* The logger of a run that names none. */
extern const char pl_default_logger[];

/* Words of options, in the order of the tables in run.c. */
typedef enum pl_clip { PL_CLIP_NORM, PL_CLIP_VALUE } pl_clip_t;
typedef enum pl_nan_policy { PL_NAN_STOP, PL_NAN_SKIP, PL_NAN_ROLLBACK } pl_nan_policy_t;
typedef enum pl_deterministic {
    PL_NOT_DETERMINISTIC,
    PL_DETERMINISTIC,
    PL_ELASTIC
} pl_deterministic_t;
typedef enum pl_profiling {
    PL_PROFILE_NONE,
    PL_PROFILE_SIMPLE,
    PL_PROFILE_OPERATORS
} pl_profiling_t;
typedef enum pl_decay { PL_DECAY_ALL, PL_DECAY_MATRICES } pl_decay_t;

/* "trainer": names are Lightning's. */
typedef struct pl_trainer_options {
    pl_choice_t accelerator, strategy, launcher, precision;
    pl_span_t devices;                                      /* on each node; 0: auto */
    int64_t num_nodes;                                      /* 0: auto */
    int64_t max_epochs, max_steps;                          /* -1: no limit */
    int64_t min_epochs, min_steps;
    const char *max_time;                                   /* "": no limit */
    int64_t accumulate_grad_batches;
    const char *freeze;                                     /* patterns of parameters */
    double gradient_clip_val;                               /* 0: off */
    pl_clip_t gradient_clip_algorithm;
    pl_nan_policy_t nan_policy;
    bool detect_anomaly;
    int64_t nan_limit;                                   /* such steps */
    pl_amount_t val_check_interval;                      /* share of the epoch, batches or
                                                            time */
    int64_t check_val_every_n_epoch;                     /* 0: batches are counted across
                                                            epochs */
    int64_t num_sanity_val_steps;                        /* -1: all */
    pl_amount_t limit_train_batches, limit_val_batches, limit_test_batches;
    pl_amount_t limit_predict_batches, overfit_batches;
    int64_t fast_dev_run;                                   /* batches; 0: off */
    pl_deterministic_t deterministic;
    int64_t global_batch_size;                              /* samples; 0: not given */
    int64_t micro_shards;
    bool sync_batchnorm;
    int64_t log_every_n_steps;
    int64_t seed;
    int64_t depth;                                          /* steps in flight */
    double step_timeout;                                    /* s */
    const char *default_root_dir;
    const char *run_name;                                   /* "": numbered */
    int64_t reload_dataloaders_every_n_epochs;              /* 0: never */
    bool enable_checkpointing;
    bool enable_progress_bar, enable_model_summary;
    pl_profiling_t profiler;
} pl_trainer_options_t;

extern const pl_option_t pl_trainer_table[];

#define PL_MICRO_SHARDS_DEFAULT 12
#define PL_MICRO_SHARDS_MAX 64                              /* of trainer.micro_shards */

/* Whether the result of a run must not depend on its number of ranks. */
bool pl_trainer_is_elastic(const pl_trainer_options_t *trainer);

/* Checks that the trainer's options do not contradict each other. */
int pl_trainer_check(const pl_options_t *o, pl_error_t *err);

/* How training samples are loaded: options of "data" that a strategy may change. */
typedef struct pl_loader_options {
    pl_choice_t sampler;                               /* [none: in order, or shuffled] */
    bool shuffle;
    bool drop_last;
    int64_t buckets;                              /* lengths that samples are padded to */
} pl_loader_options_t;

extern const pl_option_t pl_loader_table[];

/* "data": the options of the data connector, besides those of the data set. */
typedef struct pl_data_options {
    const char *package;                     /* Debian package of the files  ["": none] */
    int64_t batch_size;                      /* samples per rank */
    double val_split;                        /* share of the training data; 1 / folds, if
                                                there are folds */
    int64_t folds, fold;                     /* equal parts of it, and the one for
                                                validation  [0, -1: not chosen] */
    bool stratify;
    pl_loader_options_t loader;
    int64_t prefetch;                             /* batches */
    int64_t shuffle_window;                       /* samples  [0: all] */
    int64_t workers;                              /* threads */
} pl_data_options_t;

extern const pl_option_t pl_data_table[];

/* "module": the general options, besides those of the module. */
typedef struct pl_module_options {
    const char *init_from;               /* weights to start from  ["": fresh] */
    bool init_strict;                    /* require all tensors, or load those that fit */
} pl_module_options_t;

extern const pl_option_t pl_module_table[];

/* "optimizer": the general options, besides those of the optimizer, which a group may
 * repeat. */
typedef struct pl_optimizer_options {
    pl_decay_t decay;
    const char *groups;
} pl_optimizer_options_t;

extern const pl_option_t pl_optimizer_table[];

/* "averaging": the general options, besides those of the component. */
typedef struct pl_averaging_options {
    bool validate;
} pl_averaging_options_t;

extern const pl_option_t pl_averaging_table[];

typedef struct pl_group_options {
    const char *match;
} pl_group_options_t;

extern const pl_option_t pl_group_table[];

/* The general options of every component of a role, or NULL; other code than the
 * component reads them.  Those of data sets are in pl_data_table. */
const pl_option_t *pl_general_options(const char *role);

/* Sets the options for which another one stands, such as fast_dev_run. */
void pl_trainer_expand(pl_trainer_options_t *trainer, pl_data_options_t *data);

/* "data" with a source for each stage, the first of each; validation and test may have up
 * to PL_LOADERS_MAX sources. */
typedef struct pl_data_sources {
    pl_choice_t train, val, test, predict;
} pl_data_sources_t;

enum { PL_LOADERS_MAX = PL_INSTANCES };

extern const pl_option_t pl_source_table[];

/* The names of a stage. */
typedef struct pl_stage_names {
    const char *verb;                             /* "validate": of events and plans */
    const char *prefix;                           /* "val_": of its metrics */
    const char *data;                             /* "validation": of the data it reads */
    const char *source;                           /* "val": its key in pl_source_table */
} pl_stage_names_t;

/* [pl_stage_t] */
extern const pl_stage_names_t pl_stages[];

/* The key that a word means: "optimizer.lr" for "lr" and for "learning_rate"; NULL: none.
 * A section's own keys come before the options of its components. */
enum { PL_RUN_KEY = 96 };
const char *pl_run_key(const char *word, char key[PL_RUN_KEY]);

/* Keys of a data info to predict: a list with the file of each sample; of windows over
 * rows the time, or else the number, of the first row that is predicted. */
#define PL_DATA_FILES "files"
#define PL_DATA_TIMES "times"
#define PL_DATA_ROWS "rows"

#endif
