/* crew.c - processes that run the program's script, and stay from one of its runs to the
 * next */
#include "actors/launchers/crew.h"

#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "actors/launchers/again.h"
#include "actors/launchers/past.h"
#include "actors/launchers/rank_links.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/deaths.h"
#include "runtime/socket.h"

static const uint64_t PAST_MOST = UINT64_C(1) << 30;      /* bytes of what runs came to */

typedef struct hand {
    pl_crew_t *crew;
    int rank;
    pl_process_t *process;                                  /* [not begun] */
    pl_process_spec_t hired;                                /* by its user  [nobody] */
    bool is_dead;
    char end[PL_DEATH_TEXT];                                /* how it ended */
} hand_t;

struct pl_crew {
    pl_crew_t *next;                                        /* another engine's */
    const pl_runtime_t *runtime;
    pl_sockets_t *loop;
    char folder[PL_LINK_FOLDER];
    int lock;
    uint32_t incarnation;                  /* of its newest run */
    int runs, noted, living;               /* runs begun; those whose outcome was noted */
    bool is_taken;
    struct event *late;                                     /* [it does not end yet] */
    void (*then)(void *user);
    void *user;
    int count;
    hand_t hand[];
};

static pthread_mutex_t crews_lock = PTHREAD_MUTEX_INITIALIZER;
static pl_crew_t *crews;                                    /* of all engines */

static pl_crew_t *crew_of(const pl_runtime_t *runtime)
{
    pthread_mutex_lock(&crews_lock);
    pl_crew_t *crew = crews;
    while (crew && crew->runtime != runtime)
        crew = crew->next;
    pthread_mutex_unlock(&crews_lock);
    return crew;
}

static void crew_enter(pl_crew_t *crew)
{
    pthread_mutex_lock(&crews_lock);
    crew->next = crews;
    crews = crew;
    pthread_mutex_unlock(&crews_lock);
}

static void crew_go(pl_crew_t *crew)
{
    pthread_mutex_lock(&crews_lock);
    pl_crew_t **at = &crews;
    while (*at != crew)
        at = &(*at)->next;
    *at = crew->next;
    pthread_mutex_unlock(&crews_lock);
}

/* ---- what happens ---- */

static void hand_said(void *user, const char *line)
{
    const hand_t *hand = user;
    if (hand->hired.user)
        hand->hired.on_line(hand->hired.user, line);
    else
        pl_log_line(PL_LOG_WARNING, hand->rank, "stderr", "%s", line);
}

static void hand_died(void *user, const pl_death_t *death)
{
    hand_t *hand = user;
    pl_crew_t *crew = hand->crew;
    hand->is_dead = true;
    pl_death_text(death, hand->end);
    if (hand->hired.user)
        hand->hired.on_death(hand->hired.user, death);
    if (--crew->living == 0 && crew->then)
        crew->then(crew->user);
}

/* ---- hands ---- */

static int hand_start(hand_t *hand, const char *const *environment, pl_error_t *err)
{
    const pl_process_spec_t spec = {.environment = environment,
                                    .on_line = hand_said,
                                    .on_death = hand_died,
                                    .user = hand};
    pl_process_free(hand->process);
    hand->process = pl_again_start(&spec, hand->crew->loop->base, err);
    if (!hand->process)
        return err->code;
    hand->is_dead = false;
    hand->crew->living++;
    return PL_OK;
}

pl_process_t *pl_crew_hire(pl_crew_t *crew, int rank, const pl_process_spec_t *spec,
                           pl_error_t *err)
{
    hand_t *hand = &crew->hand[rank];
    const bool is_missing = !hand->process || hand->is_dead;
    if (is_missing && !pl_crew_knows_past(crew)) {
        pl_fail(err, PL_EDIED,
                "the process of this rank %s before this run and cannot be replaced, "
                "because the results of earlier runs were not kept: set "
                "\"max_restarts\" above 0 and make room in %s",
                hand->process ? hand->end : "could not be started", crew->folder);
        return NULL;
    }
    if (is_missing && hand_start(hand, spec->environment, err) != PL_OK)
        return NULL;
    hand->hired = *spec;
    hand->hired.environment = NULL;
    return hand->process;
}

void pl_crew_dismiss(pl_crew_t *crew, int rank, const void *user)
{
    if (crew->hand[rank].hired.user == user)
        crew->hand[rank].hired = (pl_process_spec_t){0};
}

bool pl_crew_kill(pl_crew_t *crew)
{
    for (int k = 0; k < crew->count; k++)
        if (crew->hand[k].process && !crew->hand[k].is_dead)
            pl_process_signal(crew->hand[k].process, SIGKILL);
    return crew->living == 0;
}

/* ---- runs ---- */

const char *pl_crew_folder(const pl_crew_t *crew)
{
    return crew->folder;
}

uint32_t pl_crew_incarnation(const pl_crew_t *crew)
{
    return crew->incarnation + 1;
}

void pl_crew_came_to(pl_crew_t *crew, uint32_t incarnation)
{
    crew->incarnation = incarnation;
}

void pl_crew_note(pl_crew_t *crew, const pl_blob_t *outcome, const pl_error_t *failed)
{
    pl_error_t err = {0};
    if (crew->noted < pl_crew_past(crew))
        return;
    if (pl_past_add(crew->folder, PAST_MOST, outcome, failed, &err) == PL_OK)
        crew->noted++;
    else
        pl_log_line(PL_LOG_WARNING, -1, "launcher.script",
                    "later runs cannot start a process again, because the result of "
                    "this run cannot be kept: %s",
                    err.text);
}

int pl_crew_past(const pl_crew_t *crew)
{
    return crew->runs - 1;
}

bool pl_crew_knows_past(const pl_crew_t *crew)
{
    return crew->noted == pl_crew_past(crew);
}

static pl_crew_t *crew_new(void *launcher, int count, pl_error_t *err)
{
    pl_crew_t *crew = pl_alloc(sizeof *crew + (size_t)count * sizeof *crew->hand);
    if (!crew) {
        pl_no_memory(err);
        return NULL;
    }
    crew->runtime = pl_actor_runtime(launcher);
    crew->loop = pl_actor_loop(launcher);
    crew->count = count;
    for (int k = 0; k < count; k++)
        crew->hand[k] = (hand_t){.crew = crew, .rank = k};
    if (pl_folder_make(crew->folder, &crew->lock, err) == PL_OK) {
        crew_enter(crew);
        return crew;
    }
    pl_folder_remove(crew->folder, crew->lock);
    pl_free(crew);
    return NULL;
}

pl_crew_t *pl_crew_take(void *launcher, int count, pl_error_t *err)
{
    pl_crew_t *crew = crew_of(pl_actor_runtime(launcher));
    if (!crew)
        crew = crew_new(launcher, count, err);
    else if (crew->is_taken)
        pl_fail(err, PL_ESTATE,
                "launcher \"script\" is busy with another run of this engine: wait for "
                "its result, or use launcher \"spawn\"");
    else if (crew->count != count)
        pl_fail(err, PL_EINVAL,
                "the first run of this program with launcher \"script\" had %d ranks, "
                "but this run requests %d: all its runs must have the same number of "
                "ranks",
                crew->count, count);
    if (!crew || crew->is_taken || crew->count != count)
        return NULL;
    crew->is_taken = true;
    crew->runs++;
    return crew;
}

void pl_crew_leave(pl_crew_t *crew)
{
    crew->is_taken = false;
}

/* ---- engines ---- */

void pl_crew_enter(pl_runtime_t *runtime)
{
    const pl_place_t *place = pl_place_in_script();
    if (place)
        pl_place_enter(place, runtime);
}

static void crew_free(pl_crew_t *crew)
{
    crew_go(crew);
    for (int k = 0; k < crew->count; k++)
        pl_process_free(crew->hand[k].process);
    if (crew->late)
        event_free(crew->late);
    pl_folder_remove(crew->folder, crew->lock);
    pl_free(crew);
}

static void crew_late(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_crew_kill(user);
}

bool pl_crew_ends(const pl_runtime_t *runtime, void (*then)(void *user), void *user)
{
    const struct timeval grace = {PL_SCRIPT_END_MS / 1000, 0};
    pl_crew_t *crew = crew_of(runtime);
    if (!crew)
        return false;
    if (!crew->living) {
        crew_free(crew);
        return false;
    }
    if (crew->then)
        return true;
    crew->then = then;
    crew->user = user;
    crew->late = event_new(crew->loop->base, -1, 0, crew_late, crew);
    if (!crew->late || event_add(crew->late, &grace) != 0)
        pl_crew_kill(crew);
    return true;
}
