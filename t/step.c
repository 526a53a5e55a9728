/* step.c - tests of strategies/replica/step.c and replica/train.c: the state machine
 * of training steps, alone and in a run whose results come late */
#include "strategies/replica/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rig.h"
#include "strategies/replica/replica.h"
#include "strategies/strategies.h"
#include "tap.h"

/* ---- Every event in every state ---- */

/* How far a step is sent: what may come, and where it leads.  "again" besides: below. */
static const char *const sending[] = {
    "unsent, compute sent, computing",
    "computing, compute ordered, computed",
    "computing, collective begun, in_collective",
    "in_collective, collective done, computing",
    "computed, reduce sent, reducing",
    "computed, update sent, updating",
    "computed, all sent, sent",
    "reducing, reduce ordered, reduced",
    "reduced, update sent, updating",
    "reduced, all sent, sent",
    "updating, update ordered, updated",
    "updated, follow sent, following",
    "updated, all sent, sent",
    "following, follow ordered, followed",
    "followed, all sent, sent",
    "skipped, follow sent, skipped",
    "skipped, all sent, sent",
    "skipped, compute ordered, skipped",
    "skipped, reduce ordered, skipped",
    "skipped, update ordered, skipped",
    "skipped, follow ordered, skipped",
    "failed, compute ordered, failed",
    "failed, reduce ordered, failed",
    "failed, update ordered, failed",
    "failed, follow ordered, failed",
};

/* Behind a skipped step a step may be sent again from these, once it owes nothing. */
static const char again_from[] =
    " unsent computed reduced updated followed sent skipped ";

static const char *const stages[] = {"compute", "reduce", "update", "follow"};

/* In which states a stage is on its way into order: its results cannot come yet. */
static const char *const under_way[] = {" computing in_collective ", " reducing ",
                                        " updating ", " following "};

static bool is_among(const char *words, const char *word)
{
    char spaced[32];
    snprintf(spaced, sizeof spaced, " %s ", word);
    return strstr(words, spaced);
}

/* Where an event of how far a step is sent leads, or NULL. */
static const char *sending_to(const char *state, const char *event)
{
    char from[64];
    snprintf(from, sizeof from, "%s, %s, ", state, event);
    for (size_t k = 0; k < sizeof sending / sizeof *sending; k++)
        if (!strncmp(sending[k], from, strlen(from)))
            return sending[k] + strlen(from);
    return NULL;
}

/* What is to come of an event: the state's name, or NULL where it cannot come; and which
 * stages are owed then. */
static const char *expected(const char *state, const char *event, unsigned *owed)
{
    const char *what = "";
    int stage = -1;
    for (int k = 0; k < 4; k++)
        if (!strncmp(event, stages[k], strlen(stages[k]))) {
            stage = k;
            what = event + strlen(stages[k]) + 1;
        }
    const unsigned bit = stage < 0 ? 0 : 1u << stage;
    const bool owes = *owed & bit, failed = !strcmp(state, "failed");
    if (!strcmp(what, "reported") || !strcmp(what, "failed")
        || !strcmp(what, "skipped")) {
        if (!owes || (!strcmp(what, "reported") && is_among(under_way[stage], state)))
            return NULL;
        *owed &= ~bit;
        return failed || !strcmp(what, "reported") ? state : what;
    }
    if (!strcmp(event, "again"))
        return !*owed && is_among(again_from, state) ? "unsent" : NULL;
    const char *to = sending_to(state, event);
    if (!to || (!strcmp(what, "sent") && owes) || (!strcmp(what, "ordered") && !owes))
        return NULL;
    if (!strcmp(what, "sent"))
        *owed |= bit;
    return to;
}

static bool objective_is_right(pl_objective_phase_t state, unsigned owed,
                               pl_objective_event_t event)
{
    pl_objective_stages_t now = {state, owed};
    pl_error_t err = {0};
    unsigned left = owed;
    const char *from = pl_objective_phase_names[state],
               *name = pl_objective_event_names[event], *to = expected(from, name, &left);
    const int code = pl_objective_take(&now, event, &err);
    const bool is_right = to ? code == PL_OK
                                   && !strcmp(pl_objective_phase_names[now.phase], to)
                                   && now.owed == left
                             : code == PL_EBUG && now.phase == state && now.owed == owed
                                   && strstr(err.text, from) && strstr(err.text, name);
    if (!is_right)
        tap_diag("%s, owed %x, %s: code %d, %s, owed %x; expected %s, owed %x", from,
                 owed, name, code, pl_objective_phase_names[now.phase], now.owed,
                 to ? to : "a bug", left);
    return is_right;
}

static void a_step_takes_the_events_of_its_state_and_refuses_others(void)
{
    int wrong = 0, taken = 0;
    for (int state = 0; state < PL_OBJECTIVE_PHASES; state++)
        for (unsigned owed = 0; owed < 16; owed++)
            for (int event = 0; event < PL_OBJECTIVE_EVENTS; event++) {
                wrong += !objective_is_right(state, owed, event);
                taken++;
            }
    is_int(taken, 13 * 16 * 22, "each event, in each state, whatever is owed");
    is_int(wrong, 0,
           "leads where the machine's drawing says, or is a bug that names both");
}

/* The steps in flight: where each event leads from each state, in the order of
 * PL_PIPELINE_EVENT_LIST; "-": it cannot come. */
static const char *const pipeline[PL_PIPELINE_STATES][PL_PIPELINE_EVENTS] = {
    {"draining", "-", "-", "-", "-", "held", "-", "open", "broken"},
    {"draining", "diagnosing", "-", "-", "ended", "-", "-", "-", "broken"},
    {"diagnosing", "-", "following", "open", "ended", "-", "-", "-", "diagnosing"},
    {"following", "-", "-", "open", "ended", "-", "-", "-", "following"},
    {"-", "-", "-", "-", "-", "-", "open", "held", "broken"},
    {"ended", "-", "-", "-", "-", "ended and held", "-", "open", "broken"},
    {"-", "-", "-", "-", "-", "-", "ended", "held", "broken"},
    {"broken", "-", "-", "-", "broken", "broken", "broken", "broken", "broken"},
};

static void the_steps_in_flight_take_the_events_of_their_state(void)
{
    int wrong = 0;
    for (int from = 0; from < PL_PIPELINE_STATES; from++)
        for (int event = 0; event < PL_PIPELINE_EVENTS; event++) {
            pl_pipeline_state_t state = from;
            pl_error_t err = {0};
            const char *to = pipeline[from][event];
            const bool legal = strcmp(to, "-") != 0;
            const int code = pl_pipeline_take(&state, event, &err);
            const bool is_right =
                legal ? code == PL_OK && !strcmp(pl_pipeline_state_names[state], to)
                      : code == PL_EBUG && (int)state == from
                            && strstr(err.text, pl_pipeline_state_names[from])
                            && strstr(err.text, pl_pipeline_event_names[event]);
            if (!is_right)
                tap_diag("%s, %s: code %d, %s; expected %s",
                         pl_pipeline_state_names[from], pl_pipeline_event_names[event],
                         code, pl_pipeline_state_names[state], to);
            wrong += !is_right;
        }
    is_int(wrong, 0, "each event in each state leads where the drawing says");
}

/* ---- a strategy whose sums are in order at once, and reported late ---- */

enum { LATE_MAX = 8, METRICS_MAX = 8 };

typedef struct late {
    pl_replica_t replica;                                   /* first: see replica.h */
    pl_sync_hooks_t sync_hooks;
    int64_t reported_after;                      /* option: sums, or follows */
    int64_t fails_at;                            /* option: of them; 0: none */
    bool follows, tells_twice, ahead;            /* options */
    int uncomputed;                              /* reduced, and without metrics so far */
    int64_t reported;
    struct {
        double *metrics, kept[METRICS_MAX];                 /* held back until reported */
        size_t count;
    } sum[LATE_MAX];
    int waiting;
    bool waits;                                             /* for the timer */
} late_t;

static int max_ahead;                         /* sums that were not reported, at a time */
static int max_uncomputed, without_metrics, followed;

/* All of them; what the host has to know comes with it. */
static void late_tell(void *self)
{
    late_t *late = self;
    late->waits = false;
    while (late->waiting) {
        const int count = late->waiting--;
        if (late->sum[0].metrics)
            memcpy(late->sum[0].metrics, late->sum[0].kept,
                   late->sum[0].count * sizeof(double));
        memmove(late->sum, late->sum + 1, (size_t)(count - 1) * sizeof *late->sum);
        pl_error_t err = {0};
        if (++late->reported == late->fails_at)
            pl_fail(&err, PL_EPEER, "rank 7 is gone");
        pl_replica_reported(&late->replica, err.code ? &err : NULL, false);
    }
}

static int late_keep(late_t *late, const pl_replica_sums_t *sums, pl_error_t *err)
{
    const int k = late->waiting++;
    late->sum[k].metrics = sums->metrics;
    late->sum[k].count = sums->metrics ? sums->metric_count : 0;
    for (size_t i = 0; i < late->sum[k].count; i++) {
        late->sum[k].kept[i] = sums->metrics[i];
        sums->metrics[i] = 0;
    }
    max_ahead = late->waiting > max_ahead ? late->waiting : max_ahead;
    if (!late->waits && pl_after(late, 20, late_tell, NULL) != PL_OK)
        return pl_fail(err, PL_ENOMEM, "no timer");
    late->waits = true;
    pl_replica_ordered(&late->replica);
    if (late->waiting >= late->reported_after)
        late_tell(late);
    return PL_OK;
}

/* As a device orders it: the batch is not computed yet. */
static int late_reduce(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err)
{
    late_t *late = (late_t *)r;
    if (!late->ahead)
        return late_keep(late, sums, err);
    late->uncomputed++;
    if (late->uncomputed > max_uncomputed)
        max_uncomputed = late->uncomputed;
    pl_replica_ordered(r);
    return PL_OK;
}

static void late_computed(pl_replica_t *r, const pl_replica_sums_t *sums)
{
    late_t *late = (late_t *)r;
    late->uncomputed--;
    without_metrics += !sums->metrics;
    late->sum[late->waiting].metrics = NULL;
    late->sum[late->waiting++].count = 0;
    if (late->waiting >= late->reported_after || !sums->metrics)
        late_tell(late);
    else if (!late->waits)
        late->waits = pl_after(late, 20, late_tell, NULL) == PL_OK;
}

static int late_stepped(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err)
{
    late_t *late = (late_t *)r;
    followed++;
    if (late->tells_twice)
        pl_replica_reduced(r, NULL, false);
    return late_keep(late, &(pl_replica_sums_t){.objective = sums->objective}, err);
}

static int late_prepare(pl_replica_t *r, pl_error_t *err)
{
    (void)err;
    pl_replica_prepared(r, NULL);
    return PL_OK;
}

static int late_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    late_t *late = self;
    late->sync_hooks = (pl_sync_hooks_t){.prepare = late_prepare, .reduce = late_reduce};
    if (late->ahead)
        late->sync_hooks.computed = late_computed;
    if (late->follows || late->tells_twice)
        late->sync_hooks.stepped = late_stepped;
    late->replica.sync_hooks = &late->sync_hooks;
    pl_actor_ready(self);
    return PL_OK;
}

/* Steps that are not finite are skipped, whatever the loop says. */
static int late_train(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_body_t skips = *body;
    skips.train_batch.may_skip = true;
    return pl_replica_train(self, call, &skips, err);
}

static const pl_option_t late_options[] = {
    PL_INT(late_t, reported_after, "1", "1..8", "results that are reported together"),
    PL_INT(late_t, fails_at, "0", "0..", "which of the results is a failure; 0: none"),
    PL_BOOL(late_t, follows, "false", "ranks synchronize behind each step"),
    PL_BOOL(late_t, ahead, "false", "sums are sent before the batch is computed"),
    PL_BOOL(late_t, tells_twice, "false", "that synchronization is reported twice"),
    PL_OPTIONS_END,
};

static const pl_handler_t late_handlers[] = {
    PL_ON(start, late_start),
    PL_ON(train_batch, late_train),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t late_strategy = {.name = "late",
                                             .help = "single; results come late",
                                             .size = sizeof(late_t),
                                             .options = late_options,
                                             .role = "strategy",
                                             .devices_max = 1,
                                             .level = PL_LEVEL_STRATEGY,
                                             .handlers = late_handlers,
                                             .base = &pl_single_strategy};

#define RUN "\"log_every_n_steps\": 100, \"num_sanity_val_steps\": 0, \"depth\": 4, "
#define LATE(options) "\"strategy\": {\"name\": \"late\", " options "}, " RUN

static rig_result_t *fit(const char *script, const char *trainer)
{
    rig_t *rig = rig_new(.script = script, .data = "\"batch_size\": 5",
                         .optimizer = "{\"name\": \"adam\", \"lr\": 0.01}",
                         .trainer = trainer);
    max_ahead = max_uncomputed = without_metrics = followed = 0;
    rig_result_t *result = rig_keep(rig_fit(rig));
    is_text(result->status, "ok", "it trains: %s", trainer);
    rig_free(&rig);
    return result;
}

static void is_same(rig_result_t *a, rig_result_t *b, const char *what)
{
    ok(rig_same_bits(a, b), "%s: the same weights", what);
    ok(rig_metric(a, "train_loss") == rig_metric(b, "train_loss"), "and the same loss");
    is_int((long)a->global_step, (long)b->global_step, "after as many steps");
    rig_result_free(a);
    rig_result_free(b);
}

static void steps_are_sent_before_the_sums_before_them_are_reported(void)
{
    rig_result_t *late = fit("", LATE("\"reported_after\": 2") "\"max_steps\": 8");
    is_int(max_ahead, 2, "the second is summed before the first has results");
    is_same(late, fit("", RUN "\"max_steps\": 8"), "reported late");
    late = fit("", LATE("\"reported_after\": 4") "\"max_steps\": 8");
    is_int(max_ahead, 4, "as many as are in flight");
    is_same(late, fit("", RUN "\"max_steps\": 8"), "reported later still");
    is_same(fit("", LATE("\"reported_after\": 1") "\"max_steps\": 7"),
            fit("", RUN "\"max_steps\": 7"), "reported at once");
    is_same(fit("", LATE("\"reported_after\": 2") "\"accumulate_grad_batches\": 2, "
                                                  "\"max_steps\": 4"),
            fit("", RUN "\"accumulate_grad_batches\": 2, \"max_steps\": 4"),
            "of several batches");
}

static void sums_and_updates_are_sent_before_the_batch_is_computed(void)
{
    rig_result_t *ahead = fit("replay of forward_backward takes 20 ms",
                              LATE("\"ahead\": true") "\"max_steps\": 8");
    ok(max_uncomputed > 1, "sums of %d batches are sent before they are computed",
       max_uncomputed);
    is_same(ahead, fit("", RUN "\"max_steps\": 8"), "sent ahead");
    is_same(
        fit("",
            LATE("\"ahead\": true, \"reported_after\": 2") "\"accumulate_grad_batches\": "
                                                           "3, \"max_steps\": 6"),
        fit("", RUN "\"accumulate_grad_batches\": 3, \"max_steps\": 6"),
        "of several batches, reported late");
    is_same(fit("", LATE("\"ahead\": true, \"follows\": true") "\"max_steps\": 5"),
            fit("", RUN "\"max_steps\": 5"), "with something behind each");
}

static void steps_behind_a_skipped_step_come_back_without_metrics(void)
{
    static const char script[] = "step 3 of forward_backward gives nan in fc1.weight;"
                                 "replay of forward_backward takes 20 ms";
    rig_result_t *ahead = fit(script, LATE("\"ahead\": true") "\"max_steps\": 9");
    ok(without_metrics > 0, "%d batches were sent and did not run", without_metrics);
    is_same(ahead, fit(script, LATE("\"reported_after\": 1") "\"max_steps\": 9"),
            "they are sent again");
    rig_t *rig = rig_new(.script = "replay 4 of forward_backward fails",
                         .data = "\"batch_size\": 5",
                         .trainer = LATE("\"ahead\": true") "\"max_steps\": 9");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "a batch that fails ends the run");
    is_int(result->error.code, PL_EIO, "as the device did");
    rig_free(&rig);
}

static void a_skipped_step_waits_for_late_reports(void)
{
    static const char script[] = "step 5 of forward_backward gives nan in fc1.weight";
    is_same(fit(script, LATE("\"reported_after\": 3") "\"max_steps\": 9"),
            fit(script, LATE("\"reported_after\": 1") "\"max_steps\": 9"),
            "one of them is skipped");
    rig_result_t *late =
        fit(script, LATE("\"reported_after\": 2, \"follows\": true") "\"max_steps\": 9");
    is_int(followed, 9, "what follows a step follows a skipped one, too");
    is_same(late, fit(script, LATE("\"reported_after\": 1") "\"max_steps\": 9"),
            "followed late");
}

static void a_failure_that_is_reported_late_ends_the_run_with_its_cause(void)
{
    static const char *const options[] = {
        "\"reported_after\": 1, \"fails_at\": 3",
        "\"reported_after\": 3, \"fails_at\": 4",
        "\"reported_after\": 4, \"fails_at\": 2",
        "\"reported_after\": 2, \"fails_at\": 5, \"follows\": true"};
    for (int k = 0; k < 4; k++) {
        char trainer[256];
        snprintf(trainer, sizeof trainer,
                 "\"strategy\": {\"name\": \"late\", %s}, " RUN "\"max_steps\": 12",
                 options[k]);
        rig_t *rig = rig_new(.data = "\"batch_size\": 5", .trainer = trainer);
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "the run fails: %s", options[k]);
        is_int(result->error.code, PL_EPEER, "with the code of its cause");
        like(result->error.text, "rank 7 is gone", "and its text");
        rig_free(&rig);
    }
}

static void an_unexpected_report_of_a_strategy_ends_the_run(void)
{
    rig_t *rig = rig_new(.data = "\"batch_size\": 5",
                         .trainer = LATE("\"tells_twice\": true") "\"max_steps\": 4");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "the run fails");
    is_int(result->error.code, PL_EBUG, "as a bug");
    like(result->error.text, "no training step waits|cannot come in state",
         "which names what cannot be");
    rig_free(&rig);
}

int main(void)
{
    const pl_registration_t components[] = {{"strategy", &late_strategy},
                                            PL_REGISTRATIONS_END};
    rig_init(components);
    run(a_step_takes_the_events_of_its_state_and_refuses_others);
    run(the_steps_in_flight_take_the_events_of_their_state);
    run(steps_are_sent_before_the_sums_before_them_are_reported);
    run(sums_and_updates_are_sent_before_the_batch_is_computed);
    run(steps_behind_a_skipped_step_come_back_without_metrics);
    run(a_skipped_step_waits_for_late_reports);
    run(a_failure_that_is_reported_late_ends_the_run_with_its_cause);
    run(an_unexpected_report_of_a_strategy_ends_the_run);
    return tap_done();
}
