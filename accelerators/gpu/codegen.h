/* codegen.h - kernels of a plan as text, and the launches that run them
 *
 * A kernel is printed line by line; a buffer becomes an argument when it is first named.
 * Sizes, strides and constants of the graph are literals of the text.  So a launch has
 * only addresses, which are the same in every replay. */
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
        GPU_IN_REGION,       /* `index` */
        GPU_IN_BATCH,
        GPU_IN_FLOATS,       /* float32 copy of region `index`, for the host */
        GPU_IN_STEP,         /* step_t of dialect.h */
        GPU_IN_CONTROL,      /* control_t */
        GPU_IN_RECORD,       /* results of a replay: control_t, and the sums of metrics */
        GPU_IN_SCRATCH,      /* of one unit */
        GPU_IN_GRADS_BACKUP,  /* gradients of a replay that is skipped */
        GPU_IN_TENSOR,       /* constant tensor `index` of the device */
        GPU_IN_COUNTER,      /* zeros, for is_last_group() */
    } at;
    int index;
    size_t offset;             /* bytes */
    size_t bytes;              /* that a kernel reads or writes, at most */
    size_t reach;              /* bytes of the whole value */
    size_t count;              /* elements of it */
    int value;                 /* number + 1 of the value that is read there  [0: none] */
    int made;                  /* number + 1 of the value that is written  [0: none] */
    bool reads, writes;
} gpu_buffer_t;

/* The step block and the control block: step_t and control_t of dialect.h. */
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

/* Sets of memory, which steps use in turn: a batch, and two slots, each with a step block
 * and a record.  A replay uses a set's first slot, of the same number; one that reads
 * neither a batch nor mirrored regions uses the second slot of the set before, number
 * GPU_SETS more, if it is free. */
enum { GPU_SETS = 2, GPU_SLOTS = 2 * GPU_SETS };
/* Bytes of a record before the sums of its metrics. */
enum { GPU_RECORD_SUMS = 32 };

typedef struct gpu_kernel {
    char name[32];
    char kind[24];                          /* "layer_norm" of "layer_norm_12" */
    char path[64];                          /* of the operator: "h.0.ln_1"  [""] */
    int text;                               /* that contains it  [library, layer: none] */
    const pl_product_plan_t
        *library;                  /* a product that the backend's library computes, with
                                      addresses as backend.h has them  [NULL: a kernel] */
    pl_layer_plan_t *layer;        /* likewise */
    pl_kernel_launch_t
        launch[GPU_SLOTS];              /* entry: filled in with the code; addresses: when
                                           memory moves */
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
    const bool *done;                    /* [operations] assigns without a copy */
    const size_t *input_at;              /* [PL_FIELDS] bytes before each batch field */
    int low;                             /* region with parameters as halves  [0: none] */
    pl_dtype_t low_dtype;
    bool wide;                        /* numbers in registers are float64 */
    int from, to, core;               /* operations of the current unit; its core  [-1] */
    gpu_string_t *text;               /* [texts] kernels that are compiled together */
    int texts, text_capacity;
    int text_kernels;       /* of the newest */
    gpu_string_t parts;     /* functions of the current kernel, with its PARAMETERS */
    gpu_string_t ahead;     /* text before the current kernel */
    gpu_string_t body;      /* of the current kernel; indented at its end */
    bool is_small;          /* the current kernel has parts, and may get more */
    int64_t part_groups;    /* groups of the current kernel, if its parts run side by side
                               and it may get more  [0: not such a kernel] */
    bool part_changes;      /* its parts change regions */
    int parts_from, parts_to;  /* of the first part */
    size_t small_at;        /* where its newest part begins in the body */
    gpu_kernel_t *kernel;   /* [kernels] */
    int kernels, capacity;
    const char *type[PL_LAUNCH_ADDRESSES];         /* of the current kernel's arguments */
    char defined[GPU_DEFINES][24];                 /* names of its macros */
    int defines;
    gpu_check_t *check;                                     /* [checks] */
    int checks, check_capacity;
    size_t record;                                      /* bytes of the sums of metrics */
    size_t counters;                                    /* bytes, the most of any unit */
    size_t scratch;                                     /* bytes, likewise */
    pl_error_t error;                                   /* the first  [code 0] */
} gpu_codegen_t;

/* The first error is kept in `error`; after it, the other functions do nothing. */
void gpu_codegen_release(gpu_codegen_t *t);

/* Appends to a string. */
void gpu_write(gpu_codegen_t *t, gpu_string_t *to, const char *format, ...)
    PL_PRINTF(3, 4);
/* Lines of a function, indented. */
void gpu_write_indented(gpu_codegen_t *t, gpu_string_t *to, const char *lines);
void gpu_write_list(gpu_codegen_t *t, gpu_string_t *to, const char *format, va_list args);

/* Adds a launch of the backend's library, named WHAT_NUMBER, with so many buffers; the
 * caller sets `library` or `layer`.  NULL after an error. */
gpu_kernel_t *gpu_library_kernel(gpu_codegen_t *t, const char *what,
                                 const gpu_buffer_t *buffer, int count);
/* Begins a kernel with the name WHAT_NUMBER. */
void gpu_kernel_begin(gpu_codegen_t *t, const char *what);
/* The number of the argument that points to a buffer: "a3" in the text. */
int gpu_argument(gpu_codegen_t *t, const gpu_buffer_t *buffer, const char *type,
                 bool writes);
/* A part of a kernel of one group, which runs its parts one after another in place of
 * many small kernels; the lines are for any number of threads.  The part needs so many
 * arguments.  `changes`: it changes a region, so it does nothing after a guard. */
void gpu_small_begin(gpu_codegen_t *t, const char *what, int arguments);
void gpu_small_end(gpu_codegen_t *t, bool changes);
/* Ends the current kernel with parts: the next part begins another one. */
void gpu_parts_close(gpu_codegen_t *t);
/* Appends to the body of the current kernel. */
void gpu_print(gpu_codegen_t *t, const char *format, ...) PL_PRINTF(2, 3);
void gpu_kernel_end(gpu_codegen_t *t, int64_t groups, int threads);
/* Includes kernels/NAME.k as the body.  It uses macros that are defined before: "X(i)"
 * loads, "Y(i, v)" stores, "ROWS" is a number. */
void gpu_include(gpu_codegen_t *t, const char *name);
void gpu_define(gpu_codegen_t *t, const char *word, const char *format, ...)
    PL_PRINTF(3, 4);
void gpu_undefine(gpu_codegen_t *t);
void gpu_define_number(gpu_codegen_t *t, const char *word, int64_t number);
/* Moves the body so far before the kernel, and adds there a function of int64_t
 * PARAMETER with a text as its body: WORD(parameter) calls it.  Messages of a compiler
 * about it name the operator. */
void gpu_function(gpu_codegen_t *t, const char *word, const char *parameter,
                  const char *body, const char *operator);
/* NAME(i): element i of a value.  NAME(i, v): stores v as element i, or does nothing if
 * the value is not used. */
void gpu_define_load(gpu_codegen_t *t, const char *name, int32_t value);
void gpu_define_store(gpu_codegen_t *t, const char *name, int32_t value);
/* The same as a function of the kernel, if operations of the unit come before or after
 * its core; false if they do not. */
bool gpu_define_before(gpu_codegen_t *t, const char *name, int32_t value);
bool gpu_define_after(gpu_codegen_t *t, const char *name, int32_t value);
/* The current kernel reads or writes no more than so many rows of a value. */
void gpu_accesses_rows(gpu_codegen_t *t, int32_t value, int64_t rows);
/* NAME: `count` doubles of the unit's scratch, from byte `offset` on. */
void gpu_define_scratch(gpu_codegen_t *t, const char *name, size_t offset, int64_t count);
void gpu_define_counters(gpu_codegen_t *t, const char *name, int64_t count);
/* Adds a check and returns its number, which is control_t.operation. */
int gpu_add_check(gpu_codegen_t *t, int op, int64_t below);
bool gpu_is_allocated(const gpu_codegen_t *t, int32_t value);

/* WORD: the index of element `element` by the strides of a view: "i / 64 % 10 * 3". */
void gpu_define_index(gpu_codegen_t *t, const char *word, const char *element,
                      const pl_view_t *view);
/* Bytes of an index of PL_DIMS axes as text. */
enum { GPU_INDEX_TEXT = 640 };
/* The same as text; `narrow`: with divisions in 32 bits, which are cheaper. */
const char *gpu_index_text(const pl_view_t *view, const char *element, bool narrow,
                           char text[GPU_INDEX_TEXT]);

/* The memory of a value, which is its root's. */
gpu_buffer_t gpu_buffer_of(const gpu_codegen_t *t, int32_t value);
/* The type in memory, such as "uint16_t", and its suffix in names of the dialect, such as
 * "f32". */
const char *gpu_type(pl_dtype_t dtype);
const char *gpu_suffix(pl_dtype_t dtype);
/* A number as a literal of C: "0x1.8p+1f". */
const char *gpu_number(const gpu_codegen_t *t, double number, char text[40]);

/* Includes a body and ends the kernel, with a thread for each of n elements. */
void gpu_print_elementwise(gpu_codegen_t *t, const char *body, int64_t n);
/* For kernels with a group for each row. */
int gpu_row_threads(int64_t width);
int64_t gpu_row_groups(int64_t rows);
/* Ends the current kernel with the sums over rows of TERM(row, column), for each
 * column. */
void gpu_print_columns(gpu_codegen_t *t, int64_t rows, int64_t columns, size_t scratch,
                       int32_t result);

/* The unit of element-wise operations [from, to); a guard. */
void gpu_print_element(gpu_codegen_t *t, int from, int to);
void gpu_print_guard(gpu_codegen_t *t, int op);
/* The begin of a replay, and its record, with the metrics that operations before
 * `before` make. */
void gpu_print_begin(gpu_codegen_t *t);
void gpu_print_record(gpu_codegen_t *t, int before);
/* Saves so many bytes of PL_REGION_GRADS, or restores them: only in a skipped replay. */
void gpu_print_grads_backup(gpu_codegen_t *t, size_t bytes, bool back);
/* Converts n elements from a buffer to a buffer, also after a guard. */
void gpu_print_convert(gpu_codegen_t *t, const gpu_buffer_t *from, pl_dtype_t from_type,
                       const gpu_buffer_t *to, pl_dtype_t to_type, size_t n);
/* Print one operation; false: it is none of these. */
bool gpu_print_reduction(gpu_codegen_t *t, int op);
bool gpu_print_axis(gpu_codegen_t *t, int op);
bool gpu_print_move(gpu_codegen_t *t, int op);
bool gpu_print_row(gpu_codegen_t *t, int op);
bool gpu_print_product(gpu_codegen_t *t, int op);
bool gpu_print_space(gpu_codegen_t *t, int op);
/* Ends the current kernel with the tiles of a product, by A(batch, m, k), B(batch, k, n)
 * and C(batch, m, n, v). */
void gpu_print_tiles(gpu_codegen_t *t, int64_t batches, int64_t m, int64_t n, int64_t k);
/* CONTROL and OPERATION, for checked_index(): an index of operation `op` outside [0,
 * below) ends the replay. */
void gpu_define_check(gpu_codegen_t *t, int op, int64_t below);
/* The rows of input 1 of an operation, added up by the indices of input 0 into the rows
 * of its result, whose last two axes are rows and width. */
void gpu_print_row_sums(gpu_codegen_t *t, int op);
/* The beginnings of the matrices of an operand: a view over the leading axes of the
 * result, over which the operand may be repeated. */
pl_view_t gpu_batches(pl_shape_t own, pl_shape_t all);
/* The position of input k of a concat in the result. */
pl_view_t gpu_concat_part(const gpu_codegen_t *t, const pl_op_t *concat, int k);
bool gpu_print_attention(gpu_codegen_t *t, int op);
bool gpu_print_recurrent(gpu_codegen_t *t, int op);
bool gpu_print_ctc(gpu_codegen_t *t, int op);
bool gpu_print_user(gpu_codegen_t *t, int op);

/* ---- codegen_unit.c: lines of element-wise operations ---- */

enum {
    GPU_UNIT_KNOWN = 192,                                  /* values of a unit, at most */
    GPU_UNIT_TOTALS = 4,
};

/* A value that a register holds: v3, or v3.at[k] of four. */
typedef struct known {
    int32_t value;
    int number;
    pl_view_t repeat;                   /* how it repeats  [rank 0: element by element] */
} gpu_known_t;

typedef struct store {
    gpu_buffer_t buffer;
    pl_dtype_t dtype;
    int number;                                             /* of the register */
} gpu_store_t;

typedef struct unit {
    gpu_codegen_t *t;
    int from, to;                                           /* operations */
    int64_t n;
    int width;                                              /* elements at a time */
    gpu_known_t known[GPU_UNIT_KNOWN];
    int known_count, registers;
    gpu_store_t store[GPU_UNIT_KNOWN];
    int stores;
    const pl_op_t *total[GPU_UNIT_TOTALS];
    int totals, totals_ahead;                               /* printed; of the unit */
    gpu_string_t loop;                                      /* the lines */
} gpu_unit_t;

/* Adds operation i: prints its loads, and keeps its line and its stores for the end. */
void gpu_unit_op(gpu_unit_t *u, int i);
/* Prints the lines and then the stores. */
void gpu_unit_print(gpu_unit_t *u);
/* The halves of the parameters in a buffer. */
gpu_buffer_t gpu_low_of(const gpu_codegen_t *t, const gpu_buffer_t *buffer,
                        pl_dtype_t dtype);
/* Whether four elements of a value can be loaded at once. */
bool gpu_is_aligned(const gpu_buffer_t *buffer, pl_dtype_t dtype);

#endif
