/* drawn_runs.h - arguments for calls to trainers and loops, from a seed (drawn.h) */
#ifndef T_DRAWN_RUNS_H
#define T_DRAWN_RUNS_H

#include "paceline.h"

/* A test: makes the samples and the run that others resume. */
void drawn_runs_begin(void);

/* For pl_options_free(); NULL now and then. */
pl_options_t *drawn_options(void);
const char *drawn_checkpoint(void);
/* Its argument, or NULL. */
const pl_arrays_t *drawn_samples(pl_arrays_t *samples);
/* The same; with those fields. */
const pl_loop_spec_t *drawn_spec(pl_loop_spec_t *spec, pl_field_t field[2]);

#endif
