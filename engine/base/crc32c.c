/* crc32c.c - CRC-32C (Castagnoli), as in RFC 3720, appendix B.4
 *
 * Computed by the processor's instruction if there is one: 10 GB/s and more, so that a
 * checksum costs little compared with a disk, and also with memory. */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL UINT32_C(0x82f63b78)                     /* reflected */

static uint32_t table[256];

static void table_fill(void)
{
    for (uint32_t k = 0; k < 256; k++) {
        uint32_t crc = k;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[k] = crc;
    }
}

#ifdef __x86_64__
/* An instruction can start in each cycle, and its result takes three cycles: so three
 * stripes are computed at the same time.  To put one stripe before another, its
 * checksum continues over a stripe of zeros; that is linear in its bits, so each of
 * its bytes has a table. */
#define STRIPE ((size_t)4096)

static uint32_t over_stripe[4][256];

#define SSE42 __attribute__((target("sse4.2")))

SSE42 static uint32_t by_instruction(uint32_t crc, const uint8_t *data, size_t size)
{
    uint64_t wide = crc, word;
    for (; size >= sizeof word; data += sizeof word, size -= sizeof word) {
        memcpy(&word, data, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size; data++, size--)
        crc = __builtin_ia32_crc32qi(crc, *data);
    return crc;
}

static void over_stripe_fill(void)
{
    static const uint8_t zeros[STRIPE];
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t k = 0; k < 256; k++)
            over_stripe[byte][k] = by_instruction(k << 8 * byte, zeros, STRIPE);
}

static uint32_t pass_stripe(uint32_t crc)
{
    return over_stripe[0][crc & 255] ^ over_stripe[1][crc >> 8 & 255]
           ^ over_stripe[2][crc >> 16 & 255] ^ over_stripe[3][crc >> 24];
}

SSE42 static uint32_t by_stripes(uint32_t crc, const uint8_t *data, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (size >= 3 * STRIPE)
        pthread_once(&once, over_stripe_fill);
    for (; size >= 3 * STRIPE; data += 3 * STRIPE, size -= 3 * STRIPE) {
        uint64_t a = crc, b = 0, c = 0, word[3];
        for (size_t k = 0; k < STRIPE; k += sizeof *word) {
            memcpy(&word[0], data + k, sizeof *word);
            memcpy(&word[1], data + STRIPE + k, sizeof *word);
            memcpy(&word[2], data + 2 * STRIPE + k, sizeof *word);
            a = __builtin_ia32_crc32di(a, word[0]);
            b = __builtin_ia32_crc32di(b, word[1]);
            c = __builtin_ia32_crc32di(c, word[2]);
        }
        crc = pass_stripe(pass_stripe((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
    }
    return by_instruction(crc, data, size);
}
#endif

uint32_t pl_crc32c(uint32_t crc, const void *data, size_t size)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~by_stripes(~crc, data, size);
#endif
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint8_t *at = data;
    pthread_once(&once, table_fill);
    crc = ~crc;
    for (size_t k = 0; k < size; k++)
        crc = crc >> 8 ^ table[(crc ^ at[k]) & 255];
    return ~crc;
}
