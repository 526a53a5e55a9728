/* actors.c - tests of engine/runtime/actor.c and call.c: life, calls, limits, levels */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "runtime/actor.h"
#include "runtime/object.h"
#include "runtime/reactor.h"
#include "tap.h"

/* ---- a worker bee that does what the text it is given says ---- */

typedef struct bee {
    pl_call_t *kept;
} bee_t;

static sem_t stuck;
static char ended[64];                                      /* names of bees in the order they ended */

static int bee_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call;
    if (!strcmp(body->start.options, "fail"))
        return pl_fail(err, PL_EIO, "no flowers");
    pl_actor_ready(self);
    return PL_OK;
}

static int bee_save(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    bee_t *bee = self;
    switch (body->save.global_step) {
    case 1:
        return pl_fail(err, PL_EINVAL, "no honey");
    case 2:
        bee->kept = call;
        return PL_OK;
    case 3:
        sem_wait(&stuck);
        break;
    case 4:
        pl_actor_end(self, &(pl_error_t){.code = PL_EIO, .text = "stung"});
        return PL_OK;
    case 5:
        for (int k = 0; k < 3; k++)
            pl_progress_save(call, &(pl_save_progress_t){0});
    }
    return pl_reply_save(call, &(pl_save_reply_t){.path = "hive"});
}

static void bee_cancel(void *self, pl_call_t *call)
{
    bee_t *bee = self;
    if (call == bee->kept) {
        pl_call_fail(call, &(pl_error_t){.code = PL_ECANCELLED, .text = "as you like"});
        bee->kept = NULL;
    } else {
        strcat(ended, pl_actor_name(self));
        pl_actor_end(self, NULL);
    }
}

static const pl_handler_t bee_handlers[] = {PL_ON(start, bee_start), PL_ON(save, bee_save), PL_HANDLERS_END};
static const pl_actor_ops_t bee_ops = {.name = "a", .size = sizeof(bee_t), .level = PL_LEVEL_CONNECTOR, .credit = 4,
                                       .handlers = bee_handlers, .on_cancel = bee_cancel};
static const pl_actor_ops_t other_bee_ops = {.name = "b", .size = sizeof(bee_t), .level = PL_LEVEL_CONNECTOR,
                                             .handlers = bee_handlers, .on_cancel = bee_cancel};

/* ---- the queen: the actor through which a test acts ---- */

typedef struct queen {
    int progress, replies, errors, late;
    int code;
    char text[PL_ERROR_TEXT], where[PL_ERROR_WHERE];
    int leave_at;                                           /* answers of these kinds to wait for */
} queen_t;

static pl_runtime_t *runtime;
static pl_reactor_t *reactor;
static queen_t *queen;

static void queen_answer(void *self, const pl_answer_t *answer)
{
    queen_t *q = self;
    q->progress += answer->kind == PL_ANSWER_PROGRESS;
    q->replies += answer->kind == PL_ANSWER_REPLY;
    q->errors += answer->kind == PL_ANSWER_ERROR;
    q->late += answer->kind == PL_ANSWER_LATE;
    if (answer->kind == PL_ANSWER_ERROR) {
        q->code = answer->error->code;
        strcpy(q->text, answer->error->text);
        strcpy(q->where, answer->error->where);
    }
    if (answer->kind != PL_ANSWER_PROGRESS && --q->leave_at == 0)
        pl_reactor_leave(reactor);
}

static const pl_actor_ops_t queen_ops = {.name = "queen", .size = sizeof(queen_t), .level = PL_LEVEL_HOST};

static void rig_open(void)
{
    runtime = calloc(1, sizeof *runtime);
    pl_runtime_init(runtime, NULL);
    reactor = pl_reactor_new(runtime, -1, NULL);
    void *self = NULL;
    pl_actor_root(reactor, &queen_ops, &self, NULL);
    queen = self;
    ended[0] = '\0';
}

static void rig_close(void)
{
    pl_reactor_free(reactor);
    pl_runtime_release(runtime);
    if (!runtime->stuck)
        free(runtime);
}

static const pl_how_t how = {.on_answer = queen_answer};

static uint64_t spawn(const pl_actor_ops_t *ops, pl_where_t where, const char *options, pl_address_t *at)
{
    return pl_spawn(queen, ops, where, &(pl_start_t){.options = options}, how, at, NULL);
}

static uint64_t ask(pl_address_t at, uint64_t what)
{
    return pl_call_save(queen, at, &(pl_save_t){.global_step = what}, how, NULL);
}

/* Runs until so many calls have ended or are late. */
static void wait_for(int answers)
{
    queen->leave_at = answers;
    reactor->leave = false;
    pl_reactor_run(reactor);
}

static const pl_where_t wheres[] = {PL_SAME_THREAD, PL_OWN_THREAD};
static const char *const where_names[] = {"on the same thread", "on its own thread"};

/* ---- tests ---- */

static void a_call_gets_progress_and_one_reply(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        spawn(&bee_ops, wheres[w], "", &bee);
        ask(bee, 5);
        wait_for(1);
        is_int(queen->progress, 3 + 1, "three signs of progress and one of the start, %s", where_names[w]);
        is_int(queen->replies, 1, "one reply");
        rig_close();
    }
}

static void an_error_names_who_and_why(void)
{
    rig_open();
    pl_address_t bee;
    spawn(&bee_ops, PL_AS_RANK_0, "", &bee);
    ask(bee, 1);
    wait_for(1);
    is_int(queen->code, PL_EINVAL, "the handler's code comes up");
    is_text(queen->text, "no honey", "with its text");
    is_text(queen->where, "rank 0 a", "and where it was");
    rig_close();
}

static void a_child_that_cannot_start_ends_its_start(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        spawn(&bee_ops, wheres[w], "fail", &bee);
        wait_for(1);
        is_int(queen->errors, 1, "start failed %s", where_names[w]);
        is_text(queen->text, "no flowers", "and says why");
        rig_close();
    }
}

static void a_death_ends_the_start_and_all_open_calls(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        spawn(&bee_ops, wheres[w], "", &bee);
        ask(bee, 2);
        ask(bee, 4);
        wait_for(3);
        is_int(queen->errors, 3, "the start and both calls, %s", where_names[w]);
        pl_error_t err = {0};
        if (pl_call_save(queen, bee, &(pl_save_t){0}, how, &err))
            wait_for(1);
        ok(queen->errors == 4 || err.code < 0, "a later call fails too");
        rig_close();
    }
}

static void calls_go_down_only(void)
{
    rig_open();
    pl_address_t bee;
    spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    pl_address_t sideways = {bee.thread, bee.actor, pl_kind_enter("queen", PL_LEVEL_HOST, NULL)};
    pl_error_t err = {0};
    is_int(pl_call_save(queen, sideways, &(pl_save_t){0}, how, &err), 0, "a call to the same level is not made");
    is_int(err.code, PL_EHIERARCHY, "with its own code");
    like(err.text, "queen.*level 100.*queen.*level 100", "that names both");
    is_int(runtime->refused, 1, "and is counted");
    rig_close();
}

/* What the caller's side would not let out: an envelope made by hand. */
static void send_forged(pl_address_t to, uint32_t from_kind, uint32_t epoch, uint32_t message, const void *fields)
{
    const pl_address_t *from = pl_actor_address(queen);
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION, .kind = PL_KIND_CALL, .message = (uint16_t)message, .call = 99,
                       .remaining = -1, .run = runtime->run, .epoch = epoch, .from_thread = from->thread, .from_actor = from->actor,
                       .from_kind = from_kind, .to_thread = to.thread, .to_actor = to.actor, .to_kind = to.kind};
    pl_frame_t frame;
    pl_frame_make(&frame, &e, fields, NULL);
    pl_reactor_send(reactor, &frame, NULL);
}

static void the_mailbox_refuses_what_is_not_allowed(void)
{
    rig_open();
    pl_address_t bee;
    spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    uint32_t connector = pl_kind_enter("b", PL_LEVEL_CONNECTOR, NULL), host = pl_kind_enter("queen", PL_LEVEL_HOST, NULL);
    send_forged(bee, connector, 0, PL_MESSAGE_save, &(pl_save_t){0});
    send_forged(bee, host, 7, PL_MESSAGE_save, &(pl_save_t){0});
    send_forged(bee, host, 0, PL_MESSAGE_start, &(pl_start_t){0});
    send_forged(bee, host, 0, PL_MESSAGE_begin, &(pl_begin_t){0});
    send_forged(bee, host, 0, PL_MESSAGE_allocate, &(pl_allocate_t){0});
    ask(bee, 0);
    wait_for(1);
    is_int(runtime->refused, 5, "a sideways call, an old epoch, a second start, an unknown message, another level's");
    is_int(queen->replies, 1, "and goes on");
    rig_close();
}

static void an_address_upward_is_not_given(void)
{
    rig_open();
    pl_address_t bee, other;
    spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    pl_start_t start = {.options = ""};
    pl_peers_add(&start.peers, "sister", bee);
    pl_spawn(queen, &other_bee_ops, PL_SAME_THREAD, &start, how, &other, NULL);
    wait_for(1);
    is_int(queen->code, PL_EHIERARCHY, "a connector is not started with a connector's address");
    rig_close();
}

static void a_limit_cancels_but_only_the_answer_ends(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        spawn(&bee_ops, wheres[w], "", &bee);
        pl_how_t hurried = {.on_answer = queen_answer, .total_ms = 5};
        pl_call_save(queen, bee, &(pl_save_t){.global_step = 2}, hurried, NULL);
        wait_for(2);
        is_int(queen->late, 1, "told once that it is late, %s", where_names[w]);
        is_int(queen->errors, 1, "then ended by the callee");
        is_text(queen->text, "as you like", "that was sent a cancel");
        rig_close();
    }
}

static void silence_has_its_own_limit(void)
{
    rig_open();
    pl_address_t bee;
    spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    pl_how_t listening = {.on_answer = queen_answer, .silence_ms = 5};
    pl_call_save(queen, bee, &(pl_save_t){.global_step = 2}, listening, NULL);
    wait_for(2);
    is_int(queen->late, 1, "a call without signs of life is late");
    rig_close();
}

/* A middle manager with two bees of its own, to be ended as a whole. */
static int boss_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call;
    pl_address_t at;
    pl_how_t unheard = {0};
    pl_where_t where = strcmp(body->start.options, "own") ? PL_SAME_THREAD : PL_OWN_THREAD;
    if (!pl_spawn(self, &bee_ops, where, &(pl_start_t){.options = ""}, unheard, &at, err)
        || !pl_spawn(self, &other_bee_ops, where, &(pl_start_t){.options = ""}, unheard, &at, err))
        return err->code;
    pl_actor_ready(self);
    return PL_OK;
}

static int boss_evaluate(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call, (void)err;
    pl_address_t at;
    pl_how_t unheard = {0};
    pl_spawn(self, &bee_ops, PL_OWN_THREAD, &(pl_start_t){.options = ""}, unheard, &at, NULL);
    pl_call_save(self, at, &(pl_save_t){.global_step = body->evaluate.global_step}, unheard, NULL);
    return PL_OK;
}

static const pl_handler_t boss_handlers[] = {PL_ON(start, boss_start), PL_ON(evaluate, boss_evaluate), PL_HANDLERS_END};
static const pl_actor_ops_t boss_ops = {.name = "boss", .size = 1, .level = PL_LEVEL_EVAL_LOOP,
                                        .handlers = boss_handlers};

static void children_end_last_made_first(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t boss;
        uint64_t life = spawn(&boss_ops, PL_OWN_THREAD, w ? "own" : "same", &boss);
        pl_cancel(queen, life);
        wait_for(1);
        is_int(queen->replies, 1, "the boss ended in order, its bees %s", where_names[w]);
        is_text(ended, "ba", "after its bees, the last made first");
        rig_close();
    }
}

static void a_stuck_child_is_given_up_and_named(void)
{
    rig_open();
    runtime->grace_ms = 20;
    pl_address_t boss;
    uint64_t life = spawn(&boss_ops, PL_OWN_THREAD, "same", &boss);
    pl_call_evaluate(queen, boss, &(pl_evaluate_t){.global_step = 3}, how, NULL);
    pl_cancel(queen, life);
    wait_for(2);
    is_int(queen->code, PL_ESTUCK, "the boss's end says that a child is stuck");
    like(queen->text, "a does not end.*processes", "which one, and what would help");
    sem_post(&stuck);
    rig_close();
}

static void an_actor_takes_no_more_than_its_credit(void)
{
    rig_open();
    pl_address_t bee;
    spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    for (int k = 0; k < 6; k++)
        ask(bee, 2);
    wait_for(2);
    is_int(queen->errors, 2, "two of six calls are refused");
    is_int(queen->code, PL_EBUSY, "as too much");
    rig_close();
}

/* ---- objects ---- */

static int objects;

static void object_release(pl_object_t *object)
{
    objects--;
    pl_free(object);
}

static pl_object_t *object_new(void)
{
    pl_object_t *object = pl_alloc(sizeof *object);
    pl_object_init(object, object_release);
    objects++;
    return object;
}

static void an_object_lives_as_long_as_the_call(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        spawn(&bee_ops, wheres[w], "", &bee);
        pl_object_t *object = object_new();
        uint64_t call = pl_call_save(queen, bee, &(pl_save_t){.weights = object, .global_step = 2}, how, NULL);
        pl_object_unref(object);
        ask(bee, 0);
        wait_for(1);
        is_int(objects, 1, "alive while the call is open, %s", where_names[w]);
        pl_cancel(queen, call);
        wait_for(1);
        is_int(objects, 0, "gone with its end");
        rig_close();
        is_int(pl_flight_count(), 0, "nothing in flight");
    }
}

static void objects_of_calls_nobody_answered_are_freed(void)
{
    for (int w = 0; w < 2; w++) {
        rig_open();
        pl_address_t bee;
        uint64_t life = spawn(&bee_ops, wheres[w], "", &bee);
        for (int k = 0; k < 3; k++) {
            pl_object_t *object = object_new();
            pl_call_save(queen, bee, &(pl_save_t){.weights = object, .global_step = 2}, how, NULL);
            pl_object_unref(object);
        }
        pl_cancel(queen, life);
        wait_for(4);
        rig_close();
        is_int(objects, 0, "when the actor ends %s", where_names[w]);
        is_int(pl_flight_count(), 0, "nothing in flight");
    }
}

static void a_number_nobody_put_there_finds_no_object(void)
{
    pl_object_t *object = object_new();
    uint64_t number = pl_flight_enter(object, NULL);
    ok(pl_flight_find(number) == object, "the object in flight is found");
    ok(!pl_flight_find(number + 1) && !pl_flight_find(number + (UINT64_C(1) << 32)) && !pl_flight_find(~UINT64_C(0)),
       "other numbers find nothing");
    pl_flight_leave(number);
    ok(!pl_flight_find(number), "nor does its own, afterwards");
    pl_object_unref(object);
    is_int(objects, 0, "no reference is left");
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

static void calls_end_whichever_allocation_fails(void)
{
    int bad = 0;
    for (int nth = 0; nth < 60; nth++)
        for (int w = 0; w < 2; w++) {
            rig_open();
            pl_address_t bee = {0};
            allocations_left = nth;
            uint64_t life = spawn(&bee_ops, wheres[w], "", &bee);
            uint64_t call = life ? ask(bee, 5) : 0;
            if (call)
                wait_for(1);
            allocations_left = -1;
            bad += life && !call && queen->replies;
            rig_close();
            bad += pl_flight_count();
        }
    is_int(bad, 0, "every call ended and nothing stayed in flight");
}

int main(void)
{
    pl_memory_hooks(failing_malloc, failing_realloc, NULL);
    sem_init(&stuck, 0, 0);
    run(a_call_gets_progress_and_one_reply);
    run(an_error_names_who_and_why);
    run(a_child_that_cannot_start_ends_its_start);
    run(a_death_ends_the_start_and_all_open_calls);
    run(calls_go_down_only);
    run(the_mailbox_refuses_what_is_not_allowed);
    run(an_address_upward_is_not_given);
    run(a_limit_cancels_but_only_the_answer_ends);
    run(silence_has_its_own_limit);
    run(children_end_last_made_first);
    run(a_stuck_child_is_given_up_and_named);
    run(an_actor_takes_no_more_than_its_credit);
    run(an_object_lives_as_long_as_the_call);
    run(objects_of_calls_nobody_answered_are_freed);
    run(a_number_nobody_put_there_finds_no_object);
    run(calls_end_whichever_allocation_fails);
    return tap_done();
}
