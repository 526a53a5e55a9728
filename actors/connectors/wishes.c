/* wishes.c - what the callbacks asked at one point together wish for
 *
 * A wish that nobody could fulfil is an error: the run would go on as if it had not been
 * said, and whoever wrote the callback would look for the reason elsewhere. */
#include "actors/connectors/wishes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

static const int allowed[] = {
#define PL_X(name, text, may, when) [PL_HOOK_##name] = may,
    PL_HOOKS(PL_X)
#undef PL_X
};

static const char *const wish_names[] = {
#define PL_X(name, text) text,
    PL_WISHES(PL_X)
#undef PL_X
};

void pl_wishes_begin(pl_wishes_t *all)
{
    *all = (pl_wishes_t){.lr_factor = 1};
}

void pl_wishes_end(pl_wishes_t *all)
{
    json_decref(all->figures.object);
}

pl_wish_t pl_wishes_new(pl_wishes_t *all)
{
    return (pl_wish_t){.lr_factor = 1, .figures = &all->figures};
}

/* PL_MAY bits of what is wished for. */
static int wished(const pl_wish_t *wish, bool figures)
{
    return (wish->stop ? PL_MAY_STOP : 0) | (wish->skip ? PL_MAY_SKIP : 0)
           | (wish->lr_factor != 1 ? PL_MAY_RATE : 0) | (figures ? PL_MAY_LOG : 0)
           | (wish->accumulate ? PL_MAY_ACCUMULATE : 0)
           | (wish->freeze[0] || wish->unfreeze[0] ? PL_MAY_FREEZE : 0)
           | (wish->save[0] ? PL_MAY_SAVE : 0);
}

/* Who looks on is asked while the run goes on. */
static int allowed_to(const pl_callback_ops_t *ops, pl_hook_t point)
{
    const bool looks_on = ops->wishes & PL_LOOKS_ON && point == PL_HOOK_TRAIN_BATCH_END;
    return looks_on ? PL_MAY_LOG | PL_MAY_STOP : allowed[point];
}

static int wish_check(const pl_callback_ops_t *ops, pl_hook_t point,
                      const pl_wish_t *wish, bool figures, pl_error_t *err)
{
    int vain = wished(wish, figures) & ~allowed_to(ops, point);
    for (int k = 0; vain; k++, vain >>= 1)
        if (vain & 1)
            return pl_fail(err, PL_EUSER, "wishing for %s does nothing there",
                           wish_names[k]);
    if (!isfinite(wish->lr_factor) || wish->lr_factor < 0)
        return pl_fail(err, PL_EUSER,
                       "it wants the learning rate times %g; 0 and more is possible",
                       wish->lr_factor);
    if (wish->accumulate < 0)
        return pl_fail(err, PL_EUSER,
                       "it wants %lld batches behind a step; 1 and more is possible",
                       (long long)wish->accumulate);
    return PL_OK;
}

static int patterns_add(char all[1024], const char *patterns, pl_error_t *err)
{
    const size_t used = strlen(all), length = strlen(patterns);
    if (used + length + 2 > 1024)
        return pl_fail(err, PL_EUSER,
                       "the patterns of parameters that callbacks wish for at once are "
                       "longer than 1000 characters");
    snprintf(all + used, 1024 - used, "%s%s", used && length ? " " : "", patterns);
    return PL_OK;
}

/* The first says why; what is kept goes before what is not. */
static void stop_add(pl_wishes_t *all, const pl_callback_ops_t *ops,
                     const pl_wish_t *wish)
{
    const bool by_clock = ops->wishes & PL_BY_CLOCK;
    if (!all->stop || (all->by_clock && !by_clock)) {
        snprintf(all->reason, sizeof all->reason, "%.60s%s%.*s", ops->name,
                 wish->reason[0] ? ": " : "", (int)sizeof wish->reason - 1, wish->reason);
        all->by_clock = by_clock;
    }
    all->stop = true;
}

int pl_wishes_add(pl_wishes_t *all, const pl_callback_ops_t *ops, pl_hook_t point,
                  const pl_wish_t *wish, pl_error_t *err)
{
    int code = wish_check(ops, point, wish, all->figures.object != NULL, err);
    if (code != PL_OK)
        return code;
    if (patterns_add(all->freeze, wish->freeze, err) != PL_OK
        || patterns_add(all->unfreeze, wish->unfreeze, err) != PL_OK)
        return PL_EUSER;
    all->lr_factor *= wish->lr_factor;
    if (wish->accumulate)
        all->accumulate = (uint64_t)wish->accumulate;
    if (wish->stop)
        stop_add(all, ops, wish);
    all->skip |= wish->skip;
    return pl_wanted_add(&all->wanted, wish->save, wish->drop, err);
}

int pl_wish_figure(pl_wish_t *wish, const char *name, double value, pl_error_t *err)
{
    if (!wish || !wish->figures)
        return pl_fail(err, PL_EINVAL,
                       "a figure is wished for inside on(), with its wish");
    if (!name || !*name || !pl_utf8_ok(name, strlen(name)))
        return pl_fail(err, PL_EINVAL, "a figure needs a name, in UTF-8");
    if (!wish->figures->object)
        wish->figures->object = json_object();
    json_t *number = isfinite(value) ? json_real(value) : json_null();
    return json_object_set_new(wish->figures->object, name, number) == 0
               ? PL_OK
               : pl_no_memory(err);
}
