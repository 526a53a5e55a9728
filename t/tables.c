/* tables.c - tests of the preparation of tables: csv_recipe.c and csv_target.c of
 * actors/connectors/datasets */
#include "actors/connectors/datasets/datasets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset_rig.h"
#include "files.h"
#include "tap.h"

/* Passengers of a ship, with the faults of real tables. */
static const char passengers[] =
    "PassengerId,Survived,Pclass,Name,Sex,Age,Fare,Embarked\n"
    "1,no,3,\"Braund, Mr. Owen\",male,22,7.25,S\n"
    "2,yes,1,\"Cumings, Mrs. John \"\"Flo\"\"\",female,38,71.2833,C\n"
    "3,yes,3,\"Heikkinen, Miss. Laina\",female,26,7.925,S\n"
    "4,yes,1,\"Futrelle, Mrs. Jacques\",female,35,53.1,S\n"
    "5,no,3,\"Allen, Mr. William\",male,NA,8.05,S\n"
    "6,no,3,\"Moran, Mr. James\",male,,8.4583,Q\n"
    "7,no,1,\"McCarthy, Mr. Timothy\",male,54,51.8625,S\n"
    "8,no,3,\"Palsson, Master. Gosta\",male,2,21.075,\n"
    "9,yes,3,\"Johnson, Mrs. Oscar\",female,27,11.1333,S\n"
    "10,yes,2,\"Nasser, Mrs. Nicholas\",female,14,30.0708,C\n"
    "11,yes,3,\"Sandstrom, Miss. Marguerite\",female,4,16.7,S\n"
    "12,yes,1,\"Bonnell, Miss. Elizabeth\",female,58,26.55,S\n";

#define SURVIVED "\"fields\": {\"y\": \"Survived\"}, \"ignore\": \"PassengerId\""

static rig_t open_passengers(pl_stage_t stage, const char *data_info, const char *more)
{
    char options[1024];
    snprintf(options, sizeof options, "{\"path\": \"%s\", " SURVIVED "%s}",
             file_put_text("passengers.csv", passengers), more);
    return rig_open_told(&pl_csv_dataset, stage, data_info, options);
}

static void a_table_of_texts_and_empty_cells_becomes_features(void)
{
    rig_t rig = open_passengers(PL_TRAIN, NULL,
                                ", \"missing\": \"median\", \"standardize\": false");
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.samples == 12 && has_field(&rig, 0, "x", PL_F32, "8")
           && has_field(&rig, 1, "y", PL_I64, ""),
       "class, two sexes, age, fare, two harbours and others; the names have no use");
    like(rig.info.data_info, "\"class_names\": .\"no\",\"yes\".",
         "the classes are named");
    like(rig.info.data_info, "\"x\":.\"Pclass\",\"Sex\",\"Age\",\"Fare\",\"Embarked\".",
         "as are the columns");
    rig_read(&rig, INDEX(4, 7, 5));
    const float *x = rig.field[0];
    ok(x[0] == 3 && x[1] == 0 && x[2] == 1, "a category is one of its features");
    ok(x[3] == 26.5f && x[4] == 8.05f, "an empty cell is the median of the others: %g",
       (double)x[3]);
    ok(x[5] == 0 && x[6] == 1 && x[7] == 0, "the harbour S, behind C");
    ok(x[8 + 5] == 0 && x[8 + 6] == 0 && x[8 + 7] == 1 && x[16 + 7] == 1,
       "rare values are one, among them the empty cell");
    const int64_t *y = rig.field[1];
    ok(y[0] == 0 && y[1] == 0 && y[2] == 0, "classes are in the order of their names");
    rig_close(&rig);
}

static void empty_cells_without_a_treatment_are_an_error(void)
{
    refused(open_passengers(PL_TRAIN, NULL, ""), PL_EFORMAT,
            "passengers.csv:6:[0-9]+: field 6 \\(Age\\) of 8 is missing: set \"missing\"",
            "of the first of them");
    refused(
        open_passengers(PL_TRAIN, NULL, ", \"missing_values\": \"\""), PL_EFORMAT,
        "passengers.csv:6:[0-9]+: field 6 \\(Age\\): \"NA\" is not a finite number; if "
        "it means a missing cell, add it to \"missing_values\"",
        "a word that is no number");
}

/* The features of row 5, whose age is missing. */
static rig_t with_missing(const char *how, int features)
{
    char more[80], shape[8];
    snprintf(more, sizeof more, ", \"missing\": \"%s\", \"standardize\": false", how);
    snprintf(shape, sizeof shape, "%d", features);
    rig_t rig = open_passengers(PL_TRAIN, NULL, more);
    ok(rig.code == PL_OK && has_field(&rig, 0, "x", PL_F32, shape), "%s: %s", how,
       rig.err.text);
    rig_read(&rig, INDEX(4));
    return rig;
}

static void empty_cells_have_several_treatments(void)
{
    rig_t rig = with_missing("mean", 8);
    ok(fabsf(((float *)rig.field[0])[3] - 28) < 1e-5f, "the mean");
    rig_close(&rig);
    rig = with_missing("most_frequent", 8);
    ok(((float *)rig.field[0])[3] == 2, "the most frequent, of all once the smallest");
    rig_close(&rig);
    rig = with_missing("category", 9);
    ok(fabsf(((float *)rig.field[0])[3] - 28) < 1e-5f && ((float *)rig.field[0])[4] == 1,
       "a feature that says so");
    rig_close(&rig);
    rig = with_missing("drop", 7);
    is_int(rig.info.samples, 9, "rows without");
    ok(((float *)rig.field[0])[3] == 54, "the rows behind move up");
    rig_close(&rig);
}

static void other_files_are_prepared_as_the_training_data(void)
{
    rig_t train = open_passengers(PL_TRAIN, NULL, ", \"missing\": \"median\"");
    const char *path = file_put_text(
        "new.csv", "Embarked,Age,Fare,Sex,Pclass\nX,,7.25,other,3\nS,22,7.25,male,3\n");
    char options[512];
    snprintf(options, sizeof options,
             "{\"path\": \"%s\", \"missing\": \"median\"," SURVIVED "}", path);
    rig_t rig = rig_open_told(&pl_csv_dataset, PL_PREDICT, train.info.data_info, options);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.field_count == 1 && has_field(&rig, 0, "x", PL_F32, "8"),
       "without targets");
    const char *recipes = strstr(train.info.data_info, "\"prepare\": ");
    ok(recipes && !strncmp(strstr(rig.info.data_info, "\"prepare\": "), recipes, 200),
       "the recipes stay");
    rig_read(&rig, INDEX(0, 1));
    rig_read(&train, INDEX(0));
    const float *x = rig.field[0], *same = train.field[0];
    ok(!memcmp(x + 8, same, 8 * sizeof *x), "the same row is the same sample");
    ok(x[1] == 0 && x[2] == 0, "an unknown value is none of the known");
    ok(fabsf(x[3]) < 0.2f && x[3] != same[3], "an empty age is the median of training");
    rig_close(&rig);
    snprintf(options, sizeof options, "{\"path\": \"%s\"," SURVIVED "}",
             file_put_text("more.csv", "Embarked,Age,Fare,Sex,Pclass,Survived\n"
                                       "S,22,7.25,male,3,yes\nS,22,7.25,male,3,maybe\n"));
    refused(rig_open_told(&pl_csv_dataset, PL_TEST, train.info.data_info, options),
            PL_EFORMAT,
            "more.csv:3:[0-9]+: field 6 \\(Survived\\): \"maybe\" is not a class",
            "an unknown class");
    rig_close(&train);
}

static void categories_may_be_indexes(void)
{
    rig_t rig = open_passengers(PL_TRAIN, NULL,
                                ", \"missing\": \"median\", \"categories\": \"index\"");
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(has_field(&rig, 0, "x", PL_F32, "3") && has_field(&rig, 2, "c", PL_I64, "2"),
       "in a field of their own");
    like(rig.info.data_info, "\"category_values\": 6",
         "sexes, harbours, and two for others");
    rig_read(&rig, INDEX(0, 5));
    const int64_t *c = rig.field[2];
    ok(c[0] == 2 && c[1] == 5, "male, S");
    ok(c[2] == 2 && c[3] == 3, "male, and a rare harbour: %lld", (long long)c[3]);
    rig_close(&rig);
}

/* A database with a table and what `more` makes, by the program sqlite3 or Python's
 * module; NULL: neither is installed. */
static const char *put_database(const char *name, const char *more)
{
    static char path[400];
    char command[2000];
    char sql[400] = "CREATE TABLE [my flowers] (width REAL, kind TEXT, photo BLOB);"
                    "INSERT INTO [my flowers] VALUES (0.1, 'a', x'00ff'), "
                    "(NULL, 'b', NULL), (1e300, 'a', NULL), (2, 'b', NULL);";
    strcat(sql, more);
    snprintf(path, sizeof path, "%s", file_put_text(name, ""));
    snprintf(command, sizeof command,
             "sqlite3 '%s' \"%s\" 2>/dev/null || python3 -c \"import sqlite3, sys; "
             "sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])\" '%s' \"%s\" "
             "2>/dev/null",
             path, sql, path, sql);
    return system(command) == 0 ? path : NULL;
}

#define FLOWERS "\"table\": \"my flowers\""
#define WIDTHS "\"query\": \"SELECT width, kind FROM [my flowers] WHERE width < 9\""

static void a_database_is_a_table(void)
{
    const char *path = put_database("flowers.db", "CREATE TABLE other (a INTEGER);");
    if (!path) {
        tap_skip("neither sqlite3 nor Python is installed");
        return;
    }
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"standardize\": false, " WIDTHS "}", path);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.samples == 2 && has_field(&rig, 0, "x", PL_F32, "1"),
       "the rows of a query");
    like(rig.info.data_info, "\"class_names\": .\"a\",\"b\".", "the classes are named");
    rig_read(&rig, INDEX(0, 1));
    const float *x = rig.field[0];
    ok(x[0] == 0.1f && x[1] == 2, "numbers are as in the database");
    rig_close(&rig);
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path), PL_EINVAL,
            "flowers.db: the database has several tables: set \"table\" to one of my "
            "flowers, other",
            "a choice among tables");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\", " FLOWERS "}", path),
            PL_EFORMAT, "flowers.db:1: \"photo\" is binary", "bytes");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", " FLOWERS ", " WIDTHS "}", path),
            PL_EINVAL, "\"table\" or \"query\", not both", "two sources");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"query\": \"DELETE FROM other\"}", path),
            PL_EINVAL, "flowers.db: \"query\" is one SELECT", "a change");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"query\": \"SELECT 1; SELECT 2\"}", path),
            PL_EINVAL, "flowers.db: \"query\" is one SELECT", "two queries");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"query\": \"ATTACH 'x.db' AS x\"}", path),
            PL_EINVAL, "flowers.db: \"query\" is one SELECT", "another file");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"table\": \"absent\"}", path),
            PL_EFORMAT, "flowers.db: no such table: absent", "a table that is not there");
    pl_error_t err = {0};
    path = put_database("one.db", "UPDATE [my flowers] SET photo = 0");
    char *run = pl_data_propose(path, "kind", &err);
    like(run, "A SQLite table of 4 rows and 3 columns", "a run for its only table");
    pl_text_free(run);
    path = file_put_text("damaged.db", "SQLite format 3");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\", " FLOWERS "}", path),
            PL_EINVAL, "damaged.db is no SQLite database", "options of databases");
}

/* Texts enough that they are no categories. */
#define NOTES "ham,f1\nham,f2\nham,f3\nham,f4\nham,f5\nham,f6\nham,f7\nham,f8\nham,f9\n"

static void texts_become_their_most_telling_words(void)
{
    const char *path =
        file_put_text("mail.csv",
                      "kind,text\nspam,\"WIN cash, win cash now!\"\nham,see you now\n"
                      "spam,cash for you\nham,see my dog\nham,\n" NOTES);
    const char *more = file_put_text("more.csv", "kind,text\nham,See: cash (unseen)\n");
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"fields\": {\"y\": \"kind\"}, "
                         "\"texts\": \"words\", \"terms\": 3}",
                         path);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(has_field(&rig, 0, "x", PL_F32, "3"), "as many terms as requested");
    like(rig.info.data_info, "\"values\":.\"cash\",\"now\",\"see\".",
         "the most frequent, those as frequent by their letters");
    rig_read(&rig, INDEX(0, 1, 4));
    const float *x = rig.field[0];
    const double now = log(1 + 14 / 2.0), cash = (1 + log(2)) * now;
    is_near(x[0], 4 * cash / hypot(cash, now), 1e-5,
            "a word that occurs twice weighs more");
    is_near(x[1], 4 * now / hypot(cash, now), 1e-5, "than one that occurs once");
    ok(x[2] == 0 && x[3] == 0 && x[4] == x[5], "capital letters are as small ones");
    ok(x[6] == 0 && x[7] == 0 && x[8] == 0, "an empty text has no words");
    char options[512];
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"fields\": {\"y\": \"kind\"}}",
             more);
    rig_t other = rig_open_told(&pl_csv_dataset, PL_TEST, rig.info.data_info, options);
    is_int(other.code, PL_OK, "opened: %s", other.err.text);
    rig_read(&other, INDEX(0));
    x = other.field[0];
    ok(x[0] > 0 && x[1] == 0 && x[0] == x[2],
       "other data has the words and weights of the training data");
    rig_close(&other);
    rig_close(&rig);
    rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                   "{\"path\": \"%s\", \"label\": 0, \"texts\": \"words\", \"rare\": 1}",
                   path);
    like(rig.info.data_info, "\"see you\"", "pairs of words are terms, too");
    rig_close(&rig);
    path = file_put_text("bad.csv", "kind,text\na,one two\nb,\xff two\na,two\n" NOTES);
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"label\": 0, \"texts\": \"words\"}", path),
            PL_EFORMAT, "bad.csv:3:[0-9]+: field 2 \\(text\\): .* is not UTF-8",
            "other bytes");
}

static void dates_become_days_and_times_of_the_year(void)
{
    const char *path = file_put_text("d.csv", "day,y\n2024-01-01,1.5\n2024-07-01,2.5\n"
                                              "2024-12-30,3.5\n");
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"standardize\": false}", path);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(has_field(&rig, 0, "x", PL_F32, "3"), "all are Mondays, so the week has no use");
    rig_read(&rig, INDEX(0, 1));
    const float *x = rig.field[0];
    ok(x[0] == 19723 && x[3] == 19905, "days since 1970");
    ok(fabsf(x[1] - x[4]) < 0.1f && x[2] > 0.9f && x[5] < -0.9f, "winter and summer");
    rig_close(&rig);
}

static void whole_numbers_that_do_not_begin_at_0_are_named_classes(void)
{
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                         file_put_text("w.csv", "a,y\n1,10\n2,9\n3,10.0\n4,11\n5,-100\n"
                                                "6,9\n7,9\n8,10\n9,10\n10,9\n11,9\n12,9\n"
                                                "13,9\n14,9\n15,9\n16,9\n17,9\n18,9\n"
                                                "19,9\n20,9\n21,9\n22,9\n23,9\n24,9\n"));
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    like(rig.info.data_info, "\"classes\": 3.*\"class_names\": .\"9\",\"10\",\"11\".",
         "in their order");
    rig_read(&rig, INDEX(0, 1, 2, 3, 4));
    const int64_t *y = rig.field[1];
    ok(y[0] == 1 && y[1] == 0 && y[2] == 1 && y[3] == 2 && y[4] == -100,
       "numbered from 0, but for the ignored one");
    rig_close(&rig);
    rig = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                   file_put_text("s.csv", "a,y\n1,-1\n2,1\n3,1\n"));
    like(rig.info.data_info, "\"classes\": 2.*\"class_names\": .\"-1\",\"1\".",
         "two signs are two classes");
    rig_close(&rig);
}

static void values_have_a_scale_in_the_data_info(void)
{
    const char *path = file_put_text("v.csv", "a,y\n1,1.5\n2,2.5\n3,3.5\n");
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path);
    like(rig.info.data_info, "\"target_mean\": 2.5, \"target_factor\": 1.2247",
         "mean and one over the deviation");
    rig_read(&rig, INDEX(0));
    ok(((float *)rig.field[1])[0] == 1.5f, "the targets stay in their unit");
    rig_close(&rig);
}

static void columns_are_chosen_by_name(void)
{
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"standardize\": false, \"features\": "
                         "\"Fare,2\", \"fields\": {\"y\": \"Survived\"}}",
                         file_put_text("p.csv", passengers));
    ok(has_field(&rig, 0, "x", PL_F32, "2"), "two features: %s", rig.err.text);
    rig_read(&rig, INDEX(0));
    ok(((float *)rig.field[0])[0] == 3 && ((float *)rig.field[0])[1] == 7.25f,
       "in the order of the table");
    rig_close(&rig);
    refused(open_passengers(PL_TRAIN, NULL, ", \"features\": \"Age,Bge\""), PL_EINVAL,
            "\"features\": there is no column \"Bge\"", "no such column");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\", \"label\": 3}",
                     file_put_text("p.csv", passengers)),
            PL_EFORMAT, "field 4 \\(Name\\) is the target and has 12 texts in 12 rows",
            "a target that names each row");
    refused(open_passengers(PL_TRAIN, NULL, ", \"delimiter\": \"::\""), PL_EINVAL,
            "\"delimiter\" is \"::\", but it is one character", "two characters");
}

static void rows_without_a_target_are_left_out_on_request(void)
{
    const char *path = file_put_text("t.csv", "a,y\n1,0\n2,\n3,1\n");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path), PL_EFORMAT,
            "t.csv:3:3: field 2 \\(y\\) of 2 is missing: it is the target", "or refused");
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"missing\": \"mean\"}", path);
    is_int(rig.info.samples, 2, "the others stay");
    rig_close(&rig);
}

static void recipes_leave_out_what_is_kept_for_validation(void)
{
    char text[4096] = "a,y\n", options[256];
    for (int k = 0; k < 100; k++)
        sprintf(text + strlen(text), k % 10 ? "%d,0\n" : ",1\n", k * k);
    snprintf(options, sizeof options,
             "{\"path\": \"%s\", \"missing\": \"mean\", \"standardize\": false}",
             file_put_text("v.csv", text));
    rig_t all = rig_open_split(&pl_csv_dataset, 0, false, options),
          some = rig_open_split(&pl_csv_dataset, 0.5, false, options);
    rig_read(&all, INDEX(0));
    rig_read(&some, INDEX(0));
    ok(((float *)all.field[0])[0] != ((float *)some.field[0])[0],
       "the mean of the rows to train on differs");
    rig_close(&all);
    rig_close(&some);
}

static rig_t open_target(pl_stage_t stage, const char *data_info, const char *more)
{
    char options[300];
    snprintf(options, sizeof options, "{\"path\": \"%s\"%s}",
             file_put_text("named.csv",
                           "a,class,b\n1,u,2.5\n0,v,3.5\n1,u,4.5\n0,v,6.5\n"),
             more);
    return rig_open_told(&pl_csv_dataset, stage, data_info, options);
}

static void the_target_names_its_column(void)
{
    rig_t rig = open_target(PL_TRAIN, NULL, ", \"target\": \"a\"");
    like(rig.info.data_info, "\"classes\": 2.*\"y\": ?\\[\"a\"\\]", "by name: %s",
         rig.info.data_info);
    const char *path = file_put_text("later.csv", "b,class\n2.5,u\n");
    char options[300];
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"target\": \"a\"}", path);
    rig_t later = rig_open_told(&pl_csv_dataset, PL_PREDICT, rig.info.data_info, options);
    is_int(later.code, PL_OK, "a file to predict may lack it: %s", later.err.text);
    rig_close(&later);
    rig_close(&rig);
    rig = open_target(PL_TRAIN, NULL, ", \"target\": \"0\"");
    like(rig.info.data_info, "\"y\": ?\\[\"a\"\\]", "or by number");
    rig_close(&rig);
    rig = open_target(PL_TRAIN, NULL, ", \"target\": \"a\", \"stream\": true");
    like(rig.info.data_info, "\"y\": ?\\[\"a\"\\]", "also of a table that is streamed");
    rig_close(&rig);
    rig = open_target(PL_TRAIN, NULL, ", \"target\": \"a,b\"");
    like(rig.info.data_info, "\"y\": ?\\[\"a\",\"b\"\\]", "or several");
    rig_close(&rig);
    rig = open_target(PL_TRAIN, NULL,
                      ", \"target\": \"b\", \"ignore\": \"class\", \"window\": 1");
    like(rig.info.data_info, "\"target_mean\": 4.25", "or of windows: %s", rig.err.text);
    rig_close(&rig);
}

static void a_word_stays_a_type_where_a_column_has_that_name(void)
{
    refused(open_target(PL_TRAIN, NULL, ", \"target\": \"class\""), PL_EFORMAT,
            "the label is 2.5; classes are whole numbers", "the type of the last column");
    rig_t rig = open_target(PL_TRAIN, NULL,
                            ", \"fields\": {\"y\": \"class\"}, \"target\": \"auto\"");
    like(rig.info.data_info, "\"class_names\": ?\\[\"u\",\"v\"\\]",
         "the fields name such a column");
    rig_close(&rig);
}

static void a_target_that_is_not_clear_is_refused(void)
{
    static const struct {
        const char *more, *pattern;
    } cases[] = {
        {", \"target\": \"clas\"", "named.csv: \"target\" is \"clas\", but there is no "
                                   "such column, and the types of "
                                   "targets are auto, class, value and none"},
        {", \"target\": \"clas\", \"window\": 1",
         "\"target\" is \"clas\", but there is no"},
        {", \"target\": \"a\", \"fields\": {\"y\": \"b\"}",
         "\"target\" names the column \"a\" to predict, and \"fields\" \"b\" as \"y\": "
         "remove one"},
        {", \"target\": \"a\", \"label\": 1", "and \"label\" is given too: remove one"},
        {", \"target\": \"a\", \"fields\": {\"1\": \"1\", \"2\": \"1\", \"3\": \"1\", "
         "\"4\": "
         "\"1\", \"5\": \"1\", \"6\": \"1\", \"7\": \"1\", \"8\": \"1\"}",
         "\"a\", which is one field too many: remove one of \"fields\""},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        refused(open_target(PL_TRAIN, NULL, cases[k].more), PL_EINVAL, cases[k].pattern,
                cases[k].more);
}

static void memory_may_run_out(void)
{
    opens_without_memory(&pl_csv_dataset, "path",
                         file_put_text("m.csv",
                                       "a,b,d,y\nu,1,2024-01-01,x\nv,2,2024-02-02,z\n"
                                       "u,3,2024-01-01,x\nv,2,2024-05-02,z\n"));
}

int main(void)
{
    run(a_table_of_texts_and_empty_cells_becomes_features);
    run(empty_cells_without_a_treatment_are_an_error);
    run(empty_cells_have_several_treatments);
    run(other_files_are_prepared_as_the_training_data);
    run(categories_may_be_indexes);
    run(texts_become_their_most_telling_words);
    run(a_database_is_a_table);
    run(dates_become_days_and_times_of_the_year);
    run(whole_numbers_that_do_not_begin_at_0_are_named_classes);
    run(values_have_a_scale_in_the_data_info);
    run(columns_are_chosen_by_name);
    run(rows_without_a_target_are_left_out_on_request);
    run(recipes_leave_out_what_is_kept_for_validation);
    run(the_target_names_its_column);
    run(a_word_stays_a_type_where_a_column_has_that_name);
    run(a_target_that_is_not_clear_is_refused);
    run(memory_may_run_out);
    return tap_done();
}
