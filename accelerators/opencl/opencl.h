/* opencl.h - the accelerator "opencl": GPUs of any vendor, and processors by PoCL
 *
 * The backend of the core (gpu.h) is a device of OpenCL 2.0 or later with float64 and
 * shared virtual memory, so addresses are pointers.  The vendor's driver compiles kernels
 * at run time. */
#ifndef PL_OPENCL_OPENCL_H
#define PL_OPENCL_OPENCL_H

#include "config.h"

#include "accelerators/gpu/gpu.h"
#include "base/options.h"

typedef struct opencl_options {
    pl_gpu_t gpu;                                       /* first */
    const char *platform;                               /* a part of its name, or empty */
} opencl_options_t;

#define OPENCL_HELP "devices of OpenCL: GPUs of any vendor, and processors by PoCL"

static const pl_option_t opencl_table[] = {
    PL_TEXT(opencl_options_t, platform, "\"\"", NULL,
            "use only devices of platforms with this in their names, such as Intel; "
            "empty: of all"),
    PL_OPTIONS_END,
};

#ifdef HAVE_OPENCL
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <pthread.h>

/* A device of this machine, and why it cannot be used  [code 0: it can]. */
typedef struct opencl_device {
    cl_platform_id platform;
    cl_device_id id;
    char name[64], vendor[64], version[96];  /* of the driver's platform: "PoCL 3.1 …" */
    char language[16];                      /* the option of the compiler */
    cl_ulong memory, block;                 /* bytes, and of one block at most */
    cl_uint units;
    bool is_processor, rounds_correctly;       /* divisions and square roots of float32 */
    pl_error_t why;
} opencl_device_t;

enum { OPENCL_DEVICES = 64, OPENCL_WATCHED = 1024 };

typedef struct opencl {
    opencl_options_t options;                               /* first */
    opencl_device_t device;
    int number;                                   /* among the devices that can be used */
    cl_context context;
    cl_command_queue queue[PL_STREAMS];
    int descriptor;
    struct opencl_block *blocks;                            /* of device memory */
    size_t allocated;
    cl_event
        launch[OPENCL_WATCHED];    /* a ring: the entries with numbers `ended` to `put` */
    uint64_t put, ended;           /* launches on stream MAIN */
    pthread_mutex_t lock;          /* of the fields that the driver's threads change: */
    pthread_cond_t changed;
    int callbacks;                  /* pending */
    pl_error_t lost;                /* why the device cannot be used any more  [code 0] */
} opencl_t;

/* ---- backend.c ---- */

extern const pl_gpu_backend_ops_t opencl_backend;

static inline void *opencl_pointer(pl_device_ptr_t address)
{
    return (void *)(uintptr_t)address;
}

const char *opencl_error_name(cl_int error);
/* PL_OK, or the driver's error about a failed call: `doing` (printf) is the action. */
int opencl_check(opencl_t *cl, pl_error_t *err, cl_int result, const char *doing, ...)
    PL_PRINTF(4, 5);
/* Counts a launch on stream MAIN (consumes the event). */
void opencl_watch(opencl_t *cl, cl_event launch);
/* Of the table pl_accelerator_ops_t. */
void opencl_launches(void *self, uint64_t *put, uint64_t *ended);
/* Fails once the device is lost. */
int opencl_enter(opencl_t *cl, pl_error_t *err);

/* ---- build.c, as backend.h has them ---- */

int opencl_code_new(void *self, const char *text, pl_binary_t **code, pl_error_t *err);
void opencl_code_free(void *self, pl_binary_t *code);
const pl_entry_t *opencl_code_entry(void *self, pl_binary_t *code, const char *name,
                                    pl_error_t *err);
int opencl_launch(void *self, pl_stream_t stream, const pl_kernel_launch_t *launch,
                  pl_error_t *err);

/* ---- opencl.c ---- */

/* The devices of this machine, the usable ones first, GPUs before processors; returns
 * their number.  *usable: number of usable ones  [0: `why` has the reason]. */
int opencl_devices(const char *platform, opencl_device_t device[OPENCL_DEVICES],
                   int *usable, pl_error_t *why);
#endif

#endif
