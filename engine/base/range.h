/* range.h - the numbers an option takes: "1..", "0..1", "(0..1]", "[0..1)" */
#ifndef PL_BASE_RANGE_H
#define PL_BASE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "paceline.h"

/* One end.  Whole numbers are kept as such: a seed of 63 bits does not fit a double. */
typedef struct {
    bool there, open, whole;
    int64_t integer;                                        /* when whole */
    double number;
    const char *text;                   /* [length] as it was written; not a string of its
                                           own */
    int length;
} pl_range_end_t;

typedef struct {
    pl_range_end_t low, high;
} pl_range_t;

/* NULL is everything.  PL_EINVAL: not a range. */
int pl_range_parse(const char *text, pl_range_t *range, pl_error_t *err);

/* " from 1 to 16", " above 0", "": behind what the numbers are. */
#define PL_RANGE_WORDS 64
char *pl_range_words(const pl_range_t *range, char words[PL_RANGE_WORDS]);

bool pl_range_holds_integer(const pl_range_t *range, int64_t value);
bool pl_range_holds_number(const pl_range_t *range, double value);

#endif
