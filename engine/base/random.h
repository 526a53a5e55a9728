/* random.h - random numbers as pure functions (Philox 4x32-10) and shuffling without memory
 *
 * Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.  Nothing here has state: the same key and
 * counter give the same bits on every thread, rank and machine. */
#ifndef PL_BASE_RANDOM_H
#define PL_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* The 128 bits of a counter under a key; inline, for kernels. */
static inline void pl_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
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
/* A number for a text (FNV-1a). */
uint64_t pl_hash(const char *text);
uint64_t pl_hash_bytes(const void *bytes, size_t count);

uint64_t pl_random_u64(uint64_t key, uint64_t index);
double pl_random_uniform(uint64_t key, uint64_t index);     /* [0, 1), 53 bits */
double pl_random_normal(uint64_t key, uint64_t index);      /* mean 0, deviation 1 (Box-Muller) */

/* Where `index` of [0, n) goes in the shuffle named by key: a bijection of [0, n), in constant memory. */
int64_t pl_permute_index(uint64_t key, int64_t n, int64_t index);

#endif
