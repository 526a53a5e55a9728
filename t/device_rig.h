/* device_rig.h - operator cases run on any accelerator, and held to the reference */
#ifndef T_DEVICE_RIG_H
#define T_DEVICE_RIG_H

#include "accelerators/accelerator.h"
#include "operator_cases.h"

/* A device that is open. */
typedef struct device_rig {
    const pl_accelerator_ops_t *ops;
    void *self;
    bool fail_fast;                        /* pl_replay_t.fail_fast */
    bool accumulates;                      /* cases add to the gradients that are there */
    bool evaluates;                        /* cases have no gradients */
    pl_error_t err;                        /* of the call that failed last */
} device_rig_t;

/* The results of a replay; all memory belongs to the case. */
typedef struct device_results {
    float *region[PL_REGIONS];
    double *wide[PL_REGIONS];                         /* of regions of float64, instead */
    size_t size[PL_REGIONS];
    double metrics[PL_FIELDS][2];                   /* NaN where nothing was handed out */
    void *output;                                   /* y, in its own type */
    size_t output_bytes;
    bool skipped;
} device_results_t;

void device_results_release(device_results_t *results);
/* Bit for bit. */
bool device_results_same(const device_results_t *a, const device_results_t *b);

/* Fills the device's regions with the case's start values. */
int device_load(device_rig_t *rig, const operator_run_t *run);
/* One replay of a plan; an error of done() is returned like one of replay(). */
int device_replay(device_rig_t *rig, const operator_run_t *run, pl_plan_t *plan,
                  device_results_t *to);
/* The same for a replay of the caller's. */
int device_replay_alone(device_rig_t *rig, pl_plan_t *plan, pl_replay_t *replay);
/* Loads, compiles, replays, discards. */
int device_run(device_rig_t *rig, const operator_run_t *run, device_results_t *to);

/* Runs the reference on the case's start values, which it changes; -> the largest
 * difference, as a share of the expected value but at least of 1, infinite when NaN is
 * not where it should be. */
double device_difference(operator_run_t *run, const device_results_t *got);

/* The same of a case in a precision, from its parameters on  [infinite: it failed]. */
double device_case_off(device_rig_t *rig, const operator_case_t *of,
                       const char *precision);

/* A symbol of a stand-in for one of NVIDIA's libraries, which stays open; NULL: it is not
 * built. */
void *device_stand_in(const char *file, const char *symbol);

/* "bf16-mixed", for a case. */
const pl_precision_ops_t *device_precision(const char *name);

/* Whether it is off by less; else a line of diagnosis. */
bool device_is_right(device_rig_t *rig, const operator_case_t *of, const char *precision,
                     double tolerance);
/* A sentence of a test: of the cases with the word [all] in their names, each
 * `every`-th is right.  CASE in the environment is a word too. */
void device_check(device_rig_t *rig, const char *precision, double tolerance,
                  const char *word, int every);

#endif
