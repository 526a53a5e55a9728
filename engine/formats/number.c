/* number.c - the numbers in texts
 *
 * They are the same under every locale. Up to 15 digits and a power of ten up to 22 are
 * both exact in a double, so one multiplication or division rounds correctly (Clinger,
 * "How to read floating point numbers accurately", 1990, the fast path). Nearly all
 * numbers of tables are of this kind; strtod() with a locale of its own reads the
 * rest. */
#include "formats/table.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST 400                                         /* characters of a number */

static const double ten_to[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

typedef struct decimal {
    bool negative, exact;                          /* exact: `digits` holds all of them */
    uint64_t digits;
    int count;                                     /* of significant digits in `digits` */
    int power;                                     /* of ten */
} decimal_t;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *take_digits(const char *p, const char *end, decimal_t *d,
                               int power_step)
{
    for (; p < end && is_digit(*p); p++) {
        if (d->count >= 15) {
            d->exact = false;
            continue;
        }
        d->digits = d->digits * 10 + (uint64_t)(*p - '0');
        d->count += d->digits > 0;
        d->power += power_step;
    }
    return p;
}

/* Splits a number by its grammar: [+-] digits [point digits] [e [+-] digits], with a
 * digit before or after the point. */
static bool take_decimal(const char *p, const char *end, char point, decimal_t *d)
{
    d->negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    const char *start = p;
    p = take_digits(p, end, d, 0);
    size_t seen = (size_t)(p - start);
    if (p < end && *p == point) {
        start = ++p;
        p = take_digits(p, end, d, -1);
        seen += (size_t)(p - start);
    }
    if (!seen || p == end || (*p != 'e' && *p != 'E'))
        return seen > 0 && p == end;
    bool negative = ++p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (p == end || !is_digit(*p))
        return false;
    int power = 0;
    for (; p < end && is_digit(*p); p++)
        power = power < 100000 ? power * 10 + (*p - '0') : power;
    d->power += negative ? -power : power;
    return p == end;
}

bool pl_number(const char *text, size_t length, char point, double *number)
{
    char copy[LONGEST + 1];
    decimal_t d = {.exact = true};
    if (length > LONGEST || !take_decimal(text, text + length, point, &d))
        return false;
    if (d.exact && d.power >= -22 && d.power <= 22) {
        double value = (double)d.digits;
        value = d.power < 0 ? value / ten_to[-d.power] : value * ten_to[d.power];
        *number = d.negative ? -value : value;
        return true;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    for (char *at = copy; point != '.' && *at; at++)
        *at = *at == point ? '.' : *at;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain)
        return false;
    double value = strtod_l(copy, NULL, plain);
    freelocale(plain);
    if (!isfinite(value))
        return false;
    *number = value;
    return true;
}

/* Removes the marks between groups of three digits of a whole part: 1,234,567.8.  The
 * length without them; 0: they stand elsewhere, or there are none. */
static size_t groups_remove(const char *text, size_t length, char mark, char *copy)
{
    const size_t sign = length && (*text == '-' || *text == '+');
    const char *first = memchr(text, mark, length);
    const size_t lead = first ? (size_t)(first - text) - sign : 0;
    size_t at = sign + lead;
    if (lead < 1 || lead > 3 || text[sign] == '0' || length > LONGEST)
        return 0;
    memcpy(copy, text, at);
    size_t size = at;
    for (; at < length && text[at] == mark; at += 4, size += 3) {
        if (length - at < 4 || !is_digit(text[at + 1]) || !is_digit(text[at + 2])
            || !is_digit(text[at + 3]))
            return 0;
        memcpy(copy + size, text + at + 1, 3);
    }
    if (at < length && is_digit(text[at]))
        return 0;
    memcpy(copy + size, text + at, length - at);
    return size + length - at;
}

bool pl_number_in_groups(const char *text, size_t length, char point, double *number)
{
    char copy[LONGEST];
    if (pl_number(text, length, point, number))
        return true;
    const size_t size = point == '.'   ? groups_remove(text, length, ',', copy)
                        : point == ',' ? groups_remove(text, length, '.', copy)
                                       : 0;
    return size && pl_number(copy, size, point, number);
}
