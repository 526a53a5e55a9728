/* runtime.c - what a message between actors costs
 *
 *     runtime [PAIRS]
 *
 * Against libevent and ZeroMQ without actors, on the same two threads' worth of work: a
 * call and its reply, and a flood of progress messages.  Within a thread: our queue
 * against a socket pair.  Both sides take turns; each pair gives one ratio, so that what
 * the machine does to both cancels.  Where threads run decides more than what they do (12
 * µs a round trip on one processor, 50 on two of a virtual machine), so each thread gets
 * its processor: once two, once one. */
#include <event2/event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/clock.h"
#include "runtime/actor.h"
#include "runtime/reactor.h"
#include "t/bench/bare.h"
#include "t/bench/bench.h"

enum {
    PAIRS = 31,
    PAIRS_MAX = 999,
    TRIPS = 4000,
    MESSAGES = 100000,
    ORDER = 1000,
    ORDERS_OPEN = 4,
    HOPS = 20000
};

/* ---- actors ---- */

typedef struct echo {
    int nothing;
} echo_t;

static int echo_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

static int echo_begin(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)self, (void)err;
    return pl_reply_begin(call, &(pl_begin_reply_t){.batches = body->begin.stage});
}

static int echo_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_run_progress_t progress = {.event = PL_RUN_EVENT_TRAIN,
                                  .metrics = "{\"train_loss\": 0.25}"};
    (void)self, (void)body, (void)err;
    for (int k = 0; k < ORDER; k++) {
        progress.global_step++;
        pl_progress_run(call, &progress);
    }
    return pl_reply_run(call, &(pl_run_reply_t){0});
}

static const pl_handler_t echo_handlers[] = {PL_ON(start, echo_start),
                                             PL_ON(begin, echo_begin),
                                             PL_ON(run, echo_run), PL_HANDLERS_END};
static const pl_actor_ops_t echo_ops = {.name = "echo",
                                        .size = sizeof(echo_t),
                                        .level = PL_LEVEL_CONNECTOR,
                                        .handlers = echo_handlers},
                            flood_ops = {.name = "flood",
                                         .size = sizeof(echo_t),
                                         .level = PL_LEVEL_FIT_LOOP,
                                         .handlers = echo_handlers};

typedef struct asker {
    pl_address_t echo, flood;
    int left, progress;
} asker_t;

/* run is a call of workers to loops, begin one of loops to connectors. */
static const pl_actor_ops_t asker_ops = {.name = "asker",
                                         .size = sizeof(asker_t),
                                         .level = PL_LEVEL_WORKER},
                            loop_ops = {.name = "loop",
                                        .size = 1,
                                        .level = PL_LEVEL_FIT_LOOP};
static pl_runtime_t runtime;
static pl_reactor_t *reactor;
static asker_t *asker;
static void *looper;

static void ready(void *self, const pl_answer_t *answer)
{
    (void)self;
    if (answer->kind == PL_ANSWER_PROGRESS)
        pl_reactor_leave(reactor);
}

static void rig_open(pl_where_t where)
{
    pl_error_t err;
    void *self;
    bench_must(pl_runtime_init(&runtime, &err), &err);
    reactor = pl_reactor_new(&runtime, -1, &err);
    bench_must(reactor ? PL_OK : PL_ENOMEM, &err);
    bench_must(pl_actor_root(reactor, &asker_ops, &self, &err), &err);
    asker = self;
    bench_must(pl_actor_root(reactor, &loop_ops, &looper, &err), &err);
    pl_spawn(asker, &echo_ops, where, &(pl_start_t){.options = ""},
             (pl_how_t){.on_answer = ready}, &asker->echo, &err);
    pl_reactor_run(reactor);
    reactor->leave = false;
    pl_spawn(asker, &flood_ops, where, &(pl_start_t){.options = ""},
             (pl_how_t){.on_answer = ready}, &asker->flood, &err);
    pl_reactor_run(reactor);
}

static void rig_close(void)
{
    pl_reactor_free(reactor);
    pl_runtime_release(&runtime);
}

static double rig_run(int64_t began)
{
    reactor->leave = false;
    pl_reactor_run(reactor);
    return (double)(pl_now() - began) / 1e9;
}

static void ask_once(void);

static void begin_answered(void *self, const pl_answer_t *answer)
{
    (void)self, (void)answer;
    if (--asker->left > 0)
        ask_once();
    else
        pl_reactor_leave(reactor);
}

static void ask_once(void)
{
    pl_error_t err = {0};
    if (!pl_call_begin(looper, asker->echo, &(pl_begin_t){.stage = 1},
                       (pl_how_t){.on_answer = begin_answered}, &err))
        bench_must(err.code, &err);
}

static double actor_round_trips(int count)
{
    int64_t began = pl_now();
    asker->left = count;
    ask_once();
    return rig_run(began);
}

static void order(void);

static void run_answered(void *self, const pl_answer_t *answer)
{
    asker_t *a = self;
    if (answer->kind == PL_ANSWER_PROGRESS)
        a->progress--;
    else if (a->left > 0)
        order();
    if (a->progress == 0 && answer->kind != PL_ANSWER_PROGRESS)
        pl_reactor_leave(reactor);
}

static void order(void)
{
    pl_error_t err = {0};
    asker->left--;
    if (!pl_call_run(asker, asker->flood, &(pl_run_t){0},
                     (pl_how_t){.on_answer = run_answered}, &err))
        bench_must(err.code, &err);
}

static double actor_messages(int count)
{
    int64_t began = pl_now();
    asker->left = count / ORDER;
    asker->progress = count / ORDER * ORDER;
    for (int k = 0; k < ORDERS_OPEN && asker->left > 0; k++)
        order();
    return rig_run(began);
}

/* ---- a message within a thread: made, sent, taken, let go ---- */

static const pl_envelope_t envelope = {.version = PL_PROTOCOL_VERSION,
                                       .kind = PL_KIND_CALL,
                                       .message = PL_MESSAGE_begin};

static void make(pl_frame_t *frame)
{
    pl_frame_make(frame, &envelope, &(pl_begin_t){.stage = 1}, NULL);
}

static double queue_hops(int count)
{
    pl_queue_t queue = {0};
    pl_frame_t frame;
    int64_t began = pl_now();
    for (int k = 0; k < count; k++) {
        make(&frame);
        pl_queue_reserve(&queue);
        pl_queue_put(&queue, &frame);
        pl_queue_take(&queue, &frame);
        pl_frame_release(&frame);
    }
    double seconds = (double)(pl_now() - began) / 1e9;
    pl_queue_release(&queue);
    return seconds;
}

static void hop_arrived(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)identity, (void)frame;
    ++*(int *)user;
}

static double socket_hops(int count)
{
    static int runs;                     /* a name is free a little after it was closed */
    char endpoint[32];
    pl_error_t err;
    int arrived = 0;
    snprintf(endpoint, sizeof endpoint, "inproc://hops-%d", runs++);
    pl_sockets_t loop = {.base = event_base_new()};
    pl_socket_spec_t in = {.type = PL_SOCKET_ROUTER, .endpoint = endpoint, .bind = true},
                     out = {.type = PL_SOCKET_DEALER,
                            .endpoint = endpoint,
                            .identity = 1};
    pl_socket_t *router = pl_socket_open(&in, &loop, hop_arrived, &arrived, &err);
    pl_socket_t *dealer = pl_socket_open(&out, &loop, hop_arrived, &arrived, &err);
    bench_must(router && dealer ? PL_OK : PL_EIO, &err);
    int64_t began = pl_now();
    for (int k = 0; k < count; k++) {
        pl_frame_t frame;
        make(&frame);
        pl_socket_send(dealer, 0, &frame, NULL);
        while (arrived <= k) {
            pl_sockets_flush(&loop);
            if (arrived <= k)
                event_base_loop(loop.base, EVLOOP_ONCE);
        }
    }
    double seconds = (double)(pl_now() - began) / 1e9;
    pl_socket_close(dealer);
    pl_socket_close(router);
    event_base_free(loop.base);
    return seconds;
}

/* ---- pairs ---- */

typedef struct comparison {
    const char *name, *unit, *against;
    double (*ours)(int count), (*theirs)(int count);
    int count;
    double scale;                                   /* of seconds for one: 1e6 gives us */
    bool is_rate;                                   /* per second instead */
    double bar;                                     /* of theirs / ours in time */
} comparison_t;

static double measurement(const comparison_t *c, double seconds)
{
    return c->is_rate ? c->count / seconds : seconds / c->count * c->scale;
}

static void compare(const comparison_t *c, int pairs)
{
    static double ours[PAIRS_MAX], theirs[PAIRS_MAX], ratio[PAIRS_MAX];
    double low, high;
    c->ours(c->count), c->theirs(c->count);
    for (int k = 0; k < pairs; k++) {
        double a = c->ours(c->count), b = c->theirs(c->count);
        ours[k] = measurement(c, a), theirs[k] = measurement(c, b), ratio[k] = b / a;
    }
    bench_interval(ratio, pairs, &low, &high);
    double middle = bench_median(ratio, pairs);
    printf("{\"name\": \"%s\", \"unit\": \"%s\", \"ours\": %.4g, \"against\": \"%s\", "
           "\"theirs\": %.4g, \"ratio\": %.3f, "
           "\"interval\": [%.3f, %.3f], \"pairs\": %d, \"bar\": %.3g, \"holds\": %s}\n",
           c->name, c->unit, bench_median(ours, pairs), c->against,
           bench_median(theirs, pairs), middle, low, high, pairs, c->bar,
           middle >= c->bar ? "true" : "false");
    fflush(stdout);
}

static double goal(int count)
{
    return count / 500000.0;
}

/* ---- processors ---- */

static cpu_set_t allowed;

/* This thread, and those it makes, on the k-th of the processors that we may use; the
 * first where there are fewer. */
static void stand_on(int k)
{
    cpu_set_t only;
    int processor = 0;
    CPU_ZERO(&only);
    while (!CPU_ISSET(processor, &allowed))
        processor++;
    for (int next = processor + 1; k > 0 && next < CPU_SETSIZE; next++)
        if (CPU_ISSET(next, &allowed))
            processor = next, k--;
    CPU_SET(processor, &only);
    sched_setaffinity(0, sizeof only, &only);
}

static void open_on(int processor, pl_where_t where)
{
    stand_on(processor);
    bare_open(sizeof(pl_envelope_t) + 16);
    rig_open(where);
    stand_on(0);
}

static void close_both(void)
{
    rig_close();
    bare_close();
}

int main(int argc, char **argv)
{
    int pairs = argc > 1 ? atoi(argv[1]) : PAIRS;
    pairs = pairs < 1 ? 1 : pairs > PAIRS_MAX ? PAIRS_MAX : pairs;
    comparison_t trip = {"actor call, two processors",
                         "us",
                         "bare libevent and ZeroMQ",
                         actor_round_trips,
                         bare_round_trips,
                         TRIPS,
                         1e6,
                         false,
                         1 / 1.3};
    comparison_t beside = trip;
    beside.name = "actor call, one processor";
    comparison_t flood = {"actor messages one way",
                          "messages/s",
                          "bare libevent and ZeroMQ",
                          actor_messages,
                          bare_messages,
                          MESSAGES,
                          0,
                          true,
                          1 / 1.3};
    comparison_t rate = {"actor messages one way, a second",
                         "messages/s",
                         "goal",
                         actor_messages,
                         goal,
                         MESSAGES,
                         0,
                         true,
                         1};
    comparison_t within = {"actor call within a thread, round trip",
                           "us",
                           "bare, between threads",
                           actor_round_trips,
                           bare_round_trips,
                           TRIPS,
                           1e6,
                           false,
                           1};
    comparison_t hop = {"message within a thread",
                        "us",
                        "through inproc",
                        queue_hops,
                        socket_hops,
                        HOPS,
                        1e6,
                        false,
                        1};
    sched_getaffinity(0, sizeof allowed, &allowed);
    open_on(1, PL_OWN_THREAD);
    compare(&trip, pairs);
    compare(&flood, pairs);
    compare(&rate, pairs);
    close_both();
    open_on(0, PL_OWN_THREAD);
    compare(&beside, pairs);
    close_both();
    open_on(0, PL_SAME_THREAD);
    compare(&within, pairs);
    close_both();
    pl_context_acquire(NULL);
    compare(&hop, pairs);
    pl_context_release();
    return 0;
}
