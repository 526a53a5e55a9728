/* emulated_code.h - kernels for the emulator, compiled by the C compiler
 *
 * A process compiles each kernel once, however many texts have it.  The environment says
 * what compiles (CC, "cc") and where the sources are (top_srcdir, "..").  KERNELS names a
 * folder where the texts are kept as NUMBER.k, to be read or to be given to another
 * compiler; with KERNELS_ALONE they are not compiled here. */
#ifndef T_EMULATED_CODE_H
#define T_EMULATED_CODE_H

#include "accelerators/gpu/backend.h"

typedef void emulated_enter_t(void *addresses);

struct pl_entry {
    char *name;
    emulated_enter_t *enter;
};

/* NULL: the compiler refuses it; the error is the compiler's first. */
pl_binary_t *emulated_code_load(const char *text, pl_error_t *err);
void emulated_code_release(pl_binary_t *code);
const pl_entry_t *emulated_code_find(const pl_binary_t *code, const char *name);

#endif
