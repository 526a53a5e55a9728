/* pattern.c - names by pattern
 *
 * The only matcher of Paceline: for parameters of groups and objectives, frozen
 * parameters and tensors of files.  Dots and slashes are characters like others. */
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

/* Whether c is in the set "[a-cx]"; *behind is what follows it.  A '[' without an end
 * stands for itself. */
static bool set_has(const char *set, const char *end, char c, const char **behind)
{
    const char *last = set + 1;
    while (last < end && *last != ']')
        last++;
    *behind = last < end ? last + 1 : set + 1;
    if (last >= end)
        return c == '[';
    for (const char *p = set + 1; p < last; p++) {
        if (p + 2 < last && p[1] == '-') {
            if (p[0] <= c && c <= p[2])
                return true;
            p += 2;
        } else if (*p == c) {
            return true;
        }
    }
    return false;
}

/* After a mismatch the last '*' takes one character more; earlier ones need no retry. */
bool pl_pattern_matches(const char *pattern, size_t length, const char *name)
{
    const char *end = pattern + length, *star = NULL, *taken = name, *behind;
    while (*name) {
        behind = pattern + 1;
        if (pattern < end && *pattern == '*') {
            star = pattern++;
            taken = name;
        } else if (pattern < end
                   && (*pattern == '[' ? set_has(pattern, end, *name, &behind)
                                       : *pattern == '?' || *pattern == *name)) {
            pattern = behind;
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

bool pl_patterns_match(const char *patterns, const char *name)
{
    size_t length;
    for (const char *p; (p = pl_pattern_next(&patterns, &length));)
        if (pl_pattern_matches(p, length, name))
            return true;
    return false;
}
