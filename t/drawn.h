/* drawn.h - arguments for calls as chance has them, from a seed: good, bad, none
 *
 * The same seed gives the same arguments in the same order. */
#ifndef T_DRAWN_H
#define T_DRAWN_H

#include <stddef.h>

#include "paceline.h"

/* From here on what is drawn follows from this. */
void drawn_from(uint64_t seed);

/* 0 to count - 1. */
int drawn_below(int count);
static inline bool drawn_one_in(int count)
{
    return drawn_below(count) == 0;
}

/* A text of a list, or one that fits nowhere, or NULL. */
const char *drawn_of(const char *const *list, int count);
#define DRAWN(list) drawn_of(list, (int)(sizeof(list) / sizeof *(list)))
/* Of none in particular. */
const char *drawn_text(void);
double drawn_double(void);
int64_t drawn_int64(void);
int drawn_int(void);

/* Where a call is to write its error, or NULL. */
pl_error_t *drawn_err(void);
/* Whether the call kept to what the header says of errors: `failed` it says why in one
 * line, else it says nothing.  Counts, tells of the first, and returns whether it went
 * well. */
bool drawn_held(const char *call, bool failed, int code, const pl_error_t *err);
/* How often each was done and refused, as remarks. */
void drawn_tell(void);
/* How many calls did not, and how many there were. */
int drawn_broken(void);
int drawn_calls(void);

#define DRAWN_CODE(call, ...) \
    ({ \
        pl_error_t *err = drawn_err(); \
        const int code = call(__VA_ARGS__, err); \
        drawn_held(#call, code != PL_OK, code, err); \
    })
#define DRAWN_MADE(call, ...) \
    ({ \
        pl_error_t *err = drawn_err(); \
        __auto_type made = call(__VA_ARGS__, err); \
        drawn_held(#call, !made, err ? err->code : PL_EINVAL, err); \
        made; \
    })

#endif
