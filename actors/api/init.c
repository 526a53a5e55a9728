/* init.c - the first line of a program: Paceline's own parts become known by name, like a
 * user's; and the number of this process among those of a run */
#include <stdlib.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "actors/connectors/datasets/datasets.h"
#include "actors/connectors/loggers/loggers.h"
#include "actors/connectors/sampler.h"
#include "actors/launchers/bootstrap.h"
#include "actors/launchers/ranks.h"
#include "actors/launchers/supervisor.h"
#include "actors/loops/metrics.h"
#include "base/registry.h"
#include "config.h"
#include "transport/process.h"
#include "strategies/collectives/collective.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/strategies.h"
#include "tensor/layers_module.h"
#include "tensor/precision.h"
#include "tensor/record.h"
#ifdef HAVE_ONEDNN
#include "accelerators/cpu/cpu.h"
#endif

static const pl_registration_t own_components[] = {
#ifdef HAVE_ONEDNN
    {"accelerator", &pl_cpu_accelerator},
#endif
    {"collective", &pl_best_collective},  {"collective", &pl_shm_collective},
    {"collective", &pl_tcp_collective},   {"strategy", &pl_ddp_strategy},
    {"strategy", &pl_elastic_strategy},   {"strategy", &pl_local_sgd_strategy},
    {"strategy", &pl_single_strategy},    {"strategy", &pl_zero1_strategy},
    {"launcher", &pl_external_launcher},  {"launcher", &pl_inline_launcher},
    {"launcher", &pl_script_launcher},    {"launcher", &pl_spawn_launcher},
    {"dataset", &pl_csv_dataset},         {"dataset", &pl_idx_dataset},
    {"dataset", &pl_lines_dataset},       {"dataset", &pl_npy_dataset},
    {"dataset", &pl_pictures_dataset},    {"dataset", &pl_sounds_dataset},
    {"dataset", &pl_sources_dataset},     {"dataset", &pl_text_dataset},
    {"module", &pl_graph_module},         {"module", &pl_layers_module},
    PL_REGISTRATIONS_END,
};

/* What it reads lies in the memory of this process. */
static const pl_registration_t components_here[] = {
    {"dataset", &pl_memory_dataset},
    PL_REGISTRATIONS_END,
};

int pl_init(int *argc, char ***argv, const pl_registration_t *registrations,
            pl_error_t *err)
{
    const pl_registration_t *const all[] = {
        own_components,       pl_optimizer_components, pl_callback_components,
        pl_logger_components, pl_precision_components, pl_sampler_components,
        pl_metric_components, registrations,
    };
    (void)argc, (void)argv;                    /* the system tells the same, and of all */
    pl_supervisor_init();
    int code = pl_register(components_here, err);
    for (size_t k = 0; k < sizeof all / sizeof *all && code == PL_OK; k++)
        code = pl_register_at("", all[k], err);
    if (code == PL_OK)
        code = pl_process_follow_parent(err);
    if (code == PL_OK)
        pl_entry_if_rank();
    return code;
}

int pl_rank(void)
{
    pl_environment_t environment;
    const pl_bootstrap_t *script = pl_bootstrap_in_script();
    if (script)
        return 1 + script->rank;
    return pl_environment_read(&environment, getenv, NULL) == PL_OK && environment.source
               ? environment.rank
               : 0;
}
