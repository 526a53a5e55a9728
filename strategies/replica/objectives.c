/* objectives.c - the objectives of a module: which parameters each trains, with which
 * optimizer, how often
 *
 * Most modules have one objective, which trains all parameters. If there are several,
 * each has parameters of its own, so that gradients, slots and norms of one never
 * touch those of another. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "base/suggestion.h"
#include "base/options.h"
#include "base/pattern.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"

/* ---- what the run says of each ---- */

/* The path of an objective's component in the run file: one for all, or one each. */
static const char *component_path(const pl_replica_t *r,
                                  const pl_module_objective_t *objective,
                                  const char *section, char path[96])
{
    if (!objective || !pl_is_by_objective(pl_options_value(r->job->options, section)))
        return section;
    snprintf(path, 96, "%s.%s", section, objective->name);
    return path;
}

static int objective_bind(pl_replica_t *r, const pl_module_objective_t *table,
                          pl_error_t *err)
{
    char path[96];
    if (r->objectives == PL_OBJECTIVES)
        return pl_fail(err, PL_EINVAL, "the module has more than %d objectives",
                       PL_OBJECTIVES);
    pl_replica_objective_t *objective = &r->objective[r->objectives++];
    *objective = (pl_replica_objective_t){.table = table, .every = 1};
    if (table && table->every_n_steps)
        objective->every = table->every_n_steps(r->module.self);
    if (objective->every < 1)
        return pl_fail(err, PL_EINVAL,
                       "objective \"%s\" cannot be trained at every %lld-th optimizer "
                       "step: its every_n_steps must be 1 or more",
                       table->name, (long long)objective->every);
    objective->optimizer = pl_optimizer_new(r->job->options,
                                            component_path(r, table, "optimizer", path),
                                            err);
    if (!objective->optimizer)
        return err->code;
    objective->optimizer->objective = r->objectives - 1;
    objective->rate.factor = 1;
    int code = PL_OK;
    for (int k = 0; k < PL_SCHEDULES && code == PL_OK; k++) {
        const pl_component_request_t schedule = {
            .role = "scheduler",
            .path = component_path(r, table, pl_schedule_names[k].section, path),
            .automatic = "constant"};
        if (k == PL_SCHEDULE_RATE || pl_options_value(r->job->options, schedule.path))
            code = pl_options_component(r->job->options, &schedule,
                                        &objective->schedule[k], err);
    }
    if (code != PL_OK)
        return code;
    const pl_scheduled_t first =
        pl_replica_scheduled(r, r->objectives - 1, &(pl_train_batch_t){.global_step = 1});
    return pl_optimizer_schedule(objective->optimizer, &first, err);
}

int pl_replica_bind_objectives(pl_replica_t *r, pl_error_t *err)
{
    const pl_module_objective_t *table =
        ((const pl_module_ops_t *)r->module.ops)->objectives;
    int code = table ? PL_OK : objective_bind(r, NULL, err);
    for (; table && table->name && code == PL_OK; table++)
        code = objective_bind(r, table, err);
    return code;
}

/* ---- in checkpoints: {"optimizer_steps": [made, …]}, one for each objective ---- */

int pl_replica_save_counts(const pl_replica_t *r, json_t *into, pl_error_t *err)
{
    json_t *counts = json_array();
    int failed = counts ? 0 : -1;
    for (int k = 0; k < r->objectives && !failed; k++)
        failed =
            r->objective[k].made == PL_STEPS_UNKNOWN
                ? 0
                : json_array_append_new(counts,
                                        json_integer((json_int_t)r->objective[k].made));
    if (!failed && json_array_size(counts))
        failed = json_object_set(into, "optimizer_steps", counts);
    json_decref(counts);
    return failed ? pl_no_memory(err) : PL_OK;
}

int pl_replica_restore_counts(pl_replica_t *r, const json_t *from, pl_error_t *err)
{
    const json_t *counts = json_object_get(from, "optimizer_steps");
    for (int k = 0; k < r->objectives; k++) {
        const json_t *made = json_array_get(counts, (size_t)k);
        if (counts && !(json_is_integer(made) && json_integer_value(made) >= 0))
            return pl_fail(err, PL_EFORMAT,
                           "the optimizer_steps of the checkpoint are not a count for "
                           "each of the module's %d objectives",
                           r->objectives);
        r->objective[k].made = r->objective[k].sent =
            counts ? (uint64_t)json_integer_value(made) : PL_STEPS_UNKNOWN;
    }
    return PL_OK;
}

/* ---- whose parameters ---- */

/* Each pattern must fit some parameter: one that does not is probably misspelt. */
int pl_replica_check_patterns(const pl_model_t *model, const char *patterns,
                              const char *whose, pl_error_t *err)
{
    size_t length;
    for (const char *p; (p = pl_pattern_next(&patterns, &length));) {
        char word[64], text[PL_SUGGESTION_TEXT];
        pl_suggestion_t nearest;
        bool fits = false;
        snprintf(word, sizeof word, "%.*s", (int)length, p);
        pl_suggestion_init(&nearest, word);
        for (int i = 0; i < model->count && !fits; i++) {
            if (model->tensor[i].region != PL_REGION_PARAMS)
                continue;
            fits = pl_pattern_matches(p, length, model->tensor[i].name);
            pl_suggestion_offer(&nearest, model->tensor[i].name);
        }
        if (!fits)
            return pl_fail(err, PL_EINVAL, "\"%s\" of %s matches no parameter: %s", word,
                           whose, pl_suggestion_text(&nearest, text));
    }
    return PL_OK;
}

static int tensor_divide(const pl_replica_t *r, pl_tensor_info_t *tensor, pl_error_t *err)
{
    int objective = -1;
    for (int k = 0; k < r->objectives; k++) {
        if (!pl_patterns_match(r->objective[k].table->parameters, tensor->name))
            continue;
        if (objective >= 0)
            return pl_fail(err, PL_EINVAL,
                           "parameter \"%s\" is trained by two objectives, \"%s\" and "
                           "\"%s\": it can belong to only one",
                           tensor->name, r->objective[objective].table->name,
                           r->objective[k].table->name);
        objective = k;
    }
    if (objective < 0)
        return pl_fail(err, PL_EINVAL,
                       "no objective of the module trains parameter \"%s\"",
                       tensor->name);
    tensor->objective = objective;
    return PL_OK;
}

int pl_replica_divide(pl_replica_t *r, pl_error_t *err)
{
    int code = PL_OK;
    if (!r->objectives || !r->objective[0].table)
        return PL_OK;                                       /* one objective trains all */
    for (int k = 0; k < r->objectives && code == PL_OK; k++) {
        char whose[64];
        snprintf(whose, sizeof whose, "objective \"%s\"", r->objective[k].table->name);
        code = pl_replica_check_patterns(r->model, r->objective[k].table->parameters,
                                         whose, err);
    }
    for (int i = 0; i < r->model->count && code == PL_OK; i++)
        if (r->model->tensor[i].region == PL_REGION_PARAMS)
            code = tensor_divide(r, &r->model->tensor[i], err);
    return code;
}

int pl_replica_slots(const pl_replica_t *r)
{
    int max = 0;
    for (int k = 0; k < r->objectives; k++) {
        int slots = pl_optimizer_slots(r->objective[k].optimizer);
        max = slots > max ? slots : max;
    }
    return max + (r->sync_hooks ? r->sync_hooks->slots : 0);
}

bool pl_replica_own_piece(const pl_replica_t *r, int k, pl_piece_t *piece)
{
    piece->slot = k ? piece->slot + piece->count : 0;
    if (pl_replica_is_partitioned(r))
        return r->sync_hooks->partition(r, k, &piece->first, &piece->count);
    piece->first = 0;
    piece->count = r->model->params;
    return k == 0;
}

int64_t pl_replica_partition(const pl_replica_t *r)
{
    pl_piece_t piece = {0};
    int64_t count = 0;
    for (int k = 0; pl_replica_own_piece(r, k, &piece); k++)
        count += piece.count;
    return count;
}
