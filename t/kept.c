/* kept.c - tests of JSON that is built piece by piece for a state or a report, when
 * memory runs out in the middle: it is whole or missing, and nothing else is lost */
#include <stdlib.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "actors/loops/epoch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_path.h"
#include "scarce.h"
#include "tap.h"

static int sign_of(char *text, const char *whole, const char *name)
{
    const bool is_whole = text && strstr(text, whole);
    if (text && !is_whole)
        ok(false, "%s is whole: %s", name, text);
    const int code = text ? PL_OK : PL_ENOMEM;
    pl_text_free(text);
    return code;
}

/* ---- what a checkpoint keeps of the epoch loop ---- */

static int epoch_save(void *user)
{
    return sign_of(pl_epoch_state(user), "\"train_acc\"", "the state");
}

static void the_state_of_an_epoch_is_kept_whole_or_not_at_all(void)
{
    double sum[] = {1, 2, 3, 4};
    pl_epoch_t *e = calloc(1, sizeof *e);
    e->newest = json_object();
    e->sums.sum = sum;
    e->sums.count = 2;
    e->sums.metric[0] = (pl_logged_metric_t){.name = "train_loss", .count = 2};
    e->sums.metric[1] = (pl_logged_metric_t){.name = "train_acc", .from = 2, .count = 2};
    scarce_try(epoch_save, e, "the state");
    json_decref(e->newest);
    free(e);
}

/* ---- what model_checkpoint keeps ---- */

static int checkpoints_keep(void *user)
{
    pl_error_t err = {0};
    return sign_of(pl_model_checkpoint_callback.state(user, &err), "\"epoch=2\"",
                   "the list of checkpoints");
}

static void the_list_of_checkpoints_is_kept_whole_or_not_at_all(void)
{
    static const char state[] = "{\"step\": 9, \"kept\": ["
                                "{\"name\": \"epoch=1\", \"score\": 0.5}, "
                                "{\"name\": \"epoch=2\", \"score\": \"inf\"}]}";
    pl_error_t err = {0};
    void *self = calloc(1, pl_model_checkpoint_callback.size);
    is_int(pl_model_checkpoint_callback.restore(self, state, &err), PL_OK, "it is read");
    scarce_try(checkpoints_keep, self, "the list");
    pl_model_checkpoint_callback.stop(self);
    free(self);
}

/* ---- what ranks' times come to ---- */

static int times_tell(void *user)
{
    static const double step[2][PL_TIMINGS] = {{0, 1, 1, 0, 1}, {0, 2, 1, 0, 1}};
    pl_stragglers_t times = {0};
    (void)user;
    pl_stragglers_add(&times, (pl_bytes_t){step, sizeof step}, 0);
    const json_t *reported = pl_stragglers_report(&times, 2 * PL_SECOND);
    const int code = reported ? PL_OK : PL_ENOMEM;
    if (reported && !json_object_get(reported, "slowest"))
        ok(false, "the times are whole");
    pl_stragglers_release(&times);
    return code;
}

static void times_are_reported_whole_or_not_at_all(void)
{
    scarce_try(times_tell, NULL, "times");
}

int main(void)
{
    scarce_init();
    run(the_state_of_an_epoch_is_kept_whole_or_not_at_all);
    run(the_list_of_checkpoints_is_kept_whole_or_not_at_all);
    run(times_are_reported_whole_or_not_at_all);
    return tap_done();
}
