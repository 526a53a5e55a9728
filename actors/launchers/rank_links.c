/* rank_links.c - the links of a launcher with the processes of its ranks */
#include "actors/launchers/rank_links.h"

#include <stdio.h>
#include <string.h>

#include "actors/launchers/ranks.h"
#include "actors/launchers/supervisor.h"
#include "actors/log_writer.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/timeouts.h"
#include "runtime/monitor.h"
#include "runtime/reactor.h"

/* ---- The stream ---- */

/* Where messages of other processes arrive  ["": nowhere] */
static const char *stream_open(pl_rank_links_t *links)
{
    const pl_monitor_take_t how = {.endpoint = links->stream_path,
                                   .keys = links->has_keys ? &links->keys : NULL,
                                   .under = links->launched};
    pl_error_t err = {0};
    if (links->is_stream_tried || !pl_monitor_gathers(links->runtime))
        return links->stream;
    links->is_stream_tried = true;
    if (pl_monitor_take(links->runtime, &how, links->stream, sizeof links->stream, &err)
        != PL_OK) {
        links->stream[0] = '\0';
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "the stream has no messages of other processes: %s", err.text);
    }
    return links->stream;
}

/* The process of a proxy's rank brings its messages to the stream.  The stream may begin
 * at any time, so this is called with each message of the rank.  Processes that are not
 * started for this run alone have clocks of their own. */
static void stream_tell(pl_rank_links_t *links, int rank)
{
    pl_rank_receiver_t *receiver = &links->receiver[rank];
    const pl_runtime_t *runtime = links->runtime;
    if (receiver->is_streamed || !receiver->ops->on_message || !*stream_open(links))
        return;
    const bool has_clock = !links->folder[0] || links->pool;
    const uint64_t time = has_clock ? (uint64_t)(pl_now() - runtime->began) : 0;
    const pl_bring_stream_t msg = {.endpoint = links->stream,
                                   .run = runtime->run,
                                   .time = time,
                                   .watched = pl_monitor_watchers(runtime) > 0,
                                   .lossless = pl_monitor_is_lossless(runtime)};
    receiver->is_streamed = pl_outbox_post(receiver->outbox, PL_KIND_CALL,
                                           PL_MESSAGE_bring_stream, 0, &msg, NULL)
                            == PL_OK;
}

/* ---- Events ---- */

static const pl_rank_receiver_t *receiver_of(const pl_rank_links_t *links, int rank)
{
    bool is_there = rank >= 0 && rank < links->count && links->receiver[rank].ops;
    return is_there ? &links->receiver[rank] : NULL;
}

static void message_came(void *user, int rank, pl_frame_t *message)
{
    const pl_rank_receiver_t *receiver = receiver_of(user, rank);
    if (!receiver || !receiver->ops->on_message)
        return;
    stream_tell(user, rank);
    receiver->ops->on_message(receiver->self, message);
}

/* Only ranks that have joined by the link for calls can be missing on the one for bulk
 * data. */
static void missing_tell(pl_rank_links_t *links, const pl_link_t *link, const char *text)
{
    for (int k = 0; k < links->count; k++) {
        const pl_rank_receiver_t *receiver = receiver_of(links, k);
        const bool has_called = pl_link_state(links->calls, k) != PL_LINK_AWAITED;
        if (receiver && has_called == (link != links->calls)
            && pl_link_state(link, k) == PL_LINK_AWAITED)
            receiver->ops->on_event(receiver->self, PL_LINK_MISSING, text);
    }
}

static void link_event(void *user, int rank, pl_link_event_t event, const char *text)
{
    pl_rank_links_t *links = user;
    const pl_rank_receiver_t *receiver = receiver_of(links, rank);
    links->joined += event == PL_LINK_JOINED;
    links->were_all_there |= links->joined == links->count;
    if (event == PL_LINK_GONE)
        pl_link_died(pl_bulk_link(links->bulk), rank);
    if (event == PL_LINK_JOINED && !receiver)
        snprintf(links->receiver[rank].early, sizeof links->receiver[rank].early, "%s",
                 text);
    if (event == PL_LINK_REFUSED) {
        pl_log_line(PL_LOG_WARNING, rank, "", "the connection of %s was refused: %s",
                    rank < 0 ? "an unknown peer" : "the rank's process", text);
    } else if (event == PL_LINK_MISSING) {
        missing_tell(links, links->calls, text);
    } else if (receiver) {
        pl_outbox_t *outbox = receiver->outbox;
        receiver->ops->on_event(receiver->self, event, text);
        if (event == PL_LINK_JOINED)
            stream_tell(links, rank);
        if (event == PL_LINK_JOINED || event == PL_LINK_WRITABLE)
            pl_outbox_flush(outbox);
    }
}

static void bulk_event(void *user, int rank, pl_link_event_t event, const char *text)
{
    pl_rank_links_t *links = user;
    const pl_rank_receiver_t *receiver = receiver_of(links, rank);
    if (receiver && (event == PL_LINK_GONE || event == PL_LINK_LEFT))
        receiver->ops->on_event(receiver->self, event, text);
    if (event == PL_LINK_MISSING)
        missing_tell(links, pl_bulk_link(links->bulk), text);
}

static void bulk_sent(void *user, int rank, uint64_t transfer, const pl_error_t *error)
{
    const pl_rank_receiver_t *receiver = receiver_of(user, rank);
    if (receiver)
        pl_outbox_sent(receiver->outbox, transfer, error);
}

/* ---- One rank ---- */

void pl_rank_links_attach(pl_rank_links_t *links, int rank,
                          const pl_rank_receiver_ops_t *ops, void *self,
                          pl_outbox_t *outbox)
{
    const pl_rank_receiver_t before = links->receiver[rank];
    *outbox = (pl_outbox_t){.link = links->calls,
                            .peer = rank,
                            .run = links->bootstrap.run,
                            .incarnation = links->bootstrap.incarnation,
                            .bulk = links->bulk};
    links->receiver[rank] =
        (pl_rank_receiver_t){.ops = ops, .self = self, .outbox = outbox};
    if (*before.early && pl_link_state(links->calls, rank) != PL_LINK_AWAITED) {
        ops->on_event(self, PL_LINK_JOINED, before.early);
        stream_tell(links, rank);
    }
}

void pl_rank_links_detach(pl_rank_links_t *links, int rank, const void *self)
{
    if (links->receiver[rank].self == self)
        links->receiver[rank] = (pl_rank_receiver_t){0};
}

bool pl_rank_links_is_over(const pl_rank_links_t *links, int rank)
{
    return pl_link_state(links->calls, rank) >= PL_LINK_HAS_LEFT
           && pl_link_state(pl_bulk_link(links->bulk), rank) >= PL_LINK_HAS_LEFT;
}

void pl_rank_links_abort(pl_rank_links_t *links, int rank, const char *why)
{
    const pl_rank_receiver_t *receiver = receiver_of(links, rank);
    pl_link_dismiss(links->calls, rank, why);
    if (receiver)
        receiver->ops->on_event(receiver->self, PL_LINK_GONE, why);
}

/* ---- All ranks ---- */

int pl_rank_links_renew(pl_rank_links_t *links, int count, pl_error_t *err)
{
    const uint32_t incarnation = links->bootstrap.incarnation + 1;
    int code = pl_link_renew(links->calls, incarnation, count, err);
    if (code == PL_OK)
        code = pl_bulk_renew(links->bulk, incarnation, count, err);
    if (code != PL_OK)
        return code;
    links->bootstrap.incarnation = incarnation;
    links->bootstrap.world_size = links->count = count;
    links->joined = 0;
    links->is_hurried = links->was_killed = false;
    return PL_OK;
}

void pl_rank_links_tell_run_dir(pl_rank_links_t *links, const char *path)
{
    char *own = *path ? pl_strdup(path) : NULL;
    if (!own)
        return;
    pl_free(links->run_dir);
    links->run_dir = own;
}

const char *pl_rank_links_run_dir(const pl_rank_links_t *links)
{
    return links->run_dir ? links->run_dir : "";
}

void pl_rank_links_bootstrap(const pl_rank_links_t *links, int rank,
                             char text[PL_BOOTSTRAP_TEXT])
{
    pl_bootstrap_t bootstrap = links->bootstrap;
    bootstrap.rank = rank;
    snprintf(bootstrap.folder, sizeof bootstrap.folder, "%s", links->folder);
    pl_bootstrap_write(&bootstrap, links->pool ? PL_BOOTSTRAP_IN_SCRIPT : PL_BOOTSTRAP,
                       text);
}

/* ---- Life ---- */

static void rank_links_release(pl_object_t *object)
{
    pl_rank_links_t *links = (pl_rank_links_t *)object;
    pl_bulk_free(links->bulk);
    pl_link_free(links->calls);
    pl_free(links->run_dir);
    if (links->stream[0])
        pl_monitor_take_no_more(links->runtime, links->stream);
    if (!links->pool)
        pl_folder_remove(links->folder, links->lock);
    pl_keys_forget(&links->keys);
    pl_free(links);
}

/* Where the links listen: at the rendezvous, or in a folder. */
static int places_find(pl_rank_links_t *links, const pl_rank_links_spec_t *w,
                       void *launcher, char *calls, char *bulk, pl_error_t *err)
{
    const pl_start_t start = {.options = ""};
    if (w->endpoint)
        return pl_rendezvous_places(w->endpoint, calls, bulk, links->stream_path,
                                    PL_RANK_LINKS_ENDPOINT, err);
    if (!pl_spawn(launcher, &pl_log_writer, PL_OWN_THREAD, &start, (pl_how_t){0},
                  &links->log_writer, err))
        return err->code;
    if (w->pool)
        snprintf(links->folder, sizeof links->folder, "%s", w->pool->folder);
    else if (pl_folder_make(links->folder, &links->lock, err) != PL_OK)
        return err->code;
    pl_folder_path(links->folder, PL_FOLDER_CALLS, calls);
    pl_folder_path(links->folder, PL_FOLDER_BULK, bulk);
    pl_folder_path(links->folder, PL_FOLDER_STREAM, links->stream_path);
    return PL_OK;
}

/* Ranks receive the address for bulk data when they join. */
static int rank_links_open(pl_rank_links_t *links, const pl_rank_links_spec_t *w,
                           void *launcher, pl_error_t *err)
{
    char calls[PL_RANK_LINKS_ENDPOINT], bulk[PL_RANK_LINKS_ENDPOINT],
        bound[PL_RANK_LINKS_ENDPOINT];
    pl_link_spec_t spec = {.endpoint = bulk,
                           .keys = w->keys,
                           .run = w->run,
                           .incarnation = w->incarnation,
                           .world_size = w->count,
                           .has_own_rank = w->endpoint != NULL,
                           .times = {.join = w->join_ms},
                           .on_message = message_came,
                           .on_event = link_event,
                           .user = links};
    if (places_find(links, w, launcher, calls, bulk, err) != PL_OK)
        return err->code;
    if (w->endpoint)
        spec.times.has_lease = true;
    spec.times.join += PL_REJOIN_MS;                 /* one may join at the last moment */
    links->joined = spec.has_own_rank;
    links->were_all_there = links->joined == links->count;
    const pl_bulk_spec_t with = {.link = spec,
                                 .max = SIZE_MAX / 2,   /* ranks are this program's own */
                                 .on_sent = bulk_sent,
                                 .on_event = bulk_event,
                                 .user = links};
    links->bulk = pl_bulk_open(&with, true, pl_actor_loop(launcher), err);
    if (!links->bulk
        || pl_link_endpoint(pl_bulk_link(links->bulk), bound, sizeof bound, err) != PL_OK)
        return err->code;
    spec.endpoint = calls;
    spec.times.join = w->join_ms;
    spec.about = bound;
    spec.watches = w->endpoint != NULL;
    spec.traits = w->traits;
    spec.takes_any = w->takes_any;
    links->calls = pl_link_listen(&spec, pl_actor_loop(launcher), err);
    return links->calls ? PL_OK : err->code;
}

pl_rank_links_t *pl_rank_links_new(void *launcher, const pl_rank_links_spec_t *spec,
                                   pl_error_t *err)
{
    const int count = spec->count;
    pl_rank_links_t *links =
        pl_alloc(sizeof *links + (size_t)count * sizeof *links->receiver);
    if (!links) {
        pl_no_memory(err);
        return NULL;
    }
    pl_object_init(&links->object, rank_links_release);
    links->count = count;
    links->lock = -1;
    if ((links->has_keys = spec->keys != NULL))
        links->keys = *spec->keys;
    links->pool = spec->pool;
    links->launched = pl_actor_doing(launcher);
    pl_runtime_t *runtime = links->runtime = pl_actor_runtime(launcher);
    links->bootstrap =
        (pl_bootstrap_t){.world_size = count,
                         .run = spec->run,
                         .incarnation = spec->incarnation,
                         .began = runtime->began,
                         .log_level = pl_log_level(),
                         .grace_ms = runtime->grace_ms,
                         .past_runs = spec->pool ? pl_worker_pool_past_runs(spec->pool)
                                                 : 0};
    if (rank_links_open(links, spec, launcher, err) == PL_OK)
        return links;
    pl_object_unref(links);
    return NULL;
}

/* ---- The result, for processes that requested the run by themselves ---- */

typedef struct pl_broadcast_peer {
    pl_result_broadcast_t *broadcast;
    int rank;
    pl_outbox_t outbox;
    bool is_over;
} broadcast_peer_t;

static void broadcast_look(pl_result_broadcast_t *b)
{
    for (int k = b->first; k < b->count; k++)
        if (!b->peer[k].is_over)
            return;
    if (b->is_begun)
        pl_ranks_answer(b->ranks);
}

/* why  [NULL: the rank has the result] */
static void peer_over(broadcast_peer_t *peer, const char *why)
{
    if (!peer->is_over && why)
        pl_log_line(PL_LOG_WARNING, peer->rank, pl_actor_name(peer->broadcast->ranks),
                    "the rank did not receive the end of the run: %s", why);
    peer->is_over = true;
    broadcast_look(peer->broadcast);
}

/* Progress before the error has the last step of the run. */
static void peer_fail(broadcast_peer_t *peer, const pl_error_t *failed)
{
    const pl_ranks_t *ranks = peer->broadcast->ranks;
    pl_error_t err = {0};
    const pl_run_progress_t far = {.event = PL_RUN_EVENT_ALIVE,
                                   .metrics = "",
                                   .global_step = ranks->global_step,
                                   .batch = ranks->had_a_batch};
    pl_outbox_post(&peer->outbox, PL_KIND_PROGRESS, PL_MESSAGE_run, 0, &far, NULL);
    if (pl_outbox_post(&peer->outbox, PL_KIND_ERROR, PL_MESSAGE_run, 0, failed, &err)
        != PL_OK)
        peer_over(peer, err.text);
}

static void peer_event(void *self, pl_link_event_t event, const char *text)
{
    broadcast_peer_t *peer = self;
    if (event == PL_LINK_GONE)
        peer_over(peer, text);
    if (event == PL_LINK_LEFT
        && pl_rank_links_is_over(peer->broadcast->ranks->links, peer->rank))
        peer_over(peer, NULL);
}

static void broadcast_late(void *self)
{
    pl_ranks_answer(self);
}

pl_result_broadcast_t *pl_result_broadcast(pl_ranks_t *ranks, int first)
{
    static const pl_rank_receiver_ops_t ops = {.on_event = peer_event};
    const pl_outcome_t *outcome = pl_ranks_outcome(ranks);
    pl_result_broadcast_t *b = pl_alloc(sizeof *b);
    if (b)
        b->peer = pl_alloc_array((size_t)ranks->count, sizeof *b->peer);
    if (!b || !b->peer
        || pl_after(ranks, PL_BROADCAST_RESULT_MS, broadcast_late, NULL) != PL_OK) {
        pl_result_broadcast_free(b);
        broadcast_late(ranks);
        return NULL;
    }
    b->ranks = ranks;
    b->first = first;
    b->count = ranks->count;
    b->error = ranks->error;
    b->outcome = outcome ? pl_outcome_pack(outcome, &b->error) : NULL;
    for (int k = first; k < b->count; k++) {
        broadcast_peer_t *peer = &b->peer[k];
        const pl_link_state_t state = pl_link_state(ranks->links->calls, k);
        pl_error_t err = {0};
        peer->broadcast = b;
        peer->rank = k;
        peer->is_over = state != PL_LINK_IS_THERE && state != PL_LINK_IS_CUT;
        if (peer->is_over)
            continue;
        pl_rank_links_attach(ranks->links, k, &ops, peer, &peer->outbox);
        if (!b->outcome)
            peer_fail(peer, &b->error);
        else if (pl_outbox_post_packed(&peer->outbox, PL_KIND_REPLY, PL_MESSAGE_run, 0,
                                       &(pl_run_reply_t){0}, b->outcome, &err)
                 != PL_OK)
            peer_fail(peer, &err);
    }
    b->is_begun = true;
    broadcast_look(b);
    return b;
}

void pl_result_broadcast_free(pl_result_broadcast_t *b)
{
    if (!b)
        return;
    for (int k = b->first; k < b->count; k++) {
        pl_rank_links_detach(b->ranks->links, k, &b->peer[k]);
        pl_outbox_release(&b->peer[k].outbox);
    }
    pl_object_unref(b->outcome);
    pl_free(b->peer);
    pl_free(b);
}
