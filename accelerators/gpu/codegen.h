/* codegen.h - kernels of a plan as text, and the launches that run them
 *
 * A kernel is printed line by line; what it reads and writes becomes its arguments as it
 * is named.  The rest (sizes, strides, numbers of the graph) stands in the text, so that
 * a launch has nothing but addresses, which stay from replay to replay. */
#ifndef PL_GPU_CODEGEN_H
#define PL_GPU_CODEGEN_H

#include <stdarg.h>

#include "accelerators/gpu/backend.h"
#include "accelerators/plan/fuse.h"
#include "accelerators/plan/view.h"
#include "tensor/memory_plan.h"

/* A buffer in the device's memory, as a kernel uses it. */
typedef struct gpu_buffer {
    enum {
        GPU_IN_ARENA,
        GPU_IN_REGION,     /* `index` */
        GPU_IN_INPUT,      /* batch field `index` */
        GPU_IN_FLOATS,     /* what stands for region `index` on the way to the host */
        GPU_IN_STEP,       /* step_t of dialect.h */
        GPU_IN_CONTROL,    /* control_t */
        GPU_IN_RECORD,     /* what a replay reports: control_t, and the sums of metrics */
        GPU_IN_SCRATCH,    /* of one unit */
        GPU_IN_GRADS_BACKUP,  /* gradients of a replay that is skipped */
        GPU_IN_COUNTER,    /* zeros, for is_last_group() */
    } at;
    int index;
    size_t offset;     /* bytes */
    size_t bytes;      /* of a value: what a kernel reads or writes of it, at most */
    size_t reach;      /* bytes from its start on that belong to it */
    size_t count;      /* its elements */
    int value;         /* that lies there, number + 1; what is read, if that is another */
    int made;          /* what is written, number + 1 */
    bool reads, writes;
} gpu_buffer_t;

/* What lies in a step block and in the control block: as dialect.h has it. */
typedef struct gpu_step {
    double scalar[PL_STEP_SCALARS];
    uint64_t seed;
    uint32_t step, micro_batch;
    int32_t fail_fast, restart;
} gpu_step_t;

typedef struct gpu_control {
    int32_t status, operation;
    int64_t index;
    int32_t skipping, fail_fast;
} gpu_control_t;

/* Replays take turns with their step blocks, batches and records. */
enum { GPU_SETS = 2 };
/* Bytes of a record before the sums of its metrics. */
enum { GPU_RECORD_SUMS = 32 };

typedef struct gpu_kernel {
    char name[32];
    char kind[24];                   /* "layer_norm" of "layer_norm_12" */
    char path[64];                   /* of the operator that it is of: "h.0.ln_1"  [""] */
    int text;                        /* the one it stands in  [library, layer: none] */
    const pl_product_plan_t
        *library;                  /* a product that the backend's library computes, with
                                      addresses as backend.h has them  [NULL: a kernel] */
    pl_layer_plan_t *layer;        /* likewise */
    pl_launch_t launch[GPU_SETS];  /* entry and addresses are filled in when the code is
                                      there, and when memory moves */
    gpu_buffer_t buffer[PL_LAUNCH_ADDRESSES];
} gpu_kernel_t;

/* A text that grows; all zero: empty. */
typedef struct gpu_string {
    char *text;                                             /* NULL: empty */
    size_t length, capacity;
} gpu_string_t;

enum { GPU_DEFINES = 80 };

/* An operation that may end a replay with an error: by an index, or by a number. */
typedef struct gpu_check {
    pl_op_t op;
    int64_t below;                                          /* of indices */
} gpu_check_t;

typedef struct gpu_codegen {
    const pl_graph_t *g;
    const pl_view_t *view;                                  /* of the lowered graph */
    const pl_fusion_t *fusion;
    const pl_allocation_t *allocation;
    const bool *done;                /* [operations] assigns that are nothing */
    int low;                         /* region that has parameters as halves  [0: none] */
    pl_dtype_t low_dtype;
    bool wide;                        /* numbers in registers are float64 */
    int from, to, core;               /* operations of the unit at hand; its core  [-1] */
    gpu_string_t *text;               /* [texts] kernels that are compiled together */
    int texts, text_capacity;
    int text_kernels;        /* of the newest */
    gpu_string_t parts;      /* functions of the kernel at hand, with its PARAMETERS */
    gpu_string_t ahead;      /* what stands before the kernel at hand */
    gpu_string_t body;       /* of the kernel at hand; indented when it is whole */
    bool is_small;           /* the kernel at hand has parts, and may have more */
    int64_t beside;          /* groups of the kernel at hand, whose parts run side by side
                                and may become more  [0: it is none of these] */
    bool beside_changes;     /* its parts change regions */
    int parts_from, parts_to;  /* of the first part */
    size_t small_at;         /* where its newest part begins in the body */
    gpu_kernel_t *kernel;    /* [kernels] */
    int kernels, capacity;
    const char *type[PL_LAUNCH_ADDRESSES];       /* of the arguments of the one at hand */
    char defined[GPU_DEFINES][24];               /* names of macros of the one at hand */
    int defines;
    gpu_check_t *check;                                     /* [checks] */
    int checks, check_capacity;
    size_t record;                                      /* bytes of the sums of metrics */
    size_t counters;                                    /* bytes, the most of any unit */
    size_t scratch;                                     /* bytes, likewise */
    pl_error_t error;                                   /* the first  [code 0] */
} gpu_codegen_t;

/* Whatever fails is kept in `error`, and the rest does nothing. */
void gpu_codegen_release(gpu_codegen_t *t);

/* Adds to a string of the text's. */
void gpu_write(gpu_codegen_t *t, gpu_string_t *to, const char *format, ...)
    PL_PRINTF(3, 4);
/* Lines of a function, indented. */
void gpu_write_indented(gpu_codegen_t *t, gpu_string_t *to, const char *lines);
void gpu_write_list(gpu_codegen_t *t, gpu_string_t *to, const char *format, va_list args);

/* Begins a kernel that is called WHAT_NUMBER. */
void gpu_kernel_begin(gpu_codegen_t *t, const char *what);
/* The number of the argument that points to a buffer: "a3" in the text. */
int gpu_argument(gpu_codegen_t *t, const gpu_buffer_t *buffer, const char *type,
                 bool writes);
/* A part of a kernel of one group, which computes what many small kernels would, one part
 * after another: any number of threads runs its lines.  It needs so many arguments; where
 * it changes a region, nothing happens behind a guard. */
void gpu_small_begin(gpu_codegen_t *t, const char *what, int arguments);
void gpu_small_end(gpu_codegen_t *t, bool changes);
/* The next part is in another kernel. */
void gpu_parts_close(gpu_codegen_t *t);
/* Adds to the kernel at hand. */
void gpu_print(gpu_codegen_t *t, const char *format, ...) PL_PRINTF(2, 3);
void gpu_kernel_end(gpu_codegen_t *t, int64_t groups, int threads);
/* The body of kernels/NAME.k, by words that are defined before it: "X(i)" for how it
 * loads, "Y(i, v)" for how it stores, "ROWS" for a number. */
void gpu_include(gpu_codegen_t *t, const char *name);
void gpu_define(gpu_codegen_t *t, const char *word, const char *format, ...)
    PL_PRINTF(3, 4);
void gpu_undefine(gpu_codegen_t *t);
void gpu_define_number(gpu_codegen_t *t, const char *word, int64_t number);
/* Puts what was printed of the kernel at hand before it, and there a function of int64_t
 * PARAMETER whose body is a text: WORD(parameter) calls it.  What a compiler says of it
 * names the operator. */
void gpu_function(gpu_codegen_t *t, const char *word, const char *parameter,
                  const char *body, const char *operator);
/* NAME(i): element i of a value.  NAME(i, v): stores v as element i, or does nothing
 * where the value is not used. */
void gpu_define_load(gpu_codegen_t *t, const char *name, int32_t value);
void gpu_define_store(gpu_codegen_t *t, const char *name, int32_t value);
/* The same where operations of the unit come before or behind its core: then it is a
 * function of the kernel.  false: they do not. */
bool gpu_define_before(gpu_codegen_t *t, const char *name, int32_t value);
bool gpu_define_behind(gpu_codegen_t *t, const char *name, int32_t value);
/* The kernel at hand reads or writes no more than so many rows of a value. */
void gpu_accesses_rows(gpu_codegen_t *t, int32_t value, int64_t rows);
/* Of the unit's scratch: as doubles from byte `offset` on, `count` of them. */
void gpu_define_scratch(gpu_codegen_t *t, const char *name, size_t offset, int64_t count);
void gpu_define_counters(gpu_codegen_t *t, const char *name, int64_t count);
/* The number of a check: control_t.operation. */
int gpu_add_check(gpu_codegen_t *t, int op, int64_t below);
bool gpu_is_wanted(const gpu_codegen_t *t, int32_t value);

/* Where element `element` of a shape lies by the strides of a view: "i / 64 % 10 * 3". */
void gpu_define_index(gpu_codegen_t *t, const char *word, const char *element,
                      const pl_view_t *view);
/* The same as text; `narrow`: divided in 32 bits, which is cheaper. */
const char *gpu_index_text(const pl_view_t *view, const char *element, bool narrow,
                           char text[512]);

/* Where a value lies; its root's memory. */
gpu_buffer_t gpu_buffer_of(const gpu_codegen_t *t, int32_t value);
/* "float", "uint16_t": a type in memory; "f32": what stands for it in names of the
 * dialect. */
const char *gpu_type(pl_dtype_t dtype);
const char *gpu_suffix(pl_dtype_t dtype);
/* A number as C has it: "0x1.8p+1f". */
const char *gpu_number(const gpu_codegen_t *t, double number, char text[40]);

/* How kernels end whose body has a thread for each of n elements, or a group for a
 * row. */
void gpu_print_elementwise(gpu_codegen_t *t, const char *body, int64_t n);
int gpu_row_threads(int64_t width);
int64_t gpu_row_groups(int64_t rows);
/* Sums over rows of TERM(row, column), which is defined, for each column: the end of the
 * kernel at hand, and one more where there are many rows. */
void gpu_print_columns(gpu_codegen_t *t, int64_t rows, int64_t columns, size_t scratch,
                       int32_t result);

/* The unit of element-wise operations [from, to); a guard. */
void gpu_print_element(gpu_codegen_t *t, int from, int to);
void gpu_print_guard(gpu_codegen_t *t, int op);
/* How a replay begins; the record of it, with the metrics that operations before that
 * one make. */
void gpu_print_begin(gpu_codegen_t *t);
void gpu_print_record(gpu_codegen_t *t, int before);
/* Of a replay that is skipped: keeps so many bytes of PL_REGION_GRADS, or puts them
 * back. */
void gpu_print_grads_backup(gpu_codegen_t *t, size_t bytes, bool back);
/* Elements as another type: n of them from a buffer to a buffer, whatever guards say. */
void gpu_print_convert(gpu_codegen_t *t, const gpu_buffer_t *from, pl_dtype_t from_type,
                       const gpu_buffer_t *to, pl_dtype_t to_type, size_t n);
/* One operation of its own; false: it is none of these. */
bool gpu_print_reduction(gpu_codegen_t *t, int op);
bool gpu_print_move(gpu_codegen_t *t, int op);
bool gpu_print_row(gpu_codegen_t *t, int op);
bool gpu_print_product(gpu_codegen_t *t, int op);
/* Where the matrices of an operand begin, whose leading axes may be repeated: a view over
 * the leading axes of the result. */
pl_view_t gpu_batches(pl_shape_t own, pl_shape_t all);
bool gpu_print_attention(gpu_codegen_t *t, int op);
bool gpu_print_user(gpu_codegen_t *t, int op);

#endif
