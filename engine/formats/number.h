/* number.h - decimal numbers of text, the same under every locale */
#ifndef PL_FORMATS_NUMBER_H
#define PL_FORMATS_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* The finite number that all of text[0..length) is, correctly rounded; false when it is
 * none: empty, other characters, too large, nan, inf, hexadecimal, or more than 400
 * characters.  *number is then untouched. */
bool pl_number(const char *text, size_t length, double *number);

#endif
