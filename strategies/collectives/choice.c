/* choice.c - which collectives this machine has: what "auto" stands for, and reports */
#include "strategies/collectives/choice.h"

#include <stdatomic.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "accelerators/auto_select.h"
#include "base/error.h"
#include "base/log.h"
#include "base/registry.h"
#include "strategies/collectives/collective.h"

/* Of memory of devices. */
static const char *const preferred[] = {"nccl"};

static void log_host(const char *device, const pl_error_t *why)
{
    static atomic_bool reported;
    if (!atomic_exchange(&reported, true))
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "ranks reduce memory of %s through the host, which is slow: %s",
                    device, why->text);
}

const char *pl_collective_automatic(const pl_options_t *o)
{
    const char *name = pl_options_choice(o, "trainer.accelerator",
                                         pl_accelerator_auto(o));
    const pl_accelerator_ops_t *accelerator = pl_component_offered("accelerator", name);
    const char *device = accelerator ? accelerator->memory_kind : NULL;
    for (size_t k = 0; device && k < sizeof preferred / sizeof *preferred; k++) {
        const pl_collective_ops_t *ops = pl_component_offered("collective", preferred[k]);
        pl_error_t why = {0};
        if (!ops || !ops->available || !ops->device || strcmp(ops->device, device) != 0)
            continue;
        if (ops->available(&why) == PL_OK)
            return preferred[k];
        log_host(device, &why);
    }
    return "best";
}

int pl_collective_report(const char *collective, pl_fact_t tell, void *user,
                         pl_error_t *err)
{
    if (pl_require(tell, "a function", err) != PL_OK)
        return PL_EINVAL;
    pl_error_t why = {0};
    const pl_collective_ops_t *ops = pl_component_find("collective", collective, &why);
    if (!ops)
        return pl_fail(err, why.code, "%s", why.text);
    if (ops->report)
        ops->report(tell, user);
    return PL_OK;
}
