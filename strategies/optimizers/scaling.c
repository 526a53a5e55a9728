/* scaling.c - the factor of the loss: used, checked and changed by the optimizer's
 * step
 *
 * torch.cuda.amp.GradScaler; Micikevicius et al., "Mixed precision training", 2018.
 * All of it is arithmetic on the device: the host, several steps ahead, does not wait
 * for a step that is finite. A skipped step ends its plan, so that the steps behind
 * it run only when the host has given them the step numbers of an optimizer that did
 * not make it. A comparison is relu's gradient: its first input where the second is
 * above zero or NaN, and zero elsewhere. */
#include "strategies/optimizers/optimizer.h"

#define FACTOR_MAX 0x1p127       /* the largest factor that doubles to a finite float32 */

static pl_node_t slot(pl_graph_t *g, pl_scaling_t which)
{
    return pl_region_view(g, PL_REGION_SCALING, which, pl_shape(0));
}

static pl_node_t where_positive(pl_graph_t *g, pl_node_t value, pl_node_t x)
{
    return pl_emit(g, PL_OP_relu_grad, (pl_node_t[]){value, x}, 2, NULL, NULL);
}

static pl_node_t one_where_positive(pl_graph_t *g, pl_node_t x)
{
    return where_positive(g, pl_scalar(g, 1), x);
}

void pl_scaling_step(pl_graph_t *g, const pl_model_t *model, pl_node_t loss,
                     pl_node_t norm)
{
    const pl_loss_scaling_t *s = model->scaling;
    pl_node_t one = pl_scalar(g, 1), factor = slot(g, PL_SCALING_FACTOR);
    pl_node_t both = pl_add(g, pl_scale(g, loss, 0), norm);
    pl_node_t bad = one_where_positive(g, pl_sub(g, both, both));  /* NaN: not finite */
    pl_node_t good = pl_sub(g, one, bad);
    /* Above zero where the step is not finite even at the lowest factor: an error. */
    pl_node_t lowest = pl_sub(g, pl_scalar(g, pl_scaling_lowest(s)), factor);
    pl_node_t is_fault = pl_mul(g, bad, lowest);
    pl_node_t fault = where_positive(g, both, is_fault);

    pl_node_t count = pl_mul(g, good, pl_add(g, slot(g, PL_SCALING_GOOD), one));
    pl_node_t enough = pl_scalar(g, (double)s->growth_interval - 0.5);
    pl_node_t grows = one_where_positive(g, pl_sub(g, count, enough));
    pl_node_t up = pl_add(g, good, pl_scale(g, grows, s->growth_factor - 1));
    pl_node_t by = pl_add(g, up, pl_scale(g, bad, s->backoff_factor));
    pl_node_t max = pl_scalar(g, FACTOR_MAX), changed = pl_mul(g, factor, by);
    pl_node_t floor = pl_scalar(g, -s->min_scale);
    pl_node_t raised = pl_neg(g, pl_minimum(g, pl_neg(g, changed), floor));
    pl_node_t next = pl_minimum(g, raised, max);
    pl_node_t skipped = pl_add(g, slot(g, PL_SCALING_SKIPPED), bad);
    pl_node_t reported = pl_sub(g, next, where_positive(g, next, is_fault));
    pl_log(g, "loss_scale", (pl_loss_t){reported, one}, PL_ON_STEP);
    pl_log(g, "skipped_steps", (pl_loss_t){skipped, one}, PL_ON_STEP);
    pl_emit(g, PL_OP_guard, &fault, 1, NULL, NULL);
    pl_assign(g, factor, next);
    pl_assign(g, slot(g, PL_SCALING_GOOD), pl_mul(g, count, pl_sub(g, one, grows)));
    pl_assign(g, slot(g, PL_SCALING_SKIPPED), skipped);
    /* Forward may have written values to it that are not finite. */
    const pl_shape_t shape = PL_SHAPE(model->state);
    if (model->state) {
        pl_node_t state = pl_region_view(g, PL_REGION_STATE, 0, shape);
        pl_node_t backup = pl_region_view(g, PL_REGION_STATE_BACKUP, 0, shape);
        pl_assign(g, state,
                  pl_add(g, where_positive(g, state, good),
                         where_positive(g, backup, bad)));
    }
    pl_emit(g, PL_OP_guard, &both, 1, NULL, NULL);
}
