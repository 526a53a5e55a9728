/* dialect.h - the words that kernels are written in: one text for the run-time compilers
 * of CUDA and OpenCL and, as C, for the emulator of the tests
 *
 * Kernels are C without templates:
 *
 *     KERNEL void BOUNDS(256) scale(GLOBAL const float *RESTRICT x, …, int64_t n)
 *
 * A launch has GROUPS groups of up to 1024 threads, in one dimension.  SYNC() orders the
 * local and the global memory of a group.  Local memory stands at the top of a kernel, of
 * constant size.  Sums and maxima over a group come from the functions below alone: they
 * add in one order, whatever the hardware's warps are, so that all targets give the same
 * bits.  Numbers of 16 bits are uint16_t in memory and float in registers. */
#ifndef PL_GPU_DIALECT_H
#define PL_GPU_DIALECT_H

#ifdef EMULATOR
#define KERNEL static
#define LOCAL_ARRAY(type, name, count) \
    type *const name = emulator_local(#name, (count) * sizeof(type))
#define ENTER(kernel, ...) \
    void kernel##_enter(void *user) \
    { \
        const uint64_t *a = user; \
        kernel(__VA_ARGS__); \
    }
#elif defined __OPENCL_VERSION__
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL __kernel
#define LOCAL_ARRAY(type, name, count) LOCAL type name[count]
#define ENTER(kernel, ...)
typedef char int8_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
#else
#define KERNEL extern "C" __global__
#define LOCAL_ARRAY(type, name, count) __shared__ type name[count]
#define ENTER(kernel, ...)      /* of the emulator: the kernel with a list of addresses */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif

#ifdef __OPENCL_VERSION__
#define FN static
#define GLOBAL __global
#define LOCAL __local
#define RESTRICT restrict
#define BOUNDS(threads) __attribute__((reqd_work_group_size(threads, 1, 1)))
#define THREAD ((int)get_local_id(0))
#define THREADS ((int)get_local_size(0))
#define GROUP ((int64_t)get_group_id(0))
#define GROUPS ((int64_t)get_num_groups(0))
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define HIGH_PRODUCT(a, b) mul_hi(a, b)
#define pl_bits_of(x) as_uint(x)
#define pl_float_of(bits) as_float(bits)
#define sqrtf(x) sqrt(x)
#define make_float4(...) ((float4)(__VA_ARGS__))
#define make_double2(...) ((double2)(__VA_ARGS__))
#define make_ushort4(...) ((ushort4)(__VA_ARGS__))
#define atomicAdd(to, x) atomic_add(to, x)
#define atomicCAS(to, old, x) atomic_cmpxchg(to, old, x)
#if __OPENCL_C_VERSION__ == 200 \
    || defined __opencl_c_atomic_order_acq_rel && defined __opencl_c_atomic_scope_device
#define __threadfence() \
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, \
                           memory_scope_device)
#else
#define __threadfence() mem_fence(CLK_GLOBAL_MEM_FENCE)
#endif
#define memcpy(to, from, bytes) \
    for (int byte_ = 0; byte_ < (int)(bytes); byte_++) \
    ((char *)(to))[byte_] = ((const char *)(from))[byte_]
#else
#define FN static __device__ __forceinline__
#define GLOBAL
#define LOCAL
#define RESTRICT __restrict__
#define BOUNDS(threads) __launch_bounds__(threads)
#define THREAD ((int)threadIdx.x)                           /* within its group */
#define THREADS ((int)blockDim.x)
#define GROUP ((int64_t)blockIdx.x)
#define GROUPS ((int64_t)gridDim.x)
#define SYNC() __syncthreads()
#define HIGH_PRODUCT(a, b) __umulhi(a, b)                   /* the upper 32 bits of it */
#define pl_bits_of(x) __float_as_uint(x)
#define pl_float_of(bits) __uint_as_float(bits)
#endif
#define STEP_SCALARS 113

/* ---- Types in memory: element i of x as a number, and a number as element i ----
 *
 * Numbers in registers are `real`: float, or double in a text with WIDE. */

#ifdef WIDE
typedef double real;
#else
typedef float real;
#endif

FN float bf16_float(uint16_t bits)
{
    return pl_float_of((uint32_t)bits << 16);
}

FN uint16_t bf16_bits(float x)
{
    const uint32_t bits = pl_bits_of(x);
    return x != x ? 0x7fff : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#ifdef EMULATOR
#define f16_float(bits) emulator_f16_float(bits)
#define f16_bits(x) emulator_f16_bits(x)
#elif defined __OPENCL_VERSION__
FN float f16_float(uint16_t bits)
{
    return vload_half(0, (const half *)&bits);
}

FN uint16_t f16_bits(float x)
{
    uint16_t bits;
    vstore_half_rte(x, 0, (half *)&bits);
    return bits;
}
#else
FN float f16_float(uint16_t bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

FN uint16_t f16_bits(float x)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#endif

#define load_i32(x, i) ((x)[i])
#define load_i64(x, i) ((x)[i])
#define load_u8(x, i) ((x)[i])
#define load_f32(x, i) ((x)[i])
#define load_f64(x, i) ((x)[i])
#define load_bf16(x, i) bf16_float((x)[i])
#define load_f16(x, i) f16_float((x)[i])
#define store_i32(x, i, v) ((x)[i] = (int32_t)(v))
#define store_i64(x, i, v) ((x)[i] = (int64_t)(v))
#define store_u8(x, i, v) ((x)[i] = (uint8_t)(v))
#define store_f32(x, i, v) ((x)[i] = (float)(v))
#define store_f64(x, i, v) ((x)[i] = (double)(v))
#define store_bf16(x, i, v) ((x)[i] = bf16_bits((float)(v)))
#define store_f16(x, i, v) ((x)[i] = f16_bits((float)(v)))

/* What memory of that type would keep of a number. */
#define round_f32(v) ((real)(float)(v))
#define round_f64(v) (v)
#define round_bf16(v) bf16_float(bf16_bits((float)(v)))
#define round_f16(v) f16_float(f16_bits((float)(v)))

/* ---- Four elements at once: `at` is a multiple of four, of aligned memory ---- */

typedef struct four {
    real at[4];
} four_t;

FN four_t load4_f32(const GLOBAL float *x, int64_t at)
{
    const float4 v = *(const GLOBAL float4 *)(x + at);
    const four_t four = {{v.x, v.y, v.z, v.w}};
    return four;
}

FN void store4_f32(GLOBAL float *x, int64_t at, four_t four)
{
    *(GLOBAL float4 *)(x + at) = make_float4((float)four.at[0], (float)four.at[1],
                                             (float)four.at[2], (float)four.at[3]);
}

FN four_t load4_f64(const GLOBAL double *x, int64_t at)
{
    const double2 v = *(const GLOBAL double2 *)(x + at),
                  w = *(const GLOBAL double2 *)(x + at + 2);
    const four_t four = {{(real)v.x, (real)v.y, (real)w.x, (real)w.y}};
    return four;
}

FN void store4_f64(GLOBAL double *x, int64_t at, four_t four)
{
    *(GLOBAL double2 *)(x + at) = make_double2((double)four.at[0], (double)four.at[1]);
    *(GLOBAL double2 *)(x + at + 2) = make_double2((double)four.at[2],
                                                   (double)four.at[3]);
}

#define HALVES(type) \
    FN four_t load4_##type(const GLOBAL uint16_t *x, int64_t at) \
    { \
        const ushort4 v = *(const GLOBAL ushort4 *)(x + at); \
        const four_t four = {{type##_float(v.x), type##_float(v.y), type##_float(v.z), \
                              type##_float(v.w)}}; \
        return four; \
    } \
\
    FN void store4_##type(GLOBAL uint16_t *x, int64_t at, four_t four) \
    { \
        *(GLOBAL ushort4 *)(x + at) = make_ushort4(type##_bits((float)four.at[0]), \
                                                   type##_bits((float)four.at[1]), \
                                                   type##_bits((float)four.at[2]), \
                                                   type##_bits((float)four.at[3])); \
    }
HALVES(bf16)
HALVES(f16)
#undef HALVES

/* ---- Sums and maxima over a group ----
 *
 * Of the values of all threads, to all threads; their number is a multiple of 32.  `rows`
 * is a local array of GROUP_ROWS numbers, which may be used again right after. */

#ifdef __OPENCL_VERSION__
#define GROUP_ROWS 1024
#else
#define GROUP_ROWS 32
#endif
#ifndef SYNC_OF_SUMS
#define SYNC_OF_SUMS() SYNC()
#endif

/* The inner product of two pairs (a, b), each turned by the angle whose cosine is c and
 * whose sine is s. */
FN real turned_product(real a, real b, real c, real s, real a2, real b2, real c2, real s2)
{
    return (a * c - b * s) * (a2 * c2 - b2 * s2) + (b * c + a * s) * (b2 * c2 + a2 * s2);
}

/* A NaN is larger than anything. */
FN real larger(real a, real b)
{
    return a > b || a != a ? a : b;
}

#define ADDED(a, b) ((a) + (b))
#ifdef __OPENCL_VERSION__
/* Threads 0, 32, … fold 32 values each, and thread 0 what these have made. */
#define GROUP_FOLD(name, type, join, none) \
    FN void name##_32(LOCAL type *rows) \
    { \
        for (int width = 16; width > 0; width /= 2) \
            for (int k = 0; k < width; k++) \
                rows[k] = join(rows[k], rows[k + width]); \
    } \
\
    FN type name(type x, LOCAL type *rows) \
    { \
        rows[THREAD] = x; \
        SYNC(); \
        if (THREAD % 32 == 0) \
            name##_32(rows + THREAD); \
        SYNC(); \
        if (THREAD == 0) { \
            for (int k = 0; k < 32; k++) \
                rows[k] = k < THREADS / 32 ? rows[k * 32] : (none); \
            name##_32(rows); \
        } \
        SYNC(); \
        x = rows[0]; \
        SYNC(); \
        return x; \
    }
#else
#define GROUP_FOLD(name, type, join, none) \
    FN type name(type x, LOCAL type *rows) \
    { \
        for (int width = 16; width > 0; width /= 2) \
            x = join(x, __shfl_xor_sync(0xffffffffu, x, width)); \
        if (THREAD % 32 == 0) \
            rows[THREAD / 32] = x; \
        SYNC_OF_SUMS(); \
        x = THREAD % 32 < THREADS / 32 ? rows[THREAD % 32] : (none); \
        for (int width = 16; width > 0; width /= 2) \
            x = join(x, __shfl_xor_sync(0xffffffffu, x, width)); \
        SYNC(); \
        return x; \
    }
#endif
GROUP_FOLD(group_sum, real, ADDED, (real)0)
GROUP_FOLD(group_sum64, double, ADDED, 0.0)
GROUP_FOLD(group_max, real, larger, -(real)INFINITY)
#undef GROUP_FOLD

/* ---- Sums whose rounding errors are kept, as base/compensated_sum.h has them ---- */

#if defined EMULATOR || defined __OPENCL_VERSION__
#define EXACT_PRODUCT(a, b) ((a) * (b))
#else
#define EXACT_PRODUCT(a, b) __dmul_rn(a, b)
#endif

FN void exact_add(double *sum, double *rest, double x)
{
    const double next = *sum + x, added = next - *sum;
    *rest += (*sum - (next - added)) + (x - added);
    *sum = next;
}

/* ---- Groups after one another ----
 *
 * To all threads of a group: whether it is the last of `groups` that came to the counter,
 * which begins and ends as 0.  It sees what the others have stored before.  `last` is a
 * local int. */
FN int is_last_group(GLOBAL uint32_t *counter, uint32_t groups, LOCAL int *last)
{
    SYNC();
    if (THREAD == 0) {
        __threadfence();
        *last = atomicAdd(counter, 1u) == groups - 1;
        if (*last)
            *counter = 0;
        __threadfence();
    }
    SYNC();
    return *last;
}

/* ---- What changes from replay to replay, and what a replay leaves ---- */

typedef struct step {
    double scalar[STEP_SCALARS];
    uint64_t seed;
    uint32_t step, micro_batch;                             /* as pl_dropout_t has them */
    int32_t fail_fast, restart;                             /* as pl_replay_t */
} step_t;

typedef struct control {
    int32_t status;             /* not 0: no region changes: SKIP_NON_FINITE, … */
    int32_t operation;          /* that got a wrong index, or the guard that stopped it */
    int64_t index;              /* the first that was found */
    int32_t skipping, fail_fast;  /* across replays: see begin.k */
} control_t;

#define SKIP_NON_FINITE 1                                   /* something was not finite */
#define SKIP_EMPTY 2                                        /* that is no fault */
#define WRONG_INDEX 3
#define NOT_FINITE 4                                     /* in a result that is watched */

/* An index that is not in [0, below) ends the replay; what is computed with it does not
 * matter, but must not reach beyond memory. */
FN int64_t checked_index(GLOBAL control_t *control, int operation, int64_t index,
                         int64_t below)
{
    if (index >= 0 && index < below)
        return index;
    if (atomicCAS(&control->status, 0, WRONG_INDEX) == 0) {
        control->operation = operation;
        control->index = index;
    }
    return 0;
}

/* ---- Random bits: as base/random.h has them ---- */

/* pl_mix() */
FN uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * 0x9E3779B97F4A7C15u + b + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

typedef struct words {
    uint32_t at[4];
} words_t;

FN words_t philox(uint64_t counter, uint32_t step, uint32_t micro_batch, uint32_t key0,
                  uint32_t key1)
{
    words_t c = {{(uint32_t)counter, (uint32_t)(counter >> 32), step, micro_batch}};
    for (int round = 0; round < 10; round++) {
        const uint32_t high0 = HIGH_PRODUCT(0xD2511F53u, c.at[0]),
                       low0 = 0xD2511F53u * c.at[0],
                       high1 = HIGH_PRODUCT(0xCD9E8D57u, c.at[2]),
                       low1 = 0xCD9E8D57u * c.at[2];
        c.at[0] = high1 ^ c.at[1] ^ key0;
        c.at[1] = low1;
        c.at[2] = high0 ^ c.at[3] ^ key1;
        c.at[3] = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

/* The words of elements 4 block to 4 block + 3 of a stream. */
FN words_t random_words(GLOBAL const step_t *step, uint64_t stream, uint64_t block)
{
    const uint64_t key = mix(step->seed, stream);
    return philox(block, step->step, step->micro_batch, (uint32_t)key,
                  (uint32_t)(key >> 32));
}

/* What element `element` is multiplied by in a dropout: 1 / (1 - p) or 0. */
FN real dropout_factor(GLOBAL const step_t *step, uint64_t stream, uint64_t element,
                       double p)
{
    const words_t words = random_words(step, stream, element / 4);
    return (double)(words.at[element % 4] >> 8) * 0x1p-24 >= p ? (real)(1.0 / (1.0 - p))
                                                               : (real)0;
}

#endif
