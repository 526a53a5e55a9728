/* utf8.h - whether text is UTF-8, and text that is safe to show
 *
 * What a run file holds may be anything; an error that quotes it must still be one line
 * of valid UTF-8. */
#ifndef PL_BASE_UTF8_H
#define PL_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool pl_utf8_ok(const char *text, size_t length);

/* Copies text into shown[size], at least 8 bytes, cut with "…" when it is too long;
 * controls and bytes that are not UTF-8 become '?'. */
char *pl_utf8_show(const char *text, char *shown, size_t size);

#endif
