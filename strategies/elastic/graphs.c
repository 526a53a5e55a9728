/* graphs.c - the graphs of the strategy elastic: folds and sums of micro-shards
 *
 * A row is everything that is summed: gradients and losses | how many micro-shards had
 * samples | state. The sums of this rank's micro-shards lie where they travel from,
 * as far as they are left at the end. */
#include "base/error.h"
#include "strategies/collectives/collective.h"
#include "strategies/collectives/tree.h"
#include "strategies/elastic/elastic.h"
#include "tensor/model.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

/* ---- rows ---- */

static int64_t rounded(int64_t elements)
{
    return (elements + PL_CHUNK_STEP - 1) / PL_CHUNK_STEP * PL_CHUNK_STEP;
}

/* The elements at which the parts of a row begin; and in PL_ELASTIC_LOCAL_SUMS those
 * of the part behind this rank's further sums: the gradients of the earlier batches of
 * the step, and the state before the batch. */
typedef struct row_layout {
    int64_t grads;                                          /* count */
    int64_t present, state, end;
    int64_t step, state_before;
} row_layout_t;

static row_layout_t layout_of(const pl_elastic_t *e)
{
    const pl_replica_t *r = &e->ddp.replica;
    const int local_sums = e->sums_max > e->rank_sums_max ? e->sums_max - e->rank_sums_max
                                                          : 0;
    row_layout_t at = {.grads = r->model->params + 2 * r->objectives};
    at.present = rounded(at.grads);
    at.state = at.present + PL_CHUNK_STEP;
    at.end = at.state + rounded(r->model->state);
    at.step = local_sums * at.end;
    at.state_before = at.step + (e->combines > 1 ? rounded(at.grads) : 0);
    return at;
}

/* A row of a region: the region, and the element it begins at. */
typedef struct region_row {
    int region;
    int64_t at;
} region_row_t;

/* The k-th sum of a rank. */
static region_row_t row_of_rank_sum(const pl_elastic_t *e, int rank, int k)
{
    const int64_t row = layout_of(e).end;
    return (region_row_t){PL_ELASTIC_RANK_SUMS,
                          ((int64_t)rank * e->rank_sums_max + k) * row};
}

/* The sums of this rank lie where they travel from, as many as may be left at the end. */
static region_row_t row_of_sum(const pl_elastic_t *e, int k)
{
    if (k < e->rank_sums_max)
        return row_of_rank_sum(e, (int)e->ddp.replica.rank, k);
    return (region_row_t){PL_ELASTIC_LOCAL_SUMS,
                          (k - e->rank_sums_max) * layout_of(e).end};
}

int pl_elastic_first_fold(const pl_elastic_t *e)
{
    return PL_ELASTIC_COMBINE + e->combines;
}

static pl_node_t row_view(pl_graph_t *g, region_row_t row, int64_t from, int64_t count)
{
    return pl_region_view(g, (pl_region_t)row.region, row.at + from, PL_SHAPE(count));
}

/* ---- graphs ---- */

static pl_node_t state_view(const pl_elastic_t *e, pl_graph_t *g, bool before)
{
    const pl_replica_t *r = &e->ddp.replica;
    return before ? row_view(g,
                             (region_row_t){PL_ELASTIC_LOCAL_SUMS,
                                            layout_of(e).state_before},
                             0, r->model->state)
                  : pl_region_view(g, PL_REGION_STATE, 0, PL_SHAPE(r->model->state));
}

/* Writes a micro-shard's own row, or its sum with those before it, to the place of the
 * first of them. */
static void fold_put(const pl_elastic_t *e, pl_graph_t *g, pl_fold_t fold, int64_t from,
                     pl_node_t own)
{
    const int64_t count = pl_dim(g, own, 0);
    for (int k = fold.there - 1; k >= fold.there - fold.added; k--)
        own = pl_add(g, row_view(g, row_of_sum(e, k), from, count), own);
    pl_assign(g, row_view(g, row_of_sum(e, fold.there - fold.added), from, count), own);
}

/* The next micro-shard begins with the same state as this one. */
static void describe_fold(const pl_elastic_t *e, pl_graph_t *g, pl_fold_t fold)
{
    const pl_replica_t *r = &e->ddp.replica;
    const row_layout_t at = layout_of(e);
    fold_put(e, g, fold, 0, pl_region_view(g, PL_REGION_GRADS, 0, PL_SHAPE(at.grads)));
    fold_put(e, g, fold, at.present,
             pl_reshape(g, pl_step_scalar(g, PL_ELASTIC_PRESENT), PL_SHAPE(1)));
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        /* Of a tensor of rank zero the first micro-shard's counts, of others those of
         * all with samples. */
        if (t->region == PL_REGION_STATE)
            fold_put(e, g, fold, at.state + t->offset,
                     pl_mul(g,
                            pl_region_view(g, PL_REGION_STATE, t->offset,
                                           PL_SHAPE(t->count)),
                            pl_step_scalar(g, t->agree == PL_AGREE_RANK0
                                                  ? PL_ELASTIC_FIRST
                                                  : PL_ELASTIC_PRESENT)));
    }
    if (r->model->state)
        pl_assign(g, state_view(e, g, false), state_view(e, g, true));
}

/* Elements of a node of the tree; if all of them are one rank's, the sum is already
 * there. */
static pl_node_t tree_sum(const pl_elastic_t *e, pl_graph_t *g, pl_micro_range_t node,
                          int64_t from, int64_t count)
{
    const pl_replica_t *r = &e->ddp.replica;
    for (int rank = 0; rank < (int)r->ranks; rank++) {
        pl_micro_sums_t sums;
        pl_micro_sums_of(&sums, (int)r->micro.micro_shards, (int)r->ranks, rank);
        for (int k = 0; k < sums.count; k++)
            if (sums.range[k].first == node.first && sums.range[k].count == node.count)
                return row_view(g, row_of_rank_sum(e, rank, k), from, count);
    }
    const int left = pl_tree_left(node.count);
    const pl_micro_range_t sides[] = {{node.first, left},
                                      {node.first + left, node.count - left}};
    return pl_add(g, tree_sum(e, g, sides[0], from, count),
                  tree_sum(e, g, sides[1], from, count));
}

static void describe_combine(const pl_elastic_t *e, pl_graph_t *g, bool is_first,
                             bool is_last)
{
    const pl_replica_t *r = &e->ddp.replica;
    const pl_micro_range_t all = {0, (int)r->micro.micro_shards};
    const row_layout_t at = layout_of(e);
    const region_row_t step = {PL_ELASTIC_LOCAL_SUMS, at.step};
    pl_node_t sum = tree_sum(e, g, all, 0, at.grads);
    if (!is_first)
        sum = pl_add(g, row_view(g, step, 0, at.grads), sum);
    pl_assign(g,
              is_last ? pl_region_view(g, PL_REGION_GRADS, 0, PL_SHAPE(at.grads))
                      : row_view(g, step, 0, at.grads),
              sum);
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (t->region != PL_REGION_STATE)
            continue;
        sum = tree_sum(e, g, all, at.state + t->offset, t->count);
        if (t->agree == PL_AGREE_MEAN)
            sum = pl_div(g, sum, tree_sum(e, g, all, at.present, 1));
        pl_assign(g, pl_region_view(g, PL_REGION_STATE, t->offset, PL_SHAPE(t->count)),
                  sum);
    }
}

int64_t pl_elastic_region(const pl_replica_t *r, int k)
{
    const pl_elastic_t *e = (const pl_elastic_t *)r;
    const row_layout_t at = layout_of(e);
    switch (PL_REGION_STRATEGY0 + k) {
    case PL_ELASTIC_RANK_SUMS: return (int64_t)r->ranks * e->rank_sums_max * at.end;
    case PL_ELASTIC_LOCAL_SUMS: return at.state_before + rounded(r->model->state);
    default: return 0;
    }
}

pl_graph_t *pl_elastic_describe(pl_replica_t *r, int k, pl_error_t *err)
{
    const pl_elastic_t *e = (pl_elastic_t *)r;
    const int fold = k - pl_elastic_first_fold(e), combine = k - PL_ELASTIC_COMBINE;
    int code = PL_OK;
    if (r->objectives > 1)
        code = pl_fail(err, PL_EUNSUPPORTED,
                       "\"trainer.deterministic\" \"elastic\" trains modules with one "
                       "objective; this one has %d",
                       r->objectives);
    for (int i = 0; i < r->model->count && code == PL_OK; i++)
        if (r->model->tensor[i].region == PL_REGION_STATE
            && r->model->tensor[i].agree == PL_AGREE_NONE)
            code = pl_fail(
                err, PL_EUNSUPPORTED,
                "state \"%s\" differs between ranks (PL_AGREE_NONE), so results would "
                "depend on their number: with \"trainer.deterministic\" \"elastic\" "
                "declare it PL_AGREE_MEAN or PL_AGREE_RANK0",
                r->model->tensor[i].name);
    if (code != PL_OK)
        return NULL;
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err);
    if (!g)
        return NULL;
    if (fold >= 0)
        describe_fold(e, g, e->fold[fold]);
    else if (combine >= 0)
        describe_combine(e, g, !(combine & 1), !(combine & 2));
    else if (r->model->state)
        pl_assign(g, state_view(e, g, true), state_view(e, g, false));
    return pl_graph_finish(g, r->model->precision, err);
}
