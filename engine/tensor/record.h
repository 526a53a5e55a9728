/* record.h - graphs as lists of calls, which programs in other languages write
 *
 * A call is ["linear", {"name": "fc1", "x": 0, "units": 128}, "net.py:3"]: a function of
 * paceline.h without "pl_", its arguments, and the place in the program  [none].  A node
 * or metric is the number of the call that made it.  record_functions.inc has a function
 * for each call, made from paceline.h by generate/interface.awk; it reads the arguments
 * with the functions below.  A record is data from outside: each of them refuses what
 * does not fit.  The first error stays; then nothing is called. */
#ifndef PL_TENSOR_RECORD_H
#define PL_TENSOR_RECORD_H

#include <jansson.h>

#include "paceline.h"

typedef enum pl_recorded_kind {
    PL_RECORDED_NOTHING,
    PL_RECORDED_NODE,
    PL_RECORDED_METRIC
} pl_recorded_kind_t;

/* The value of a call. */
typedef struct pl_recorded_value {
    pl_recorded_kind_t kind;
    bool is_skipped;                         /* no output of a prediction depends on it */
    pl_node_t node;
    pl_metric_t metric;
    int further_count;                       /* that the call asked for */
    pl_node_t further[2];                    /* results, such as h_n and c_n of an LSTM */
} pl_recorded_value_t;

#define PL_RECORDED_HELD 8

typedef struct pl_recorded {
    pl_graph_t *g;                                         /* [NULL: calls are checked] */
    const json_t *arguments;                               /* of the call under way */
    const char *function, *at;
    pl_recorded_value_t result;
    void *held[PL_RECORDED_HELD];                           /* its arrays */
    int held_count;
    pl_recorded_value_t *value;                             /* of the calls so far */
    int value_count, value_capacity;
    pl_error_t error;                                       /* the first */
} pl_recorded_t;

/* The words of an enum, ended by NULL. */
typedef struct pl_recorded_word {
    const char *name;
    int number;
} pl_recorded_word_t;

/* A function that a call can name; arguments that are nodes or metrics begin with '@'. */
typedef struct pl_recorded_function {
    const char *name;
    pl_recorded_kind_t kind;
    void (*call)(pl_recorded_t *r);
    const char *argument[24];                               /* ended by NULL */
} pl_recorded_function_t;

/* Fails with the place and the function of the call. */
void pl_recorded_fail(pl_recorded_t *r, const char *format, ...) PL_PRINTF(2, 3);

/* Whether the call is to be made: its arguments are right, and there is a graph. */
bool pl_recorded_is_ready(const pl_recorded_t *r);

/* Each reads an argument by name and returns whether it was given and fits; if not,
 * *value is unchanged.  One that is required and missing is an error.  A text is a number
 * where it is "inf" or "-inf". */
bool pl_recorded_bool(pl_recorded_t *r, const char *name, bool required, bool *value);
bool pl_recorded_int(pl_recorded_t *r, const char *name, bool required, int *value);
bool pl_recorded_i64(pl_recorded_t *r, const char *name, bool required, int64_t *value);
bool pl_recorded_real(pl_recorded_t *r, const char *name, bool required, double *value);
bool pl_recorded_node(pl_recorded_t *r, const char *name, bool required,
                      pl_node_t *value);
bool pl_recorded_metric(pl_recorded_t *r, const char *name, bool required,
                        pl_metric_t *value);
bool pl_recorded_shape(pl_recorded_t *r, const char *name, bool required,
                       pl_shape_t *value);
/* The states of a metric: [[3, "sum"], [5, "gather"]]; one to PL_METRIC_STATES. */
pl_metric_state_t *pl_recorded_states(pl_recorded_t *r, const char *name, bool required,
                                      size_t *count);
/* {"normal": [0.02]} */
bool pl_recorded_init(pl_recorded_t *r, const char *name, bool required,
                      pl_init_rule_t *value);
/* "macro"; of flags also several: "on_epoch|on_step". */
bool pl_recorded_word(pl_recorded_t *r, const char *name, bool required,
                      const pl_recorded_word_t *words, bool flags, int *value);
/* NULL: not given. */
const char *pl_recorded_text(pl_recorded_t *r, const char *name, bool required);
/* Up to `max` sizes, or one for the first; the rest of values is unchanged.  A 0 in a
 * list is one, not the number before it: of paddings PL_UNPADDED, of others an error. */
bool pl_recorded_numbers(pl_recorded_t *r, const char *name, bool required,
                         int64_t *values, size_t max);

/* Lists, of which one number is a list too.  The array, of PL_DIMS elements at least, is
 * valid until the call is made; NULL: not given, or wrong. */
pl_node_t *pl_recorded_nodes(pl_recorded_t *r, const char *name, bool required,
                             size_t *count);
int *pl_recorded_ints(pl_recorded_t *r, const char *name, bool required, size_t *count);
int64_t *pl_recorded_i64s(pl_recorded_t *r, const char *name, bool required,
                          size_t *count);
double *pl_recorded_reals(pl_recorded_t *r, const char *name, bool required,
                          size_t *count);

/* Bytes that are written as a text, valid likewise; NULL: not given, or wrong. */
const void *pl_recorded_base64(pl_recorded_t *r, const char *name, size_t *size);

/* Fails if a list has another length than the rank of x. */
void pl_recorded_is_of_rank(pl_recorded_t *r, const char *name, size_t count,
                            pl_node_t x);

/* Makes the calls of a record for a stage: a list, or an object with a list for each
 * stage.  A prediction makes those on which outputs depend.  -> the error, also of the
 * graph; without a graph the record alone is checked. */
int pl_record_apply(pl_graph_t *g, const json_t *record, pl_stage_t stage,
                    pl_error_t *err);

extern const pl_module_ops_t pl_graph_module;

#endif
