/* weights_match.c - whether weights fit a module, and where they do not
 *
 * One error lists all tensors that do not fit, instead of one at a time. Files of
 * other programs have other names, and some have transposed matrices: only the module
 * knows which. */
#include "strategies/replica/weights_match.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/pattern.h"

enum { ITEMS_MAX = 6, ITEM_TEXT = 240, TEXT_MAX = 400 };

/* ---- matching ---- */

/* Names of tensors, some with their shapes. */
typedef struct list {
    const char *what;                                       /* "missing" */
    char item[ITEMS_MAX][ITEM_TEXT];
    int count, shown;
} list_t;

static void list_add(list_t *list, const char *item)
{
    if (list->count < ITEMS_MAX)
        snprintf(list->item[list->count], ITEM_TEXT, "%s", item);
    list->count++;
}

/* "1 missing (fc1.weight); 7 of another shape (fc2.bias: …, and 6 more)", with `shown`
 * items of each list. */
static size_t lists_put(const list_t list[3], char *text, size_t capacity)
{
    size_t used = 0;
    *text = '\0';
    for (const list_t *l = list; l < list + 3 && used < capacity; l++) {
        if (l->count)
            used += (size_t)snprintf(text + used, capacity - used, "%s%d %s",
                                     used ? "; " : "", l->count, l->what);
        for (int k = 0; k < l->shown && used < capacity; k++)
            used += (size_t)snprintf(text + used, capacity - used, "%s%s",
                                     k ? ", " : " (", l->item[k]);
        if (l->shown && l->shown < l->count && used < capacity)
            used += (size_t)snprintf(text + used, capacity - used, ", and %d more",
                                     l->count - l->shown);
        if (l->shown && used < capacity)
            used += (size_t)snprintf(text + used, capacity - used, ")");
    }
    return used;
}

/* A file of another program may have the matrix transposed. */
static const pl_output_t *transposed_of(const pl_instance_t *module,
                                        const pl_weights_t *file, const char *name)
{
    const pl_module_ops_t *ops = module->ops;
    for (int k = 0; file && !file->module && ops->import_tensor && k < file->count; k++) {
        pl_imported_tensor_t as = {0};
        if (ops->import_tensor(module->self, file->tensor[k].name, &as) && as.transposed
            && !strcmp(as.name, name))
            return &file->tensor[k];
    }
    return NULL;
}

/* Whether a tensor belongs to one of several sides that the model does not need. */
static bool is_of_other_side(const pl_model_t *model, const pl_module_ops_t *module,
                             const char *name)
{
    const pl_module_objective_t *objective = module->objectives;
    while (objective && objective->name
           && !pl_patterns_match(objective->parameters, name))
        objective++;
    bool is_used = false;
    for (int k = 0; k < model->count && objective && objective->name; k++)
        is_used |= pl_patterns_match(objective->parameters, model->tensor[k].name);
    return objective && objective->name && !is_used;
}

bool pl_weights_fit(const pl_weights_t *weights, const pl_tensor_info_t *tensor)
{
    const pl_output_t *found = pl_weights_find(weights, tensor->region, tensor->name, 0);
    return found && pl_same_shape(found->shape, tensor->shape);
}

int pl_weights_match(const pl_model_t *model, const pl_instance_t *module,
                     const pl_weights_t *weights, const pl_weights_t *file,
                     bool allows_more, pl_error_t *err)
{
    list_t list[3] = {{.what = "missing"},
                      {.what = "of another shape"},
                      {.what = "that the module does not have"}};
    char text[TEXT_MAX];
    for (int k = 0; k < model->count; k++) {
        const pl_tensor_info_t *t = &model->tensor[k];
        char item[ITEM_TEXT], have[64], want[64];
        const pl_output_t *found = pl_weights_find(weights, t->region, t->name, k);
        if (!found) {
            list_add(&list[0], t->name);
        } else if (!pl_same_shape(found->shape, t->shape)) {
            const pl_output_t *theirs = transposed_of(module, file, t->name);
            snprintf(item, sizeof item, "%s: %s in the file%s, %s in the module", t->name,
                     pl_shape_text(theirs ? theirs->shape : found->shape, have),
                     theirs ? " (transposed)" : "", pl_shape_text(t->shape, want));
            list_add(&list[1], item);
        }
    }
    for (int k = 0; k < weights->count; k++)
        if (weights->tensor[k].region < PL_REGION_SLOT0
            && !pl_model_find(model, weights->tensor[k].name)
            && !is_of_other_side(model, module->ops, weights->tensor[k].name))
            list_add(&list[2], weights->tensor[k].name);
    if (allows_more && !list[0].count && !list[1].count)
        return PL_OK;
    /* An error has little space: an item is shown completely or counted. */
    for (int k = 0; k < ITEMS_MAX; k++)
        for (list_t *l = list; l < list + 3; l++) {
            const bool more = l->shown == k && k < l->count;
            l->shown += more;
            if (more && lists_put(list, text, sizeof text) >= sizeof text)
                l->shown--;
        }
    lists_put(list, text, sizeof text);
    if (!*text)
        return PL_OK;
    return pl_fail(err, PL_EFORMAT, "the weights are of another module: of %d tensors %s",
                   model->count, text);
}

/* ---- files of other programs ---- */

static int import_tensor(pl_weights_t *into, const pl_output_t *tensor,
                         const pl_imported_tensor_t *as, pl_error_t *err)
{
    if (!as->transposed)
        return pl_weights_add(into, as->name, tensor->shape, tensor->dtype, tensor->data,
                              err);
    if (tensor->shape.rank != 2)
        return pl_fail(err, PL_EFORMAT, "tensor \"%s\" is not a matrix", tensor->name);
    int64_t rows = tensor->shape.dim[0], columns = tensor->shape.dim[1];
    int code = pl_weights_add(into, as->name, PL_SHAPE(columns, rows), tensor->dtype,
                              NULL, err);
    if (code != PL_OK)
        return code;
    const pl_output_t *to = &into->tensor[into->count - 1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            if (tensor->dtype == PL_F64)
                to->wide[c * rows + r] = tensor->wide[r * columns + c];
            else
                to->data[c * rows + r] = tensor->data[r * columns + c];
    return PL_OK;
}

pl_weights_t *pl_weights_import(const pl_instance_t *module, pl_weights_t *weights,
                                pl_error_t *err)
{
    const pl_module_ops_t *ops = module->ops;
    if (weights->module || !ops->import_tensor)
        return pl_object_ref(weights);
    pl_weights_t *into = pl_weights_new(err);
    int code = into ? PL_OK : PL_ENOMEM;
    for (int k = 0; k < weights->count && code == PL_OK; k++) {
        pl_imported_tensor_t as = {0};
        if (ops->import_tensor(module->self, weights->tensor[k].name, &as))
            code = import_tensor(into, &weights->tensor[k], &as, err);
    }
    if (code == PL_OK)
        return into;
    pl_object_unref(into);
    return NULL;
}
