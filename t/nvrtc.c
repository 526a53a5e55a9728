/* nvrtc.c - gives kernels to CUDA's run-time compiler, as the cuda accelerator does, with
 * no card and no header of CUDA's
 *
 *     nvrtc CARDS TEXT INCLUDED...            one text as it is
 *     nvrtc CARDS EVERY FOLDER INCLUDED...    each EVERY-th of the kernels that are
 *                                             different in the texts FOLDER/NUMBER.k
 *
 * CARDS are "sm_80,sm_90".  Status 77: there is no compiler here; 1: it has messages,
 * refuses a text, or spills more than a few registers to memory. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel_texts.h"

enum { NONE = 77, INCLUDED_MAX = 64, TOGETHER = 16 /* kernels */, PROCESSES = 2 };
enum { SPILLED_MAX = 64 /* bytes; a double takes two registers */ };

typedef struct nvrtc {
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *), (*log_text)(void *, char *);
    int (*size_of)(void *, size_t *), (*destroy)(void **);
} nvrtc_t;

/* What texts include. */
static char *header[INCLUDED_MAX], **header_name;
static int headers;

static char *text_of(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(2);
    }
    const long size = ftell(file);
    char *text = calloc((size_t)size + 1, 1);
    rewind(file);
    if (!text || fread(text, 1, (size_t)size, file) != (size_t)size) {
        perror(path);
        exit(2);
    }
    fclose(file);
    return text;
}

static bool nvrtc_open(nvrtc_t *n)
{
    static const char *const names[] = {
        "libnvrtc.so.13",
        "libnvrtc.so.12",
        "/usr/local/cuda/lib64/libnvrtc.so.13",
        "/usr/local/cuda/lib/libnvrtc.so.13",
        "/usr/local/cuda/lib64/libnvrtc.so",
        "/usr/local/cuda/lib/libnvrtc.so",
    };
    void *found = NULL;
    for (size_t k = 0; k < sizeof names / sizeof *names && !found; k++)
        found = dlopen(names[k], RTLD_NOW | RTLD_LOCAL);
    if (!found)
        return false;
    *(void **)&n->create = dlsym(found, "nvrtcCreateProgram");
    *(void **)&n->compile = dlsym(found, "nvrtcCompileProgram");
    *(void **)&n->log_size = dlsym(found, "nvrtcGetProgramLogSize");
    *(void **)&n->log_text = dlsym(found, "nvrtcGetProgramLog");
    *(void **)&n->size_of = dlsym(found, "nvrtcGetCUBINSize");
    *(void **)&n->destroy = dlsym(found, "nvrtcDestroyProgram");
    return n->create && n->compile && n->log_size && n->log_text && n->size_of
           && n->destroy;
}

/* Prints the messages of ptxas that are not for information, and spills of many bytes. */
static bool log_is_fine(char *log, const char *card)
{
    const char *kernel = "";
    bool is_fine = true;
    for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n")) {
        const char *properties = strstr(line, "properties for "),
                   *spills = strstr(line, "bytes stack frame, ");
        if (properties)
            kernel = properties + strlen("properties for ");
        if (spills && atoi(spills + strlen("bytes stack frame, ")) > SPILLED_MAX)
            printf("%s: %s: %s\n", card, kernel, line);
        else if (!spills && (strncmp(line, "ptxas", 5) || !strstr(line, "info")))
            printf("%s: %s\n", card, line);
        else
            continue;
        is_fine = false;
    }
    return is_fine;
}

static bool text_is_fine(const nvrtc_t *n, const char *text, const char *name,
                         const char *card)
{
    char option[64];
    void *program = NULL;
    size_t size = 0, cubin = 0;
    bool is_fine = true;
    snprintf(option, sizeof option, "--gpu-architecture=%s", card);
    const char *const options[] = {option,
                                   "--std=c++17",
                                   "-default-device",
                                   "--fmad=true",
                                   "--diag-suppress=39,177,550",
                                   "--ptxas-options=-v"};
    int wrong = n->create(&program, text, name, headers, (const char *const *)header,
                          (const char *const *)header_name);
    if (!wrong)
        wrong = n->compile(program, sizeof options / sizeof *options, options);
    if (program && n->log_size(program, &size) == 0 && size > 1) {
        char *log = calloc(size + 1, 1);
        is_fine = log && n->log_text(program, log) == 0 && log_is_fine(log, card);
        free(log);
    }
    if (wrong || n->size_of(program, &cubin) != 0 || !cubin) {
        printf("%s: error %d, %zu bytes\n", card, wrong, cubin);
        is_fine = false;
    }
    if (program)
        n->destroy(&program);
    return is_fine;
}

/* ---- Cards: "sm_80,sm_90" ---- */

static bool is_fine_for(const nvrtc_t *n, const char *text, const char *name,
                        const char *cards)
{
    bool is_fine = true;
    while (*cards) {
        char card[16];
        const int length = (int)strcspn(cards, ",");
        snprintf(card, sizeof card, "%.*s", length, cards);
        is_fine &= text_is_fine(n, text, name, card);
        cards += length + (cards[length] == ',');
    }
    return is_fine;
}

/* ---- Kernels of many texts ---- */

typedef struct kernel {
    const char *head, *name, *text;
} kernel_t;

static int compare(const void *a, const void *b)
{
    const kernel_t *x = a, *y = b;
    const int heads = strcmp(x->head, y->head);
    return heads ? heads : strcmp(x->text, y->text);
}

static kernel_t *kernels;
static int kernel_count;

static void kernels_add(const char *path)
{
    char *text = text_of(path);
    kernel_texts_t texts;
    if (kernel_texts_split(&texts, text) != 0)
        exit(2);
    free(text);
    kernels = realloc(kernels, (size_t)(kernel_count + texts.count) * sizeof *kernels);
    for (int k = 0; k < texts.count && kernels; k++)
        kernels[kernel_count++] = (kernel_t){texts.head, texts.kernel[k].name,
                                             texts.kernel[k].text};
}

/* Those that are different, in an order that does not depend on the folder's. */
static void kernels_find(const char *folder, int every)
{
    DIR *directory = opendir(folder);
    int unique = 0, kept = 0;
    while (directory) {
        const struct dirent *entry = readdir(directory);
        char path[1024];
        if (!entry)
            break;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strstr(entry->d_name, ".k"))
            kernels_add(path);
    }
    if (!directory || !kernel_count) {
        fprintf(stderr, "%s: no kernels\n", folder);
        exit(2);
    }
    closedir(directory);
    qsort(kernels, (size_t)kernel_count, sizeof *kernels, compare);
    for (int k = 0; k < kernel_count; k++)
        if (!unique || compare(&kernels[k], &kernels[unique - 1]))
            kernels[unique++] = kernels[k];
    for (int k = 0; k < unique; k += every)
        kernels[kept++] = kernels[k];
    kernel_count = kept;
}

/* Kernels from `from` on that go into one text; -> behind the last. */
static int group_end(int from)
{
    int to = from;
    while (to < kernel_count && to < from + TOGETHER
           && !strcmp(kernels[to].head, kernels[from].head))
        to++;
    return to;
}

static char *group_text(int from, int to)
{
    char *text = NULL, name[80];
    size_t size;
    FILE *file = open_memstream(&text, &size);
    if (!file)
        exit(2);
    fputs(kernels[from].head, file);
    for (int k = from; k < to; k++) {
        snprintf(name, sizeof name, "%s_of_%d", kernels[k].name, k);
        kernel_text_write(file, kernels[k].text, name);
    }
    fclose(file);
    return text;
}

/* Every PROCESSES-th group. */
static bool groups_are_fine(const nvrtc_t *n, const char *cards, int first)
{
    bool is_fine = true;
    for (int from = 0, to, group = 0; from < kernel_count; from = to, group++) {
        to = group_end(from);
        if (group % PROCESSES != first)
            continue;
        char *text = group_text(from, to);
        is_fine &= is_fine_for(n, text, "kernels", cards);
        free(text);
    }
    return is_fine;
}

static bool kernels_are_fine(const nvrtc_t *n, const char *cards)
{
    bool is_fine = true;
    for (int k = 0; k < PROCESSES; k++)
        if (fork() == 0) {
            is_fine = groups_are_fine(n, cards, k);
            fflush(stdout);
            _exit(!is_fine);
        }
    for (int status; wait(&status) > 0 || errno == EINTR;)
        is_fine &= status == 0;
    return is_fine;
}

int main(int argc, char **argv)
{
    nvrtc_t n;
    const bool many = argc > 3 && atoi(argv[2]) > 0;
    const int first = many ? 4 : 3;
    if (!nvrtc_open(&n) || argc < 3)
        return NONE;
    header_name = argv + first;
    for (; first + headers < argc && headers < INCLUDED_MAX; headers++)
        header[headers] = text_of(argv[first + headers]);
    if (!many)
        return !is_fine_for(&n, text_of(argv[2]), argv[2], argv[1]);
    kernels_find(argv[3], atoi(argv[2]));
    const bool is_fine = kernels_are_fine(&n, argv[1]);
    printf("%d kernels\n", kernel_count);
    return !is_fine;
}
