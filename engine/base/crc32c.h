/* crc32c.h - CRC-32C (Castagnoli), as in RFC 3720, appendix B.4 */
#ifndef PL_BASE_CRC32C_H
#define PL_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues a checksum with more data; crc: the checksum of the bytes before [0:
 * none]. */
uint32_t pl_crc32c(uint32_t crc, const void *data, size_t size);

#endif
