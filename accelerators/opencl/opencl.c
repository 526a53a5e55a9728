/* opencl.c - the accelerator "opencl": the devices of this machine, and the report about
 * them */
#include "accelerators/opencl/opencl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static int opencl_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    return pl_gpu_open(self, &opencl_backend, info, err);
}

/* ---- The devices of this machine ---- */

static void text_of(cl_device_id id, cl_device_info what, char *text, size_t capacity)
{
    char whole[512] = "";
    clGetDeviceInfo(id, what, sizeof whole - 1, whole, NULL);
    const char *begin = whole + strspn(whole, " ");
    snprintf(text, capacity, "%s", begin);
}

static cl_ulong number_of(cl_device_id id, cl_device_info what)
{
    cl_ulong number = 0;                             /* of 32 or 64 bits, little-endian */
    clGetDeviceInfo(id, what, sizeof number, &number, NULL);
    return number;
}

/* Fills in a device, and why it does not meet the needs of the kernels and the core. */
static void device_describe(opencl_device_t *d)
{
    const cl_ulong memory = number_of(d->id, CL_DEVICE_SVM_CAPABILITIES);
    int major = 0;
    char version[64], platform[512] = "";
    /* Drivers list how they were built after two blanks or a comma. */
    clGetPlatformInfo(d->platform, CL_PLATFORM_VERSION, sizeof platform - 1, platform,
                      NULL);
    char *end = strstr(platform, "  ");
    if (end)
        *end = '\0';
    platform[strcspn(platform, ",")] = '\0';
    snprintf(d->version, sizeof d->version, "%.*s", (int)sizeof d->version - 1, platform);
    text_of(d->id, CL_DEVICE_NAME, d->name, sizeof d->name);
    text_of(d->id, CL_DEVICE_VENDOR, d->vendor, sizeof d->vendor);
    text_of(d->id, CL_DEVICE_VERSION, version, sizeof version);
    d->memory = number_of(d->id, CL_DEVICE_GLOBAL_MEM_SIZE);
    d->block = number_of(d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    d->units = (cl_uint)number_of(d->id, CL_DEVICE_MAX_COMPUTE_UNITS);
    d->is_processor = number_of(d->id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU;
    d->rounds_correctly = number_of(d->id, CL_DEVICE_SINGLE_FP_CONFIG)
                          & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
    sscanf(version, "OpenCL %d", &major);
    snprintf(d->language, sizeof d->language, "-cl-std=CL%s", major < 3 ? "2.0" : "3.0");
    if (major < 2)
        pl_fail(&d->why, PL_EUNSUPPORTED, "it has %s, and 2.0 is needed", version);
    else if (!(memory & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER))
        pl_fail(&d->why, PL_EUNSUPPORTED, "it has no shared virtual memory");
    else if (!number_of(d->id, CL_DEVICE_DOUBLE_FP_CONFIG))
        pl_fail(&d->why, PL_EUNSUPPORTED,
                "it has no float64, in which sums are added up");
    else if (!number_of(d->id, CL_DEVICE_COMPILER_AVAILABLE))
        pl_fail(&d->why, PL_EUNSUPPORTED, "its driver has no compiler");
    else if (!number_of(d->id, CL_DEVICE_AVAILABLE))
        pl_fail(&d->why, PL_EUNSUPPORTED, "its driver reports it as not available");
}

static int rank_of(const opencl_device_t *d)
{
    return 2 * (d->why.code != PL_OK) + d->is_processor;
}

/* Under a lock: not each driver accepts two threads at once. */
int opencl_devices(const char *platform, opencl_device_t device[OPENCL_DEVICES],
                   int *usable, pl_error_t *why)
{
    enum { PLATFORMS = 16 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    cl_platform_id found[PLATFORMS];
    cl_uint platforms = 0;
    int count = 0;
    *usable = 0;
    pthread_mutex_lock(&lock);
    if (clGetPlatformIDs(PLATFORMS, found, &platforms) != CL_SUCCESS)
        platforms = 0;
    for (cl_uint k = 0; k < platforms && k < PLATFORMS; k++) {
        cl_device_id id[OPENCL_DEVICES];
        cl_uint devices = 0;
        char name[256] = "";
        clGetPlatformInfo(found[k], CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
        if (!strcasestr(name, platform)
            || clGetDeviceIDs(found[k], CL_DEVICE_TYPE_ALL, OPENCL_DEVICES, id, &devices)
                   != CL_SUCCESS)
            continue;
        for (cl_uint i = 0; i < devices && i < OPENCL_DEVICES && count < OPENCL_DEVICES;
             i++) {
            opencl_device_t *d = &device[count++];
            *d = (opencl_device_t){.platform = found[k], .id = id[i]};
            device_describe(d);
        }
    }
    pthread_mutex_unlock(&lock);
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && rank_of(&device[k]) < rank_of(&device[k - 1]); k--) {
            const opencl_device_t swapped = device[k];
            device[k] = device[k - 1];
            device[k - 1] = swapped;
        }
    while (*usable < count && device[*usable].why.code == PL_OK)
        ++*usable;
    if (!platforms)
        pl_fail(why, PL_EUNSUPPORTED,
                "no driver of OpenCL is installed: install the vendor's (Debian's "
                "packages: intel-opencl-icd, mesa-opencl-icd; for processors "
                "pocl-opencl-icd)");
    else if (!count && *platform)
        pl_fail(why, PL_EUNSUPPORTED,
                "no platform of OpenCL with \"%s\" in its name has "
                "a device; paceline doctor lists them",
                platform);
    else if (!count)
        pl_fail(why, PL_EUNSUPPORTED,
                "the drivers of OpenCL find no device; PoCL finds none where it cannot "
                "keep kernels: set POCL_CACHE_DIR to a folder that can be written to");
    else if (!*usable)
        pl_fail(why, PL_EUNSUPPORTED, "%s cannot be used: %s", device[0].name,
                device[0].why.text);
    return count;
}

/* ---- The report of paceline doctor ---- */

static void opencl_report(pl_fact_t fact, void *user)
{
    opencl_device_t device[OPENCL_DEVICES];
    pl_error_t why = {0};
    int usable;
    const int count = opencl_devices("", device, &usable, &why);
    if (!count)
        fact(user, why.code == PL_OK ? NULL : "OpenCL", why.text);
    for (int k = 0; k < count; k++) {
        const opencl_device_t *d = &device[k];
        char title[32], memory[32], text[512];
        snprintf(title, sizeof title, "OpenCL device %d", k);
        snprintf(memory, sizeof memory, "%llu MiB",
                 (unsigned long long)(d->memory >> 20));
        snprintf(text, sizeof text, "%s (%s), %u units, %s, %s%s%s", d->name,
                 d->is_processor ? "processor" : "GPU", d->units,
                 d->is_processor ? "memory of the host" : memory, d->version,
                 k < usable ? "" : "; cannot be used: ", k < usable ? "" : d->why.text);
        fact(user, k < usable ? title : NULL, text);
    }
}

static const pl_accelerator_ops_t opencl_accelerator = {
    .name = "opencl",
    .help = OPENCL_HELP,
    .size = sizeof(opencl_t),
    .options = opencl_table,
    .open = opencl_open,
    .report = opencl_report,
    .launches = opencl_launches,
    PL_GPU_OPS,
};

PL_PLUGIN({"accelerator", &opencl_accelerator})
