/* choice.h - the accelerator that a run uses when its run file names none */
#ifndef PL_ACCELERATORS_CHOICE_H
#define PL_ACCELERATORS_CHOICE_H

#include "base/options.h"

/* What "auto" stands for in a run: a GPU where one can be used, else "cpu". */
const char *pl_accelerator_automatic(const pl_options_t *o);

#endif
