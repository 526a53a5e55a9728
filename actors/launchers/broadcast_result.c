/* broadcast_result.c - the end of a run, told to every rank whose process waits for it
 *
 * Each of them has asked for the run by itself and gets rank zero's outcome as its own.
 * Nobody waits for long for one that does not take it. */
#include "actors/launchers/broadcast_result.h"

#include "actors/launchers/job_serialization.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/actor.h"
#include "runtime/timeouts.h"

typedef struct waiting {
    pl_result_broadcast_t *broadcast;
    int rank;
    pl_outbox_t outbox;
    uint64_t transfer;                                     /* of the outcome  [0: none] */
    bool is_over;
} waiting_t;

struct pl_result_broadcast {
    pl_rank_links_t *links;
    pl_blob_t *blob;                                        /* NULL: the run has failed */
    pl_error_t error;
    pl_ranks_t *ranks;                                      /* the launcher */
    bool waits;
    int first, count;
    waiting_t waiting[];                                    /* [count], by rank */
};

static void broadcast_look(pl_result_broadcast_t *s)
{
    for (int k = s->first; k < s->count; k++)
        if (!s->waiting[k].is_over)
            return;
    if (s->waits)
        pl_ranks_answer(s->ranks);
}

static void waiting_over(waiting_t *w, const char *why)
{
    if (!w->is_over && why)
        pl_log_line(PL_LOG_WARNING, w->rank, pl_actor_name(w->broadcast->ranks),
                    "the rank did not receive the end of the run: %s", why);
    w->is_over = true;
    broadcast_look(w->broadcast);
}

/* An error says nothing of how far the run came. */
static void waiting_tell(waiting_t *w, const pl_error_t *failed)
{
    pl_error_t err = {0};
    const pl_serve_reply_t reply = {.outcome = w->transfer};
    const pl_run_progress_t far = {.event = "alive",
                                   .metrics = "",
                                   .global_step = w->broadcast->ranks->global_step,
                                   .batch = w->broadcast->ranks->begun};
    if (failed)
        pl_outbox_post(&w->outbox, PL_KIND_PROGRESS, PL_MESSAGE_run, 0, &far, NULL);
    int code = failed ? pl_outbox_post(&w->outbox, PL_KIND_ERROR, PL_MESSAGE_serve, 0,
                                       failed, &err)
                      : pl_outbox_post(&w->outbox, PL_KIND_REPLY, PL_MESSAGE_serve, 0,
                                       &reply, &err);
    if (code != PL_OK)
        waiting_over(w, err.text);
}

static void outcome_sent(void *self, const pl_error_t *error)
{
    waiting_t *w = self;
    if (w->transfer && !w->is_over)
        waiting_tell(w, error);
}

static void event_came(void *self, pl_link_event_t event, const char *text)
{
    waiting_t *w = self;
    if (event == PL_LINK_JOINED || event == PL_LINK_WRITABLE)
        pl_outbox_flush(&w->outbox);
    if (event == PL_LINK_GONE)
        waiting_over(w, text);
    if (event == PL_LINK_LEFT && pl_rank_links_is_over(w->broadcast->links, w->rank))
        waiting_over(w, NULL);
}

/* What it still says is of a run that is over. */
static void message_came(void *self, pl_frame_t *message)
{
    (void)self, (void)message;
}

static void waiting_begin(waiting_t *w)
{
    static const pl_wire_ops_t ops = {.on_message = message_came,
                                      .on_event = event_came,
                                      .on_sent = outcome_sent};
    pl_result_broadcast_t *s = w->broadcast;
    pl_error_t err = {0};
    pl_link_state_t state = pl_link_state(pl_rank_links_calls(s->links), w->rank);
    if (state != PL_LINK_IS_THERE && state != PL_LINK_IS_CUT) {
        w->is_over = true;
        return;
    }
    w->outbox = pl_rank_links_outbox(s->links, w->rank);
    pl_rank_links_attach(s->links, w->rank, &ops, w);
    if (s->blob)
        w->transfer = pl_bulk_send(pl_rank_links_bulk(s->links), w->rank, s->blob, &err);
    if (!w->transfer)
        waiting_tell(w, s->blob ? &err : &s->error);
}

static void broadcast_late(void *self)
{
    pl_ranks_answer(self);
}

pl_result_broadcast_t *pl_result_broadcast(pl_ranks_t *ranks, pl_rank_links_t *links,
                                           int first)
{
    const int count = ranks->count;
    pl_result_broadcast_t *s = pl_alloc(sizeof *s + (size_t)count * sizeof *s->waiting);
    if (!s || pl_after(ranks, PL_BROADCAST_RESULT_MS, broadcast_late, NULL) != PL_OK) {
        pl_free(s);
        broadcast_late(ranks);
        return NULL;
    }
    s->ranks = ranks;
    s->links = links;
    s->first = first;
    s->count = count;
    s->error = ranks->error;
    const pl_outcome_t *outcome = pl_ranks_outcome(ranks);
    s->blob = outcome ? pl_outcome_pack(outcome, &s->error) : NULL;
    for (int k = first; k < count; k++) {
        s->waiting[k] = (waiting_t){.broadcast = s, .rank = k};
        waiting_begin(&s->waiting[k]);
    }
    s->waits = true;
    broadcast_look(s);
    return s;
}

const pl_blob_t *pl_result_broadcast_outcome(const pl_result_broadcast_t *s,
                                             const pl_error_t **error)
{
    *error = &s->error;
    return s->blob;
}

void pl_result_broadcast_free(pl_result_broadcast_t *s)
{
    if (!s)
        return;
    for (int k = s->first; k < s->count; k++) {
        pl_rank_links_detach(s->links, k, &s->waiting[k]);
        pl_outbox_release(&s->waiting[k].outbox);
    }
    pl_object_unref(s->blob);
    pl_free(s);
}
