/* api_fuzz.c - calls to engines, trainers and loops as chance has them: with any
 * arguments, in any order and state, from inside notifications as well
 *
 *   t/api_fuzz                    about two seconds, as `make check` does
 *   t/api_fuzz SEED [SECONDS]     others, or for longer
 *
 * Each call has to do its work or to refuse with a reason; each accepted request is
 * notified exactly once, and nothing that was freed is notified again.  Calls that
 * need no engine are t/api_calls.c's. */
#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "drawn.h"
#include "drawn_runs.h"
#include "rig.h"
#include "tap.h"

enum { TRAINERS = 3, LOOPS = 1, TICKETS = 4096, CALLS = 200, ROUNDS = 10, WAIT_MS = 20 };

/* Accepted requests, each to be notified. */
typedef struct ticket {
    const char *what;                                       /* the call */
    int reported;
    bool dropped;                       /* its trainer was freed: no notification comes */
} ticket_t;

typedef struct hold {
    pl_trainer_t *trainer;
    pl_loop_t *loop;
    ticket_t *ticket[TICKETS];
    int tickets;
    bool ends;                                         /* of a loop: it is being closed */
    bool may_be_paused;
} hold_t;

static struct event_base *base;
static pl_engine_t *engine;
static hold_t trainers[TRAINERS], loops[LOOPS];
static bool closing, closed, notified, waived, waiting;
static int reported_twice, reported_late, reported_badly, untold;
static char journal[64];

/* ---- notifications ---- */

static void wander(int calls);
static void on_closed(pl_engine_t *which, void *user);

/* Freed with the round; known by the notification's user. */
static ticket_t *ticket_new(const char *what)
{
    ticket_t *ticket = calloc(1, sizeof *ticket);
    ticket->what = what;
    return ticket;
}

static void ticket_keep(hold_t *hold, ticket_t *ticket, bool taken)
{
    if (taken && hold && hold->tickets < TICKETS)
        hold->ticket[hold->tickets++] = ticket;
    else if (!taken)
        free(ticket);
}

static void ticket_reported(ticket_t *ticket)
{
    reported_late += ticket->dropped || waived;
    reported_twice += ticket->reported++ > 0;
    if (!notified && !waiting && drawn_one_in(2)) {
        notified = true;
        wander(1 + drawn_below(3));
        notified = false;
    }
}

static void hold_drop(hold_t *hold)
{
    for (int k = 0; k < hold->tickets; k++)
        hold->ticket[k]->dropped = true;
}

static void hold_release(hold_t *hold, bool whole)
{
    for (int k = 0; k < hold->tickets; k++) {
        const ticket_t *ticket = hold->ticket[k];
        if (whole && !ticket->reported && !ticket->dropped) {
            tap_diag("%s was not notified", ticket->what);
            untold++;
        }
        free(hold->ticket[k]);
    }
    *hold = (hold_t){0};
}

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    double value;
    const bool failed = !strcmp(result->status, "failed");
    reported_badly += failed != (result->error.code != PL_OK)
                      || failed != (*result->error.text != '\0') || !result->metrics
                      || !result->run_dir || !result->text || !result->reason;
    pl_result_metric(result, drawn_text(), &value);
    ticket_reported(user);
}

static void on_command(pl_trainer_t *trainer, const pl_command_result_t *result,
                       void *user)
{
    (void)trainer;
    reported_badly += !result->command || !result->checkpoint
                      || (result->error.code != PL_OK) != (*result->error.text != '\0');
    ticket_reported(user);
}

static void on_loop(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop;
    double value;
    reported_badly += !result->metrics || !result->skipped || !result->run_dir
                      || (result->error.code != PL_OK) != (*result->error.text != '\0');
    pl_loop_metric(result, drawn_text(), &value);
    ticket_reported(user);
}

static void on_loop_closed(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    for (int k = 0; k < LOOPS; k++)
        if (loops[k].loop == loop)
            loops[k].loop = NULL;
    on_loop(loop, result, user);
}

/* Ends every wait: its subject ends soon, or is gone. */
static void relieve(pl_trainer_t *trainer)
{
    const int way = drawn_below(8);
    if (way == 0)
        for (int k = 0; k < TRAINERS; k++)
            if (trainers[k].trainer == trainer) {
                pl_trainer_free(trainer);
                hold_drop(&trainers[k]);
                trainers[k].trainer = NULL;
                return;
            }
    if (way == 1 && !closing)
        pl_engine_close(engine, on_closed, NULL);
    closing |= way == 1;
    pl_trainer_stop(trainer, NULL, NULL);
}

static void on_progress(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)user;
    reported_badly += !progress->event || !progress->metrics;
    if (waiting)
        relieve(trainer);
    else if (!notified && drawn_one_in(8)) {
        notified = true;
        wander(1);
        notified = false;
    }
}

static void on_closed(pl_engine_t *which, void *user)
{
    (void)user;
    reported_badly += which != engine || closed;
    closed = true;
}

/* ---- arguments ---- */

static hold_t *any_trainer(void)
{
    return &trainers[drawn_below(TRAINERS)];
}

static hold_t *any_loop(void)
{
    return &loops[drawn_below(LOOPS)];
}

static pl_engine_t *any_engine(void)
{
    return drawn_one_in(16) ? NULL : engine;
}

/* ---- calls: to the engine ---- */

static void monitor(void)
{
    static const char *const at[] = {"ipc://m",         "tcp://127.0.0.1:*",
                                     "tcp://0.0.0.0:*", "inproc://m",
                                     "ipc://",          "tcp://127.0.0.1:99999",
                                     "ipc:///nowhere/m"};
    DRAWN_CODE(pl_engine_monitor, any_engine(), DRAWN(at));
    reported_badly += !pl_engine_monitor_endpoint(any_engine());
}

static void control(void)
{
    static const char *const at[] = {"ipc://c", "tcp://127.0.0.1:*", "tcp://[::1]:*",
                                     "ipc://../c/c"};
    DRAWN_CODE(pl_engine_control, any_engine(), DRAWN(at));
    reported_badly += !pl_engine_control_endpoint(any_engine());
}

static void dashboard(void)
{
    static const char *const at[] = {"0",         "127.0.0.1:0", "localhost:0", "[::1]:0",
                                     "1.2.3.4:0", "65536",       "0x10",        ":"};
    DRAWN_CODE(pl_engine_dashboard, any_engine(), DRAWN(at));
    reported_badly += !pl_engine_dashboard_url(any_engine());
}

static void file(void)
{
    static const char *const at[] = {"journal", "runs", "/nowhere/journal", "trace"};
    if (drawn_one_in(2))
        DRAWN_CODE(pl_engine_journal, any_engine(), DRAWN(at));
    else
        DRAWN_CODE(pl_engine_trace, any_engine(), DRAWN(at));
}

static void show(void)
{
    static const char *const at[] = {"journal", "runs", "trace", journal};
    pl_journal_t *j = DRAWN_MADE(pl_journal_open, DRAWN(at));
    for (int k = 0; j && k < 20; k++) {
        if (!pl_journal_next(j, NULL))
            break;
        reported_badly += !(pl_journal_seconds(j) >= 0);
        DRAWN_CODE(pl_journal_show, j, any_engine());
    }
    pl_journal_close(j);
    char *text = DRAWN_MADE(pl_journal_explain, DRAWN(at));
    pl_text_free(text);
    text = DRAWN_MADE(pl_journal_explain_run, DRAWN(at), (uint64_t)drawn_int64());
    pl_text_free(text);
}

static void dispatch(void)
{
    if (!notified)
        pl_engine_dispatch(any_engine());
    if (pl_engine_fd(NULL) != -1 || pl_engine_fd(engine) < 0)
        reported_badly++;
}

static void turn(void)
{
    if (notified)
        return;
    struct pollfd readable = {.fd = pl_engine_fd(engine), .events = POLLIN};
    poll(&readable, 1, drawn_below(WAIT_MS));
    if (base)
        event_base_loop(base, EVLOOP_NONBLOCK);
    else
        pl_engine_dispatch(engine);
}

static void close_it(void)
{
    if (!drawn_one_in(30))
        return;
    pl_engine_close(NULL, on_closed, NULL);
    if (!closing)
        pl_engine_close(engine, on_closed, NULL);
    else
        pl_engine_close(engine, NULL, NULL);                /* the first one counts */
    closing = true;
}

/* ---- calls: to trainers ---- */

static void trainer_new(void)
{
    hold_t *hold = any_trainer();
    pl_options_t *options = drawn_options();
    pl_engine_t *of = any_engine();
    if (!hold->trainer) {
        hold->trainer = DRAWN_MADE(pl_trainer_new, of, options);
        pl_trainer_on_progress(hold->trainer, on_progress, NULL);
    }
    pl_options_free(options);
}

static void trainer_free(void)
{
    hold_t *hold = any_trainer();
    if (!drawn_one_in(4))
        return;
    pl_trainer_free(hold->trainer);
    if (hold->trainer)
        hold_drop(hold);
    hold->trainer = NULL;
}

#define TAKEN(hold, call, given, ...) \
    do { \
        ticket_t *ticket = ticket_new(#call); \
        const bool taken = DRAWN_CODE(call, given, __VA_ARGS__, ticket); \
        ticket_keep(hold, ticket, taken); \
    } while (false)

static void begin(void)
{
    hold_t *h = any_trainer();
    switch (drawn_below(6)) {
    case 0: TAKEN(h, pl_trainer_resume, h->trainer, drawn_checkpoint(), on_done); break;
    case 1: TAKEN(h, pl_trainer_validate, h->trainer, drawn_checkpoint(), on_done); break;
    case 2: TAKEN(h, pl_trainer_test, h->trainer, drawn_checkpoint(), on_done); break;
    default: TAKEN(h, pl_trainer_fit, h->trainer, on_done); break;
    }
}

static void predict(void)
{
    const pl_prediction_t what = {.checkpoint = drawn_checkpoint(),
                                  .prompt = drawn_one_in(2) ? NULL : drawn_text(),
                                  .tokens = drawn_int64(),
                                  .temperature = drawn_double(),
                                  .top_k = drawn_int64()};
    hold_t *h = any_trainer();
    TAKEN(h, pl_trainer_predict, h->trainer, drawn_one_in(8) ? NULL : &what, on_done);
}

static void tune(void)
{
    static const char *const sizes[] = {"power", "binsearch"};
    const pl_tuning_t wild = {.min_lr = drawn_double(),
                              .max_lr = drawn_double(),
                              .num_training = drawn_int64(),
                              .early_stop_threshold = drawn_double(),
                              .batch_size = DRAWN(sizes),
                              .steps_per_trial = drawn_int64(),
                              .init_val = drawn_int64(),
                              .max_trials = drawn_int64(),
                              .max_memory = drawn_int64()},
                      tame = {.num_training = 4};
    hold_t *h = any_trainer();
    const pl_tuning_t *what = drawn_one_in(8) ? NULL : drawn_one_in(2) ? &wild : &tame;
    TAKEN(h, pl_trainer_tune, h->trainer, what, on_done);
}

static void stop(void)
{
    DRAWN_CODE(pl_trainer_stop, any_trainer()->trainer, drawn_text());
}

static void command(void)
{
    static const char *const steps[] = {"generator", NULL};
    hold_t *h = any_trainer();
    const char *step = DRAWN(steps);
    switch (drawn_below(6)) {
    case 0:
        h->may_be_paused = true;
        TAKEN(h, pl_trainer_pause, h->trainer, on_command);
        break;
    case 1: TAKEN(h, pl_trainer_continue, h->trainer, on_command); break;
    case 2: TAKEN(h, pl_trainer_save, h->trainer, on_command); break;
    case 3: TAKEN(h, pl_trainer_save_as, h->trainer, drawn_text(), on_command); break;
    case 4:
        TAKEN(h, pl_trainer_set_lr, h->trainer, drawn_double(), step, on_command);
        break;
    default:
        TAKEN(h, pl_trainer_scale_lr, h->trainer, drawn_double(), step, on_command);
        break;
    }
}

/* ---- calls: to loops ---- */

static void loop_open(void)
{
    pl_loop_spec_t spec;
    pl_field_t field[2];
    hold_t *hold = any_loop();
    pl_options_t *options = drawn_options();
    if (!hold->loop) {
        ticket_t *ticket = ticket_new("pl_loop_open");
        hold->ends = false;
        hold->loop = DRAWN_MADE(pl_loop_open, any_engine(), options,
                                drawn_spec(&spec, field), on_loop, ticket);
        ticket_keep(hold, ticket, hold->loop != NULL);
    }
    pl_options_free(options);
}

static void loop_use(void)
{
    static const char *const names[] = {"a", "b", "../c", "a/b", "."};
    static const char *const objectives[] = {NULL, "", "first"};
    static const float values[32];
    const pl_result_tensor_t gradient = {
        .name = drawn_text(), .shape = {1, {drawn_below(9)}}, .data = values};
    pl_arrays_t samples;
    hold_t *h = any_loop();
    const pl_arrays_t *given = drawn_samples(&samples);
    switch (drawn_below(12)) {
    case 0: TAKEN(h, pl_loop_evaluate, h->loop, given, on_loop); break;
    case 1: TAKEN(h, pl_loop_predict, h->loop, given, on_loop); break;
    case 2: TAKEN(h, pl_loop_save, h->loop, DRAWN(names), on_loop); break;
    case 3: DRAWN_CODE(pl_loop_scale_lr, h->loop, drawn_double()); break;
    case 4: TAKEN(h, pl_loop_backward, h->loop, DRAWN(objectives), given, on_loop); break;
    case 5: TAKEN(h, pl_loop_step, h->loop, DRAWN(objectives), on_loop); break;
    case 6: TAKEN(h, pl_loop_gradients, h->loop, DRAWN(objectives), on_loop); break;
    case 7:
        TAKEN(h, pl_loop_set_gradients, h->loop, DRAWN(objectives), &gradient,
              drawn_below(3) - 1, on_loop);
        break;
    default: TAKEN(h, pl_loop_train, h->loop, given, on_loop); break;
    }
}

/* Loops of a closing engine are not to be closed. */
static void loop_close(void)
{
    hold_t *h = any_loop();
    pl_loop_close(NULL, on_loop_closed, NULL);
    if (!h->loop || h->ends || closing || !drawn_one_in(8))
        return;
    ticket_t *ticket = ticket_new("pl_loop_close");
    ticket_keep(h, ticket, true);
    h->ends = true;
    pl_loop_close(h->loop, on_loop_closed, ticket);
}

/* ---- waiting: refused where it must not happen ---- */

static int under_way(const hold_t *holds, int count)
{
    int left = 0;
    for (int h = 0; h < count; h++)
        for (int k = 0; k < holds[h].tickets; k++)
            left += !holds[h].ticket[k]->reported && !holds[h].ticket[k]->dropped;
    return left;
}

/* Progress of a long run stops it, and a paused run is stopped before.  An engine with a
 * base, and a notification, must not wait.  After a wait for all calls each of them has
 * been answered. */
static void wait_for_calls(void)
{
    const bool done = drawn_one_in(4), refuses = base || notified;
    const bool *given = drawn_one_in(3) ? &done : NULL;
    for (int k = 0; k < TRAINERS; k++)
        if (trainers[k].may_be_paused)
            pl_trainer_stop(trainers[k].trainer, NULL, NULL);
    waiting = !refuses;
    const bool has_succeeded = DRAWN_CODE(pl_engine_run_until, engine, given);
    waiting = false;
    reported_badly += refuses && has_succeeded;
    DRAWN_CODE(pl_engine_run_until, NULL, given);
    if (has_succeeded && !given)
        untold += under_way(trainers, TRAINERS) + under_way(loops, LOOPS);
}

/* ---- rounds ---- */

static void wander(int calls)
{
    static void (*const all[])(void) = {
        monitor,  control,     dashboard, file,         show,          dispatch,
        close_it, trainer_new, begin,     trainer_free, predict,       tune,
        stop,     command,     loop_open, loop_use,     turn,          trainer_new,
        begin,    begin,       turn,      command,      loop_use,      turn,
        turn,     loop_close,  turn,      turn,         turn,          command,
        command,  loop_use,    loop_use,  loop_use,     turn,          turn,
        turn,     command,     command,   loop_use,     wait_for_calls};
    while (calls-- > 0)
        all[drawn_below(sizeof all / sizeof *all)]();
}

static void engine_end(bool reported)
{
    const int64_t limit = pl_now() + 60 * PL_SECOND;
    if (reported && !closing)
        pl_engine_close(engine, on_closed, NULL);
    closing = closing || reported;
    while (reported && !closed && pl_now() < limit)
        turn();
    if (reported && !closed) {
        ok(false, "an engine closes within a minute");
        exit(tap_done());
    }
    waived = true;
    pl_engine_free(engine);
    waived = false;
    for (int k = 0; k < TRAINERS; k++)
        hold_release(&trainers[k], reported);
    for (int k = 0; k < LOOPS; k++)
        hold_release(&loops[k], reported);
}

static void a_round(void)
{
    pl_error_t err = {0};
    closing = closed = false;
    base = drawn_one_in(2) ? event_base_new() : NULL;
    engine = pl_engine_new(base, &err);
    if (!engine) {
        ok(false, "an engine can be made: %s", err.text);
        exit(tap_done());
    }
    wander(CALLS);
    engine_end(!drawn_one_in(3));
    if (base)
        event_base_free(base);
}

/* ---- tests ---- */

static uint64_t seed = 1;
static double seconds;

static void every_call_is_done_or_refused(void)
{
    const int64_t until = pl_now() + (int64_t)(seconds * 1e9);
    int rounds = 0;
    for (; seconds > 0 ? pl_now() < until : rounds < ROUNDS; rounds++) {
        drawn_from(seed + (uint64_t)rounds);
        a_round();
    }
    is_int(drawn_broken(), 0,
           "each of %d calls in %d rounds is done, or refused with why", drawn_calls(),
           rounds);
    drawn_tell();
    is_int(untold, 0, "every accepted request is notified");
    is_int(reported_twice, 0, "once");
    is_int(reported_late, 0, "and not when its trainer or engine was freed");
    is_int(reported_badly, 0, "every notification is complete");
}

int main(int argc, char **argv)
{
    drawn_init();
    rig_init(NULL);
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        seconds = atof(argv[2]);
    if (chdir(tap_folder()) != 0)
        return 99;
    run(drawn_runs_begin);
    run(every_call_is_done_or_refused);
    return tap_done();
}
