/* csv_windows.c - tests of windows over time series: csv_windows.c and csv_time.c of
 * actors/connectors/datasets */
#include "actors/connectors/datasets/datasets.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dataset_rig.h"
#include "files.h"
#include "tap.h"

/* 20 rows: the time, a number a that is the row, 100 times that as b, and a holiday every
 * fifth row. */
static const char *put_series(void)
{
    static char text[1024];
    strcpy(text, "day,holiday,a,b\n");
    for (int k = 0; k < 20; k++)
        sprintf(text + strlen(text), "2024-01-%02d,%d,%d,%d\n", k + 1, k % 5 == 0, k,
                100 * k);
    return file_put_text("series.csv", text);
}

static rig_t open_series(pl_stage_t stage, double from, double to, const char *more)
{
    char options[600];
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"time\": \"day\"%s}",
             put_series(), more);
    return rig_open_share(&pl_csv_dataset, stage, from, to, options);
}

static void windows_predict_the_rows_behind_them(void)
{
    const char *options = ", \"fields\": {\"y\": \"a\"}, \"features\": \"a,b\", "
                          "\"window\": 3, \"horizon\": 2, \"standardize\": false";
    rig_t rig = open_series(PL_TRAIN, 0, 0.75, options);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(has_field(&rig, 0, "x", PL_F32, "3,2") && has_field(&rig, 1, "y", PL_F32, "2"),
       "three rows of two columns, and two rows to predict");
    is_int((int)rig.info.samples, 11, "windows end before row 15");
    ok(rig.info.ordered, "the data set itself makes the split");
    like(rig.info.data_info, "\"repeated_mae\": 1.5[,}]",
         "rows 18 and 19, if both repeat row 17: %s", rig.info.data_info);
    rig_read(&rig, INDEX(0, 10));
    const float *x = rig.field[0], *y = rig.field[1];
    ok(x[0] == 0 && x[1] == 0 && x[4] == 2 && x[5] == 200 && y[0] == 3 && y[1] == 4,
       "the first begins with the first row");
    ok(x[6] == 10 && x[10] == 12 && y[2] == 13 && y[3] == 14,
       "the last predicts the last rows to train on");
    rig_close(&rig);
    rig = open_series(PL_VALIDATE, 0.75, 1, options);
    rig_read(&rig, INDEX(0));
    ok(rig.info.samples == 1 && ((float *)rig.field[0])[0] == 15
           && ((float *)rig.field[1])[1] == 19,
       "validation has no row of training");
    rig_close(&rig);
    rig = open_series(PL_VALIDATE, 0.75, 1,
                      ", \"overlap\": true, \"features\": \"a\", \"fields\": {\"y\": "
                      "\"a\"}, \"window\": 3, \"standardize\": false");
    rig_read(&rig, INDEX(0, 4));
    ok(rig.info.samples == 5 && ((float *)rig.field[0])[0] == 12
           && ((float *)rig.field[1])[0] == 15 && ((float *)rig.field[1])[1] == 19,
       "with overlap all its rows are predicted, one number each");
    rig_close(&rig);
    rig = open_series(PL_PREDICT, 0, 1, options);
    rig_read(&rig, INDEX(17));
    ok(rig.info.samples == 18 && rig.info.field_count == 1
           && ((float *)rig.field[0])[4] == 19,
       "the last prediction is of the row behind the file");
    rig_close(&rig);
    rig = open_series(PL_TRAIN, 0, 1,
                      ", \"window\": 3, \"stride\": 4, \"standardize\": false");
    rig_read(&rig, INDEX(1));
    ok(rig.info.samples == 5 && ((float *)rig.field[0])[1] == 4,
       "the stride is from window to window");
    rig_close(&rig);
}

static void windows_know_covariates_in_advance(void)
{
    rig_t rig = open_series(PL_TRAIN, 0, 1,
                            ", \"fields\": {\"y\": \"a\"}, \"features\": \"holiday,a\", "
                            "\"covariates\": \"holiday\", \"window\": 4, \"horizon\": 2, "
                            "\"standardize\": false");
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    rig_read(&rig, INDEX(0, 14));
    const float *x = rig.field[0];
    ok(x[0] == 0 && x[1] == 0 && x[6] == 1 && x[7] == 3,
       "row 5, a holiday, is known with row 3");
    ok(x[8 + 2] == 0 && x[8 + 3] == 15 && x[8] == 0 && x[8 + 7] == 17, "to the last row");
    rig_close(&rig);
}

static void windows_scale_each_target_by_the_training_part(void)
{
    const char *options = ", \"fields\": {\"y\": \"a,b\"}, \"window\": 2, \"ignore\": "
                          "\"holiday\", \"horizon\": 2";
    rig_t rig = open_series(PL_TRAIN, 0, 0.55, options);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    like(rig.info.data_info, "\"target_means\": .5.0,500.0., \"target_factors\": .0.316",
         "means of rows 0 to 10: %s", rig.info.data_info);
    rig_read(&rig, INDEX(1));
    const float *x = rig.field[0], *y = rig.field[1];
    ok(has_field(&rig, 1, "y", PL_F32, "4") && y[0] == 3 && y[1] == 300 && y[2] == 4
           && y[3] == 400,
       "targets are in their unit, row by row");
    ok(fabsf(x[0] + 4 * 0.31622777f) < 1e-5f && fabsf(x[0] - x[1]) < 1e-5f,
       "features are scaled: %g", (double)x[0]);
    rig_t other = open_series(PL_TEST, 0, 1, options);
    rig_close(&other);
    char told[700];
    snprintf(told, sizeof told, "{\"path\": \"%s\", \"time\": \"day\"%s}", put_series(),
             options);
    other = rig_open_told(&pl_csv_dataset, PL_TEST, rig.info.data_info, told);
    is_int(other.code, PL_OK, "other data are opened: %s", other.err.text);
    rig_read(&other, INDEX(1));
    ok(((float *)other.field[0])[0] == x[0], "and have the scales of training");
    rig_close(&other);
    rig_close(&rig);
}

static void gaps_of_a_series_are_filled_along_a_line(void)
{
    char options[300];
    const char *path = file_put_text("gaps.csv", "t,v\n1,10\n2,\n3,\n4,40\n5,50\n6,\n");
    snprintf(options, sizeof options,
             "{\"path\": \"%s\", \"time\": \"t\", \"window\": 4, \"missing\": "
             "\"median\", \"standardize\": false}",
             path);
    rig_t rig = rig_open_told(&pl_csv_dataset, PL_TRAIN, NULL, options);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    rig_read(&rig, INDEX(0, 1));
    const float *x = rig.field[0], *y = rig.field[1];
    ok(x[1] == 20 && x[2] == 30 && x[3] == 40 && y[0] == 50 && y[1] == 50,
       "between two rows, and at the end: %g %g", (double)x[1], (double)y[1]);
    rig_close(&rig);
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"window\": 2}", path);
    refused(
        rig_open_told(&pl_csv_dataset, PL_TRAIN, NULL, options), PL_EFORMAT,
        "gaps.csv:3:.*field 2 .v.: \"\" is not a finite number.*fills gaps along a line",
        "without a treatment they are refused");
}

static void windows_that_are_not_possible_are_refused(void)
{
    static const struct {
        const char *more, *pattern;
        int code;
    } cases[] = {
        {", \"window\": 30",
         "series.csv: the training part has 20 rows, too few for .*30", PL_EFORMAT},
        {", \"window\": 3, \"fields\": {\"y\": \"a,c\"}",
         "field \"y\": there is no column \"c\"", PL_EINVAL},
        {", \"window\": 3, \"fields\": {\"y\": \"a\", \"weight\": \"b\"}",
         "\"fields\" has \"weight\", but with \"window\"", PL_EINVAL},
        {", \"window\": 3, \"covariates\": \"b\"", "\"b\" is to be predicted, so it",
         PL_EINVAL},
        {", \"window\": 3, \"covariates\": \"holiday\", \"horizon\": 4",
         "\"horizon\" is 4, longer than \"window\", 3", PL_EINVAL},
        {", \"window\": 3, \"groups\": \"holiday\"", "make a file of each group",
         PL_EINVAL},
        {", \"window\": 3, \"target\": \"class\"", "windows predict values", PL_EINVAL},
        {", \"window\": 3, \"missing\": \"drop\"", "\"missing\" is drop", PL_EINVAL},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        refused(open_series(PL_TRAIN, 0, 1, cases[k].more), cases[k].code,
                cases[k].pattern, cases[k].more);
    char options[300];
    snprintf(options, sizeof options,
             "{\"path\": \"%s\", \"time\": \"t\", \"window\": 1}",
             file_put_text("back.csv", "t,v\n1,10\n3,20\n2,30\n"));
    refused(rig_open_told(&pl_csv_dataset, PL_TRAIN, NULL, options), PL_EFORMAT,
            "back.csv:4:.*field 1 .t.: \"2\" is not later than the row above",
            "times that fall");
}

/* Opens a table with a window of two rows. */
static rig_t open_text(pl_stage_t stage, const char *text, const char *time)
{
    char options[300];
    snprintf(options, sizeof options,
             "{\"path\": \"%s\", \"time\": \"%s\", \"window\": 2, \"ignore\": \"\", "
             "\"standardize\": false}",
             file_put_text("times.csv", text), time);
    return rig_open_told(&pl_csv_dataset, stage, NULL, options);
}

static void a_time_may_stand_in_several_columns(void)
{
    const char *text = "year,quarter,v\n2001,3,10\n2001,4,20\n2002,1,30\n2002,2,40\n";
    rig_t rig = open_text(PL_TRAIN, text, "year,quarter");
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(has_field(&rig, 0, "x", PL_F32, "2,1"), "none of them is a feature");
    rig_close(&rig);
    rig = open_text(PL_TRAIN, "year,month,v\n2001,Nov,1\n2001,December,2\n2002,jan,3\n",
                    "year,month");
    is_int(rig.code, PL_OK, "a month may be a name: %s", rig.err.text);
    rig_close(&rig);
    refused(open_text(PL_TRAIN, text, "year"), PL_EFORMAT,
            "times.csv:3:1: field 1 .year.: \"2001\" is not later than the row above",
            "the year alone stays");
    refused(open_text(PL_TRAIN, text, "year,month"), PL_EINVAL,
            "\"time\": there is no column \"month\"", "a column that is not there");
    refused(open_text(PL_TRAIN, "year,q,v\n2001,Q3,1\n2001,Q4,2\n2001,Q5,3\n", "year,q"),
            PL_EFORMAT,
            "times.csv:4:6: field 2 .q.: \"Q5\" is neither a number nor a date like",
            "a quarter that is none");
}

static void the_newest_row_may_be_the_first(void)
{
    rig_t rig = open_text(PL_TRAIN,
                          "t,v\n2001-04,40\n2001-03,30\n2001-02,20\n2001-01,10\n", "t");
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    rig_read(&rig, INDEX(0, 1));
    const float *x = rig.field[0], *y = rig.field[1];
    ok(x[0] == 10 && x[1] == 20 && y[0] == 30 && x[2] == 20 && y[1] == 40,
       "rows are read from the last one up");
    rig_close(&rig);
    refused(open_text(PL_TRAIN, "t,v\n4,40\n3,30\n3,20\n1,10\n", "t"), PL_EFORMAT,
            "times.csv:4:1: field 1 .t.: \"3\" is not earlier than the row above",
            "a time that stays");
}

static void predictions_have_the_time_of_the_row_they_predict(void)
{
    rig_t rig = open_text(PL_PREDICT, "year,q,v\n2001,Q3,1\n2001,Q4,2\n2002,Q1,3\n",
                          "year,q");
    like(rig.info.data_info, "\"times\": .\"2002 Q1\",\"\".",
         "as it stands in the file; the last row is behind it: %s", rig.info.data_info);
    rig_close(&rig);
    rig = open_text(PL_PREDICT, "v\n1\n2\n3\n", "");
    like(rig.info.data_info, "\"rows\": .\"2\",\"3\".", "or the number of the row");
    rig_close(&rig);
    refused(
        open_text(PL_PREDICT, "v\n1\n", ""), PL_EFORMAT,
        "times.csv: the file has 1 row, but at least 2 are needed: put the last 2 rows "
        "of the older file, the \"window\", in front",
        "a file that is shorter than the window");
}

static void memory_may_run_out(void)
{
    char value[300];
    snprintf(value, sizeof value, "%s\", \"window\": 2, \"time\": \"year,month",
             file_put_text("m.csv",
                           "year,month,v\n2002,Jan,4\n2001,Dec,3\n2001,Nov,2\n"));
    opens_without_memory(&pl_csv_dataset, "path", value);
}

int main(void)
{
    run(windows_predict_the_rows_behind_them);
    run(windows_know_covariates_in_advance);
    run(windows_scale_each_target_by_the_training_part);
    run(gaps_of_a_series_are_filled_along_a_line);
    run(windows_that_are_not_possible_are_refused);
    run(a_time_may_stand_in_several_columns);
    run(the_newest_row_may_be_the_first);
    run(predictions_have_the_time_of_the_row_they_predict);
    run(memory_may_run_out);
    return tap_done();
}
