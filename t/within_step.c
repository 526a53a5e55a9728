/* within_step.c - tests that any module passes whose ranks wait for each other within a
 * step */
#include "within_step.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "far.h"
#include "rig_runs.h"
#include "tap.h"

/* ---- Runs beside each other ---- */

void ranks_differ_by(const rig_result_t *one, const rig_result_t *many, double within,
                     const char *what)
{
    is_int(many->global_step, one->global_step, "%s: as many steps, %s", what,
           many->error.text);
    ok(rig_losses_differ(one, many) < within, "the losses of one rank: %g",
       rig_losses_differ(one, many));
    ok(rig_distance(one, many) < within, "its weights and statistics: %g",
       rig_distance(one, many));
}

void three_train_as_one_do(double within, const char *trainer, const rig_spec_t *spec)
{
    rig_spec_t run = *spec;
    run.accelerator = "cpu";
    run.samples = 38;
    if (!rig_has("cpu"))
        return;
    rig_result_t *one = rig_ranks_train(1, 12, trainer, &run);
    rig_result_t *three = rig_ranks_train(3, 4, trainer, &run);
    ranks_differ_by(one, three, within, trainer);
    rig_result_free(one);
    rig_result_free(three);
}

#define STRATEGY(name, more) "\"strategy\": {\"name\": \"" name "\"" more "}"

void bits_are_the_same_whatever_moves_them(const char *module, const char *trainer)
{
    static const char *const ways[] = {
        STRATEGY("ddp", ", \"collective\": \"shm\""),
        STRATEGY("ddp", ", \"collective\": \"shm\""),
        STRATEGY("ddp", ", \"collective\": \"tcp\""),
        STRATEGY("ddp", ", \"bucket_mb\": 0.000001"),
        STRATEGY("zero1", ""),
    };
    rig_result_t *first = NULL;
    for (size_t k = 0; k < sizeof ways / sizeof *ways && rig_has("cpu"); k++) {
        char more[200];
        snprintf(more, sizeof more, "%s, %s", trainer, ways[k]);
        rig_result_t *result = rig_ranks(3, 4, more, .accelerator = "cpu",
                                         .module = module, .samples = 38,
                                         .data = "\"val_split\": 0.2");
        is_text(result->status, "ok", "%s: %s", ways[k], result->error.text);
        ok(!first || rig_same_bits(first, result), "the same weights");
        ok(!first || !strcmp(first->metrics, result->metrics), "and metrics");
        if (first)
            rig_result_free(result);
        else
            first = result;
    }
    rig_result_free(first);
}

void processes_have_the_bits_of_threads(const char *module, const char *trainer,
                                        int samples)
{
    rig_result_t *result[2];
    if (!rig_has("cpu"))
        return;
    for (int k = 0; k < 2; k++) {
        rig_t *rig =
            far_new(.launcher = k ? "\"spawn\"" : "\"inline\"", .ranks = 3,
                    .samples = samples,
                    .rig = {.accelerator = "cpu", .module = module, .trainer = trainer});
        result[k] = rig_keep(rig_fit(rig));
        is_text(result[k]->status, "ok", "%s: %s", k ? "spawn" : "inline",
                result[k]->error.text);
        rig_free(&rig);
    }
    ok(rig_same_bits(result[0], result[1]), "the same bits");
    rig_result_free(result[0]);
    rig_result_free(result[1]);
}

/* ---- An operator in whose middle a process dies ---- */

/* The main thread of a rank's process is named for it. */
static bool is_trapped(void)
{
    char name[32] = "", wanted[32];
    FILE *file = fopen("/proc/self/comm", "r");
    const bool named = file && fgets(name, sizeof name, file);
    if (file)
        fclose(file);
    snprintf(wanted, sizeof wanted, "%s\n", getenv("TRAP") ? getenv("TRAP") : "");
    return named && !strcmp(name, wanted);
}

static void trap_run(const pl_kernel_call_t *call, int64_t from, int64_t to)
{
    static int replays;
    const float *x = call->input[0];
    float *y = call->output;
    replays += from == 0;
    if (replays == 6 && is_trapped())
        kill(getpid(), SIGKILL);
    memcpy(y + from, x + from, (size_t)(to - from) * sizeof *y);
}

static void trap_gradient(pl_graph_t *g, const pl_use_t *use, pl_node_t dy,
                          pl_node_t dx[])
{
    (void)use;
    dx[0] = pl_apply(g, "trap", &dy, 1, NULL);
}

static const pl_kernel_t trap_kernels[] = {{"cpu", trap_run}, PL_KERNELS_END};
const pl_operator_ops_t trap = {.name = "trap",
                                .size = 1,
                                .inputs = 1,
                                .gradient = trap_gradient,
                                .kernels = trap_kernels};

void a_rank_in_the_trap_ends_all(const char *module, const char *trainer)
{
    for (int k = 0; k < 3 && rig_has("cpu"); k++) {
        char where[32];
        snprintf(where, sizeof where, "rank %d", k);
        setenv("TRAP", where, 1);
        rig_t *rig =
            far_new(.ranks = 3, .samples = 36,
                    .rig = {.accelerator = "cpu", .module = module, .trainer = trainer});
        const rig_result_t *result = rig_fit(rig);
        is_text(pl_code_name(result->error.code), "PL_EDIED", "%s dies: %s", where,
                result->error.text);
        is_text(result->error.where, where, "it is named");
        ok(result->seconds < 20, "and no rank waits for it: %g s", result->seconds);
        is_int(far_children(), 0, "no process is left");
        rig_free(&rig);
        unsetenv("TRAP");
    }
}
