/* date.c - tests of engine/formats/date.c */
#include "formats/date.h"

#include <stddef.h>

#include "tap.h"

/* The days of a date that each order reads alike; -1: it is none, or not so. */
static double days_of(const char *text)
{
    double found[3] = {-1, -1, -1};
    for (int order = 0; order < 3; order++)
        pl_date(text, (pl_date_order_t)order, &found[order]);
    return found[0] == found[1] && found[1] == found[2] ? found[0] : -1;
}

static void three_numbers_have_an_order(void)
{
    double days = 0;
    ok(pl_date("1970-01-02", PL_DATE_YMD, &days) && days == 1, "the second day");
    ok(pl_date("31.12.1969", PL_DATE_DMY, &days) && days == -1, "the day first");
    ok(pl_date("12/31/1999", PL_DATE_MDY, &days) && days == 10956, "the month first");
    ok(pl_date("2000-02-29T12:00:00Z", PL_DATE_YMD, &days) && days == 11016.5, "a time");
    ok(pl_date("2000-03-01 01:00+02:00", PL_DATE_YMD, &days) && days < 11017, "a zone");
    ok(!pl_date("2000-03-01", PL_DATE_DMY, &days), "the day is not the year");
}

static void a_month_may_be_a_name(void)
{
    static const char *const texts[] = {"Jan-2-1995",      "jan 2 1995",
                                        "January 2, 1995", "JANUARY/2/1995",
                                        "02 Jan 1995",     "2 January 1995",
                                        "2-jan-1995",      "02JAN1995",
                                        "1995-Jan-02",     "1995 january 2"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        ok(days_of(texts[k]) == 9132, "\"%s\" is 2 January", texts[k]);
    ok(days_of("2 January 1995 12:00") == 9132.5, "with a time");
    ok(days_of("29 Feb 2000") == 11016 && days_of("May 1 2000") == 11078, "leap years");
    ok(days_of("31 December 1969") < 0 && days_of("Sep 2000") == days_of("2000-09"),
       "years before 1970, and a short name");
}

static void a_date_without_a_day_is_the_first(void)
{
    static const char *const months[] = {"1995-04",     "1995/04", "Apr 1995",
                                         "april-1995",  "Apr1995", "1995 Apr",
                                         "1995Q2",      "1995-q2", "1995 Q2",
                                         "Q2 1995",     "Q2-1995", "Apr. 1995",
                                         "April, 1995", "04/1995"};
    for (size_t k = 0; k < sizeof months / sizeof *months; k++)
        ok(days_of(months[k]) == 9221, "\"%s\" is 1 April", months[k]);
    ok(days_of("1995Q1") == 9131 && days_of("1995Q4") == 9404, "first and last quarter");
}

static void what_is_no_date_is_refused(void)
{
    static const char *const none[] = {"",
                                       "2001-02-29",
                                       "2001-13-01",
                                       "2001-1",
                                       "1.2",
                                       "2001-01/01",
                                       "20010101",
                                       "2001-01-01 25:00",
                                       "2001-01-01 12:00x",
                                       "2001-13",
                                       "2001-00",
                                       "2001Q0",
                                       "2001Q5",
                                       "2001Q",
                                       "2001Q12",
                                       "Q1",
                                       "Q12001",
                                       "January",
                                       "Janu 2001",
                                       "Jan 99",
                                       "30 Feb 2001",
                                       "0 Jan 2001",
                                       "Jan 2001 12:00",
                                       "2001-01 12:00",
                                       "1 Jan2001",
                                       "mayor 2001",
                                       "Jan  2001",
                                       "Jan 2001x",
                                       "0000-01"};
    double days = 5;
    for (size_t k = 0; k < sizeof none / sizeof *none; k++)
        for (int order = 0; order < 3; order++)
            ok(!pl_date(none[k], (pl_date_order_t)order, &days) && days == 5,
               "no date: \"%s\"", none[k]);
}

static void a_month_or_a_quarter_has_a_number(void)
{
    int part = 0;
    ok(pl_date_part("Jan", &part) && part == 1, "a month");
    ok(pl_date_part("december", &part) && part == 12, "by its whole name");
    ok(pl_date_part("q4", &part) && part == 4, "a quarter");
    static const char *const none[] = {"", "1", "Q0", "Q5", "Q", "Q1 ", "Jan 1", "Decem"};
    for (size_t k = 0; k < sizeof none / sizeof *none; k++)
        ok(!pl_date_part(none[k], &part) && part == 4, "neither: \"%s\"", none[k]);
}

int main(void)
{
    run(three_numbers_have_an_order);
    run(a_month_may_be_a_name);
    run(a_date_without_a_day_is_the_first);
    run(what_is_no_date_is_refused);
    run(a_month_or_a_quarter_has_a_number);
    return tap_done();
}
