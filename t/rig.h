/* rig.h - whole runs through paceline.h: an engine, a trainer, data by formula, and a
 * wait with a limit
 *
 *   rig_t *rig = rig_new(.accelerator = "fake", .script = "replay 3 of forward fails",
 *                        .trainer = "\"max_epochs\": 2");
 *   const rig_result_t *result = rig_fit(rig);
 *   is_text(result->status, "failed", "…");
 *   rig_free(&rig);
 *
 * A run trains a small MLP on samples of 6 numbers and 3 classes. */
#ifndef T_RIG_H
#define T_RIG_H

#include <jansson.h>

#include "paceline.h"

typedef struct rig rig_t;

typedef struct rig_tensor {
    char name[64];
    pl_shape_t shape;
    size_t count;
    float *data;
} rig_tensor_t;

/* A copy of the result that on_done got. */
typedef struct rig_result {
    char status[16];                            /* "none": on_done has not come in time */
    char reason[160];
    pl_error_t error;
    uint64_t global_step;
    uint32_t epoch;
    double seconds;
    char *metrics, *run_dir, *best_checkpoint, *callbacks, *text;
    int weight_count, output_count;
    rig_tensor_t *weight, *output;
} rig_result_t;

typedef struct rig_spec {
    const char *accelerator;                 /* "cpu", or JSON  ["fake"] */
    const char *script;                      /* of the fake one: fake.h */
    int launches;                            /* the same */
    const char *module;                      /* JSON  [an mlp] */
    const char *optimizer, *scheduler;       /* JSON  [sgd; none] */
    const char *momentum_scheduler, *weight_decay_scheduler;  /* JSON  [none] */
    const char *averaging;                   /* JSON  [none] */
    const char *callbacks;                   /* JSON list  [none] */
    const char *loggers;                     /* JSON list  [not given] */
    const char *trainer, *data;              /* further members: "\"depth\": 1" */
    const char *dataset;                     /* all of "data", JSON  [the rig's own] */
    int samples;                             /* [40] */
    int torn, nan, hanging;                  /* this record cannot be read, has a NaN, is
                                                never read; from 1 [none] */
    int reading_ms;                          /* what a batch takes to be read  [0] */
    rig_t *beside;                           /* a rig whose engine this one uses  [own] */
    rig_t *loop_of;                          /* a rig whose event loop it uses  [own] */
    bool stream;                             /* keeps every message: rig_stream() */
    void (*on_progress)(rig_t *rig, const pl_progress_t *progress);
    void (*on_done)(rig_t *rig, const rig_result_t *result);
    void *user;
} rig_spec_t;

#define RIG_FEATURES 6
#define RIG_CLASSES 3
/* A sample of a rig's data. */
void rig_sample(int64_t index, float x[RIG_FEATURES], int64_t *y);

/* The first line of main(): everything is known by name, `more` parts too  [none]. */
void rig_init(const pl_registration_t *more);

/* Counts, from now on, the lines of the log that have a text in them, but for those
 * of level debug  [no more].  Any thread may ask how many there were. */
void rig_listen(const char *text);
int rig_lines_received(void);

/* Samples of that formula in memory, under a name that stays the same from rig to rig. */
void rig_samples(const char *name, int samples);

/* Whether there is such an accelerator; where not, a skipped test. */
bool rig_has(const char *accelerator);

#define rig_new(...) rig_make(&(rig_spec_t){__VA_ARGS__})
/* An engine and a trainer; NULL with the error in rig_error, with which rig_fit() ends
 * the program. */
rig_t *rig_make(const rig_spec_t *spec);
extern pl_error_t rig_error;
/* Frees the engine too, unless it is another rig's; *rig_p may be NULL. */
void rig_free(rig_t **rig_p);

/* What an actor of its engine may take to end, of the lowest level. */
void rig_grace(rig_t *rig, int milliseconds);

pl_trainer_t *rig_trainer(rig_t *rig);
pl_engine_t *rig_engine(rig_t *rig);
void *rig_user(rig_t *rig);
struct event_base *rig_base(rig_t *rig);

/* Begins a fit; true when it was taken, else the error is in rig_error. */
bool rig_begin(rig_t *rig);
/* From a checkpoint or a run directory. */
bool rig_begin_again(rig_t *rig, const char *from);
bool rig_begin_prediction(rig_t *rig, const pl_prediction_t *what);
bool rig_begin_tuning(rig_t *rig, const pl_tuning_t *what);
/* Turns the event loop until the run's on_done; lives until the next run of this rig. */
const rig_result_t *rig_wait(rig_t *rig);
/* Turns it until holds(rig), or too long: false. */
bool rig_until(rig_t *rig, bool (*holds)(rig_t *rig));
const rig_result_t *rig_fit(rig_t *rig);
/* What a run of a rig for it alone comes to, which must go well; rig_result_free(). */
rig_result_t *rig_train(const rig_spec_t *spec);
/* From a checkpoint, or the newest of a run directory. */
const rig_result_t *rig_resume(rig_t *rig, const char *from);
const rig_result_t *rig_predict(rig_t *rig, const char *checkpoint);
const rig_result_t *rig_tune(rig_t *rig, const pl_tuning_t *what);
/* That each of them is refused before anything starts. */
void rig_tunings_refused(const pl_tuning_t wrong[], size_t count);
const rig_result_t *rig_validate(rig_t *rig, const char *checkpoint);
const rig_result_t *rig_test(rig_t *rig, const char *checkpoint);

/* How many runs were begun and how many times on_done came. */
int rig_begun(const rig_t *rig);
int rig_done(const rig_t *rig);

/* A metric of the result; NaN when there is none. */
double rig_metric(const rig_result_t *result, const char *name);
/* A tensor of a list, or NULL. */
const rig_tensor_t *rig_find(const rig_tensor_t *list, int count, const char *name);
/* Largest difference of any element of the weights; infinite when they are others. */
double rig_distance(const rig_result_t *a, const rig_result_t *b);
/* Weights bit for bit, and there are some. */
bool rig_same_bits(const rig_result_t *a, const rig_result_t *b);
/* The same of one tensor. */
bool rig_same_tensor(const rig_result_t *a, const rig_result_t *b, const char *name);
/* A copy that outlives the rig's next run. */
rig_result_t *rig_keep(const rig_result_t *result);
void rig_result_free(rig_result_t *result);

/* The lines of a run's metrics.jsonl, a list; json_decref() frees it. */
json_t *rig_log(const rig_result_t *result);
/* A metric out of each line that has it, NaN terminated; at most 255. */
typedef struct rig_series {
    int count;
    double step[256], value[256];
} rig_series_t;
rig_series_t rig_series(const rig_result_t *result, const char *name);
/* A test: the metric is in the lines of these steps, "4 8". */
void rig_steps_are(const rig_result_t *result, const char *metric, const char *steps,
                   const char *text);
/* Whether the run left a file of that name. */
bool rig_has_file(const rig_result_t *result, const char *name);

/* After rig_free(): all messages of the rig's engine, a list of objects as in
 * interface.md; the caller's. */
json_t *rig_stream(void);

/* Module "normed": two layers with a batch norm between them, so it has state, and ranks
 * may exchange moments in the middle of a step. */
extern const pl_module_ops_t rig_normed;

#endif
