/* emulator.h - CUDA's model of execution on the processor, for tests of kernels
 *
 * A kernel's text is compiled as C after this header, and each of its threads is a
 * fiber. Two groups are under way at once, and a seed decides which thread continues,
 * so that what depends on an order shows.  A barrier that some threads of a group
 * never come to, and threads of a warp that part before a shuffle, end the process
 * with a sentence.  With -fsanitize=address the text is held to the memory it was
 * given; with -fsanitize=thread, and emulator.c without it but with EMULATOR_TSAN,
 * accesses that no barrier orders are found, in local and in global memory. */
#ifndef T_EMULATOR_H
#define T_EMULATOR_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

#define EMULATOR 1
#define EMULATOR_FAULT 3                                    /* exit status */

typedef struct emulator_place {
    unsigned x;
} emulator_place_t;

typedef struct emulator_thread {
    emulator_place_t thread, block, threads, blocks;
} emulator_thread_t;

/* Runs a kernel, called with the argument by each thread of each block. */
void emulator_run(void (*kernel)(void *argument), void *argument, unsigned blocks,
                  unsigned threads, uint64_t seed);

/* What kernels call, from inside. */
extern emulator_thread_t *emulator_self;
void emulator_barrier(void);
double emulator_shuffle(double x, int mask);
/* The group's local array of that name, filled with NaN when its first thread comes. */
void *emulator_local(const char *name, size_t bytes);

/* The same for kernels in a library that is loaded: its emulator_calls must be set to
 * these. */
typedef struct emulator_calls {
    emulator_thread_t **self;
    void (*barrier)(void);
    double (*shuffle)(double x, int mask);
    void *(*local)(const char *name, size_t bytes);
} emulator_calls_t;
extern const emulator_calls_t emulator_own_calls;

#ifdef EMULATOR_LOADED
const emulator_calls_t *emulator_calls;
#define emulator_self (*emulator_calls->self)
#define emulator_barrier() emulator_calls->barrier()
#define emulator_shuffle(x, mask) emulator_calls->shuffle(x, mask)
#define emulator_local(name, bytes) emulator_calls->local(name, bytes)
#endif

/* ---- CUDA's names ---- */

typedef struct {
    float x, y, z, w;
} float4 __attribute__((aligned(16)));

typedef struct {
    double x, y;
} double2 __attribute__((aligned(16)));

typedef struct {
    uint16_t x, y, z, w;
} ushort4 __attribute__((aligned(8)));

#define threadIdx (emulator_self->thread)
#define blockIdx (emulator_self->block)
#define blockDim (emulator_self->threads)
#define gridDim (emulator_self->blocks)
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __restrict__ restrict
#define __syncthreads() emulator_barrier()
#define __shfl_xor_sync(all, x, mask) ((__typeof__(x))emulator_shuffle((double)(x), mask))
#define emulator_f16_float(bits) pl_f16_float(bits)
#define emulator_f16_bits(x) pl_f16_bits(x)

/* The emulator has one thread, and sanitizers know what is atomic. */
#define atomicCAS(at, was, is) \
    ({ \
        __typeof__(*(at)) found = (was); \
        __atomic_compare_exchange_n(at, &found, is, 0, __ATOMIC_RELAXED, \
                                    __ATOMIC_RELAXED); \
        found; \
    })
#define atomicAdd(at, x) __atomic_fetch_add(at, x, __ATOMIC_ACQ_REL)
#define __threadfence() ((void)0)                           /* atomicAdd() has it */

static inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

static inline float4 make_float4(float x, float y, float z, float w)
{
    return (float4){x, y, z, w};
}

static inline double2 make_double2(double x, double y)
{
    return (double2){x, y};
}

static inline ushort4 make_ushort4(uint16_t x, uint16_t y, uint16_t z, uint16_t w)
{
    return (ushort4){x, y, z, w};
}

#endif
