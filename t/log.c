/* log.c - tests of engine/base/log.c: lines of many threads, and a hook that goes */
#include "base/log.h"

#include <pthread.h>
#include <sched.h>

#include "tap.h"

enum { ROUNDS = 300 };

/* Whose hook it is; all atomic. */
typedef struct listener {
    int lines, late;
    bool is_there;
} listener_t;

static bool over;                                           /* atomic */

static void *talk(void *user)
{
    (void)user;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        pl_log_line(PL_LOG_INFO, 0, "talker", "nothing new");
    return NULL;
}

/* Gives the thread that removes the hook the time to. */
static void listen(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    listener_t *l = user;
    (void)level, (void)rank, (void)actor, (void)text;
    __atomic_add_fetch(&l->lines, 1, __ATOMIC_RELAXED);
    for (int k = 0; k < 4; k++)
        sched_yield();
    if (!__atomic_load_n(&l->is_there, __ATOMIC_RELAXED))
        __atomic_add_fetch(&l->late, 1, __ATOMIC_RELAXED);
}

static void no_thread_is_in_a_removed_hook(void)
{
    static listener_t listener;
    pthread_t talker[2];
    for (int k = 0; k < 2; k++)
        pthread_create(&talker[k], NULL, talk, NULL);
    for (int k = 0; k < ROUNDS; k++) {
        __atomic_store_n(&listener.is_there, true, __ATOMIC_RELAXED);
        const int before = __atomic_load_n(&listener.lines, __ATOMIC_RELAXED);
        pl_log_hook(listen, PL_LOG_INFO, &listener);
        while (__atomic_load_n(&listener.lines, __ATOMIC_RELAXED) == before)
            sched_yield();
        pl_log_hook(NULL, PL_LOG_ERROR, NULL);
        __atomic_store_n(&listener.is_there, false, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    for (int k = 0; k < 2; k++)
        pthread_join(talker[k], NULL);
    is_int(listener.late, 0, "%d lines, none after it", listener.lines);
}

static void again(pl_log_level_t level, int rank, const char *actor, const char *text,
                  void *user)
{
    int *lines = user;
    (void)level, (void)rank, (void)actor, (void)text;
    if (++*lines < 3)
        pl_log_line(PL_LOG_INFO, 0, "", "from within");
}

static void a_hook_may_say_a_line_itself(void)
{
    int lines = 0;
    pl_log_hook(again, PL_LOG_INFO, &lines);
    pl_log_line(PL_LOG_DEBUG, 0, "", "above the level");
    is_int(lines, 0, "lines above the level do not come");
    pl_log_line(PL_LOG_INFO, 0, "", "from outside");
    pl_log_hook(NULL, PL_LOG_ERROR, NULL);
    is_int(lines, 3, "a hook gets its own lines");
    is_int(pl_log_level(), -1, "no hook is left");
}

int main(void)
{
    run(no_thread_is_in_a_removed_hook);
    run(a_hook_may_say_a_line_itself);
    return tap_done();
}
