/* manual_steps.c - a manual loop whose program takes the optimizer steps: gradients, what
 * the program does with them, and a step */
#include "actors/api/manual_loop.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/suggestion.h"
#include "tensor/operators.h"

/* 1 + the index of an objective of the module  [NULL: its only one]; or an error. */
static int objective_find(const pl_loop_t *loop, const char *name, pl_error_t *err)
{
    char names[256] = "", text[PL_SUGGESTION_TEXT];
    pl_suggestion_t nearest;
    int code = pl_loop_is_ready(loop, err);
    if (code != PL_OK)
        return code;
    const pl_module_objective_t *of = pl_loop_objectives(loop);
    if (!of && (!name || !*name))
        return 1;
    if (!of)
        return pl_fail(err, PL_EINVAL,
                       "the module has one objective, without a name, and not \"%.64s\": "
                       "give NULL",
                       name);
    pl_suggestion_init(&nearest, name ? name : "");
    for (int k = 0; of[k].name; k++) {
        if (name && !strcmp(of[k].name, name))
            return k + 1;
        const size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", k ? ", " : "", of[k].name);
        pl_suggestion_offer(&nearest, of[k].name);
    }
    return name ? pl_fail(err, PL_EINVAL, "the module has no objective \"%.64s\": %s",
                          name, pl_suggestion_text(&nearest, text))
                : pl_fail(err, PL_EINVAL,
                          "the module has several objectives: name one "
                          "of %s",
                          names);
}

int pl_loop_backward(pl_loop_t *loop, const char *objective, const pl_arrays_t *samples,
                     pl_on_loop_t then, void *user, pl_error_t *err)
{
    if (pl_require(samples, "a batch", err) != PL_OK)
        return PL_EINVAL;
    const int of = objective_find(loop, objective, err);
    return of < 0 ? of : pl_loop_send_batch(loop, PL_TRAIN, of, samples, then, user, err);
}

int pl_loop_step(pl_loop_t *loop, const char *objective, pl_on_loop_t then, void *user,
                 pl_error_t *err)
{
    const int of = objective_find(loop, objective, err);
    return of < 0 ? of : pl_loop_send_batch(loop, PL_TRAIN, of, NULL, then, user, err);
}

int pl_loop_gradients(pl_loop_t *loop, const char *objective, pl_on_loop_t then,
                      void *user, pl_error_t *err)
{
    const int of = objective_find(loop, objective, err);
    return of < 0 ? of : pl_loop_send_gradients(loop, of, NULL, then, user, err);
}

/* A shape of the program: its product fits, and data is there. */
static int gradient_check(const pl_result_tensor_t *t, pl_error_t *err)
{
    int64_t count = 1;
    if (pl_require(t->name, "the name of a parameter", err) != PL_OK
        || pl_require(t->data, "the values of a gradient", err) != PL_OK)
        return PL_EINVAL;
    bool fits = t->shape.rank >= 0 && t->shape.rank <= PL_DIMS && strlen(t->name) < 64;
    for (int d = 0; fits && d < t->shape.rank; d++) {
        fits = t->shape.dim[d] > 0 && count <= INT32_MAX / t->shape.dim[d];
        count *= fits ? t->shape.dim[d] : 1;
    }
    return fits ? PL_OK
                : pl_fail(err, PL_EINVAL,
                          "the gradient of \"%.80s\" has a name or a shape that no "
                          "parameter has",
                          t->name);
}

int pl_loop_set_gradients(pl_loop_t *loop, const char *objective,
                          const pl_result_tensor_t *gradients, int count,
                          pl_on_loop_t then, void *user, pl_error_t *err)
{
    int code = PL_OK;
    if (count < 0)
        code = pl_fail(err, PL_EINVAL, "%d gradients cannot be set", count);
    if (code == PL_OK && count)
        code = pl_require(gradients, "the gradients", err);
    for (int k = 0; k < count && code == PL_OK; k++)
        code = gradient_check(&gradients[k], err);
    const int of = code == PL_OK ? objective_find(loop, objective, err) : code;
    if (of < 0)
        return of;
    pl_weights_t *set = pl_weights_new(err);
    if (!set)
        return PL_ENOMEM;
    for (int k = 0; k < count && code == PL_OK; k++)
        code = pl_weights_add(set, gradients[k].name, gradients[k].shape, PL_F32,
                              gradients[k].data, err);
    if (code == PL_OK)
        return pl_loop_send_gradients(loop, of, set, then, user, err);
    pl_object_unref(set);
    return code;
}
