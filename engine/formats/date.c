/* date.c - dates and times of day as text
 *
 * Three numbers are a date in an order that the caller names.  Other forms have one
 * meaning in each order: their month is a name, or they have no day. */
#include "formats/date.h"

#include <string.h>
#include <strings.h>

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

typedef struct date {
    int year, month, day;
} date_t;

static bool is_valid(const date_t *date)
{
    static const char days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const int year = date->year, month = date->month;
    const bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return year >= 1 && month >= 1 && month <= 12 && date->day >= 1
           && date->day <= days[month - 1] && (month != 2 || date->day < 29 || is_leap);
}

/* ---- Forms ---- */

/* Takes three numbers; -> the text behind them, or NULL. */
static const char *take_numbers(const char *p, pl_date_order_t order, date_t *date)
{
    int first, second, third;
    const bool year_first = order == PL_DATE_YMD;
    p = take_number(p, year_first ? 4 : 1, year_first ? 4 : 2, &first);
    const char separator = p ? *p : '\0';
    if (!separator || !strchr(order == PL_DATE_MDY ? "/" : "-/.", separator)
        || !(p = take_number(p + 1, 1, 2, &second)) || *p != separator
        || !(p = take_number(p + 1, year_first ? 1 : 4, year_first ? 2 : 4, &third)))
        return NULL;
    date->year = year_first ? first : third;
    date->month = order == PL_DATE_MDY ? first : second;
    date->day = year_first ? third : order == PL_DATE_MDY ? second : first;
    return p;
}

/* Takes the English name of a month, or its first three letters; -> the text behind it,
 * or NULL. */
static const char *take_month(const char *p, int *month)
{
    static const char *const names[] = {"january",   "february", "march",    "april",
                                        "may",       "june",     "july",     "august",
                                        "september", "october",  "november", "december"};
    size_t length = 0;
    while ((p[length] | 32) >= 'a' && (p[length] | 32) <= 'z')
        length++;
    for (int k = 0; k < 12 && length >= 3; k++)
        if ((*p | 32) == *names[k] && !strncasecmp(p, names[k], length)
            && (length == 3 || length == strlen(names[k]))) {
            *month = k + 1;
            return p + length;
        }
    return NULL;
}

/* Takes what a form says: Y a year of four digits, M the name of a month, m a month of
 * two digits, d a day, Qq a quarter, _ a blank, - or /; other characters stand for
 * themselves.  -> the text behind it, or NULL. */
static const char *take_form(const char *p, const char *form, date_t *date)
{
    *date = (date_t){.day = 1};
    for (int number; *form && p; form++)
        switch (*form) {
        case 'Y': p = take_number(p, 4, 4, &date->year); break;
        case 'M': p = take_month(p, &date->month); break;
        case 'm': p = take_number(p, 2, 2, &date->month); break;
        case 'd': p = take_number(p, 1, 2, &date->day); break;
        case 'q':
            p = take_number(p, 1, 1, &number);
            date->month = p && number <= 4 ? 3 * number - 2 : 0;
            break;
        case 'Q': p = (*p | 32) == 'q' ? p + 1 : NULL; break;
        case '_': p = *p && strchr(" -/", *p) ? p + 1 : NULL; break;
        default: p = *p == *form ? p + 1 : NULL;
        }
    return p;
}

bool pl_date(const char *text, pl_date_order_t order, double *days)
{
    static const char *const forms[] = {"Y-m",    "Y/m",  "YQq",   "Y_Qq",
                                        "Qq_Y",   "M_Y",  "d_M_Y", "M_d_Y",
                                        "M d, Y", "dMY",  "MY",    "Y_M_d",
                                        "Y_M",    "M. Y", "M, Y",  "m/Y"};
    date_t date;
    bool has_day = true;
    const char *p = take_numbers(text, order, &date);
    for (size_t k = 0; !p && k < sizeof forms / sizeof *forms; k++) {
        p = take_form(text, forms[k], &date);
        has_day = strchr(forms[k], 'd');
        p = p && *p && !has_day ? NULL : p;                 /* a longer form may fit */
    }
    if (!p || !is_valid(&date))
        return false;
    double found = (double)days_of(date.year, date.month, date.day);
    if (*p && !take_time(p, &found))
        return false;
    *days = found;
    return true;
}

bool pl_date_part(const char *text, int *part)
{
    int found = 0;
    const char *p = take_month(text, &found);
    if (!p && (*text | 32) == 'q')
        p = take_number(text + 1, 1, 1, &found);
    if (!p || *p || found < 1 || ((*text | 32) == 'q' && found > 4))
        return false;
    *part = found;
    return true;
}
