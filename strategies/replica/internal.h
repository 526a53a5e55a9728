/* internal.h - what the files of a replica share among themselves */
#ifndef PL_STRATEGIES_REPLICA_INTERNAL_H
#define PL_STRATEGIES_REPLICA_INTERNAL_H

#include <jansson.h>

#include "strategies/optimizers/optimizer.h"
#include "strategies/replica/replica.h"

/* ---- What the table of replica.c hands on: each answers the call, later or now ---- */

int pl_replica_evaluate(pl_replica_t *r, pl_call_t *call, const pl_evaluate_batch_t *msg,
                        pl_error_t *err);
int pl_replica_prepare_export(pl_replica_t *r, pl_call_t *call, pl_error_t *err);
/* Makes plans for batches of other sizes. */
int pl_replica_set_signature(pl_replica_t *r, pl_call_t *call,
                             pl_batch_signature_t *signature, pl_error_t *err);
/* Freezes parameters and trains others again, from the next step on. */
int pl_replica_freeze(pl_replica_t *r, pl_call_t *call, const pl_freeze_t *msg,
                      pl_error_t *err);
/* Sets the learning rate, from the next step on: replica/schedule.c. */
int pl_replica_set_rate(pl_replica_t *r, pl_call_t *call, const pl_set_rate_t *msg,
                        pl_error_t *err);
/* What the schedule goes by. */
int pl_replica_observe_metrics(pl_replica_t *r, pl_call_t *call,
                               const pl_observe_metrics_t *msg, pl_error_t *err);
void pl_replica_release(pl_replica_t *r);

/* What calls of the accelerator run behind. */
static inline pl_object_t *pl_replica_reduced_fence(const pl_replica_t *r)
{
    return r->reduced ? &r->reduced->object : NULL;
}

/* ---- Calls of the accelerator that together answer one: replica.c ----
 *
 * One at a time: setup, an export or an import.  The first failure is what it ends with,
 * once all that were made are over. */

/* `call` is to be answered.  PL_EBUSY: another is. */
int pl_replica_begin_calls(pl_replica_calls_t *calls, pl_call_t *call, pl_error_t *err);

/* Counts a call that was made, or was not: 0. */
int pl_replica_made_call(pl_replica_calls_t *calls, uint64_t call, const pl_error_t *err);

/* All calls are made, or those before a failure: these end first, then the strategy's
 * call fails. */
int pl_replica_made_all(pl_replica_calls_t *calls, int code, const pl_error_t *err);

/* True when the last of them has ended well; the first failure ends the strategy's
 * call. */
bool pl_replica_all_ended(pl_replica_calls_t *calls, const pl_answer_t *answer);

/* ---- Plans: replica/plans.c ---- */

/* The plan that is like a batch plan in stage, objective, size and accumulate, or NULL
 * with an error. */
const pl_replica_plan_t *pl_replica_plan(const pl_replica_t *r,
                                         const pl_replica_plan_t *like, pl_error_t *err);

/* The first plan of a kind for one of the module's objectives, or NULL. */
const pl_replica_plan_t *pl_replica_plan_of(const pl_replica_t *r, pl_plan_kind_t kind,
                                            int objective);

/* All that the run's stage needs, described into graph [PL_PLANS_MAX]: freed by the
 * caller. */
int pl_replica_describe_plans(pl_replica_t *r, pl_graph_t *graph[], pl_error_t *err);
/* Consumes the graph; the answers go to pl_replica_compiled(). */
int pl_replica_compile_plan(pl_replica_t *r, pl_replica_plan_t *plan, pl_graph_t *g,
                            pl_replica_calls_t *calls, pl_on_answer_t on_answer,
                            pl_error_t *err);
void pl_replica_compiled(pl_replica_t *r, const pl_answer_t *answer);
/* Those that train are compiled again; or those of sizes that there were not, and the
 * others are dropped. */
int pl_replica_recompile(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err);
int pl_replica_renew_plans(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err);

/* The number of all that training needs into the object of what a whole export keeps; a
 * warning when it is another than the one kept. */
int pl_replica_keep_plans(const pl_replica_t *r, json_t *into, pl_error_t *err);
void pl_replica_compare_plans(pl_replica_t *r, const json_t *from);

/* How many numbers the metrics of a plan are. */
size_t pl_replica_metrics(const pl_replica_plan_t *plan);

/* How many there are besides, at most: rates of all groups, norms, and what scaling
 * tells. */
int pl_replica_other_metrics(const pl_replica_t *r);

/* Whether there is state that steps change, and so a copy of it in
 * PL_REGION_STATE_BACKUP. */
bool pl_replica_keeps_state(const pl_replica_t *r);

/* How the model is kept and computed with, from trainer.precision. */
int pl_replica_bind_precision(pl_replica_t *r, pl_error_t *err);
/* Makes the module from the run and from what the data says. */
int pl_replica_bind_module(pl_replica_t *r, pl_error_t *err);
/* The elements of a region; 0: this run has none. */
int64_t pl_replica_region_count(const pl_replica_t *r, pl_region_t region);
/* The factor of the loss, of a precision that scales it: first values of its region; into
 * the object of what a whole export keeps, and from it. */
int pl_replica_begin_scaling(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err);
int pl_replica_keep_scaling(const pl_floats_t *floats, json_t *into, pl_error_t *err);
int pl_replica_restore_scaling(pl_replica_t *r, const json_t *from,
                               pl_on_answer_t on_answer, pl_error_t *err);

/* What the learning rate of one of the module's objectives is, as a share of the
 * optimizer's. */
double pl_replica_lr_factor(const pl_replica_t *r, int objective,
                            const pl_train_batch_t *msg);

/* The same with what somebody has set it to, which that is kept as. */
double pl_replica_rate(pl_replica_t *r, int objective, const pl_train_batch_t *msg);
int pl_replica_keep_rates(const pl_replica_t *r, json_t *into, pl_error_t *err);
int pl_replica_restore_rates(pl_replica_t *r, const json_t *from, pl_error_t *err);

/* How many steps each optimizer has made. */
int pl_replica_keep_counts(const pl_replica_t *r, json_t *into, pl_error_t *err);
int pl_replica_restore_counts(pl_replica_t *r, const json_t *from, pl_error_t *err);

/* The momentum that its schedule gives; NaN: the optimizer's option holds. */
double pl_replica_momentum(const pl_replica_t *r, int objective,
                           const pl_train_batch_t *msg);

/* Whether what schedules go by can come at all: validation may never be done. */
int pl_replica_check_monitors(const pl_replica_t *r, pl_error_t *err);

/* What the schedule has kept, in the same way. */
int pl_replica_keep_schedule(const pl_replica_t *r, json_t *into, pl_error_t *err);
int pl_replica_restore_schedule(pl_replica_t *r, const json_t *from, pl_error_t *err);

/* Warns of an average that will be the weights of one step; for the first of a run. */
void pl_replica_check_average(const pl_replica_t *r, const pl_train_batch_t *msg);
/* How much of the weights after a step their average takes up. */
double pl_replica_average_share(const pl_replica_t *r, const pl_train_batch_t *msg);

/* Keeps in r->told what the graph of a module says of it. */
int pl_replica_tell_model(pl_replica_t *r, const pl_graph_t *g, pl_error_t *err);

/* ---- The module's objectives: replica/objectives.c ---- */

int pl_replica_bind_objectives(pl_replica_t *r, pl_error_t *err);
void pl_replica_release_objectives(pl_replica_t *r);
/* Gives each parameter to the objective that trains it; once all stages are described. */
int pl_replica_divide(pl_replica_t *r, pl_error_t *err);
/* Each of the patterns must fit some parameter: `whose` they are, for the error. */
int pl_replica_check_patterns(const struct pl_model *model, const char *patterns,
                              const char *whose, pl_error_t *err);

/* Regions that the optimizers need: as many as the one that needs most; and the
 * strategy's. */
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

/* At the end: evaluations that nobody has answered. */
void pl_replica_drop_forwards(pl_replica_t *r);

/* Between two passes: what failed in the last one is over. */
void pl_train_reset(pl_replica_t *r);
/* Lets no step begin; PL_EBUSY: some are under way. */
int pl_train_hold(pl_replica_t *r, pl_error_t *err);
/* Those that came meanwhile begin; or, after a failure, they and all to come fail. */
void pl_train_release(pl_replica_t *r, const pl_error_t *failure);

/* ---- In-graph collectives: replica/sync.c ---- */

/* Whether a batch norm's batch is that of all ranks, before anything is described. */
int pl_replica_bind_norms(pl_replica_t *r, pl_error_t *err);
/* The collectives of a graph that trains, for its step; those of all its graphs are
 * alike. */
int pl_replica_find_collectives(pl_replica_t *r, int objective, const pl_graph_t *g,
                                pl_error_t *err);
/* Which buckets of the gradients are there before each. */
int pl_replica_place_collectives(pl_replica_t *r, int objective, const pl_graph_t *g,
                                 pl_error_t *err);
/* Elements of their region. */
int64_t pl_replica_collectives_end(const pl_replica_t *r);
/* What a rank without samples brings to them. */
void pl_replica_empty_collectives(const pl_replica_t *r, int objective, pl_graph_t *g);

/* ---- Freezing: replica/freeze.c ---- */

/* What trainer.freeze says, before anything is compiled. */
int pl_replica_freeze_first(pl_replica_t *r, pl_error_t *err);

/* What is frozen, into the object of what a whole export keeps, and from it. */
int pl_replica_keep_frozen(const pl_replica_t *r, json_t *into, pl_error_t *err);
int pl_replica_restore_frozen(pl_replica_t *r, const json_t *from, pl_error_t *err);

#endif
