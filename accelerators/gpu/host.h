/* host.h - operators of users that have no text: the host computes them
 *
 * Kernels bring the inputs to scratch, as the operator's kernel for the host takes them;
 * they are copied to memory of the host, a function of the host computes, and the output
 * is copied to scratch, from where another kernel fetches it.  All that is on stream
 * MAIN: what comes behind waits, the accelerator's thread does not. */
#ifndef PL_GPU_HOST_H
#define PL_GPU_HOST_H

#include "accelerators/gpu/gpu.h"
#include "accelerators/gpu/codegen.h"

typedef struct gpu_host {
    const pl_operator_ops_t *table;
    const pl_kernel_t *kernel;
    pl_kernel_call_t call;                    /* pointers are filled in with the memory */
    char values[PL_OPERATOR_SELF];
    int inputs;
    size_t in[PL_OPERATOR_INPUTS], out, end;          /* bytes of scratch and of memory */
    char *memory;                                     /* [NULL: not there yet] */
} gpu_host_t;

/* PL_EUNSUPPORTED: operator `op` has no kernel for the host either. */
int gpu_host_init(gpu_host_t *host, const pl_gpu_t *gpu, const gpu_codegen_t *t, int op,
                  pl_error_t *err);
/* The kernels before and behind it. */
void gpu_host_print_inputs(const gpu_host_t *host, gpu_codegen_t *t, int op);
void gpu_host_print_output(const gpu_host_t *host, gpu_codegen_t *t, int op);

/* Its memory; it stays where it is from then on. */
int gpu_host_open(gpu_host_t *host, pl_gpu_t *gpu, pl_error_t *err);
void gpu_host_close(gpu_host_t *host, pl_gpu_t *gpu);

/* Onto stream MAIN. */
int gpu_host_put(gpu_host_t *host, pl_gpu_t *gpu, pl_error_t *err);

#endif
