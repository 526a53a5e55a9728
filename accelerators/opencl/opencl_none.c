/* opencl_none.c - the accelerator "opencl" of a build without OpenCL
 *
 * It has the same options, so a run file is valid in every build or in none, and its
 * errors name the missing package. */
#include "accelerators/opencl/opencl.h"
#include "base/error.h"

#define MISSING \
    "Paceline was built without OpenCL: apt-get install ocl-icd-opencl-dev, " \
    "configure and build again"

static int opencl_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    (void)self, (void)info;
    return pl_fail(err, PL_EUNSUPPORTED, MISSING);
}

static void opencl_report(pl_fact_t fact, void *user)
{
    fact(user, "OpenCL", MISSING);
}

static const pl_accelerator_ops_t opencl_accelerator = {
    .name = "opencl",
    .help = OPENCL_HELP,
    .size = sizeof(opencl_options_t),
    .options = opencl_table,
    .open = opencl_open,
    .report = opencl_report,
    PL_GPU_OPS,
};

PL_PLUGIN({"accelerator", &opencl_accelerator})
