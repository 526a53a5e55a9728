/* csv.c - tests of engine/formats/csv.c */
#include "formats/csv.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "tap.h"

#define NO_LIMIT SIZE_MAX

static pl_error_t err;
static pl_csv_t csv;

static int parse(const char *text, pl_csv_header_t header)
{
    pl_csv_release(&csv);
    return pl_csv_read(text, strlen(text), "file", header, &csv, &err);
}

static bool holds(int64_t rows, int columns, const double *values)
{
    return csv.rows == rows && csv.columns == columns
           && !memcmp(csv.value, values, (size_t)(rows * columns) * sizeof *values);
}

#define VALUES(...) \
    (const double[]) \
    { \
        __VA_ARGS__ \
    }

static void line_ends_and_quotes_are_as_the_standard_says(void)
{
    ok(!parse("1,2\n3,4\n", PL_CSV_AUTO) && holds(2, 2, VALUES(1, 2, 3, 4)), "LF");
    ok(!parse("1,2\r\n3,4\r\n", PL_CSV_AUTO) && holds(2, 2, VALUES(1, 2, 3, 4)), "CRLF");
    ok(!parse("1,2\n3,4", PL_CSV_AUTO) && holds(2, 2, VALUES(1, 2, 3, 4)),
       "no end after the last");
    ok(!parse("1\r\n\r\n\n", PL_CSV_AUTO) && holds(1, 1, VALUES(1)),
       "empty lines at the end");
    ok(!parse("\"1\",\" 2\"\r\n3,\"4\"", PL_CSV_AUTO) && holds(2, 2, VALUES(1, 2, 3, 4)),
       "quotes");
    ok(!parse("\xEF\xBB\xBF 1 ,\t2\n", PL_CSV_AUTO) && holds(1, 2, VALUES(1, 2)),
       "a byte order mark, spaces");
    is_int(csv.line[0], 1, "lines are counted from 1");
}

static void a_header_gives_names(void)
{
    ok(!parse("a,\"b \"\"c\"\"\",\"d\ne\"\r\n1,2,3\n", PL_CSV_AUTO)
           && holds(1, 3, VALUES(1, 2, 3)),
       "found by itself");
    is_text(csv.name[1], "b \"c\"", "with quotes in it");
    is_text(csv.name[2], "d\ne", "with a line's end in it");
    is_int(csv.line[0], 3, "and lines are still counted");
    ok(!parse("1,2\n3,4\n", PL_CSV_YES) && holds(1, 2, VALUES(3, 4)), "asked for");
    is_text(csv.name[0], "1", "even if it is a number");
    ok(!parse("1,2\n", PL_CSV_AUTO) && !csv.name, "numbers are none");
    is_int(parse("a,b\n1,2\n", PL_CSV_NO), PL_EFORMAT, "not allowed");
    ok(!parse("a, b\t,\" c \"\n1,2,3\n", PL_CSV_AUTO), "with spaces: %s", err.text);
    is_text(csv.name[1], "b", "which are no part of a name");
    is_text(csv.name[2], " c ", "but in quotes");
}

static void a_bad_first_row_is_no_header(void)
{
    is_int(parse("1,nan,0\n1,2,0\n", PL_CSV_AUTO), PL_EFORMAT, "a number that is none");
    like(err.text, "^file:1:3: field 2: \"nan\" is not a finite number; if .*header",
         "is an error of row 1, not a name");
    is_int(parse("0x10,2,0\n1,2,0\n", PL_CSV_AUTO), PL_EFORMAT,
           "one in another notation");
    like(err.text, "^file:1:1: field 1: \"0x10\"", "too");
    is_int(parse(",2\n1,2\n", PL_CSV_AUTO), PL_EFORMAT, "a missing one");
    is_int(parse(",,\n1,2,3\n", PL_CSV_AUTO), PL_EFORMAT, "and three missing ones");
    ok(!parse(",a\n1,2\n", PL_CSV_AUTO) && csv.name, "a column without a name may be");
}

static void a_carriage_return_alone_ends_no_line(void)
{
    is_int(parse("a,b\r1,2\r3,4\r", PL_CSV_AUTO), PL_EFORMAT, "a file of an old Mac");
    like(err.text, "^file:1:3: a carriage return without a line feed",
         "is refused as such");
}

static void utf_16_is_refused_as_such(void)
{
    is_int(parse("\xFF\xFE"
                 "1\n",
                 PL_CSV_AUTO),
           PL_EFORMAT, "little endian");
    like(err.text, "^file: the text is UTF-16: save it as UTF-8$", "%s", err.text);
    is_int(parse("\xFE\xFF\n1", PL_CSV_AUTO), PL_EFORMAT, "big endian");
    like(err.text, "^file: the text is UTF-16", "%s", err.text);
}

static void errors_say_line_and_column(void)
{
    is_int(parse("n,m\n1,2\n3,\n", PL_CSV_AUTO), PL_EFORMAT, "a missing field");
    like(err.text, "^file:3:3: field 2 \\(m\\) of 2 is missing", "is named");
    is_int(parse("1,2\n3\n", PL_CSV_AUTO), PL_EFORMAT, "a line that is too short");
    like(err.text, "^file:2:2: field 2 of 2 is missing", "is named");
    is_int(parse("1,2\n3,4,5\n", PL_CSV_AUTO), PL_EFORMAT, "a line that is too long");
    like(err.text, "^file:2:4: more fields than the 2", "is named");
    is_int(parse("1,2\n\n3,4\n", PL_CSV_AUTO), PL_EFORMAT, "an empty line in between");
    like(err.text, "^file:2:1: field 1", "is named");
    is_int(parse("1,2\n3,four\n", PL_CSV_AUTO), PL_EFORMAT, "a word");
    like(err.text, "^file:2:3: field 2: \"four\" is not a finite number", "is quoted");
    is_int(parse("1,2\n3,\"4\n", PL_CSV_AUTO), PL_EFORMAT, "a quote without end");
    like(err.text, "^file:2:3: the quote", "is found where it begins");
    is_int(parse("1,2\n3,\"4\"5\n", PL_CSV_AUTO), PL_EFORMAT, "something after a quote");
    is_int(parse("\n\n", PL_CSV_AUTO), PL_EFORMAT, "nothing at all");
    is_int(parse("1\nnan\n", PL_CSV_AUTO), PL_EFORMAT, "nan");
    is_int(parse("1\n1e999\n", PL_CSV_AUTO), PL_EFORMAT, "a number past all others");
}

static bool is_number(const char *text, double want)
{
    double got = -77;
    bool found = pl_number(text, strlen(text), &got);
    return found && got == want && signbit(got) == signbit(want);
}

static bool is_none(const char *text)
{
    double got = -77;
    return !pl_number(text, strlen(text), &got) && got == -77;
}

static void numbers_are_rounded_correctly(void)
{
    static const char *const texts[] = {
        "0.1",
        "123456789012345",
        "1234567890123456789",
        "9007199254740993",
        "1e22",
        "1e23",
        "3.14159265358979323846",
        "2.2250738585072011e-308",
        "4.9e-324",
        "1.7976931348623157e308",
        "0.000000000000000000000000000012345",
        "100000000000000000000000",
        "7.2057594037927933e16",
        "1e-22",
        "123e-20",
        "5e-400",
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!is_number(texts[i], strtod(texts[i], NULL))) {
            wrong++;
            tap_diag("%s", texts[i]);
        }
    for (int i = 0; i < 100000; i++) {
        char text[64];
        snprintf(text, sizeof text, "%.*g", 1 + i % 17,
                 (i * 2654435761u % 1000003) * pow(10, i % 60 - 30));
        wrong += !is_number(text, strtod(text, NULL));
    }
    is_int(wrong, 0, "as strtod() does");
    ok(is_number("-0", -0.) && is_number("+1", 1) && is_number(".5", .5)
           && is_number("5.", 5) && is_number("1E+2", 100),
       "in every form");
    ok(is_none("") && is_none(".") && is_none("-") && is_none("1e") && is_none("1e+")
           && is_none("0x10") && is_none("inf") && is_none("nan") && is_none("1 2")
           && is_none("1,5") && is_none("--1") && is_none("1e400") && is_none("1_0"),
       "and nothing else");
    char many[900];
    memset(many, '1', sizeof many);
    memcpy(many + 300, "e-280", 5);
    double got;
    ok(pl_number(many, 305, &got) && got > 1.1e19 && got < 1.2e19, "many digits");
    ok(!pl_number(many + 310, 500, &got), "too many digits");
}

static void the_locale_does_not_matter(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                        "de_DE"};
    const char *set = NULL;
    for (size_t i = 0; i < 4 && !set; i++)
        set = setlocale(LC_NUMERIC, names[i]);
    if (!set)
        tap_skip("there is no locale with a decimal comma here");
    else
        ok(is_number("1.5", 1.5)
               && is_number("3.14159265358979323846", 3.14159265358979323846),
           "under %s", set);
    setlocale(LC_NUMERIC, "C");
}

static int read_csv(const uint8_t *data, size_t size, pl_error_t *error)
{
    pl_csv_t table;
    int code = pl_csv_read(data, size, "file", PL_CSV_AUTO, &table, error);
    if (!code)
        pl_csv_release(&table);
    return code;
}

static void csv_survives_damage(void)
{
    static const char text[] = "a,\"b\"\"\",c\r\n1,\"2.5\",3\r\n-4e1, 5 ,6\r\n";
    survives_damage(read_csv, (const uint8_t *)text, sizeof text - 1, true);
}

static int read_with_header(pl_error_t *error)
{
    static const char text[] = "a,b\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n"
                               "1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n";
    return read_csv((const uint8_t *)text, sizeof text - 1, error);
}

static void memory_may_run_out(void)
{
    survives_lack_of_memory(read_with_header);
}

static void real_tables_are_read(void)
{
    const char *iris = tap_data("tabular/iris.csv");
    if (!iris) {
        tap_skip("PACELINE_TEST_DATA is not set");
        return;
    }
    pl_csv_release(&csv);
    is_int(pl_csv_load(iris, NO_LIMIT, PL_CSV_YES, &csv, &err), PL_OK, "iris");
    ok(csv.rows == 150 && csv.columns == 5 && csv.name && csv.value[0] == 5.1,
       "150 rows after a header");
    pl_csv_release(&csv);
    is_int(pl_csv_load(tap_data("tabular/digits.csv.gz"), NO_LIMIT, PL_CSV_AUTO, &csv,
                       &err),
           PL_OK, "digits");
    ok(csv.rows == 1797 && csv.columns == 65 && !csv.name && csv.value[2] == 5,
       "1797 rows without one");
}

int main(void)
{
    run(line_ends_and_quotes_are_as_the_standard_says);
    run(a_header_gives_names);
    run(a_bad_first_row_is_no_header);
    run(a_carriage_return_alone_ends_no_line);
    run(utf_16_is_refused_as_such);
    run(errors_say_line_and_column);
    run(numbers_are_rounded_correctly);
    run(the_locale_does_not_matter);
    run(csv_survives_damage);
    run(memory_may_run_out);
    run(real_tables_are_read);
    pl_csv_release(&csv);
    return tap_done();
}
