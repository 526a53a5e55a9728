/* link.c - what both ends of a link do: send, receive, acknowledge, report events
 *
 * A function of the user may free the link or begin a new incarnation.  So the caller of
 * such a function checks afterwards whether the link still exists. */
#include "transport/link.h"

#include <event2/event.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/timeouts.h"
#include "base/utf8.h"
#include "transport/link_parts.h"

enum {
    /* what was received is acknowledged after this time, or this part of unread_max */
    TELL_AFTER_MS = 20,
    TELL_AFTER_PART = 8,
    TEXT_MAX = 1024,
};
static const char MAGIC[6] = "PLLINK";
static const int64_t LATE = PL_SECOND / 4;

/* ---- functions of the user ---- */

/* Not inlined: the compiler would not see that a link that keeps the address was
 * freed. */
__attribute__((noinline)) void link_enter(pl_link_t *link, link_guard_t *guard)
{
    *guard = (link_guard_t){.outer = link->freed, .generation = link->generation};
    link->freed = &guard->freed;
}

bool link_return(pl_link_t *link, link_guard_t *guard)
{
    if (guard->freed) {
        if (guard->outer)
            *guard->outer = true;
        return false;
    }
    link->freed = guard->outer;
    return link->generation == guard->generation;
}

static bool tell(pl_link_t *link, int peer, pl_link_event_t event, const char *format,
                 va_list args)
{
    char text[TEXT_MAX];
    link_guard_t guard;
    pl_text_print(text, sizeof text, format, args);
    link_enter(link, &guard);
    link->spec.on_event(link->spec.user, peer, event, text);
    return link_return(link, &guard);
}

bool link_tell(pl_link_t *link, int peer, pl_link_event_t event, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool continues = tell(link, peer, event, format, args);
    va_end(args);
    return continues;
}

/* ---- frames ---- */

int link_number(const pl_link_t *link, const link_peer_t *peer)
{
    return link->is_host ? (int)(peer - link->peers) : PL_LINK_HOST;
}

static uint32_t sum_of(const link_head_t *head, pl_bytes_t bytes)
{
    return pl_crc32c(pl_crc32c(0, head, offsetof(link_head_t, sum)), bytes.data,
                     bytes.size);
}

bool link_read(pl_link_t *link, pl_frame_t *frame, link_head_t *head, pl_bytes_t *bytes)
{
    pl_bytes_t all = frame ? pl_frame_bytes(frame) : (pl_bytes_t){0};
    if (all.size >= sizeof *head) {
        memcpy(head, all.data, sizeof *head);
        *bytes = (pl_bytes_t){(const char *)all.data + sizeof *head,
                              all.size - sizeof *head};
        bool is_ours = !memcmp(head->magic, MAGIC, sizeof MAGIC),
             is_numbered = head->kind >= LINK_MESSAGE;
        if (is_ours && head->version != PL_LINK_VERSION)
            return true;                                /* its other fields are unknown */
        if (is_ours && head->kind < LINK_KINDS && head->size == bytes->size
            && is_numbered == (head->sequence > 0) && head->sum == sum_of(head, *bytes))
            return true;
    }
    link->counts.malformed++;
    return false;
}

link_head_t link_head_for(const pl_link_t *link, const link_peer_t *peer,
                          link_kind_t kind)
{
    link_head_t head = {.version = PL_LINK_VERSION,
                        .kind = (uint8_t)kind,
                        .run = link->spec.run,
                        .sender = link->sender,
                        .incarnation = link->spec.incarnation,
                        .rank = link->is_host && peer ? link_number(link, peer)
                                                      : link->spec.rank,
                        .received = peer ? peer->path.received : 0};
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    return head;
}

int link_post(pl_link_t *link, uint32_t identity, link_head_t *head, pl_bytes_t bytes,
              pl_error_t *err)
{
    pl_frame_t frame;
    if (!link->socket)
        return pl_fail(err, PL_EPEER, "not connected");
    head->size = (uint32_t)bytes.size;
    head->sum = sum_of(head, bytes);
    int code = pl_frame_join(&frame, (pl_bytes_t){head, sizeof *head}, bytes, err);
    return code == PL_OK ? pl_socket_send(link->socket, identity, &frame, err) : code;
}

/* ---- sending ---- */

static void acknowledge(link_peer_t *peer)
{
    peer->path.acknowledged = peer->path.received;
    peer->path.unacknowledged_bytes = 0;
}

static void lost_if(pl_link_t *link, link_peer_t *peer, int code)
{
    if (code != PL_EPEER)
        return;
    peer->is_lost = true;
    link_soon(link, 0);
}

void link_beat(pl_link_t *link, link_peer_t *peer)
{
    link_head_t head = link_head_for(link, peer, LINK_BEAT);
    int code = link_post(link, peer->identity, &head, (pl_bytes_t){0}, NULL);
    peer->sent_at = pl_now();
    if (code == PL_OK)
        acknowledge(peer);
    lost_if(link, peer, code);
}

/* What the socket does not accept now is sent after the next acknowledgement or tick. */
static void pump(pl_link_t *link, link_peer_t *peer)
{
    while (peer->path.unsent && peer->state == PL_LINK_IS_THERE && !peer->is_lost) {
        link_entry_t *entry = peer->path.unsent;
        link_head_t head = link_head_for(link, peer, entry->kind);
        head.sequence = entry->sequence;
        int code = link_post(link, peer->identity, &head,
                             (pl_bytes_t){entry->bytes, entry->size}, NULL);
        lost_if(link, peer, code);
        if (code != PL_OK)
            return;
        acknowledge(peer);
        peer->sent_at = pl_now();
        peer->path.unsent = entry->next;
    }
}

int link_queue(pl_link_t *link, link_peer_t *peer, link_kind_t kind, pl_bytes_t bytes,
               pl_error_t *err)
{
    int code = link_path_queue(&peer->path, (uint8_t)kind, bytes, link->spec.unread_max,
                               err);
    if (code == PL_EBUSY)
        peer->was_refused = true;
    if (code != PL_OK)
        return code;
    peer->owes_clear = true;
    pump(link, peer);
    return PL_OK;
}

link_peer_t *link_peer_of(const pl_link_t *link, int number)
{
    int at = link->is_host ? number : number == PL_LINK_HOST ? 0 : -1;
    return at >= 0 && at < link->peer_count ? &link->peers[at] : NULL;
}

int pl_link_send(pl_link_t *link, int number, pl_bytes_t message, pl_error_t *err)
{
    link_peer_t *peer = link_peer_of(link, number);
    bool may = peer && !peer->leaves
               && (peer->state == PL_LINK_IS_THERE || peer->state == PL_LINK_IS_CUT);
    if (!may)
        return pl_fail(err, PL_EPEER, "rank %d is not connected",
                       peer && !link->is_host ? link->spec.rank : number);
    if (message.size > link->spec.message_max)
        return pl_fail(err, PL_EINVAL, "a message of %zu bytes; the limit is %zu",
                       message.size, link->spec.message_max);
    return link_queue(link, peer, LINK_MESSAGE, message, err);
}

/* ---- receiving ---- */

/* All sent messages have arrived: a peer that leaves has left. */
static bool cleared(pl_link_t *link, link_peer_t *peer)
{
    int number = link_number(link, peer);
    if (peer->path.oldest || !peer->owes_clear)
        return true;
    peer->owes_clear = false;
    if (peer->leaves)
        return link_end(link, peer, PL_LINK_LEFT, "has left");
    return link_tell(link, number, PL_LINK_CLEAR, "all messages have arrived");
}

static bool acknowledged(pl_link_t *link, link_peer_t *peer, uint64_t received)
{
    if (!link_path_acknowledge(&peer->path, received)) {
        link->counts.malformed++;
        return true;
    }
    pump(link, peer);
    if (peer->was_refused && peer->path.bytes <= link->spec.unread_max / 2) {
        peer->was_refused = false;
        if (!link_tell(link, link_number(link, peer), PL_LINK_WRITABLE,
                       "messages are accepted again"))
            return false;
    }
    return cleared(link, peer);
}

static bool numbered(pl_link_t *link, link_peer_t *peer, const link_head_t *head,
                     pl_bytes_t bytes)
{
    link_guard_t guard;
    pl_frame_t message;                           /* aligned, other than ZeroMQ's bytes */
    if (head->sequence > peer->path.received + 1
        || pl_frame_join(&message, (pl_bytes_t){0}, bytes, NULL) != PL_OK) {
        peer->is_lost = true;               /* a missing message, or no memory: it arrives
                                               over the next connection */
        link_soon(link, 0);
        return true;
    }
    bool is_new = link_path_take(&peer->path, head->sequence, bytes.size);
    link->counts.repeated += !is_new;
    if (peer->path.unacknowledged_bytes > link->spec.unread_max / TELL_AFTER_PART)
        link_beat(link, peer);
    else
        link_soon(link, TELL_AFTER_MS);
    if (is_new && head->kind == LINK_MESSAGE && !(link->is_host && peer->leaves)) {
        link->counts.messages++;
        link_enter(link, &guard);
        link->spec.on_message(link->spec.user, link_number(link, peer), &message);
        pl_frame_release(&message);
        return link_return(link, &guard);
    }
    pl_frame_release(&message);
    if (!is_new || head->kind == LINK_MESSAGE)
        return true;
    link_beat(link, peer);                                  /* the peer waits for it */
    return link->is_host ? link_end(link, peer, PL_LINK_LEFT, "has left")
                         : link_end(link, peer, PL_LINK_GONE, "%.*s", (int)bytes.size,
                                    (const char *)bytes.data);
}

bool link_received(pl_link_t *link, link_peer_t *peer, const link_head_t *head,
                   pl_bytes_t bytes)
{
    peer->received_at = pl_now();
    if (peer->is_silent) {
        peer->is_silent = false;
        if (!link_tell(link, link_number(link, peer), PL_LINK_RECEIVED,
                       "data arrives again"))
            return false;
    }
    if (!acknowledged(link, peer, head->received))
        return false;
    return head->sequence == 0 || numbered(link, peer, head, bytes);
}

/* ---- connected, cut, gone ---- */

bool link_there(pl_link_t *link, link_peer_t *peer, uint64_t received, const char *about)
{
    bool is_first = peer->state == PL_LINK_AWAITED;
    peer->received_at = peer->sent_at = pl_now();
    peer->cut = 0;
    peer->is_silent = peer->is_lost = false;
    peer->state = PL_LINK_IS_THERE;
    if (!link_path_acknowledge(&peer->path, received))
        link->counts.malformed++;
    link->counts.sent_again += (uint64_t)link_path_rewind(&peer->path);
    acknowledge(peer);
    pump(link, peer);
    return link_tell(link, link_number(link, peer),
                     is_first ? PL_LINK_JOINED : PL_LINK_BACK, "%s", about)
           && cleared(link, peer);
}

bool link_end(pl_link_t *link, link_peer_t *peer, pl_link_event_t event,
              const char *format, ...)
{
    va_list args;
    bool is_told = !(link->is_host && peer->leaves);
    peer->state = event == PL_LINK_LEFT ? PL_LINK_HAS_LEFT : PL_LINK_IS_GONE;
    pl_map_take(&link->identities, peer->identity);
    link_peer_release(peer);
    va_start(args, format);
    bool continues = !is_told || tell(link, link_number(link, peer), event, format, args);
    va_end(args);
    return continues;
}

bool link_cut(pl_link_t *link, link_peer_t *peer)
{
    peer->is_lost = false;
    if (peer->state != PL_LINK_IS_THERE)
        return true;
    peer->state = PL_LINK_IS_CUT;
    peer->cut = pl_now();
    return link_tell(link, link_number(link, peer), PL_LINK_CUT,
                     "the connection has ended");
}

bool link_lost(pl_link_t *link, link_peer_t *peer)
{
    link_guard_t guard;
    link_enter(link, &guard);
    if (link->socket)
        pl_socket_drain(link->socket);
    if (!link_return(link, &guard))
        return false;
    return !peer->is_lost || link_cut(link, peer);
}

/* ---- time ---- */

static void timer_set(struct event *timer, int milliseconds)
{
    struct timeval in = {milliseconds / 1000, milliseconds % 1000 * 1000};
    event_add(timer, &in);
}

static void tick_set(pl_link_t *link)
{
    int wait = link->spec.times.beat / PL_LINK_TICKS + 1;
    link->tick_due = pl_now() + wait * PL_MILLISECOND;
    timer_set(link->tick, wait);
}

void link_soon(pl_link_t *link, int milliseconds)
{
    if (milliseconds == 0 || !event_pending(link->soon, EV_TIMEOUT, NULL))
        timer_set(link->soon, milliseconds);
}

/* A thread that was not awake received nothing, which is no peer's fault.  The same holds
 * for a lease: a scheduler that suspends a job stops all its processes.  A launcher that
 * was awake has dropped this rank by now and refuses its next message, and the
 * incarnation excludes what the rank does until then. */
static void ticked(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_link_t *link = user;
    int64_t now = pl_now();
    const int silence = link->spec.times.silence;
    const int64_t late = now - link->tick_due > LATE ? now - link->tick_due : 0;
    link->opened += late;
    for (int k = 0; late && k < link->peer_count; k++) {
        link->peers[k].received_at += late;
        link->peers[k].cut += link->peers[k].cut ? late : 0;
    }
    tick_set(link);
    for (int k = 0; k < link->peer_count; k++) {
        link_peer_t *peer = &link->peers[k];
        if (peer->state == PL_LINK_IS_THERE
            && now - peer->sent_at >= link->spec.times.beat * PL_MILLISECOND)
            link_beat(link, peer);
        pump(link, peer);
        if (peer->is_silent || peer->state != PL_LINK_IS_THERE
            || now - peer->received_at < silence * PL_MILLISECOND)
            continue;
        peer->is_silent = true;
        if (!link_tell(link, link_number(link, peer), PL_LINK_SILENT, "no data for %g s",
                       silence / 1e3))
            return;
    }
    if (link->is_host)
        host_tick(link, now);
    else
        rank_tick(link, now);
}

static void soon_fired(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_link_t *link = user;
    for (int k = 0; k < link->peer_count; k++) {
        link_peer_t *peer = &link->peers[k];
        if (peer->state == PL_LINK_IS_THERE
            && peer->path.acknowledged != peer->path.received)
            link_beat(link, peer);
    }
    if (link->is_host)
        host_soon(link);
    else
        rank_soon(link);
}

/* ---- life ---- */

static int spec_copy(pl_link_t *link, const pl_link_spec_t *spec, pl_error_t *err)
{
    pl_link_spec_t *own = &link->spec;
    *own = *spec;
    own->host = spec->host ? spec->host : "the launcher";
    own->times.join = spec->times.join ? spec->times.join : 60000;
    own->times.beat = spec->times.beat ? spec->times.beat : PL_LINK_BEAT_MS;
    own->times.silence = spec->times.silence ? spec->times.silence : PL_SILENCE_MS;
    own->times.rejoin = spec->times.rejoin ? spec->times.rejoin : PL_REJOIN_MS;
    own->message_max = spec->message_max ? spec->message_max : 1 << 20;
    own->unread_max = spec->unread_max ? spec->unread_max : 16 << 20;
    own->endpoint = pl_strdup(spec->endpoint);
    own->traits = pl_strdup(spec->traits ? spec->traits : "{}");
    own->about = spec->about ? pl_strdup(spec->about) : NULL;
    if (!own->endpoint || !own->traits || (spec->about && !own->about))
        return pl_no_memory(err);
    return PL_OK;
}

pl_link_t *link_make(const pl_link_spec_t *spec, pl_sockets_t *loop, bool is_host,
                     pl_error_t *err)
{
    pl_link_t *link = pl_alloc(sizeof *link);
    if (!link) {
        pl_no_memory(err);
        return NULL;
    }
    link->loop = loop;
    link->is_host = is_host;
    link->opened = pl_now();
    link->peer_count = is_host ? spec->world_size : 1;
    if (getrandom(&link->sender, sizeof link->sender, 0) != sizeof link->sender)
        link->sender = (uint64_t)link->opened;
    link->sender |= 1;                                      /* never 0 */
    if (spec_copy(link, spec, err) == PL_OK
        && pl_socket_folder_check(spec->endpoint, err) == PL_OK) {
        link->peers = pl_alloc_array((size_t)link->peer_count, sizeof *link->peers);
        link->tick = event_new(loop->base, -1, 0, ticked, link);
        link->soon = event_new(loop->base, -1, 0, soon_fired, link);
        if (link->peers && link->tick && link->soon) {
            tick_set(link);
            return link;
        }
        pl_no_memory(err);
    }
    pl_link_free(link);
    return NULL;
}

void link_peer_release(link_peer_t *peer)
{
    link_path_release(&peer->path);
    link_near_end(peer);
}

void pl_link_free(pl_link_t *link)
{
    if (!link)
        return;
    if (link->freed)
        *link->freed = true;
    if (link->is_host && link->socket)
        pl_link_dismiss(link, PL_LINK_HOST, "the launcher has ended");
    for (int k = 0; link->peers && k < link->peer_count; k++)
        link_peer_release(&link->peers[k]);
    pl_socket_close(link->socket);
    if (link->tick)
        event_free(link->tick);
    if (link->soon)
        event_free(link->soon);
    pl_map_release(&link->identities);
    pl_free(link->peers);
    json_decref(link->traits);
    pl_text_free(link->ask);
    pl_lookup_leave(link->lookup);
    pl_free((char *)link->spec.endpoint);
    pl_free((char *)link->spec.traits);
    pl_free((char *)link->spec.about);
    pl_free(link);
}

/* ---- small things ---- */

pl_link_state_t pl_link_state(const pl_link_t *link, int number)
{
    const link_peer_t *peer = link_peer_of(link, number);
    return peer ? peer->state : PL_LINK_IS_GONE;
}

uint64_t pl_link_run(const pl_link_t *link)
{
    return link->spec.run;
}

const pl_link_counts_t *pl_link_counts(const pl_link_t *link)
{
    return &link->counts;
}

int pl_link_endpoint(pl_link_t *link, char *text, size_t capacity, pl_error_t *err)
{
    return pl_socket_endpoint(link->socket, text, capacity, err);
}
