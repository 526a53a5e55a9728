/* replica_model.c - what a replica says of its module, for people and for figures of
 * speed
 *
 * Of the first graph that was described: that of the batches to train on, where there is
 * one. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "strategies/replica_parts.h"
#include "tensor/model.h"
#include "tensor/summary.h"

static int64_t elements_of(const pl_replica_t *r, pl_region_t region)
{
    int64_t sum = 0;
    for (int k = 0; k < r->model->count; k++)
        if (r->model->tensor[k].region == region)
            sum += r->model->tensor[k].count;
    return sum;
}

static int64_t frozen_elements(const pl_replica_t *r)
{
    int64_t sum = 0;
    for (int k = 0; k < r->model->count; k++)
        if (r->model->tensor[k].frozen)
            sum += r->model->tensor[k].count;
    return sum;
}

/* Of samples that are sequences of whole numbers: how long they are; otherwise 0. */
static int64_t sample_tokens(const pl_graph_t *g)
{
    for (int k = 0; k < g->field_count; k++)
        if (g->field[k].dtype != PL_F32 && g->field[k].shape.rank == 1)
            return g->field[k].shape.dim[0];
    return 0;
}

int pl_replica_tell_model(pl_replica_t *r, const pl_graph_t *g, pl_error_t *err)
{
    json_t *layers = pl_graph_layers(g, r->model, err);
    if (!layers)
        return err->code;
    json_t *told = json_pack("{s:o, s:I, s:I, s:I, s:f, s:I}", "layers", layers,
                             "parameters", (json_int_t)elements_of(r, PL_REGION_PARAMS),
                             "frozen", (json_int_t)frozen_elements(r), "state",
                             (json_int_t)elements_of(r, PL_REGION_STATE), "train_flops",
                             3 * pl_graph_flops(g) / (double)g->batch_size, "tokens",
                             (json_int_t)sample_tokens(g));
    r->told = told ? pl_json_write(told, PL_JSON_COMPACT) : NULL;
    json_decref(told);
    return r->told ? PL_OK : pl_no_memory(err);
}
