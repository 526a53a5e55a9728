/* utf8.h - code points of UTF-8 text, strictly, and text that is safe to show
 *
 * What a run file holds may be anything; an error that quotes it must still be one line
 * of valid UTF-8. */
#ifndef PL_BASE_UTF8_H
#define PL_BASE_UTF8_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paceline.h"

/* Bytes of the code point that text[0..size) begins with, 1 to 4, and the code point
 * itself; 0 when there is none: nothing left, a stray or missing byte, an overlong form,
 * a surrogate, past U+10FFFF (RFC 3629). */
int pl_utf8_get(const void *text, size_t size, uint32_t *code);

/* Writes a code point; -> bytes. */
int pl_utf8_put(uint32_t code, char out[static 4]);

bool pl_utf8_ok(const char *text, size_t length);

/* Copies text into shown[size], at least 8 bytes, cut with "…" when it is too long;
 * controls and bytes that are not UTF-8 become '?'. */
char *pl_utf8_show(const char *text, char *shown, size_t size);

/* vsnprintf() with the C locale: 0.5 is written so whatever setlocale() the program has
 * called.  A thread of the engine has that locale anyway (reactor.c), one of the
 * program's has not. */
int pl_text_print(char *text, size_t size, const char *format, va_list args)
    PL_PRINTF(3, 0);

#endif
