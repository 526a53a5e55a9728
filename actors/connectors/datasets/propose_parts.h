/* propose_parts.h - what the files share that propose a run */
#ifndef PL_DATASETS_PROPOSE_PARTS_H
#define PL_DATASETS_PROPOSE_PARTS_H

#include <string.h>
#include <strings.h>

#include "actors/connectors/datasets/class_files.h"
#include "actors/connectors/datasets/csv_parts.h"

/* What a column of a table contains. */
typedef struct table_column {
    csv_kind_t kind;
    pl_date_order_t order;                    /* of dates */
    int64_t filled;                           /* cells */
    int64_t distinct;                         /* up to a limit */
    int64_t blanks;                           /* in all cells */
    bool whole;                               /* all are whole numbers */
    bool counts;                              /* each is one more than the one above */
    bool rises, steps;                        /* all numbers or dates rise; by the same */
    double first;                             /* number */
    bool odd;                                 /* had cells that are no numbers */
    bool unused;
} table_column_t;

typedef struct proposal {
    json_t *run, *reasons;                                  /* NULL: out of memory */
    csv_dataset_t csv;
    table_column_t *column;
    json_t *odd;                              /* cells that are as good as empty, as
                                                 keys */
    char *missing;                            /* "missing_values" with them  [as usual] */
    int target;
    double larger;                            /* the file is so many times what was looked
                                                 at, and is streamed  [0: it was read] */
    char time[200];                           /* of a series: its columns of time  [""] */
} proposal_t;

static inline bool ends_with(const char *path, const char *end)
{
    const size_t length = strlen(path), size = strlen(end);
    return length > size && !strcasecmp(path + length - size, end);
}

/* The reason of a key, "section.key". */
PL_PRINTF(3, 4)
void propose_reason(proposal_t *p, const char *key, const char *format, ...);
/* Sets "section.key" of the run; consumes value. */
void propose_set(proposal_t *p, const char *path, json_t *value);
/* The name of a column for the run file, or its number. */
const char *propose_name(const proposal_t *p, int column, char text[static 24]);
/* The learning rate of most runs. */
#define PROPOSE_LR 0.002

/* Batches, epochs, optimizer and callbacks. */
void propose_training(proposal_t *p, int64_t samples, double lr);
/* A run for a table, a file or a folder; target: the name of its column  [found]. */
int propose_table(proposal_t *p, const char *path, const char *target, pl_error_t *err);

/* Looks at all columns of the table.  Errors name the cell that is not UTF-8. */
int propose_columns(proposal_t *p, pl_error_t *err);
/* Finds the target: the column that the caller names [NULL], one with a usual name, or
 * the last that can be one. */
int propose_find_target(proposal_t *p, const char *wanted, pl_error_t *err);
/* A name for numbers of the rows. */
bool propose_is_id(const char *name);
/* Finds columns that are of no use as features, and lists them.  PL_EFORMAT: none is
 * left. */
int propose_find_unused(proposal_t *p, bool classes, pl_error_t *err);

/* The fewest rows of a series. */
#define PROPOSE_SERIES_ROWS 40

/* Whether the table is a time series: a few columns of numbers in the order of a time, or
 * one column of numbers alone.  Gives the reason, also why a time is none. */
bool propose_find_series(proposal_t *p, bool classes);
/* Windows over the series, to predict the target. */
void propose_series(proposal_t *p);

/* ---- propose_folder.c ---- */

/* A run for a folder, as pl_data_propose() does.  PL_EFORMAT: it has no data that are
 * known. */
int propose_folder(proposal_t *p, const char *path, const char *target, pl_error_t *err);

/* The files of a folder of classes, or of its folder train/. */
typedef struct class_folder {
    const char *path;                                       /* as it was given */
    pl_file_list_t list;                                    /* of training */
    int64_t classes;
    const char *val;                                    /* folder beside train/  [none] */
    bool test;                                          /* train/ and test/ */
} class_folder_t;

/* The sections "data", "optimizer", "scheduler" and "trainer" for files of classes:
 * `source` is the data set without its path; consumed. */
void propose_class_folder(proposal_t *p, const class_folder_t *folder,
                          const pl_file_kind_t *kind, json_t *source);
/* The key of the reasons for an option of the data set. */
#define PROPOSE_SOURCE_KEY(folder, option) ((folder)->val ? "data.train" : "data." option)

/* Source, module and reasons for a folder of pictures; of recordings.  PL_EFORMAT names
 * a file that cannot be read. */
int propose_pictures(proposal_t *p, const class_folder_t *folder, pl_error_t *err);
int propose_sounds(proposal_t *p, const class_folder_t *folder, pl_error_t *err);

/* ---- propose_texts.c ---- */

/* A language model for a text, a file of tokens, a folder of texts, or a field of JSON
 * Lines  [none]. */
void propose_text(proposal_t *p, const char *path, const char *field);
/* Finds the field of JSON Lines that has long texts beside which there is nothing to
 * predict; false: there is none, or the file cannot be read. */
bool propose_prose_field(const char *path, char *field, size_t size);
/* Texts by their words, in a folder of classes. */
void propose_text_classes(proposal_t *p, const class_folder_t *folder);

#endif
