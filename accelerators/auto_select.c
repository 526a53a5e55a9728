/* auto_select.c - which accelerator "auto" selects, and reports on accelerators
 *
 * A GPU is preferred if the machine has one.  Each call looks for its plug-in and the
 * driver, which costs less than a millisecond if there is none.  Only opening a card
 * shows whether it works, which takes some tenths of a second: so each process opens the
 * card that its first rank would use once in a run. */
#include "accelerators/auto_select.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "accelerators/accelerator.h"
#include "base/error.h"
#include "base/log.h"
#include "base/option.h"
#include "base/registry.h"

/* "auto" selects the first that has a device and all options of the run file. */
static const char *const preferred[] = {"cuda"};

/* The last probe of each failed. */
static atomic_bool is_refused[sizeof preferred / sizeof *preferred];

/* Logs once in a process that "auto" selects the CPU: a warning if the machine has a
 * card. */
static void log_cpu(const pl_error_t *why, bool has_card)
{
    static atomic_bool reported;
    if (atomic_exchange(&reported, true))
        return;
    pl_log_line(has_card ? PL_LOG_WARNING : PL_LOG_DEBUG, -1, "",
                "trainer.accelerator auto: the run uses the CPU: %s", why->text);
}

static bool is_automatic(const pl_options_t *o)
{
    static const char automatic[] = "auto";
    return pl_options_choice(o, "trainer.accelerator", automatic) == automatic;
}

/* NULL: "auto" cannot select it; a missing device is logged. */
static const pl_accelerator_ops_t *offered(size_t k, const pl_options_t *o)
{
    pl_error_t why = {0};
    const pl_accelerator_ops_t *ops = pl_component_offered("accelerator", preferred[k]);
    if (!ops || !ops->count)
        return NULL;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)pl_options_value(o, "trainer.accelerator"), name, value)
        if (strcmp(name, "name") != 0 && !pl_option_find(ops->options, name))
            return NULL;
    if (ops->count(&why) > 0)
        return ops;
    log_cpu(&why, access("/dev/nvidiactl", F_OK) == 0);
    return NULL;
}

const char *pl_accelerator_auto(const pl_options_t *o)
{
    for (size_t k = 0; is_automatic(o) && k < sizeof preferred / sizeof *preferred; k++)
        if (!atomic_load(&is_refused[k]) && offered(k, o))
            return preferred[k];
    return "cpu";                               /* unused if the run file names another */
}

static void probe(const pl_options_t *o, int local_rank)
{
    const int listed = pl_options_device(o, local_rank);
    for (size_t k = 0; is_automatic(o) && k < sizeof preferred / sizeof *preferred; k++) {
        pl_error_t why = {0};
        const pl_accelerator_ops_t *ops = offered(k, o);
        if (!ops || !ops->probe)
            continue;
        const int code = ops->probe(listed >= 0 ? listed : local_rank, &why);
        atomic_store(&is_refused[k], code != PL_OK);
        if (code == PL_OK)
            return;
        log_cpu(&why, true);
    }
}

void pl_accelerator_probe(pl_job_t *job, int local_rank)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!job->is_probed)
        probe(job->options, local_rank);
    job->is_probed = true;
    pthread_mutex_unlock(&lock);
}

int pl_accelerator_report(const char *accelerator, pl_fact_t tell, void *user,
                          pl_error_t *err)
{
    if (pl_require(tell, "a function", err) != PL_OK)
        return PL_EINVAL;
    pl_error_t why = {0};
    const pl_accelerator_ops_t *ops = pl_component_find("accelerator", accelerator, &why);
    if (!ops)
        return pl_fail(err, why.code, "%s", why.text);
    if (ops->report)
        ops->report(tell, user);
    return PL_OK;
}
