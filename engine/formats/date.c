/* date.c - dates and times of day as text */
#include "formats/date.h"

#include <string.h>

/* Takes `least` to `most` digits; -> the text behind them, or NULL. */
static const char *take_number(const char *p, int least, int most, int *number)
{
    int digits = 0;
    *number = 0;
    for (; digits < most && *p >= '0' && *p <= '9'; digits++)
        *number = *number * 10 + (*p++ - '0');
    return digits >= least ? p : NULL;
}

/* The days of the Gregorian calendar from 1970-01-01, in cycles of 400 years of 146097
 * days that begin on 1 March (H. Hinnant, "chrono-compatible low-level date algorithms",
 * 2013). */
static long days_of(int year, int month, int day)
{
    year -= month <= 2;
    const int cycle = year / 400, of_cycle = year - cycle * 400;
    const int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return cycle * 146097L + of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + of_year
           - 719468;
}

static bool take_time(const char *p, double *days)
{
    int hour, minute, second = 0, zone_hour = 0, zone_minute = 0, sign = 0;
    double fraction = 0, unit = 0.1;
    if (*p != ' ' && *p != 'T')
        return false;
    if (!(p = take_number(p + 1, 1, 2, &hour)) || *p != ':'
        || !(p = take_number(p + 1, 2, 2, &minute)))
        return false;
    if (*p == ':' && !(p = take_number(p + 1, 2, 2, &second)))
        return false;
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++, unit /= 10)
            fraction += unit * (*p - '0');
    if (*p == 'Z')
        p++;
    else if (*p == '+' || *p == '-') {
        sign = *p == '-' ? 1 : -1;
        if (!(p = take_number(p + 1, 2, 2, &zone_hour))
            || !(p = take_number(p + (*p == ':'), 2, 2, &zone_minute)))
            return false;
    }
    if (*p || hour > 23 || minute > 59 || second > 60 || zone_minute > 59)
        return false;
    *days += (hour * 3600 + minute * 60 + second + fraction
              + sign * (zone_hour * 3600 + zone_minute * 60))
             / 86400.0;
    return true;
}

bool pl_date(const char *text, pl_date_order_t order, double *days)
{
    static const char month_days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int first, second, third;
    const bool year_first = order == PL_DATE_YMD;
    const char *p = take_number(text, year_first ? 4 : 1, year_first ? 4 : 2, &first);
    const char separator = p ? *p : '\0';
    if (!separator || !strchr(order == PL_DATE_MDY ? "/" : "-/.", separator)
        || !(p = take_number(p + 1, 1, 2, &second)) || *p != separator
        || !(p = take_number(p + 1, year_first ? 1 : 4, year_first ? 2 : 4, &third)))
        return false;
    const int year = year_first ? first : third;
    const int month = order == PL_DATE_MDY ? first : second;
    const int day = year_first ? third : order == PL_DATE_MDY ? second : first;
    const bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > month_days[month - 1]
        || (month == 2 && day == 29 && !is_leap))
        return false;
    double found = (double)days_of(year, month, day);
    if (*p && !take_time(p, &found))
        return false;
    *days = found;
    return true;
}
