/* finetuning.c - trains some parameters first, and more of them from certain epochs on
 *
 *   {"name": "finetuning", "freeze": "h.*", "epochs": [2, 4], "unfreeze": "h.3.*; h.*"}
 *
 * The trained parameters depend on the epoch alone, so a resumed run trains the same ones
 * as an uninterrupted run. */
#include <stdio.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"

typedef struct finetuning {
    const char *freeze, *unfreeze;
    pl_ints_t epochs;
    int requested;                                          /* groups */
} finetuning_t;

static const pl_option_t finetuning_options[] = {
    PL_TEXT(finetuning_t, freeze, NULL, NULL,
            "patterns of the parameters to freeze at first, separated by spaces"),
    PL_INTS(finetuning_t, epochs, "[]", "0..",
            "epochs at which more parameters are trained, from 0, ascending"),
    PL_TEXT(finetuning_t, unfreeze, "\"\"", NULL,
            "patterns of the parameters to unfreeze at each of epochs, separated by "
            "';'"),
    PL_OPTIONS_END,
};

/* The k-th group of "a b; c"; NULL behind the last. */
static const char *group_at(const char *groups, int k, int *length)
{
    for (; k > 0; k--) {
        groups = strchr(groups, ';');
        if (!groups)
            return NULL;
        groups++;
    }
    *length = (int)strcspn(groups, ";");
    return groups;
}

static int finetuning_start(void *self, pl_error_t *err)
{
    const finetuning_t *f = self;
    int groups = *f->unfreeze != '\0', length;
    while (groups && group_at(f->unfreeze, groups, &length))
        groups++;
    return pl_epochs_check(&f->epochs, "unfreeze", groups, err);
}

static int finetuning_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                         pl_callback_request_t *request, pl_error_t *err)
{
    finetuning_t *f = self;
    size_t used = 0;
    if (point == PL_HOOK_FIT_START) {
        snprintf(request->freeze, sizeof request->freeze, "%s", f->freeze);
        return PL_OK;
    }
    /* The groups of all epochs up to this one that were not requested yet. */
    for (;
         f->requested < f->epochs.count && f->epochs.value[f->requested] <= event->epoch;
         f->requested++) {
        int length = 0;
        const char *group = group_at(f->unfreeze, f->requested, &length);
        int added = snprintf(request->unfreeze + used, sizeof request->unfreeze - used,
                             "%s%.*s", used ? " " : "", length, group);
        if ((size_t)added >= sizeof request->unfreeze - used)
            return pl_fail(err, PL_EINVAL, "the patterns have more than %zu characters",
                           sizeof request->unfreeze);
        used += (size_t)added;
    }
    return PL_OK;
}

const pl_callback_ops_t pl_finetuning_callback = {
    .name = "finetuning",
    .help = "unfreezes parameters at given epochs",
    .size = sizeof(finetuning_t),
    .options = finetuning_options,
    .points = PL_AT(FIT_START) | PL_AT(TRAIN_EPOCH_START),
    .start = finetuning_start,
    .on = finetuning_on,
};
