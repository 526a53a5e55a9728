/* load.c - opens NVIDIA's driver, NVRTC, cuBLASLt, cuDNN, NVML and NCCL
 *
 * Only libcuda.so.1 is the driver.  libcuda.so is often the toolkit's stub, and once that
 * is in a process, each of NVIDIA's libraries binds to it; so that name is never
 * opened. */
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

/* The name of a symbol that the library does not have; NULL: the table is filled. */
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

static int fail_init(cu_result_t result, pl_error_t *err)
{
    const char *name = NULL, *visible = getenv("CUDA_VISIBLE_DEVICES");
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
    driver.call.error_name(result, &name);
    return pl_fail(err, PL_EUNSUPPORTED, "NVIDIA's driver cannot be started: %s (%u)",
                   name ? name : "unknown error", result);
}

static int driver_start(void *library, pl_error_t *err)
{
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
    if (result != CU_OK)
        return fail_init(result, err);
    if (driver.version < CUDA_MIN)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "NVIDIA's driver is too old: it supports CUDA %d.%d; install "
                       "version 525 (CUDA 12.0) or later",
                       driver.version / 1000, driver.version / 10 % 100);
    return PL_OK;
}

static int driver_open(pl_error_t *err)
{
    static bool opened;
    if (opened)
        return PL_OK;
    void *library = dlopen(DRIVER_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return pl_fail(err, PL_ENOTFOUND,
                       "no NVIDIA driver is installed (%.200s): apt-get install "
                       "nvidia-driver",
                       strstr(why, strerror(ENOENT)) ? DRIVER_FILE " is not found" : why);
    }
    const int code = driver_start(library, err);
    if (code != PL_OK)
        dlclose(library);
    opened = code == PL_OK;
    return code;
}

const cuda_library_t *cuda_library_open(pl_error_t *err)
{
    pthread_mutex_lock(&lock);
    const int code = driver_open(err);
    pthread_mutex_unlock(&lock);
    return code == PL_OK ? &driver : NULL;
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

/* Where they are looked for: folders, as patterns, behind the value of a variable
 * [none]. */
typedef struct search_dir {
    const char *variable, *folder;
} search_dir_t;

static const search_dir_t search_dirs[] = {
    {"PACELINE_CUDA_PATH", ""},
    {NULL, NULL},                                           /* where the loader looks */
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

/* Whether a library is one that can be used; keeps what it finds there. */
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

/* In the folders that a pattern names. */
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

/* The newest of a toolkit that is no newer than the driver  [0: any]. */
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

/* ---- How to get a library ---- */

/* The package of NVIDIA's repository for Debian, by what its name ends with, and the
 * wheels of PyPI. */
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

enum { WAYS_TEXT = 160 };

/* For a driver of that version; for none, CUDA 13.0. */
static const char *ways_to_get(const packages_t *packages, int driver_version,
                               char text[WAYS_TEXT])
{
    const int major = driver_version / 1000 == 12 ? 12 : 13;
    const int minor = driver_version / 1000 == major ? driver_version / 10 % 100 : 0;
    char end[32] = "";
    if (packages->ends == BY_MAJOR)
        snprintf(end, sizeof end, "-%d", major);
    else if (packages->ends == BY_MINOR)
        snprintf(end, sizeof end, "-%d-%d", major, minor);
    snprintf(text, WAYS_TEXT,
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

/* Fills `nvrtc`; false: it is no NVRTC that can be used. */
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

static int nvrtc_open(int driver_version, pl_error_t *err)
{
    static bool opened;
    const int max = driver_version / 1000;
    char ways[WAYS_TEXT];
    opened = opened || library_find("libnvrtc", max, nvrtc_take);
    if (!opened)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "NVIDIA's compiler of kernels (libnvrtc.so.12%s) is not found: "
                       "%s, or name its folder in PACELINE_CUDA_PATH" CUDA_LOOKED,
                       max == 12 ? "" : " or .13",
                       ways_to_get(&nvrtc_packages, driver_version, ways));
    if (max && nvrtc.major > max)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "NVRTC %d.%d (%.200s) is newer than the driver (CUDA %d.%d)",
                       nvrtc.major, nvrtc.minor, nvrtc.path, max,
                       driver_version / 10 % 100);
    return PL_OK;
}

const cuda_compiler_t *cuda_compiler_open(int driver_version, pl_error_t *err)
{
    pthread_mutex_lock(&lock);
    const int code = nvrtc_open(driver_version, err);
    pthread_mutex_unlock(&lock);
    return code == PL_OK ? &nvrtc : NULL;
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

static int cublas_open(int driver_version, pl_error_t *err)
{
    static bool opened;
    const int max = driver_version / 1000;
    char ways[WAYS_TEXT];
    opened = opened || library_find("libcublasLt", max, cublas_take);
    if (opened)
        return PL_OK;
    return pl_fail(err, PL_ENOTFOUND,
                   "NVIDIA's library of products (libcublasLt.so.12%s) is not found: %s, "
                   "or name its folder in PACELINE_CUDA_PATH" CUDA_LOOKED,
                   max == 12 ? "" : " or .13",
                   ways_to_get(&cublas_packages, driver_version, ways));
}

const cuda_multiplier_t *cuda_multiplier_open(int driver_version, pl_error_t *err)
{
    pthread_mutex_lock(&cublas_lock);
    const int code = cublas_open(driver_version, err);
    pthread_mutex_unlock(&cublas_lock);
    return code == PL_OK ? &cublas : NULL;
}

/* ---- cuDNN ---- */

/* For CUDA of at most which major version  [0: any]; what was found and is for another
 * one, or too old. */
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

static int cudnn_open(int driver_version, pl_error_t *err)
{
    static bool opened;
    const int max = driver_version / 1000;
    char ways[WAYS_TEXT];
    cudnn_max = max;
    unfit.version = 0;
    opened = opened || file_find("libcudnn.so.9", cudnn_take);
    if (opened)
        return PL_OK;
    if (unfit.version)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "cuDNN %d.%d for CUDA %d (%.160s) cannot be used: install 9.8 or "
                       "later for CUDA %d (%s)",
                       unfit.version / 10000, unfit.version / 100 % 100, unfit_runtime,
                       unfit.path, max == 12 ? 12 : 13,
                       ways_to_get(&cudnn_packages, driver_version, ways));
    return pl_fail(err, PL_ENOTFOUND,
                   "NVIDIA's library of attention and convolution (libcudnn.so.9) is not "
                   "found: %s, or name its folder in PACELINE_CUDA_PATH" CUDA_LOOKED,
                   ways_to_get(&cudnn_packages, driver_version, ways));
}

const cuda_dnn_library_t *cuda_dnn_open(int driver_version, pl_error_t *err)
{
    pthread_mutex_lock(&cudnn_lock);
    const int code = cudnn_open(driver_version, err);
    pthread_mutex_unlock(&cudnn_lock);
    return code == PL_OK ? &cudnn : NULL;
}

/* ---- NVML ---- */

static int nvml_start(void *library, pl_error_t *err)
{
    const char *missing = symbols_find(library, nvml_symbols, &nvml.call);
    const cu_result_t result = missing ? NVML_OK : nvml.call.init();
    if (missing)
        return pl_fail(err, PL_EUNSUPPORTED, NVML_FILE " has no %s: update the driver",
                       missing);
    if (result != NVML_OK)
        return pl_fail(err, PL_EUNSUPPORTED, NVML_FILE " cannot be started: error %u",
                       result);
    path_of((const void *)nvml.call.init, nvml.path);
    return PL_OK;
}

static int nvml_open(pl_error_t *err)
{
    static bool opened;
    if (opened)
        return PL_OK;
    void *library = dlopen(NVML_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return pl_fail(err, PL_ENOTFOUND,
                       NVML_FILE " is not found: utilization, power and temperature are "
                                 "unknown; it is a part of NVIDIA's driver (apt-get "
                                 "install libnvidia-ml1)");
    const int code = nvml_start(library, err);
    if (code != PL_OK)
        dlclose(library);
    opened = code == PL_OK;
    return code;
}

const cuda_monitor_t *cuda_monitor_open(pl_error_t *err)
{
    pthread_mutex_lock(&lock);
    const int code = nvml_open(err);
    pthread_mutex_unlock(&lock);
    return code == PL_OK ? &nvml : NULL;
}

/* ---- NCCL ---- */

const char *cuda_nccl_version(int version, char text[CUDA_VERSION_TEXT])
{
    snprintf(text, CUDA_VERSION_TEXT, "%d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
    return text;
}

/* One that is too old is remembered, for the error. */
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

static int nccl_open(pl_error_t *err)
{
    static bool opened;
    char version[CUDA_VERSION_TEXT], ways[WAYS_TEXT];
    ways_to_get(&nccl_packages, driver.version, ways);
    /* One that PACELINE_CUDA_PATH names is used or refused. */
    opened = opened || search_dir_try(&search_dirs[0], NCCL_FILE, nccl_take)
             || (!nccl.version && file_find(NCCL_FILE, nccl_take));
    if (opened)
        return PL_OK;
    if (nccl.version)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "NCCL %s (%.160s) is too old: install 2.18 or later (%s), or name "
                       "its folder in PACELINE_CUDA_PATH",
                       cuda_nccl_version(nccl.version, version), nccl.path, ways);
    return pl_fail(err, PL_ENOTFOUND,
                   "NVIDIA's library of collectives (" NCCL_FILE ") is not found: %s, or "
                   "name its folder in PACELINE_CUDA_PATH" CUDA_LOOKED,
                   ways);
}

const cuda_communicator_t *cuda_communicator_open(pl_error_t *err)
{
    pthread_mutex_lock(&lock);
    const int code = nccl_open(err);
    pthread_mutex_unlock(&lock);
    return code == PL_OK ? &nccl : NULL;
}
