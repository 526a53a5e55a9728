/* groups.c - the options of an optimizer: one struct for each group of parameters, what
 * schedules set in them, and the scalars that a step takes from them
 *
 * A group has the optimizer's options, with some of its own instead. If only matrices
 * decay, each group without a weight decay of its own has a second struct without
 * decay. */
#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/suggestion.h"
#include "base/option.h"
#include "base/pattern.h"
#include "base/run_defaults.h"
#include "strategies/optimizers/optimizer.h"

_Static_assert(PL_SCALAR_GROUPS + (PL_GROUPS_MAX + 1) * PL_GROUP_SCALARS
                   <= PL_STEP_SCALARS,
               "there are scalars for all");

typedef struct pl_optimizer_memory {
    pl_optimizer_options_t options;
    pl_binding_t *binding;
    json_t *groups;                             /* `match` of the groups points into it */
    pl_group_t group[PL_GROUPS_MAX];
    pl_instance_t instance[2 * (PL_GROUPS_MAX + 1)];
    int instance_count;
} optimizer_memory_t;

/* ---- Making ---- */

static const void *instance_add(optimizer_memory_t *m, const json_t *value,
                                pl_optimizer_t *to, pl_error_t *err)
{
    const pl_instance_request_t request = {.role = "optimizer", .value = value};
    pl_instance_t *made = &m->instance[m->instance_count];
    if (pl_instance_make(made, &request, err) != PL_OK)
        return NULL;
    m->instance_count++;
    to->ops = made->ops;
    return made->self;
}

/* Options of the optimizer, overridden by those of a group  [none]. */
static int group_make(optimizer_memory_t *m, const json_t *base, const json_t *own,
                      pl_optimizer_t *to, pl_group_t *group, pl_error_t *err)
{
    json_t *value = pl_json_copy(base);
    if (!value || (own && json_object_update(value, (json_t *)own) != 0)) {
        json_decref(value);
        return pl_no_memory(err);
    }
    json_object_del(value, "match");
    group->match = json_string_value(json_object_get(own, "match"));
    group->self = instance_add(m, value, to, err);
    int code = group->self ? PL_OK : err->code;
    /* The struct for vectors: the same without weight decay. */
    const bool has_vectors = m->options.decay == PL_DECAY_MATRICES
                             && !json_object_get(own, "weight_decay");
    if (code == PL_OK && has_vectors && !pl_option_find(to->ops->options, "weight_decay"))
        code = pl_fail(err, PL_EINVAL,
                       "optimizer \"%s\" has no weight_decay: remove \"decay\"",
                       to->ops->name);
    if (code == PL_OK && has_vectors
        && json_object_set_new(value, "weight_decay", json_real(0)) != 0)
        code = pl_no_memory(err);
    if (code == PL_OK && has_vectors
        && !(group->vectors = instance_add(m, value, to, err)))
        code = err->code;
    json_decref(value);
    return code;
}

pl_optimizer_t *pl_optimizer_new(const pl_options_t *o, const char *path, pl_error_t *err)
{
    pl_error_t why = {0};
    if (pl_options_needs(o, "optimizer", path, err) != PL_OK)
        return NULL;
    pl_optimizer_t *made = pl_alloc(sizeof *made);
    optimizer_memory_t *m = pl_alloc(sizeof *m);
    json_t *base = pl_component_without(pl_options_value(o, path), pl_optimizer_table,
                                        &why);
    int code = made && m && base ? PL_OK : pl_no_memory(&why);
    if (code == PL_OK) {
        made->memory = m;
        code = pl_options_general(o, path, pl_optimizer_table, &m->options, &m->binding,
                                  &why);
    } else {
        pl_free(m);
    }
    if (code == PL_OK
        && !(m->groups = pl_json_value(m->options.groups, strlen(m->options.groups),
                                       &why)))
        code = why.code;
    if (code == PL_OK && json_array_size(m->groups) > PL_GROUPS_MAX)
        code = pl_fail(&why, PL_EINVAL, "\"groups\" can have at most %d entries",
                       PL_GROUPS_MAX);
    if (code == PL_OK) {
        pl_group_t rest = {0};
        code = group_make(m, base, NULL, made, &rest, &why);
        made->self = rest.self;
        made->vectors = rest.vectors;
        made->group = m->group;
    }
    for (size_t k = 0; code == PL_OK && k < json_array_size(m->groups); k++)
        code = group_make(m, base, json_array_get(m->groups, k), made,
                          &m->group[made->group_count++], &why);
    json_decref(base);
    if (code == PL_OK)
        return made;
    pl_optimizer_free(made);
    pl_fail(err, code, "%s", why.text);
    return NULL;
}

void pl_optimizer_free(pl_optimizer_t *optimizer)
{
    optimizer_memory_t *m = optimizer ? optimizer->memory : NULL;
    for (int k = 0; m && k < m->instance_count; k++)
        pl_instance_release(&m->instance[k]);
    if (m) {
        pl_binding_free(m->binding);
        json_decref(m->groups);
    }
    pl_free(m);
    pl_free(optimizer);
}

/* ---- Options of a group ---- */

static const void *self_of(const pl_optimizer_t *optimizer, int group)
{
    return group < optimizer->group_count ? optimizer->group[group].self
                                          : optimizer->self;
}

double pl_optimizer_lr(const pl_optimizer_t *optimizer, int group)
{
    const pl_option_t *lr = optimizer->ops->options;
    assert(lr && lr->type == PL_OPTION_FLOAT && !strcmp(lr->name, "lr"));
    return *(const double *)((const char *)self_of(optimizer, group) + lr->offset);
}

int pl_optimizer_slots(const pl_optimizer_t *optimizer)
{
    int max = 0;
    for (int k = 0; k <= optimizer->group_count; k++) {
        int slots = optimizer->ops->slots(self_of(optimizer, k));
        max = slots > max ? slots : max;
    }
    return max;
}

static double *option_of(const pl_optimizer_t *optimizer, pl_stepped_kind_t kind,
                         int group)
{
    return (double *)((char *)self_of(optimizer, group)
                      + optimizer->stepped[kind].option->offset);
}

double pl_optimizer_stepped(const pl_optimizer_t *optimizer, pl_stepped_kind_t kind,
                            const pl_scheduled_t *scheduled, int group)
{
    return optimizer->stepped[kind].is_factor
               ? *option_of(optimizer, kind, group) * scheduled->factor[kind]
               : scheduled->momentum;
}

/* ---- What schedules set ---- */

/* The option that a schedule multiplies: not 0 in all groups. */
static int option_find(const pl_optimizer_t *optimizer, pl_stepped_kind_t kind,
                       const char *section, const pl_option_t **option, pl_error_t *err)
{
    const pl_optimizer_ops_t *ops = optimizer->ops;
    const bool is_decay = kind == PL_STEPPED_DECAY;
    const char *name = is_decay ? ops->weight_decay : ops->momentum;
    const optimizer_memory_t *m = optimizer->memory;
    bool is_used = false;
    *option = name ? pl_option_find(ops->options, name) : NULL;
    if (!*option)
        return pl_fail(err, PL_EINVAL,
                       "optimizer \"%s\" has no %s that a schedule could set: remove "
                       "\"%s\"",
                       ops->name, is_decay ? "weight decay" : "momentum", section);
    for (int k = 0; k < m->instance_count; k++)
        is_used |=
            *(const double *)((const char *)m->instance[k].self + (*option)->offset) > 0;
    if (!is_used)
        return pl_fail(err, PL_EINVAL,
                       "\"%s\" multiplies \"%s\" of optimizer \"%s\", which is 0: set it "
                       "to the value where the factor is 1",
                       section, name, ops->name);
    return PL_OK;
}

static int factor_set(pl_optimizer_t *optimizer, pl_stepped_kind_t kind,
                      const pl_scheduled_t *scheduled, pl_error_t *err)
{
    static const char *const sections[] = {"momentum_scheduler",
                                           "weight_decay_scheduler"};
    pl_stepped_t *stepped = &optimizer->stepped[kind];
    const char *section = sections[kind];
    const double factor = scheduled->factor[kind];
    if (isnan(factor))
        return PL_OK;
    if (stepped->option && !stepped->is_factor)
        return pl_fail(err, PL_EINVAL,
                       "\"scheduler\" cycles the momentum, which \"%s\" sets too: remove "
                       "one of them, or set scheduler.cycle_momentum to false",
                       section);
    if (!stepped->option
        && option_find(optimizer, kind, section, &stepped->option, err) != PL_OK)
        return err->code;
    stepped->is_factor = true;
    for (int k = 0; k <= optimizer->group_count; k++) {
        const double value = pl_optimizer_stepped(optimizer, kind, scheduled, k);
        if (!(value >= 0)
            || (kind == PL_STEPPED_MOMENTUM ? value >= 1 : !isfinite(value)))
            return pl_fail(err, PL_EINVAL,
                           "\"%s\" sets \"%s\" of optimizer \"%s\" to %g, and it must be "
                           "%s: the factor is %g",
                           section, stepped->option->name, optimizer->ops->name, value,
                           kind == PL_STEPPED_MOMENTUM ? "from 0 to below 1"
                                                       : "0 or more",
                           factor);
    }
    return PL_OK;
}

int pl_optimizer_schedule(pl_optimizer_t *optimizer, const pl_scheduled_t *scheduled,
                          pl_error_t *err)
{
    const char *name = optimizer->ops->momentum;
    const optimizer_memory_t *m = optimizer->memory;
    pl_error_t why = {0};
    if (!isnan(scheduled->momentum)) {
        const pl_option_t *option = name ? pl_option_find(optimizer->ops->options, name)
                                         : NULL;
        if (!option)
            return pl_fail(err, PL_EINVAL,
                           "the schedule cycles the momentum, and optimizer \"%s\" has "
                           "none: set scheduler.cycle_momentum to false",
                           optimizer->ops->name);
        /* The optimizer may need a slot only where its momentum is not 0. */
        for (int k = 0; k < m->instance_count; k++)
            memcpy((char *)m->instance[k].self + option->offset, &scheduled->momentum,
                   sizeof(double));
        optimizer->stepped[PL_STEPPED_MOMENTUM] = (pl_stepped_t){.option = option};
    }
    int code = PL_OK;
    for (pl_stepped_kind_t k = 0; k < PL_STEPPED && code == PL_OK; k++)
        code = factor_set(optimizer, k, scheduled, &why);
    optimizer->scheduled = *scheduled;
    return code == PL_OK ? PL_OK : pl_fail(err, code, "%s", why.text);
}

/* ---- The scalars of a step ---- */

void pl_optimizer_scalars(const pl_optimizer_t *optimizer, double factor, uint64_t step,
                          double *scalar)
{
    for (int k = 0; k <= optimizer->group_count; k++) {
        double *own = scalar + PL_SCALAR_GROUPS + k * PL_GROUP_SCALARS,
               value[PL_STEPPED] = {0}, kept[PL_STEPPED];
        own[PL_SCALAR_RATE] = pl_optimizer_lr(optimizer, k) * factor;
        /* scalars() finds this step's values in the options. */
        for (pl_stepped_kind_t i = 0; i < PL_STEPPED; i++)
            if (optimizer->stepped[i].option) {
                value[i] = pl_optimizer_stepped(optimizer, i, &optimizer->scheduled, k);
                kept[i] = *option_of(optimizer, i, k);
                *option_of(optimizer, i, k) = value[i];
            }
        if (optimizer->ops->scalars)
            optimizer->ops->scalars(self_of(optimizer, k), step, own + PL_SCALAR_OWN);
        for (pl_stepped_kind_t i = 0; i < PL_STEPPED; i++)
            if (optimizer->stepped[i].option)
                *option_of(optimizer, i, k) = kept[i];
        if (optimizer->stepped[PL_STEPPED_MOMENTUM].option) {
            own[PL_SCALAR_MOMENTUM] = value[PL_STEPPED_MOMENTUM];
            own[PL_SCALAR_REST] = 1 - value[PL_STEPPED_MOMENTUM];
        }
        own[PL_SCALAR_DECAY] = value[PL_STEPPED_DECAY];
    }
}

/* ---- Whose a parameter is ---- */

static int group_of(const pl_optimizer_t *optimizer, const pl_tensor_info_t *parameter)
{
    int k = 0;
    while (k < optimizer->group_count
           && !pl_patterns_match(optimizer->group[k].match, parameter->name))
        k++;
    return k;
}

pl_treatment_t pl_optimizer_treatment(const pl_optimizer_t *optimizer,
                                      const pl_tensor_info_t *parameter)
{
    const int k = group_of(optimizer, parameter);
    const pl_group_t rest = {.self = optimizer->self, .vectors = optimizer->vectors};
    const pl_group_t *group = k < optimizer->group_count ? &optimizer->group[k] : &rest;
    const bool vector = parameter->shape.rank < 2 && group->vectors;
    return (pl_treatment_t){k, vector ? group->vectors : group->self};
}

int pl_optimizer_groups_check(const pl_optimizer_t *optimizer, const pl_model_t *model,
                              pl_error_t *err)
{
    char text[PL_SUGGESTION_TEXT];
    pl_suggestion_t nearest;
    bool found[PL_GROUPS_MAX + 1] = {false};
    int empty = 0;
    for (int i = 0; i < model->count; i++)
        if (model->tensor[i].region == PL_REGION_PARAMS)
            found[group_of(optimizer, &model->tensor[i])] = true;
    while (empty < optimizer->group_count && found[empty])
        empty++;
    if (empty == optimizer->group_count)
        return PL_OK;
    const char *match = optimizer->group[empty].match;
    pl_suggestion_init(&nearest, match);
    for (int i = 0; i < model->count; i++) {
        const pl_tensor_info_t *t = &model->tensor[i];
        if (t->region == PL_REGION_PARAMS && pl_patterns_match(match, t->name))
            return pl_fail(
                err, PL_EINVAL,
                "groups.%d: earlier groups match everything that \"%s\" matches, and the "
                "first match counts: change the order of the groups",
                empty, match);
        if (t->region == PL_REGION_PARAMS)
            pl_suggestion_offer(&nearest, t->name);
    }
    return pl_fail(err, PL_EINVAL, "groups.%d: \"%s\" matches no parameter: %s", empty,
                   match, pl_suggestion_text(&nearest, text));
}
