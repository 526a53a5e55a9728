/* options.h - a run, for actors
 *
 * paceline.h has the functions that make, change and print a run.  Actors bind the
 * sections that they own, and find components by path: "module", "trainer.strategy",
 * "callbacks.0". */
#ifndef PL_BASE_OPTIONS_H
#define PL_BASE_OPTIONS_H

#include <jansson.h>

#include "base/bind.h"
#include "base/run.h"
#include "paceline.h"

#define PL_RUN_FILE_MAX ((size_t)16 << 20)                  /* bytes */

/* Time limit for the next bytes of a run file that is a pipe; tests shorten it. */
extern int pl_run_file_wait_ms;

struct pl_options {
    json_t *root;                    /* as given, without defaults */
    json_t *set;                     /* key -> text, as given to pl_options_set() */
    char *name;                      /* of the file  [the run was not read from a text] */
    char *text;                      /* of root, for positions */
    size_t length;
    bool is_unchecked;                    /* by pl_options_read(): its keys and values are
                                             checked later */
};

/* A run from its text (consumed, also on failure): [length], then a NUL.  Comments and
 * commas after the last element are allowed. */
pl_options_t *pl_options_take(char *text, size_t length, const char *name,
                              pl_error_t *err);

/* The given value at a path, or NULL; null counts as not given.  Borrowed; do not change
 * it. */
const json_t *pl_options_value(const pl_options_t *o, const char *path);

/* The number of entries of a list: "callbacks", "loggers", "plugins". */
int pl_options_count(const pl_options_t *o, const char *list);

/* The name of the component at a path.  Not given: "auto" for the trainer's components,
 * NULL for others. */
const char *pl_options_component_name(const pl_options_t *o, const char *path);
/* The name of the component at a path, or `automatic` for "auto" and for none. */
const char *pl_options_choice(const pl_options_t *o, const char *path,
                              const char *automatic);

/* PL_OK if a component is given at a path; PL_ENOTFOUND says which key to set. */
int pl_options_needs(const pl_options_t *o, const char *role, const char *path,
                     pl_error_t *err);
/* PL_OK if the data set that a stage reads is given. */
int pl_options_needs_source(const pl_options_t *o, pl_stage_t stage, pl_error_t *err);

/* An error of a key, such as "trainer.devices" or "callbacks.0.monitor": the text
 * (printf) behind the position of the key in the file, or of the object that lacks it. */
int pl_options_fail(pl_error_t *err, int code, const pl_options_t *o, const char *key,
                    const char *format, ...) PL_PRINTF(5, 6);

/* The trainer's options.  Free the binding after the struct's last use. */
int pl_options_trainer(const pl_options_t *o, pl_trainer_options_t *trainer,
                       pl_binding_t **binding_p, pl_error_t *err);
/* The keys of a table, such as pl_data_table, in a section that also has the options of
 * its component; into is the table's struct, a pl_data_options_t. */
int pl_options_general(const pl_options_t *o, const char *path, const pl_option_t *table,
                       void *into, pl_binding_t **binding_p, pl_error_t *err);

/* The component at a path.  `automatic` is the name that "auto" or no value stands for
 * [an error]; data_info is the JSON object of pl_data_info_t  [none].  PL_ENOTFOUND: no
 * component is given, or it does not exist. */
typedef struct pl_component_request {
    const char *role, *path;
    const char *automatic;
    const char *data_info;
} pl_component_request_t;
int pl_options_component(const pl_options_t *o, const pl_component_request_t *request,
                         pl_instance_t *instance, pl_error_t *err);

/* The number of the device that a rank opens; -1: trainer.devices is not a list. */
PL_API int pl_options_device(const pl_options_t *o, int local_rank);

/* The data set that a stage reads; PL_ENOTFOUND: the stages have separate sources, and
 * this stage has none.  A prediction without a source of its own reads the test data. */
int pl_options_source(const pl_options_t *o, pl_stage_t stage, uint32_t loader,
                      pl_instance_t *instance, pl_error_t *err);
/* The number of sources of a stage; `loader` is below it. */
uint32_t pl_options_loaders(const pl_options_t *o, pl_stage_t stage);
/* Whether the stages have separate sources. */
bool pl_options_has_sources(const pl_options_t *o);

/* The given run on one line, which workers read with pl_options_parse().  Free it with
 * pl_text_free(). */
char *pl_options_text(const pl_options_t *o, pl_error_t *err);

#endif
