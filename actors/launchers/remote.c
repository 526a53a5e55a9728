/* remote.c - a worker that is elsewhere: stands in for a rank in another process
 *
 * It owns the process and passes on what it is called for; what comes back over the link
 * are the answers to those calls, so nobody above knows where a rank runs.  It has ended
 * when the process is dead and all that it had sent has come: so a result that was sent
 * counts, whatever happens after that, and a death without one is an error with the last
 * words of the process.
 *
 * Who is to end is told so and has a bound; who does not answer at all any more is asked
 * for a backtrace by SIGABRT and then killed.
 *
 * A rank that somebody else has started has no process here: it ends when its worker has,
 * or when nothing is heard of it any more, and who shall be killed is cut off instead.
 * One whose process is lent by a crew ends with its worker, too, or with its process. */
#include "actors/launchers/remote.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/launchers/again.h"
#include "actors/launchers/crew.h"
#include "actors/launchers/outbox.h"
#include "actors/launchers/parcel.h"
#include "actors/launchers/passed.h"
#include "actors/launchers/said.h"
#include "actors/launchers/wires.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/process.h"
#include "runtime/runtime.h"

enum {
    BEAT_MS = 500,                              /* while the rank itself has none */
    END_MS = 30000,                             /* for all that a rank has to end */
    EXIT_MS = 5000,                             /* after it has left */
    BACKTRACE_MS = 4000,                        /* at most, between SIGABRT and SIGKILL */
};

typedef struct remote {
    int64_t rank;
    bool is_foreign;                             /* somebody else has started it */
    pl_wires_t *wires;                           /* counted */
    pl_crew_t *crew;                             /* that lends the process  [its own] */
    pl_process_t *process;                       /* [it is foreign] */
    char about[128];                             /* what a foreign one says it is  [""] */
    pl_outbox_t outbox;
    pl_call_t *run;                             /* NULL: not asked, or answered */
    bool was_asked, is_served;                  /* the job is on its way; has been sent */
    char stop_reason[128];                      /* asked for before that  [""] */
    pl_passed_t passed;
    pl_call_t *watch;                                  /* [nobody asks] */
    uint64_t global_step;                              /* the newest that it has told */
    int64_t heard;                                     /* pl_now() of its newest report */
    pl_said_t said;
    bool is_streamed;                     /* was told where messages are taken */
    bool is_free;                         /* its worker has ended, its process may live */
    bool has_joined, ends, is_killed, is_dead, is_done;  /* dead: or free, or a foreign
                                                            one that is gone */
    pl_death_t death;
    pl_error_t error;                              /* why it was killed, or how its worker
                                                      ended  [code 0] */
} remote_t;

/* ---- what the process says ---- */

static void process_said(void *self, const char *line)
{
    remote_t *r = self;
    pl_log_line(r->is_killed ? PL_LOG_INFO : PL_LOG_WARNING, (int)r->rank, "stderr", "%s",
                line);
    pl_said_line(&r->said, line);
}

/* ---- who watches ---- */

/* "HOST process NUMBER" is what a process says when it joins. */
static void event_tell(const remote_t *r, const char *event, const char *cause)
{
    char host[64] = "";
    unsigned process = r->process ? (unsigned)pl_process_id(r->process) : 0;
    if (!r->watch)
        return;
    if (r->is_foreign)
        sscanf(r->about, "%63s process %u", host, &process);
    else
        gethostname(host, sizeof host - 1);
    const double seconds = r->heard ? (double)(pl_now() - r->heard) / PL_SECOND : 0;
    pl_progress_watch(r->watch, &(pl_watch_progress_t){.event = event,
                                                       .rank = (uint32_t)r->rank,
                                                       .host = host,
                                                       .process = process,
                                                       .cause = cause,
                                                       .seconds = seconds,
                                                       .global_step = r->global_step});
}

static int remote_watch(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)body, (void)err;
    ((remote_t *)self)->watch = call;
    return PL_OK;
}

/* ---- the end ---- */

static void death_tell(remote_t *r, pl_error_t *error)
{
    char host[64] = "?", when[48] = " before it had joined", death[PL_DEATH_TEXT];
    gethostname(host, sizeof host - 1);
    if (r->has_joined)
        snprintf(when, sizeof when, " after step %" PRIu64, r->global_step);
    if (r->is_killed && pl_wires_run_dir(r->wires)) {
        pl_fail(error, r->error.code,
                "%s; where its threads were is in %s/rank-%d.stderr", r->error.text,
                pl_wires_run_dir(r->wires), (int)r->rank);
        snprintf(error->where, sizeof error->where, "rank %d", (int)r->rank);
        return;
    }
    if (r->error.code != PL_OK)
        *error = r->error;
    else
        pl_fail(error, PL_EDIED, "the process of rank %d (%d on %s) %s%s", (int)r->rank,
                pl_process_id(r->process), host, pl_death_text(&r->death, death), when);
    pl_words_add(r->process, error);
    snprintf(error->where, sizeof error->where, "rank %d", (int)r->rank);
}

static bool died_well(const remote_t *r)
{
    if (r->is_foreign || r->is_free)
        return !r->run;
    return r->ends && !r->is_killed && (!r->death.is_known || r->death.status == 0);
}

/* Nobody has seen a foreign one's death: only that it is not there. */
static void loss_tell(const remote_t *r, pl_error_t *error)
{
    *error = r->error;
    if (error->code == PL_OK)
        pl_fail(error, PL_EDIED, "rank %d (%s) ended after step %" PRIu64, (int)r->rank,
                r->about, r->global_step);
    snprintf(error->where, sizeof error->where, "rank %d", (int)r->rank);
}

static void end_tell(remote_t *r, pl_error_t *error)
{
    if (r->is_foreign || r->is_free)
        loss_tell(r, error);
    else
        death_tell(r, error);
}

static void remote_finish(remote_t *r)
{
    pl_error_t error = {0};
    if (r->is_done || !r->is_dead
        || (!r->is_foreign && !r->is_free && !pl_wires_is_over(r->wires, (int)r->rank)))
        return;
    r->is_done = true;
    pl_said_end(&r->said);
    if (!died_well(r))
        end_tell(r, &error);
    else
        error = r->error;
    pl_call_t *run = r->run, *watch = r->watch;
    r->run = r->watch = NULL;
    if (watch)
        pl_reply_watch(watch, &(pl_watch_reply_t){0});
    if (run && error.code == PL_OK)
        end_tell(r, &error);
    if (run)
        pl_call_fail(run, &error);
    pl_actor_end(r, error.code && !run ? &error : NULL);    /* told once */
}

static void process_kill(void *self)
{
    remote_t *r = self;
    pl_process_signal(r->process, SIGKILL);
}

/* It hears why, if it hears anything, and ends itself. */
static void remote_cut_off(remote_t *r)
{
    const char *why = r->error.code ? r->error.text : "the run has ended";
    pl_link_dismiss(pl_wires_link(r->wires), (int)r->rank, why);
    pl_link_dismiss(pl_bulk_link(pl_wires_bulk(r->wires)), (int)r->rank, why);
    r->is_dead = true;
    remote_finish(r);
}

/* A process that is stopped takes a signal only when it goes on. */
static void remote_kill(remote_t *r, const pl_error_t *why)
{
    if (r->is_killed || r->is_dead)
        return;
    r->is_killed = true;
    r->error = *why;
    if (r->is_foreign) {
        remote_cut_off(r);
        return;
    }
    pl_process_signal(r->process, SIGABRT);
    pl_process_signal(r->process, SIGCONT);
    if (pl_after(r, BACKTRACE_MS, process_kill, NULL) != PL_OK)
        process_kill(r);
}

static void remote_kill_now(remote_t *r)
{
    if (r->is_foreign)
        remote_cut_off(r);
    else
        process_kill(r);
}

static void end_late(void *self)
{
    remote_t *r = self;
    pl_error_t err;
    pl_fail(&err, PL_ESTUCK, "rank %d did not end within %g s and was %s", (int)r->rank,
            END_MS / 1e3, r->is_foreign ? "cut off" : "killed");
    remote_kill(r, &err);
}

/* Nobody waits for the end of who is not heard any more. */
static void end_silent(remote_t *r, const char *why)
{
    pl_error_t err;
    pl_fail(&err, PL_EDIED, "rank %d (%s) is gone after step %" PRIu64 ": %s",
            (int)r->rank, r->about, r->global_step, why);
    remote_kill(r, &err);
}

static void remote_end(remote_t *r)
{
    if (r->ends)
        return;
    r->ends = true;
    if (r->is_foreign && !r->has_joined) {
        r->is_dead = true;                               /* it may hear how the run was */
        remote_finish(r);
    } else if (!r->has_joined) {
        r->is_killed = true;
        process_kill(r);
    } else if (pl_outbox_post(&r->outbox, PL_KIND_CANCEL, PL_MESSAGE_start, 0, NULL, NULL)
               != PL_OK) {
        remote_kill_now(r);
    } else {
        pl_after(r, END_MS, end_late, NULL);
    }
}

/* The run's caller has waited for too long; or the rank is to end. */
static void remote_cancel(void *self, pl_call_t *call)
{
    remote_t *r = self;
    pl_error_t err;
    if (pl_is_life(self, call)) {
        remote_end(r);
    } else if (call == r->run) {
        event_tell(r, "silent", "no sign of life of its steps");
        if (r->is_foreign)
            pl_fail(&err, PL_ESTUCK, "rank %d (%s) was cut off after step %" PRIu64,
                    (int)r->rank, r->about, r->global_step);
        else
            pl_fail(&err, PL_ESTUCK,
                    "the process of rank %d, %d, was ended after step %" PRIu64,
                    (int)r->rank, pl_process_id(r->process), r->global_step);
        remote_kill(r, &err);
    }
}

/* ---- the stream ---- */

/* Somebody may begin to publish at any time: that is seen when a rank is heard. */
static void stream_tell(remote_t *r)
{
    pl_bring_stream_t msg;
    if (!r->is_streamed && pl_wires_stream(r->wires, r->is_foreign || r->crew, &msg))
        r->is_streamed = pl_outbox_post(&r->outbox, PL_KIND_CALL, PL_MESSAGE_bring_stream,
                                        0, &msg, NULL)
                         == PL_OK;
}

/* ---- what comes ---- */

static void run_fail(remote_t *r, const pl_error_t *error)
{
    pl_call_t *run = r->run;
    r->run = NULL;
    if (run)
        pl_call_fail(run, error);
}

static void run_replied(remote_t *r, uint64_t transfer)
{
    pl_error_t err = {0};
    pl_blob_t *blob = pl_bulk_take(pl_wires_bulk(r->wires), (int)r->rank, transfer);
    if (!blob)
        pl_fail(&err, PL_EPROTOCOL, "rank %d has sent no outcome %" PRIu64, (int)r->rank,
                transfer);
    pl_outcome_t *outcome = blob ? pl_outcome_unpack(blob, &err) : NULL;
    pl_call_t *run = r->run;
    pl_object_unref(blob);
    if (!outcome) {
        run_fail(r, &err);
    } else if (run) {
        r->run = NULL;
        pl_reply_run(run, &(pl_run_reply_t){.outcome = &outcome->object});
    }
    pl_object_unref(outcome);
}

static void report_came(remote_t *r, const pl_run_progress_t *report)
{
    r->heard = pl_now();
    if (report->global_step > r->global_step)
        r->global_step = report->global_step;
    if (*report->run_dir)
        pl_wires_tell_run_dir(r->wires, report->run_dir);
    if (r->run)
        pl_progress_run(r->run, report);
}

static void log_came(const remote_t *r, const pl_serve_progress_t *line)
{
    if (line->level <= PL_LOG_DEBUG)
        pl_log_line((pl_log_level_t)line->level, (int)r->rank, line->actor, "%s",
                    line->text);
}

static void answer_came(remote_t *r, const pl_envelope_t *e, const pl_body_t *body,
                        const pl_error_t *error)
{
    const bool failed = e->kind == PL_KIND_ERROR;
    switch (e->message) {
    case PL_MESSAGE_run: report_came(r, &body->run_progress); return;
    case PL_MESSAGE_serve:
        if (failed && error->code == PL_ESTUCK)
            event_tell(r, "silent", error->text);
        if (failed)
            run_fail(r, error);
        else if (e->kind == PL_KIND_REPLY)
            run_replied(r, body->serve_reply.outcome);
        else
            log_came(r, &body->serve_progress);
        return;
    case PL_MESSAGE_start:
        if (failed && r->error.code == PL_OK)
            r->error = *error;
        r->is_free = !r->is_dead && !r->is_killed && (r->is_foreign || r->crew);
        r->is_dead = r->is_dead || r->is_free;
        remote_finish(r);
        return;
    default: pl_passed_end(&r->passed, e, body, error);
    }
}

/* Of what a rank may say, and nothing else. */
static bool is_answer(const pl_envelope_t *e)
{
    switch (e->message) {
    case PL_MESSAGE_run: return e->kind == PL_KIND_PROGRESS;
    case PL_MESSAGE_serve:
        return e->kind == PL_KIND_PROGRESS || e->kind == PL_KIND_REPLY
               || e->kind == PL_KIND_ERROR;
    case PL_MESSAGE_start:
    case PL_MESSAGE_join:
    case PL_MESSAGE_stop: return e->kind == PL_KIND_REPLY || e->kind == PL_KIND_ERROR;
    default: return false;
    }
}

static void remote_message(void *self, pl_frame_t *message)
{
    remote_t *r = self;
    pl_envelope_t e;
    pl_body_t body;
    pl_error_t error = {0}, err = {0};
    const pl_bytes_t bytes = pl_frame_bytes(message);
    if (r->is_done)
        return;
    stream_tell(r);
    if (pl_envelope_read(bytes, &e, &err) != PL_OK
        || pl_frame_decode_foreign(bytes, &body, &error, &err) != PL_OK || !is_answer(&e))
        pl_log_line(PL_LOG_WARNING, (int)r->rank, pl_actor_name(r),
                    "a message that no rank sends was dropped: %s", err.text);
    else
        answer_came(r, &e, &body, &error);
}

static void foreign_lost(remote_t *r, const char *why)
{
    if (!r->is_dead)
        event_tell(r, "gone", why);
    if (r->error.code == PL_OK && !r->is_dead)
        pl_fail(&r->error, PL_EDIED, "rank %d (%s) is gone after step %" PRIu64 ": %s",
                (int)r->rank, r->about, r->global_step, why);
    r->is_dead = true;
    remote_finish(r);
}

static void remote_event(void *self, pl_link_event_t event, const char *text)
{
    remote_t *r = self;
    pl_error_t err;
    switch (event) {
    case PL_LINK_JOINED:
        r->has_joined = true;
        snprintf(r->about, sizeof r->about, "%s", text);
        r->heard = pl_now();
        stream_tell(r);
        pl_outbox_flush(&r->outbox);
        return;
    case PL_LINK_ROOM: pl_outbox_flush(&r->outbox); return;
    case PL_LINK_MISSING:
        pl_fail(&err, PL_ETIMEOUT, "%s", text);
        remote_kill(r, &err);
        return;
    case PL_LINK_SILENT:
    case PL_LINK_CUT:
        if (r->is_foreign || event == PL_LINK_SILENT)
            event_tell(r, event == PL_LINK_CUT ? "cut" : "mute", text);
        if (r->is_foreign)
            pl_log_line(PL_LOG_WARNING, (int)r->rank, pl_actor_name(r), "%s: %s",
                        r->about, text);
        if (r->ends && event == PL_LINK_SILENT)
            end_silent(r, text);
        return;
    case PL_LINK_BACK:
    case PL_LINK_HEARD:
        event_tell(r, event == PL_LINK_BACK ? "back" : "heard", text);
        return;
    case PL_LINK_LEFT:
    case PL_LINK_GONE:
        if (r->is_foreign) {
            foreign_lost(r, text);
            return;
        }
        if (!r->is_dead && pl_after(r, EXIT_MS, process_kill, NULL) != PL_OK)
            process_kill(r);
        remote_finish(r);
        return;
    default: return;
    }
}

static void process_died(void *self, const pl_death_t *death)
{
    remote_t *r = self;
    char text[PL_DEATH_TEXT];
    r->is_dead = true;
    r->death = *death;
    if (!died_well(r))
        event_tell(r, "died", pl_death_text(death, text));
    pl_wires_died(r->wires, (int)r->rank);
    remote_finish(r);
}

/* ---- the run ---- */

/* The rank has the job: it may be told to begin. */
static void job_sent(void *self, const pl_error_t *error)
{
    remote_t *r = self;
    pl_error_t err = {0};
    if (error || r->is_served || !r->run
        || r->ends)                            /* a rank that is gone is told otherwise */
        return;
    r->is_served = true;
    const pl_serve_t msg = {.job = 1};
    const pl_stop_t stop = {.reason = r->stop_reason};
    if (pl_outbox_post(&r->outbox, PL_KIND_CALL, PL_MESSAGE_serve, 0, &msg, &err) != PL_OK
        || (*r->stop_reason
            && pl_outbox_post(&r->outbox, PL_KIND_CALL, PL_MESSAGE_stop, 0, &stop, &err)
                   != PL_OK))
        run_fail(r, &err);
}

/* The rank says later itself that it is alive; it has a bound of its own to join. */
static void remote_beat(void *self)
{
    remote_t *r = self;
    if (!r->run || r->is_served)
        return;
    pl_progress_run(r->run, &(pl_run_progress_t){.event = "alive", .metrics = ""});
    pl_after(r, BEAT_MS, remote_beat, NULL);
}

static int remote_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    remote_t *r = self;
    if (r->was_asked)
        return pl_fail(err, PL_ESTATE, "a worker runs once");
    pl_blob_t *blob = pl_job_pack((const pl_job_t *)body->run.job, err);
    uint64_t transfer =
        blob ? pl_bulk_send(pl_wires_bulk(r->wires), (int)r->rank, blob, err) : 0;
    pl_object_unref(blob);
    if (!transfer)
        return err->code;
    r->was_asked = true;
    r->run = call;
    remote_beat(r);
    return PL_OK;
}

static int remote_join(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    remote_t *r = self;
    return pl_passed_on(&r->passed, &r->outbox, call, PL_MESSAGE_join, body, err);
}

static int remote_stop(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    remote_t *r = self;
    if (r->is_served)
        return pl_passed_on(&r->passed, &r->outbox, call, PL_MESSAGE_stop, body, err);
    snprintf(r->stop_reason, sizeof r->stop_reason, "%s", body->stop.reason);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

/* ---- the process ---- */

static int process_start(remote_t *r, pl_error_t *err)
{
    char place[PL_PLACE_TEXT];
    pl_wires_place(r->wires, (int)r->rank, place);
    const pl_process_spec_t spec = {.environment = (const char *[]){place, NULL},
                                    .on_line = process_said,
                                    .on_death = process_died,
                                    .user = r};
    r->process = r->crew ? pl_crew_hire(r->crew, (int)r->rank, &spec, err)
                         : pl_again_start(&spec, pl_actor_loop(r), err);
    return r->process ? PL_OK : err->code;
}

static int remote_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    remote_t *r = self;
    (void)call;
    r->wires = pl_object_ref(body->start.context);
    r->crew = pl_wires_crew(r->wires);
    r->outbox = pl_wires_outbox(r->wires, (int)r->rank);
    r->said = (pl_said_t){.self = r, .wires = r->wires, .rank = (int)r->rank};
    static const pl_wire_ops_t ops = {.on_message = remote_message,
                                      .on_event = remote_event,
                                      .on_sent = job_sent};
    pl_wires_attach(r->wires, (int)r->rank, &ops, r);
    int code = r->is_foreign ? PL_OK : process_start(r, err);
    if (code != PL_OK)
        return pl_pass(err, "rank %d", (int)r->rank);
    pl_actor_ready(self);
    return PL_OK;
}

static void remote_release(void *self)
{
    remote_t *r = self;
    if (r->crew)
        pl_crew_dismiss(r->crew, (int)r->rank, r);
    else
        pl_process_free(r->process);
    if (r->wires)
        pl_wires_detach(r->wires, (int)r->rank, r);
    pl_outbox_release(&r->outbox);
    pl_said_release(&r->said);
    pl_passed_release(&r->passed);
    pl_object_unref(r->wires);
}

static const pl_option_t remote_options[] = {
    PL_INT(remote_t, rank, "0", "0..", "whom it stands in for"),
    PL_BOOL(remote_t, is_foreign, "false", "somebody else has started its process"),
    PL_OPTIONS_END,
};

static const pl_handler_t remote_handlers[] = {
    PL_ON(start, remote_start), PL_ON(run, remote_run),     PL_ON(join, remote_join),
    PL_ON(stop, remote_stop),   PL_ON(watch, remote_watch), PL_HANDLERS_END,
};

const pl_actor_ops_t pl_remote = {
    .name = "remote",
    .help = "one rank's actors, in another process",
    .size = sizeof(remote_t),
    .options = remote_options,
    .level = PL_LEVEL_WORKER,
    .handlers = remote_handlers,
    .on_cancel = remote_cancel,
    .release = remote_release,
};
