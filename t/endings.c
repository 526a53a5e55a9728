/* endings.c - tests of how actors, calls and threads end: engine/runtime/actor.c,
 * deliver.c and reactor.c */
#include <sched.h>
#include <string.h>

#include "actor_rig.h"
#include "base/clock.h"
#include "base/error.h"
#include "files.h"
#include "runtime/actors.h"
#include "tap.h"

/* ---- relays: actors that call on, two levels of them ---- */

typedef struct relay {
    pl_call_t *call;
    pl_address_t next;
    int64_t deadline;                            /* of the newest call it made; 0: none */
    int ticks;
} relay_t;

static relay_t *newest_relay;
static int64_t evaluate_deadline;                /* of the newest call that a relay got */

static int relay_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    relay_t *relay = newest_relay = self;
    relay->next = pl_peer(self, "next");
    return PL_OK;
}

static int64_t newest_deadline(void *self)
{
    return actor_of(self)->made->deadline;
}

static void relay_second_answer(void *self, const pl_answer_t *answer)
{
    relay_t *relay = self;
    if (answer->kind == PL_ANSWER_REPLY)
        pl_reply_evaluate(relay->call, &(pl_evaluate_reply_t){0});
    if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(relay->call, answer->error);
}

static void relay_answer(void *self, const pl_answer_t *answer)
{
    relay_t *relay = self;
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    pl_call_save(self, relay->next, &(pl_save_t){0},
                 (pl_how_t){relay_second_answer, .context = NULL}, NULL);
    relay->deadline = newest_deadline(self);
}

/* One call with a limit of its own, then, when it is answered, one without. */
static int relay_evaluate(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    relay_t *relay = self;
    pl_how_t limited = {.on_answer = relay_answer, .total_ms = 10000};
    (void)body;
    evaluate_deadline = actor_of(self)->reactor->doing.deadline;
    relay->call = call;
    return pl_call_save(self, relay->next, &(pl_save_t){0}, limited, err) ? PL_OK
                                                                          : err->code;
}

/* One call after its own limit has passed. */
static int relay_train_epoch(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    relay_t *relay = self;
    int64_t until = pl_now() + 3 * PL_MILLISECOND;
    (void)body, (void)err;
    while (pl_now() < until)
        continue;
    pl_call_evaluate(self, relay->next, &(pl_evaluate_t){0}, (pl_how_t){0}, NULL);
    relay->deadline = newest_deadline(self);
    return pl_reply_train_epoch(call, &(pl_train_epoch_reply_t){0});
}

static void relay_tick(void *self)
{
    ((relay_t *)self)->ticks++;
}

/* Ends while its child, a stuck bee, keeps it from being gone; its timer is due
 * in that time. */
static int relay_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_address_t bee;
    (void)call, (void)body;
    pl_spawn(self, &bee_ops, PL_OWN_THREAD, &(pl_start_t){.options = ""}, (pl_how_t){0},
             &bee, err);
    pl_call_save(self, bee, &(pl_save_t){.global_step = DO_STICK}, (pl_how_t){0}, err);
    pl_after(self, 1, relay_tick, err);
    pl_actor_end(self, NULL);
    return PL_OK;
}

static void relay_release(void *self)
{
    ok(((relay_t *)self)->ticks == 0, "no timer called an actor that was ending");
}

static const pl_handler_t relay_handlers[] = {PL_ON(start, relay_start),
                                              PL_ON(evaluate, relay_evaluate),
                                              PL_ON(train_epoch, relay_train_epoch),
                                              PL_ON(stop, relay_stop), PL_HANDLERS_END};
static const pl_actor_ops_t relay_ops = {.name = "relay",
                                         .size = sizeof(relay_t),
                                         .level = PL_LEVEL_EVAL_LOOP,
                                         .handlers = relay_handlers,
                                         .release = relay_release};
static const pl_actor_ops_t epoch_relay_ops = {.name = "relay",
                                               .size = sizeof(relay_t),
                                               .level = PL_LEVEL_EPOCH_LOOP,
                                               .handlers = relay_handlers,
                                               .release = relay_release};

static pl_address_t relay_to(pl_address_t next, const pl_actor_ops_t *ops)
{
    pl_address_t relay;
    pl_start_t start = {.options = ""};
    pl_peers_add(&start.peers, "next", next);
    pl_spawn(rig.queen, ops, PL_SAME_THREAD, &start, rig_how, &relay, NULL);
    return relay;
}

static pl_address_t relay_to_bee(void)
{
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    return relay_to(bee, &relay_ops);
}

/* A keeper has a boss on a thread of its own, which has bees. */
static int keeper_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    pl_address_t boss;
    (void)call, (void)body;
    pl_spawn(self, &boss_ops, PL_OWN_THREAD, &(pl_start_t){.options = ""}, (pl_how_t){0},
             &boss, err);
    pl_call_evaluate(self, boss, &(pl_evaluate_t){.global_step = DO_STICK}, (pl_how_t){0},
                     err);
    return PL_OK;
}

static const pl_handler_t keeper_handlers[] = {PL_ON(start, keeper_start),
                                               PL_HANDLERS_END};
static const pl_actor_ops_t keeper_ops = {.name = "keeper",
                                          .size = 1,
                                          .level = PL_LEVEL_EPOCH_LOOP,
                                          .handlers = keeper_handlers};

/* ---- calls ---- */

static void a_call_to_a_thread_that_goes_ends(void)
{
    rig_open();
    pl_reactor_t *other = pl_reactor_new(rig.runtime, -1, NULL);
    pl_address_t absent = {other->thread, 1,
                           pl_kind_enter("a", PL_LEVEL_CONNECTOR, NULL)};
    rig_ask(absent, DO_REPLY);
    rig_ask(absent, DO_REPLY);
    pl_reactor_free(other);
    rig_wait(2);
    is_int(rig.queen->errors, 2, "two calls that it had not read yet ended");
    is_int(rig.queen->code, PL_EPEER, "as the other side's end");
    like(rig.queen->text, "a ended before it replied to save",
         "that names it and the call");
    is_int(rig.reactor->inboxes.count, 0, "the link is closed");

    pl_error_t err = {0};
    ok(!pl_call_save(rig.queen, absent, &(pl_save_t){0}, rig_how, &err),
       "a later call is not made");
    is_int(err.code, PL_EPEER, "for the same reason");
    rig_close();
}

static void an_answer_given_before_the_end_of_the_thread_counts(void)
{
    rig_open();
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    rig_ask(bee, DO_PROGRESS);
    rig_ask(bee, DO_END);
    rig_wait(3);
    is_int(rig.queen->replies, 1, "the reply came");
    is_int(rig.queen->errors, 2,
           "beside the errors of the start and of the call that ended the bee");
    rig_close();
}

static void an_error_after_the_answer_is_no_second_answer(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        rig_spawn(&bee_ops, rig_wheres[w], "", &bee);
        rig_ask(bee, DO_REPLY_AND_FAIL);
        rig_ask(bee, DO_REPLY);
        rig_wait(2);
        is_int(rig.queen->replies, 2, "two replies %s", rig_where_names[w]);
        is_int(rig.queen->errors, 0, "no error");
        rig_close();
    }
}

static void a_handler_may_answer_after_it_ended_its_actor(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        rig_spawn(&bee_ops, rig_wheres[w], "", &bee);
        rig_ask(bee, DO_END_AND_REPLY);
        rig_wait(2);
        is_int(rig.queen->replies, 1, "its call got its reply %s", rig_where_names[w]);
        is_text(rig.queen->text, "stung", "its start the error");
        rig_close();
    }
}

static void an_answer_does_not_pass_its_limit_on(void)
{
    rig_open();
    pl_address_t relay = relay_to_bee();
    rig_order(relay, 0);
    rig_wait(1);
    is_int(newest_relay->deadline, 0,
           "a call made when one with a limit was answered has none of its own");
    rig_close();
}

static void a_limit_that_has_passed_is_still_a_limit(void)
{
    rig_open();
    pl_address_t relay = relay_to(relay_to_bee(), &epoch_relay_ops);
    pl_how_t hurried = {.on_answer = rig_how.on_answer, .total_ms = 1};
    evaluate_deadline = 0;
    pl_call_train_epoch(rig.queen, relay, &(pl_train_epoch_t){0}, hurried, NULL);
    rig_wait(1);
    rig_turn();
    ok(newest_relay->deadline != 0,
       "a call made after its caller's limit has that limit");
    ok(evaluate_deadline != 0, "and its receiver sees it");
    rig_close();
}

/* ---- ends ---- */

static void the_nearest_parent_names_the_stuck_actor(void)
{
    rig_open();
    rig.runtime->grace_ms = 1000;             /* the boss has 250 ms more than its bees */
    pl_address_t keeper;
    uint64_t life = rig_spawn(&keeper_ops, PL_OWN_THREAD, "", &keeper);
    pl_cancel(rig.queen, life);
    rig_wait(1);
    is_int(rig.queen->code, PL_ESTUCK, "a stuck grandchild comes up");
    like(rig.queen->text, "^a does not end", "under its own name");
    is_int(rig.runtime->stuck, 1, "one thread is given up");
    rig_unstick();
    rig_close();
}

static void an_error_at_the_end_is_reported_to_the_parent(void)
{
    rig_open();
    pl_address_t boss;
    uint64_t life = rig_spawn(&boss_ops, PL_OWN_THREAD, "hard", &boss);
    pl_cancel(rig.queen, life);
    rig_wait(1);
    is_int(rig.queen->errors, 1, "the boss's end is an error");
    is_text(rig.queen->text, "sour honey", "with the error of its bee");
    is_text(rig.queen->where, "b", "the first one to end");
    rig_close();
}

static void an_ending_actor_is_not_called_back(void)
{
    rig_open();
    rig.runtime->grace_ms = 20;
    pl_address_t relay = relay_to_bee();
    pl_call_stop(rig.queen, relay, &(pl_stop_t){.reason = ""}, rig_how, NULL);
    rig_wait(2);
    is_int(rig.queen->code, PL_ESTUCK, "it ended after its child's grace");
    rig_unstick();
    rig_close();
}

static void a_child_with_a_refused_start_is_gone(void)
{
    rig_open();
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    rig.runtime->incarnation++;                       /* the start is of the one before */
    rig_wait(1);
    is_int(rig.queen->code, PL_EPROTOCOL, "the start failed");
    rig_turn();
    is_int(rig.reactor->actors.count, 1, "only the queen is left");
    rig_close();
}

/* ---- threads ---- */

static void threads_that_end_leave_nothing(void)
{
    rig_open();
    int descriptors = 0;
    for (int k = 0; k < 40; k++) {
        pl_address_t bee;
        uint64_t life = rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
        pl_cancel(rig.queen, life);
        rig_wait(1);
        rig_turn();
        rig.ended[0] = '\0';
        if (k == 4)
            descriptors = files_in("/proc/self/fd");
    }
    is_int(rig.reactor->inboxes.count, 0, "no link");
    is_int(rig.reactor->calls.count, 0, "no call");
    int64_t until = pl_now() + 5 * PL_SECOND;   /* ZeroMQ closes its own a little later */
    while (files_in("/proc/self/fd") > descriptors && pl_now() < until)
        sched_yield();
    ok(files_in("/proc/self/fd") <= descriptors, "no descriptor");
    rig_close();
}

static void a_reactor_takes_its_children_with_it(void)
{
    rig_open();
    rig_close();
    int before = files_in("/proc/self/task");
    rig_open();
    pl_address_t bee, boss;
    rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    rig_spawn(&boss_ops, PL_OWN_THREAD, "own", &boss);
    rig_ask(bee, DO_REPLY);
    rig_wait(1);
    rig_close();
    is_int(files_in("/proc/self/task"), before, "no thread is left");
}

int main(void)
{
    run(a_reactor_takes_its_children_with_it);
    run(a_call_to_a_thread_that_goes_ends);
    run(an_answer_given_before_the_end_of_the_thread_counts);
    run(an_error_after_the_answer_is_no_second_answer);
    run(a_handler_may_answer_after_it_ended_its_actor);
    run(an_answer_does_not_pass_its_limit_on);
    run(a_limit_that_has_passed_is_still_a_limit);
    run(an_error_at_the_end_is_reported_to_the_parent);
    run(a_child_with_a_refused_start_is_gone);
    run(threads_that_end_leave_nothing);
    run(the_nearest_parent_names_the_stuck_actor);
    run(an_ending_actor_is_not_called_back);
    return tap_done();
}
