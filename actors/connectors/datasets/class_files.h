/* class_files.h - files of classes: a folder for each class, or a table of paths and
 * classes
 *
 * What data sets share whose samples are files: their options, the list of files with the
 * numbers of the classes, and what becomes of a damaged file. */
#ifndef PL_CLASS_FILES_H
#define PL_CLASS_FILES_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "paceline.h"

/* What the files are. */
typedef struct pl_file_kind {
    const char *dataset;                             /* in the log: "data set pictures" */
    const char *what;                                /* in errors: "picture" */
    const char *endings;                             /* of names: ".png, .jpg" */
} pl_file_kind_t;

extern const pl_file_kind_t pl_picture_files, pl_sound_files, pl_text_files;

typedef struct pl_file_list {
    int64_t count;
    char **path;                                            /* [count], each owned */
    int64_t *label;                                         /* [count]; -1: no class */
    int64_t capacity;
    json_t *class_names;                                    /* list, sorted */
    int64_t others;                                         /* files that are left out */
    char *other;                                            /* one of them  [none] */
} pl_file_list_t;

typedef struct pl_file_source {
    const pl_file_kind_t *kind;
    const char *path;                        /* a folder of classes, or a table */
    const char *file, *label;                /* columns of the table, by name or number
                                                ["": the first, the last] */
    bool links;                              /* follow links out of the folder */
    bool without_classes;                    /* classes have no meaning: predictions */
    const json_t *class_names;               /* of the training data; borrowed  [found] */
} pl_file_source_t;

/* Lists the files of a source: of a folder in the order of classes and names, of a table
 * in its order.  The caller releases *list, also after an error.  PL_ENOTFOUND,
 * PL_EFORMAT, PL_EINVAL, PL_EIO, PL_ENOMEM. */
int pl_files_find(const pl_file_source_t *source, pl_file_list_t *list, pl_error_t *err);
void pl_files_release(pl_file_list_t *list);

/* The folder of a stage's data: path, or in it train, and test or val.  From pl_text();
 * NULL: out of memory. */
char *pl_stage_folder(const char *path, pl_stage_t stage);

/* ---- The files of a data set ---- */

#define PL_DAMAGED_WORDS "error|skip"
typedef enum pl_damaged { PL_DAMAGED_ERROR, PL_DAMAGED_SKIP } pl_damaged_t;

/* What data threads note while they read. */
typedef struct pl_skipped {
    atomic_llong count;
    atomic_bool sample[];                                   /* is one of them */
} pl_skipped_t;

typedef struct pl_class_files {
    const char *path, *file, *label;                        /* options */
    bool links;
    int damaged;                                  /* pl_damaged_t */
    const pl_file_kind_t *kind;                   /* from here on: of the open data set */
    pl_file_list_t list;
    int64_t classes;
    bool has_target;                                      /* the stage is no prediction */
    uint32_t rank;
    pl_skipped_t *skipped;
} pl_class_files_t;

/* The options: `files` is the member of the struct; `what` is in the help, "pictures". */
#define PL_CLASS_FILES_OPTIONS(type, files, what) \
    {"path", \
     PL_OPTION_TEXT, \
     offsetof(type, files.path), \
     NULL, \
     NULL, \
     "a folder with a folder of " what " for each class, or with such folders in " \
     "train/ and test/ or val/; or a table (CSV) of paths and classes"}, \
        {"file", \
         PL_OPTION_TEXT, \
         offsetof(type, files.file), \
         "\"\"", \
         NULL, \
         "column of the table with the paths, by name or number; relative paths begin " \
         "at the table's folder; \"\": the first"}, \
        {"label", \
         PL_OPTION_TEXT, \
         offsetof(type, files.label), \
         "\"\"", \
         NULL, \
         "column of the table with the classes, by name or number; \"\": the last"}, \
        {"links", PL_OPTION_BOOL, offsetof(type, files.links), \
         "false", NULL,           "follow links that lead out of the folder"}, \
    { \
        "damaged", PL_OPTION_WORD, offsetof(type, files.damaged), "\"error\"", \
            PL_DAMAGED_WORDS, \
            what " that cannot be decoded: an error, or named in the log, counted, and " \
                 "without a class" \
    }

/* Finds the files of a stage, and logs how many others are left out.  The caller closes
 * *files, also after an error.  Errors of pl_files_find(); PL_EFORMAT: there are none. */
int pl_class_files_open(pl_class_files_t *files, const pl_file_kind_t *kind,
                        const pl_data_request_t *request, pl_error_t *err);
void pl_class_files_close(pl_class_files_t *files);

/* The data info, with classes and their names, and of data to predict with the path of
 * each file (PL_DATA_FILES); of samples of that shape.  From pl_text();
 * NULL: out of memory. */
char *pl_class_files_data_info(const pl_class_files_t *files, const pl_shape_t *shape);

/* The answer to a sample whose reading gave `code` and `why`: PL_OK, with *label its
 * class; PL_OK for damage that is to be skipped, with *label -1, named in the log once;
 * or the code.  Any thread. */
int pl_class_files_answer(const pl_class_files_t *files, int64_t sample, int code,
                          const pl_error_t *why, int64_t *label, pl_error_t *err);

#endif
