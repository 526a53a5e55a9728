/* cpu.c - the CPU as an accelerator: its table, options, memory and description
 *
 * A replay ends before it returns, because the cores that compute have nothing to overlap
 * with.  plan.c compiles and runs graphs. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "accelerators/cpu/device.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"
#include "runtime/placement.h"

enum {
    COPY_MIN = 1 << 20,              /* bytes from which on several threads copy faster */
    REGION_ALIGNMENT = 64            /* bytes */
};

int pl_buffer_reserve(pl_buffer_t *buffer, size_t bytes, pl_error_t *err)
{
    if (bytes <= buffer->bytes)
        return PL_OK;
    void *data, *memory = pl_alloc_large(bytes, &data);
    if (!memory)
        return pl_fail(err, PL_ENOMEM, "out of memory: %zu bytes on the device", bytes);
    pl_free(buffer->memory);
    *buffer = (pl_buffer_t){memory, data, bytes};
    return PL_OK;
}

void pl_buffer_release(pl_buffer_t *buffer)
{
    pl_free(buffer->memory);
    *buffer = (pl_buffer_t){0};
}

/* ---- The instruction set ---- */

typedef struct kernel_set {
    const pl_kernels_t *kernels;
    bool (*is_there)(void);                                 /* [always] */
} kernel_set_t;

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f")
           && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
           && __builtin_cpu_supports("avx512vl");
}

#endif

/* Best first. */
static const kernel_set_t sets[] = {
#if defined(__x86_64__)
    {&pl_kernels_avx512, has_avx512},
    {&pl_kernels_avx2, has_avx2},
#endif
    {&pl_kernels_portable, NULL},
};

/* ---- Opening and closing ---- */

/* The processor's name is from a line "model name : AMD EPYC" in /proc/cpuinfo, or
 * "CPU". */
static void describe(const pl_cpu_t *cpu, pl_device_info_t *info)
{
    char name[40] = "CPU", line[256];
    struct sysinfo system;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        const char *text = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !text)
            continue;
        snprintf(name, sizeof name, "%s", text + 1 + strspn(text + 1, " "));
        name[strcspn(name, "\n")] = '\0';
        break;
    }
    if (file)
        fclose(file);
    *info = (pl_device_info_t){.ranks = info->ranks,
                               .local_rank = info->local_rank,
                               .device = -1};
    snprintf(info->model, sizeof info->model, "%s, %s", name, cpu->kernels->name);
    info->devices = 1;
    info->threads = cpu->thread_count;
    info->memory = sysinfo(&system) == 0 ? (size_t)system.totalram * system.mem_unit : 0;
    pl_library_name(info->library);
    info->emulated = 1u << PL_F16;
    if (!pl_library_has_halves())
        info->emulated |= 1u << PL_BF16;
}

static int cpu_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    pl_cpu_t *cpu = self;
    cpu_set_t set;
    const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1,
              ranks = info->ranks > 1 && !pl_share_is_taken() ? info->ranks : 1,
              share = cores / ranks;
    if (cpu->threads < 0 || cpu->threads > 8 * (int64_t)cores)
        return pl_fail(err, PL_EINVAL,
                       "trainer.accelerator.threads is %lld, but this process may use %d "
                       "cores; 0 uses all of them",
                       (long long)cpu->threads, cores);
    cpu->thread_count = cpu->threads    ? (int)cpu->threads
                        : info->threads ? info->threads
                        : share         ? share
                                        : 1;
    cpu->generation = 1;
    const char *wanted = cpu->instructions ? cpu->instructions : "auto";
    size_t k = 0;
    while (k < sizeof sets / sizeof *sets
           && ((strcmp(wanted, "auto") && strcmp(wanted, sets[k].kernels->name))
               || (sets[k].is_there && !sets[k].is_there())))
        k++;
    if (k == sizeof sets / sizeof *sets)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "this processor cannot run the %s kernels; leave out "
                       "trainer.accelerator.instructions",
                       wanted);
    cpu->kernels = sets[k].kernels;
    /* A nice value for this thread and its helpers: when all cores compute, the host's
     * loop and other threads that wake up run at once. */
    const id_t thread = (id_t)gettid();
    if (info->computes)
        setpriority(PRIO_PROCESS, thread,
                    getpriority(PRIO_PROCESS, thread) + (int)cpu->nice);
    cpu->pool = pl_pool_new(cpu->thread_count, err);
    if (cpu->pool)
        cpu->library = pl_library_new(err);
    if (!cpu->library)
        return PL_ENOMEM;                              /* any failure; err has its code */
    describe(cpu, info);
    return PL_OK;
}

static void cpu_close(void *self)
{
    pl_cpu_t *cpu = self;
    while (cpu->plans)
        pl_cpu_discard(cpu, cpu->plans);
    for (int r = 0; r < PL_REGIONS; r++)
        pl_buffer_release(&cpu->region[r]);
    pl_buffer_release(&cpu->arena);
    pl_buffer_release(&cpu->scratch);
    pl_library_free(cpu->library);
    cpu->library = NULL;
    pl_pool_free(cpu->pool);
    cpu->pool = NULL;
}

/* ---- Regions ---- */

/* emulate.c keeps half precision as float32. */
static size_t width_of(pl_dtype_t dtype)
{
    return dtype == PL_F64 ? sizeof(double) : sizeof(float);
}

static void region_take(pl_cpu_t *cpu, pl_region_t region, pl_dtype_t dtype, size_t n,
                        pl_buffer_t fresh)
{
    pl_buffer_release(&cpu->region[region]);
    cpu->region[region] = fresh;
    cpu->region_count[region] = n;
    cpu->region_dtype[region] = dtype;
    cpu->generation++;
}

static int cpu_region(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                      pl_error_t *err)
{
    pl_buffer_t fresh = {0};
    if (n > SIZE_MAX / width_of(dtype))
        return pl_no_memory(err);
    int code = pl_buffer_reserve(&fresh, n * width_of(dtype), err);
    if (code == PL_OK)
        region_take(self, region, dtype, n, fresh);
    return code;
}

static int cpu_borrow(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                      void *host, pl_error_t *err)
{
    (void)err;
    memset(host, 0, n * width_of(dtype));
    region_take(self, region, dtype, n,
                (pl_buffer_t){.data = host, .bytes = n * width_of(dtype)});
    return PL_OK;
}

/* Half precision needs rounding, which cpu_write() does. */
static bool cpu_take_ownership(void *self, pl_region_t region, size_t n, void *host)
{
    pl_cpu_t *cpu = self;
    const pl_dtype_t dtype = cpu->region_dtype[region];
    if (n != cpu->region_count[region] || (dtype != PL_F32 && dtype != PL_F64)
        || (uintptr_t)host % REGION_ALIGNMENT)
        return false;
    region_take(cpu, region, dtype, n,
                (pl_buffer_t){.data = host, .bytes = n * width_of(dtype)});
    return true;
}

static int check_range(const pl_cpu_t *cpu, pl_region_t region, size_t offset, size_t n,
                       pl_error_t *err)
{
    if (offset <= cpu->region_count[region] && n <= cpu->region_count[region] - offset)
        return PL_OK;
    return pl_fail(
        err, PL_EINVAL,
        "region %d has %zu elements, so it does not have %zu from element %zu on",
        (int)region, cpu->region_count[region], n, offset);
}

typedef struct copying {
    char *to;
    const char *from;
} copying_t;

static void copy_piece(void *job, int64_t from, int64_t to, int part)
{
    const copying_t *c = job;
    (void)part;
    memcpy(c->to + from, c->from + from, (size_t)(to - from));
}

/* By all threads: one thread alone does not use the full bandwidth of the memory. */
static void copy(const pl_cpu_t *cpu, void *to, const void *from, size_t bytes)
{
    copying_t job = {to, from};
    pl_parallel_for(cpu->pool, bytes < COPY_MIN ? 1 : cpu->thread_count, (int64_t)bytes,
                    4096, copy_piece, &job);
}

static int cpu_write(void *self, pl_region_t region, size_t offset, const void *host,
                     size_t n, pl_error_t *err)
{
    pl_cpu_t *cpu = self;
    const pl_dtype_t dtype = cpu->region_dtype[region];
    const size_t width = width_of(dtype);
    int code = check_range(cpu, region, offset, n, err);
    if (code != PL_OK || !n)
        return code;
    char *to = cpu->region[region].data + offset * width;
    copy(cpu, to, host, n * width);
    for (size_t i = 0; i < n && dtype == PL_BF16; i++)
        ((float *)to)[i] = pl_round_bf16(((float *)to)[i]);
    for (size_t i = 0; i < n && dtype == PL_F16; i++)
        ((float *)to)[i] = pl_round_f16(((float *)to)[i]);
    return PL_OK;
}

static int cpu_read(void *self, pl_region_t region, size_t offset, void *host, size_t n,
                    pl_error_t *err)
{
    pl_cpu_t *cpu = self;
    const size_t width = width_of(cpu->region_dtype[region]);
    int code = check_range(cpu, region, offset, n, err);
    if (code == PL_OK && n)
        copy(cpu, host, cpu->region[region].data + offset * width, n * width);
    return code;
}

static const pl_option_t cpu_options[] = {
    PL_INT(pl_cpu_t, threads, "0", "0..",
           "number of compute threads; 0: this rank's share of the cores that this "
           "process may use"),
    PL_INT(pl_cpu_t, nice, "10", "0..19",
           "nice value of the compute threads, so that others such as the host's loop "
           "run first; see nice(1)"),
    PL_TEXT(pl_cpu_t, instructions, "\"auto\"", "auto|avx512|avx2|portable",
            "instruction set of the kernels"),
    PL_OPTIONS_END,
};

const pl_accelerator_ops_t pl_cpu_accelerator = {
    .name = "cpu",
    .help = "the processor, with oneDNN and Paceline's own kernels",
    .size = sizeof(pl_cpu_t),
    .options = cpu_options,
    .open = cpu_open,
    .close = cpu_close,
    .region = cpu_region,
    .borrow = cpu_borrow,
    .take_ownership = cpu_take_ownership,
    .write = cpu_write,
    .read = cpu_read,
    .compile = pl_cpu_compile,
    .discard = pl_cpu_discard,
    .replay = pl_cpu_replay,
};
