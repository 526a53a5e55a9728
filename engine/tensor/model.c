/* model.c - the named tensors of a module and their positions in flat regions */
#include "tensor/model.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tensor/precision.h"

pl_init_rule_t pl_zeros(void)
{
    return (pl_init_rule_t){.kind = PL_INIT_ZEROS};
}

pl_init_rule_t pl_constant(double value)
{
    return (pl_init_rule_t){.kind = PL_INIT_CONSTANT, .a = value};
}

pl_init_rule_t pl_normal(double deviation)
{
    return (pl_init_rule_t){.kind = PL_INIT_NORMAL, .a = deviation};
}

pl_init_rule_t pl_uniform(double bound)
{
    return (pl_init_rule_t){.kind = PL_INIT_UNIFORM, .a = bound};
}

pl_model_t *pl_model_new(pl_error_t *err)
{
    pl_model_t *model = pl_alloc(sizeof *model);
    if (!model) {
        pl_no_memory(err);
        return NULL;
    }
    model->references = 1;
    model->precision = &pl_precision_32_true;
    return model;
}

pl_model_t *pl_model_ref(pl_model_t *model)
{
    if (model)
        __atomic_add_fetch(&model->references, 1, __ATOMIC_RELAXED);
    return model;
}

void pl_model_free(pl_model_t *model)
{
    if (!model || __atomic_sub_fetch(&model->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    pl_map_release(&model->names);
    pl_free(model->tensor);
    pl_free(model);
}

void pl_model_freeze(pl_model_t *model)
{
    model->frozen = true;
}

const pl_tensor_info_t *pl_model_find(const pl_model_t *model, const char *name)
{
    intptr_t there = (intptr_t)pl_map_get(&model->names, pl_hash_text(name) | 1);
    while (there && strcmp(model->tensor[there - 1].name, name))
        there = model->tensor[there - 1].same_hash;
    return there ? &model->tensor[there - 1] : NULL;
}

const pl_tensor_info_t *pl_model_add(pl_model_t *model, const pl_tensor_info_t *tensor,
                                     pl_error_t *err)
{
    int64_t *end = tensor->region == PL_REGION_PARAMS ? &model->params : &model->state;
    if (model->frozen) {
        pl_fail(err, PL_ENOTFOUND,
                "%s is not one of the model's tensors, which the training step "
                "determines: describe it in every stage or leave it out of this one",
                tensor->name);
        return NULL;
    }
    char text[64];                         /* names that a file of weights cannot store */
    if (!pl_utf8_ok(tensor->name, strlen(tensor->name))) {
        pl_fail(err, PL_EINVAL, "the name \"%s\" is not UTF-8, so files cannot store it",
                pl_utf8_show(tensor->name, text, sizeof text));
        return NULL;
    }
    if (!strcmp(tensor->name, "__metadata__")) {
        pl_fail(err, PL_EINVAL,
                "a tensor cannot be named %s: files of weights use that name themselves",
                tensor->name);
        return NULL;
    }
    int64_t count = 1, next;
    for (int i = 0; i < tensor->shape.rank; i++)
        if (i == PL_DIMS || tensor->shape.dim[i] < 1
            || __builtin_mul_overflow(count, tensor->shape.dim[i], &count)) {
            pl_fail(err, PL_EINVAL, "%s cannot have shape %s", tensor->name,
                    pl_shape_text(tensor->shape, text));
            return NULL;
        }
    if (__builtin_add_overflow(*end, count, &next)
        || next > INT64_MAX / 8 - PL_REGION_ALIGN) {
        pl_fail(err, PL_EINVAL, "%s is too large", tensor->name);
        return NULL;
    }
    if (PL_GROW(model->tensor, model->count, model->capacity) != PL_OK) {
        pl_no_memory(err);
        return NULL;
    }
    const uint64_t key = pl_hash_text(tensor->name) | 1;
    const int same_hash = (int)(intptr_t)pl_map_get(&model->names, key);
    if (pl_map_put(&model->names, key, (void *)((intptr_t)model->count + 1)) != PL_OK) {
        pl_no_memory(err);
        return NULL;
    }
    pl_tensor_info_t *added = &model->tensor[model->count++];
    *added = *tensor;
    added->same_hash = same_hash;
    added->offset = *end;
    added->count = count;
    *end = (next + PL_REGION_ALIGN - 1) / PL_REGION_ALIGN * PL_REGION_ALIGN;
    return added;
}

static double first_value(const pl_tensor_info_t *tensor, uint64_t key, int64_t i)
{
    const double a = tensor->init.a;
    switch (tensor->init.kind) {
    case PL_INIT_ZEROS: return 0;
    case PL_INIT_CONSTANT: return a;
    case PL_INIT_NORMAL: return a * pl_random_normal(key, (uint64_t)i);
    case PL_INIT_UNIFORM: return a * (2 * pl_random_uniform(key, (uint64_t)i) - 1);
    }
    return 0;
}

void pl_model_init(const pl_model_t *model, pl_region_t region, uint64_t seed,
                   pl_dtype_t dtype, void *data)
{
    const int64_t size = region == PL_REGION_PARAMS ? model->params : model->state;
    if (size)
        memset(data, 0,
               (size_t)size * (dtype == PL_F64 ? sizeof(double) : sizeof(float)));
    for (int k = 0; k < model->count; k++) {
        const pl_tensor_info_t *tensor = &model->tensor[k];
        const uint64_t key = pl_mix(seed, pl_hash_text(tensor->name));
        for (int64_t i = 0; tensor->region == region && i < tensor->count; i++)
            if (dtype == PL_F64)
                ((double *)data)[tensor->offset + i] = first_value(tensor, key, i);
            else
                ((float *)data)[tensor->offset + i] = (float)first_value(tensor, key, i);
    }
}
