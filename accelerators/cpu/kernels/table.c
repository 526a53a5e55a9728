/* table.c - the kernels of one instruction set in one table */
#include "accelerators/cpu/kernels/kernels.h"

#define TEXT_OF(name) #name
#define NAME_OF(set) TEXT_OF(set)

const pl_kernels_t KERNEL(kernels) = {
    .name = NAME_OF(KERNEL_SET),
#define PL_X(member, type) .member = KERNEL(member),
    PL_KERNELS(PL_X)
#undef PL_X
        .add = KERNEL(add),
    .attention_scratch = KERNEL(attention_scratch),
};
