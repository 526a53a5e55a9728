/* pattern.h - names by pattern: '*' stands for any text, dots included, '?' for one
 * character, "[ab]" or "[a-c]" for one of those; paceline.h says so to users */
#ifndef PL_BASE_PATTERN_H
#define PL_BASE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/* The next of several patterns with white space between, `length` bytes from what is
 * returned, or NULL; *rest is where to go on, and begins with all of them. */
const char *pl_pattern_next(const char **rest, size_t *length);

/* Whether the whole name is as a pattern of `length` bytes says. */
bool pl_pattern_matches(const char *pattern, size_t length, const char *name);

/* Whether it is as one of several patterns says. */
bool pl_patterns_match(const char *patterns, const char *name);

#endif
