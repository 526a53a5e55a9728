/* optimizer.h - one optimizer step as a graph: norm, guard, clipping, and the
 * optimizer's update of every parameter
 *
 * Each group of parameters has step scalars: its learning rate, those that the
 * optimizer's scalars() writes, and what schedules set. The graph's fetches are "loss"
 * (sum, weight) and "grad_norm" (norm of the mean loss's gradient before clipping, 1),
 * and those of scaling.c. Its guards stop the step when the loss or the norm is not
 * finite. With a weight of 0, when no rank had a sample or all targets were ignored,
 * nothing is updated, and that is no fault. Each step that updates keeps the state in
 * PL_REGION_STATE_BACKUP. */
#ifndef PL_OPTIMIZER_H
#define PL_OPTIMIZER_H

#include "base/options.h"
#include "paceline.h"
#include "tensor/graph.h"
#include "tensor/model.h"

/* A strategy's region: norms of blocks of the gradients, of all ranks. */
#define PL_REGION_NORMS ((pl_region_t)(PL_REGION_STRATEGY0 + 1))

extern const pl_optimizer_ops_t pl_adafactor_optimizer, pl_adagrad_optimizer,
    pl_adam_optimizer, pl_adamax_optimizer, pl_adamw_optimizer, pl_lion_optimizer,
    pl_muon_optimizer, pl_nadam_optimizer, pl_radam_optimizer, pl_rmsprop_optimizer,
    pl_sgd_optimizer;
extern const pl_averaging_ops_t pl_ema_averaging, pl_swa_averaging;
extern const pl_scheduler_ops_t pl_chained_scheduler, pl_constant_scheduler,
    pl_cosine_restarts_scheduler, pl_cosine_scheduler, pl_exponential_scheduler,
    pl_linear_scheduler, pl_multi_step_scheduler, pl_one_cycle_scheduler,
    pl_polynomial_scheduler, pl_ramp_scheduler, pl_reduce_on_plateau_scheduler,
    pl_sequential_scheduler, pl_step_scheduler, pl_warmup_stable_decay_scheduler;

/* All of them, for pl_register(). */
extern const pl_registration_t pl_optimizer_components[];

/* Option structs of an optimizer for some parameters. */
typedef struct pl_group {
    const char *match;                                      /* patterns of their names */
    const void *self;
    const void *vectors;                /* for tensors with fewer than two axes  [self] */
} pl_group_t;

/* Neighbouring elements of the parameters, and where their slots begin in a region of
 * slots. */
typedef struct pl_piece {
    int64_t first, count, slot;
} pl_piece_t;

/* An option that schedules set at each step, in all groups. */
typedef enum { PL_STEPPED_MOMENTUM, PL_STEPPED_DECAY, PL_STEPPED } pl_stepped_kind_t;
typedef struct pl_stepped {
    const pl_option_t *option;         /* [it is constant] */
    bool is_factor;                    /* the value multiplies the option of each group */
} pl_stepped_t;

/* What schedules give for a step. */
typedef struct pl_scheduled {
    double lr;                     /* factor on each learning rate */
    double momentum;               /* in place of the option  [NaN: the option applies] */
    double factor[PL_STEPPED];     /* on the options  [NaN: the option applies] */
} pl_scheduled_t;

typedef struct pl_optimizer {
    const pl_optimizer_ops_t *ops;
    const void *self,
        *vectors;             /* for parameters that no group matches, as in pl_group_t */
    const pl_group_t *group;  /* [group_count]; the first that matches counts */
    int group_count;
    double clip_value;    /* limit of an element of the mean loss's gradient  [0: none] */
    bool averages;        /* into PL_REGION_AVERAGE */
    pl_stepped_t stepped[PL_STEPPED];
    pl_scheduled_t scheduled;    /* of the next step */
    struct pl_optimizer_memory *memory;  /* what it owns  [it belongs to the caller] */
    int objective;               /* objective of the module whose parameters it updates */
    pl_piece_t piece[PL_GRAD_BUCKETS_MAX];  /* of the parameters that it updates */
    int pieces;                  /* [0: all] */
    /* Elements of a block: the norm of the gradients is made of the norms of blocks [0:
     * of ranges of them] */
    int64_t block;
    /* Norms in PL_REGION_NORMS, which pl_optimizer_norms() left of the blocks of all
     * ranks [0: the gradients are whole] */
    int64_t norms;
} pl_optimizer_t;

enum {
    PL_GROUPS_MAX = 15,
    /* The step scalars: the newest weights' share in their average, and those of the
     * groups. */
    PL_SCALAR_AVERAGE = 0,
    PL_SCALAR_GROUPS,
    /* Those of a group: its learning rate, the optimizer's own, and what schedules set:
     * momentum, 1 minus it, weight decay. */
    PL_SCALAR_RATE = 0,
    PL_SCALAR_OWN,
    PL_SCALAR_MOMENTUM = PL_SCALAR_OWN + PL_SCALARS,
    PL_SCALAR_REST,
    PL_SCALAR_DECAY,
    PL_GROUP_SCALARS,
};

/* The optimizer that a run describes at a path, such as "optimizer". groups.c */
pl_optimizer_t *pl_optimizer_new(const pl_options_t *o, const char *path,
                                 pl_error_t *err);
void pl_optimizer_free(pl_optimizer_t *optimizer);

/* Uses what schedules give, but lr, for the next step; the first time before its graph is
 * made. PL_EINVAL: the optimizer has no such option, or a value is out of its range. */
int pl_optimizer_schedule(pl_optimizer_t *optimizer, const pl_scheduled_t *scheduled,
                          pl_error_t *err);
/* The value of a step in a group, group_count: of parameters that none matches. */
double pl_optimizer_stepped(const pl_optimizer_t *optimizer, pl_stepped_kind_t kind,
                            const pl_scheduled_t *scheduled, int group);

/* The group of a parameter, group_count for none, and its option struct. */
typedef struct pl_treatment {
    int group;
    const void *self;
} pl_treatment_t;
pl_treatment_t pl_optimizer_treatment(const pl_optimizer_t *optimizer,
                                      const pl_tensor_info_t *parameter);
/* PL_EINVAL names a group that no parameter of the model belongs to. */
int pl_optimizer_groups_check(const pl_optimizer_t *optimizer, const pl_model_t *model,
                              pl_error_t *err);

/* The graph of one step over the regions of a model. PL_REGION_GRADS holds sums as
 * pl_graph_gradients() left them with `nominal`, summed over ranks; clip is the
 * largest norm [0: no clipping]. */
pl_graph_t *pl_optimizer_graph(const pl_optimizer_t *optimizer, const pl_model_t *model,
                               double nominal, double clip, pl_error_t *err);

/* Elements of a block of a model's gradients, a power of two so large that each rank
 * can have the norms of all; and the number of norms of an objective. Blocks are
 * counted from the first of neighbouring parameters of one objective. So a rank that
 * has whole blocks gets the same norms, whatever else it has. */
int64_t pl_norm_block(const pl_model_t *model);
int64_t pl_norm_count(const pl_model_t *model, int objective, int64_t block);

/* If `norms` is not 0: the graph that a rank runs before. It writes the norms of the
 * blocks in its pieces, which begin and end where blocks do, and zeros for the others,
 * so that they can be summed over ranks. */
pl_graph_t *pl_optimizer_norms(const pl_optimizer_t *optimizer, const pl_model_t *model,
                               pl_error_t *err);

/* Neighbouring parameters that an objective trains, from element *to on; false: there
 * are no more. */
bool pl_trained_range(const pl_model_t *model, int objective, int64_t *from, int64_t *to);

/* The option "lr" of a group, group_count: of parameters that none matches; and the
 * number of slots, from PL_REGION_SLOT0 on, that it needs. */
double pl_optimizer_lr(const pl_optimizer_t *optimizer, int group);
int pl_optimizer_slots(const pl_optimizer_t *optimizer);

/* The step scalars of `step`, counted from 1, with a factor on each learning rate: scalar
 * [PL_STEP_SCALARS]. */
void pl_optimizer_scalars(const pl_optimizer_t *optimizer, double factor, uint64_t step,
                          double *scalar);

/* For updates: the gradient plus a share of the parameter, and the parameter minus lr
 * times a share of it; both unchanged where nothing decays. */
pl_node_t pl_decayed_gradient(pl_graph_t *g, const pl_update_t *u, double weight_decay);
pl_node_t pl_decayed_param(pl_graph_t *g, const pl_update_t *u, double weight_decay);

/* ---- scaling.c ---- */

/* Sets the factor of the next step. Operations described after it happen only when
 * loss and norm are finite. Otherwise the step is skipped, the state is restored, and
 * the factor falls; at its lowest value none of this happens. Logs "loss_scale", the
 * next factor, 0 for a step that is not finite at the lowest, and "skipped_steps",
 * those of the run. */
void pl_scaling_step(pl_graph_t *g, const pl_model_t *model, pl_node_t loss,
                     pl_node_t norm);

/* ---- adam.c: shared by Adam, AdamW, Muon, NAdam and RAdam ---- */

typedef struct adam {
    double lr, beta1, beta2, eps, weight_decay;
    bool amsgrad;
} adam_t;

int pl_adam_slots(const void *self);
void pl_adam_scalars(const void *self, uint64_t step, double scalar[PL_SCALARS]);

/* The next means of the gradient and of its square, from those in slots 0 and 1. */
typedef struct pl_adam_means {
    pl_node_t mean, square;
} pl_adam_means_t;
pl_adam_means_t pl_adam_means(pl_graph_t *g, const pl_update_t *u, double beta1,
                              double beta2, pl_node_t grad);

/* Updates the moments by grad and assigns `from` - lr times the bias-corrected step
 * to the parameter. */
void pl_adam_step(pl_graph_t *g, const adam_t *adam, const pl_update_t *u, pl_node_t from,
                  pl_node_t grad);

#endif
