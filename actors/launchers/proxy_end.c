/* proxy_end.c - how the rank of a proxy ends: by itself, on request, killed, or lost
 *
 * A rank has ended when its process is dead and all that the process sent has arrived.
 * So a result that was sent counts, whatever happens after that.  A death without a
 * result is an error with the last words of the process.
 *
 *     PROXY_RUNNING --worker ended (foreign, pool)--> PROXY_WORKER_ENDED --+
 *         |                                                      +--> PROXY_FINISHED
 *         +-------process dead, or link lost------> PROXY_PROCESS_DEAD --+
 *
 * A rank that is to end gets a request and a time limit.  One that does not answer gets
 * SIGABRT, for the backtraces of its threads, and then SIGKILL. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/launchers/proxy.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/timeouts.h"
#include "runtime/monitor.h"

/* A foreign process has sent "HOST process NUMBER" when it joined. */
void proxy_tell(const proxy_t *r, pl_rank_event_t event, const char *cause)
{
    char host[64] = "";
    unsigned process = r->process ? (unsigned)pl_supervisor_process_id(r->process) : 0;
    if (!r->watch)
        return;
    if (r->is_foreign)
        sscanf(r->about, "%63s process %u", host, &process);
    else
        gethostname(host, sizeof host - 1);
    const double seconds = r->received_at
                               ? (double)(pl_now() - r->received_at) / PL_SECOND
                               : 0;
    pl_progress_watch(r->watch, &(pl_watch_progress_t){.event = event,
                                                       .rank = (uint32_t)r->rank,
                                                       .host = host,
                                                       .process = process,
                                                       .cause = cause,
                                                       .seconds = seconds,
                                                       .global_step = r->global_step});
}

/* ---- The error ---- */

/* Only steps of this incarnation count. */
static const char *when_text(const proxy_t *r, char text[static 48])
{
    if (r->global_step)
        snprintf(text, 48, "after step %" PRIu64, r->global_step);
    else
        strcpy(text, "before its first step");
    return text;
}

static bool exited_cleanly(const proxy_t *r)
{
    if (r->is_foreign || r->life == PROXY_WORKER_ENDED)
        return !r->run;
    return r->end == PROXY_ASKED_TO_END && (!r->death.is_known || r->death.status == 0);
}

/* The death of a foreign process is not observed. */
static void end_tell(proxy_t *r, pl_error_t *error)
{
    const bool is_observed = !r->is_foreign && r->life != PROXY_WORKER_ENDED;
    char host[64] = "?", when[48] = "before it joined", death[PL_DEATH_TEXT];
    *error = r->error;
    if (r->has_joined || !is_observed)
        when_text(r, when);
    if (!is_observed) {
        if (error->code == PL_OK)
            pl_fail(error, PL_EDIED, "rank %d (%s) ended %s", (int)r->rank, r->about,
                    when);
    } else if (r->end == PROXY_KILLED && r->has_joined
               && *pl_rank_links_run_dir(r->links)) {
        pl_fail(error, r->error.code,
                "%s; %s/rank-%d.stderr has the backtraces of its threads", r->error.text,
                pl_rank_links_run_dir(r->links), (int)r->rank);
    } else {
        gethostname(host, sizeof host - 1);
        if (error->code == PL_OK)
            pl_fail(error, PL_EDIED, "the process of rank %d (%d on %s) %s %s",
                    (int)r->rank, pl_supervisor_process_id(r->process), host,
                    pl_death_text(&r->death, death), when);
        pl_supervisor_last_words(r->process, false, error);
    }
    snprintf(error->where, sizeof error->where, "rank %d", (int)r->rank);
}

/* ---- The end ---- */

void proxy_finish(proxy_t *r)
{
    pl_error_t error = {0};
    if (r->life == PROXY_RUNNING || r->life == PROXY_FINISHED
        || (r->life == PROXY_PROCESS_DEAD && !r->is_foreign
            && !pl_rank_links_is_over(r->links, (int)r->rank)))
        return;
    r->log.is_writing = false;          /* the rest is written after what is on its way */
    proxy_log_flush(r);
    if (!exited_cleanly(r)) {
        if (r->links->stream[0])
            pl_monitor_lost(r->links->runtime, r->links->stream, (int)r->rank);
        end_tell(r, &error);
    } else {
        error = r->error;
    }
    if (r->run && error.code == PL_OK)
        end_tell(r, &error);
    r->life = PROXY_FINISHED;
    pl_call_t *run = r->run, *watch = r->watch;
    r->run = r->watch = NULL;
    if (watch)
        pl_reply_watch(watch, &(pl_watch_reply_t){0});
    if (run)
        pl_call_fail(run, &error);
    pl_actor_end(r, error.code && !run ? &error : NULL);    /* reported once */
}

static void proxy_dead(proxy_t *r)
{
    if (r->life == PROXY_RUNNING)
        r->life = PROXY_PROCESS_DEAD;
}

/* ---- The rank is to end ---- */

/* The rank receives the reason if its link works, and ends itself. */
static void proxy_cut_off(proxy_t *r)
{
    const char *why = r->error.code ? r->error.text : "the run has ended";
    pl_link_dismiss(r->links->calls, (int)r->rank, why);
    pl_link_dismiss(pl_bulk_link(r->links->bulk), (int)r->rank, why);
    proxy_dead(r);
    proxy_finish(r);
}

void proxy_kill(proxy_t *r, const pl_error_t *why)
{
    if (r->end == PROXY_KILLED || r->life != PROXY_RUNNING)
        return;
    r->end = PROXY_KILLED;
    r->error = *why;
    if (r->died_early) {
        proxy_died(r, &r->death);
        return;
    }
    if (r->is_foreign) {
        proxy_cut_off(r);
        return;
    }
    pl_supervisor_abort(r->process);
}

static void end_late(void *self)
{
    proxy_t *r = self;
    pl_error_t err;
    pl_fail(&err, PL_ESTUCK, "rank %d did not end within %g s and was %s", (int)r->rank,
            PL_RANK_END_MS / 1e3, r->is_foreign ? "disconnected" : "killed");
    proxy_kill(r, &err);
}

/* A rank that starts has nothing to save, and would delay the end of the run, as by a
 * file that does not open or a long compilation. */
static void end_look(void *self)
{
    proxy_t *r = self;
    if (r->life != PROXY_RUNNING || r->end != PROXY_ASKED_TO_END)
        return;
    if (!r->links->is_hurried) {
        pl_after(r, PL_START_END_MS, end_look, NULL);
        return;
    }
    pl_fail(&r->error, PL_ECANCELLED,
            "rank %d was stopped during its start-up, because the run failed",
            (int)r->rank);
    r->end = PROXY_KILLED;
    pl_supervisor_kill(r->process, 0);
}

void proxy_end_silent(proxy_t *r, const char *why)
{
    pl_error_t err;
    pl_fail(&err, PL_EDIED, "rank %d (%s) is gone %s: %s", (int)r->rank, r->about,
            when_text(r, (char[48]){""}), why);
    proxy_kill(r, &err);
}

/* The launcher ends the rank, or has waited too long for its run. */
void proxy_cancel(void *self, pl_call_t *call)
{
    proxy_t *r = self;
    char when[48];
    pl_error_t err;
    if (call == r->run) {
        proxy_tell(r, PL_RANK_EVENT_SILENT, "no progress of its steps");
        if (r->is_foreign)
            pl_fail(&err, PL_ESTUCK, "rank %d (%s) was disconnected %s", (int)r->rank,
                    r->about, when_text(r, when));
        else
            pl_fail(&err, PL_ESTUCK, "the process of rank %d (%d) was killed %s",
                    (int)r->rank, pl_supervisor_process_id(r->process),
                    when_text(r, when));
        proxy_kill(r, &err);
    }
    if (!pl_is_life(self, call) || r->end != PROXY_NOT_ENDED)
        return;
    r->end = PROXY_ASKED_TO_END;
    if (r->died_early) {
        proxy_died(r, &r->death);
    } else if (r->is_foreign && !r->has_joined) {
        proxy_dead(r);                                     /* it may receive the result */
        proxy_finish(r);
    } else if (!r->has_joined) {
        pl_fail(&r->error, PL_ECANCELLED,
                "rank %d was stopped before it joined, because the run failed",
                (int)r->rank);
        r->end = PROXY_KILLED;
        pl_supervisor_kill(r->process, 0);
    } else if (pl_outbox_post(&r->outbox, PL_KIND_CANCEL, PL_MESSAGE_start, 0, NULL, NULL)
               == PL_OK) {
        pl_after(r, PL_RANK_END_MS, end_late, NULL);
        if (!r->is_foreign && !r->pool)
            pl_after(r, PL_START_END_MS, end_look, NULL);
    } else if (r->is_foreign) {
        proxy_cut_off(r);
    } else {
        pl_supervisor_kill(r->process, 0);
    }
}

/* ---- The rank has ended ---- */

void proxy_left(proxy_t *r, const char *why)
{
    const bool is_news = r->life == PROXY_RUNNING;
    char when[48];
    if (!r->is_foreign) {
        if (is_news)
            pl_supervisor_kill(r->process, PL_EXIT_MS);
        proxy_finish(r);
        return;
    }
    if (is_news)
        proxy_tell(r, PL_RANK_EVENT_GONE, why);
    if (r->error.code == PL_OK && is_news && !r->has_joined)
        pl_fail(&r->error, PL_ESTATE, "%s", why);           /* a restart would not help */
    else if (r->error.code == PL_OK && is_news)
        pl_fail(&r->error, PL_EDIED, "rank %d (%s) is gone %s: %s", (int)r->rank,
                r->about, when_text(r, when), why);
    proxy_dead(r);
    proxy_finish(r);
}

/* A process may die as soon as it is started: its death is reported when the watch call
 * has arrived. */
void proxy_died(void *self, const pl_death_t *death)
{
    proxy_t *r = self;
    char text[PL_DEATH_TEXT];
    r->death = *death;
    r->links->was_killed |= death->signal == SIGKILL && r->end == PROXY_NOT_ENDED;
    r->died_early = r->life == PROXY_RUNNING && r->end == PROXY_NOT_ENDED && !r->watch;
    if (r->died_early)
        return;
    proxy_dead(r);
    if (!exited_cleanly(r) && r->error.code != PL_ECANCELLED)
        proxy_tell(r, PL_RANK_EVENT_DIED, pl_death_text(death, text));
    pl_link_died(r->links->calls, (int)r->rank);
    pl_link_died(pl_bulk_link(r->links->bulk), (int)r->rank);
    proxy_finish(r);
}
