/* cuda.c - the accelerator "cuda": its options, and its report about this machine
 *
 * It is a plug-in that opens NVIDIA's libraries when a device is used, so one build
 * serves machines with and without a GPU. */
#include "accelerators/cuda/cuda.h"

#include <dirent.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"

enum { PROBE = 1 << 20 };                                 /* bytes; each run needs more */

static const pl_option_t cuda_options[] = {
    PL_BOOL(cuda_t, any_order, "false",
            "let cuDNN add up in any order, which is faster for gradients of attention; "
            "then runs differ in their bits"),
    PL_BOOL(cuda_t, cache, "true", "keep compiled kernels on disk for the next start"),
    PL_TEXT(cuda_t, cache_dir, "\"\"", NULL,
            "folder of compiled kernels; empty: $XDG_CACHE_HOME/paceline or "
            "~/.cache/paceline"),
    PL_INT(cuda_t, cache_mb, "1024", "1..1048576",
           "size of that folder in MiB, above which the entries that were not used for "
           "the longest time are removed"),
    PL_TEXT(cuda_t, compile_for, "\"\"", NULL,
            "kind of card, such as sm_90, for which paceline compile fills the cache "
            "without a card; no step can run then; empty: the card of this machine"),
    PL_BOOL(cuda_t, cublas, "true",
            "compute products of matrices by NVIDIA's cuBLASLt where it is installed; "
            "false: by kernels of Paceline, which are slower"),
    PL_BOOL(cuda_t, cudnn, "true",
            "compute attention and convolution by NVIDIA's cuDNN where it is installed; "
            "false: by kernels of Paceline, which are slower"),
    PL_BOOL(cuda_t, fuse_bias_grad, "true",
            "compute the gradient of a bias in cuBLASLt's product for its weights"),
    PL_BOOL(cuda_t, fuse_gelu, "true",
            "compute gelu_tanh in cuBLASLt's product before it"),
    PL_BOOL(cuda_t, fuse_gelu_grad, "true",
            "compute the gradient of gelu_tanh in cuBLASLt's product before it"),
    PL_BOOL(cuda_t, recordings, "true",
            "record the launches of a step once and replay them together (CUDA graphs)"),
    PL_BOOL(cuda_t, strict, "false",
            "round each float operation by itself, to the same bits as the emulator of "
            "the tests, without cuBLASLt and cuDNN; slower"),
    PL_BOOL(cuda_t, tf32, "false",
            "round float32 operands of products and convolutions to TF32, which has 10 "
            "bits of mantissa; faster"),
    PL_OPTIONS_END,
};

static int cuda_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    cuda_t *cuda = self;
    const bool is_offline = cuda->compile_for && *cuda->compile_for;
    if (is_offline && info->computes && !info->compiles)
        return pl_fail(err, PL_EINVAL,
                       "trainer.accelerator.compile_for is for paceline compile: remove "
                       "it to train on a card");
    if (cuda->any_order && info->deterministic)
        return pl_fail(err, PL_EINVAL,
                       "with \"trainer.accelerator.any_order\" runs differ in their "
                       "bits, and \"trainer.deterministic\" or the strategy \"elastic\" "
                       "is set: remove one of them");
    if (is_offline)
        return pl_gpu_open(self, &cuda_offline_backend, info, err);
    return pl_gpu_open(self,
                       cuda->recordings ? &cuda_backend
                                        : &cuda_backend_without_recordings,
                       info, err);
}

static int cuda_count(pl_error_t *why)
{
    int count = 0;
    const cuda_library_t *library = cuda_library_open(why);
    if (!library)
        return 0;
    if (library->call.device_count(&count) != CU_OK || count < 1)
        pl_fail(why, PL_EUNSUPPORTED, "NVIDIA's driver finds no GPU");
    if (count > 0 && !cuda_compiler_open(library->version, why))
        return 0;
    return count > 0 ? count : 0;
}

/* Tries what a run needs of a card.  A number that this machine does not have is an error
 * of the run, not of the card. */
static int cuda_probe(int device, pl_error_t *why)
{
    cuda_card_t card;
    CUcontext context;
    CUdeviceptr memory;
    int count = 0;
    const cuda_library_t *library = cuda_library_open(why);
    const cuda_compiler_t *compiler = library ? cuda_compiler_open(library->version, why)
                                              : NULL;
    if (!compiler)
        return PL_EUNSUPPORTED;
    const cuda_driver_t *call = &library->call;
    if (call->device_count(&count) == CU_OK && device >= count)
        return PL_OK;
    int code = cuda_card_describe(call, device, &card, why);
    if (code == PL_OK)
        code = cuda_compiler_check(compiler, &card, why);
    if (code != PL_OK)
        return code;
    cu_result_t result = call->context_retain(&context, card.device);
    if (result != CU_OK)
        return cuda_driver_check(call, device, result, "opening the card", why);
    result = call->context_use(context);
    if (result == CU_OK)
        result = call->memory_new(&memory, PROBE);
    if (result == CU_OK)
        call->memory_free(memory);
    call->context_use(NULL);
    call->context_release(card.device);
    return cuda_driver_check(call, device, result, "allocating memory", why);
}

/* ---- The report about this machine ---- */

typedef struct card_report {
    pl_fact_t fact;
    void *user;
} card_report_t;

static void show(const card_report_t *to, const char *name, const char *format, ...)
    PL_PRINTF(3, 4);
static void show(const card_report_t *to, const char *name, const char *format, ...)
{
    char text[CUDA_PATH_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    to->fact(to->user, name, text);
}

static void report_card(const card_report_t *to, const cuda_driver_t *call, int number,
                        const cuda_compiler_t *compiler)
{
    cuda_card_t card;
    pl_error_t err = {0};
    char title[16], bus[32] = "?";
    int ecc = 0, multiprocessors = 0;
    CUcontext context;
    size_t left = 0, all = 0;
    snprintf(title, sizeof title, "GPU %d", number);
    if (cuda_card_describe(call, number, &card, &err) != PL_OK) {
        show(to, NULL, "%s", err.text);
        return;
    }
    call->device_attribute(&ecc, CU_ECC, card.device);
    call->device_attribute(&multiprocessors, CU_MULTIPROCESSORS, card.device);
    call->device_bus(bus, sizeof bus, card.device);
    /* Free memory is known only with a context, which costs a moment. */
    if (call->context_retain(&context, card.device) == CU_OK) {
        if (call->context_use(context) == CU_OK)
            call->memory_info(&left, &all);
        call->context_use(NULL);
        call->context_release(card.device);
    }
    show(to, title,
         "%s, sm_%d%d, %zu of %zu MiB free, %d multiprocessors, ECC %s, bus %s",
         card.name, card.major, card.minor, left >> 20, card.memory >> 20,
         multiprocessors, ecc ? "on" : "off", bus);
    const int arch = 10 * card.major + card.minor;
    if (compiler && compiler->arch[compiler->archs - 1] < arch)
        show(to, NULL,
             "GPU %d is newer than NVRTC %d.%d: the driver finishes its kernels at each "
             "start; install a newer NVRTC",
             number, compiler->major, compiler->minor);
    if (compiler && compiler->arch[0] > arch)
        show(to, NULL, "GPU %d is too old for NVRTC %d.%d, which begins with sm_%d",
             number, compiler->major, compiler->minor, compiler->arch[0]);
}

/* Which cards can access the memory of which others. */
static void report_peers(const card_report_t *to, const cuda_driver_t *call, int count)
{
    char text[256] = "";
    size_t at = 0;
    for (int a = 0; a < count && at < sizeof text; a++)
        for (int b = a + 1; b < count && at < sizeof text; b++) {
            CUdevice from, peer;
            int can = 0;
            if (call->device_get(&from, a) == CU_OK
                && call->device_get(&peer, b) == CU_OK)
                call->device_peers(&can, from, peer);
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d-%d %s",
                                   at ? ", " : "", a, b, can ? "yes" : "no");
        }
    if (at)
        show(to, "GPU to GPU", "%s", text);
}

/* ---- Requirements of NCCL ---- */

enum { SHM_MIB = 1024 };                              /* NVIDIA's advice for containers */

static void check_shm(const card_report_t *to, int count)
{
    struct statvfs at;
    if (count < 2 || statvfs("/dev/shm", &at) != 0)
        return;
    const unsigned long long bytes = (unsigned long long)at.f_blocks * at.f_frsize;
    if (bytes >> 20 < SHM_MIB)
        show(to, NULL,
             "/dev/shm has %llu MiB, which may be too small for NCCL with %d cards: "
             "enlarge it to %d MiB (mount -o remount,size=1g /dev/shm, or docker run "
             "--shm-size=1g)",
             bytes >> 20, count, SHM_MIB);
}

/* A network card with RDMA accesses the memory of GPUs by that module, or by DMA-BUF with
 * NVIDIA's open kernel modules.  A network card that software emulates has no device. */
static void check_rdma(const card_report_t *to, const cuda_driver_t *call, int count)
{
    static const char folder[] = "/sys/class/infiniband/";
    char name[64];
    glob_t found;
    CUdevice device;
    int shares = 0;
    if (count < 1 || glob("/sys/class/infiniband/*/device", 0, NULL, &found) != 0)
        return;
    const char *from = found.gl_pathv[0] + strlen(folder);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(from, "/"), from);
    globfree(&found);
    if (access("/sys/module/nvidia_peermem", F_OK) == 0
        || call->device_get(&device, 0) != CU_OK)
        return;
    call->device_attribute(&shares, CU_DMA_BUF, device);
    if (!shares)
        show(to, NULL,
             "the kernel module nvidia_peermem is not loaded: between machines NCCL "
             "copies memory of cards through the host's to the network card %s; "
             "modprobe nvidia-peermem",
             name);
}

static void check_sharing(const card_report_t *to, const cuda_driver_t *call, int count)
{
    const char *host = getenv("NCCL_HOSTID");
    char bus[2][32];
    CUdevice device;
    for (int b = 1; b < count; b++)
        for (int a = 0; a < b; a++)
            if (call->device_get(&device, a) == CU_OK
                && call->device_bus(bus[0], sizeof bus[0], device) == CU_OK
                && call->device_get(&device, b) == CU_OK
                && call->device_bus(bus[1], sizeof bus[1], device) == CU_OK
                && !strcmp(bus[0], bus[1]))
                show(to, NULL,
                     "GPU %d and GPU %d are one card (bus %s): NCCL accepts one rank on "
                     "it; see trainer.devices",
                     a, b, bus[0]);
    if (host)
        show(to, NULL,
             "NCCL_HOSTID is set (%.64s): two ranks on one card are not refused, which "
             "is for tests alone",
             host);
}

static void report_cache(const card_report_t *to)
{
    char folder[PATH_MAX];
    int entries;
    int64_t bytes;
    if (!cuda_cache_folder("", folder)) {
        show(to, "kernel cache", "none: HOME is not set");
        return;
    }
    cuda_cache_count(folder, &entries, &bytes);
    show(to, "kernel cache", "%.512s, %d entries, %lld MiB", folder, entries,
         (long long)(bytes >> 20));
}

/* A missing library: a warning only if there is a card that needs it. */
static void report_missing(const card_report_t *to, const char *name, bool is_needed,
                           const pl_error_t *why)
{
    const char *end = strstr(why->text, CUDA_LOOKED);
    show(to, is_needed ? NULL : name, "%.*s%s",
         end ? (int)(end - why->text) : (int)strlen(why->text), why->text,
         end ? "; it was looked for in the CUDA path" : "");
}

static const cuda_communicator_t *report_libraries(const card_report_t *to, int driver,
                                                   int cards,
                                                   const cuda_compiler_t **compiler_p)
{
    pl_error_t err = {0};
    char version[CUDA_VERSION_TEXT];
    const cuda_compiler_t *compiler = *compiler_p = cuda_compiler_open(driver, &err);
    if (compiler)
        show(to, "NVRTC", "%d.%d (%.512s), sm_%d to sm_%d", compiler->major,
             compiler->minor, compiler->path, compiler->arch[0],
             compiler->arch[compiler->archs - 1]);
    else
        report_missing(to, "NVRTC", cards > 0, &err);
    const cuda_multiplier_t *multiplier = cuda_multiplier_open(driver, &err);
    if (multiplier)
        show(to, "cuBLASLt", "%d.%d (%.512s)", multiplier->major, multiplier->minor,
             multiplier->path);
    else
        report_missing(to, "cuBLASLt", cards > 0, &err);
    const cuda_dnn_library_t *dnn = cuda_dnn_open(driver, &err);
    if (dnn)
        show(to, "cuDNN", "%d.%d.%d (%.512s)", dnn->version / 10000,
             dnn->version / 100 % 100, dnn->version % 100, dnn->path);
    else
        report_missing(to, "cuDNN", cards > 0, &err);
    const cuda_communicator_t *nccl = cuda_communicator_open(&err);
    if (nccl)
        show(to, "NCCL", "%s (%.512s)", cuda_nccl_version(nccl->version, version),
             nccl->path);
    else
        report_missing(to, "NCCL", cards > 1 || err.code != PL_ENOTFOUND, &err);
    return nccl;
}

/* The bus knows a card that has no driver. */
static bool has_card(void)
{
    bool found = false;
    DIR *devices = opendir("/sys/bus/pci/devices");
    for (struct dirent *entry; devices && !found && (entry = readdir(devices));) {
        static const char *const wanted[][2] = {{"vendor", "0x10de"}, {"class", "0x03"}};
        found = true;
        for (int k = 0; k < 2 && found; k++) {
            char path[512], text[16] = "";
            snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", entry->d_name,
                     wanted[k][0]);
            FILE *file = fopen(path, "re");
            found = file && fgets(text, sizeof text, file)
                    && !strncmp(text, wanted[k][1], strlen(wanted[k][1]));
            if (file)
                fclose(file);
        }
    }
    if (devices)
        closedir(devices);
    return found;
}

static void cuda_report(pl_fact_t fact, void *user)
{
    const card_report_t to = {fact, user};
    pl_error_t err = {0};
    int count = 0;
    /* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14 …" */
    char line[256] = "", path[CUDA_PATH_TEXT];
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    if (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        show(&to, "kernel module", "%s", line);
    }
    if (file)
        fclose(file);
    const cuda_library_t *library = cuda_library_open(&err);
    if (library)
        show(&to, "NVIDIA driver", "CUDA %d.%d (%.512s)", library->version / 1000,
             library->version / 10 % 100, library->path);
    else if (err.code == PL_ENOTFOUND && !has_card())
        show(&to, "NVIDIA driver", "not needed: this machine has no GPU of NVIDIA");
    else if (err.code == PL_ENOTFOUND)
        show(&to, NULL, "this machine has a GPU of NVIDIA, but %s", err.text);
    else {
        show(&to, "NVIDIA driver", "cannot be used: a warning says why");
        show(&to, NULL, "%s", err.text);
    }
    const int driver = library ? library->version : 0;
    if (library && library->call.device_count(&count) != CU_OK)
        count = 0;
    const cuda_compiler_t *compiler;
    const cuda_communicator_t *nccl = report_libraries(&to, driver, count, &compiler);
    const cuda_monitor_t *monitor = library ? cuda_monitor_open(&err) : NULL;
    if (monitor)
        show(&to, "NVML", "%.512s", monitor->path);
    else if (library)
        show(&to, NULL, "%s", err.text);
    glob_t found;
    const char *own = getenv("PACELINE_CUDA_PATH");
    show(&to, "CUDA path", "%s", cuda_search_path(path));
    if (own && *own && glob(own, 0, NULL, &found) != 0)
        show(&to, NULL, "PACELINE_CUDA_PATH names %.512s, which does not exist", own);
    else if (own && *own)
        globfree(&found);
    for (int k = 0; k < count; k++)
        report_card(&to, &library->call, k, compiler);
    if (library)
        report_peers(&to, &library->call, count);
    if (library && nccl) {
        check_shm(&to, count);
        check_rdma(&to, &library->call, count);
        check_sharing(&to, &library->call, count);
    }
    report_cache(&to);
}

static const pl_accelerator_ops_t cuda_accelerator = {
    .name = "cuda",
    .help = "GPUs of NVIDIA; needs their driver, and NVRTC to compile kernels",
    .size = sizeof(cuda_t),
    .options = cuda_options,
    .open = cuda_open,
    .count = cuda_count,
    .probe = cuda_probe,
    .stats = cuda_stats,
    .report = cuda_report,
    .memory_kind = "cuda",
    PL_GPU_OPS,
    PL_GPU_REGISTERS,
};

PL_PLUGIN({"accelerator", &cuda_accelerator})
