/* build.c - kernels from text, by NVRTC
 *
 * The plug-in contains the headers of the dialect as text, so it needs no files at run
 * time.  Options are fixed and exclude fast mathematics: the same text gives the same
 * bits with the same compiler.  The compiler contracts a multiplication and an addition
 * to one instruction, unless the option `strict` requires the bits of the emulator. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/cuda/cuda.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

#include "accelerators/gpu/headers.inc"

enum { HEADERS = sizeof header_text / sizeof *header_text, OPTIONS = 5 };

typedef struct target {
    char option[40];
    bool is_ptx;                                           /* the compiler does not
                                                              support the card; the driver
                                                              finishes the code */
} target_t;

int cuda_compiler_check(const cuda_compiler_t *compiler, const cuda_card_t *card,
                        pl_error_t *err)
{
    if (compiler->arch[0] <= 10 * card->major + card->minor)
        return PL_OK;
    return pl_fail(err, PL_EUNSUPPORTED,
                   "cuda:%d (%s) has compute capability %d.%d, and NVRTC %d.%d compiles "
                   "for %d.%d and later",
                   card->number, card->name, card->major, card->minor, compiler->major,
                   compiler->minor, compiler->arch[0] / 10, compiler->arch[0] % 10);
}

/* An error with the line of the log that reports it. */
static int fail_text(const char *option, cu_result_t result, const char *log,
                     pl_error_t *err)
{
    const char *wrong = log ? strstr(log, "error") : NULL;
    while (wrong && wrong > log && wrong[-1] != '\n')
        wrong--;
    if (log)
        pl_log_line(PL_LOG_DEBUG, -1, "", "NVRTC: %s", log);
    if (result == NVRTC_NO_MEMORY)
        return pl_no_memory(err);
    return pl_fail(err, PL_EBUG, "kernels cannot be compiled (%s, NVRTC error %u): %.*s",
                   option, result, wrong ? (int)strcspn(wrong, "\n") : 6,
                   wrong ? wrong : "no log");
}

static int code_take(const cuda_nvrtc_t *call, nvrtcProgram program, bool is_ptx,
                     void **code, size_t *bytes, pl_error_t *err)
{
    size_t size = 0;
    cu_result_t result = is_ptx ? call->ptx_size(program, &size)
                                : call->cubin_size(program, &size);
    if (result != NVRTC_OK || !size)
        return pl_fail(err, PL_EBUG, "NVRTC made no code (error %u)", result);
    char *made = pl_alloc(size);
    if (!made)
        return pl_no_memory(err);
    result = is_ptx ? call->ptx(program, made) : call->cubin(program, made);
    if (result != NVRTC_OK) {
        pl_free(made);
        return pl_fail(err, PL_EBUG, "NVRTC gave no code (error %u)", result);
    }
    *code = made;
    *bytes = size;
    return PL_OK;
}

/* The compiler calls it at intervals; true: it ends. */
static int compiler_is_cancelled(void *user, void *reserved)
{
    (void)reserved;
    return pl_gpu_stops(user);
}

static int compile(cuda_t *cuda, const char *text, const target_t *target,
                   const char *const option[OPTIONS], void **code, size_t *bytes,
                   pl_error_t *err)
{
    const cuda_nvrtc_t *call = &cuda->compiler->call;
    nvrtcProgram program = NULL;
    cu_result_t result = call->program_new(&program, text, "plan.k", HEADERS, header_text,
                                           header_name);
    if (result != NVRTC_OK)
        return fail_text(option[0], result, NULL, err);
    if (call->asks)
        call->asks(program, compiler_is_cancelled, cuda);
    result = call->compile(program, OPTIONS, option);
    size_t log_bytes = 0;
    char *log = NULL;
    if (call->log_size(program, &log_bytes) == NVRTC_OK && log_bytes > 1)
        log = pl_alloc(log_bytes + 1);
    if (log && call->log(program, log) != NVRTC_OK)
        log[0] = '\0';
    int failed = PL_OK;
    if (result != NVRTC_OK && pl_gpu_stops(cuda))
        failed = pl_fail(err, PL_ECANCELLED, "kernels are not compiled any more");
    else if (result != NVRTC_OK)
        failed = fail_text(option[0], result, log, err);
    else if (log)
        pl_log_line(PL_LOG_DEBUG, -1, "", "NVRTC: %s", log);
    if (failed == PL_OK)
        failed = code_take(call, program, target->is_ptx, code, bytes, err);
    call->program_free(&program);
    pl_free(log);
    return failed;
}

static uint64_t headers_hash;

static void headers_hash_make(void)
{
    headers_hash = PL_HASH_EMPTY;
    for (int k = 0; k < HEADERS; k++)
        headers_hash = pl_hash(headers_hash, header_text[k], strlen(header_text[k]));
}

int cuda_build(cuda_t *cuda, const char *text, bool again, cuda_code_t *code,
               pl_error_t *err)
{
    const cuda_compiler_t *compiler = cuda->compiler;
    const int card = 10 * cuda->card.major + cuda->card.minor;
    int best = 0;          /* the newest architecture of the compiler that the card has */
    int failed = cuda_compiler_check(compiler, &cuda->card, err);
    if (failed != PL_OK)
        return failed;
    for (int k = 0; k < compiler->archs; k++)
        if (compiler->arch[k] <= card)
            best = compiler->arch[k];
    target_t target = {.is_ptx = best != card};
    snprintf(target.option, sizeof target.option, "--gpu-architecture=%s_%d",
             target.is_ptx ? "compute" : "sm", best);
    const char *const option[OPTIONS] = {target.option, "--std=c++17", "-default-device",
                                         cuda->strict ? "--fmad=false" : "--fmad=true",
                                         "--diag-suppress=39,177,550"};
    /* The key contains everything that the machine code depends on. */
    const size_t capacity = strlen(text) + 256;
    char *key = cuda->store ? pl_alloc(capacity) : NULL;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, headers_hash_make);
    if (key)
        snprintf(key, capacity, "NVRTC %d.%d %s %s %s %s %s headers %016llx\n%s",
                 compiler->major, compiler->minor, option[0], option[1], option[2],
                 option[3], option[4], (unsigned long long)headers_hash, text);
    code->was_kept = key && !again
                     && cuda_cache_get(cuda->store, key, &code->image, &code->bytes);
    if (!code->was_kept)
        failed = compile(cuda, text, &target, option, &code->image, &code->bytes, err);
    code->is_stored = code->was_kept
                      || (failed == PL_OK && key
                          && cuda_cache_put(cuda->store, key, code->image, code->bytes));
    pl_free(key);
    return failed;
}

int cuda_module_load(cuda_t *cuda, const char *text, CUmodule *module, cuda_code_t *made,
                     pl_error_t *err)
{
    cu_result_t result = CU_UNKNOWN;
    *made = (cuda_code_t){.was_kept = true};
    for (bool again = false; result != CU_OK && result != CU_OUT_OF_MEMORY;
         again = true) {
        if (!made->was_kept)
            return cuda_check(cuda, err, result, "loading kernels");
        int failed = cuda_build(cuda, text, again, made, err);
        if (failed == PL_OK)
            failed = cuda_enter(cuda, err);
        if (failed == PL_OK)
            result = cuda->call->module_load(module, made->image);
        pl_free(made->image);
        made->image = NULL;
        if (failed != PL_OK)
            return failed;
    }
    return result == CU_OK ? PL_OK : cuda_fail_memory(cuda, made->bytes, err);
}

int cuda_module_new(void *self, const char *text, void **module, pl_error_t *err)
{
    CUmodule fresh = NULL;
    cuda_code_t made;
    const int failed = cuda_module_load(self, text, &fresh, &made, err);
    if (failed == PL_OK)
        *module = fresh;
    return failed;
}
