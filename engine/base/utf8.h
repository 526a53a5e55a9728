/* utf8.h - code points of UTF-8 text, strictly, and text that is safe to show
 *
 * A run file may contain any bytes; an error that quotes them must be one line of valid
 * UTF-8. */
#ifndef PL_BASE_UTF8_H
#define PL_BASE_UTF8_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paceline.h"

/* Reads the code point at the start of text[0..size) and returns its bytes, 1 to 4; 0:
 * the text is empty, or has a stray or missing byte, an overlong form, a surrogate, or
 * a code point past U+10FFFF (RFC 3629). */
int pl_utf8_get(const void *text, size_t size, uint32_t *code);

/* Writes a code point; returns its bytes. */
int pl_utf8_put(uint32_t code, char out[static 4]);

bool pl_utf8_ok(const char *text, size_t length);

/* Copies text into shown[size], size >= 8, and cuts it with "…" if it is too long;
 * controls and bytes that are not UTF-8 become '?'.  Returns shown. */
char *pl_utf8_show(const char *text, char *shown, size_t size);

/* vsnprintf() with the C locale, which writes 0.5 under every locale of the program.  The
 * engine's threads have that locale (reactor.c); those of the program may not. */
int pl_text_print(char *text, size_t size, const char *format, va_list args)
    PL_PRINTF(3, 0);

#endif
