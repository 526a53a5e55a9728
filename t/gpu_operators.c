/* gpu_operators.c - tests of what the core of the GPUs computes, on the emulator: every
 * operator case in six precisions against the reference in float64 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerators/reference/reference.h"
#include "device_rig.h"
#include "machine_emulated.h"
#include "tap.h"

typedef struct format {
    const char *precision;
    double tolerance;
} format_t;

static const format_t formats[] = {{"32-true", 1e-5},          {"64-true", 1e-12},
                                   {"bf16-mixed", 3 * 0x1p-8}, {"16-mixed", 3 * 0x1p-11},
                                   {"bf16-true", 3 * 0x1p-8},  {"16-true", 3 * 0x1p-11}};

/* Cases of operators that the core does not have yet. */
enum { MISSING = 110 };

typedef struct tally {
    int right, wrong, missing;
} tally_t;

static void check_case(device_rig_t *rig, const operator_case_t *of,
                       const format_t *format, tally_t *tally)
{
    operator_case_t c = *of;
    operator_run_t run;
    device_results_t got = {0};
    c.precision = device_precision(format->precision);
    if (operator_run_init(&run, &c, &rig->err) != PL_OK) {
        tally->wrong++;
        tap_diag("%s, %s: %s", c.name, format->precision, rig->err.text);
        return;
    }
    pl_reference_round(c.precision->params, run.region[PL_REGION_PARAMS],
                       (int64_t)run.size[PL_REGION_PARAMS]);
    const int code = device_run(rig, &run, &got);
    const double off = code == PL_OK ? device_difference(&run, &got) : INFINITY;
    if (code == PL_EUNSUPPORTED) {
        tally->missing++;
        if (getenv("SHOW"))
            tap_diag("%s: %s", c.name, rig->err.text);
    } else if (off < format->tolerance) {
        tally->right++;
    } else {
        tally->wrong++;
        tap_diag("%s, %s: off by %g: %s", c.name, format->precision, off, rig->err.text);
    }
    device_results_release(&got);
    operator_run_release(&run);
}

static void every_case_is_what_the_reference_computes(void)
{
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_accelerator, .self = &device};
    const char *only = getenv("CASE");
    if (!ok(rig.ops->open(&device, &info, &rig.err) == PL_OK, "the emulator is opened"))
        return;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        tally_t tally = {0};
        for (int i = 0; i < operator_case_count; i++)
            if (!only || strstr(operator_cases[i].name, only))
                check_case(&rig, &operator_cases[i], &formats[f], &tally);
        ok(tally.wrong == 0 && (only || tally.missing <= MISSING),
           "%s: %d right, %d wrong, %d missing", formats[f].precision, tally.right,
           tally.wrong, tally.missing);
    }
    rig.ops->close(&device);
}

int main(void)
{
    run(every_case_is_what_the_reference_computes);
    return tap_done();
}
