/* nvrtc.c - a replacement of NVRTC, libnvrtc.so.13, by the C compiler, for the emulator
 *
 * A text and its headers are written to a folder of their own, so a missing header is
 * found.  "Machine code" is the bytes of the shared object.  The variable STAND_IN_NVRTC
 * has "fails": no text compiles; "slow=MS": each takes so long, unless it is interrupted;
 * "deaf=MS": the same, and it cannot be interrupted.  The environment has the compiler
 * (CC, "cc") and the folder of the emulator's header (top_srcdir).
 *
 * A process keeps the code of the texts that it has compiled: tests compile most of them
 * several times, and the compiler takes most of their time. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accelerators/cuda/load.h"

#define API __attribute__((visibility("default")))
#define NVRTC(member, symbol, parameters) API cu_result_t symbol parameters;
#define NVRTC_13(member, symbol, parameters) API cu_result_t symbol parameters;
#include "accelerators/cuda/names.def"

enum { PATH = 512 };

typedef struct _nvrtcProgram {
    char folder[64];
    char *source;                                           /* the text and its headers */
    char *log, *code;
    size_t bytes;
    bool is_ptx;
    int (*ends)(void *user, void *reserved);
    void *user;
} program_t;

/* How many texts were compiled, and how many are being compiled, for tests. */
API int stand_in_compiled, stand_in_compiling;

/* NVIDIA's corrupts memory where it is ended under a thread that compiles. */
__attribute__((destructor)) static void ended(void)
{
    if (__atomic_load_n(&stand_in_compiling, __ATOMIC_RELAXED))
        abort();
}

API cu_result_t nvrtcVersion(int *major, int *minor)
{
    *major = 13, *minor = 99;                /* so that no cache confuses it with NVRTC */
    return NVRTC_OK;
}

static const int archs[] = {75, 80, 90, 100};

API cu_result_t nvrtcGetNumSupportedArchs(int *count)
{
    *count = sizeof archs / sizeof *archs;
    return NVRTC_OK;
}

API cu_result_t nvrtcGetSupportedArchs(int *to)
{
    memcpy(to, archs, sizeof archs);
    return NVRTC_OK;
}

/* A file of the program's folder, and the folders that its name has. */
static FILE *file_new(const program_t *program, const char *name)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", program->folder, name);
    for (char *at = path + strlen(program->folder) + 1; (at = strchr(at, '/'));
         *at++ = '/') {
        *at = '\0';
        mkdir(path, 0700);
    }
    return fopen(path, "w");
}

/* The driver knows how many arguments a kernel has; here the line of the text says so
 * that makes it callable with a list: ENTER(NAME, (void *)a[0], …). */
static void write_counts(FILE *file, const char *text)
{
    while ((text = strstr(text, "\nENTER("))) {
        text += strlen("\nENTER(");
        const char *end = text + strcspn(text, "\n"), *at = text;
        int count = 0;
        while ((at = strstr(at, "(void *)a[")) && at++ < end)
            count++;
        fprintf(file, "const int %.*s_arguments = %d;\n", (int)strcspn(text, ",)"), text,
                count);
    }
}

API cu_result_t nvrtcCreateProgram(nvrtcProgram *made, const char *text, const char *name,
                                   int count, const char *const *headers,
                                   const char *const *names)
{
    const char *around = getenv("TMPDIR");
    program_t *program = calloc(1, sizeof *program);
    snprintf(program->folder, sizeof program->folder, "%.40s/nvrtc.XXXXXX",
             around ? around : "/tmp");
    if (!mkdtemp(program->folder) || !name) {
        free(program);
        return 2;
    }
    FILE *file = file_new(program, "text.c");
    fprintf(file, "#include \"t/emulator.h\"\n%s\n", text);
    write_counts(file, text);
    fclose(file);
    size_t bytes;
    FILE *source = open_memstream(&program->source, &bytes);
    fputs(text, source);
    for (int k = 0; k < count; k++) {
        file = file_new(program, names[k]);
        fputs(headers[k], file);
        fclose(file);
        fprintf(source, "\n%s\n%s", names[k], headers[k]);
    }
    fclose(source);
    *made = program;
    return NVRTC_OK;
}

API cu_result_t nvrtcDestroyProgram(nvrtcProgram *program)
{
    char command[PATH];
    snprintf(command, sizeof command, "rm -rf '%s'", (*program)->folder);
    if (system(command) != 0)
        perror(command);
    free((*program)->source);
    free((*program)->log);
    free((*program)->code);
    free(*program);
    *program = NULL;
    return NVRTC_OK;
}

static char *read_file(const program_t *program, const char *name, size_t *bytes)
{
    char path[PATH];
    struct stat facts;
    snprintf(path, sizeof path, "%s/%s", program->folder, name);
    FILE *file = fopen(path, "r");
    if (!file || fstat(fileno(file), &facts) != 0)
        return NULL;
    char *data = calloc(1, (size_t)facts.st_size + 1);
    *bytes = fread(data, 1, (size_t)facts.st_size, file);
    fclose(file);
    return data;
}

/* "plan.k(3): error: …" is how NVRTC writes it. */
static cu_result_t fail(program_t *program, const char *log)
{
    program->log = strdup(log);
    return NVRTC_WRONG_TEXT;
}

API cu_result_t nvrtcSetFlowCallback(nvrtcProgram program,
                                     int (*ends)(void *user, void *reserved), void *user)
{
    program->ends = ends, program->user = user;
    return NVRTC_OK;
}

/* false: it was interrupted. */
static bool take_time(const program_t *program, const char *fault)
{
    enum { SLICE_MS = 20, CANCELLED = 1 };
    const bool is_deaf = fault && strncmp(fault, "deaf=", 5) == 0;
    if (!is_deaf && !(fault && strncmp(fault, "slow=", 5) == 0))
        return true;
    for (int ms = atoi(fault + 5); ms > 0; ms -= SLICE_MS) {
        usleep(SLICE_MS * 1000);
        if (!is_deaf && program->ends && program->ends(program->user, NULL) == CANCELLED)
            return false;
    }
    return true;
}

/* Code of a text, for as long as the process runs. */
typedef struct compiled {
    char *source, *code;
    size_t bytes;
    struct compiled *next;
} compiled_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static compiled_t *all_compiled;

static bool code_find(program_t *program)
{
    pthread_mutex_lock(&lock);
    const compiled_t *one = all_compiled;
    while (one && strcmp(one->source, program->source))
        one = one->next;
    pthread_mutex_unlock(&lock);
    if (!one)
        return false;
    program->code = memcpy(malloc(one->bytes), one->code, one->bytes);
    program->bytes = one->bytes;
    return true;
}

static void code_keep(const program_t *program)
{
    compiled_t *one = malloc(sizeof *one);
    *one = (compiled_t){.source = strdup(program->source),
                        .code = memcpy(malloc(program->bytes), program->code,
                                       program->bytes),
                        .bytes = program->bytes};
    pthread_mutex_lock(&lock);
    one->next = all_compiled;
    all_compiled = one;
    pthread_mutex_unlock(&lock);
}

static cu_result_t compile(nvrtcProgram program, int count, const char *const *options)
{
    const char *compiler = getenv("CC"), *top = getenv("top_srcdir");
    const char *fault = getenv("STAND_IN_NVRTC");
    bool has_target = false;
    char command[4 * PATH];
    size_t bytes = 0;
    for (int k = 0; k < count; k++) {
        has_target |= strncmp(options[k], "--gpu-architecture=", 19) == 0;
        program->is_ptx |= strncmp(options[k], "--gpu-architecture=compute", 26) == 0;
    }
    if (!has_target)
        return 5;
    if (fault && strcmp(fault, "fails") == 0)
        return fail(program, "plan.k(7): warning: nothing\n"
                             "plan.k(12): error: identifier \"wrong\" is undefined\n");
    if (!take_time(program, fault))
        return 16;
    __atomic_add_fetch(&stand_in_compiled, 1, __ATOMIC_RELAXED);
    if (code_find(program))
        return NVRTC_OK;
    snprintf(command, sizeof command,
             "%s -x c -std=gnu11 -O1 -w -fPIC -shared -ffp-contract=off "
             "-DEMULATOR_LOADED -I'%s' -idirafter '%s' -idirafter '%s/engine' "
             "'%s/text.c' -o '%s/code.so' -lm 2>'%s/log'",
             compiler && *compiler ? compiler : "cc", program->folder, top ? top : "..",
             top ? top : "..", program->folder, program->folder, program->folder);
    if (system(command) != 0) {
        char *log = read_file(program, "log", &bytes);
        const cu_result_t result = fail(program, log ? log : "error: no compiler");
        free(log);
        return result;
    }
    program->code = read_file(program, "code.so", &program->bytes);
    if (!program->code)
        return 11;
    code_keep(program);
    return NVRTC_OK;
}

API cu_result_t nvrtcCompileProgram(nvrtcProgram program, int count,
                                    const char *const *options)
{
    __atomic_add_fetch(&stand_in_compiling, 1, __ATOMIC_RELAXED);
    const cu_result_t result = compile(program, count, options);
    __atomic_sub_fetch(&stand_in_compiling, 1, __ATOMIC_RELAXED);
    return result;
}

API cu_result_t nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes)
{
    *bytes = program->log ? strlen(program->log) + 1 : 1;
    return NVRTC_OK;
}

API cu_result_t nvrtcGetProgramLog(nvrtcProgram program, char *log)
{
    strcpy(log, program->log ? program->log : "");
    return NVRTC_OK;
}

API cu_result_t nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes)
{
    *bytes = program->is_ptx ? 0 : program->bytes;
    return NVRTC_OK;
}

API cu_result_t nvrtcGetCUBIN(nvrtcProgram program, char *cubin)
{
    memcpy(cubin, program->code, program->bytes);
    return NVRTC_OK;
}

API cu_result_t nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes)
{
    *bytes = program->bytes;
    return NVRTC_OK;
}

API cu_result_t nvrtcGetPTX(nvrtcProgram program, char *ptx)
{
    memcpy(ptx, program->code, program->bytes);
    return NVRTC_OK;
}
