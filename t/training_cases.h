/* training_cases.h - small trainings whose every loss PyTorch has computed too
 * (t/data/make_training.py)
 *
 * A training is a model, the graph of a step with its gradients, the graph of the
 * optimizer step and batches by formula.  To run it: fill PARAMS and STATE; for each
 * step replay `step` with the batch's fields, then `update` with the scalars.  The
 * update's metrics are the loss and the gradient's norm. */
#ifndef T_TRAINING_CASES_H
#define T_TRAINING_CASES_H

#include <jansson.h>

#include "accelerators/accelerator.h"
#include "strategies/optimizers/optimizer.h"
#include "tensor/graph.h"
#include "tensor/model.h"

typedef struct training_case {
    const char *name;                      /* key in t/data/training.json: "gpt, adamw" */
    const pl_registration_t *(*plugin)(void);
    const char *options;                                    /* the module's, JSON */
    const pl_optimizer_ops_t *optimizer;
    const char *optimizer_options;
    double clip;
    bool tokens;                        /* x and y are tokens; else samples and classes */
    pl_shape_t shape;                   /* of a batch's x */
    int64_t classes;
    const pl_precision_ops_t *precision;                    /* [32-true] */
    const pl_loss_scaling_t *scaling;                       /* [none] */
    int micro_batches;                                      /* to a step  [1] */
    double nominal;                                         /* [the loss's weight] */
} training_case_t;

extern const training_case_t training_cases[];
extern const int training_case_count;

#define TRAINING_STEPS 20

typedef struct training {
    const training_case_t *of;
    void *module, *options;                                 /* the components' structs */
    pl_model_t *model;
    pl_graph_t *step, *update;
    double nominal;
    float *x_samples;                                    /* fields of the batch at hand */
    int64_t *x_tokens, *y;
} training_t;

int training_init(training_t *t, const training_case_t *of, pl_error_t *err);
void training_release(training_t *t);

/* First values of PL_REGION_PARAMS or PL_REGION_STATE. */
void training_fill(const training_t *t, pl_region_t region, double *data);
/* Makes the batch of a step, from 0; what input[0] and input[1] point to. */
void training_batch(training_t *t, int step, const void *input[2]);
/* The optimizer graph's scalars of a step, from 0. */
void training_scalars(const training_t *t, int step, double scalar[PL_STEP_SCALARS]);

/* The largest distance, as a share, of a region's tensors to their digests by name;
 * factor brings them to the same unit.  Infinite when a tensor is missing. */
double training_distance(const training_t *t, pl_region_t of, const double *region,
                         double factor, const json_t *want);

/* A component's struct with defaults and the options of a JSON object; from
 * pl_alloc(). */
void *training_component(const pl_component_t *component, const char *options);

#endif
