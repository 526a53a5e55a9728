/* build.c - kernels from text, by the compiler of the device's driver, and their launches
 *
 * Drivers themselves keep compiled kernels on disk. */
#include <stdio.h>
#include <string.h>

#include "accelerators/opencl/opencl.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

#include "accelerators/gpu/headers.inc"

enum { HEADERS = sizeof header_text / sizeof *header_text };

struct pl_entry {
    pl_entry_t *next;
    cl_kernel kernel;
    size_t threads_max;
    char name[48];
};

struct pl_binary {
    cl_program program;
    pl_entry_t *entries;                                    /* a list */
};

/* Appends a text to `to`, with the headers in place of #include lines, because not each
 * driver finds headers  [to NULL: only counts].  Takes and returns the length so far. */
static size_t expand(const char *text, char *to, size_t length)
{
    static const char include[] = "#include \"";
    while (*text) {
        const size_t line = strcspn(text, "\n") + 1;
        const char *inside = NULL;
        for (int k = 0; k < HEADERS && strncmp(text, include, strlen(include)) == 0; k++)
            if (strncmp(text + strlen(include), header_name[k], strlen(header_name[k]))
                == 0)
                inside = header_text[k];
        if (inside) {
            length = expand(inside, to, length);
        } else {
            if (to)
                memcpy(to + length, text, line - !text[line - 1]);
            length += line - !text[line - 1];
        }
        text += line - !text[line - 1];
    }
    return length;
}

/* An error with the line of the compiler's log that reports it. */
static int fail_build(opencl_t *cl, cl_program program, cl_int result, pl_error_t *err)
{
    size_t bytes = 0;
    clGetProgramBuildInfo(program, cl->device.id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
    char *log = pl_alloc(bytes + 1);
    if (!log)
        return pl_no_memory(err);
    clGetProgramBuildInfo(program, cl->device.id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL);
    const char *wrong = strstr(log, "error");
    while (wrong && wrong > log && wrong[-1] != '\n')
        wrong--;
    pl_log_line(PL_LOG_DEBUG, -1, "", "OpenCL: %s", log);
    const int code =
        pl_fail(err, PL_EBUG, "opencl:%d (%s): kernels cannot be compiled (%s): %.*s",
                cl->number, cl->device.name, opencl_error_name(result),
                wrong ? (int)strcspn(wrong, "\n") : 6, wrong ? wrong : "no log");
    pl_free(log);
    return code;
}

/* Without optimization on PoCL: the optimizer of PoCL 3 loses the condition of a loop
 * after barriers, and groups that run at the same time disturb each other. */
int opencl_code_new(void *self, const char *text, pl_binary_t **code, pl_error_t *err)
{
    opencl_t *cl = self;
    char options[128];
    cl_int result;
    int failed = PL_OK;
    const size_t bytes = expand(text, NULL, 0);
    char *whole = pl_alloc(bytes + 1);
    pl_binary_t *fresh = pl_alloc(sizeof *fresh);
    if (!whole || !fresh) {
        pl_free(whole);
        pl_free(fresh);
        return pl_no_memory(err);
    }
    expand(text, whole, 0);
    snprintf(options, sizeof options, "%s -w%s%s", cl->device.language,
             cl->device.rounds_correctly ? " -cl-fp32-correctly-rounded-divide-sqrt" : "",
             strstr(cl->device.version, "PoCL") ? " -cl-opt-disable" : "");
    fresh->program = clCreateProgramWithSource(cl->context, 1, (const char **)&whole,
                                               &bytes, &result);
    if (fresh->program) {
        result = clBuildProgram(fresh->program, 1, &cl->device.id, options, NULL, NULL);
        if (result != CL_SUCCESS)
            failed = fail_build(cl, fresh->program, result, err);
    } else {
        failed = opencl_check(cl, err, result, "making a program");
    }
    pl_free(whole);
    if (failed == PL_OK) {
        *code = fresh;
        return PL_OK;
    }
    if (fresh->program)
        clReleaseProgram(fresh->program);
    pl_free(fresh);
    return failed;
}

void opencl_code_free(void *self, pl_binary_t *code)
{
    (void)self;
    for (pl_entry_t *entry = code->entries, *next; entry; entry = next) {
        next = entry->next;
        clReleaseKernel(entry->kernel);
        pl_free(entry);
    }
    clReleaseProgram(code->program);
    pl_free(code);
}

const pl_entry_t *opencl_code_entry(void *self, pl_binary_t *code, const char *name,
                                    pl_error_t *err)
{
    opencl_t *cl = self;
    cl_int result;
    for (pl_entry_t *entry = code->entries; entry; entry = entry->next)
        if (strcmp(entry->name, name) == 0)
            return entry;
    pl_entry_t *entry = pl_alloc(sizeof *entry);
    if (!entry) {
        pl_no_memory(err);
        return NULL;
    }
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->kernel = clCreateKernel(code->program, name, &result);
    if (!entry->kernel) {
        pl_free(entry);
        opencl_check(cl, err, result, "finding the kernel %s", name);
        return NULL;
    }
    clGetKernelWorkGroupInfo(entry->kernel, cl->device.id, CL_KERNEL_WORK_GROUP_SIZE,
                             sizeof entry->threads_max, &entry->threads_max, NULL);
    entry->next = code->entries;
    code->entries = entry;
    return entry;
}

int opencl_launch(void *self, pl_stream_t stream, const pl_kernel_launch_t *launch,
                  pl_error_t *err)
{
    opencl_t *cl = self;
    const pl_entry_t *entry = launch->entry;
    const size_t local = (size_t)launch->threads, global = local * (size_t)launch->groups;
    cl_int result = CL_SUCCESS;
    cl_event event = NULL;
    const int code = opencl_enter(cl, err);
    if (code != PL_OK)
        return code;
    if (entry->threads_max < local)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "opencl:%d (%s): the kernel %s needs groups of %zu threads, and "
                       "the device has %zu at most",
                       cl->number, cl->device.name, entry->name, local,
                       entry->threads_max);
    for (int k = 0; k < launch->count && result == CL_SUCCESS; k++)
        result = clSetKernelArgSVMPointer(entry->kernel, (cl_uint)k,
                                          opencl_pointer(launch->address[k]));
    if (result == CL_SUCCESS)
        result = clEnqueueNDRangeKernel(cl->queue[stream], entry->kernel, 1, NULL,
                                        &global, &local, 0, NULL, &event);
    if (event && stream == PL_STREAM_MAIN)
        opencl_watch(cl, event);
    else if (event)
        clReleaseEvent(event);
    return opencl_check(cl, err, result, "the kernel %s", entry->name);
}
