/* node_list.c - a list of nodes as Slurm writes it, "n[01-10,12],gpu3" */
#include "actors/launchers/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the part of a list ends that begins there: at a comma outside of brackets. */
static const char *part_end(const char *part)
{
    int depth = 0;
    for (; *part && (depth || *part != ','); part++)
        depth += *part == '[' ? 1 : *part == ']' ? -1 : 0;
    return part;
}

static int list_fail(const char *list, pl_error_t *err)
{
    return pl_fail(err, PL_EINVAL,
                   "\"%.100s\" is not a list of nodes, such as n[01-10,12]", list);
}

/* "01-10" or "12" at *at: moves behind it. */
static bool range_read(const char **at, long *first, long *last, int *digits)
{
    char *end;
    *digits = (int)strspn(*at, "0123456789");
    if (!*digits || *digits > 9)
        return false;
    *first = *last = strtol(*at, &end, 10);
    size_t more = *end == '-' ? strspn(end + 1, "0123456789") : 0;
    if (*end == '-' && (!more || more > 9))
        return false;
    if (more)
        *last = strtol(end + 1, &end, 10);
    *at = end;
    return *last >= *first;
}

/* The k-th of "n[01-10,12]suffix"; *k is less by those it has when that is not there. */
static int part_get(const char *part, const char *end, long *k, char *host,
                    size_t capacity)
{
    const char *open = memchr(part, '[', (size_t)(end - part));
    if (!open) {
        if ((*k)-- == 0)
            return snprintf(host, capacity, "%.*s", (int)(end - part), part)
                   < (int)capacity;
        return 0;
    }
    const char *close = memchr(open, ']', (size_t)(end - open)), *at = open + 1;
    while (close && at < close) {
        long first, last;
        int digits;
        if (!range_read(&at, &first, &last, &digits) || at > close)
            return -1;
        if (*k <= last - first)
            return snprintf(host, capacity, "%.*s%0*ld%.*s", (int)(open - part), part,
                            digits, first + *k, (int)(end - close - 1), close + 1)
                   < (int)capacity;
        *k -= last - first + 1;
        if (*at == ',')
            at++;
        else if (at != close)
            return -1;
    }
    return close ? 0 : -1;
}

int pl_node_list_get(const char *list, int k, char *host, size_t capacity,
                     pl_error_t *err)
{
    long left = k;
    for (const char *part = list, *end; *part; part = *end ? end + 1 : end) {
        end = part_end(part);
        int found = end > part ? part_get(part, end, &left, host, capacity) : -1;
        if (found > 0)
            return PL_OK;
        if (found < 0 || left < 0)
            return list_fail(list, err);
    }
    return pl_fail(err, PL_EINVAL, "the list of nodes \"%.100s\" has fewer than %d nodes",
                   list, k + 1);
}
