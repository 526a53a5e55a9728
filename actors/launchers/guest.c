/* guest.c - a process that has asked for a run by itself and takes part in it as a rank
 *
 * It may come to a run before the one that coordinates does, and tries again then. */
#include "actors/launchers/guest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/launchers/wires.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/deaths.h"
#include "runtime/monitor.h"

enum { AGAIN_MS = 100 };

static void guest_answer(void *self)
{
    pl_guest_t *guest = self;
    pl_call_t *asked = guest->asked;
    guest->asked = NULL;
    if (!asked)
        return;
    if (guest->outcome) {
        pl_reply_run(asked, &(pl_run_reply_t){.outcome = &guest->outcome->object});
        return;
    }
    pl_progress_run(asked, &(pl_run_progress_t){.event = "alive",
                                                .metrics = "",
                                                .global_step = guest->member.global_step,
                                                .batch = guest->member.begun});
    pl_call_fail(asked, &guest->error);
}

static int job_came(void *self, pl_job_t *job, pl_error_t *err)
{
    const pl_guest_t *guest = self;
    return guest->on_job ? guest->on_job(self, job, err) : PL_OK;
}

static void member_settled(void *self, pl_outcome_t *outcome, const pl_error_t *error)
{
    pl_guest_t *guest = self;
    if (guest->has_result || guest->is_lost)
        return;
    guest->has_result = true;
    guest->outcome = pl_object_ref(outcome);
    if (error)
        guest->error = *error;
    if (pl_after(guest, PL_LEAVE_MS, guest_answer, NULL) != PL_OK)
        guest_answer(guest);
    pl_member_leave(&guest->member);
}

/* Of a worker that shall do no more: nobody is there who would hear of it. */
static void member_ended(void *self)
{
    if (((pl_guest_t *)self)->is_lost)
        guest_answer(self);
}

static int member_open(pl_guest_t *guest, pl_error_t *err);

static void member_again(void *self)
{
    pl_guest_t *guest = self;
    pl_error_t err = {0};
    if (guest->is_lost)
        return;
    pl_member_release(&guest->member);
    if (member_open(guest, &err) == PL_OK)
        return;
    guest->is_lost = true;
    guest->error = err;
    guest_answer(guest);
}

/* Who coordinates may not have ended the run before. */
static bool is_ahead(const pl_guest_t *guest)
{
    return guest->spec.incarnation > 1 && !guest->member.has_joined
           && pl_now() < guest->until;
}

static void guest_lose(pl_guest_t *guest, pl_code_t code, const char *why)
{
    char when[48] = "";
    guest->is_lost = true;
    if (guest->member.global_step && !strstr(why, "after step"))
        snprintf(when, sizeof when, ", after step %" PRIu64, guest->member.global_step);
    pl_fail(&guest->error, code, "%s%s", why, when);
    snprintf(guest->error.where, sizeof guest->error.where, "rank %d", guest->spec.rank);
    if (guest->member.has_ended)
        guest_answer(guest);
    else
        pl_member_end(&guest->member);
}

static void member_lost(void *self, const char *why)
{
    pl_guest_t *guest = self;
    if (!guest->has_result && !guest->is_lost
        && !(is_ahead(guest) && pl_after(guest, AGAIN_MS, member_again, NULL) == PL_OK))
        guest_lose(guest, PL_EPEER, why);
}

bool pl_guest_waits(const pl_guest_t *guest)
{
    return !guest->member.has_joined && !guest->has_result && !guest->is_lost;
}

void pl_guest_give_up(pl_guest_t *guest, const char *why)
{
    guest_lose(guest, PL_ESTATE, why);
}

static int member_open(pl_guest_t *guest, pl_error_t *err)
{
    static const pl_member_ops_t ops = {.on_job = job_came,
                                        .on_end = member_ended,
                                        .on_result = member_settled,
                                        .on_lost = member_lost,
                                        .on_left = guest_answer};
    const int64_t left = (guest->until - pl_now()) / PL_MILLISECOND;
    guest->spec.times.join = left > 1 ? (int)left : 1;
    return pl_member_open(&guest->member, guest, &ops, &guest->spec, err);
}

int pl_guest_open(pl_guest_t *guest, const pl_member_spec_t *spec, int64_t until,
                  int (*on_job)(void *self, pl_job_t *job, pl_error_t *err),
                  pl_error_t *err)
{
    guest->spec = *spec;
    guest->until = until;
    guest->on_job = on_job;
    return member_open(guest, err);
}

void pl_guest_know(pl_guest_t *guest, pl_outcome_t *outcome, const pl_error_t *error)
{
    guest->has_result = true;
    guest->outcome = outcome;
    guest->error = *error;
}

static bool takes_part(const pl_guest_t *guest)
{
    return guest->spec.calls != NULL;
}

void pl_guest_run(pl_guest_t *guest, pl_call_t *call)
{
    guest->asked = call;
    if (guest->is_lost || !takes_part(guest))
        guest_answer(guest);
}

int pl_guest_stop(pl_guest_t *guest, pl_call_t *call, const char *reason)
{
    char why[160];
    snprintf(why, sizeof why, "rank %d: %s", guest->spec.rank, reason);
    if (pl_guest_waits(guest))
        guest_lose(guest, PL_ECANCELLED, "stopped before it joined the other ranks");
    else if (takes_part(guest))
        pl_member_wish(&guest->member, why);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

int pl_guest_control(const pl_guest_t *guest, const char *who, pl_error_t *err)
{
    return pl_fail(err, PL_ESTATE,
                   "this process is rank %d of the run and accepts no commands: give "
                   "them to %s",
                   guest->spec.rank, who);
}

void pl_guest_release(pl_guest_t *guest)
{
    if (takes_part(guest))                    /* its messages were that run's until now */
        pl_monitor_bring_no_more(pl_actor_runtime(guest));
    pl_member_release(&guest->member);
    pl_ranks_release(&guest->ranks);
    pl_object_unref(guest->outcome);
}
