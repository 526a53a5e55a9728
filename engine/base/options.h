/* options.h - what the actors ask a run for
 *
 * paceline.h has the functions that make, change and print a run.  Actors bind the
 * sections they own; those of components are found by path: "module", "trainer.strategy",
 * "callbacks.0". */
#ifndef PL_BASE_OPTIONS_H
#define PL_BASE_OPTIONS_H

#include <jansson.h>

#include "base/bind.h"
#include "base/run.h"
#include "paceline.h"

#define PL_RUN_FILE_MAX ((size_t)16 << 20)                  /* bytes */

/* How long a run file that is a pipe is waited for while nothing comes; tests shorten
 * it. */
extern int pl_run_file_wait_ms;

struct pl_options {
    json_t *root;                          /* as given: no defaults */
    json_t *set;                           /* key -> text, as given to pl_options_set() */
    char *name;                            /* of the file  [the run came from no text] */
    char *text;                            /* what root was read from, for positions */
    size_t length;
};

/* A run from its text, which is consumed, also on failure: [length], then a NUL.
 * Comments and commas behind the last element are allowed. */
pl_options_t *pl_options_take(char *text, size_t length, const char *name,
                              pl_error_t *err);

/* The value at a path, as given, or NULL; null counts as not given.  Borrowed, not to be
 * changed. */
const json_t *pl_options_value(const pl_options_t *o, const char *path);

/* Entries of a list: "callbacks", "loggers", "plugins". */
int pl_options_count(const pl_options_t *o, const char *list);

/* The name of the component at a path; NULL: none given, "auto" included for the
 * trainer's. */
const char *pl_options_component_name(const pl_options_t *o, const char *path);
/* The same, `automatic` standing for "auto" and for none. */
const char *pl_options_choice(const pl_options_t *o, const char *path,
                              const char *automatic);

/* PL_OK when a component is given at a path; otherwise PL_ENOTFOUND says what to give. */
int pl_options_needs(const pl_options_t *o, const char *role, const char *path,
                     pl_error_t *err);
/* The same of the data set that a stage reads. */
int pl_options_needs_source(const pl_options_t *o, pl_stage_t stage, pl_error_t *err);

/* An error of a key, such as "trainer.devices" or "callbacks.0.monitor": its place in the
 * file, or that of what it is missing in, before the text (printf). */
int pl_options_fail(pl_error_t *err, int code, const pl_options_t *o, const char *key,
                    const char *format, ...) PL_PRINTF(5, 6);

/* The trainer's and the data's own options.  Free the binding after the struct's last
 * use. */
int pl_options_trainer(const pl_options_t *o, pl_trainer_options_t *trainer,
                       pl_binding_t **binding_p, pl_error_t *err);
/* The keys of a table, such as pl_data_table, that a section has apart from its
 * component's own options: into is a pl_data_options_t. */
int pl_options_general(const pl_options_t *o, const char *path, const pl_option_t *table,
                       void *into, pl_binding_t **binding_p, pl_error_t *err);

/* The component at a path: `automatic` is the name that "auto" or nothing stands for
 * [an error]; data info is the JSON object of pl_data_info_t [none].  PL_ENOTFOUND:
 * nothing is given there, or no such component. */
typedef struct pl_component_request {
    const char *role, *path;
    const char *automatic;
    const char *data_info;
} pl_component_request_t;
int pl_options_component(const pl_options_t *o, const pl_component_request_t *request,
                         pl_instance_t *instance, pl_error_t *err);

/* The number of the device that a rank opens; -1: trainer.devices is not a list. */
PL_API int pl_options_device(const pl_options_t *o, int local_rank);

/* The data set that a stage reads; PL_ENOTFOUND when the sources are given apart and this
 * one is not.  Predicting reads the test data where there are none of its own. */
int pl_options_source(const pl_options_t *o, pl_stage_t stage, uint32_t loader,
                      pl_instance_t *instance, pl_error_t *err);
/* How many a stage lists: `loader` is below that. */
uint32_t pl_options_loaders(const pl_options_t *o, pl_stage_t stage);
/* Whether the stages have sources of their own. */
bool pl_options_has_sources(const pl_options_t *o);

/* The run as given, on one line: what workers get and pl_options_parse() reads.
 * pl_text_free() frees it. */
char *pl_options_text(const pl_options_t *o, pl_error_t *err);

#endif
