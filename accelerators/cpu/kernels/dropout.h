/* dropout.h - the masks of pl_dropout_keep() for many elements at once */
#ifndef PL_CPU_DROPOUT_H
#define PL_CPU_DROPOUT_H

#include "accelerators/cpu/kernels/functions.h"
#include "base/random.h"

/* The words of elements [4 block, 4 block + 64): Philox on 16 counters side by side. */
PL_INLINE void dropout_words(const pl_dropout_t *d, uint64_t block, uint32_t words[64])
{
    uint32_t c[4][16];
    for (int i = 0; i < 16; i++) {
        uint64_t counter = block + (uint64_t)i;
        c[0][i] = (uint32_t)counter, c[1][i] = (uint32_t)(counter >> 32);
        c[2][i] = d->step, c[3][i] = d->micro_batch;
    }
    uint32_t k0 = d->key[0], k1 = d->key[1];
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < 16; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c[0][i],
                     p1 = (uint64_t)0xCD9E8D57u * c[2][i];
            c[0][i] = (uint32_t)(p1 >> 32) ^ c[1][i] ^ k0;
            c[1][i] = (uint32_t)p1;
            c[2][i] = (uint32_t)(p0 >> 32) ^ c[3][i] ^ k1;
            c[3][i] = (uint32_t)p0;
        }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 4; k++)
            words[4 * i + k] = c[k][i];
}

/* The factors of elements [element, element + n): 1 / (1 - p) if an element stays,
 * else 0.  A word's upper 24 bits are compared as whole numbers with the first one
 * that stays: the same as dividing both by 2^24. */
PL_INLINE void dropout_factors(const pl_dropout_t *d, uint64_t element, int64_t n,
                               float *factor)
{
    const float stays = (float)(1.0 / (1.0 - d->p)), min = (float)ceil(d->p * 0x1p24);
    for (int64_t i = 0; i < n;) {
        uint32_t words[64];
        const int skip = (int)((element + (uint64_t)i) % 4),
                  m = n - i < 64 - skip ? (int)(n - i) : 64 - skip;
        dropout_words(d, (element + (uint64_t)i) / 4, words);
        for (int j = 0; j < m; j++)
            factor[i + j] = (float)(int32_t)(words[skip + j] >> 8) >= min ? stays : 0.0f;
        i += m;
    }
}

#endif
