/* link_rank.c - the connecting end of a link: joins, joins again, leaves
 *
 * Each connection has its own identity, `rank.incarnation.attempt`, because a ROUTER
 * delivers nothing to a second connection of an identity while the first exists.  The
 * count of attempts begins at a random number: another process may have the same rank by
 * mistake, and must get the refusal.
 *
 * A new dial discards the greeting so far, which takes several round trips.  So a rank
 * dials again only if no connection was made, or if the launcher does not answer; ZeroMQ
 * limits the time of the greeting between. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"
#include "transport/link_parts.h"

enum { AGAIN_MS = 100, LOOK_MS = 50 };
static const int64_t DIAL_TIME = 3 * PL_SECOND;
static const int64_t LOOKUP_TIME = 10 * PL_MILLISECOND;     /* most end within it */

static bool is_over(const pl_link_t *link)
{
    return link->peers[0].state >= PL_LINK_HAS_LEFT;
}

/* ---- joining ---- */

static int ask_make(pl_link_t *link, pl_error_t *err)
{
    char host[128] = "?", about[192], place[LINK_PLACE] = "";
    gethostname(host, sizeof host - 1);
    snprintf(about, sizeof about, "%s process %d", host, (int)getpid());
    json_t *traits = pl_json_read(link->spec.traits, strlen(link->spec.traits), "traits",
                                  err);
    if (!traits)
        return PL_EINVAL;
    json_t *said = json_pack("{s:s,s:i,s:o,s:s}", "about",
                             link->spec.about ? link->spec.about : about, "world_size",
                             link->spec.world_size, "traits", traits, "place",
                             link->spec.watches ? link_place(place) : place);
    link->ask = said ? pl_json_write(said, PL_JSON_COMPACT) : NULL;
    json_decref(said);
    return link->ask ? PL_OK : pl_no_memory(err);
}

static bool welcome(pl_link_t *link, const link_head_t *head, pl_bytes_t bytes)
{
    link_peer_t *peer = &link->peers[0];
    char said[LINK_PLACE + 512] = "";
    if (peer->state == PL_LINK_IS_THERE)
        return true;
    if (peer->sender && peer->sender != head->sender)
        return link_end(link, peer, PL_LINK_GONE,
                        "another launcher replies: the previous one has ended");
    peer->sender = head->sender;
    link->spec.run = head->run;
    size_t size = bytes.size < sizeof said ? bytes.size : sizeof said - 1;
    memcpy(said, bytes.data, size);
    said[size] = '\0';
    size_t about = strlen(said);
    link_near_watch(link, peer, about < size ? said + about + 1 : NULL);
    return link_there(link, peer, head->received, said);
}

/* ---- frames ---- */

void rank_frame(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)identity;
    pl_link_t *link = user;
    link_peer_t *peer = &link->peers[0];
    link_head_t head;
    pl_bytes_t bytes;
    if (!link_read(link, frame, &head, &bytes) || is_over(link))
        return;
    bool is_ours = (head.run == link->spec.run || !link->spec.run)
                   && head.incarnation == link->spec.incarnation
                   && head.rank == link->spec.rank;
    if (head.version != PL_LINK_VERSION)
        link_end(link, peer, PL_LINK_GONE,
                 "%s speaks version %d of the protocol, this rank %d: install the same "
                 "Paceline on all machines",
                 link->spec.host, head.version, PL_LINK_VERSION);
    else if (head.kind == LINK_REFUSE && head.sender == link->sender)
        link_end(link, peer, PL_LINK_GONE, "rank %d is refused: %.*s", link->spec.rank,
                 (int)bytes.size, (const char *)bytes.data);
    else if (!is_ours)
        link->counts.fenced++;
    else if (head.kind == LINK_WELCOME)
        welcome(link, &head, bytes);
    else if (peer->state != PL_LINK_IS_THERE || head.sender != peer->sender)
        link->counts.strangers++;
    else if (head.kind != LINK_BEAT && head.kind != LINK_MESSAGE
             && head.kind != LINK_DISMISS)
        link->counts.malformed++;
    else
        link_received(link, peer, &head, bytes);
}

static void rank_peers(void *user, int connected)
{
    pl_link_t *link = user;
    link->connected = connected;
    link->was_connected |= connected > 0;
    if (connected > 0 || link->peers[0].state == PL_LINK_AWAITED)
        return;                           /* ZeroMQ connects again and sends what waits */
    link->peers[0].is_lost = true;
    link_soon(link, 0);
}

static void rank_greeting(void *user, pl_greeting_t how, const char *peer)
{
    pl_link_t *link = user;
    (void)peer;
    if (how == PL_GREETING_DONE)
        link->greeted = pl_now();
}

/* ---- connecting ---- */

static int connect_at(pl_link_t *link, const char *endpoint, pl_error_t *err)
{
    pl_socket_spec_t socket = {.type = PL_SOCKET_DEALER,
                               .endpoint = endpoint,
                               .keys = link->spec.keys,
                               .identity = (uint32_t)link->spec.rank
                                           | (link->spec.incarnation & 0xff) << 16
                                           | (uint32_t)link->attempt << 24,
                               .waits = true,
                               .high_water_mark = LINK_HIGH_WATER,
                               .message_max = (int64_t)link->spec.message_max
                                              + (int64_t)sizeof(link_head_t),
                               .on_peers = rank_peers,
                               .on_greeting = rank_greeting};
    link->dialled = pl_now();
    link->socket = pl_socket_open(&socket, link->loop, rank_frame, link, err);
    if (!link->socket)
        return PL_EIO;
    link_head_t head = link_head_for(link, &link->peers[0], LINK_JOIN);
    return link_post(link, 0, &head, (pl_bytes_t){link->ask, strlen(link->ask)}, err);
}

/* ZeroMQ would resolve a name itself, and could not end while a name server does not
 * answer.  An unknown name is looked up again at the next dial. */
static int look_up(pl_link_t *link, int64_t until, pl_error_t *err)
{
    char endpoint[PL_HOST_TEXT + 16];
    pl_error_t unknown = {0};
    if (!link->lookup)
        link->lookup = pl_lookup_start(link->spec.endpoint, err);
    if (!link->lookup)
        return PL_EBUSY;
    if (!pl_lookup_wait(link->lookup, until)) {
        link_soon(link, LOOK_MS);
        return PL_OK;
    }
    const int code = pl_lookup_endpoint(link->lookup, endpoint, sizeof endpoint,
                                        &unknown);
    snprintf(link->unknown, sizeof link->unknown, "%s", unknown.text);
    pl_lookup_leave(link->lookup);
    link->lookup = NULL;
    return code == PL_OK ? connect_at(link, endpoint, err) : PL_OK;
}

static int dial(pl_link_t *link, pl_error_t *err)
{
    link->attempt = link->attempt == UINT8_MAX ? 1 : link->attempt + 1;
    link->dialled = pl_now();
    link->connected = 0;
    link->peers[0].is_lost = false;
    pl_socket_close(link->socket);
    link->socket = NULL;
    return pl_lookup_is_needed(link->spec.endpoint)
               ? look_up(link, pl_now() + LOOKUP_TIME, err)
               : connect_at(link, link->spec.endpoint, err);
}

bool rank_soon(pl_link_t *link)
{
    link_peer_t *peer = &link->peers[0];
    if (link->lookup)
        look_up(link, pl_now(), NULL);
    if (peer->leaves && peer->state == PL_LINK_AWAITED)
        return link_end(link, peer, PL_LINK_LEFT, "left before it joined");
    if (peer->is_lost && peer->state == PL_LINK_IS_THERE) {
        if (!link_lost(link, peer))
            return false;
        if (peer->state == PL_LINK_IS_CUT)
            dial(link, NULL);
    } else if (peer->is_lost && peer->state == PL_LINK_IS_CUT) {
        if (pl_now() - link->dialled >= AGAIN_MS * PL_MILLISECOND)
            dial(link, NULL);
        else
            link_soon(link, AGAIN_MS);
    }
    return link_bury(link, peer, pl_now());
}

/* The error names the cause: no connection, no common key, or no answer. */
static bool join_expired(pl_link_t *link)
{
    const double seconds = link->spec.times.join / 1e3;
    const char *const at = link->spec.endpoint, *const host = link->spec.host;
    link_peer_t *peer = &link->peers[0];
    if (link->lookup || link->unknown[0])
        return link_end(link, peer, PL_LINK_GONE,
                        "rank %d could not connect to %s at %s for %g s: %s",
                        link->spec.rank, host, at, seconds,
                        link->unknown[0] ? link->unknown
                                         : "the name server does not answer; give an "
                                           "address, or check /etc/resolv.conf");
    if (link->greeted)
        return link_end(link, peer, PL_LINK_GONE,
                        "%s at %s has not admitted rank %d for %g s: it is connected but "
                        "does not reply",
                        host, at, link->spec.rank, seconds);
    if (link->was_connected)
        return link_end(
            link, peer, PL_LINK_GONE,
            "%s at %s has not admitted rank %d for %g s: is that %s, and is the "
            "job key the same?",
            host, at, link->spec.rank, seconds, host);
    return link_end(link, peer, PL_LINK_GONE,
                    "rank %d could not connect to %s at %s for %g s: is it running, "
                    "and does a firewall or a route drop packets to it?",
                    link->spec.rank, host, at, seconds);
}

static bool expired(int64_t since, int64_t now, int ms)
{
    return ms && now - since > ms * PL_MILLISECOND;
}

bool rank_tick(pl_link_t *link, int64_t now)
{
    const pl_link_times_t *t = &link->spec.times;
    link_peer_t *peer = &link->peers[0];
    if (!link_bury(link, peer, now))
        return false;
    if (is_over(link))
        return true;
    bool is_awaited = peer->state == PL_LINK_AWAITED;
    if (is_awaited && expired(link->opened, now, t->join))
        return join_expired(link);
    if (!is_awaited && t->has_lease && expired(peer->received_at, now, t->silence))
        return link_end(link, peer, PL_LINK_GONE,
                        "no data from %s for %g s: the lease has expired",
                        link->spec.host, t->silence / 1e3);
    if (peer->state == PL_LINK_IS_CUT && expired(peer->cut, now, t->rejoin))
        return link_end(link, peer, PL_LINK_GONE,
                        "the connection to %s was cut for longer than %g s",
                        link->spec.host, t->rejoin / 1e3);
    const bool greets = link->connected > 0 && link->greeted < link->dialled;
    const int64_t since = link->greeted > link->dialled ? link->greeted : link->dialled;
    if (peer->state != PL_LINK_IS_THERE && !greets && now - since > DIAL_TIME)
        dial(link, NULL);                      /* the last dial cannot succeed any more */
    return true;
}

pl_link_t *pl_link_connect(const pl_link_spec_t *spec, pl_sockets_t *loop,
                           pl_error_t *err)
{
    if (spec->rank < 0 || spec->rank >= PL_RANKS_MAX || !spec->incarnation) {
        pl_fail(err, PL_EINVAL, "a link of rank %d", spec->rank);
        return NULL;
    }
    pl_link_t *link = link_make(spec, loop, false, err);
    if (!link)
        return NULL;
    link->attempt = (uint8_t)(link->sender >> 8);
    if (ask_make(link, err) == PL_OK && dial(link, err) == PL_OK)
        return link;
    pl_link_free(link);
    return NULL;
}

int pl_link_leave(pl_link_t *link, pl_error_t *err)
{
    link_peer_t *peer = &link->peers[0];
    if (link->is_host || is_over(link))
        return pl_fail(err, PL_EPEER, "the link has ended already");
    if (peer->leaves)
        return PL_OK;
    int code = link_queue(link, peer, LINK_LEAVE, (pl_bytes_t){0}, err);
    peer->leaves = code == PL_OK;
    link_soon(link, 0);
    return code;
}
