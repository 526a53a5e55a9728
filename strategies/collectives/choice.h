/* choice.h - what "collective": "auto" stands for */
#ifndef PL_COLLECTIVES_CHOICE_H
#define PL_COLLECTIVES_CHOICE_H

#include "base/options.h"

/* For a run's accelerator: a collective that moves its memory, where this machine has
 * what that needs; else "best", and a log line says once what is missing. */
const char *pl_collective_automatic(const pl_options_t *o);

#endif
