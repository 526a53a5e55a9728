/* host.c - operators of users that have no text: the host computes them
 *
 * Kernels copy the inputs to scratch, in the form that the operator's kernel for the host
 * takes.  They are copied to memory of the host, a function of the host computes, the
 * output is copied to scratch, and another kernel reads it there.  All of this is on
 * stream MAIN, so later work waits for it; the accelerator's thread does not. */
#include "accelerators/gpu/plan.h"

#include <string.h>

#include "accelerators/gpu/transfer.h"
#include "base/error.h"
#include "tensor/operators.h"

enum { ALIGNMENT = 64 };

static size_t bytes_of(const gpu_codegen_t *t, pl_shape_t shape)
{
    const size_t bytes = (size_t)pl_elements(shape)
                         * (t->wide ? sizeof(double) : sizeof(float));
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int gpu_host_init(gpu_host_t *host, const pl_gpu_t *gpu, const gpu_codegen_t *t, int i,
                  pl_error_t *err)
{
    const pl_op_t *op = &t->g->op[i];
    const char *kind = t->wide ? "reference" : "cpu";
    char where[128];
    *host = (gpu_host_t){.table = op->attr.table,
                         .kernel = pl_op_kernel(op, kind, NULL),
                         .inputs = op->input_count,
                         .call.output_shape = t->g->value[op->output[0]].shape};
    if (!gpu->backend->call)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: operator \"%s\" has no text for \"gpu\", and %s devices "
                       "cannot wait for the host: add one to its table",
                       pl_op_where(op, where), host->table->name, gpu->backend->name);
    if (!host->kernel)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: operator \"%s\" has neither a text for \"gpu\" nor a kernel "
                       "for \"%s\": add one to its table",
                       pl_op_where(op, where), host->table->name, kind);
    memcpy(host->values, op->attr.self.byte, sizeof host->values);
    for (int k = 0; k < op->input_count; k++) {
        host->call.input_shape[k] = t->g->value[op->input[k]].shape;
        host->in[k] = host->out;
        host->out += bytes_of(t, host->call.input_shape[k]);
    }
    host->end = host->out + bytes_of(t, host->call.output_shape);
    return PL_OK;
}

/* AT(i): element i of a value that lies in scratch. */
static int64_t begin(gpu_codegen_t *t, const char *what, pl_shape_t shape, size_t at)
{
    const int64_t n = pl_elements(shape);
    gpu_kernel_begin(t, what);
    gpu_define_scratch(t, "SCRATCH", at, n);
    gpu_define(t, "AT(i)", "(((GLOBAL real *)SCRATCH)[i])");
    gpu_define_number(t, "N", n);
    return n;
}

void gpu_host_print_inputs(const gpu_host_t *host, gpu_codegen_t *t, int i)
{
    for (int k = 0; k < host->inputs; k++) {
        const int64_t n = begin(t, "to_host", host->call.input_shape[k], host->in[k]);
        gpu_define_load(t, "FROM", t->g->op[i].input[k]);
        gpu_define(t, "PUT(i, v)", "(AT(i) = (v))");
        gpu_print_elementwise(t, "copy", n);
    }
}

void gpu_host_print_output(const gpu_host_t *host, gpu_codegen_t *t, int i)
{
    const int64_t n = begin(t, "from_host", host->call.output_shape, host->out);
    gpu_define(t, "FROM(i)", "AT(i)");
    gpu_define_store(t, "PUT", t->g->op[i].output[0]);
    gpu_print_elementwise(t, "copy", n);
}

int gpu_host_open(gpu_host_t *host, pl_gpu_t *gpu, pl_error_t *err)
{
    host->memory = gpu_pinned_new(gpu, host->end, err);
    if (!host->memory)
        return PL_ENOMEM;
    host->call.self = host->values;
    host->call.output = host->memory + host->out;
    for (int k = 0; k < host->inputs; k++)
        host->call.input[k] = host->memory + host->in[k];
    return PL_OK;
}

void gpu_host_close(gpu_host_t *host, pl_gpu_t *gpu)
{
    if (host->memory)
        gpu_pinned_free(gpu, host->memory);
}

static void compute(void *user)
{
    const gpu_host_t *host = user;
    host->kernel->run(&host->call, 0,
                      pl_rows(host->call.output_shape, host->table->row_axes));
}

int gpu_host_put(gpu_host_t *host, pl_gpu_t *gpu, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    const pl_device_ptr_t scratch = gpu->memory->scratch.address;
    int code = backend->copy_out(gpu, PL_STREAM_MAIN, host->memory, scratch, host->out,
                                 err);
    if (code == PL_OK)
        code = backend->call(gpu, PL_STREAM_MAIN, compute, host, err);
    return code == PL_OK
               ? backend->copy_in(gpu, PL_STREAM_MAIN, scratch + host->out,
                                  host->memory + host->out, host->end - host->out, err)
               : code;
}
