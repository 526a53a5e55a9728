/* load.c - opens NVIDIA's driver, NVRTC, cuBLASLt, cuDNN, NVML and NCCL
 *
 * Only libcuda.so.1 is the driver.  libcuda.so is often the toolkit's stub, and once that
 * is in a process, each of NVIDIA's libraries binds to it; so that name is never opened.
 *
 * Each library is opened once, under a lock, and stays open.  cuBLASLt and cuDNN take
 * long and have locks of their own. */
#include "accelerators/cuda/load.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define DRIVER_FILE "libcuda.so.1"
#define NVML_FILE "libnvidia-ml.so.1"
#define NCCL_FILE "libnccl.so.2"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER,
                       cublas_lock = PTHREAD_MUTEX_INITIALIZER,
                       cudnn_lock = PTHREAD_MUTEX_INITIALIZER;
static cuda_library_t driver;
static cuda_compiler_t nvrtc;
static cuda_multiplier_t cublas;
static cuda_dnn_library_t cudnn;
static cuda_monitor_t nvml;
static cuda_communicator_t nccl;

typedef struct symbol {
    const char *name;
    size_t offset;
} symbol_t;

static const symbol_t driver_symbols[] = {
#define DRIVER(member, symbol, parameters) {#symbol, offsetof(cuda_driver_t, member)},
#include "accelerators/cuda/names.def"
    {NULL, 0},
};

static const symbol_t nvrtc_symbols[] = {
#define NVRTC(member, symbol, parameters) {#symbol, offsetof(cuda_nvrtc_t, member)},
#include "accelerators/cuda/names.def"
    {NULL, 0},
};

static const symbol_t nvrtc_13_symbols[] = {
#define NVRTC_13(member, symbol, parameters) {#symbol, offsetof(cuda_nvrtc_t, member)},
#include "accelerators/cuda/names.def"
    {NULL, 0},
};

static const symbol_t lt_symbols[] = {
#define LT(member, symbol, result, parameters) {#symbol, offsetof(cuda_lt_t, member)},
#include "accelerators/cuda/names.def"
    {NULL, 0},
};

static const symbol_t dnn_symbols[] = {
#define DNN(member, symbol, result, parameters) {#symbol, offsetof(cuda_dnn_t, member)},
#include "accelerators/cuda/names.def"
    {NULL, 0},
};

static const symbol_t nvml_symbols[] = {
#define NVML(member, symbol, parameters) {#symbol, offsetof(cuda_nvml_t, member)},
#include "accelerators/cuda/names.def"
    {NULL, 0},
};

static const symbol_t nccl_symbols[] = {
#define NCCL(member, symbol, result, parameters) {#symbol, offsetof(cuda_nccl_t, member)},
#include "accelerators/cuda/names.def"
    {NULL, 0},
};

/* Fills a table.  Returns the name of the first symbol that the library lacks, or
 * NULL. */
static const char *symbols_find(void *library, const symbol_t *symbol, void *table)
{
    for (; symbol->name; symbol++) {
        void *found = dlsym(library, symbol->name);
        if (!found)
            return symbol->name;
        memcpy((char *)table + symbol->offset, &found, sizeof found);
    }
    return NULL;
}

static void path_of(const void *function, char path[PATH_MAX])
{
    Dl_info info;
    if (!dladdr(function, &info) || !info.dli_fname || !realpath(info.dli_fname, path))
        snprintf(path, PATH_MAX, "%s", "unknown");
}

/* ---- The driver ---- */

static int driver_start(void *library, pl_error_t *err)
{
    const char *name = NULL, *visible = getenv("CUDA_VISIBLE_DEVICES");
    const char *missing = symbols_find(library, driver_symbols, &driver.call);
    if (missing)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "NVIDIA's driver is too old: it has no %s; install version 525 "
                       "(CUDA 12.0) or later",
                       missing);
    path_of((const void *)driver.call.init, driver.path);
    cu_result_t result = driver.call.init(0);
    if (result == CU_OK)
        result = driver.call.version(&driver.version);
    if (result == CU_STUB_LIBRARY)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%.200s is the stub of NVIDIA's toolkit, not a driver: remove "
                       "its folder from LD_LIBRARY_PATH",
                       driver.path);
    if (result == CU_NO_DEVICE)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "NVIDIA's driver finds no GPU (CUDA_VISIBLE_DEVICES is %.80s)",
                       visible ? visible : "not set");
    if (result == CU_SYSTEM_DRIVER_MISMATCH)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%.200s does not fit the NVIDIA driver in the kernel: restart the "
                       "machine after a driver update",
                       driver.path);
    if (result != CU_OK) {
        driver.call.error_name(result, &name);
        return pl_fail(err, PL_EUNSUPPORTED, "NVIDIA's driver cannot be started: %s (%u)",
                       name ? name : "unknown error", result);
    }
    if (driver.version < CUDA_MIN)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "NVIDIA's driver is too old: it supports CUDA %d.%d; install "
                       "version 525 (CUDA 12.0) or later",
                       driver.version / 1000, driver.version / 10 % 100);
    return PL_OK;
}

const cuda_library_t *cuda_library_open(pl_error_t *err)
{
    static bool is_open;
    pthread_mutex_lock(&lock);
    void *library = is_open ? NULL : dlopen(DRIVER_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!is_open && !library) {
        const char *why = dlerror();
        pl_fail(err, PL_ENOTFOUND,
                "no NVIDIA driver is installed (%.200s): apt-get install nvidia-driver",
                strstr(why, strerror(ENOENT)) ? DRIVER_FILE " is not found" : why);
    } else if (!is_open) {
        is_open = driver_start(library, err) == PL_OK;
        if (!is_open)
            dlclose(library);
    }
    const cuda_library_t *found = is_open ? &driver : NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- Cards ---- */

int cuda_card_describe(const cuda_driver_t *call, int number, cuda_card_t *card,
                       pl_error_t *err)
{
    *card = (cuda_card_t){.number = number};
    cu_result_t result = call->device_get(&card->device, number);
    if (result == CU_OK)
        result = call->device_name(card->name, sizeof card->name, card->device);
    if (result == CU_OK)
        result = call->device_memory(&card->memory, card->device);
    if (result == CU_OK)
        result = call->device_uuid(&card->uuid, card->device);
    if (result == CU_OK)
        result = call->device_attribute(&card->major, CU_CAPABILITY_MAJOR, card->device);
    if (result == CU_OK)
        result = call->device_attribute(&card->minor, CU_CAPABILITY_MINOR, card->device);
    if (result == CU_OK)
        return PL_OK;
    const char *name = NULL;
    call->error_name(result, &name);
    return pl_fail(err, PL_EIO, "cuda:%d cannot be described: %s", number,
                   name ? name : "unknown error");
}

int cuda_driver_check(const cuda_driver_t *call, int number, cu_result_t result,
                      const char *what, pl_error_t *err)
{
    const char *name = NULL, *text = NULL;
    if (result == CU_OK)
        return PL_OK;
    call->error_name(result, &name);
    call->error_text(result, &text);
    return pl_fail(err, PL_EIO, "cuda:%d: %s failed: %s (%s)", number, what,
                   text ? text : "unknown error", name ? name : "?");
}

/* ---- Libraries of the toolkit ---- */

/* The search path: folders, as patterns, after the value of a variable  [NULL: none]. */
typedef struct search_dir {
    const char *variable, *folder;
} search_dir_t;

static const search_dir_t search_dirs[] = {
    {"PACELINE_CUDA_PATH", ""},
    {NULL, NULL},                                          /* the folders of the loader */
    {"CUDA_HOME", "/lib64"},
    {"CUDA_PATH", "/lib64"},
    {NULL, "/usr/local/cuda/lib64"},
    {NULL, "/usr/local/cuda-*/lib64"},
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib"},
    {"CONDA_PREFIX", "/lib"},
    {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib"},
    {"HOME", "/.local/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/usr/local/lib/python3*/dist-packages/nvidia/*/lib"},
    {NULL, "/usr/local/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/usr/lib/python3/dist-packages/nvidia/*/lib"},
};

enum { SEARCH_DIRS = sizeof search_dirs / sizeof *search_dirs };

const char *cuda_search_path(char text[CUDA_PATH_TEXT])
{
    size_t at = 0;
    text[0] = '\0';
    for (int k = 0; k < SEARCH_DIRS; k++) {
        const search_dir_t *dir = &search_dirs[k];
        const char *root = dir->variable ? getenv(dir->variable) : "",
                   *folder = dir->folder ? dir->folder
                                         : "LD_LIBRARY_PATH and the system's folders";
        if (!root || (dir->variable && !*root))
            continue;
        char whole[PATH_MAX];
        const int length = snprintf(whole, sizeof whole, "%s%s", root, folder);
        if (length < PATH_MAX && at + (size_t)length + 2 < CUDA_PATH_TEXT
            && !strstr(text, whole))
            at += (size_t)snprintf(text + at, CUDA_PATH_TEXT - at, "%s%s", at ? ", " : "",
                                   whole);
    }
    return text;
}

/* Whether a library can be used; keeps its functions. */
typedef bool (*take_t)(void *library);

static bool file_try(const char *file, take_t take)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library && take(library))
        return true;
    if (library)
        dlclose(library);
    return false;
}

/* Tries a file in the folders of a pattern. */
static bool search_dir_try(const search_dir_t *dir, const char *file, take_t take)
{
    char pattern[PATH_MAX];
    glob_t found;
    bool taken = false;
    const char *root = dir->variable ? getenv(dir->variable) : "";
    if (!dir->folder)
        return file_try(file, take);
    if (!root || (dir->variable && !*root)
        || snprintf(pattern, sizeof pattern, "%s%s/%s", root, dir->folder, file)
               >= PATH_MAX
        || glob(pattern, 0, NULL, &found) != 0)
        return false;
    for (size_t k = 0; k < found.gl_pathc && !taken; k++)
        taken = file_try(found.gl_pathv[k], take);
    globfree(&found);
    return taken;
}

static bool file_find(const char *file, take_t take)
{
    int k = 0;
    while (k < SEARCH_DIRS && !search_dir_try(&search_dirs[k], file, take))
        k++;
    return k < SEARCH_DIRS;
}

/* The newest library of a toolkit that is not newer than the driver  [max 0: any]. */
static bool library_find(const char *name, int max, take_t take)
{
    static const int majors[] = {13, 12};
    char file[32];
    for (size_t m = 0; m < sizeof majors / sizeof *majors; m++) {
        snprintf(file, sizeof file, "%s.so.%d", name, majors[m]);
        if ((!max || majors[m] <= max) && file_find(file, take))
            return true;
    }
    return false;
}

/* ---- Packages ---- */

/* The package of NVIDIA's repository for Debian, with the end of its name, and the wheels
 * of PyPI. */
typedef struct packages {
    const char *debian;
    enum { ONE_NAME, BY_MAJOR, BY_MINOR } ends;
    const char *wheel_12, *wheel_13;
} packages_t;

static const packages_t nvrtc_packages = {"cuda-nvrtc", BY_MINOR,
                                          "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"},
                        cublas_packages = {"libcublas", BY_MINOR, "nvidia-cublas-cu12",
                                           "nvidia-cublas"},
                        cudnn_packages = {"libcudnn9-cuda", BY_MAJOR, "nvidia-cudnn-cu12",
                                          "nvidia-cudnn-cu13"},
                        nccl_packages = {"libnccl2", ONE_NAME, "nvidia-nccl-cu12",
                                         "nvidia-nccl-cu13"};

enum { COMMANDS_TEXT = 160 };

/* Commands that install a library, for a driver of that version  [0: CUDA 13.0]. */
static const char *install_commands(const packages_t *packages, int driver_version,
                                    char text[COMMANDS_TEXT])
{
    const int major = driver_version / 1000 == 12 ? 12 : 13;
    const int minor = driver_version / 1000 == major ? driver_version / 10 % 100 : 0;
    char end[32] = "";
    if (packages->ends == BY_MAJOR)
        snprintf(end, sizeof end, "-%d", major);
    else if (packages->ends == BY_MINOR)
        snprintf(end, sizeof end, "-%d-%d", major, minor);
    snprintf(text, COMMANDS_TEXT,
             "apt-get install %s%s (from NVIDIA's repository) or pip install %s",
             packages->debian, end,
             major == 12 ? packages->wheel_12 : packages->wheel_13);
    return text;
}

/* ---- NVRTC ---- */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Fills `nvrtc`; false: it cannot be used. */
static bool nvrtc_take(void *library)
{
    if (symbols_find(library, nvrtc_symbols, &nvrtc.call)
        || nvrtc.call.version(&nvrtc.major, &nvrtc.minor) != NVRTC_OK
        || nvrtc.call.arch_count(&nvrtc.archs) != NVRTC_OK || nvrtc.archs < 1
        || nvrtc.archs > CUDA_ARCHS || nvrtc.call.archs(nvrtc.arch) != NVRTC_OK)
        return false;
    if (symbols_find(library, nvrtc_13_symbols, &nvrtc.call))
        nvrtc.call.asks = NULL;
    qsort(nvrtc.arch, (size_t)nvrtc.archs, sizeof *nvrtc.arch, by_number);
    path_of((const void *)nvrtc.call.version, nvrtc.path);
    return true;
}

const cuda_compiler_t *cuda_compiler_open(int driver_version, pl_error_t *err)
{
    static bool is_open;
    const int max = driver_version / 1000;
    char commands[COMMANDS_TEXT];
    pthread_mutex_lock(&lock);
    is_open = is_open || library_find("libnvrtc", max, nvrtc_take);
    const cuda_compiler_t *found = is_open && !(max && nvrtc.major > max) ? &nvrtc : NULL;
    if (!is_open)
        pl_fail(err, PL_EUNSUPPORTED,
                "NVIDIA's compiler of kernels (libnvrtc.so.12%s) is not found: %s, or "
                "name its folder in PACELINE_CUDA_PATH" CUDA_LOOKED,
                max == 12 ? "" : " or .13",
                install_commands(&nvrtc_packages, driver_version, commands));
    else if (!found)
        pl_fail(err, PL_EUNSUPPORTED,
                "NVRTC %d.%d (%.200s) is newer than the driver (CUDA %d.%d)", nvrtc.major,
                nvrtc.minor, nvrtc.path, max, driver_version / 10 % 100);
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- cuBLASLt ---- */

static bool cublas_take(void *library)
{
    if (symbols_find(library, lt_symbols, &cublas.call))
        return false;
    const size_t version = cublas.call.version();
    cublas.major = (int)(version / 10000);
    cublas.minor = (int)(version / 100 % 100);
    path_of((const void *)cublas.call.open, cublas.path);
    return true;
}

const cuda_multiplier_t *cuda_multiplier_open(int driver_version, pl_error_t *err)
{
    static bool is_open;
    const int max = driver_version / 1000;
    char commands[COMMANDS_TEXT];
    pthread_mutex_lock(&cublas_lock);
    is_open = is_open || library_find("libcublasLt", max, cublas_take);
    const cuda_multiplier_t *found = is_open ? &cublas : NULL;
    pthread_mutex_unlock(&cublas_lock);
    if (!found)
        pl_fail(err, PL_ENOTFOUND,
                "NVIDIA's library of products (libcublasLt.so.12%s) is not found: %s, or "
                "name its folder in PACELINE_CUDA_PATH" CUDA_LOOKED,
                max == 12 ? "" : " or .13",
                install_commands(&cublas_packages, driver_version, commands));
    return found;
}

/* ---- cuDNN ---- */

/* The newest major version of CUDA that it may be for  [0: any]; a library that was found
 * and is for another one, or too old. */
static int cudnn_max, unfit_runtime;
static cuda_dnn_library_t unfit;

/* Its file has the same name for every version of CUDA: only those of the driver's
 * version, or an older one, can be used. */
static bool cudnn_take(void *library)
{
    cuda_dnn_library_t found;
    if (symbols_find(library, dnn_symbols, &found.call))
        return false;
    found.version = (int)found.call.version();
    path_of((const void *)found.call.open, found.path);
    const int runtime = (int)found.call.runtime() / 1000;
    if (found.version < CUDA_DNN_MIN || (cudnn_max && runtime > cudnn_max)) {
        unfit = found;
        unfit_runtime = runtime;
        return false;
    }
    cudnn = found;
    return true;
}

const cuda_dnn_library_t *cuda_dnn_open(int driver_version, pl_error_t *err)
{
    static bool is_open;
    char commands[COMMANDS_TEXT];
    install_commands(&cudnn_packages, driver_version, commands);
    pthread_mutex_lock(&cudnn_lock);
    cudnn_max = driver_version / 1000;
    unfit.version = 0;
    is_open = is_open || file_find("libcudnn.so.9", cudnn_take);
    const cuda_dnn_library_t *found = is_open ? &cudnn : NULL;
    if (!found && unfit.version)
        pl_fail(err, PL_EUNSUPPORTED,
                "cuDNN %d.%d for CUDA %d (%.160s) cannot be used: install 9.8 or later "
                "for CUDA %d (%s)",
                unfit.version / 10000, unfit.version / 100 % 100, unfit_runtime,
                unfit.path, cudnn_max == 12 ? 12 : 13, commands);
    else if (!found)
        pl_fail(err, PL_ENOTFOUND,
                "NVIDIA's library of attention and convolution (libcudnn.so.9) is not "
                "found: %s, or name its folder in PACELINE_CUDA_PATH" CUDA_LOOKED,
                commands);
    pthread_mutex_unlock(&cudnn_lock);
    return found;
}

/* ---- NVML ---- */

const cuda_monitor_t *cuda_monitor_open(pl_error_t *err)
{
    static bool is_open;
    pthread_mutex_lock(&lock);
    void *library = is_open ? NULL : dlopen(NVML_FILE, RTLD_NOW | RTLD_LOCAL);
    const char *missing = library ? symbols_find(library, nvml_symbols, &nvml.call)
                                  : NULL;
    const cu_result_t result = library && !missing ? nvml.call.init() : NVML_OK;
    if (!is_open && !library)
        pl_fail(err, PL_ENOTFOUND,
                NVML_FILE
                " is not found: utilization, power and temperature are unknown; "
                "it is a part of NVIDIA's driver (apt-get install "
                "libnvidia-ml1)");
    else if (missing)
        pl_fail(err, PL_EUNSUPPORTED, NVML_FILE " has no %s: update the driver", missing);
    else if (result != NVML_OK)
        pl_fail(err, PL_EUNSUPPORTED, NVML_FILE " cannot be started: error %u", result);
    else if (!is_open) {
        path_of((const void *)nvml.call.init, nvml.path);
        is_open = true;
    }
    if (!is_open && library)
        dlclose(library);
    const cuda_monitor_t *found = is_open ? &nvml : NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- NCCL ---- */

const char *cuda_nccl_version(int version, char text[CUDA_VERSION_TEXT])
{
    snprintf(text, CUDA_VERSION_TEXT, "%d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
    return text;
}

/* Keeps the version of a library that is too old, for the error. */
static bool nccl_take(void *library)
{
    int version = 0;
    const bool is_one = !symbols_find(library, nccl_symbols, &nccl.call)
                        && nccl.call.version(&version) == NCCL_OK && version >= NCCL_MIN;
    const void *found = dlsym(library, "ncclGetVersion");
    if (!found || (!is_one && nccl.version))
        return false;
    if (!is_one)
        ((cu_result_t(*)(int *))(uintptr_t)found)(&version);
    nccl.version = version;
    path_of(found, nccl.path);
    return is_one;
}

const cuda_communicator_t *cuda_communicator_open(pl_error_t *err)
{
    static bool is_open;
    char version[CUDA_VERSION_TEXT], commands[COMMANDS_TEXT];
    pthread_mutex_lock(&lock);
    install_commands(&nccl_packages, driver.version, commands);
    /* A library that PACELINE_CUDA_PATH names is used or refused. */
    is_open = is_open || search_dir_try(&search_dirs[0], NCCL_FILE, nccl_take)
              || (!nccl.version && file_find(NCCL_FILE, nccl_take));
    const cuda_communicator_t *found = is_open ? &nccl : NULL;
    if (!found && nccl.version)
        pl_fail(err, PL_EUNSUPPORTED,
                "NCCL %s (%.160s) is too old: install 2.18 or later (%s), or name its "
                "folder in PACELINE_CUDA_PATH",
                cuda_nccl_version(nccl.version, version), nccl.path, commands);
    else if (!found)
        pl_fail(err, PL_ENOTFOUND,
                "NVIDIA's library of collectives (" NCCL_FILE ") is not found: %s, or "
                "name its folder in PACELINE_CUDA_PATH" CUDA_LOOKED,
                commands);
    pthread_mutex_unlock(&lock);
    return found;
}
