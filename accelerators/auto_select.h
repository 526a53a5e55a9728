/* auto_select.h - the accelerator that a run uses when its run file names none */
#ifndef PL_ACCELERATORS_AUTO_SELECT_H
#define PL_ACCELERATORS_AUTO_SELECT_H

#include "base/options.h"
#include "runtime/payload.h"

/* The accelerator that "auto" selects: a GPU if one can be used, else "cpu". */
const char *pl_accelerator_auto(const pl_options_t *o);
/* Opens the device that this rank would use by "auto".  If the device does not work,
 * "auto" does not select it in this process until the next run.  The first of several
 * ranks of a process decides for all. */
void pl_accelerator_probe(pl_job_t *job, int local_rank);

#endif
