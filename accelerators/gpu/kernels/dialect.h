/* dialect.h - the words that kernels are written in: one text for CUDA's run-time
 * compiler and, as C, for the emulator of the tests
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
#else
#define KERNEL extern "C" __global__
#define LOCAL_ARRAY(type, name, count) __shared__ type name[count]
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

/* ---- bfloat16 ---- */

FN float bf16_float(uint16_t bits)
{
    return pl_float_of((uint32_t)bits << 16);
}

FN uint16_t bf16_bits(float x)
{
    const uint32_t bits = pl_bits_of(x);
    return x != x ? 0x7fff : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* ---- Four elements at once: `at` is a multiple of four, of aligned memory ---- */

typedef struct four {
    float at[4];
} four_t;

FN four_t load4(const GLOBAL float *x, int64_t at)
{
    const float4 v = *(const float4 *)(x + at);
    const four_t four = {{v.x, v.y, v.z, v.w}};
    return four;
}

FN void store4(GLOBAL float *x, int64_t at, four_t four)
{
    *(float4 *)(x + at) = make_float4(four.at[0], four.at[1], four.at[2], four.at[3]);
}

FN four_t load4_bf16(const GLOBAL uint16_t *x, int64_t at)
{
    const ushort4 v = *(const ushort4 *)(x + at);
    const four_t four = {{bf16_float(v.x), bf16_float(v.y), bf16_float(v.z),
                          bf16_float(v.w)}};
    return four;
}

FN void store4_bf16(GLOBAL uint16_t *x, int64_t at, four_t four)
{
    *(ushort4 *)(x + at) = make_ushort4(bf16_bits(four.at[0]), bf16_bits(four.at[1]),
                                        bf16_bits(four.at[2]), bf16_bits(four.at[3]));
}

/* ---- Sums and maxima over a group ----
 *
 * Of the values of all threads, to all threads; their number is a multiple of 32.  `rows`
 * is a local array of GROUP_ROWS floats, which may be used again right after. */

#define GROUP_ROWS 32
#ifndef SYNC_OF_SUMS
#define SYNC_OF_SUMS() SYNC()
#endif

FN float group_sum(float x, LOCAL float *rows)
{
    for (int width = 16; width > 0; width /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, width);
    if (THREAD % 32 == 0)
        rows[THREAD / 32] = x;
    SYNC_OF_SUMS();
    x = THREAD % 32 < THREADS / 32 ? rows[THREAD % 32] : 0.0f;
    for (int width = 16; width > 0; width /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, width);
    SYNC();
    return x;
}

/* A NaN is larger than anything. */
FN float larger(float a, float b)
{
    return a > b || a != a ? a : b;
}

FN float group_max(float x, LOCAL float *rows)
{
    for (int width = 16; width > 0; width /= 2)
        x = larger(x, __shfl_xor_sync(0xffffffffu, x, width));
    if (THREAD % 32 == 0)
        rows[THREAD / 32] = x;
    SYNC();
    x = THREAD % 32 < THREADS / 32 ? rows[THREAD % 32] : -INFINITY;
    for (int width = 16; width > 0; width /= 2)
        x = larger(x, __shfl_xor_sync(0xffffffffu, x, width));
    SYNC();
    return x;
}

/* ---- Random bits: Philox 4x32-10, as base/random.h has it ---- */

typedef struct words {
    uint32_t at[4];
} words_t;

FN words_t philox(uint64_t counter, uint32_t step, uint32_t shard, uint32_t key0,
                  uint32_t key1)
{
    words_t c = {{(uint32_t)counter, (uint32_t)(counter >> 32), step, shard}};
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

#endif
