/* finetuning.c - trains a part of the parameters first, and more of them from certain
 * epochs on
 *
 *   {"name": "finetuning", "freeze": "h.*", "epochs": [2, 4], "unfreeze": "h.3.*; h.*"}
 *
 * What is trained follows from the epoch alone, so a run that goes on from a checkpoint
 * trains what it would have trained. */
#include <stdio.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"

typedef struct finetuning {
    const char *freeze, *unfreeze;
    pl_ints_t epochs;
    int given;                                            /* groups that were requested */
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

static int groups_count(const char *groups)
{
    int count = *groups != '\0', length;
    while (count && group_at(groups, count, &length))
        count++;
    return count;
}

static int finetuning_start(void *self, pl_error_t *err)
{
    const finetuning_t *f = self;
    int groups = groups_count(f->unfreeze);
    if (groups != f->epochs.count)
        return pl_fail(err, PL_EINVAL,
                       "\"epochs\" has %d entries, but \"unfreeze\" has %d: give one "
                       "for each epoch",
                       f->epochs.count, groups);
    for (int k = 1; k < f->epochs.count; k++)
        if (f->epochs.value[k] <= f->epochs.value[k - 1])
            return pl_fail(err, PL_EINVAL,
                           "\"epochs\" must ascend, but %lld follows %lld",
                           (long long)f->epochs.value[k],
                           (long long)f->epochs.value[k - 1]);
    return PL_OK;
}

/* All groups whose time has come since it was asked last. */
static int groups_request(finetuning_t *f, uint32_t epoch, pl_callback_request_t *request,
                          pl_error_t *err)
{
    size_t used = 0;
    for (; f->given < f->epochs.count && f->epochs.value[f->given] <= epoch; f->given++) {
        int length = 0;
        const char *group = group_at(f->unfreeze, f->given, &length);
        int added = snprintf(request->unfreeze + used, sizeof request->unfreeze - used,
                             "%s%.*s", used ? " " : "", length, group);
        if ((size_t)added >= sizeof request->unfreeze - used)
            return pl_fail(err, PL_EINVAL, "the patterns have more than %zu characters",
                           sizeof request->unfreeze);
        used += (size_t)added;
    }
    return PL_OK;
}

static int finetuning_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                         pl_callback_request_t *request, pl_error_t *err)
{
    finetuning_t *f = self;
    if (point != PL_HOOK_FIT_START)
        return groups_request(f, event->epoch, request, err);
    snprintf(request->freeze, sizeof request->freeze, "%s", f->freeze);
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
