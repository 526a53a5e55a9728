/* link_host.c - the listening end of a link: admits ranks, notices that they are gone
 *
 * A ROUTER reports that a connection has ended, but not which one; a send to its peer
 * fails.  So all peers are sent a beat then, and again a little later, because the socket
 * learns of the end after the connection.  Messages that arrived before the end are still
 * in the socket and are received first. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/timeouts.h"
#include "transport/link_parts.h"

enum {
    PROBES = 3,
    PROBE_MS = 10,
    JOIN_MAX = 16 << 10,
    SAID = LINK_PLACE + 512,
    STRANGERS_FEW = 32,
    STRANGERS_MAX = 2048,
};

/* ---- joining ---- */

static void refuse(pl_link_t *link, uint32_t identity, const link_head_t *to,
                   const char *why)
{
    link_head_t head = link_head_for(link, NULL, LINK_REFUSE);
    head.sender = to->sender;
    head.rank = to->rank;
    link_post(link, identity, &head, (pl_bytes_t){why, strlen(why)}, NULL);
}

/* All ranks must have the traits of the first that joined. */
static int traits_check(pl_link_t *link, int rank, json_t *traits, pl_error_t *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(link->traits, name, value) {
        json_t *other = json_object_get(traits, name);
        char own_text[PL_JSON_SHOWN], other_text[PL_JSON_SHOWN];
        if (!json_equal(value, other))
            return pl_fail(err, PL_EINVAL,
                           "its %s is %s, but rank %d has %s: ranks with different "
                           "values do not compute the same results",
                           name, other ? pl_json_show(other, other_text) : "not given",
                           link->first, pl_json_show(value, own_text));
    }
    if (!link->traits) {
        link->traits = json_incref(traits);
        link->first = rank;
    }
    return PL_OK;
}

static int place_check(pl_link_t *link, const link_head_t *head, pl_error_t *err)
{
    if (head->version != PL_LINK_VERSION)
        return pl_fail(err, PL_EPROTOCOL,
                       "it speaks version %d of the protocol, this launcher %d: install "
                       "the same Paceline on all machines",
                       head->version, PL_LINK_VERSION);
    if (head->run != link->spec.run && (head->run || !link->spec.takes_any))
        return pl_fail(err, PL_EINVAL, "it belongs to another run: check the endpoint");
    if (head->incarnation != link->spec.incarnation) {
        link->counts.fenced += head->incarnation < link->spec.incarnation;
        return pl_fail(err, PL_EINVAL,
                       "it is of incarnation %" PRIu32 "; this is incarnation %" PRIu32,
                       head->incarnation, link->spec.incarnation);
    }
    if (head->rank < 0 || head->rank >= link->peer_count)
        return pl_fail(err, PL_EINVAL, "rank out of range: 0 to %d",
                       link->peer_count - 1);
    link_peer_t *peer = &link->peers[head->rank];
    if (link->spec.may_be_replaced && peer->sender && peer->sender != head->sender
        && !(link->spec.has_own_rank && head->rank == 0)) {
        const int64_t quiet = pl_now() - peer->received_at;
        const bool is_quiet = peer->state == PL_LINK_IS_THERE
                              && quiet > 2 * link->spec.times.beat * PL_MILLISECOND;
        if (peer->state == PL_LINK_IS_CUT || is_quiet)
            return pl_fail(err, PL_EBUSY,
                           "the previous process of this rank may reconnect");
        if (peer->state >= PL_LINK_HAS_LEFT || peer->leaves) {
            pl_map_take(&link->identities, peer->identity);
            link_peer_release(peer);
            *peer = (link_peer_t){0};                       /* another process follows */
        }
    }
    if (peer->sender && peer->sender != head->sender)
        return pl_fail(err, PL_EEXIST, "another process already has that rank");
    if (peer->state == PL_LINK_IS_GONE)
        return pl_fail(err, PL_EPEER, "%s",
                       peer->why[0] ? peer->why : "it was disconnected for too long");
    return PL_OK;
}

/* A peer may have reconnected before the end of its old connection was noticed. */
static bool admit(pl_link_t *link, uint32_t identity, const link_head_t *head,
                  json_t *said)
{
    char text[SAID], place[LINK_PLACE] = "";
    const char *about = json_string_value(json_object_get(said, "about"));
    link_peer_t *peer = &link->peers[head->rank];
    if (!link_cut(link, peer))
        return false;
    if (peer->state != PL_LINK_HAS_LEFT
        && pl_map_put(&link->identities, identity, peer) != PL_OK)
        return true;                                        /* it asks again */
    if (peer->identity != identity)
        pl_map_take(&link->identities, peer->identity);
    peer->identity = identity;
    peer->sender = head->sender;
    link_head_t answer = link_head_for(link, peer, LINK_WELCOME);
    const int size = snprintf(text, sizeof text, "%s%c%s",
                              link->spec.about ? link->spec.about : "", '\0',
                              link->spec.watches ? link_place(place) : place);
    link_post(link, identity, &answer,
              (pl_bytes_t){text, size < SAID ? (size_t)size + 1 : SAID}, NULL);
    if (peer->state == PL_LINK_HAS_LEFT)
        return true;
    link_near_watch(link, peer, json_string_value(json_object_get(said, "place")));
    return link_there(link, peer, head->received, about);
}

static bool join(pl_link_t *link, uint32_t identity, const link_head_t *head,
                 pl_bytes_t bytes)
{
    pl_error_t err = {0};
    int code = place_check(link, head, &err);
    json_t *said = NULL;
    if (code == PL_OK && bytes.size <= JOIN_MAX)
        said = pl_json_read(bytes.data, bytes.size, "its join message", &err);
    if (code == PL_OK && !said)
        code = PL_EPROTOCOL;
    json_t *traits = json_object_get(said, "traits");
    const json_int_t world = json_integer_value(json_object_get(said, "world_size"));
    if (code == PL_OK
        && (!json_is_object(traits) || !json_is_string(json_object_get(said, "about"))))
        code = pl_fail(&err, PL_EPROTOCOL, "its join message has no description");
    else if (code == PL_OK && world != link->peer_count)
        code = pl_fail(&err, PL_EINVAL,
                       "its world size is %" JSON_INTEGER_FORMAT ", here it is %d", world,
                       link->peer_count);
    else if (code == PL_OK)
        code = traits_check(link, head->rank, traits, &err);
    const char *about = json_string_value(json_object_get(said, "about"));
    bool continues = true;
    if (code == PL_OK) {
        continues = admit(link, identity, head, said);
    } else if (code != PL_ENOMEM && code != PL_EBUSY) {     /* it asks again */
        link->counts.refused++;
        refuse(link, identity, head, err.text);
        continues = link_tell(link, head->rank, PL_LINK_REFUSED, "rank %d (%s): %s",
                              head->rank, about ? about : "?", err.text);
    }
    json_decref(said);
    return continues;
}

/* ---- frames ---- */

static void stranger(pl_link_t *link, uint32_t identity, const link_head_t *head)
{
    bool is_of_run = head->version == PL_LINK_VERSION && head->run == link->spec.run;
    const link_peer_t *peer = head->rank >= 0 && head->rank < link->peer_count
                                  ? &link->peers[head->rank]
                                  : NULL;
    if (is_of_run && head->incarnation < link->spec.incarnation) {
        link->counts.fenced++;
        refuse(link, identity, head, "its incarnation has ended");
        return;
    }
    link->counts.strangers++;
    if (is_of_run && peer && peer->sender == head->sender
        && peer->state == PL_LINK_IS_GONE)
        refuse(link, identity, head,
               peer->why[0] ? peer->why : "it was disconnected for too long");
}

void host_frame(void *user, uint32_t identity, pl_frame_t *frame)
{
    pl_link_t *link = user;
    link_head_t head;
    pl_bytes_t bytes;
    if (!link_read(link, frame, &head, &bytes))
        return;
    link_peer_t *peer = identity ? pl_map_get(&link->identities, identity) : NULL;
    if (head.version != PL_LINK_VERSION || (head.kind == LINK_JOIN && identity))
        join(link, identity, &head, bytes);
    else if (!peer)
        stranger(link, identity, &head);
    else if (head.sender != peer->sender || head.run != link->spec.run
             || head.incarnation != link->spec.incarnation
             || head.rank != link_number(link, peer) || head.kind < LINK_BEAT
             || head.kind > LINK_LEAVE)
        link->counts.malformed++;
    else
        link_received(link, peer, &head, bytes);
}

/* ---- connections that end ---- */

void host_probe(pl_link_t *link)
{
    link->probes = PROBES;
    link_soon(link, 0);
}

/* A client that does not greet is dropped after some seconds.  Until then it costs a
 * descriptor and some memory, which the run needs. */
static void host_peers(void *user, int connected)
{
    pl_link_t *link = user;
    const int strangers = connected - link->peer_count;
    if (connected < link->connected)
        host_probe(link);
    link->connected = connected;
    pl_socket_shut_port(link->socket,
                        strangers > STRANGERS_MAX
                            || (strangers > STRANGERS_FEW && pl_descriptors_are_few()));
}

/* Clients connect again and again, so the first is reported, then the tenth, the
 * hundredth and so on.  May free the link. */
static void host_greeting(void *user, pl_greeting_t how, const char *peer)
{
    pl_link_t *link = user;
    char times[48] = "";
    if (how != PL_GREETING_OTHER_KEY && how != PL_GREETING_NO_KEY)
        return;
    uint64_t count = ++link->keyless;
    while (count % 10 == 0)
        count /= 10;
    if (count != 1)
        return;
    if (link->keyless > 1)
        snprintf(times, sizeof times, "; %" PRIu64 " connections so far", link->keyless);
    link_tell(
        link, PL_LINK_HOST, PL_LINK_REFUSED, "%s has %s%s", peer,
        how == PL_GREETING_OTHER_KEY
            ? "another key: use the same job key file on all machines"
        : link->spec.keys
            ? "no key: all ranks need the same job key file (PACELINE_JOB_KEY_FILE)"
            : "a key, but this process has none: all ranks need the same job key file "
              "(PACELINE_JOB_KEY_FILE)",
        times);
}

bool host_soon(pl_link_t *link)
{
    int64_t now = pl_now();
    bool probes = link->probes > 0;
    link->probes -= probes;
    for (int k = 0; k < link->peer_count; k++) {
        link_peer_t *peer = &link->peers[k];
        if (probes && peer->state == PL_LINK_IS_THERE)
            link_beat(link, peer);
        if ((peer->is_lost && !link_lost(link, peer)) || !link_bury(link, peer, now))
            return false;
    }
    if (link->probes)
        link_soon(link, PROBE_MS);
    return true;
}

/* ---- time ---- */

static bool missing_check(pl_link_t *link, int64_t now)
{
    char ranks[512] = "", keyless[128] = "";
    size_t length = 0;
    int ms = link->spec.times.join;
    if (link->said_missing || now - link->opened < ms * PL_MILLISECOND)
        return true;
    link->said_missing = true;
    for (int k = 0; k < link->peer_count && length + 32 < sizeof ranks; k++) {
        const int first = k;                                /* "2, 5-7" */
        const char *comma = length ? ", " : "";
        while (k < link->peer_count && link->peers[k].state == PL_LINK_AWAITED)
            k++;
        if (k - first > 1)
            length += (size_t)snprintf(ranks + length, sizeof ranks - length, "%s%d-%d",
                                       comma, first, k - 1);
        else if (k > first)
            length += (size_t)snprintf(ranks + length, sizeof ranks - length, "%s%d",
                                       comma, first);
    }
    if (link->keyless)
        snprintf(keyless, sizeof keyless,
                 "; %" PRIu64 " connection%s without its key %s refused: is the job key "
                 "file the same everywhere?",
                 link->keyless, link->keyless > 1 ? "s" : "",
                 link->keyless > 1 ? "were" : "was");
    return !ranks[0]
           || link_tell(link, PL_LINK_HOST, PL_LINK_MISSING,
                        "not joined within %g s at %s: rank %s%s", ms / 1e3,
                        link->spec.endpoint, ranks, keyless);
}

bool host_tick(pl_link_t *link, int64_t now)
{
    const pl_link_times_t *t = &link->spec.times;
    const int64_t limit = t->rejoin * PL_MILLISECOND;
    for (int k = 0; k < link->peer_count; k++) {
        link_peer_t *peer = &link->peers[k];
        if (!link_bury(link, peer, now))
            return false;
        /* a rank with a lease has ended itself by now, or does so when it wakes */
        const bool is_cut = peer->state == PL_LINK_IS_CUT,
                   is_leased = t->has_lease
                               && (is_cut || peer->state == PL_LINK_IS_THERE);
        const int64_t since = is_leased ? peer->received_at : is_cut ? peer->cut : now;
        if (now - since > limit
            && !link_end(link, peer, PL_LINK_GONE,
                         is_leased ? "no data for %g s"
                                   : "the connection was cut for longer than %g s",
                         t->rejoin / 1e3))
            return false;
    }
    return missing_check(link, now);
}

/* ---- the launcher's own rank ---- */

static int own_rank_join(pl_link_t *link, pl_error_t *err)
{
    if (!link->spec.has_own_rank)
        return PL_OK;
    link->traits = pl_json_read(link->spec.traits, strlen(link->spec.traits), "traits",
                                err);
    link->first = 0;
    link->peers[0].state = PL_LINK_HAS_LEFT;
    link->peers[0].sender = link->sender;
    return link->traits ? PL_OK : PL_EINVAL;
}

/* ---- requests of the launcher ---- */

void pl_link_dismiss(pl_link_t *link, int rank, const char *why)
{
    for (int k = 0; link->is_host && k < link->peer_count; k++) {
        link_peer_t *peer = &link->peers[k];
        if ((k != rank && rank != PL_LINK_HOST) || peer->leaves
            || peer->state >= PL_LINK_HAS_LEFT)
            continue;
        snprintf(peer->why, sizeof peer->why, "%s", why);
        const pl_bytes_t text = {peer->why, strlen(peer->why)};
        if (peer->state == PL_LINK_AWAITED
            || link_queue(link, peer, LINK_DISMISS, text, NULL) != PL_OK)
            peer->state = PL_LINK_IS_GONE;           /* it gets the reason when it asks */
        peer->leaves = true;
    }
}

int pl_link_renew(pl_link_t *link, uint32_t incarnation, int world_size, pl_error_t *err)
{
    if (!link->is_host || incarnation <= link->spec.incarnation || world_size < 1)
        return pl_fail(err, PL_EINVAL,
                       "incarnation %" PRIu32 " of %d ranks after %" PRIu32, incarnation,
                       world_size, link->spec.incarnation);
    link_peer_t *peers = pl_alloc_array((size_t)world_size, sizeof *peers);
    if (!peers)
        return pl_no_memory(err);
    for (int k = 0; k < link->peer_count; k++)
        link_peer_release(&link->peers[k]);
    pl_free(link->peers);
    pl_map_release(&link->identities);
    json_decref(link->traits);
    link->traits = NULL;
    link->peers = peers;
    link->peer_count = link->spec.world_size = world_size;
    link->spec.incarnation = incarnation;
    link->opened = pl_now();
    link->said_missing = false;
    link->generation++;
    return own_rank_join(link, err);
}

/* ---- opening ---- */

pl_link_t *pl_link_listen(const pl_link_spec_t *spec, pl_sockets_t *loop, pl_error_t *err)
{
    if (spec->world_size < 1 || spec->world_size > PL_RANKS_MAX || !spec->incarnation) {
        pl_fail(err, PL_EINVAL, "a link for %d ranks, incarnation %" PRIu32,
                spec->world_size, spec->incarnation);
        return NULL;
    }
    pl_link_t *link = link_make(spec, loop, true, err);
    if (!link)
        return NULL;
    pl_socket_spec_t socket = {.type = PL_SOCKET_ROUTER,
                               .endpoint = spec->endpoint,
                               .bind = true,
                               .keys = spec->keys,
                               .high_water_mark = LINK_HIGH_WATER,
                               .linger_ms = PL_LINGER_MS,
                               .message_max = (int64_t)link->spec.message_max
                                              + (int64_t)sizeof(link_head_t),
                               .on_peers = host_peers,
                               .on_greeting = host_greeting};
    if (own_rank_join(link, err) == PL_OK)
        link->socket = pl_socket_open(&socket, loop, host_frame, link, err);
    if (link->socket)
        return link;
    pl_link_free(link);
    return NULL;
}
