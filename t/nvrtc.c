/* nvrtc.c - compiles the kernels of a text for three generations of cards, as the cuda
 * accelerator will: by CUDA's run-time compiler, with no card and no header of CUDA's
 *
 *     nvrtc TEXT INCLUDED...
 *
 * Status 77: there is no compiler here.  Else what it says is printed, and the status is
 * 1 when it says anything or takes a text not. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { NONE = 77, INCLUDED_MOST = 64 };

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

static void *library(void)
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
    return found;
}

int main(int argc, char **argv)
{
    static const char *const cards[] = {"sm_80", "sm_90", "sm_100"};
    void *const nvrtc = library();
    if (!nvrtc || argc < 2)
        return NONE;
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *), (*log_text)(void *, char *);
    int (*size_of)(void *, size_t *), (*destroy)(void **);
    *(void **)&create = dlsym(nvrtc, "nvrtcCreateProgram");
    *(void **)&compile = dlsym(nvrtc, "nvrtcCompileProgram");
    *(void **)&log_size = dlsym(nvrtc, "nvrtcGetProgramLogSize");
    *(void **)&log_text = dlsym(nvrtc, "nvrtcGetProgramLog");
    *(void **)&size_of = dlsym(nvrtc, "nvrtcGetCUBINSize");
    *(void **)&destroy = dlsym(nvrtc, "nvrtcDestroyProgram");
    if (!create || !compile || !log_size || !log_text || !size_of || !destroy)
        return NONE;
    char *text = text_of(argv[1]), *header[INCLUDED_MOST];
    const int headers = argc - 2 < INCLUDED_MOST ? argc - 2 : INCLUDED_MOST;
    int status = 0;
    for (int k = 0; k < headers; k++)
        header[k] = text_of(argv[2 + k]);
    for (size_t k = 0; k < sizeof cards / sizeof *cards; k++) {
        char card[64];
        void *program = NULL;
        size_t size = 0, cubin = 0;
        snprintf(card, sizeof card, "--gpu-architecture=%s", cards[k]);
        const char *const options[] = {card, "--std=c++17", "-default-device",
                                       "--fmad=true",
                                       "--diag-suppress=177,550"};
        int wrong = create(&program, text, argv[1], headers, (const char *const *)header,
                           (const char *const *)argv + 2);
        wrong = wrong ? wrong : compile(program, 5, options);
        if (program && log_size(program, &size) == 0 && size > 1) {
            char *log = calloc(size + 1, 1);
            if (log && log_text(program, log) == 0)
                printf("%s: %s\n", cards[k], log);
            free(log);
            status = 1;
        }
        if (wrong || size_of(program, &cubin) != 0 || !cubin) {
            printf("%s: error %d, %zu bytes\n", cards[k], wrong, cubin);
            status = 1;
        }
        if (program)
            destroy(&program);
    }
    for (int k = 0; k < headers; k++)
        free(header[k]);
    free(text);
    return status;
}
