/* crc32c.c - CRC-32C (Castagnoli), as in RFC 3720, appendix B.4
 *
 * By the processor's instruction where it has one: some GB/s, so that a checksum costs
 * little beside a disk. */
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

static uint32_t by_table(uint32_t crc, const uint8_t *data, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, table_fill);
    for (size_t k = 0; k < size; k++)
        crc = crc >> 8 ^ table[(crc ^ data[k]) & 255];
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc,
                                                                 const uint8_t *data,
                                                                 size_t size)
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
#endif

uint32_t pl_crc32c(uint32_t crc, const void *data, size_t size)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~by_instruction(~crc, data, size);
#endif
    return ~by_table(~crc, data, size);
}
