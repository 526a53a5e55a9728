/* sweep.h - several runs out of one request: --set KEY=a,b */
#ifndef CLI_SWEEP_H
#define CLI_SWEEP_H

#include <jansson.h>

#include "cli/session.h"

enum { CLI_SWEPT = 8 };                                     /* keys of a sweep at most */

/* A key and the values it takes. */
typedef struct cli_axis {
    int word;                                               /* which --set */
    int count;
    char **value;                                           /* [count] */
} cli_axis_t;

typedef struct cli_sweep {
    cli_run_t run;
    int axes, runs;                                         /* 1: no sweep */
    int next;                                               /* run to be started */
    cli_axis_t axis[CLI_SWEPT];
    json_t *rows;                                           /* of the runs that ended */
} cli_sweep_t;

/* Finds what is swept and checks every run; PL_EINVAL says which is wrong. */
int cli_sweep_open(cli_sweep_t *sweep, const cli_run_t *run, pl_error_t *err);
void cli_sweep_close(cli_sweep_t *sweep);

/* The options of the next run; NULL with an error, or without one when all were. */
pl_options_t *cli_sweep_next(cli_sweep_t *sweep, pl_error_t *err);
/* What sets the run apart that was begun last: {"optimizer.lr": 0.001}, and as words. */
json_t *cli_sweep_set(const cli_sweep_t *sweep);
void cli_sweep_words(const json_t *set, char *text, size_t capacity);

/* Keeps how the run ended that was begun last: a result as events have it; consumed. */
void cli_sweep_keep(cli_sweep_t *sweep, json_t *result);
/* A table of all runs; those that were not begun are in it, too. */
void cli_sweep_show(cli_sweep_t *sweep);
/* The same as an event. */
json_t *cli_sweep_json(cli_sweep_t *sweep);

#endif
