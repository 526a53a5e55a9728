/* bench.c - what the benchmarks share: medians, intervals, lines, a folder, a fit, and
 * ending on an error */
#include "t/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "t/tap.h"

void bench_must(int code, const pl_error_t *err)
{
    if (code == PL_OK)
        return;
    fprintf(stderr, "bench: %s\n", err ? err->text : pl_code_text(code));
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double bench_median(double *value, int count)
{
    qsort(value, (size_t)count, sizeof *value, by_value);
    return count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2;
}

void bench_interval(double *value, int count, double *low, double *high)
{
    qsort(value, (size_t)count, sizeof *value, by_value);
    int reach = (int)(0.98 * sqrt(count)) + 1, from = count / 2 - reach,
        to = count / 2 + reach;
    *low = value[from < 0 ? 0 : from];
    *high = value[to < count ? to : count - 1];
}

int bench_runs(int argc, char **argv, int otherwise, int max)
{
    const int runs = argc > 1 ? atoi(argv[1]) : otherwise;
    return runs < 1 ? 1 : runs > max ? max : runs;
}

void bench_limit(const char *name, double *ms, int runs, double limit)
{
    const double middle = bench_median(ms, runs);
    printf("{\"name\": \"%s\", \"unit\": \"ms\", \"ours\": %.1f, "
           "\"against\": \"limit\", \"theirs\": %g, \"ratio\": %.2f, \"runs\": %d, "
           "\"bar\": 1, \"holds\": %s}\n",
           name, middle, limit, limit / middle, runs, middle <= limit ? "true" : "false");
}

bool bench_digits(bench_digits_t *digits, const char *name)
{
    const char *top = getenv("top_srcdir"), *data = getenv("PACELINE_TEST_DATA");
    snprintf(digits->data, sizeof digits->data, "%s/tabular/digits.csv.gz",
             data ? data : "");
    snprintf(digits->run_file, sizeof digits->run_file, "%s/examples/digits-mlp.json",
             top ? top : ".");
    if (data && access(digits->data, R_OK) == 0)
        return true;
    printf("{\"name\": \"%s\", \"skipped\": \"PACELINE_TEST_DATA has no "
           "tabular/digits.csv.gz\"}\n",
           name);
    return false;
}

typedef struct fit {
    double seconds;
    bool done;
} fit_t;

static void fit_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    bench_must(strcmp(result->status, "ok") ? result->error.code : PL_OK, &result->error);
    *(fit_t *)user = (fit_t){result->seconds, true};
}

double bench_fit(pl_engine_t *engine, const char *run)
{
    pl_error_t err;
    fit_t fit = {0};
    pl_options_t *options = pl_options_parse(run, "bench", &err);
    pl_trainer_t *trainer = options ? pl_trainer_new(engine, options, &err) : NULL;
    bench_must(trainer ? PL_OK : err.code, &err);
    bench_must(pl_trainer_fit(trainer, fit_done, &fit, &err), &err);
    bench_must(pl_engine_run_until(engine, &fit.done, &err), &err);
    pl_trainer_free(trainer);
    pl_options_free(options);
    return fit.seconds;
}

const char *bench_folder(void)
{
    return tap_folder();
}
