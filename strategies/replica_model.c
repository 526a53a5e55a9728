/* replica_model.c - the module of a replica: from the run, and described for people and
 * for metrics of speed
 *
 * The description is of the first graph that was described: that of the batches to train
 * on, where there is one. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"
#include "strategies/replica_parts.h"
#include "tensor/model.h"
#include "tensor/summary.h"

static bool target_is_value(const pl_replica_t *r)
{
    for (int stage = 0; stage <= PL_PREDICT; stage++)
        for (int k = 0; k < r->layout->stage[stage].field_count; k++)
            if (!strcmp(r->layout->stage[stage].field[k].name, "y"))
                return r->layout->stage[stage].field[k].dtype == PL_F32;
    return false;
}

static int module_fail(const pl_replica_t *r, const pl_error_t *why, pl_error_t *err)
{
    const pl_options_t *options = r->job->options;
    if (!strstr(why->text, "needs \"classes\"") || !target_is_value(r))
        return pl_options_fail(err, why->code, options, "module", "%s", why->text);
    const char *name = pl_options_part_name(options, "module");
    return pl_options_fail(err, why->code, options, "module",
                           "module \"%s\" needs \"classes\", but the target is a value, "
                           "and module %s classifies; a module for values is a C "
                           "function, see doc/modules.md",
                           name, name);
}

int pl_replica_bind_module(pl_replica_t *r, pl_error_t *err)
{
    const pl_part_request_t module = {.role = "module",
                                      .path = "module",
                                      .facts = r->facts};
    pl_error_t why = {0};
    const int code = pl_options_part(r->job->options, &module, &r->module, &why);
    return code == PL_OK ? PL_OK : module_fail(r, &why, err);
}

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
