/* csv_parts.h - the table that csv.c (the data set), csv_columns.c (the uses of columns),
 * csv_target.c (the target), csv_learn.c (what is learnt from the rows), csv_recipe.c
 * (how columns become numbers), csv_words.c (free texts), csv_windows.c (windows over
 * time series), csv_time.c (their order), csv_stream.c and csv_scan.c (tables that stay
 * on the disk) share */
#ifndef PL_DATASETS_CSV_PARTS_H
#define PL_DATASETS_CSV_PARTS_H

#include "actors/connectors/datasets/datasets.h"
#include "actors/connectors/sampler.h"
#include "base/log.h"
#include "formats/date.h"
#include "formats/table.h"

/* Keys in the data info: the names of each field's columns, {"x": ["a", "b"], "y":
 * ["c"]}; the recipes of the columns of "x"; the names of classes. */
#define COLUMNS "columns"
#define RECIPES "prepare"
#define CLASS_NAMES "class_names"
/* The share of the most frequent class among the rows: what a constant answer reaches. */
#define CLASS_SHARE "class_share"
/* Of windows: the mean absolute error in the rows for validation if each forecast repeats
 * the last value. */
#define REPEATED_MAE "repeated_mae"
/* The number of different values of the field "c". */
#define CATEGORY_VALUES "category_values"

/* The number of labels of a sample. */
#define LABELS "labels"

/* Columns that windows predict. */
#define CSV_TARGETS 16

/* Columns of a time. */
#define CSV_TIMES 6

/* The words of the option "target", and the type that was found. */
typedef enum csv_target {
    TARGET_AUTO,
    TARGET_CLASS,
    TARGET_VALUE,
    TARGET_NONE
} csv_target_t;

/* The words of the option "missing". */
typedef enum csv_missing {
    MISSING_ERROR,
    MISSING_MEAN,
    MISSING_MEDIAN,
    MISSING_MOST_FREQUENT,
    MISSING_DROP,
    MISSING_CATEGORY
} csv_missing_t;

/* The use of a column; 0 and more: its place among the columns of further fields. */
enum { FOR_FEATURE = -1, FOR_TARGET = -2, FOR_NOTHING = -3 };

typedef enum csv_kind {
    KIND_NUMBER,
    KIND_CATEGORY,
    KIND_DATE,
    KIND_TEXT,                                              /* not used */
    KIND_WORDS                                              /* texts by their words */
} csv_kind_t;

/* Features of a date behind its days: a sine and a cosine each. */
enum { DATE_YEAR = 1, DATE_WEEK = 2, DATE_DAY = 4 };

/* How a column becomes features; learnt from the rows to train on. */
typedef struct csv_recipe {
    csv_kind_t kind;
    double fill;                       /* number, date: for an empty cell  [NAN: an
                                          error] */
    bool indicator;                    /* number: a further feature is 1 where the cell is
                                          empty */
    pl_date_order_t order;             /* date */
    int parts;                         /* date: bits of DATE_… */
    json_t *values;                    /* category, words: {value or term: its place};
                                          "": empty  [number, date, text] */
    json_t *weights;                   /* words: [number for each term]  [not words] */
    bool other;                        /* category: a place for rare and unknown values */
    bool is_index;                     /* category: a number for an embedding */
    int frequent;                      /* category: place for an empty cell  [-1: the
                                          place of ""] */
    int width;                         /* features in "x" */
} csv_recipe_t;

/* The cells of a column, counted for its kind. */
typedef struct csv_kinds {
    int64_t filled, numbers, dates[3];
    json_t *counts, *words;                   /* different cells; those without numbers */
} csv_kinds_t;

/* The numbers of a column. */
typedef struct csv_numbers {
    int64_t count, empty;                     /* rows to train on with one, without one */
    double mean, squares;                     /* of those; squares of distances from it */
    bool any;
    double first, smallest, largest;                /* of all rows; first: rounded down */
    int parts;                                      /* in which dates differ */
} csv_numbers_t;

/* The cells of the target. */
typedef struct csv_labels {
    int64_t rows, words;                  /* of them no numbers */
    pl_error_t word;                      /* the error that the first of those would be */
    bool is_empty;                        /* a row to predict has none */
    int64_t odd_line;                     /* of the first number that is neither whole and
                                             from 0 nor ignored  [0] */
    double odd;
    bool whole;                                        /* all are whole */
    double smallest, largest;                          /* of those that are not ignored */
    int kinds;                                         /* different ones, up to 3 */
    double seen[3];
    bool gathers;                                  /* counts names, up to a limit */
    json_t *names;                                 /* of classes: times  [not gathered] */
} csv_labels_t;

/* A part of a table that stays on the disk. */
typedef struct csv_part {
    const char *text;
    size_t size;
    const pl_table_t *head;                /* its format and its columns  [the part is the
                                              beginning, which shows them] */
    bool is_json;
    int64_t line;                                 /* of the file, where the part begins */
} csv_part_t;

typedef struct csv_stream csv_stream_t;

/* The run file's. */
typedef struct csv_options {
    const char *path, *delimiter, *comment, *missing_values;
    const char *from_table, *query;                         /* of a database */
    pl_csv_header_t header;
    int decimal;                                            /* a word, as the next two */
    int categories, texts;
    int64_t skip_lines;
    const char *target;                                     /* a word, or columns */
    int64_t label, ignore_index;
    pl_texts_t fields;                                     /* "weight": "column,column" */
    const char *used, *ignored, *groups;                   /* columns */
    csv_missing_t missing;
    int64_t rare, terms;
    int64_t window, horizon, stride;                       /* rows; window 0: none */
    const char *covariates, *time;                         /* of windows, columns  [""] */
    bool overlap, standardize, streams;
} csv_options_t;

/* What is opened: csv_begin(), and csv_stream.c for its parts. */
typedef struct csv_source {
    uint32_t rank;
    pl_stage_t stage;
    const csv_part_t *part;                                 /* that this is  [all] */
    int64_t base;                                           /* row of the first one */
    const csv_kinds_t *kinds;                               /* [sources], counted before
                                                               [found here] */
} csv_source_t;

/* The columns of the option "time". */
typedef struct csv_time {
    int columns;                                            /* 0: the option is "" */
    int column[CSV_TIMES];                                  /* the first counts most */
    bool is_date[CSV_TIMES];                                /* a number, or a date */
    pl_date_order_t order[CSV_TIMES];
} csv_time_t;

/* Which column is what: csv_find_uses(), and csv_windows_begin() before it. */
typedef struct csv_columns {
    csv_target_t wanted;                          /* the type that the run file says, or
                                                     NONE where there is none after all */
    int64_t label;                                /* its column  [-1: the last] */
    pl_texts_t others;                            /* fields other than a single target */
    int *use;                                     /* [columns] */
    int *from;                                    /* [sources]: their columns */
    int sources;                                  /* columns that become features */
    int target;                                   /* -1: none */
    int group;                                    /* -1: none */
    int width[PL_FIELDS];                         /* columns of each other field */
    int other_columns;                            /* of all of them */
    int targets;                                  /* columns to predict, if several */
    int target_column[CSV_TARGETS];               /* of windows */
    csv_time_t time;                              /* of windows */
    bool are_several;                             /* without windows: the field "y" has
                                                     several columns */
    json_t *places;                               /* name -> column, while it is opened */
    json_t *names;                                /* for the data info  [by position] */
} csv_columns_t;

/* What the training data say: csv_find_target(), csv_find_recipes(), csv_prepare(). */
typedef struct csv_learnt {
    csv_target_t kind;                           /* of the target */
    int labels;                                  /* several targets that are all 0 or 1
                                                    [0: values] */
    int64_t classes;                             /* 0: no classes */
    double class_share;                          /* of the largest class */
    double repeated_mae;                         /* 0: unknown */
    json_t *class_names;                         /* list  [numbers from 0] */
    pl_moments_t scales[CSV_TARGETS];            /* of each target; factor 0: no values */
    csv_recipe_t *recipe;                        /* [sources] */
    int features, indexes;
    int64_t index_values;                                   /* of all indexes together */
    pl_moments_t *moments;                                  /* [features] */
} csv_learnt_t;

/* What csv_read() copies. */
typedef struct csv_samples {
    float *x;                                       /* [rows, features] */
    int64_t *index;                                 /* [rows, indexes]: "c" */
    double *y;                                      /* [rows], of windows [rows, targets]
                                                       [no target] */
    float *other;                                   /* [rows, other_columns] */
    int64_t *group;                                 /* [rows]  [none] */
    int64_t first, windows;                         /* row of the first window; windows */
} csv_samples_t;

/* The parts in the order in which opening fills them. */
typedef struct csv_dataset {
    csv_options_t options;                       /* the first, where they are read into */
    csv_source_t source;
    pl_table_t table;                                 /* csv_load(), while it is opened */
    int64_t rows;
    csv_columns_t columns;
    csv_learnt_t learnt;
    csv_samples_t samples;
    csv_stream_t *stream;                                   /* [the rows are in memory] */
} csv_dataset_t;

/* One line for the run, not for each rank. */
PL_PRINTF(3, 4)
void csv_log(const csv_dataset_t *csv, pl_log_level_t level, const char *format, ...);

/* What to do with a text that is not UTF-8. */
#define CSV_CONVERT \
    "convert the file, such as by: iconv -f WINDOWS-1252 -t UTF-8 FILE >FILE-utf8"

#define CSV_MISSING_VALUES "NA,N/A,NaN,nan,NULL,null,None,<NA>,#N/A,?"

/* Takes what the run file says, before anything else; the columns that "target" names
 * become the field "y". */
int csv_begin(csv_dataset_t *csv, const pl_data_request_t *request, pl_error_t *err);

/* Reads the table, and empties the cells that are as good as empty. */
int csv_load(csv_dataset_t *csv, pl_error_t *err);
/* The rows at the beginning of text[0..all), in at most so many bytes. */
int csv_load_begin(csv_dataset_t *csv, const char *text, size_t all, size_t most,
                   pl_error_t *err);

/* Numbers the groups of the rows, in the order in which they come. */
int csv_number_groups(csv_dataset_t *csv, pl_error_t *err);

/* A column by its name, or its number from 0, in text[0..length); -1: there is none. */
int csv_column(const pl_table_t *table, const char *text, size_t length);

/* "3 (petal_width)", or "3" without a header. */
const char *csv_column_text(const pl_table_t *table, int column, char text[static 80]);

/* PL_EFORMAT: "FILE:LINE:COLUMN: field 3 (name): \"four\" is not WHAT". */
int csv_wrong_cell(const csv_dataset_t *csv, int64_t row, int column, const char *what,
                   pl_error_t *err);

/* Finds the use of each column, from the names of the training data if both files have
 * names, else by position. */
int csv_find_uses(csv_dataset_t *csv, const json_t *data_info, pl_stage_t stage,
                  pl_error_t *err);

/* {"x": ["a", "b"], "y": ["c"], …} for the data info; NULL with PL_OK: other files cannot
 * be matched by name. */
int csv_names(const csv_dataset_t *csv, json_t **names_p, pl_error_t *err);

/* ---- csv_target.c ---- */

/* Counts the cells of the target of this table, after those of others; leaves y, numbers
 * where there are any. */
int csv_labels_count(csv_dataset_t *csv, csv_labels_t *labels, pl_error_t *err);
/* Finds the type of the target, and numbers the classes of the rows. */
int csv_labels_decide(csv_dataset_t *csv, const csv_labels_t *labels,
                      const json_t *data_info, pl_error_t *err);
/* The number of classes of a table in parts, after csv_labels_decide(). */
void csv_labels_classes(csv_dataset_t *csv, const csv_labels_t *labels,
                        const pl_data_request_t *request);

/* PL_EINVAL: no column is the target that is called text[0..length). */
int csv_refuse_target(const csv_dataset_t *csv, const char *text, size_t length,
                      pl_error_t *err);

/* Whether the field "y" lists several columns, which it then keeps; in data to predict it
 * goes if one of them is missing.  `k`: its place among the further fields. */
int csv_several_targets(csv_dataset_t *csv, int k, pl_stage_t stage, bool *are_several,
                        pl_error_t *err);

/* A cell of several targets: a number, or yes, no, true or false; false: neither. */
bool csv_answer(const csv_dataset_t *csv, int64_t row, int column, double *value);

/* Decides whether several targets are labels, or measures their scales. */
int csv_several_decide(csv_dataset_t *csv, const pl_data_split_t *split,
                       const json_t *data_info, pl_error_t *err);

/* Reads y and finds the type of the target. */
int csv_find_target(csv_dataset_t *csv, const json_t *data_info, pl_error_t *err);
/* Then the number of classes. */
int csv_count_classes(csv_dataset_t *csv, const pl_data_request_t *request,
                      const json_t *data_info, pl_error_t *err);

/* ---- csv_learn.c ---- */

/* Counts the cells of a column, after those of other tables; not 0: no memory. */
int csv_kinds_count(const csv_dataset_t *csv, int column, csv_kinds_t *kinds);
void csv_kinds_decide(const csv_kinds_t *kinds, csv_recipe_t *recipe);
void csv_kinds_release(csv_kinds_t *kinds);
/* Finds the kind of a column, and of dates their order. */
int csv_find_kind(const csv_dataset_t *csv, int column, csv_recipe_t *recipe,
                  pl_error_t *err);

/* The numbers [rows] of source k; NAN: the cell is empty. */
int csv_read_numbers(const csv_dataset_t *csv, int k, double *value, pl_error_t *err);
/* Adds numbers [rows] to those of other tables. */
void csv_numbers_add(csv_numbers_t *numbers, const csv_dataset_t *csv,
                     const pl_data_split_t *split, const double *value);
/* The moments that scale numbers to mean 0 and deviation 1; `fill` stands for those that
 * are empty  [NAN: they do not count]. */
pl_moments_t csv_numbers_moments(const csv_numbers_t *numbers, double fill);
/* The recipe of a number or a date, without a median. */
void csv_numbers_decide(const csv_options_t *options, const csv_numbers_t *numbers,
                        csv_recipe_t *recipe);

/* Counts the values of a category in the rows to train on, after those of others. */
int csv_count_values(const csv_dataset_t *csv, const pl_data_split_t *split, int k,
                     json_t *counts, pl_error_t *err);
/* The recipe of source k: the values that are frequent enough, sorted. */
int csv_values_decide(const csv_dataset_t *csv, int k, json_t *counts, pl_error_t *err);

/* Learns all recipes, and numbers [sources], from the rows that the split does not hold;
 * value [rows] is free. */
int csv_learn(csv_dataset_t *csv, const pl_data_split_t *split, double *value,
              csv_numbers_t *numbers, pl_error_t *err);

/* ---- csv_recipe.c ---- */

/* PL_EFORMAT: a cell of source k is empty and has no treatment. */
int csv_refuse_empty(const csv_dataset_t *csv, int k, pl_error_t *err);

/* Counts features and takes the memory of rows, and of moments, which are 0 and 1. */
int csv_layout(csv_dataset_t *csv, pl_error_t *err);

/* Finds the kinds of the sources, or reads the recipes of the training data; drops
 * columns of text. */
int csv_find_recipes(csv_dataset_t *csv, const json_t *data_info, pl_error_t *err);

/* Learns the recipes of training data from the rows that the split does not hold, then
 * fills x, index and moments. */
int csv_prepare(csv_dataset_t *csv, const pl_data_split_t *split, const json_t *data_info,
                pl_error_t *err);

/* Adds 1 to the count of a text; not 0: no memory. */
int csv_count_text(json_t *counts, const char *text);

/* The moments of numbers [rows] of the rows to train on; `fill` stands for NAN. */
pl_moments_t csv_measure(const csv_dataset_t *csv, const pl_data_split_t *split,
                         const double *value, double fill);

/* The recipes for the data info; NULL with PL_OK: all columns are plain numbers. */
int csv_recipes(const csv_dataset_t *csv, json_t **recipes_p, pl_error_t *err);

/* ---- csv_windows.c ---- */

/* Checks the options of windows, and takes the columns to predict from the fields. */
int csv_windows_begin(csv_dataset_t *csv, pl_error_t *err);
/* Finds the windows of the request's share, reads their targets, and sets the split to
 * the rows that are not trained on. */
int csv_windows_split(csv_dataset_t *csv, const pl_data_request_t *request,
                      pl_data_split_t *split, pl_error_t *err);
/* Measures the scales of the targets. */
int csv_windows_scale(csv_dataset_t *csv, const pl_data_split_t *split, pl_error_t *err);
/* Makes the prepared features of covariates those of later rows. */
int csv_windows_shift(csv_dataset_t *csv, pl_error_t *err);
/* Fills gaps in a series, NAN, along a line; those at an end with the nearest number. */
void csv_fill_gaps(double *value, int64_t count);

/* Numbers to predict. */
int64_t csv_windows_outputs(const csv_dataset_t *csv);
void csv_windows_read(const csv_dataset_t *csv, const pl_read_request_t *request,
                      void *const field[]);

/* ---- csv_time.c ---- */

/* The order of the rows by their time, as most of it says. */
enum {
    CSV_TIME_NONE,                                          /* a cell has no time */
    CSV_TIME_RISES,                                         /* from row to row */
    CSV_TIME_FALLS,
    CSV_TIME_REPEATS,                                       /* rises or falls, or stays */
    CSV_TIME_MIXED
};

/* Finds the columns of a list, "year,month". */
int csv_time_find(const csv_dataset_t *csv, const char *columns, csv_time_t *time,
                  pl_error_t *err);
int csv_time_order(const csv_dataset_t *csv, const csv_time_t *time);
/* Whether rows are missing in a table whose rows all have a time and are in order: a few
 * steps are longer than one and a half usual ones.  `text` says so, and what to do. */
#define CSV_TIME_TEXT 300
bool csv_time_lacks_rows(const csv_dataset_t *csv, const csv_time_t *time,
                         char text[static CSV_TIME_TEXT]);
/* Finds the columns of "time", and brings the rows into their order if the newest is the
 * first.  PL_EFORMAT names the first row that is in neither order. */
int csv_time_sort(csv_dataset_t *csv, pl_error_t *err);
/* The time of the first row that each window predicts, as it stands in the file; without
 * "time", the number of the row, from 0.  "": the row is behind the file.  A JSON list,
 * from pl_text(); NULL: no memory. */
char *csv_time_names(const csv_dataset_t *csv);

/* ---- csv_stream.c ---- */

/* Opens a table that stays on the disk. */
int csv_stream_open(csv_dataset_t *csv, const pl_data_request_t *request,
                    pl_data_info_t *info, pl_error_t *err);
int csv_stream_read(const csv_dataset_t *csv, const pl_read_request_t *request,
                    void *const field[], pl_error_t *err);
void csv_stream_close(csv_stream_t *stream);

/* ---- csv_scan.c ---- */

/* A scan of a file from its first row on. */
typedef struct table_scan {
    const char *path;
    int fd;
    bool is_json;
    const pl_table_t *head;                                 /* columns and format */
    char *text;                                             /* to be freed  [none] */
    size_t size, capacity, from;                            /* from: the next part */
    uint64_t at;                                            /* of text in the file */
    int64_t line;
    bool ends;                                              /* the file ends with text */
} table_scan_t;

/* Finds the next part, whose text is the scan's; of size 0: the file ends. */
int csv_scan_next(table_scan_t *scan, csv_part_t *part, pl_error_t *err);
/* Reads the table of a part. */
int csv_part_load(csv_dataset_t *csv, pl_error_t *err);

/* ---- csv.c ---- */

int csv_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
             pl_error_t *err);
int csv_read(const void *self, const pl_read_request_t *request, void *const field[],
             pl_error_t *err);
void csv_close(void *self);
/* Describes what was learnt, as the data info  [NULL: an error]. */
char *csv_data_info(const csv_dataset_t *csv, pl_error_t *err);
/* Empties the cells that only say that there is nothing. */
void csv_empty_cells(csv_dataset_t *csv);
/* By its ending; .gz or .zst may follow. */
bool csv_is_json_lines(const char *path);
struct pl_file_list;
/* Lists the texts in a folder and below it, in the order of their names; *json, *other:
 * the first that is JSON Lines, and that is not  [NULL].  The caller releases *list, also
 * after an error. */
int csv_find_texts(const char *folder, struct pl_file_list *list, const char **json,
                   const char **other, pl_error_t *err);
/* Says that a folder should not have both: PL_EFORMAT. */
int csv_refuse_mixture(const char *folder, const char *json, const char *other,
                       pl_error_t *err);
/* The character that an option names; `none` for "none". */
int csv_character(const char *path, const char *option, const char *text, char *found,
                  pl_error_t *err);

/* ---- csv_words.c ---- */

/* Learns the terms of source k from the rows to train on, and their weights. */
int csv_learn_words(const csv_dataset_t *csv, const pl_data_split_t *split, int k,
                    pl_error_t *err);
/* Fills its features, which begin at `at` and are 0. */
int csv_fill_words(csv_dataset_t *csv, int k, int at, pl_error_t *err);

#endif
