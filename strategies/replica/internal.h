/* internal.h - what the files of a replica share among themselves */
#ifndef PL_STRATEGIES_REPLICA_INTERNAL_H
#define PL_STRATEGIES_REPLICA_INTERNAL_H

#include <jansson.h>

#include "strategies/optimizers/optimizer.h"
#include "strategies/replica/replica.h"

/* ---- handlers in the table of replica.c: each answers the call, later or now ---- */

int pl_replica_evaluate(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err);
int pl_replica_prepare_export(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err);
/* Gradients to the program of a manual loop and back: replica/gradients.c. */
int pl_replica_gradients_of(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err);
/* Makes plans for batches of other sizes. */
int pl_replica_set_signature(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err);
/* Freezes parameters and trains others again, from the next step on. */
int pl_replica_freeze(void *self, pl_call_t *call, const pl_body_t *body,
                      pl_error_t *err);
/* Sets the learning rate, from the next step on: replica/schedule.c. */
int pl_replica_set_rate(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err);
/* Passes metrics to the schedules. */
int pl_replica_observe_metrics(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err);
void pl_replica_release(void *self);

/* The fence that calls of the accelerator run behind. */
static inline pl_object_t *pl_replica_reduced_fence(const pl_replica_t *r)
{
    return r->reduced ? &r->reduced->object : NULL;
}

/* ---- calls to the accelerator that together answer one call: replica.c ----
 *
 * One at a time: setup, an export or an import. The first failure is the answer, once
 * all calls that were made are over. */

/* `call` is the call to answer. PL_EBUSY: another is under way. */
int pl_replica_begin_calls(pl_replica_calls_t *calls, pl_call_t *call, pl_error_t *err);

/* Counts a call that was made; 0: it was not made. */
int pl_replica_made_call(pl_replica_calls_t *calls, uint64_t call, const pl_error_t *err);

/* All calls are made, or those before a failure: these end first, then the strategy's
 * call fails. */
int pl_replica_made_all(pl_replica_calls_t *calls, int code, const pl_error_t *err);

/* True when the last of them has ended without an error; the first failure ends the
 * strategy's call. */
bool pl_replica_all_ended(pl_replica_calls_t *calls, const pl_answer_t *answer);

/* ---- Plans: replica/plans.c; those of a step are found by replica/step.c ---- */

/* The plan with stage, objective, size and accumulation of a batch plan, or NULL with
 * an error. */
const pl_replica_plan_t *pl_replica_plan(const pl_replica_t *r,
                                         const pl_replica_plan_t *like, pl_error_t *err);

/* The first plan of a kind for one of the module's objectives, or NULL. */
const pl_replica_plan_t *pl_replica_plan_of(const pl_replica_t *r, pl_plan_kind_t kind,
                                            int objective);

/* Describes everything that the run's stage needs into graph [PL_PLANS_MAX]: the
 * caller frees them. */
int pl_replica_describe_plans(pl_replica_t *r, pl_graph_t *graph[], pl_error_t *err);
/* Consumes the graph; the answers go to pl_replica_compiled(). */
int pl_replica_compile_plan(pl_replica_t *r, pl_replica_plan_t *plan, pl_graph_t *g,
                            pl_replica_calls_t *calls, pl_on_answer_t on_answer,
                            pl_error_t *err);
void pl_replica_compiled(pl_replica_t *r, const pl_answer_t *answer);
/* Compile again the plans that train; plans for batches of new sizes, and drop the
 * others. */
int pl_replica_recompile(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err);
int pl_replica_renew_plans(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err);

/* Writes the hash of all plans of training into the object of a whole export; a
 * warning if it differs from the stored one. */
int pl_replica_save_plans(const pl_replica_t *r, json_t *into, pl_error_t *err);
void pl_replica_compare_plans(pl_replica_t *r, const json_t *from);

/* The number of metrics of a plan. */
size_t pl_replica_metrics(const pl_replica_plan_t *plan);

/* The largest number of other metrics: rates of all groups, norms, and those of
 * scaling. */
int pl_replica_other_metrics(const pl_replica_t *r);

/* Whether steps change state, so that PL_REGION_STATE_BACKUP has a copy. */
bool pl_replica_backs_up_state(const pl_replica_t *r);

/* The types of storage and computation, from trainer.precision. */
int pl_replica_bind_precision(pl_replica_t *r, pl_error_t *err);
/* Makes the module from the run and the data info. */
int pl_replica_bind_module(pl_replica_t *r, pl_error_t *err);
/* The elements of a region; 0: this run has none. */
int64_t pl_replica_region_count(const pl_replica_t *r, pl_region_t region);
/* The factor of the loss, for a precision that scales it: writes the first values of
 * its region; writes it to the object of a whole export, and reads it from there. */
int pl_replica_begin_scaling(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err);
int pl_replica_save_scaling(const pl_floats_t *floats, json_t *into, pl_error_t *err);
int pl_replica_restore_scaling(pl_replica_t *r, const json_t *from,
                               pl_on_answer_t on_answer, pl_error_t *err);

/* The section of a run that has a schedule, and the key of its state in checkpoints. */
typedef struct pl_schedule_name {
    const char *section, *state;
} pl_schedule_name_t;
extern const pl_schedule_name_t pl_schedule_names[PL_SCHEDULES];

/* What the schedules give for a step of an objective. The learning rate has the user's
 * factor, too; a rate that is set becomes a factor here. */
pl_scheduled_t pl_replica_scheduled(pl_replica_t *r, int objective,
                                    const pl_train_batch_t *msg);
int pl_replica_save_rates(const pl_replica_t *r, json_t *into, pl_error_t *err);
int pl_replica_restore_rates(pl_replica_t *r, const json_t *from, pl_error_t *err);

/* Number of optimizer steps of each objective. */
int pl_replica_save_counts(const pl_replica_t *r, json_t *into, pl_error_t *err);
int pl_replica_restore_counts(pl_replica_t *r, const json_t *from, pl_error_t *err);

/* Checks that the metrics of schedules can come at all: a run may have no validation. */
int pl_replica_check_monitors(const pl_replica_t *r, pl_error_t *err);

/* State of the schedules, in the same way. */
int pl_replica_save_schedule(const pl_replica_t *r, json_t *into, pl_error_t *err);
int pl_replica_restore_schedule(pl_replica_t *r, const json_t *from, pl_error_t *err);

/* Warns of an average that will be the weights of one step; for the first step of a
 * run. */
void pl_replica_check_average(const pl_replica_t *r, const pl_train_batch_t *msg);
/* The share of the weights after a step in their average. */
double pl_replica_average_share(const pl_replica_t *r, const pl_train_batch_t *msg);

/* Keeps the model info of a module's graph in r->reported. */
int pl_replica_report_model(pl_replica_t *r, const pl_graph_t *g,
                            const double step_bytes[2], pl_error_t *err);

/* ---- The module's objectives: replica/objectives.c ---- */

int pl_replica_bind_objectives(pl_replica_t *r, pl_error_t *err);

/* Assigns each parameter to the objective that trains it, once all stages are
 * described. */
int pl_replica_divide(pl_replica_t *r, pl_error_t *err);
/* Each pattern must fit some parameter; `whose` names the patterns' owner in the
 * error. */
int pl_replica_check_patterns(const struct pl_model *model, const char *patterns,
                              const char *whose, pl_error_t *err);

/* Regions for the slots: as many as the optimizer that needs most; and the strategy's. */
int pl_replica_slots(const pl_replica_t *r);

/* Each rank updates only a partition of the parameters. */
static inline bool pl_replica_is_partitioned(const pl_replica_t *r)
{
    return r->sync_hooks && r->sync_hooks->partition;
}

/* ---- Training: replica/train.c, replica/results.c ---- */

/* Before the first step, and at the end. */
struct pl_pipeline *pl_pipeline_new(pl_error_t *err);
void pl_pipeline_free(struct pl_pipeline *pipeline);

/* At the end: frees evaluations whose answer never comes. */
void pl_replica_drop_forwards(pl_replica_t *r);

/* Between two passes over the data: clears the failure of the last one. */
void pl_train_reset(pl_replica_t *r);
/* Lets no step begin; PL_EBUSY: some are under way. */
int pl_train_hold(pl_replica_t *r, pl_error_t *err);
/* Lets the steps begin that came in between; after a failure they and all later ones
 * fail. */
void pl_train_release(pl_replica_t *r, const pl_error_t *failure);

/* ---- In-graph collectives: replica/sync.c ---- */

/* Decides whether batch norms use the batch of all ranks, before anything is
 * described. */
int pl_replica_bind_norms(pl_replica_t *r, pl_error_t *err);
/* Those of a batch plan; all plans of an objective, or of a stage that evaluates, have
 * the same. */
pl_replica_collectives_t *pl_replica_collectives(pl_replica_t *r,
                                                 const pl_replica_plan_t *plan);
/* Finds the collectives of the graph of a batch plan. */
int pl_replica_find_collectives(pl_replica_t *r, const pl_replica_plan_t *plan,
                                const pl_graph_t *g, pl_error_t *err);
/* Finds the buckets of gradients that are there before each collective. */
int pl_replica_place_collectives(pl_replica_t *r, const pl_replica_plan_t *plan,
                                 const pl_graph_t *g, pl_error_t *err);
/* Elements of the collectives' region. */
int64_t pl_replica_collectives_end(const pl_replica_t *r);
/* The contribution of a rank without samples to them. */
void pl_replica_empty_collectives(const pl_replica_collectives_t *list, pl_graph_t *g);
/* The batch that is evaluated in r->turn continues after a collective: forward.c. */
void pl_replica_forward_continues(pl_replica_t *r, const pl_error_t *failure);

/* ---- Freezing: replica/freeze.c ---- */

/* Applies trainer.freeze, before anything is compiled. */
int pl_replica_freeze_first(pl_replica_t *r, pl_error_t *err);

/* The frozen parameters: to the object of a whole export, and from it. */
int pl_replica_save_frozen(const pl_replica_t *r, json_t *into, pl_error_t *err);
int pl_replica_restore_frozen(pl_replica_t *r, const json_t *from, pl_error_t *err);

#endif
