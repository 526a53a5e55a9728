/* init.c - the first line of a program: Paceline's own parts become known by name, like a
 * user's */
#include "actors/connectors/callbacks/callbacks.h"
#include "actors/connectors/datasets/datasets.h"
#include "actors/connectors/loggers/loggers.h"
#include "actors/launchers/launchers.h"
#include "config.h"
#include "strategies/collectives/collective.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/strategies.h"
#include "tensor/precision.h"
#ifdef HAVE_ONEDNN
#include "accelerators/cpu/cpu.h"
#endif

static const pl_registration_t own_parts[] = {
#ifdef HAVE_ONEDNN
    {"accelerator", &pl_cpu_accelerator},
#endif
    {"collective", &pl_best_collective},
    {"collective", &pl_shm_collective},
    {"collective", &pl_tcp_collective},
    {"strategy", &pl_ddp_strategy},
    {"strategy", &pl_single_strategy},
    {"launcher", &pl_inline_launcher},
    {"dataset", &pl_csv_dataset},
    {"dataset", &pl_idx_dataset},
    {"dataset", &pl_lines_dataset},
    {"dataset", &pl_memory_dataset},
    {"dataset", &pl_npy_dataset},
    {"dataset", &pl_text_dataset},
    PL_REGISTRATIONS_END,
};

int pl_init(int *argc, char ***argv, const pl_registration_t *registrations,
            pl_error_t *err)
{
    (void)argc, (void)argv;              /* for launchers that start this program again */
    int code = pl_register(own_parts, err);
    if (code == PL_OK)
        code = pl_register(pl_optimizer_parts, err);
    if (code == PL_OK)
        code = pl_register(pl_callback_parts, err);
    if (code == PL_OK)
        code = pl_register(pl_logger_parts, err);
    if (code == PL_OK)
        code = pl_register(pl_precision_parts, err);
    if (code == PL_OK && registrations)
        code = pl_register(registrations, err);
    return code;
}
