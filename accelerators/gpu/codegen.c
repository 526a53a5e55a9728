/* codegen.c - kernels of a plan as text: names, arguments and types */
#include "accelerators/gpu/codegen.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { CONVERT_THREADS = 256, CONVERT_GROUPS = 1024, TEXT_KERNELS = 12 };

static void no_memory(gpu_codegen_t *t)
{
    if (t->error.code == PL_OK)
        pl_no_memory(&t->error);
}

/* ---- Strings ---- */

void gpu_write_list(gpu_codegen_t *t, gpu_string_t *to, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (t->error.code != PL_OK)
        return;
    if (length < 0) {
        no_memory(t);
        return;
    }
    if (to->length + (size_t)length >= to->capacity) {
        const size_t capacity = (to->length + (size_t)length + 1024) * 2;
        char *text = pl_resize(to->text, capacity);
        if (!text) {
            no_memory(t);
            return;
        }
        to->text = text;
        to->capacity = capacity;
    }
    vsnprintf(to->text + to->length, (size_t)length + 1, format, args);
    to->length += (size_t)length;
}

void gpu_write(gpu_codegen_t *t, gpu_string_t *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gpu_write_list(t, to, format, args);
    va_end(args);
}

void gpu_print(gpu_codegen_t *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gpu_write_list(t, &t->body, format, args);
    va_end(args);
}

void gpu_codegen_release(gpu_codegen_t *t)
{
    for (int k = 0; k < t->texts; k++)
        pl_free(t->text[k].text);
    pl_free(t->text);
    pl_free(t->body.text);
    pl_free(t->ahead.text);
    pl_free(t->parts.text);
    pl_free(t->kernel);
    pl_free(t->check);
}

/* ---- A kernel ---- */

void gpu_kernel_begin(gpu_codegen_t *t, const char *what)
{
    gpu_parts_close(t);
    if (t->error.code == PL_OK && PL_GROW(t->kernel, t->kernels, t->capacity) != PL_OK)
        no_memory(t);
    if (t->error.code != PL_OK)
        return;
    if (!t->texts || t->text_kernels >= TEXT_KERNELS) {
        if (PL_GROW(t->text, t->texts, t->text_capacity) != PL_OK) {
            no_memory(t);
            return;
        }
        t->text[t->texts++] = (gpu_string_t){NULL};
        t->text_kernels = 0;
        gpu_write(t, &t->text[t->texts - 1],
                  "%s#include \"accelerators/gpu/kernels/dialect.h\"\n"
                  "#include \"accelerators/gpu/kernels/%s.k\"\n",
                  t->wide ? "#define WIDE 1\n" : "",
                  t->wide ? "functions_wide" : "functions");
    }
    t->text_kernels++;
    gpu_kernel_t *kernel = &t->kernel[t->kernels++];
    *kernel = (gpu_kernel_t){.text = t->texts - 1};
    snprintf(kernel->name, sizeof kernel->name, "%.16s_%d", what, t->kernels);
    t->body.length = t->ahead.length = t->parts.length = 0;
    t->defines = 0;
}

gpu_kernel_t *gpu_library_kernel(gpu_codegen_t *t, const char *what,
                                 const gpu_buffer_t *buffer, int count)
{
    gpu_parts_close(t);
    if (t->error.code == PL_OK && PL_GROW(t->kernel, t->kernels, t->capacity) != PL_OK)
        no_memory(t);
    if (t->error.code != PL_OK)
        return NULL;
    gpu_kernel_t *kernel = &t->kernel[t->kernels++];
    *kernel = (gpu_kernel_t){.launch[0].count = count};
    snprintf(kernel->name, sizeof kernel->name, "%s_%d", what, t->kernels);
    memcpy(kernel->buffer, buffer, (size_t)count * sizeof *buffer);
    return kernel;
}

static bool same_buffer(const gpu_buffer_t *a, const gpu_buffer_t *b)
{
    return a->at == b->at && a->index == b->index && a->offset == b->offset;
}

int gpu_argument(gpu_codegen_t *t, const gpu_buffer_t *buffer, const char *type,
                 bool writes)
{
    if (t->error.code != PL_OK)
        return 0;
    gpu_kernel_t *kernel = &t->kernel[t->kernels - 1];
    int k = 0;
    while (k < kernel->launch[0].count
           && !(same_buffer(&kernel->buffer[k], buffer) && !strcmp(t->type[k], type)))
        k++;
    if (k == PL_LAUNCH_ADDRESSES) {
        pl_fail(&t->error, PL_EBUG, "kernel %s has more than %d arguments", kernel->name,
                PL_LAUNCH_ADDRESSES);
        return 0;
    }
    if (k == kernel->launch[0].count) {
        kernel->buffer[k] = *buffer;
        kernel->launch[0].count++;
        t->type[k] = type;
    }
    gpu_buffer_t *own = &kernel->buffer[k];
    size_t reach = buffer->reach;
    if (!reach)                                             /* a buffer without a value */
        reach = buffer->at == GPU_IN_STEP      ? sizeof(gpu_step_t)
                : buffer->at == GPU_IN_CONTROL ? sizeof(gpu_control_t)
                : buffer->at == GPU_IN_RECORD
                    ? GPU_RECORD_SUMS + t->record - buffer->offset
                : buffer->at == GPU_IN_COUNTER ? t->counters
                                               : buffer->bytes;
    const bool is_own = t->is_small && own->writes && own->made == buffer->value;
    own->writes |= writes;
    own->reads |= !writes && !is_own;
    if (own->bytes < buffer->bytes)
        own->bytes = buffer->bytes;
    if (own->reach < reach)
        own->reach = reach;
    if (writes)
        own->made = buffer->value;
    else if (!is_own)
        own->value = buffer->value;
    return k;
}

/* ---- Macros of a body ---- */

void gpu_define(gpu_codegen_t *t, const char *word, const char *format, ...)
{
    va_list args;
    if (t->error.code == PL_OK && t->defines == GPU_DEFINES)
        pl_fail(&t->error, PL_EBUG, "a kernel has more than %d words", GPU_DEFINES);
    if (t->error.code != PL_OK)
        return;
    snprintf(t->defined[t->defines++], sizeof t->defined[0], "%.*s",
             (int)strcspn(word, "("), word);
    gpu_print(t, "#define %s ", word);
    va_start(args, format);
    gpu_write_list(t, &t->body, format, args);
    va_end(args);
    gpu_print(t, "\n");
}

void gpu_undefine(gpu_codegen_t *t)
{
    for (int k = 0; k < t->defines; k++)
        gpu_print(t, "#undef %s\n", t->defined[k]);
    t->defines = 0;
}

void gpu_define_number(gpu_codegen_t *t, const char *word, int64_t number)
{
    gpu_define(t, word, "%lld", (long long)number);
}

bool gpu_is_allocated(const gpu_codegen_t *t, int32_t value)
{
    return t->allocation[value].kind != PL_ALLOCATION_NONE;
}

void gpu_define_load(gpu_codegen_t *t, const char *name, int32_t value)
{
    const pl_value_t *v = &t->g->value[t->allocation[value].root];
    char word[24], number[40];
    if (gpu_define_before(t, name, value))
        return;
    snprintf(word, sizeof word, "%.16s(i)", name);
    if (v->source == PL_FROM_CONSTANT) {
        gpu_define(t, word, "%s", gpu_number(t, v->constant, number));
    } else if (v->source == PL_FROM_SCALAR) {
        const int a = gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_STEP}, "step_t",
                                   false);
        gpu_define(t, word, "((real)a%d->scalar[%d])", a, v->index);
    } else {
        const gpu_buffer_t buffer = gpu_buffer_of(t, value);
        gpu_define(t, word, "%sload_%s(a%d, i)", pl_is_float(v->dtype) ? "(real)" : "",
                   gpu_suffix(v->dtype),
                   gpu_argument(t, &buffer, gpu_type(v->dtype), false));
    }
}

void gpu_define_store(gpu_codegen_t *t, const char *name, int32_t value)
{
    const pl_dtype_t dtype = t->g->value[value].dtype;
    char word[24];
    if (gpu_define_after(t, name, value))
        return;
    snprintf(word, sizeof word, "%.16s(i, v)", name);
    if (!gpu_is_allocated(t, value)) {
        gpu_define(t, word, "((void)(v))");
        return;
    }
    const gpu_buffer_t buffer = gpu_buffer_of(t, value);
    gpu_define(t, word, "store_%s(a%d, i, v)", gpu_suffix(dtype),
               gpu_argument(t, &buffer, gpu_type(dtype), true));
}

void gpu_accesses_rows(gpu_codegen_t *t, int32_t value, int64_t rows)
{
    if (t->error.code != PL_OK)
        return;
    const gpu_buffer_t buffer = gpu_buffer_of(t, value);
    const pl_shape_t shape = t->g->value[value].shape;
    gpu_kernel_t *kernel = &t->kernel[t->kernels - 1];
    for (int k = 0; k < kernel->launch[0].count; k++)
        if (same_buffer(&kernel->buffer[k], &buffer) && rows < shape.dim[0])
            kernel->buffer[k].bytes = buffer.bytes / (size_t)shape.dim[0] * (size_t)rows;
}

void gpu_define_scratch(gpu_codegen_t *t, const char *name, size_t offset, int64_t count)
{
    const size_t end = offset + (size_t)count * sizeof(double);
    if (t->scratch < end)
        t->scratch = end;
    gpu_define(t, name, "a%d",
               gpu_argument(t,
                            &(gpu_buffer_t){.at = GPU_IN_SCRATCH,
                                            .offset = offset,
                                            .bytes = (size_t)count * sizeof(double)},
                            "double", true));
}

void gpu_define_counters(gpu_codegen_t *t, const char *name, int64_t count)
{
    const size_t bytes = (size_t)count * sizeof(uint32_t);
    if (t->counters < bytes)
        t->counters = bytes;
    gpu_define(t, name, "a%d",
               gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_COUNTER}, "uint32_t", true));
}

const char *gpu_index_text(const pl_view_t *view, const char *element, bool narrow,
                           char text[GPU_INDEX_TEXT])
{
    const pl_view_t v = pl_view_merged(view);
    int length = 0;
    int64_t inner = 1;
    if (v.offset)
        length = snprintf(text, GPU_INDEX_TEXT, "%lld", (long long)v.offset);
    for (int k = v.shape.rank - 1; k >= 0; k--) {
        if (v.stride[k]) {
            length += snprintf(text + length, GPU_INDEX_TEXT - (size_t)length,
                               "%s(int64_t)(%s(%s)", length ? " + " : "",
                               narrow ? "(uint32_t)" : "", element);
            if (inner > 1)
                length += snprintf(text + length, GPU_INDEX_TEXT - (size_t)length,
                                   " / %lld", (long long)inner);
            if (k > 0)
                length += snprintf(text + length, GPU_INDEX_TEXT - (size_t)length,
                                   " %% %lld", (long long)v.shape.dim[k]);
            length += snprintf(text + length, GPU_INDEX_TEXT - (size_t)length, ") * %lld",
                               (long long)v.stride[k]);
        }
        inner *= v.shape.dim[k];
    }
    if (!length)
        snprintf(text, GPU_INDEX_TEXT, "0");
    return text;
}

void gpu_define_index(gpu_codegen_t *t, const char *word, const char *element,
                      const pl_view_t *view)
{
    char text[GPU_INDEX_TEXT];
    gpu_define(t, word, "(%s)",
               gpu_index_text(view, element, pl_elements(view->shape) <= INT32_MAX,
                              text));
}

int gpu_add_check(gpu_codegen_t *t, int op, int64_t below)
{
    if (t->error.code == PL_OK
        && PL_GROW(t->check, t->checks, t->check_capacity) != PL_OK)
        no_memory(t);
    if (t->error.code != PL_OK)
        return 0;
    t->check[t->checks] = (gpu_check_t){t->g->op[op], below};
    return t->checks++;
}

void gpu_include(gpu_codegen_t *t, const char *name)
{
    gpu_print(t, "#include \"accelerators/gpu/kernels/%s.k\"\n", name);
}

/* "GLOBAL const float *a0, …", broken before column 90. */
static void print_parameters(gpu_codegen_t *t, gpu_string_t *to)
{
    const gpu_kernel_t *kernel = &t->kernel[t->kernels - 1];
    size_t line = to->length;
    while (line > 0 && to->text[line - 1] != '\n')
        line--;
    for (int k = 0; k < kernel->launch[0].count; k++) {
        const char *kind = kernel->buffer[k].writes ? "" : "const ";
        const size_t next = strlen(kind) + strlen(t->type[k]) + 16;
        const bool breaks = to->length - line + next > 90;
        if (k)
            gpu_write(t, to, breaks ? ",\n    " : ", ");
        if (k && breaks)
            line = to->length - 4;
        gpu_write(t, to, "GLOBAL %s%s *a%d", kind, t->type[k], k);
    }
}

/* Writes a word of a user into a comment or a literal, without characters that end it. */
static void print_word(gpu_codegen_t *t, gpu_string_t *to, const char *word)
{
    for (; *word; word++)
        gpu_write(t, to, "%c",
                  isalnum((unsigned char)*word) || strchr("_.-", *word) ? *word : '.');
}

void gpu_function(gpu_codegen_t *t, const char *word, const char *parameter,
                  const char *body, const char *operator)
{
    if (t->error.code != PL_OK)
        return;
    const gpu_kernel_t *kernel = &t->kernel[t->kernels - 1];
    char call[32];
    gpu_write(t, &t->ahead, "%sFN void %s_of(int64_t %s, ", t->body.text, kernel->name,
              parameter);
    print_parameters(t, &t->ahead);
    gpu_write(t, &t->ahead, ")\n{\n#line 1 \"operator ");
    print_word(t, &t->ahead, operator);
    gpu_write(t, &t->ahead, "\"\n%s\n}\n#line 1 \"%s\"\n", body, kernel->name);
    t->body.length = 0;
    snprintf(call, sizeof call, "%s(%s)", word, parameter);
    gpu_define(t, call, "%s_of(%s", kernel->name, parameter);
    t->body.length--;
    for (int k = 0; k < kernel->launch[0].count; k++)
        gpu_print(t, ", a%d", k);
    gpu_print(t, ")\n");
}

/* A line has the level of its braces; a statement without braces after an if or a for is
 * one level deeper. */
void gpu_write_indented(gpu_codegen_t *t, gpu_string_t *to, const char *lines)
{
    int depth = 1, under = 0;
    for (const char *line = lines; *line;) {
        line += strspn(line, " ");
        const size_t length = strcspn(line, "\n");
        const bool plain = length && *line != '#';
        const int level = !plain         ? 0
                          : *line == '}' ? depth - 1
                          : *line == '{' ? depth
                                         : depth + under;
        gpu_write(t, to, "%*s%.*s\n", level * 4, "", (int)length, line);
        for (size_t k = 0; k < length && plain; k++)
            depth += (line[k] == '{') - (line[k] == '}');
        if (plain)
            under = strchr(";{}", line[length - 1]) ? 0 : under + 1;
        line += length + (line[length] == '\n');
    }
}

/* The kernel, and for the emulator a function that calls it with a list of addresses. */
static void kernel_end(gpu_codegen_t *t, int64_t groups, int threads, int control)
{
    gpu_undefine(t);
    if (t->error.code != PL_OK)
        return;
    gpu_kernel_t *kernel = &t->kernel[t->kernels - 1];
    const int arguments = kernel->launch[0].count;
    kernel->launch[0].groups = groups;
    kernel->launch[0].threads = threads;
    gpu_string_t *text = &t->text[kernel->text];
    /* "element_3: add, relu; h.0.fc1": the operations of the kernel. */
    gpu_write(t, text, "\n/* ---- %s", kernel->name);
    for (int i = t->from, named = 0; i < t->to && named < 8; i++) {
        const pl_op_t *op = &t->g->op[i];
        if (op->code == PL_OP_reshape)
            continue;
        gpu_write(t, text, named++ ? ", " : ": ");
        print_word(t, text, pl_op_name(op));
    }
    if (t->from < t->to && *t->g->op[t->from].path) {
        gpu_write(t, text, "; ");
        print_word(t, text, t->g->op[t->from].path);
    }
    gpu_write(t, text, " ---- */\n");
    if (t->parts.length) {    /* functions of the kernel have its parameters, by macros */
        gpu_write(t, text, "#define PARAMETERS");
        for (int k = 0; k < arguments; k++)
            gpu_write(t, text, "%s \\\n    GLOBAL %s%s *a%d", k ? "," : "",
                      kernel->buffer[k].writes ? "" : "const ", t->type[k], k);
        gpu_write(t, text, "\n#define ARGUMENTS");
        for (int k = 0; k < arguments; k++)
            gpu_write(t, text, "%s a%d", k ? "," : "", k);
        gpu_write(t, text, "\n\n%s", t->parts.text);
    }
    if (t->ahead.length)
        gpu_write(t, text, "%s", t->ahead.text);
    gpu_write(t, text, "KERNEL void BOUNDS(%d) %s(", threads, kernel->name);
    print_parameters(t, text);
    gpu_write(t, text, ")\n{\n");
    if (control >= 0)
        gpu_write(t, text, "    if (a%d->status)\n        return;\n", control);
    if (t->body.length)
        gpu_write_indented(t, text, t->body.text);
    gpu_write(t, text, "}\nENTER(%s", kernel->name);
    for (int k = 0; k < arguments; k++)
        gpu_write(t, text, ", (void *)a[%d]", k);
    gpu_write(t, text, ")\n");
    if (t->parts.length)
        gpu_write(t, text, "#undef PARAMETERS\n#undef ARGUMENTS\n");
}

/* A kernel that changes a region has no effect after a guard has stopped the replay. */
void gpu_kernel_end(gpu_codegen_t *t, int64_t groups, int threads)
{
    const gpu_kernel_t *kernel = t->error.code == PL_OK ? &t->kernel[t->kernels - 1]
                                                        : NULL;
    bool changes = false;
    for (int k = 0; kernel && k < kernel->launch[0].count; k++)
        changes |= kernel->buffer[k].at == GPU_IN_REGION && kernel->buffer[k].writes;
    const int control = changes && !t->is_small
                            ? gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_CONTROL},
                                           "control_t", false)
                            : -1;
    kernel_end(t, groups, threads, control);
}

void gpu_print_convert(gpu_codegen_t *t, const gpu_buffer_t *from, pl_dtype_t from_type,
                       const gpu_buffer_t *to, pl_dtype_t to_type, size_t n)
{
    const int64_t groups = ((int64_t)n + CONVERT_THREADS - 1) / CONVERT_THREADS;
    gpu_kernel_begin(t, "convert");
    gpu_buffer_t in = *from, out = *to;
    in.reach = n * pl_dtype_size(from_type);
    out.reach = n * pl_dtype_size(to_type);
    const int a = gpu_argument(t, &in, gpu_type(from_type), false),
              b = gpu_argument(t, &out, gpu_type(to_type), true);
    gpu_print(t,
              "    for (int64_t i = (int64_t)GROUP * THREADS + THREAD; i < %lld;\n"
              "         i += (int64_t)GROUPS * THREADS)\n"
              "        store_%s(a%d, i, load_%s(a%d, i));\n",
              (long long)n, gpu_suffix(to_type), b, gpu_suffix(from_type), a);
    kernel_end(t, groups < CONVERT_GROUPS ? groups : CONVERT_GROUPS, CONVERT_THREADS, -1);
}

void gpu_print_grads_backup(gpu_codegen_t *t, size_t bytes, bool back)
{
    const gpu_buffer_t grads = {.at = GPU_IN_REGION,
                                .index = PL_REGION_GRADS,
                                .reach = bytes},
                       backup = {.at = GPU_IN_GRADS_BACKUP, .reach = bytes};
    const int64_t words = (int64_t)(bytes / sizeof(uint16_t)),
                  groups = (words + CONVERT_THREADS - 1) / CONVERT_THREADS;
    gpu_kernel_begin(t, back ? "put_back" : "keep");
    const int control = gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_CONTROL},
                                     "control_t", false),
              from = gpu_argument(t, back ? &backup : &grads, "uint16_t", false),
              to = gpu_argument(t, back ? &grads : &backup, "uint16_t", true);
    gpu_print(t,
              "    if (!a%d->fail_fast || !a%d->skipping)\n        return;\n"
              "    for (int64_t i = (int64_t)GROUP * THREADS + THREAD; i < %lld;\n"
              "         i += (int64_t)GROUPS * THREADS)\n"
              "        a%d[i] = a%d[i];\n",
              control, control, (long long)words, to, from);
    kernel_end(t, groups < CONVERT_GROUPS ? groups : CONVERT_GROUPS, CONVERT_THREADS, -1);
}

/* ---- Values ---- */

gpu_buffer_t gpu_buffer_of(const gpu_codegen_t *t, int32_t value)
{
    const pl_allocation_t *allocation = &t->allocation[value];
    const pl_value_t *v = &t->g->value[value], *root = &t->g->value[allocation->root];
    const size_t width = pl_dtype_size(root->dtype);
    const int64_t own = pl_elements(v->shape), all = pl_elements(root->shape);
    gpu_buffer_t buffer = {.bytes = (size_t)(own < all ? own : all) * width,
                           .reach = (size_t)all * width,
                           .count = (size_t)all,
                           .value = t->fusion->root[value] + 1};
    if (allocation->kind == PL_ALLOCATION_ARENA) {
        buffer.at = GPU_IN_ARENA;
        buffer.offset = (size_t)allocation->offset;
    } else if (allocation->kind == PL_ALLOCATION_TARGET) {
        buffer.at = GPU_IN_REGION;
        buffer.index = (int)allocation->region;
        buffer.offset = (size_t)allocation->offset * width;
    } else if (root->source == PL_FROM_INPUT) {
        buffer.at = GPU_IN_BATCH;
        buffer.offset = t->input_at[root->index];
    } else if (root->source == PL_FROM_TENSOR) {
        buffer.at = GPU_IN_TENSOR;
        buffer.index = root->index;
    } else {
        buffer.at = GPU_IN_REGION;
        buffer.index = root->index;
        buffer.offset = (size_t)root->offset * width;
    }
    return buffer;
}

const char *gpu_type(pl_dtype_t dtype)
{
    switch (dtype) {
    case PL_F64: return "double";
    case PL_I32: return "int32_t";
    case PL_I64: return "int64_t";
    case PL_U8: return "uint8_t";
    case PL_BF16:
    case PL_F16: return "uint16_t";
    default: return "float";
    }
}

const char *gpu_suffix(pl_dtype_t dtype)
{
    switch (dtype) {
    case PL_F64: return "f64";
    case PL_BF16: return "bf16";
    case PL_F16: return "f16";
    case PL_I32: return "i32";
    case PL_I64: return "i64";
    case PL_U8: return "u8";
    default: return "f32";
    }
}

const char *gpu_number(const gpu_codegen_t *t, double number, char text[40])
{
    if (isnan(number))
        snprintf(text, 40, "(real)NAN");
    else if (isinf(t->wide ? number : (double)(float)number))
        snprintf(text, 40, "%s(real)INFINITY", number < 0 ? "-" : "");
    else if (t->wide)
        snprintf(text, 40, "%a", number);
    else
        snprintf(text, 40, "%af", (double)(float)number);
    return text;
}
