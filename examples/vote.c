/* vote.c - a user-defined strategy: ranks vote on the direction of each step
 *
 * signSGD with majority vote (Bernstein et al., arXiv 1810.05101): each rank sends the
 * signs of its gradients, and each parameter moves in the direction of the majority, by
 * the same amount.  So a rank with extreme gradients has only one vote.
 *
 * The struct begins with pl_ddp_t and the table has pl_ddp_strategy as its base, so
 * synchronization, sampling and decisions are those of ddp.  This file defines what the
 * ranks add up, and how the sum is used. */
#include <math.h>
#include <strategies/ddp/ddp.h>

typedef struct vote {
    pl_ddp_t ddp;                                           /* first: the base */
    double quorum;
} vote_t;

static const pl_option_t vote_options[] = {
    PL_DDP_OPTIONS,
    PL_FLOAT(vote_t, quorum, "0", "[0..1)",
             "share of the ranks by which one side must be ahead for a step"),
    PL_OPTIONS_END,
};

/* Values that are not finite stay so: then all ranks skip the step. */
static void signs_put(float *grads, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        if (isfinite(grads[i]))
            grads[i] = (float)((grads[i] > 0) - (grads[i] < 0));
}

static int vote_give(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err)
{
    if (ddp->dtype != PL_F32)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "strategy \"vote\" takes float32 gradients: choose another "
                       "trainer.precision");
    for (int64_t from = 0, to = 0;
         pl_replica_range(&ddp->replica, sums->objective, &from, &to);)
        signs_put(pl_ddp_gradients(ddp), from, to);
    return pl_ddp_sum_step(ddp, sums, err);
}

/* The optimizer divides gradients by the batch's weight, as sums over samples need. */
static float weight_of(const pl_ddp_t *ddp, int objective)
{
    pl_dtype_t dtype;
    const int64_t params = pl_replica_gradients(&ddp->replica, &dtype)
                           - 2 * ddp->replica.objectives;
    const float *grads = pl_ddp_gradients(ddp);
    return grads[params + 2 * objective + 1] / (float)ddp->replica.nominal;
}

static void majority_take(float *grads, int64_t from, int64_t to, double ahead, float one)
{
    for (int64_t i = from; i < to; i++)
        if (isfinite(grads[i]))
            grads[i] = (float)((grads[i] > ahead) - (grads[i] < -ahead)) * one;
}

static void vote_take(pl_ddp_t *ddp, const pl_replica_sums_t *sums,
                      const pl_error_t *failure, bool halt)
{
    const double ahead = ((const vote_t *)ddp)->quorum * ddp->replica.ranks;
    for (int64_t from = 0, to = 0;
         !failure && pl_replica_range(&ddp->replica, sums->objective, &from, &to);)
        majority_take(pl_ddp_gradients(ddp), from, to, ahead,
                      weight_of(ddp, sums->objective));
    pl_replica_reduced(&ddp->replica, failure, halt);
}

static const pl_ddp_reduce_hooks_t vote_hooks = {.give = vote_give, .take = vote_take};

static int vote_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    vote_t *vote = self;
    vote->ddp.reduce_hooks = &vote_hooks;
    return pl_ddp_start(self, call, body, err);
}

static const pl_handler_t vote_handlers[] = {PL_ON(start, vote_start), PL_HANDLERS_END};

static const pl_actor_ops_t vote_strategy = {
    .name = "vote",
    .help = "data parallel: ranks vote on the direction of each step",
    .size = sizeof(vote_t),
    .options = vote_options,
    .role = "strategy",
    .level = PL_LEVEL_STRATEGY,
    .handlers = vote_handlers,
    .base = &pl_ddp_strategy,
};

PL_PLUGIN({"strategy", &vote_strategy})
