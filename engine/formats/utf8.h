/* utf8.h - code points of UTF-8 text, strictly */
#ifndef PL_FORMATS_UTF8_H
#define PL_FORMATS_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the code point that text[0..size) begins with, 1 to 4, and the code point
 * itself; 0 when there is none: nothing left, a stray or missing byte, an overlong form,
 * a surrogate, past U+10FFFF (RFC 3629). */
int pl_utf8_get(const void *text, size_t size, uint32_t *code);

/* Writes a code point; -> bytes. */
int pl_utf8_put(uint32_t code, char out[static 4]);

#endif
