/* run_graph.c - the graph that a run file describes, without a run
 *
 * Shapes follow from the data, so the training data is opened, on the caller's thread.
 * The training step is described and never computed: no accelerator is needed. */
#include <string.h>

#include "actors/connectors/data_loaders.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/options.h"
#include "runtime/payload.h"
#include "tensor/model.h"

/* The training data of the run, open, or NULL.  An error says which key names it. */
static pl_dataset_t *data_open(pl_data_loaders_t *loaders, pl_error_t *err)
{
    pl_error_t why = {0};
    if (pl_data_loaders_prepare(loaders, PL_TRAIN, 0, "", err) != PL_OK)
        return NULL;
    pl_dataset_t *dataset = loaders->dataset[PL_TRAIN];
    if (pl_dataset_open(dataset, &why) == PL_OK)
        return dataset;
    pl_data_loaders_error(loaders, dataset, &why, err);
    return NULL;
}

/* Every objective of the module in one graph would share names of metrics, so a module
 * that has several shows the objective that is asked for. */
static int describe(pl_graph_t *g, const pl_instance_t *module, int objective,
                    pl_error_t *err)
{
    const pl_module_ops_t *ops = module->ops;
    g->objective = objective;
    if (ops->objectives)
        ops->objectives[objective].describe(g, module->self);
    else
        ops->step(g, module->self, PL_TRAIN);
    if (pl_graph_check(g, err) == PL_OK)
        return PL_OK;
    return pl_error_prefix(err, "module %s", ops->name);
}

/* Adds {"step_bytes": …, "step_bytes_kept": …} to the JSON of a graph with checkpoints:
 * with them and without, of graphs that are described like g. */
static json_t *memory_add(json_t *json, const pl_graph_t *g, const pl_instance_t *module,
                          pl_error_t *err)
{
    for (int k = 0; k < 2 && g->checkpoints && json; k++) {
        double bytes = 0;
        pl_graph_t *own = pl_graph_new(g->model, PL_TRAIN, g->field, g->field_count,
                                       g->batch_size, err);
        int code = own ? describe(own, module, g->objective, err) : PL_ENOMEM;
        if (code == PL_OK) {
            own->ignores_checkpoints = k == 1;
            code = pl_graph_step_bytes(own, NULL, &bytes, err);
        }
        pl_graph_free(own);
        if (code == PL_OK)
            json = pl_json_with(json, k ? "step_bytes_kept" : "step_bytes",
                                json_real(bytes));
        else
            json = (json_decref(json), NULL);
    }
    return json;
}

/* The graph of each objective, under its name; of one step alone "". */
static json_t *graphs_json(const pl_job_t *job, const pl_dataset_t *dataset,
                           const pl_instance_t *module, pl_error_t *err)
{
    const pl_module_ops_t *ops = module->ops;
    const int fields = dataset->info.field_count;
    json_t *graphs = json_object();
    pl_field_t field[PL_FIELDS];
    int code = PL_OK;
    memcpy(field, dataset->info.field, (size_t)fields * sizeof *field);
    for (int k = 0; k < fields; k++)
        if (pl_varies(&field[k]))
            field[k].shape.dim[0] = dataset->longest;
    for (int k = 0; code == PL_OK && (k == 0 || ops->objectives) && k < PL_OBJECTIVES
                    && (!ops->objectives || ops->objectives[k].name);
         k++) {
        pl_model_t *model = pl_model_new(err);
        pl_graph_t *g = model ? pl_graph_new(model, PL_TRAIN, field, fields,
                                             job->data->batch_size, err)
                              : NULL;
        code = g ? describe(g, module, k, err) : PL_ENOMEM;
        json_t *one = code == PL_OK ? pl_graph_json(g, model, err) : NULL;
        one = one ? memory_add(one, g, module, err) : NULL;
        if (code == PL_OK && !one)
            code = err->code;
        if (code == PL_OK)
            graphs = pl_json_with(graphs, ops->objectives ? ops->objectives[k].name : "",
                                  one);
        if (code == PL_OK && !graphs)
            code = pl_no_memory(err);
        pl_graph_free(g);
        pl_model_free(model);
    }
    if (code == PL_OK)
        return graphs;
    json_decref(graphs);
    return NULL;
}

char *pl_run_graph(const pl_options_t *options, pl_error_t *err)
{
    pl_error_t local;
    pl_instance_t module = {0};
    char *text = NULL;
    if (!err)
        err = &local;
    if (pl_require(options, "options", err) != PL_OK
        || pl_options_check(options, err) != PL_OK)
        return NULL;
    pl_job_t *job = pl_job_new(options, PL_TRAIN, err);
    if (!job)
        return NULL;
    pl_data_loaders_t loaders = {.job = job, .stage = PL_TRAIN};
    pl_dataset_t *dataset = data_open(&loaders, err);
    const pl_component_request_t request = {.role = "module",
                                            .path = "module",
                                            .data_info = dataset ? dataset->info.data_info
                                                                 : NULL};
    if (dataset && pl_options_component(options, &request, &module, err) == PL_OK) {
        json_t *graphs = graphs_json(job, dataset, &module, err);
        text = graphs ? pl_json_to_text(graphs, err) : NULL;
    }
    pl_instance_release(&module);
    pl_data_loaders_release(&loaders);
    pl_object_unref(job);
    return text;
}
