/* stragglers.c - tests of the step times in actors/loops/epoch_report.c */
#include "actors/loops/epoch.h"

#include "base/clock.h"
#include "runtime/payload.h"
#include "tap.h"

static double number(json_t *reported, const char *row, const char *name)
{
    return json_number_value(json_object_get(json_object_get(reported, row), name));
}

static void the_slowest_rank_is_named(void)
{
    static const double step[3][PL_TIMINGS] = {{0, 0.004, 0.006, 0.004, 0.001},
                                               {0.002, 0.005, 0.007, 0, 0.001},
                                               {0, 0.005, 0.004, 0.005, 0.001}};
    pl_stragglers_t stragglers = {0};
    for (int k = 0; k < 10; k++)
        pl_stragglers_add(&stragglers, (pl_bytes_t){step, sizeof step},
                          k * PL_SECOND / 10);
    ok(!pl_stragglers_report(&stragglers, PL_SECOND / 2),
       "nothing is reported before a second is over");
    json_t *reported = pl_stragglers_report(&stragglers, PL_SECOND);
    is_near(json_number_value(json_object_get(reported, "steps")), 10, 0, "of ten steps");
    is_near(number(reported, "backward", "min"), 4, 1e-9, "ms a step: the least");
    is_near(number(reported, "backward", "median"), 6, 1e-9, "the median");
    is_near(number(reported, "backward", "max"), 7, 1e-9, "the most");
    is_near(number(reported, "backward", "slowest"), 1, 0, "and whose");
    is_near(number(reported, "forward", "min"), 4, 1e-9, "forward for itself");
    is_near(number(reported, "collective", "slowest"), 2, 0, "the rank that waits most");
    is_near(number(reported, "own", "max"), 15, 1e-9, "without what it waits");
    is_near(json_number_value(json_object_get(reported, "slowest")), 1, 0,
            "rank 1 is slow");
    is_near(json_number_value(json_object_get(reported, "spread")), 5.0 / 11, 1e-9,
            "by that share of the median");
    ok(pl_stragglers_report(&stragglers, 2 * PL_SECOND) == reported,
       "the same until there is more");
    pl_stragglers_release(&stragglers);
}

static void a_single_rank_has_no_report(void)
{
    static const double step[PL_TIMINGS] = {0, 0.004, 0.006, 0.004, 0.001};
    pl_stragglers_t stragglers = {0};
    pl_stragglers_add(&stragglers, (pl_bytes_t){0}, 0);
    ok(!pl_stragglers_report(&stragglers, 10 * PL_SECOND), "nothing came");
    pl_stragglers_add(&stragglers, (pl_bytes_t){step, sizeof step}, 0);
    ok(!pl_stragglers_report(&stragglers, 10 * PL_SECOND), "of the only one");
    pl_stragglers_release(&stragglers);
}

int main(void)
{
    run(the_slowest_rank_is_named);
    run(a_single_rank_has_no_report);
    return tap_done();
}
