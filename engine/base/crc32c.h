/* crc32c.h - CRC-32C (Castagnoli), as in RFC 3720, appendix B.4 */
#ifndef PL_BASE_CRC32C_H
#define PL_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is of (0: nothing) and then of data. */
uint32_t pl_crc32c(uint32_t crc, const void *data, size_t size);

#endif
