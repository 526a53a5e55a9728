/* forms.c - the operators of graphs as people write them, for help */
#include <stdio.h>
#include <string.h>

#include "tensor/graph.h"

typedef struct operator_form {
    const char *name, *arguments;              /* [counted: an operator of some inputs] */
    int inputs;
    pl_op_kind_t kind;
    const char *help;
} operator_form_t;

#define NUMBERS_0 "x"
#define NUMBERS_1 "x, f"
#define NUMBERS_2 "x, f, h"
static const operator_form_t forms[] = {
#define PL_UNARY(name, numbers, precision, rounding, value, rule, slope, meaning) \
    {#name, NUMBERS_##numbers, 1, PL_KIND_element, meaning},
#define PL_BINARY(name, precision, rounding, value, rule, slope_x, slope_y, meaning) \
    {#name, "x, y", 2, PL_KIND_element, meaning},
#define PL_TERNARY(name, precision, rounding, value, rule, meaning) \
    {#name, "x, y, z", 3, PL_KIND_element, meaning},
#include "tensor/elementwise.def"
    {"dropout", "x, p", 1, PL_KIND_element,
     "0 with probability p, else x / (1 - p), in training; else x"},
#define PL_OPERATOR(name, inputs, outputs, precision, kind, meaning) \
    {#name, NULL, inputs, PL_KIND_##kind, meaning},
#include "tensor/operators.def"
};

/* Rows of operators.def that are listed above already, belong to backward, or are put in
 * by the engine. */
static bool is_hidden(const operator_form_t *form)
{
    const char *end = strstr(form->name, "_grad");
    return !form->arguments
           && (form->kind == PL_KIND_element || form->kind == PL_KIND_effect
               || form->kind == PL_KIND_user || form->kind == PL_KIND_ranks
               || (end && (!end[5] || end[5] == '_')));
}

bool pl_operator_at(int k, pl_form_t *form)
{
    const operator_form_t *found = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && k >= 0 && !found; i++)
        if (!is_hidden(&forms[i]) && k-- == 0)
            found = &forms[i];
    if (!found || !form)
        return false;
    snprintf(form->name, sizeof form->name, "%s", found->name);
    if (found->arguments)
        snprintf(form->form, sizeof form->form, "%s(%s)", found->name, found->arguments);
    else
        snprintf(form->form, sizeof form->form, "%s of up to %d input%s", found->name,
                 found->inputs, found->inputs == 1 ? "" : "s");
    form->help = found->help;
    return true;
}
