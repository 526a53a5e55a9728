/* actor_rig.c - actors for tests of the runtime: bees that follow orders, bosses
 * with bees, a queen to act through */
#include "actor_rig.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/monitor.h"

rig_t rig;

/* Outlive a rig, as stuck bees do. */
static pthread_mutex_t stuck_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unstuck = PTHREAD_COND_INITIALIZER;
static int unstuck_times;

static void stick(void)
{
    pthread_mutex_lock(&stuck_lock);
    for (int before = unstuck_times; unstuck_times == before;)
        pthread_cond_wait(&unstuck, &stuck_lock);
    pthread_mutex_unlock(&stuck_lock);
}

void rig_unstick(void)
{
    pthread_mutex_lock(&stuck_lock);
    unstuck_times++;
    pthread_cond_broadcast(&unstuck);
    pthread_mutex_unlock(&stuck_lock);
}

/* ---- bees ---- */

static int bee_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call;
    bee_t *bee = self;
    if (!strcmp(body->start.options, "fail"))
        return pl_fail(err, PL_EIO, "no flowers");
    bee->hard = !strcmp(body->start.options, "hard");
    pl_actor_ready(self);
    return PL_OK;
}

static void bee_flood(pl_call_t *call, uint64_t count)
{
    for (uint64_t k = 0; k < count; k++)
        pl_progress_save(call, &(pl_save_progress_t){0});
}

/* Computes for a while, as an accelerator does; for 10 s when the queen does not get so
 * many replies. */
static void linger(int replies)
{
    int64_t now = pl_now();
    const int64_t min = now + 12 * PL_MILLISECOND, max = now + 10 * PL_SECOND;
    while (now < min
           || (now < max
               && __atomic_load_n(&rig.queen->replies, __ATOMIC_ACQUIRE) < replies))
        now = pl_now();
}

static int bee_save(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    bee_t *bee = self;
    const int before = bee->asked++;
    const pl_error_t stung = {.code = PL_EIO, .text = "stung"};
    switch (body->save.global_step) {
    case DO_FAIL: return pl_fail(err, PL_EINVAL, "no honey");
    case DO_KEEP: bee->kept = call; return PL_OK;
    case DO_STICK: stick(); break;
    case DO_END: pl_actor_end(self, &stung); return PL_OK;
    case DO_PROGRESS: bee_flood(call, 3); break;
    case DO_REPLY_AND_FAIL:
        pl_reply_save(call, &(pl_save_reply_t){.path = "hive"});
        return pl_fail(err, PL_EINVAL, "too late");
    case DO_END_AND_REPLY: pl_actor_end(self, &stung); break;
    case DO_LINGER: linger(before); break;
    }
    if (body->save.global_step > DO_FLOOD)
        bee_flood(call, body->save.global_step - DO_FLOOD);
    return pl_reply_save(call, &(pl_save_reply_t){.path = "hive"});
}

static void bee_cancel(void *self, pl_call_t *call)
{
    bee_t *bee = self;
    if (call == bee->kept) {
        pl_call_fail(call, &(pl_error_t){.code = PL_ECANCELLED, .text = "as you like"});
        bee->kept = NULL;
    } else {
        strcat(rig.ended, pl_actor_name(self));
        pl_actor_end(self, bee->hard ? &(pl_error_t){.code = PL_EIO, .text = "sour honey"}
                                     : NULL);
    }
}

static const pl_handler_t bee_handlers[] = {PL_ON(start, bee_start),
                                            PL_ON(save, bee_save), PL_HANDLERS_END};
const pl_actor_ops_t bee_ops = {.name = "a",
                                .size = sizeof(bee_t),
                                .level = PL_LEVEL_CONNECTOR,
                                .credit = 4,
                                .handlers = bee_handlers,
                                .on_cancel = bee_cancel};
const pl_actor_ops_t other_bee_ops = {.name = "b",
                                      .size = sizeof(bee_t),
                                      .level = PL_LEVEL_CONNECTOR,
                                      .handlers = bee_handlers,
                                      .on_cancel = bee_cancel};

/* ---- bosses ---- */

static int boss_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call;
    pl_address_t at;
    pl_how_t unheard = {0};
    pl_where_t where = strcmp(body->start.options, "own") ? PL_SAME_THREAD
                                                          : PL_OWN_THREAD;
    pl_start_t start = {.options = body->start.options};
    if (!pl_spawn(self, &bee_ops, where, &start, unheard, &at, err)
        || !pl_spawn(self, &other_bee_ops, where, &start, unheard, &at, err))
        return err->code;
    pl_actor_ready(self);
    return PL_OK;
}

static int boss_evaluate(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    (void)call;
    pl_address_t at;
    pl_how_t unheard = {0};
    if (!pl_spawn(self, &bee_ops, PL_OWN_THREAD, &(pl_start_t){.options = ""}, unheard,
                  &at, err))
        return err->code;
    pl_call_save(self, at, &(pl_save_t){.global_step = body->evaluate.global_step},
                 unheard, NULL);
    return PL_OK;
}

static const pl_handler_t boss_handlers[] = {PL_ON(start, boss_start),
                                             PL_ON(evaluate, boss_evaluate),
                                             PL_HANDLERS_END};
const pl_actor_ops_t boss_ops = {.name = "boss",
                                 .size = 1,
                                 .level = PL_LEVEL_EVAL_LOOP,
                                 .handlers = boss_handlers};

/* ---- the queen ---- */

static void queen_answer(void *self, const pl_answer_t *answer)
{
    queen_t *q = self;
    q->progress += answer->kind == PL_ANSWER_PROGRESS;
    __atomic_add_fetch(&q->replies, answer->kind == PL_ANSWER_REPLY, __ATOMIC_RELEASE);
    q->errors += answer->kind == PL_ANSWER_ERROR;
    q->late += answer->kind == PL_ANSWER_LATE;
    if (answer->kind == PL_ANSWER_ERROR) {
        q->code = answer->error->code;
        strcpy(q->text, answer->error->text);
        strcpy(q->where, answer->error->where);
    }
    if (answer->kind != PL_ANSWER_PROGRESS && --q->leave_at == 0)
        pl_reactor_leave(rig.reactor);
}

const pl_actor_ops_t queen_ops = {.name = "queen",
                                  .size = sizeof(queen_t),
                                  .level = PL_LEVEL_FIT_LOOP};
static const pl_actor_ops_t launcher_ops = {.name = "queen",
                                            .size = sizeof(queen_t),
                                            .level = PL_LEVEL_LAUNCHER};
const pl_how_t rig_how = {.on_answer = queen_answer};
const pl_where_t rig_wheres[2] = {PL_SAME_THREAD, PL_OWN_THREAD};
const char *const rig_where_names[2] = {"on the same thread", "on its own thread"};

/* ---- the rig ---- */

static void rig_open_as(const pl_actor_ops_t *ops)
{
    rig = (rig_t){.runtime = calloc(1, sizeof *rig.runtime)};
    pl_runtime_init(rig.runtime, NULL);
    rig.reactor = pl_reactor_new(rig.runtime, -1, NULL);
    void *self = NULL;
    pl_actor_root(rig.reactor, ops, &self, NULL);
    rig.queen = self;
}

void rig_open(void)
{
    rig_open_as(&queen_ops);
}

void rig_open_launcher(void)
{
    rig_open_as(&launcher_ops);
}

void rig_close(void)
{
    pl_reactor_free(rig.reactor);
    pl_monitor_stop(rig.runtime);
    pl_runtime_release(rig.runtime);
    if (!rig.runtime->stuck)
        free(rig.runtime);
}

uint64_t rig_spawn(const pl_actor_ops_t *ops, pl_where_t where, const char *options,
                   pl_address_t *at)
{
    return pl_spawn(rig.queen, ops, where, &(pl_start_t){.options = options}, rig_how, at,
                    NULL);
}

uint64_t rig_ask(pl_address_t at, uint64_t what)
{
    return pl_call_save(rig.queen, at, &(pl_save_t){.global_step = what}, rig_how, NULL);
}

uint64_t rig_order(pl_address_t at, uint64_t what)
{
    return pl_call_evaluate(rig.queen, at, &(pl_evaluate_t){.global_step = what}, rig_how,
                            NULL);
}

void rig_wait(int answers)
{
    rig.queen->leave_at = answers;
    rig.reactor->leave = false;
    pl_reactor_run(rig.reactor);
}

static void leave(void *reactor)
{
    pl_reactor_leave(reactor);
}

void rig_turn(void)
{
    rig.queen->leave_at = 0;
    rig.reactor->leave = false;
    pl_reactor_post(rig.reactor, leave, rig.reactor, NULL);
    pl_reactor_run(rig.reactor);
}
