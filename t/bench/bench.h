/* bench.h - what the benchmarks share: medians, intervals, a folder, a fit, and ending on
 * an error */
#ifndef T_BENCH_H
#define T_BENCH_H

#include "base/bind.h"
#include "paceline.h"

/* Ends the program with the error's text unless code is PL_OK. */
void bench_must(int code, const pl_error_t *err);

double bench_median(double *value, int count);              /* sorts value */
/* 95 % confidence interval of the median, by order statistics (binomial); sorts value. */
void bench_interval(double *value, int count, double *low, double *high);

/* Has the engine train a run, given as JSON, to its end: the seconds that it says. */
double bench_fit(pl_engine_t *engine, const char *run);

/* A folder of this process's own, removed at exit. */
const char *bench_folder(void);

#endif
