/* random.c - random numbers as pure functions (Philox 4x32-10) and shuffling without
 * memory */
#include "base/random.h"

#include <math.h>
#include <string.h>

uint64_t pl_mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * 0x9E3779B97F4A7C15u + b + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void random_bits(uint64_t key, uint64_t index, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0, 0};
    const uint32_t halves[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    pl_philox(counter, halves, out);
}

uint64_t pl_random_u64(uint64_t key, uint64_t index)
{
    uint32_t bits[4];
    random_bits(key, index, bits);
    return (uint64_t)bits[1] << 32 | bits[0];
}

double pl_random_uniform(uint64_t key, uint64_t index)
{
    return (double)(pl_random_u64(key, index) >> 11) * 0x1p-53;
}

double pl_random_normal(uint64_t key, uint64_t index)
{
    uint32_t bits[4];
    random_bits(key, index, bits);
    double u = ((double)(((uint64_t)bits[1] << 32 | bits[0]) >> 11) + 0.5) * 0x1p-53;
    double v = (double)(((uint64_t)bits[3] << 32 | bits[2]) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

/* A Feistel network of four rounds over the smallest even number of bits that holds n.  A
 * result outside [0, n) is permuted again ("cycle walking"), fewer than four times on
 * average. */
int64_t pl_permute_index(uint64_t key, int64_t n, int64_t index)
{
    int half = 1;
    while (half < 31 && (INT64_C(1) << (2 * half)) < n)
        half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t x = (uint64_t)index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (pl_mix(key + round, right) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t pl_permute_place(uint64_t key, int64_t n, int64_t value)
{
    int half = 1;
    while (half < 31 && (INT64_C(1) << (2 * half)) < n)
        half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t x = (uint64_t)value;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 4; round-- > 0;) {
            uint64_t before = right ^ (pl_mix(key + round, left) & mask);
            right = left;
            left = before;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}
