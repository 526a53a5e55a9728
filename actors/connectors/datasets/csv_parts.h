/* csv_parts.h - the table that csv.c (the data set) and csv_columns.c (the uses of its
 * columns) share */
#ifndef PL_DATASETS_CSV_PARTS_H
#define PL_DATASETS_CSV_PARTS_H

#include "actors/connectors/datasets/datasets.h"
#include "formats/csv.h"

/* The key in the data info: the names of each field's columns, {"x": ["a", "b"], "y":
 * ["c"]}. */
#define COLUMNS "columns"

/* The words of the option "target", and the type that was found. */
typedef enum csv_target {
    TARGET_AUTO,
    TARGET_CLASS,
    TARGET_VALUE,
    TARGET_NONE
} csv_target_t;

/* The use of a column; 0 and more: its place among the columns of further fields. */
enum { FOR_FEATURE = -1, FOR_TARGET = -2, FOR_NOTHING = -3 };

typedef struct csv_dataset {
    const char *path;
    pl_csv_header_t header;
    csv_target_t target;
    pl_texts_t others;                                     /* "weight": "column,column" */
    int64_t label, ignore_index;
    bool standardize;
    pl_csv_t table;                                         /* while it is opened */
    int64_t rows;
    csv_target_t kind;
    int column;                                            /* of the target; -1: none */
    int *use;                                              /* [columns] */
    int *from;                                             /* [features]: their columns */
    uint32_t rank;
    int features, other_columns;
    int width[PL_FIELDS];                             /* columns of each other field */
    float *other;                                     /* [rows, other_columns] */
    int64_t classes;                                  /* 0: no classes */
    json_t *places;                                   /* name -> column, while it is
                                                         opened */
    json_t *names;                                    /* of the columns, for the data info
                                                         [by position] */
    pl_moments_t *moments;                            /* [features] */
    float *x;                                         /* [rows, features] */
    double *y;                                        /* [rows]  [no target] */
} csv_dataset_t;

static inline double csv_at(const csv_dataset_t *csv, int64_t row, int column)
{
    return csv->table.value[row * csv->table.columns + column];
}

/* Finds the use of each column, from the names of the training data if both files have
 * names, else by position. */
int csv_find_uses(csv_dataset_t *csv, const json_t *data_info, pl_stage_t stage,
                  pl_error_t *err);

/* {"x": ["a", "b"], "y": ["c"], …} for the data info; NULL with PL_OK: other files cannot
 * be matched by name. */
int csv_names(const csv_dataset_t *csv, json_t **names_p, pl_error_t *err);

/* Finds the type of the target, then the number of classes. */
int csv_find_target(csv_dataset_t *csv, const json_t *data_info, pl_error_t *err);
int csv_count_classes(csv_dataset_t *csv, const pl_data_request_t *request,
                      const json_t *data_info, pl_error_t *err);

#endif
