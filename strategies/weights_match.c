/* weights_match.c - whether weights fit a module, and in what they do not
 *
 * Who loads weights of another run wants to hear at once all that does not fit, not one
 * tensor at a time.  Files of other programs have other names, and some of them matrices
 * on their side: the module alone knows which. */
#include "strategies/weights_match.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/pattern.h"

enum { NAMES_MOST = 3, LIST_ROOM = 160 };

/* ---- matching ---- */

/* "fc1.weight, fc1.bias, … (7)" as far as it goes. */
typedef struct list {
    char text[LIST_ROOM];
    int count;
} list_t;

static void list_add(list_t *list, const char *name)
{
    size_t used = strlen(list->text);
    if (list->count++ < NAMES_MOST)
        snprintf(list->text + used, sizeof list->text - used, "%s%.40s", used ? ", " : "",
                 name);
}

static void list_put(const list_t *list, const char *what, char *text, size_t room)
{
    size_t used = strlen(text);
    if (list->count)
        snprintf(text + used, room - used, "%s%d %s (%s%s)", used ? "; " : "",
                 list->count, what, list->text, list->count > NAMES_MOST ? ", …" : "");
}

static void look_for(const pl_tensor_info_t *t, const pl_weights_t *weights, int near,
                     list_t *missing, list_t *misshaped)
{
    char shaped[LIST_ROOM], have[64], want[64];
    const pl_output_t *found = pl_weights_find(weights, t->region, t->name, near);
    if (!found) {
        list_add(missing, t->name);
    } else if (!pl_same_shape(found->shape, t->shape)) {
        snprintf(shaped, sizeof shaped, "%s %s, here %s", t->name,
                 pl_shape_text(found->shape, have), pl_shape_text(t->shape, want));
        list_add(misshaped, shaped);
    }
}

static bool model_uses(const pl_model_t *model, const char *patterns)
{
    for (int k = 0; k < model->count; k++)
        if (pl_patterns_fit(patterns, model->tensor[k].name))
            return true;
    return false;
}

/* Whether a tensor belongs to one of several sides that the model does without. */
static bool is_of_other_side(const pl_model_t *model, const pl_module_ops_t *module,
                             const char *name)
{
    const pl_module_step_t *step = module->steps;
    while (step && step->name && !pl_patterns_fit(step->parameters, name))
        step++;
    return step && step->name && !model_uses(model, step->parameters);
}

bool pl_weights_fit(const pl_weights_t *weights, const pl_tensor_info_t *tensor)
{
    const pl_output_t *found = pl_weights_find(weights, tensor->region, tensor->name, 0);
    return found && pl_same_shape(found->shape, tensor->shape);
}

int pl_weights_match(const pl_model_t *model, const pl_module_ops_t *module,
                     const pl_weights_t *weights, pl_error_t *err)
{
    list_t missing = {0}, misshaped = {0}, extra = {0};
    char text[PL_ERROR_TEXT] = "";
    for (int k = 0; k < model->count; k++)
        look_for(&model->tensor[k], weights, k, &missing, &misshaped);
    for (int k = 0; k < weights->count; k++)
        if (weights->tensor[k].region < PL_REGION_SLOT0
            && !pl_model_find(model, weights->tensor[k].name)
            && !is_of_other_side(model, module, weights->tensor[k].name))
            list_add(&extra, weights->tensor[k].name);
    list_put(&missing, "missing", text, sizeof text);
    list_put(&misshaped, "of another shape", text, sizeof text);
    list_put(&extra, "that the module does not have", text, sizeof text);
    if (!*text)
        return PL_OK;
    return pl_fail(err, PL_EFORMAT, "the weights are of another module: of %d tensors %s",
                   model->count, text);
}

/* ---- files of other programs ---- */

/* to [columns, rows] = from [rows, columns] on its side. */
static void transpose(const pl_output_t *from, pl_output_t *to)
{
    const int64_t rows = from->shape.dim[0], columns = from->shape.dim[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            if (from->dtype == PL_F64)
                to->wide[c * rows + r] = from->wide[r * columns + c];
            else
                to->data[c * rows + r] = from->data[r * columns + c];
}

static int adopt_tensor(pl_weights_t *into, const pl_output_t *tensor,
                        const pl_adopted_t *as, pl_error_t *err)
{
    if (!as->transposed)
        return pl_weights_add(into, as->name, tensor->shape, tensor->dtype, tensor->data,
                              err);
    if (tensor->shape.rank != 2)
        return pl_fail(err, PL_EFORMAT, "tensor \"%s\" is no matrix", tensor->name);
    int64_t rows = tensor->shape.dim[0], columns = tensor->shape.dim[1];
    int code = pl_weights_add(into, as->name, PL_SHAPE(columns, rows), tensor->dtype,
                              NULL, err);
    if (code == PL_OK)
        transpose(tensor, &into->tensor[into->count - 1]);
    return code;
}

pl_weights_t *pl_weights_adopt(const pl_instance_t *module, pl_weights_t *weights,
                               pl_error_t *err)
{
    const pl_module_ops_t *ops = module->ops;
    if (weights->module || !ops->adopt)
        return pl_object_ref(weights);
    pl_weights_t *into = pl_weights_new(err);
    int code = into ? PL_OK : PL_ENOMEM;
    for (int k = 0; k < weights->count && code == PL_OK; k++) {
        pl_adopted_t as = {0};
        if (ops->adopt(module->self, weights->tensor[k].name, &as))
            code = adopt_tensor(into, &weights->tensor[k], &as, err);
    }
    if (code == PL_OK)
        return into;
    pl_object_unref(into);
    return NULL;
}
