/* instructions.c - a guard for the engine's own work: instructions of a training step
 *
 * Processor time depends on the machine and its load; a count of instructions hardly
 * does.  The limit is a third above what callgrind counts in an optimised build (x86-64,
 * gcc 12), so it fails when a step does notably more, and not for a newer compiler.  A
 * machine without hardware counters skips it.  `t/instructions N` only trains N steps,
 * for a profiler or for valgrind --tool=callgrind, which gives the count without
 * counters. */
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rig.h"
#include "tap.h"

enum { FEW = 1000, MANY = 5000, LIMIT = 100000 };

static bool train(int steps)
{
    char trainer[80];
    snprintf(trainer, sizeof trainer, "\"max_epochs\": -1, \"max_steps\": %d", steps);
    rig_t *rig = rig_new(.accelerator = "{\"name\": \"cpu\", \"threads\": 1}",
                         .trainer = trainer, .samples = 400);
    const rig_result_t *result = rig ? rig_fit(rig) : NULL;
    const bool is_done = result && result->global_step == (uint64_t)steps;
    if (!is_done)
        tap_diag("%s", result ? result->error.text : rig_error.text);
    rig_free(&rig);
    return is_done;
}

/* A counter of this thread and of those that it starts from now on; -1: there is none. */
static int counter_open(void)
{
    struct perf_event_attr what = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof what,
                                   .config = PERF_COUNT_HW_INSTRUCTIONS,
                                   .inherit = 1,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    return (int)syscall(SYS_perf_event_open, &what, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Of a whole run; 0: it failed. */
static uint64_t count(int steps)
{
    uint64_t instructions = 0;
    const int counter = counter_open();
    const bool is_done = train(steps);
    if (read(counter, &instructions, sizeof instructions) != sizeof instructions)
        instructions = 0;
    close(counter);
    return is_done ? instructions : 0;
}

static void a_step_takes_no_more_instructions_than_before(void)
{
    const int counter = counter_open();
    if (counter < 0) {
        tap_skip("this machine has no hardware counters");
        return;
    }
    close(counter);
#if !defined(__x86_64__) || !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) \
    || defined(__SANITIZE_THREAD__)
    tap_skip("the limit is for an optimised build on x86-64");
    return;
#endif
    const uint64_t few = count(FEW), many = count(MANY);
    ok(few && many > few, "both runs end, and their instructions are counted");
    const uint64_t step = many > few ? (many - few) / (MANY - FEW) : UINT64_MAX;
    ok(step < LIMIT, "a step takes %llu instructions, of at most %d",
       (unsigned long long)step, LIMIT);
}

int main(int argc, char **argv)
{
    rig_init(NULL);
    if (argc > 1)
        return train(atoi(argv[1])) ? 0 : 1;
    if (rig_has("cpu"))
        run(a_step_takes_no_more_instructions_than_before);
    return tap_done();
}
