/* actors.c - tests of engine/runtime/actor.c, call.c and deliver.c: calls, answers,
 * levels, limits; and of reactor.c: what is posted */
#include <stdlib.h>
#include <string.h>

#include "actor_rig.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "runtime/actors.h"
#include "runtime/message.h"
#include "tap.h"

/* ---- a clock that may leap ---- */

int64_t __real_pl_now(void), __wrap_pl_now(void);

static _Atomic int64_t leap;

int64_t __wrap_pl_now(void)
{
    return __real_pl_now() + leap;
}

/* ---- tests ---- */

static void a_call_gets_progress_and_one_reply(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        rig_spawn(&bee_ops, rig_wheres[w], "", &bee);
        rig_ask(bee, DO_PROGRESS);
        rig_wait(1);
        is_int(rig.queen->progress, 3 + 1,
               "three signs of progress and one of the start, %s", rig_where_names[w]);
        is_int(rig.queen->replies, 1, "one reply");
        rig_close();
    }
}

static void an_error_names_the_actor_and_the_reason(void)
{
    rig_open();
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_AS_RANK_0, "", &bee);
    rig_ask(bee, DO_FAIL);
    rig_wait(1);
    is_int(rig.queen->code, PL_EINVAL, "the handler's code comes up");
    is_text(rig.queen->text, "no honey", "with its text");
    is_text(rig.queen->where, "rank 0 a", "and where it was");
    rig_close();
}

static void an_answer_does_not_wait_for_long_work_behind_it(void)
{
    rig_open();
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_AS_RANK_0, "", &bee);
    int64_t began = pl_now();
    for (int k = 0; k < 4; k++)
        rig_ask(bee, DO_LINGER);
    rig_wait(4);
    is_int(rig.queen->replies, 4, "all answer");
    ok(pl_now() - began < 9 * PL_SECOND, "each before the next was done");
    began = pl_now();
    for (int k = 0; k < 4; k++)
        rig_ask(bee, k == 2 ? DO_REPLY : DO_LINGER);
    rig_wait(4);
    is_int(rig.queen->replies, 8, "so do they when one of them is quick");
    ok(pl_now() - began < 9 * PL_SECOND, "that one before the next was done");
    rig_close();
}

static void a_child_that_cannot_start_ends_its_start(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        rig_spawn(&bee_ops, rig_wheres[w], "fail", &bee);
        rig_wait(1);
        is_int(rig.queen->errors, 1, "start failed %s", rig_where_names[w]);
        is_text(rig.queen->text, "no flowers", "and says why");
        rig_close();
    }
}

static void a_death_ends_the_start_and_all_open_calls(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        rig_spawn(&bee_ops, rig_wheres[w], "", &bee);
        rig_ask(bee, DO_KEEP);
        rig_ask(bee, DO_END);
        rig_wait(3);
        is_int(rig.queen->errors, 3, "the start and both calls, %s", rig_where_names[w]);
        pl_error_t err = {0};
        if (pl_call_save(rig.queen, bee, &(pl_save_t){0}, rig_how, &err))
            rig_wait(1);
        ok(rig.queen->errors == 4 || err.code < 0, "a later call fails too");
        rig_close();
    }
}

static void calls_go_to_lower_levels_only(void)
{
    rig_open();
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    pl_address_t sideways = {bee.thread, bee.actor,
                             pl_kind_enter("queen", PL_LEVEL_FIT_LOOP, NULL)};
    pl_error_t err = {0};
    is_int(pl_call_save(rig.queen, sideways, &(pl_save_t){0}, rig_how, &err), 0,
           "a call to the same level is not made");
    is_int(err.code, PL_EHIERARCHY, "with its own code");
    like(err.text, "queen.*level 60.*queen.*level 60", "that names both");
    is_int(rig.runtime->refused, 1, "and is counted");
    rig_close();
}

static void a_message_is_called_by_its_levels_only(void)
{
    rig_open();
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    pl_error_t err = {0};
    is_int(pl_call_open_data(rig.queen, bee, &(pl_open_data_t){.data_info = ""}, rig_how,
                             &err),
           0, "a loop does not call a message of the worker");
    is_int(err.code, PL_EHIERARCHY, "with its own code");
    is_text(err.text,
            "queen (level 60) may not call open_data on a: only level WORKER may",
            "that names both");
    ok(!pl_call_join(rig.queen, bee, &(pl_join_t){.addresses = ""}, rig_how, &err)
           && !strcmp(err.text, "queen (level 60) may not call join on a: only level "
                                "LAUNCHER | WORKER | STRATEGY may"),
       "nor a message of several levels that are not its own");
    is_int(rig.runtime->refused, 2, "both are counted");
    rig_close();
}

/* What the caller's side would not let out: an envelope made by hand. */
static void send_forged(pl_address_t to, uint32_t from_kind, uint64_t run,
                        uint32_t incarnation, uint32_t message, const void *fields)
{
    const pl_address_t *from = &actor_of(rig.queen)->address;
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                       .kind = PL_KIND_CALL,
                       .message = (uint16_t)message,
                       .call = 99,
                       .remaining = -1,
                       .run = run,
                       .incarnation = incarnation,
                       .from_thread = from->thread,
                       .from_actor = from->actor,
                       .from_kind = from_kind,
                       .to_thread = to.thread,
                       .to_actor = to.actor,
                       .to_kind = to.kind};
    pl_frame_t frame;
    pl_frame_make(&frame, &e, fields, NULL);
    pl_reactor_send(rig.reactor, &frame, NULL);
}

static void the_mailbox_refuses_what_is_not_allowed(void)
{
    rig_open();
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    uint32_t connector = pl_kind_enter("b", PL_LEVEL_CONNECTOR, NULL),
             loop = pl_kind_enter("queen", PL_LEVEL_FIT_LOOP, NULL);
    uint64_t run = rig.runtime->run;
    send_forged(bee, connector, run, 0, PL_MESSAGE_save, &(pl_save_t){0});
    send_forged(bee, loop, run, 7, PL_MESSAGE_save, &(pl_save_t){0});
    send_forged(bee, loop, run + 1, 0, PL_MESSAGE_save, &(pl_save_t){0});
    send_forged(bee, loop, run, 0, PL_MESSAGE_start, &(pl_start_t){0});
    send_forged(bee, loop, run, 0, PL_MESSAGE_begin, &(pl_begin_t){0});
    send_forged(bee, loop, run, 0, PL_MESSAGE_evaluate, &(pl_evaluate_t){0});
    send_forged(bee, loop, run, 0, PL_MESSAGE_open_data,
                &(pl_open_data_t){.data_info = ""});
    rig_ask(bee, DO_REPLY);
    rig_wait(1);
    is_int(
        rig.runtime->refused, 7,
        "a sideways call, another incarnation, another run, a second start, a message it "
        "has no handler, "
        "one for another level, one by another level than its own");
    is_int(rig.queen->replies, 1, "and the actor continues");
    rig_close();
}

static void a_child_gets_no_address_of_a_higher_level(void)
{
    rig_open();
    pl_address_t bee, other;
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    pl_start_t start = {.options = ""};
    pl_peers_add(&start.peers, "sister", bee);
    pl_spawn(rig.queen, &other_bee_ops, PL_SAME_THREAD, &start, rig_how, &other, NULL);
    rig_wait(1);
    is_int(rig.queen->code, PL_EHIERARCHY,
           "a connector is not started with a connector's address");
    rig_close();
}

static void a_limit_cancels_but_only_the_answer_ends(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        rig_spawn(&bee_ops, rig_wheres[w], "", &bee);
        pl_how_t hurried = {.on_answer = rig_how.on_answer, .total_ms = 5};
        pl_call_save(rig.queen, bee, &(pl_save_t){.global_step = DO_KEEP}, hurried, NULL);
        rig_wait(2);
        is_int(rig.queen->late, 1, "the lateness is reported once, %s",
               rig_where_names[w]);
        is_int(rig.queen->errors, 1, "then ended by the callee");
        is_text(rig.queen->text, "as you like", "that was sent a cancel");
        rig_close();
    }
}

static void silence_has_a_limit_of_its_own(void)
{
    rig_open();
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    pl_how_t listening = {.on_answer = rig_how.on_answer, .silence_ms = 5};
    pl_call_save(rig.queen, bee, &(pl_save_t){.global_step = DO_KEEP}, listening, NULL);
    rig_wait(2);
    is_int(rig.queen->late, 1, "a call without signs of life is late");
    rig_close();
}

/* The test's thread watches; a clock that leaps is what a process that was stopped
 * sees. */
static void limits_start_again_after_a_suspension(void)
{
    rig_open();
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    pl_how_t hurried = {.on_answer = rig_how.on_answer, .total_ms = 500};
    pl_how_t listening = {.on_answer = rig_how.on_answer, .silence_ms = 500};
    rig_ask(bee, DO_REPLY);
    pl_call_save(rig.queen, bee, &(pl_save_t){.global_step = DO_KEEP}, hurried, NULL);
    pl_call_save(rig.queen, bee, &(pl_save_t){.global_step = DO_KEEP}, listening, NULL);
    rig_wait(1);
    leap = 10 * PL_SECOND;
    int64_t woke = pl_now();
    rig_wait(1);
    ok(pl_now() - woke > PL_SECOND * 4 / 10, "both have their whole time again");
    rig_wait(3);
    is_int(rig.queen->late, 2, "and no more than that");
    rig_close();
}

static void children_end_last_made_first(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t boss;
        uint64_t life = rig_spawn(&boss_ops, PL_OWN_THREAD, w ? "own" : "same", &boss);
        pl_cancel(rig.queen, life);
        rig_wait(1);
        is_int(rig.queen->replies, 1, "the boss ended in order, its bees %s",
               rig_where_names[w]);
        is_text(rig.ended, "ba", "after its bees, the last made first");
        rig_close();
    }
}

static void a_stuck_child_is_given_up_and_named(void)
{
    rig_open();
    rig.runtime->grace_ms = 20;
    pl_address_t boss;
    uint64_t life = rig_spawn(&boss_ops, PL_OWN_THREAD, "same", &boss);
    rig_order(boss, DO_STICK);
    pl_cancel(rig.queen, life);
    rig_wait(2);
    is_int(rig.queen->code, PL_ESTUCK, "the boss's end says that a child is stuck");
    like(rig.queen->text, "a does not end.*processes", "which one, and what would help");
    rig_unstick();
    rig_close();
}

static void an_actor_takes_no_more_than_its_credit(void)
{
    rig_open();
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    for (int k = 0; k < 6; k++)
        rig_ask(bee, DO_KEEP);
    rig_wait(2);
    is_int(rig.queen->errors, 2, "two of six calls are refused");
    is_int(rig.queen->code, PL_EBUSY, "as too much");
    pl_call_stop(rig.queen, bee, &(pl_stop_t){.reason = ""}, rig_how, NULL);
    rig_wait(1);
    is_int(rig.queen->code, PL_EPROTOCOL,
           "but never a stop from an actor that takes stops");
    rig_close();
}

/* ---- objects ---- */

static int objects;                                         /* atomic */

/* Takes its time, so that an answer that did not wait for it would be seen before. */
static void object_release(pl_object_t *object)
{
    for (int64_t until = pl_now() + 2 * PL_MILLISECOND; pl_now() < until;)
        continue;
    __atomic_sub_fetch(&objects, 1, __ATOMIC_RELAXED);
    pl_free(object);
}

static int objects_left(void)
{
    return __atomic_load_n(&objects, __ATOMIC_RELAXED);
}

static pl_object_t *object_new(void)
{
    pl_object_t *object = pl_alloc(sizeof *object);
    pl_object_init(object, object_release);
    __atomic_add_fetch(&objects, 1, __ATOMIC_RELAXED);
    return object;
}

static void an_object_lives_as_long_as_the_call(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        rig_spawn(&bee_ops, rig_wheres[w], "", &bee);
        pl_object_t *object = object_new();
        uint64_t call =
            pl_call_save(rig.queen, bee,
                         &(pl_save_t){.weights = object, .global_step = DO_KEEP}, rig_how,
                         NULL);
        pl_object_unref(object);
        rig_ask(bee, DO_REPLY);
        rig_wait(1);
        is_int(objects_left(), 1, "alive while the call is open, %s", rig_where_names[w]);
        pl_cancel(rig.queen, call);
        rig_wait(1);
        is_int(objects_left(), 0, "gone with its end");
        rig_close();
        is_int(pl_flight_count(), 0, "nothing in flight");
    }
}

static void objects_of_unanswered_calls_are_freed(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        uint64_t life = rig_spawn(&bee_ops, rig_wheres[w], "", &bee);
        for (int k = 0; k < 3; k++) {
            pl_object_t *object = object_new();
            pl_call_save(rig.queen, bee,
                         &(pl_save_t){.weights = object, .global_step = DO_KEEP}, rig_how,
                         NULL);
            pl_object_unref(object);
        }
        pl_cancel(rig.queen, life);
        rig_wait(4);
        rig_close();
        is_int(objects_left(), 0, "when the actor ends %s", rig_where_names[w]);
        is_int(pl_flight_count(), 0, "nothing in flight");
    }
}

static void an_unknown_number_finds_no_object(void)
{
    pl_object_t *object = object_new();
    uint64_t number = pl_flight_enter(object, NULL);
    ok(pl_flight_find(number) == object, "the object in flight is found");
    ok(!pl_flight_find(number + 1) && !pl_flight_find(number + (UINT64_C(1) << 32))
           && !pl_flight_find(~UINT64_C(0)),
       "other numbers find nothing");
    pl_flight_leave(number);
    ok(!pl_flight_find(number), "nor does its own, afterwards");
    pl_object_unref(object);
    is_int(objects_left(), 0, "no reference is left");
}

/* ---- what is posted ---- */

typedef struct work {
    pl_reactor_t *reactor;
    bool has_begun;                                         /* atomic */
    int done;
} work_t;

static void work_until_it_is_to_leave(void *argument)
{
    work_t *work = argument;
    __atomic_store_n(&work->has_begun, true, __ATOMIC_RELEASE);
    eventually(__atomic_load_n(&work->reactor->asked_to_leave, __ATOMIC_ACQUIRE));
    work->done++;
}

static void work_once(void *argument)
{
    ((work_t *)argument)->done++;
}

static void posted_messages_are_handled_before_the_thread_ends(void)
{
    rig_open();
    work_t work = {.reactor = pl_reactor_new(rig.runtime, -1, NULL)};
    pl_reactor_start(work.reactor, "worker", NULL);
    pl_reactor_post(work.reactor, work_until_it_is_to_leave, &work, NULL);
    ok(eventually(__atomic_load_n(&work.has_begun, __ATOMIC_ACQUIRE)), "a busy thread");
    pl_reactor_post(work.reactor, work_once, &work, NULL);
    pl_reactor_stop(work.reactor);
    is_int(work.done, 2, "does what is left before it ends");
    rig_close();
}

/* ---- memory ---- */

static int allocations_left = -1;

static void *failing_malloc(size_t bytes)
{
    int left = __atomic_load_n(&allocations_left, __ATOMIC_RELAXED);
    if (left >= 0 && __atomic_fetch_sub(&allocations_left, 1, __ATOMIC_RELAXED) == 0)
        return NULL;
    return malloc(bytes);
}

static void *failing_realloc(void *memory, size_t bytes)
{
    int left = __atomic_load_n(&allocations_left, __ATOMIC_RELAXED);
    if (left >= 0 && __atomic_fetch_sub(&allocations_left, 1, __ATOMIC_RELAXED) == 0)
        return NULL;
    return realloc(memory, bytes);
}

static void *watched;                                       /* a context */
static int watched_freed, context_answers;

static void noting_free(void *memory)
{
    if (memory && memory == __atomic_load_n(&watched, __ATOMIC_RELAXED))
        __atomic_fetch_add(&watched_freed, 1, __ATOMIC_RELAXED);
    free(memory);
}

static void context_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    context_answers += ++*(int *)answer->context > 0;       /* it is there still */
}

/* An open call of the queen that has its context, an int. */
static uint64_t own_call(pl_address_t bee, uint64_t what)
{
    const pl_how_t how = {.on_answer = context_answered,
                          .context = pl_alloc(sizeof(int))};
    context_answers = watched_freed = 0;
    __atomic_store_n(&watched, how.context, __ATOMIC_RELAXED);
    const uint64_t call = pl_call_save(rig.queen, bee, &(pl_save_t){.global_step = what},
                                       how, NULL);
    pl_give_context(rig.queen, call);
    return call;
}

static void a_context_that_a_call_owns_is_freed_with_it(void)
{
    pl_address_t bee;
    rig_open();
    rig_spawn(&bee_ops, rig_wheres[1], "", &bee);
    own_call(bee, DO_PROGRESS);
    ok(eventually((rig_turn(), context_answers >= 4)),
       "three reports and a reply have it");
    is_int(watched_freed, 1, "it is freed behind the reply");
    pl_abandon(rig.queen, own_call(bee, DO_KEEP));
    is_int(watched_freed, 1, "and with a call that is abandoned");
    own_call(bee, DO_KEEP);
    rig_close();
    is_int(watched_freed, 1, "and when the engine closes");
    is_int(context_answers, 0, "without an answer");
    __atomic_store_n(&watched, NULL, __ATOMIC_RELAXED);
}

static void calls_end_whichever_allocation_fails(void)
{
    int bad = 0;
    for (int nth = 0; nth < 60; nth++)
        for (int w = 0; w < 2; w++) {
            rig_open();
            pl_address_t bee = {0};
            __atomic_store_n(&allocations_left, nth, __ATOMIC_RELAXED);
            uint64_t life = rig_spawn(&bee_ops, rig_wheres[w], "", &bee);
            uint64_t call = life ? rig_ask(bee, DO_PROGRESS) : 0;
            if (call)
                rig_wait(1);
            __atomic_store_n(&allocations_left, -1, __ATOMIC_RELAXED);
            bad += life && !call && rig.queen->replies;
            rig_close();
            bad += pl_flight_count();
        }
    is_int(bad, 0, "every call ended and nothing stayed in flight");
}

int main(void)
{
    pl_memory_hooks(failing_malloc, failing_realloc, noting_free);
    run(a_call_gets_progress_and_one_reply);
    run(an_error_names_the_actor_and_the_reason);
    run(an_answer_does_not_wait_for_long_work_behind_it);
    run(a_child_that_cannot_start_ends_its_start);
    run(a_death_ends_the_start_and_all_open_calls);
    run(calls_go_to_lower_levels_only);
    run(a_message_is_called_by_its_levels_only);
    run(the_mailbox_refuses_what_is_not_allowed);
    run(a_child_gets_no_address_of_a_higher_level);
    run(a_limit_cancels_but_only_the_answer_ends);
    run(silence_has_a_limit_of_its_own);
    run(limits_start_again_after_a_suspension);
    run(children_end_last_made_first);
    run(a_stuck_child_is_given_up_and_named);
    run(an_actor_takes_no_more_than_its_credit);
    run(an_object_lives_as_long_as_the_call);
    run(objects_of_unanswered_calls_are_freed);
    run(an_unknown_number_finds_no_object);
    run(posted_messages_are_handled_before_the_thread_ends);
    run(a_context_that_a_call_owns_is_freed_with_it);
    run(calls_end_whichever_allocation_fails);
    return tap_done();
}
