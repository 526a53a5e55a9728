/* optimizer.c - one optimizer step as a graph: norm, guard, clipping, and the
 * optimizer's update of every parameter
 *
 * Neighbouring tensors of one group are one range, with the zeros between them: an
 * optimizer sees a few long vectors and never a tensor. Zeros stay zeros, because
 * their gradient is zero. */
#include "strategies/optimizers/optimizer.h"

#include <stdio.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "tensor/graph.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

const pl_registration_t pl_optimizer_components[] = {
    {"optimizer", &pl_adafactor_optimizer},
    {"optimizer", &pl_adagrad_optimizer},
    {"optimizer", &pl_adam_optimizer},
    {"optimizer", &pl_adamax_optimizer},
    {"optimizer", &pl_adamw_optimizer},
    {"optimizer", &pl_lion_optimizer},
    {"optimizer", &pl_muon_optimizer},
    {"optimizer", &pl_nadam_optimizer},
    {"optimizer", &pl_radam_optimizer},
    {"optimizer", &pl_rmsprop_optimizer},
    {"optimizer", &pl_sgd_optimizer},
    {"averaging", &pl_ema_averaging},
    {"averaging", &pl_swa_averaging},
    {"scheduler", &pl_chained_scheduler},
    {"scheduler", &pl_constant_scheduler},
    {"scheduler", &pl_cosine_restarts_scheduler},
    {"scheduler", &pl_cosine_scheduler},
    {"scheduler", &pl_exponential_scheduler},
    {"scheduler", &pl_linear_scheduler},
    {"scheduler", &pl_multi_step_scheduler},
    {"scheduler", &pl_one_cycle_scheduler},
    {"scheduler", &pl_polynomial_scheduler},
    {"scheduler", &pl_ramp_scheduler},
    {"scheduler", &pl_reduce_on_plateau_scheduler},
    {"scheduler", &pl_sequential_scheduler},
    {"scheduler", &pl_step_scheduler},
    {"scheduler", &pl_warmup_stable_decay_scheduler},
    PL_REGISTRATIONS_END,
};

pl_node_t pl_times_momentum(pl_graph_t *g, const pl_update_t *u, pl_node_t x,
                            double option)
{
    if (!u)
        return pl_graph_fail(g, PL_EINVAL, "momentum of an update that is NULL");
    return u->cycles ? pl_mul(g, x, u->momentum) : pl_scale(g, x, option);
}

pl_node_t pl_times_rest(pl_graph_t *g, const pl_update_t *u, pl_node_t x, double option)
{
    if (!u)
        return pl_graph_fail(g, PL_EINVAL, "momentum of an update that is NULL");
    return u->cycles ? pl_mul(g, x, u->rest) : pl_scale(g, x, 1 - option);
}

pl_node_t pl_times_decay(pl_graph_t *g, const pl_update_t *u, pl_node_t x, double option)
{
    if (!u)
        return pl_graph_fail(g, PL_EINVAL, "weight decay of an update that is NULL");
    return u->decays && option != 0 ? pl_mul(g, x, u->decay) : pl_scale(g, x, option);
}

pl_node_t pl_decayed_gradient(pl_graph_t *g, const pl_update_t *u, double weight_decay)
{
    if (weight_decay == 0)
        return u->grad;
    return pl_add(g, u->grad, pl_times_decay(g, u, u->param, weight_decay));
}

pl_node_t pl_decayed_param(pl_graph_t *g, const pl_update_t *u, double weight_decay)
{
    if (weight_decay == 0)
        return u->param;
    pl_node_t kept = pl_sub(g, pl_scalar(g, 1),
                            pl_times_decay(g, u, u->lr, weight_decay));
    return pl_mul(g, u->param, kept);
}

/* ---- The step ---- */

typedef struct piece_update {
    pl_graph_t *g;
    const pl_optimizer_t *optimizer;
    pl_node_t factor;                                       /* of every gradient */
    bool has_master;
    const pl_piece_t *piece;                         /* the piece that is being updated */
} piece_update_t;

bool pl_trained_range(const pl_model_t *model, int objective, int64_t *from, int64_t *to)
{
    bool found = false;
    for (int i = 0; i < model->count; i++) {
        const pl_tensor_info_t *t = &model->tensor[i];
        if (t->region != PL_REGION_PARAMS || t->offset < *to)
            continue;
        if (found && !pl_is_trained(t, objective)) {
            *to = t->offset;
            return true;
        }
        if (!found && pl_is_trained(t, objective)) {
            *from = t->offset;
            found = true;
        }
    }
    if (found)
        *to = model->params;
    return found;
}

static pl_node_t norm_of(pl_graph_t *g, pl_node_t x, double scale)
{
    return pl_emit(g, PL_OP_norm, &x, 1, &(pl_attr_t){.a = scale}, NULL);
}

/* The norm of the gradients is computed from smaller numbers, whose squares fit in
 * float32. */
#define SMALL 0x1p-20

/* ---- Norms of blocks ---- */

enum { BLOCKS_MAX = 1 << 15 };

/* GPT-2 with 124 million parameters has blocks of 4 096. */
int64_t pl_norm_block(const pl_model_t *model)
{
    int64_t block = PL_REGION_ALIGN;
    while (model->params / block > BLOCKS_MAX)
        block *= 2;
    return block;
}

/* A trained range, and the indices of its norms among all of the objective. */
typedef struct blocks {
    int64_t from, to, begin;                   /* elements; first element of the blocks */
    int64_t first, count;                      /* norms */
} blocks_t;

static int64_t block_of(const blocks_t *b, int64_t element, int64_t block)
{
    return (element - b->begin) / block;
}

static bool blocks_next(const pl_model_t *model, int objective, int64_t block,
                        blocks_t *b)
{
    b->first += b->count;
    if (!pl_trained_range(model, objective, &b->from, &b->to))
        return false;
    /* The first of neighbouring parameters of an objective, including frozen ones. */
    bool is_inside = false;
    b->begin = 0;
    for (int i = 0; i < model->count; i++) {
        const pl_tensor_info_t *t = &model->tensor[i];
        if (t->region != PL_REGION_PARAMS || t->offset > b->from)
            continue;
        if (t->objective == objective && !is_inside)
            b->begin = t->offset;
        is_inside = t->objective == objective;
    }
    b->count = block_of(b, b->to - 1, block) - block_of(b, b->from, block) + 1;
    return true;
}

int64_t pl_norm_count(const pl_model_t *model, int objective, int64_t block)
{
    blocks_t b = {0};
    while (blocks_next(model, objective, block, &b))
        continue;
    return b.first;
}

static pl_node_t block_norms(pl_graph_t *g, pl_node_t x, pl_attr_t attr)
{
    return pl_emit(g, PL_OP_block_norms, &x, 1, &attr, NULL);
}

/* Norms of elements that end where a block or the range does. */
static pl_node_t blocks_norms(pl_graph_t *g, const blocks_t *b, int64_t block,
                              int64_t from, int64_t to)
{
    return block_norms(g, pl_region_view(g, PL_REGION_GRADS, from, PL_SHAPE(to - from)),
                       (pl_attr_t){.a = SMALL,
                                   .from = (from - b->begin) % block,
                                   .to = block});
}

/* The norm of the gradients times `factor`: of the norms of all blocks that the objective
 * trains, in order, or of neighbouring gradients. The product may fit in float32 when the
 * norm itself does not, so the factor is applied last. */
static pl_node_t gradient_norm(pl_graph_t *g, const pl_optimizer_t *optimizer,
                               const pl_model_t *model, pl_node_t factor)
{
    const int objective = optimizer->objective;
    const int64_t block = optimizer->block;
    pl_node_t norm = {-1};
    if (optimizer->norms && block)
        norm = pl_region_view(g, PL_REGION_NORMS, 0, PL_SHAPE(optimizer->norms));
    for (blocks_t b = {0};
         block && !optimizer->norms && blocks_next(model, objective, block, &b);) {
        pl_node_t both[] = {norm, blocks_norms(g, &b, block, b.from, b.to)};
        norm = norm.id < 0 ? both[1] : pl_concat(g, both, 2, 0);
    }
    if (block) {
        const int64_t count = pl_norm_count(model, objective, block);
        norm = pl_reshape(g, block_norms(g, norm, (pl_attr_t){.a = 1, .to = count}),
                          pl_shape(0));
    }
    for (int64_t a = 0, b = 0; !block && pl_trained_range(model, objective, &a, &b);) {
        pl_node_t part =
            norm_of(g, pl_region_view(g, PL_REGION_GRADS, a, PL_SHAPE(b - a)), SMALL);
        pl_node_t both[] = {pl_reshape(g, norm.id < 0 ? part : norm, PL_SHAPE(1)),
                            pl_reshape(g, part, PL_SHAPE(1))};
        norm = norm.id < 0 ? part : norm_of(g, pl_concat(g, both, 2, 0), 1);
    }
    return pl_scale(g, pl_mul(g, norm, factor), 1 / SMALL);
}

/* The factor from the gradient of sum/nominal to the gradient of sum/weight, clipped. */
static pl_node_t gradient_factor(pl_graph_t *g, const pl_optimizer_t *optimizer,
                                 const pl_model_t *model, double nominal, double clip)
{
    const int64_t at = model->params + 2 * optimizer->objective;
    pl_node_t loss = pl_region_view(g, PL_REGION_GRADS, at, pl_shape(0));
    pl_node_t weight = pl_region_view(g, PL_REGION_GRADS, at + 1, pl_shape(0));
    pl_emit(g, PL_OP_guard, &weight, 1, &(pl_attr_t){.empty = true}, NULL);
    pl_node_t factor = pl_div(g, pl_scalar(g, nominal), weight);
    pl_node_t norm = gradient_norm(g, optimizer, model, factor);
    pl_log(g, "loss", pl_pair(loss, weight), PL_ON_STEP);
    pl_log(g, "grad_norm", pl_pair(norm, pl_scalar(g, 1)), PL_ON_STEP);
    if (model->scaling) {
        pl_scaling_step(g, model, loss, norm);
    } else {
        pl_emit(g, PL_OP_guard, &loss, 1, NULL, NULL);
        pl_emit(g, PL_OP_guard, &norm, 1, NULL, NULL);
    }
    /* The state that a skipped step restores. */
    const pl_shape_t shape = PL_SHAPE(model->state);
    if (model->state)
        pl_assign(g, pl_region_view(g, PL_REGION_STATE_BACKUP, 0, shape),
                  pl_region_view(g, PL_REGION_STATE, 0, shape));
    if (clip <= 0)
        return factor;
    /* torch.nn.utils.clip_grad_norm_ */
    pl_node_t share = pl_div(g, pl_scalar(g, clip), pl_add(g, norm, pl_scalar(g, 1e-6)));
    return pl_mul(g, factor, pl_minimum(g, share, pl_scalar(g, 1)));
}

/* The range's slots begin at element `slot`. */
static void update_range(piece_update_t *s, int64_t from, int64_t slot, pl_shape_t shape,
                         pl_treatment_t how)
{
    pl_graph_t *g = s->g;
    const pl_optimizer_ops_t *ops = s->optimizer->ops;
    const int scalar = PL_SCALAR_GROUPS + how.group * PL_GROUP_SCALARS;
    const pl_stepped_t *stepped = s->optimizer->stepped;
    pl_update_t u = {.lr = pl_step_scalar(g, scalar + PL_SCALAR_RATE),
                     .cycles = stepped[PL_STEPPED_MOMENTUM].option != NULL,
                     .decays = stepped[PL_STEPPED_DECAY].option != NULL};
    if (u.cycles) {
        u.momentum = pl_step_scalar(g, scalar + PL_SCALAR_MOMENTUM);
        u.rest = pl_step_scalar(g, scalar + PL_SCALAR_REST);
    }
    if (u.decays)
        u.decay = pl_step_scalar(g, scalar + PL_SCALAR_DECAY);
    for (int k = 0; k < PL_SCALARS; k++)
        u.scalar[k] = pl_step_scalar(g, scalar + PL_SCALAR_OWN + k);
    u.param = pl_region_view(g, s->has_master ? PL_REGION_MASTER : PL_REGION_PARAMS, from,
                             shape);
    u.grad = pl_mul(g, pl_region_view(g, PL_REGION_GRADS, from, shape), s->factor);
    /* torch.nn.utils.clip_grad_value_: from above, then from below. */
    const double max = s->optimizer->clip_value;
    for (int k = 0; k < 2 && max > 0; k++)
        u.grad = pl_neg(g, pl_minimum(g, u.grad, pl_scalar(g, max)));
    for (int k = 0; k < ops->slots(how.self); k++)
        u.slot[k] = pl_region_view(g, (pl_region_t)(PL_REGION_SLOT0 + k), slot, shape);
    ops->update(g, how.self, &u);
    if (s->has_master)
        pl_assign(g, pl_region_view(g, PL_REGION_PARAMS, from, shape), u.param);
    if (s->optimizer->averages) {
        /* With a share of 1 it is the newest to the bit, with 0 the old. */
        pl_node_t average = pl_region_view(g, PL_REGION_AVERAGE, from, shape);
        pl_node_t share = pl_step_scalar(g, PL_SCALAR_AVERAGE);
        pl_node_t kept = pl_mul(g, average, pl_sub(g, pl_scalar(g, 1), share));
        pl_assign(g, average, pl_add(g, kept, pl_mul(g, u.param, share)));
    }
}

/* A range of neighbours with equal options, up to an offset. */
typedef struct option_range {
    int64_t from;
    pl_treatment_t how;
} option_range_t;

static void range_end(piece_update_t *s, option_range_t *range, int64_t to)
{
    const pl_piece_t *piece = s->piece;
    const int64_t last = piece->first + piece->count,
                  first = range->from > piece->first ? range->from : piece->first,
                  end = to < last ? to : last;
    if (end > first && range->how.self)
        update_range(s, first, piece->slot + first - piece->first, PL_SHAPE(end - first),
                     range->how);
    range->from = to;
}

static void update_all(piece_update_t *s, const pl_model_t *model)
{
    option_range_t range = {0};
    for (int i = 0; i < model->count; i++) {
        const pl_tensor_info_t *t = &model->tensor[i];
        if (t->region != PL_REGION_PARAMS)
            continue;
        const bool ours = pl_is_trained(t, s->optimizer->objective);
        const pl_treatment_t how = ours ? pl_optimizer_treatment(s->optimizer, t)
                                        : (pl_treatment_t){0};
        const bool alone = ours && s->optimizer->ops->alone
                           && s->optimizer->ops->alone(how.self, t->shape);
        if (alone || how.self != range.how.self)
            range_end(s, &range, t->offset);
        range.how = how;
        if (alone) {
            /* An update of a whole tensor cannot be divided by elements. */
            if (s->optimizer->pieces)
                pl_graph_fail(s->g, PL_EUNSUPPORTED,
                              "optimizer \"%s\" updates \"%s\" as a whole, and with this "
                              "strategy each rank updates a partition of the elements: "
                              "use \"ddp\"",
                              s->optimizer->ops->name, t->name);
            else
                update_range(s, t->offset, t->offset, t->shape, how);
            range = (option_range_t){.from = t->offset + t->count};
        }
    }
    range_end(s, &range, model->params);
}

pl_graph_t *pl_optimizer_graph(const pl_optimizer_t *optimizer, const pl_model_t *model,
                               double nominal, double clip, pl_error_t *err)
{
    int64_t from = 0, to = 0;
    if (!pl_trained_range(model, optimizer->objective, &from, &to)) {
        pl_fail(err, PL_EINVAL, "the module has no parameters to optimize");
        return NULL;
    }
    if (pl_optimizer_groups_check(optimizer, model, err) != PL_OK)
        return NULL;
    piece_update_t s = {.g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err),
                        .optimizer = optimizer,
                        .has_master = pl_has_master(model->precision)};
    if (!s.g)
        return NULL;
    pl_scope(s.g, "%s", optimizer->ops->name);
    s.factor = gradient_factor(s.g, optimizer, model, nominal, clip);
    /* Piece by piece: those of a bucket are done before those of the next. */
    const pl_piece_t all = {.count = model->params};
    const int pieces = s.optimizer->pieces;
    for (int k = 0; k == 0 || k < pieces; k++) {
        s.piece = pieces ? &s.optimizer->piece[k] : &all;
        update_all(&s, model);
    }
    pl_scope_end(s.g);
    if (pl_graph_cast(s.g, model->precision, err) != PL_OK) {
        pl_graph_free(s.g);
        return NULL;
    }
    pl_graph_prune(s.g);
    return s.g;
}

/* The first piece at an element or behind it. */
static const pl_piece_t *piece_from(const pl_optimizer_t *optimizer, int64_t from)
{
    const pl_piece_t *first = NULL;
    for (int k = 0; k < optimizer->pieces; k++) {
        const pl_piece_t *piece = &optimizer->piece[k];
        if (piece->count && piece->first >= from
            && (!first || piece->first < first->first))
            first = piece;
    }
    return first;
}

static void norms_put(pl_graph_t *g, int64_t first, int64_t end, pl_node_t norms)
{
    if (end > first)
        pl_assign(g, pl_region_view(g, PL_REGION_NORMS, first, PL_SHAPE(end - first)),
                  pl_broadcast_to(g, norms, PL_SHAPE(end - first)));
}

pl_graph_t *pl_optimizer_norms(const pl_optimizer_t *optimizer, const pl_model_t *model,
                               pl_error_t *err)
{
    const int64_t block = optimizer->block;
    int64_t at = 0;
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err);
    if (!g)
        return NULL;
    const pl_node_t zero = pl_scalar(g, 0);
    for (blocks_t b = {0}; blocks_next(model, optimizer->objective, block, &b);) {
        const pl_piece_t *p = piece_from(optimizer, 0);
        for (; p; p = piece_from(optimizer, p->first + p->count)) {
            const int64_t end = p->first + p->count,
                          from = b.from > p->first ? b.from : p->first,
                          to = b.to < end ? b.to : end;
            if (from >= to)
                continue;
            const int64_t before = block_of(&b, b.from, block),
                          first = b.first + block_of(&b, from, block) - before,
                          behind = b.first + block_of(&b, to - 1, block) - before + 1;
            norms_put(g, at, first, zero);
            norms_put(g, first, behind, blocks_norms(g, &b, block, from, to));
            at = behind;
        }
    }
    norms_put(g, at, optimizer->norms, zero);
    if (pl_graph_check(g, err) == PL_OK
        && pl_graph_cast(g, model->precision, err) == PL_OK)
        return g;
    pl_graph_free(g);
    return NULL;
}
