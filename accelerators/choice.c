/* choice.c - which accelerators this machine has: what "auto" stands for, and reports
 *
 * A GPU is preferred where there is one.  Its plug-in and the driver are looked for at
 * each call: that costs less than a millisecond where there is none. */
#include "accelerators/choice.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "accelerators/accelerator.h"
#include "base/error.h"
#include "base/log.h"
#include "base/option.h"
#include "base/registry.h"

/* The first that has a device and every option that is given. */
static const char *const preferred[] = {"cuda"};

static bool has_options(const pl_accelerator_ops_t *ops, const json_t *given)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)given, name, value)
        if (strcmp(name, "name") != 0 && !pl_option_find(ops->options, name))
            return false;
    return true;
}

/* Once in a process.  A machine without a card needs no more than a short line. */
static void log_cpu(const pl_error_t *why)
{
    static atomic_bool told;
    const bool has_card = access("/dev/nvidiactl", F_OK) == 0;
    if (atomic_exchange(&told, true))
        return;
    pl_log_line(PL_LOG_DEBUG, -1, "", "trainer.accelerator auto: %s", why->text);
    if (has_card)
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "trainer.accelerator auto: the run uses the CPU: %s", why->text);
    else
        pl_log_line(PL_LOG_INFO, -1, "",
                    "no GPU of NVIDIA is found: the run uses the CPU");
}

const char *pl_accelerator_automatic(const pl_options_t *o)
{
    static const char automatic[] = "auto";
    const json_t *given = pl_options_value(o, "trainer.accelerator");
    if (pl_options_choice(o, "trainer.accelerator", automatic) != automatic)
        return "cpu"; /* which is not asked for */
    for (size_t k = 0; k < sizeof preferred / sizeof *preferred; k++) {
        pl_error_t why = {0};
        const pl_accelerator_ops_t *ops = pl_part_offered("accelerator", preferred[k]);
        if (!ops || !ops->count || !has_options(ops, given))
            continue;
        if (ops->count(&why) > 0)
            return preferred[k];
        log_cpu(&why);
    }
    return "cpu";
}

int pl_accelerator_report(const char *accelerator, pl_fact_t tell, void *user,
                          pl_error_t *err)
{
    if (pl_given(tell, "a function", err) != PL_OK)
        return PL_EINVAL;
    pl_error_t why = {0};
    const pl_accelerator_ops_t *ops = pl_part_find("accelerator", accelerator, &why);
    if (!ops)
        return pl_fail(err, why.code, "%s", why.text);
    if (ops->report)
        ops->report(tell, user);
    return PL_OK;
}
