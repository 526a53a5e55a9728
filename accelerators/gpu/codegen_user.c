/* codegen_user.c - operators of users as kernels: a thread computes a row by a function
 * whose body is the operator's text
 *
 * doc/modules.md describes such a text. */
#include <stdio.h>
#include <string.h>

#include "accelerators/gpu/codegen.h"
#include "tensor/operators.h"

/* NAME_DIM0 … of a shape. */
static void define_shape(gpu_codegen_t *t, const char *name, pl_shape_t shape)
{
    for (int k = 0; k < shape.rank; k++) {
        char word[24];
        snprintf(word, sizeof word, "%.8s_DIM%d", name, k);
        gpu_define_number(t, word, shape.dim[k]);
    }
}

bool gpu_print_user(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    const pl_kernel_t *kernel = op->code == PL_OP_apply ? pl_op_kernel(op, "gpu", NULL)
                                                        : NULL;
    if (!kernel)
        return false;
    const pl_shape_t y = t->g->value[op->output[0]].shape;
    const int64_t rows = pl_rows(y, op->attr.table->row_axes);
    char name[16];
    gpu_kernel_begin(t, "user");
    for (int k = 0; k < op->input_count; k++) {
        snprintf(name, sizeof name, "IN%d", k);
        gpu_define_load(t, name, op->input[k]);
        define_shape(t, name, t->g->value[op->input[k]].shape);
    }
    gpu_define_number(t, "WIDTH", pl_elements(y) / rows);
    define_shape(t, "OUT", y);
    gpu_define_store(t, "Y", op->output[0]);
    gpu_define(t, "OUT(i, v)", "Y(row * WIDTH + (i), v)");
    /* VALUES(to) copies the struct of the operator into `to`, which must have its
     * size. */
    char text[PL_OPERATOR_SELF / 8 * 24] = "";
    uint64_t word[PL_OPERATOR_SELF / 8];
    const size_t size = op->attr.table->size;
    memcpy(word, op->attr.self.byte, sizeof word);
    for (size_t k = 0; k < (size + 7) / 8; k++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s0x%llxul",
                 k ? ", " : "", (unsigned long long)word[k]);
    if (size)
        gpu_define(
            t, "VALUES(to)",
            "do { typedef char VALUES_of_another_size[sizeof(to) == %zu ? 1 : -1]; "
            "const uint64_t values_[] = {%s}; memcpy(&(to), values_, sizeof(to)); "
            "} while (0)",
            size, text);
    gpu_function(t, "ROW", "row", kernel->text, op->attr.table->name);
    gpu_define_number(t, "ROWS", rows);
    gpu_print_elementwise(t, "user", rows);
    return true;
}
