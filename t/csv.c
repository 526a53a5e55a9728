/* csv.c - tests of engine/formats/csv.c */
#include "formats/table.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "tap.h"

#define NO_LIMIT SIZE_MAX

static pl_error_t err;
static pl_table_t csv;

static int parse_as(const char *text, pl_csv_format_t format)
{
    pl_table_release(&csv);
    return pl_csv_read(text, strlen(text), "file", &format, &csv, &err);
}

static int parse(const char *text, pl_csv_header_t header)
{
    pl_csv_format_t format = PL_CSV_ANY;
    format.header = header;
    return parse_as(text, format);
}

static bool holds(int64_t rows, int columns, const double *values)
{
    bool same = csv.rows == rows && csv.columns == columns;
    for (int64_t row = 0; row < rows && same; row++)
        for (int column = 0; column < columns && same; column++) {
            double number;
            same = pl_table_number(&csv, row, column, &number)
                   && number == values[row * columns + column];
        }
    return same;
}

/* A cell, or "none". */
static const char *cell(int64_t row, int column)
{
    return row < csv.rows && column < csv.columns ? pl_table_cell(&csv, row, column)
                                                  : "none";
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

static int parse_lines(const char *text)
{
    pl_table_release(&csv);
    return pl_jsonl_read(text, strlen(text), "file", 1000, &csv, &err);
}

static void json_lines_are_a_table(void)
{
    ok(!parse_lines("{\"a\": 1.5, \"b\": \"x,\\ny\", \"c\": {\"d\": [true, 7]}}\r\n\n"
                    "{\"b\": null, \"a\": -2, \"e\": \"last\"}"),
       "objects: %s", err.text);
    ok(csv.rows == 2 && csv.columns == 5, "a column for each field");
    is_text(csv.name[2], "c.d.0", "also of lists and objects");
    is_text(csv.name[4], "e", "and of fields that come later");
    is_text(csv.cell[0], "1.5", "a number");
    is_text(csv.cell[1], "x,\ny", "a text");
    is_text(csv.cell[2], "true", "a truth");
    is_text(csv.cell[3], "7", "a number in a list");
    is_text(csv.cell[4], "", "a field that is not there");
    is_text(csv.cell[6], "", "null");
    is_text(csv.cell[9], "last", "the last cell");
    char place[PL_PLACE_TEXT];
    pl_table_place(&csv, 1, 4, place);
    is_text(place, "3:1", "the line of a cell");
    static const struct {
        const char *text, *why;
    } wrong[] = {{"{\"a\": 1}\n{\"a\": }", "^file:2:[0-9]+: unexpected token"},
                 {"{\"a\": 1, \"a\": 2}", "^file:1:.*duplicate"},
                 {"[1, 2]", "^file:1: a line is an object"},
                 {"\n\n", "^file: there are no lines with fields"},
                 {"{}", "no lines with fields"},
                 {"{\"a\": [[[[[1]]]]]}", "^file:1: .* is nested too deep"},
                 {"{\"a\":1}\n{\"b\":1}\n{\"c\":1}\n{\"d\":1}\n{\"e\":1}\n{\"f\":1}\n"
                  "{\"g\":1}\n{\"h\":1}\n{\"i\":1}\n{\"j\":1}\n{\"k\":1}\n{\"l\":1}",
                  "^file: 12 lines with 12 different fields .* more than 1000 bytes"}};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        is_int(parse_lines(wrong[k].text), PL_EFORMAT, "%s", wrong[k].text);
        like(err.text, wrong[k].why, "the text says where and why");
    }
    const pl_table_t none = {.columns = 0};
    is_int(pl_jsonl_read_part("{}\n\n", 4, "file", 1, &none, &csv, &err), PL_EFORMAT,
           "a part without fields is no table");
    like(err.text, "no lines with fields", "and says so");
}

static void json_lines_in_several_files_are_one_table(void)
{
    char place[PL_PLACE_TEXT],
        *path[] = {(char *)file_put_text("a.jsonl", "\n{\"a\": 1}\n\n"),
                   (char *)file_put_text("b.jsonl", "\xEF\xBB\xBF{\"b\": 2}\n{\"a\": 3}"),
                   (char *)file_put_text("c.jsonl", "{\"a\": }\n")};
    pl_table_release(&csv);
    is_int(pl_jsonl_load(tap_folder(), path, 2, 1000, &csv, &err), PL_OK, "two files: %s",
           err.text);
    ok(csv.rows == 3 && csv.columns == 2, "have the rows and fields of both");
    is_text(pl_table_cell(&csv, 1, 1), "2", "in their order");
    pl_table_place(&csv, 0, 0, place);
    is_text(place, "a.jsonl:2:1", "a place names the file");
    pl_table_place(&csv, 2, 0, place);
    is_text(place, "b.jsonl:2:1", "and its own line");
    pl_table_release(&csv);
    is_int(pl_jsonl_load(tap_folder(), path, 3, 1000, &csv, &err), PL_EFORMAT,
           "a file with a wrong line");
    like(err.text, "/c.jsonl:1:[0-9]+: unexpected token", "is named");
    is_int(pl_jsonl_load(tap_folder(), path, 2, 20, &csv, &err), PL_EFORMAT,
           "more than the limit together: %s", err.text);
}

static int parse_two_lines(pl_error_t *error)
{
    static const char text[] = "{\"a\": 1}\n{\"b\": [2, \"c\"]}\n";
    pl_table_t table = {0};
    const int code = pl_jsonl_read(text, sizeof text - 1, "file", 1000, &table, error);
    pl_table_release(&table);
    return code;
}

static void json_lines_survive_a_lack_of_memory(void)
{
    survives_lack_of_memory(parse_two_lines);
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
    ok(!parse("a,b\n1,2\n", PL_CSV_NO) && !csv.name, "not allowed");
    is_text(cell(0, 1), "b", "so it is a row");
    ok(!parse("a, b\t,\" c \"\n1,2,3\n", PL_CSV_AUTO), "with spaces: %s", err.text);
    is_text(csv.name[1], "b", "which are no part of a name");
    is_text(csv.name[2], " c ", "but in quotes");
}

static void a_bad_first_row_is_no_header(void)
{
    ok(!parse("1,nan,0\n1,2,0\n", PL_CSV_AUTO) && !csv.name, "a number that is none");
    ok(!parse("0x10,2,0\n1,2,0\n", PL_CSV_AUTO) && !csv.name, "in another notation");
    ok(!parse(",2\n1,2\n", PL_CSV_AUTO) && !csv.name, "a missing one");
    ok(!parse(",,\n1,2,3\n", PL_CSV_AUTO) && !csv.name, "and three missing ones");
    ok(!parse(",a\n1,2\n", PL_CSV_AUTO) && csv.name, "a column without a name may be");
    ok(!parse("150,4,setosa,versicolor,virginica\n5.1,3.5,1.4,0.2,0\n", PL_CSV_AUTO)
           && csv.name,
       "words above numbers in most columns are names");
}

static void a_delimiter_behind_the_last_name_is_no_column(void)
{
    ok(!parse("a,b,\n1,2\n3,4\n", PL_CSV_AUTO) && holds(2, 2, VALUES(1, 2, 3, 4)),
       "commas: %s", err.text);
    ok(csv.name && !strcmp(csv.name[1], "b"), "and the names are kept");
    is_int(csv.skipped, 0, "so no line is left out");
    ok(!parse("a;b;\r\n1;2\r\n3;4\r\n", PL_CSV_AUTO) && csv.name
           && holds(2, 2, VALUES(1, 2, 3, 4)),
       "semicolons and CRLF: %s", err.text);
    ok(!parse("a,b,\n1,2,\n3,4,\n", PL_CSV_AUTO) && csv.columns == 3,
       "rows with the delimiter, too, have a column of empty cells");
}

static void cells_are_texts(void)
{
    ok(!parse("name,age\n\"Allen, Miss \"\"E\"\"\", 29\n\"two\nlines\" ,\n", PL_CSV_AUTO),
       "with delimiters, quotes and line ends: %s", err.text);
    is_text(cell(0, 0), "Allen, Miss \"E\"", "in quotes");
    is_text(cell(1, 0), "two\nlines", "several lines");
    is_text(cell(1, 1), "", "an empty cell");
    is_int(csv.line[1], 3, "its line");
    char place[PL_PLACE_TEXT];
    pl_table_place(&csv, 1, 1, place);
    is_text(place, "4:9", "and its place, behind the line end in quotes");
}

static void the_delimiter_is_found(void)
{
    ok(!parse("a;b\n1,5;2\n2,5;3\n", PL_CSV_AUTO) && holds(2, 2, VALUES(1.5, 2, 2.5, 3)),
       "semicolons, and commas in numbers");
    is_int(csv.format.decimal, ',', "and the comma in the format");
    ok(!parse("Day;Sum\n01.01.2022;1067,94\n02.01.2022;900,1\n03.01.2022;998,5\n",
              PL_CSV_AUTO)
           && csv.columns == 2 && csv.format.delimiter == ';' && csv.name
           && !strcmp(cell(0, 1), "1067,94"),
       "a name above all rows, too, and dates beside numbers with commas");
    ok(!parse("a\tb\n1.5\t2\n", PL_CSV_AUTO) && holds(1, 2, VALUES(1.5, 2)), "tabs");
    ok(!parse("a|b\n1|2\n", PL_CSV_AUTO) && holds(1, 2, VALUES(1, 2)), "bars");
    ok(!parse("  1   2.5\n 3 \t 4 \n", PL_CSV_AUTO) && holds(2, 2, VALUES(1, 2.5, 3, 4)),
       "runs of blanks");
    ok(!parse("a,b c\n\"x;y\",1 2\n", PL_CSV_AUTO) && csv.columns == 2,
       "not one within texts");
    is_text(cell(0, 0), "x;y", "nor within quotes");
    pl_csv_format_t format = PL_CSV_ANY;
    format.delimiter = ':';
    ok(!parse_as("1,0:2\n", format) && csv.columns == 2, "another can be given");
    format.decimal = ',';
    ok(!parse_as("1,5:2\n", format) && holds(1, 2, VALUES(1.5, 2)),
       "and the decimal comma");
}

static void lines_before_a_table_and_comments_are_left_out(void)
{
    ok(!parse("178,13,class_0,class_1,class_2\n1,2,3\n4,5,6\n", PL_CSV_AUTO)
           && holds(2, 3, VALUES(1, 2, 3, 4, 5, 6)) && csv.skipped == 1,
       "a line with other fields");
    ok(!parse("Report of May\n\na,b\n1,2\n3,4\n", PL_CSV_AUTO) && csv.name
           && holds(2, 2, VALUES(1, 2, 3, 4)),
       "a title");
    ok(!parse("# made by hand\na,b\n# more, of it, here\n1,2\n", PL_CSV_AUTO)
           && holds(1, 2, VALUES(1, 2)),
       "comments, if the first line is one");
    is_int(csv.line[0], 4, "lines are counted");
    ok(!parse("a,b\n#1,2\n", PL_CSV_AUTO) && csv.rows == 1, "otherwise # is a character");
    pl_csv_format_t format = PL_CSV_ANY;
    format.skip = 2;
    format.comment = '!';
    ok(!parse_as("1,2\n3,4\n!\n5,6\n", format) && holds(1, 2, VALUES(5, 6)), "as given");
    format.skip = 0;
    is_int(parse_as("1,2,3\n4,5\n6,7\n", format), PL_EFORMAT, "no line is left out");
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
    is_int(parse("n,m\n1,2\n3\n4,5\n", PL_CSV_AUTO), PL_EFORMAT,
           "a line that is too short");
    like(err.text, "^file:3:2: field 2 \\(m\\) of 2 is missing", "is named");
    is_int(parse("1,2\n3,4,5\n", PL_CSV_AUTO), PL_EFORMAT, "a line that is too long");
    like(err.text, "^file:2:4: more fields than the 2", "is named");
    ok(!parse("1,2\n\n3,4\n", PL_CSV_AUTO) && holds(2, 2, VALUES(1, 2, 3, 4)),
       "an empty line in between is no row");
    ok(!parse("a\n1\n\n2\n", PL_CSV_AUTO) && csv.rows == 3, "but a cell of one column");
    is_int(parse("1,2\n3,\"4\n", PL_CSV_AUTO), PL_EFORMAT, "a quote without end");
    like(err.text, "^file:2:3: the quote", "is found where it begins");
    is_int(parse("1,2\n3,\"4\"5\n", PL_CSV_AUTO), PL_EFORMAT, "something after a quote");
    is_int(parse("\n\n", PL_CSV_AUTO), PL_EFORMAT, "nothing at all");
    is_int(parse("# nothing\n", PL_CSV_AUTO), PL_EFORMAT, "nothing but a comment");
    const pl_csv_format_t format = PL_CSV_ANY;
    is_int(pl_csv_read("1,\0\n", 4, "file", &format, &csv, &err), PL_EFORMAT,
           "a zero byte");
    like(err.text, "^file: byte 2 is zero", "is named");
    double number;
    ok(!parse("a\nnan\n1e999\n", PL_CSV_AUTO) && !pl_table_number(&csv, 0, 0, &number)
           && !pl_table_number(&csv, 1, 0, &number),
       "nan and a number past all others are no numbers");
}

static bool is_number(const char *text, double want)
{
    double got = -77;
    bool found = pl_number(text, strlen(text), '.', &got);
    return found && got == want && signbit(got) == signbit(want);
}

static bool is_none(const char *text)
{
    double got = -77;
    return !pl_number(text, strlen(text), '.', &got) && got == -77;
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
    ok(pl_number(many, 305, '.', &got) && got > 1.1e19 && got < 1.2e19, "many digits");
    ok(!pl_number(many + 310, 500, '.', &got), "too many digits");
}

static bool is_in_groups(const char *text, char point, double value)
{
    double got = NAN;
    return pl_number_in_groups(text, strlen(text), point, &got) && got == value;
}

static void digits_may_stand_in_groups_of_three(void)
{
    double got;
    ok(is_in_groups("1,234", '.', 1234) && is_in_groups("-12,345,678.5", '.', -12345678.5)
           && is_in_groups("+123,456e2", '.', 12345600) && is_in_groups("1.5", '.', 1.5),
       "with commas");
    ok(is_in_groups("1.234", ',', 1234) && is_in_groups("12.345.678,5", ',', 12345678.5)
           && is_in_groups("1,5", ',', 1.5),
       "with points, where the comma is the decimal mark");
    static const char *const wrong[] = {"1,23",  "1,2345", "1234,567", ",123",
                                        "0,123", "1,234,", "1,,234",   "1.234,567"};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
        ok(!pl_number_in_groups(wrong[k], strlen(wrong[k]), '.', &got), "not %s",
           wrong[k]);
    const char *text = "area;price\n3;1.037,5\n4;1.234.567,25\n";
    pl_table_release(&csv);
    is_int(pl_csv_read(text, strlen(text), "t", &PL_CSV_ANY, &csv, &err), PL_OK, "%s",
           err.text);
    ok(csv.format.decimal == ',' && pl_table_number(&csv, 1, 1, &got)
           && got == 1234567.25,
       "the last mark is the decimal one");
    pl_table_release(&csv);
    text = "area,price\n3,\"1,037\"\n4,\"1,234,567\"\n";
    is_int(pl_csv_read(text, strlen(text), "t", &PL_CSV_ANY, &csv, &err), PL_OK, "%s",
           err.text);
    ok(csv.format.decimal == '.' && csv.name && pl_table_number(&csv, 1, 1, &got)
           && got == 1234567,
       "between commas they are quoted");
    pl_table_release(&csv);
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
    pl_table_t table;
    const pl_csv_format_t format = PL_CSV_ANY;
    int code = pl_csv_read(data, size, "file", &format, &table, error);
    if (!code)
        pl_table_release(&table);
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
    pl_table_release(&csv);
    pl_csv_format_t format = PL_CSV_ANY;
    is_int(pl_csv_load(iris, NO_LIMIT, &format, &csv, &err), PL_OK, "iris");
    ok(csv.rows == 150 && csv.columns == 5 && csv.name && !strcmp(cell(0, 0), "5.1"),
       "150 rows after a header");
    pl_table_release(&csv);
    is_int(pl_csv_load(tap_data("tabular/digits.csv.gz"), NO_LIMIT, &format, &csv, &err),
           PL_OK, "digits");
    ok(csv.rows == 1797 && csv.columns == 65 && !csv.name && !strncmp(cell(0, 2), "5", 1),
       "1797 rows without one");
}

int main(void)
{
    run(line_ends_and_quotes_are_as_the_standard_says);
    run(json_lines_are_a_table);
    run(json_lines_in_several_files_are_one_table);
    run(json_lines_survive_a_lack_of_memory);
    run(a_header_gives_names);
    run(a_bad_first_row_is_no_header);
    run(a_delimiter_behind_the_last_name_is_no_column);
    run(cells_are_texts);
    run(the_delimiter_is_found);
    run(lines_before_a_table_and_comments_are_left_out);
    run(a_carriage_return_alone_ends_no_line);
    run(utf_16_is_refused_as_such);
    run(errors_say_line_and_column);
    run(numbers_are_rounded_correctly);
    run(digits_may_stand_in_groups_of_three);
    run(the_locale_does_not_matter);
    run(csv_survives_damage);
    run(memory_may_run_out);
    run(real_tables_are_read);
    pl_table_release(&csv);
    return tap_done();
}
