/* random.h - random numbers as pure functions (Philox 4x32-10) and shuffling without
 * memory
 *
 * Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.  Nothing here
 * has state: the same key and counter give the same bits on every thread, rank and
 * machine. */
#ifndef PL_BASE_RANDOM_H
#define PL_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

/* The 128 bits of a counter under a key; inline, for kernels. */
static inline void pl_philox(const uint32_t counter[4], const uint32_t key[2],
                             uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3],
             k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* A key for a purpose: mixes two numbers into one (splitmix64's finaliser). */
uint64_t pl_mix(uint64_t a, uint64_t b);

uint64_t pl_random_u64(uint64_t key, uint64_t index);
double pl_random_uniform(uint64_t key, uint64_t index);     /* [0, 1), 53 bits */
double pl_random_normal(uint64_t key, uint64_t index);      /* mean 0, deviation 1
                                                               (Box-Muller) */

/* The mask of a dropout is a pure function of these, prepared for many elements:
 * stream: the operator's; micro_batch: the index within the global batch. */
typedef struct pl_dropout {
    uint32_t key[2], step, micro_batch;
    double p;                                               /* probability of a zero */
} pl_dropout_t;

static inline pl_dropout_t pl_dropout_init(uint64_t seed, uint64_t step,
                                           uint64_t micro_batch, uint64_t stream,
                                           double p)
{
    uint64_t key = pl_mix(seed, stream);
    return (pl_dropout_t){{(uint32_t)key, (uint32_t)(key >> 32)},
                          (uint32_t)step,
                          (uint32_t)micro_batch ^ (uint32_t)(step >> 32),
                          p};
}

/* Whether elements 4 block to 4 block + 3 are kept: four at once, for kernels. */
static inline void pl_dropout_keep4(const pl_dropout_t *d, uint64_t block, bool keep[4])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), d->step,
                                 d->micro_batch};
    uint32_t bits[4];
    pl_philox(counter, d->key, bits);
    for (int i = 0; i < 4; i++)
        keep[i] = (bits[i] >> 8) * 0x1p-24 >= d->p;
}

/* Whether one element is kept. */
static inline bool pl_dropout_keep(const pl_dropout_t *d, uint64_t element)
{
    bool keep[4];
    pl_dropout_keep4(d, element / 4, keep);
    return keep[element % 4];
}

/* The position of `index` of [0, n) in the shuffle of a key: a bijection of [0, n), in
 * constant memory. */
int64_t pl_permute_index(uint64_t key, int64_t n, int64_t index);
/* The index whose position is `value`. */
int64_t pl_permute_place(uint64_t key, int64_t n, int64_t value);

#endif
