/* emulated_code.c - kernels for the emulator, compiled by the C compiler */
#include "emulated_code.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "emulator.h"
#include "kernel_texts.h"

#ifdef __SANITIZE_ADDRESS__
#define WATCH "-fsanitize=address,undefined -fno-sanitize-recover=all"
#elif defined __SANITIZE_THREAD__
#define WATCH "-fsanitize=thread"
#else
#define WATCH ""
#endif

struct pl_binary {
    int count;
    pl_entry_t entry[];
};

/* A kernel that is loaded, for as long as the process runs. */
typedef struct known {
    char *head, *text;
    emulated_enter_t *enter;
    struct known *next;
} known_t;

/* Of the table below.  Threads compile beside each other. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static known_t *table[4096];
static int numbers;

static known_t **place_of(const char *head, const char *text)
{
    uint32_t hash = 2166136261u;
    for (const char *at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    known_t **known = &table[hash % (sizeof table / sizeof *table)];
    while (*known && (strcmp((*known)->text, text) || strcmp((*known)->head, head)))
        known = &(*known)->next;
    return known;
}

/* ---- Compiling ---- */

static void name_write(char name[32], int number)
{
    snprintf(name, 32, "kernel_%d", number);
}

/* Kernels that have a number. */
static bool source_write(const char *path, const kernel_texts_t *texts,
                         const int number[])
{
    FILE *file = fopen(path, "w");
    char name[32];
    if (!file)
        return false;
    fprintf(file, "#include \"t/emulator.h\"\n%s", texts->head);
    for (int k = 0; k < texts->count; k++) {
        if (number[k] < 0)
            continue;
        name_write(name, number[k]);
        kernel_text_write(file, texts->kernel[k].text, name);
    }
    return fclose(file) == 0;
}

/* The first message of the compiler. */
static int fail_compiling(const char *log, pl_error_t *err)
{
    char line[512] = "";
    FILE *file = fopen(log, "r");
    while (file && fgets(line, sizeof line, file) && !strstr(line, "error"))
        ;
    if (file)
        fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return pl_fail(err, PL_EINVAL, "a kernel cannot be compiled: %s", line);
}

/* By the compiler that built the tests, quickly: compiling takes longer than running.
 * Each float operation is rounded by itself. */
static void *source_compile(const char *folder, pl_error_t *err)
{
    const char *compiler = getenv("CC"), *top = getenv("top_srcdir");
    char command[2048], object[256], log[256];
    snprintf(object, sizeof object, "%s/k.so", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    snprintf(command, sizeof command,
             "%s -x c -std=gnu11 -O0 -w -fPIC -shared -nostdlib -ffp-contract=off " WATCH
             " -DEMULATOR_LOADED -I'%s' -I'%s/engine' '%s/k.c' -o '%s' 2>'%s'",
             compiler && *compiler ? compiler : "cc", top ? top : "..", top ? top : "..",
             folder, object, log);
    const int status = system(command);
    void *library = status == 0 ? dlopen(object, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (status)
        fail_compiling(log, err);
    else if (!library)
        pl_fail(err, PL_EIO, "%s", dlerror());
    unlink(object), unlink(log);
    return library;
}

static void *library_new(const kernel_texts_t *texts, const int number[], pl_error_t *err)
{
    const char *around = getenv("TMPDIR");
    char folder[128], source[160];
    void *library = NULL;
    snprintf(folder, sizeof folder, "%s/emulated.XXXXXX", around ? around : "/tmp");
    if (!mkdtemp(folder)) {
        pl_fail(err, PL_EIO, "no folder for kernels can be made: %m");
        return NULL;
    }
    snprintf(source, sizeof source, "%s/k.c", folder);
    if (source_write(source, texts, number))
        library = source_compile(folder, err);
    else
        pl_fail(err, PL_EIO, "%s cannot be written: %m", source);
    unlink(source), rmdir(folder);
    if (library)
        *(const emulator_calls_t **)dlsym(library,
                                          "emulator_calls") = &emulator_own_calls;
    return library;
}

/* ---- The table ---- */

static void known_add(known_t **place, const char *head, const char *text, void *library,
                      int number)
{
    char name[40];
    name_write(name, number);
    strcat(name, "_enter");
    known_t *known = *place = calloc(1, sizeof *known);
    *known = (known_t){.head = strdup(head), .text = strdup(text)};
    *(void **)&known->enter = dlsym(library, name);
}

/* Numbers for kernels that are not in the table, -1 for the others; a text may have a
 * kernel twice.  -> how many are new. */
static int number_new(const kernel_texts_t *texts, int number[])
{
    const kernel_text_t *kernel = texts->kernel;
    int fresh = 0;
    for (int k = 0; k < texts->count; k++) {
        int same = 0;
        while (same < k && strcmp(kernel[same].text, kernel[k].text))
            same++;
        const bool known = same < k || *place_of(texts->head, kernel[k].text);
        number[k] = known ? -1 : numbers++;
        fresh += !known;
    }
    return fresh;
}

/* Compiles kernels that are not in the table. */
static bool code_learn(const kernel_texts_t *texts, pl_error_t *err)
{
    int *number = calloc((size_t)texts->count + 1, sizeof *number);
    pthread_mutex_lock(&lock);
    const int fresh = number_new(texts, number);
    pthread_mutex_unlock(&lock);
    void *library = fresh ? library_new(texts, number, err) : NULL;
    pthread_mutex_lock(&lock);
    for (int k = 0; k < texts->count && library; k++) {
        known_t **place = place_of(texts->head, texts->kernel[k].text);
        if (number[k] >= 0 && !*place)
            known_add(place, texts->head, texts->kernel[k].text, library, number[k]);
    }
    pthread_mutex_unlock(&lock);
    free(number);
    return !fresh || library;
}

static void text_keep(const char *text)
{
    static int kept;
    const char *folder = getenv("KERNELS");
    char path[512];
    snprintf(path, sizeof path, "%s/%d.k", folder ? folder : "",
             __atomic_fetch_add(&kept, 1, __ATOMIC_RELAXED));
    FILE *file = folder ? fopen(path, "w") : NULL;
    if (file) {
        fputs(text, file);
        fclose(file);
    }
}

static pl_binary_t *binary_new(const kernel_texts_t *texts)
{
    pl_binary_t *code = malloc(sizeof *code + (size_t)texts->count * sizeof *code->entry);
    if (!code)
        return NULL;
    code->count = texts->count;
    pthread_mutex_lock(&lock);
    for (int k = 0; k < texts->count; k++)
        code->entry[k] =
            (pl_entry_t){.name = strdup(texts->kernel[k].name),
                         .enter = (*place_of(texts->head, texts->kernel[k].text))->enter};
    pthread_mutex_unlock(&lock);
    return code;
}

pl_binary_t *emulated_code_load(const char *text, pl_error_t *err)
{
    kernel_texts_t texts;
    pl_binary_t *code = NULL;
    text_keep(text);
    if (kernel_texts_split(&texts, text) != 0)
        pl_no_memory(err);
    else if (getenv("KERNELS_ALONE"))
        pl_fail(err, PL_EUNSUPPORTED, "kernels are kept alone");
    else if (code_learn(&texts, err))
        code = binary_new(&texts);
    kernel_texts_release(&texts);
    return code;
}

void emulated_code_release(pl_binary_t *code)
{
    for (int k = 0; k < code->count; k++)
        free(code->entry[k].name);
    free(code);
}

const pl_entry_t *emulated_code_find(const pl_binary_t *code, const char *name)
{
    int k = 0;
    while (k < code->count && strcmp(code->entry[k].name, name))
        k++;
    return k < code->count && code->entry[k].enter ? &code->entry[k] : NULL;
}
