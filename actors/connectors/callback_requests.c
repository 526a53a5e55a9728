/* callback_requests.c - combines the requests of all callbacks at one hook
 *
 * An impossible request is an error: ignored, it would give no hint to its author. */
#include "actors/connectors/callback_requests.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_path.h"
#include "base/utf8.h"

static const int allowed[] = {
#define PL_X(name, text, may, when) [PL_HOOK_##name] = may,
    PL_HOOKS(PL_X)
#undef PL_X
};

static const char *const request_names[] = {
#define PL_X(name, text) text,
    PL_CALLBACK_REQUESTS(PL_X)
#undef PL_X
};

void pl_callback_requests_init(pl_callback_requests_t *all)
{
    *all = (pl_callback_requests_t){.lr_factor = 1};
}

void pl_callback_requests_release(pl_callback_requests_t *all)
{
    json_decref(all->metrics.object);
}

pl_callback_request_t pl_callback_requests_new(pl_callback_requests_t *all)
{
    return (pl_callback_request_t){.lr_factor = 1, .metrics = &all->metrics};
}

/* PL_MAY bits of what is requested. */
static int requested(const pl_callback_request_t *request, bool metrics)
{
    return (request->stop ? PL_MAY_STOP : 0) | (request->skip ? PL_MAY_SKIP : 0)
           | (request->lr_factor != 1 ? PL_MAY_RATE : 0) | (metrics ? PL_MAY_LOG : 0)
           | (request->accumulate ? PL_MAY_ACCUMULATE : 0)
           | (request->freeze[0] || request->unfreeze[0] ? PL_MAY_FREEZE : 0)
           | (request->save[0] ? PL_MAY_SAVE : 0);
}

/* Who looks on is asked while the run goes on. */
static int allowed_to(const pl_callback_ops_t *ops, pl_hook_t point)
{
    const bool looks_on = ops->requests & PL_LOOKS_ON && point == PL_HOOK_TRAIN_BATCH_END;
    return looks_on ? PL_MAY_LOG | PL_MAY_STOP : allowed[point];
}

static int request_check(const pl_callback_ops_t *ops, pl_hook_t point,
                         const pl_callback_request_t *request, bool metrics,
                         pl_error_t *err)
{
    int vain = requested(request, metrics) & ~allowed_to(ops, point);
    for (int k = 0; vain; k++, vain >>= 1)
        if (vain & 1)
            return pl_fail(err, PL_EUSER, "a callback cannot request %s at this hook",
                           request_names[k]);
    if (!isfinite(request->lr_factor) || request->lr_factor < 0)
        return pl_fail(err, PL_EUSER,
                       "it requests the learning-rate factor %g: the factor must be 0 "
                       "or more",
                       request->lr_factor);
    if (request->accumulate < 0)
        return pl_fail(err, PL_EUSER,
                       "it requests %lld batches for a step: the number must be 1 or "
                       "more",
                       (long long)request->accumulate);
    return PL_OK;
}

static int patterns_add(char all[1024], const char *patterns, pl_error_t *err)
{
    const size_t used = strlen(all), length = strlen(patterns);
    if (used + length + 2 > 1024)
        return pl_fail(
            err, PL_EUSER,
            "the patterns of parameters that callbacks request at one hook are longer "
            "than 1000 characters");
    snprintf(all + used, 1024 - used, "%s%s", used && length ? " " : "", patterns);
    return PL_OK;
}

/* The first says why; what is kept goes before what is not. */
static void stop_add(pl_callback_requests_t *all, const pl_callback_ops_t *ops,
                     const pl_callback_request_t *request)
{
    const bool by_clock = ops->requests & PL_BY_CLOCK;
    if (!all->stop || (all->by_clock && !by_clock)) {
        snprintf(all->reason, sizeof all->reason, "%.60s%s%.*s", ops->name,
                 request->reason[0] ? ": " : "", (int)sizeof request->reason - 1,
                 request->reason);
        all->by_clock = by_clock;
    }
    all->stop = true;
}

int pl_callback_requests_add(pl_callback_requests_t *all, const pl_callback_ops_t *ops,
                             pl_hook_t point, const pl_callback_request_t *request,
                             pl_error_t *err)
{
    int code = request_check(ops, point, request, all->metrics.object != NULL, err);
    if (code != PL_OK)
        return code;
    if (patterns_add(all->freeze, request->freeze, err) != PL_OK
        || patterns_add(all->unfreeze, request->unfreeze, err) != PL_OK)
        return PL_EUSER;
    all->lr_factor *= request->lr_factor;
    if (request->accumulate)
        all->accumulate = (uint64_t)request->accumulate;
    if (request->stop)
        stop_add(all, ops, request);
    all->skip |= request->skip;
    return pl_checkpoint_requests_add(&all->checkpoints, request->save, request->drop,
                                      err);
}

int pl_callback_log(pl_callback_request_t *request, const char *name, double value,
                    pl_error_t *err)
{
    if (!request || !request->metrics)
        return pl_fail(err, PL_EINVAL,
                       "a callback can log a metric only inside on(), with the request "
                       "that on() received");
    if (!name || !*name || !pl_utf8_ok(name, strlen(name)))
        return pl_fail(err, PL_EINVAL, "a metric needs a name in UTF-8");
    if (!request->metrics->object)
        request->metrics->object = json_object();
    json_t *number = pl_json_number(value);
    return json_object_set_new(request->metrics->object, name, number) == 0
               ? PL_OK
               : pl_no_memory(err);
}
