/* pattern.c - names by pattern: '*' stands for any text, '?' for one character */
#include "base/pattern.h"

#include <string.h>

static const char SPACE[] = " \t\n";

const char *pl_pattern_next(const char **rest, size_t *length)
{
    const char *pattern = *rest + strspn(*rest, SPACE);
    *length = strcspn(pattern, SPACE);
    *rest = pattern + *length;
    return *length ? pattern : NULL;
}

/* A '*' that took too little takes one character more: only the newest need be tried
 * again. */
bool pl_pattern_fits(const char *pattern, size_t length, const char *name)
{
    const char *end = pattern + length, *star = NULL, *taken = name;
    while (*name) {
        if (pattern < end && *pattern == '*') {
            star = pattern++;
            taken = name;
        } else if (pattern < end && (*pattern == '?' || *pattern == *name)) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++taken;
        } else {
            return false;
        }
    }
    while (pattern < end && *pattern == '*')
        pattern++;
    return pattern == end;
}

bool pl_patterns_fit(const char *patterns, const char *name)
{
    size_t length;
    for (const char *p; (p = pl_pattern_next(&patterns, &length));)
        if (pl_pattern_fits(p, length, name))
            return true;
    return false;
}
