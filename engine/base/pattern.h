/* pattern.h - names by pattern
 *
 * '*' matches any text, dots included; '?' one character; "[ab]" and "[a-c]" one of those
 * characters.  paceline.h documents them for users. */
#ifndef PL_BASE_PATTERN_H
#define PL_BASE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/* The next of several patterns with white space between, of `length` bytes, or NULL.
 * Moves *rest, which starts at the first one, behind it. */
const char *pl_pattern_next(const char **rest, size_t *length);

/* Whether a pattern of `length` bytes matches the whole name. */
bool pl_pattern_matches(const char *pattern, size_t length, const char *name);

/* Whether one of several patterns matches the name. */
bool pl_patterns_match(const char *patterns, const char *name);

#endif
