/* date.h - dates and times of day as text */
#ifndef PL_FORMATS_DATE_H
#define PL_FORMATS_DATE_H

#include <stdbool.h>

/* The order of the numbers of a date: 2024-12-31 or 2024/12/31, 31.12.2024 or 31/12/2024,
 * 12/31/2024. */
typedef enum pl_date_order { PL_DATE_YMD, PL_DATE_DMY, PL_DATE_MDY } pl_date_order_t;

/* The days from 1970-01-01 00:00 to a date of the Gregorian calendar, years 1 to 9999,
 * with an optional time "T12:30:05.5+02:00" as a fraction; a time zone is applied.
 * Whatever the order, the month may be a name, "1 January 2024" or "Jan-1-2024", and the
 * day may lack, "2024-01", "Jan 2024", "2024Q1" or "Q1 2024": it is the first.
 * false: the text is no date; *days is then unchanged. */
bool pl_date(const char *text, pl_date_order_t order, double *days);

/* The number of a month by its English name, "January" or "Jan", or of a quarter, "Q1".
 * false: the text is neither; *part is then unchanged. */
bool pl_date_part(const char *text, int *part);

#endif
