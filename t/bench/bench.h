/* bench.h - what the benchmarks share: medians, intervals, lines, a folder, a fit, and
 * ending on an error */
#ifndef T_BENCH_H
#define T_BENCH_H

#include "base/bind.h"
#include "paceline.h"

/* Ends the program with the error's text unless code is PL_OK. */
void bench_must(int code, const pl_error_t *err);

double bench_median(double *value, int count);              /* sorts value */
/* 95 % confidence interval of the median, by order statistics (binomial); sorts value. */
void bench_interval(double *value, int count, double *low, double *high);

/* argv[1], or what it is without. */
int bench_runs(int argc, char **argv, int otherwise, int max);
/* Prints a line about times; their median has to stay below the limit; sorts ms. */
void bench_limit(const char *name, double *ms, int runs, double limit);

/* A run on the digits.  Without the data a line says that this was skipped. */
typedef struct bench_digits {
    char run_file[512], data[512];
} bench_digits_t;

bool bench_digits(bench_digits_t *digits, const char *name);

/* Has the engine train a run, given as JSON, to its end: the seconds that it says. */
double bench_fit(pl_engine_t *engine, const char *run);

/* A folder of this process's own, removed at exit. */
const char *bench_folder(void);

#endif
