/* state.c - what ranks agree on, where it stays on devices: state, and norms of blocks
 * of the gradients
 *
 * State is running statistics and the like; the declaration of each tensor says how
 * ranks agree on it (pl_agree_t). One plan scales this rank's summand and notes
 * whether it had samples, the collective sums both, and another plan divides by the
 * number of ranks that had samples. The plans run in the order of the device, between
 * backward and the update, as the sums of gradients do. */
#include "accelerators/accelerator.h"
#include "base/error.h"
#include "strategies/ddp/ddp.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

enum { GIVE, TAKE };
enum { HAS_SAMPLES, IS_FIRST };

static pl_node_t view(const pl_tensor_info_t *t, pl_graph_t *g)
{
    return pl_region_view(g, PL_REGION_STATE, t->offset, PL_SHAPE(t->count));
}

void pl_ddp_state_give_present(pl_graph_t *g, int scalar)
{
    pl_assign(g, pl_region_view(g, PL_REGION_STRATEGY0, 0, PL_SHAPE(1)),
              pl_broadcast_to(g, pl_step_scalar(g, scalar + HAS_SAMPLES), PL_SHAPE(1)));
}

pl_node_t pl_ddp_state_share(const pl_tensor_info_t *t, int scalar, pl_graph_t *g)
{
    scalar += t->agree == PL_AGREE_MEAN ? HAS_SAMPLES : IS_FIRST;
    return t->agree == PL_AGREE_NONE ? view(t, g)
                                     : pl_mul(g, view(t, g), pl_step_scalar(g, scalar));
}

pl_node_t pl_ddp_state_mean(const pl_tensor_info_t *t, pl_graph_t *g)
{
    if (t->agree != PL_AGREE_MEAN)
        return view(t, g);
    const pl_node_t present = pl_region_view(g, PL_REGION_STRATEGY0, 0, PL_SHAPE(1));
    return pl_div(g, view(t, g), pl_broadcast_to(g, present, PL_SHAPE(t->count)));
}

static int norms_plan(const pl_ddp_t *ddp)
{
    return ddp->agrees ? PL_DDP_STATE_GRAPHS : 0;
}

pl_graph_t *pl_ddp_state_describe(pl_replica_t *r, int k, pl_error_t *err)
{
    const int objective = k - norms_plan((pl_ddp_t *)r);
    if (objective >= 0)
        return pl_optimizer_norms(r->objective[objective].optimizer, r->model, err);
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err);
    if (!g)
        return NULL;
    if (k == GIVE)
        pl_ddp_state_give_present(g, 0);
    for (int i = 0; i < r->model->count; i++) {
        const pl_tensor_info_t *t = &r->model->tensor[i];
        if (t->region == PL_REGION_STATE && t->agree != PL_AGREE_NONE
            && (k != TAKE || t->agree == PL_AGREE_MEAN))
            pl_assign(g, view(t, g),
                      k == GIVE ? pl_ddp_state_share(t, 0, g) : pl_ddp_state_mean(t, g));
    }
    return pl_graph_finish(g, r->model->precision, err);
}

int64_t pl_ddp_state_region(const pl_replica_t *r, int k)
{
    return k == 0 ? ((const pl_ddp_t *)r)->agrees : k == 1 ? r->sync_hooks->norms : 0;
}

/* Neighbouring tensors are one sum. */
int pl_ddp_state_sum(pl_ddp_t *ddp, pl_error_t *err)
{
    const pl_model_t *model = ddp->replica.model;
    int64_t first = 0, end = 0;
    int code = pl_ddp_device_sum(ddp, PL_REGION_STRATEGY0, 0, 1, err);
    for (int k = 0; k < model->count && code == PL_OK; k++) {
        const pl_tensor_info_t *t = &model->tensor[k];
        if (t->region != PL_REGION_STATE || t->agree == PL_AGREE_NONE)
            continue;
        if (end > first && t->offset != end)
            code = pl_ddp_device_sum(ddp, PL_REGION_STATE, (size_t)first,
                                     (size_t)(end - first), err);
        first = end > first && t->offset == end ? first : t->offset;
        end = t->offset + t->count;
    }
    return code == PL_OK && end > first
               ? pl_ddp_device_sum(ddp, PL_REGION_STATE, (size_t)first,
                                   (size_t)(end - first), err)
               : code;
}

static int replay(pl_ddp_t *ddp, int k, const char *what, pl_bytes_t scalars,
                  pl_how_t how, pl_error_t *err)
{
    pl_replica_t *r = &ddp->replica;
    const pl_replay_plan_t msg = {.plan = pl_replica_plan_of(r, PL_PLAN_OWN, k)->number,
                                  .what = what,
                                  .scalars = scalars,
                                  .after = pl_replica_reduced_fence(r)};
    return pl_call_replay_plan(r, r->accelerator, &msg, how, err) ? PL_OK : err->code;
}

/* Its own call counts as one of the collective's until the sums are requested. */
static void given(void *self, const pl_answer_t *answer)
{
    pl_ddp_t *ddp = self;
    bool *is_given = answer->context;
    pl_error_t err = {0};
    if (*is_given) {
        pl_ddp_device_replayed(self, answer);
        return;
    }
    if (answer->kind == PL_ANSWER_ERROR)
        pl_ddp_device_enqueued(ddp, answer->error);
    if (answer->kind != PL_ANSWER_PROGRESS)
        return;
    *is_given = true;
    ddp->after = (pl_fence_t *)answer->body->replay_plan_progress.fence;
    int code = PL_OK;
    if (is_given == &ddp->state_given) {
        code = pl_ddp_state_sum(ddp, &err);
    } else {
        const int objective = ddp->ordering->sums.objective;
        const size_t norms = (size_t)ddp->replica.objective[objective].optimizer->norms;
        code = pl_ddp_device_sum(ddp, PL_REGION_NORMS, 0, norms, &err);
    }
    pl_ddp_device_enqueued(ddp, code == PL_OK ? NULL : &err);
}

static int give(pl_ddp_t *ddp, int k, const char *what, pl_bytes_t scalars,
                bool *is_given, pl_error_t *err)
{
    const pl_how_t how = {.on_answer = given, .context = is_given};
    *is_given = false;
    const int code = replay(ddp, k, what, scalars, how, err);
    ddp->enqueuing += code == PL_OK;
    return code;
}

int pl_ddp_state_give(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err)
{
    const double scalars[] = {
        [HAS_SAMPLES] = sums->has_samples, [IS_FIRST] = ddp->replica.rank == 0};
    return give(ddp, GIVE, "state_give", (pl_bytes_t){scalars, sizeof scalars},
                &ddp->state_given, err);
}

int pl_ddp_state_take(pl_ddp_t *ddp, pl_error_t *err)
{
    const pl_how_t how = {.on_answer = pl_ddp_device_replayed};
    return replay(ddp, TAKE, "state_take", (pl_bytes_t){0}, how, err);
}

int pl_ddp_norms_give(pl_ddp_t *ddp, int objective, pl_error_t *err)
{
    return give(ddp, norms_plan(ddp) + objective, "norms_give", (pl_bytes_t){0},
                &ddp->norms_given, err);
}
