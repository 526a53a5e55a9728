/* bulk.c - weights and other bulk between processes, on links of their own
 *
 * A transfer begins with its size, goes on in pieces, and ends with the checksum of all.
 * The link brings all of that once and in order, and lets no more be under way than the
 * other side has taken in; what is left is to hold the receiver's memory within bounds,
 * and not to believe a sender. */
#include "transport/bulk.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "transport/socket.h"

enum { PIECE = 512 << 10, UNDER_WAY = 8 << 20, TRIES = 100 };
static const size_t MAX = (size_t)4 << 30;

typedef enum bulk_kind {
    BULK_BEGIN,                                         /* number: bytes of all */
    BULK_PIECE,                                         /* number: offset; bytes follow */
    BULK_END,                                           /* number: CRC-32C of all */
    BULK_WHOLE,                                         /* back: it is whole */
    BULK_TORN,                                          /* back: it is not; number: the
                                                           code without its sign; text:
                                                           why */
} bulk_kind_t;

typedef struct bulk_head {
    uint64_t kind, transfer, number;
} bulk_head_t;

/* One that is sent, until it is there; or has come, until it is taken. */
typedef struct transfer {
    struct transfer *next;
    uint64_t number;
    pl_blob_t *blob;                                        /* counted */
    size_t done;                                            /* bytes sent, or got */
    uint32_t sum;                                           /* of those */
    bool has_begun, has_ended;                              /* BEGIN, END are sent */
} transfer_t;

/* To the sender of a transfer, until the link takes it. */
typedef struct answer {
    struct answer *next;
    bulk_head_t head;
    char why[PL_ERROR_TEXT];
} answer_t;

typedef struct bulk_peer {
    answer_t *answers;                                      /* oldest first, as these */
    transfer_t *out, *come;
    transfer_t *in;                                         /* that is coming  [none] */
    uint64_t last_out, last_in;                             /* numbers */
    size_t held;                                            /* bytes of in and come */
} bulk_peer_t;

struct pl_bulk {
    pl_bulk_spec_t spec;
    pl_link_t *link;
    bool is_host;
    bulk_peer_t *peers;
    int peer_count;
};

/* ---- blobs ---- */

static void blob_release(pl_object_t *object)
{
    pl_blob_t *blob = (pl_blob_t *)object;
    pl_free(blob->data);
    pl_free(blob);
}

pl_blob_t *pl_blob_new(size_t size, pl_error_t *err)
{
    pl_blob_t *blob = pl_alloc(sizeof *blob);
    if (blob) {
        pl_object_init(&blob->object, blob_release);
        blob->size = size;
        blob->data = pl_alloc(size ? size : 1);
        if (blob->data)
            return blob;
        pl_object_unref(blob);
    }
    pl_no_memory(err);
    return NULL;
}

static void transfer_free(transfer_t *transfer)
{
    pl_object_unref(transfer->blob);
    pl_free(transfer);
}

static void transfer_append(transfer_t **list, transfer_t *transfer)
{
    while (*list)
        list = &(*list)->next;
    *list = transfer;
}

/* ---- sending ---- */

static int post_once(pl_bulk_t *bulk, int number, bulk_head_t head, pl_bytes_t bytes)
{
    unsigned char *message = pl_resize(NULL, sizeof head + bytes.size);
    if (!message)
        return PL_ENOMEM;
    memcpy(message, &head, sizeof head);
    if (bytes.size)
        memcpy(message + sizeof head, bytes.data, bytes.size);
    int code = pl_link_send(bulk->link, number,
                            (pl_bytes_t){message, sizeof head + bytes.size}, NULL);
    pl_free(message);
    return code;
}

/* Nothing may come that would have it tried again, and somebody waits for it: so a lack
 * of memory that passes does not stop it. */
static int post(pl_bulk_t *bulk, int number, bulk_head_t head, pl_bytes_t bytes)
{
    int code = PL_ENOMEM;
    for (int tries = 0; tries < TRIES && code == PL_ENOMEM; tries++)
        code = post_once(bulk, number, head, bytes);
    return code;
}

static int transfer_begin(pl_bulk_t *bulk, int number, transfer_t *t)
{
    int code = post(bulk, number, (bulk_head_t){BULK_BEGIN, t->number, t->blob->size},
                    (pl_bytes_t){0});
    t->has_begun = code == PL_OK;
    return code;
}

static int transfer_piece(pl_bulk_t *bulk, int number, transfer_t *t)
{
    size_t left = t->blob->size - t->done;
    pl_bytes_t piece = {t->blob->data + t->done, left < PIECE ? left : PIECE};
    int code = post(bulk, number, (bulk_head_t){BULK_PIECE, t->number, t->done}, piece);
    if (code != PL_OK)
        return code;
    t->sum = pl_crc32c(t->sum, piece.data, piece.size);
    t->done += piece.size;
    return PL_OK;
}

static int transfer_end(pl_bulk_t *bulk, int number, transfer_t *t)
{
    int code = post(bulk, number, (bulk_head_t){BULK_END, t->number, t->sum},
                    (pl_bytes_t){0});
    t->has_ended = code == PL_OK;
    return code;
}

static bool answers_post(pl_bulk_t *bulk, int number, bulk_peer_t *peer)
{
    for (answer_t *a; (a = peer->answers);) {
        if (post(bulk, number, a->head, (pl_bytes_t){a->why, strlen(a->why)}) != PL_OK)
            return false;
        peer->answers = a->next;
        pl_free(a);
    }
    return true;
}

/* As much as may be under way, which WRITABLE and CLEAR go on with. */
static void pump(pl_bulk_t *bulk, int number, bulk_peer_t *peer)
{
    if (!answers_post(bulk, number, peer))
        return;
    for (transfer_t *t = peer->out; t; t = t->next) {
        if (!t->has_begun && transfer_begin(bulk, number, t) != PL_OK)
            return;
        while (t->done < t->blob->size)
            if (transfer_piece(bulk, number, t) != PL_OK)
                return;
        if (!t->has_ended && transfer_end(bulk, number, t) != PL_OK)
            return;
    }
}

static bulk_peer_t *peer_of(const pl_bulk_t *bulk, int number)
{
    int at = bulk->is_host ? number : number == PL_LINK_HOST ? 0 : -1;
    return at >= 0 && at < bulk->peer_count ? &bulk->peers[at] : NULL;
}

uint64_t pl_bulk_send(pl_bulk_t *bulk, int number, pl_blob_t *blob, pl_error_t *err)
{
    bulk_peer_t *peer = peer_of(bulk, number);
    if (!peer || pl_link_state(bulk->link, number) >= PL_LINK_HAS_LEFT) {
        pl_fail(err, PL_EPEER, "rank %d is not connected", number);
        return 0;
    }
    transfer_t *t = pl_alloc(sizeof *t);
    if (!t) {
        pl_no_memory(err);
        return 0;
    }
    t->number = ++peer->last_out;
    t->blob = pl_object_ref(blob);
    transfer_append(&peer->out, t);
    pump(bulk, number, peer);
    return peer->last_out;
}

/* Somebody waits for it, as above. */
static void peer_answer(pl_bulk_t *bulk, int number, bulk_peer_t *peer, uint64_t transfer,
                        const pl_error_t *error)
{
    answer_t *a = NULL, **at = &peer->answers;
    for (int tries = 0; tries < TRIES && !a; tries++)
        a = pl_alloc(sizeof *a);
    if (!a)
        return;
    a->head = (bulk_head_t){error ? BULK_TORN : BULK_WHOLE, transfer,
                            error ? (uint64_t)-error->code : 0};
    snprintf(a->why, sizeof a->why, "%s", error ? error->text : "");
    while (*at)
        at = &(*at)->next;
    *at = a;
    pump(bulk, number, peer);
}

static void out_end(pl_bulk_t *bulk, int number, bulk_peer_t *peer,
                    const pl_error_t *error)
{
    transfer_t *t = peer->out;
    uint64_t transfer = t->number;
    peer->out = t->next;
    transfer_free(t);
    if (bulk->spec.on_sent)
        bulk->spec.on_sent(bulk->spec.user, number, transfer, error);
}

/* ---- what comes ---- */

static void in_lost(pl_bulk_t *bulk, int number, bulk_peer_t *peer,
                    const pl_error_t *error)
{
    transfer_t *t = peer->in;
    uint64_t transfer = peer->last_in;
    if (t) {
        peer->held -= t->blob->size;
        transfer_free(t);
    }
    peer->in = NULL;
    if (bulk->spec.on_lost)
        bulk->spec.on_lost(bulk->spec.user, number, transfer, error);
}

/* What follows of it is not looked at any more. */
static void in_torn(pl_bulk_t *bulk, int number, bulk_peer_t *peer,
                    const pl_error_t *error)
{
    peer_answer(bulk, number, peer, peer->last_in, error);
    in_lost(bulk, number, peer, error);
}

static transfer_t *in_new(const pl_bulk_t *bulk, const bulk_peer_t *peer,
                          const bulk_head_t *head, pl_error_t *err)
{
    size_t capacity = bulk->spec.max - peer->held;
    if (head->number > capacity) {
        pl_fail(err, PL_EBUSY,
                "transfer %" PRIu64 " has %" PRIu64 " bytes; the limit is %zu",
                head->transfer, head->number, capacity);
        return NULL;
    }
    transfer_t *t = pl_alloc(sizeof *t);
    pl_blob_t *blob = t ? pl_blob_new((size_t)head->number, NULL) : NULL;
    if (!blob) {
        pl_free(t);
        pl_no_memory(err);
        return NULL;
    }
    *t = (transfer_t){.number = head->transfer, .blob = blob};
    return t;
}

static void in_begin(pl_bulk_t *bulk, int number, bulk_peer_t *peer,
                     const bulk_head_t *head)
{
    pl_error_t err;
    if (peer->in) {
        pl_fail(&err, PL_EPROTOCOL, "transfer %" PRIu64 " has no end", peer->last_in);
        in_torn(bulk, number, peer, &err);
    }
    if (head->transfer <= peer->last_in)
        return;
    peer->last_in = head->transfer;
    peer->in = in_new(bulk, peer, head, &err);
    if (peer->in)
        peer->held += peer->in->blob->size;
    else
        in_torn(bulk, number, peer, &err);
}

static void in_piece(pl_bulk_t *bulk, int number, bulk_peer_t *peer,
                     const bulk_head_t *head, pl_bytes_t bytes)
{
    pl_error_t err;
    transfer_t *t = peer->in;
    if (!t || t->number != head->transfer)
        return;
    if (head->number != t->done || bytes.size > t->blob->size - t->done) {
        pl_fail(&err, PL_EPROTOCOL,
                "transfer %" PRIu64 ": a piece of %zu bytes at %" PRIu64
                ", expected at %zu of %zu",
                t->number, bytes.size, head->number, t->done, t->blob->size);
        in_torn(bulk, number, peer, &err);
        return;
    }
    memcpy(t->blob->data + t->done, bytes.data, bytes.size);
    t->sum = pl_crc32c(t->sum, bytes.data, bytes.size);
    t->done += bytes.size;
}

static void in_end(pl_bulk_t *bulk, int number, bulk_peer_t *peer,
                   const bulk_head_t *head)
{
    pl_error_t err;
    transfer_t *t = peer->in;
    if (!t || t->number != head->transfer)
        return;
    if (t->done != t->blob->size || t->sum != head->number) {
        pl_fail(&err, PL_EPROTOCOL,
                "transfer %" PRIu64 " is damaged: %zu of %zu bytes, checksum %08" PRIx32
                ", not %08" PRIx64,
                t->number, t->done, t->blob->size, t->sum, head->number);
        in_torn(bulk, number, peer, &err);
        return;
    }
    peer->in = NULL;
    transfer_append(&peer->come, t);
    peer_answer(bulk, number, peer, t->number, NULL);
    if (bulk->spec.on_come)
        bulk->spec.on_come(bulk->spec.user, number, head->transfer);
}

/* Answers come in the order of what they are about. */
static void answered(pl_bulk_t *bulk, int number, bulk_peer_t *peer,
                     const bulk_head_t *head, pl_bytes_t bytes)
{
    pl_error_t err;
    if (!peer->out || peer->out->number != head->transfer)
        return;
    pl_fail(&err, head->number == (uint64_t)-PL_ENOMEM ? PL_ENOMEM : PL_EPEER, "%.*s",
            (int)(bytes.size < 400 ? bytes.size : 400), (const char *)bytes.data);
    if (head->kind == BULK_TORN)
        out_end(bulk, number, peer, &err);
    else if (peer->out->has_ended)
        out_end(bulk, number, peer, NULL);
    pump(bulk, number, peer);
}

static void message_came(void *user, int number, pl_frame_t *message)
{
    pl_bulk_t *bulk = user;
    bulk_peer_t *peer = peer_of(bulk, number);
    pl_bytes_t bytes = pl_frame_bytes(message);
    bulk_head_t head;
    if (bytes.size < sizeof head)
        return;
    memcpy(&head, bytes.data, sizeof head);
    bytes = (pl_bytes_t){(const char *)bytes.data + sizeof head,
                         bytes.size - sizeof head};
    switch (head.kind) {
    case BULK_BEGIN: in_begin(bulk, number, peer, &head); return;
    case BULK_PIECE: in_piece(bulk, number, peer, &head, bytes); return;
    case BULK_END: in_end(bulk, number, peer, &head); return;
    case BULK_WHOLE:
    case BULK_TORN: answered(bulk, number, peer, &head, bytes);
    }
}

/* ---- ends ---- */

static void peer_lost(pl_bulk_t *bulk, int number, const pl_error_t *error)
{
    bulk_peer_t *peer = peer_of(bulk, number);
    if (peer->in)
        in_lost(bulk, number, peer, error);
    while (peer->out)
        out_end(bulk, number, peer, error);
}

static void event_came(void *user, int number, pl_link_event_t event, const char *text)
{
    pl_bulk_t *bulk = user;
    bulk_peer_t *peer = peer_of(bulk, number);
    pl_error_t err;
    pl_fail(&err, PL_EPEER, "%s", text);
    if (peer && (event == PL_LINK_GONE || event == PL_LINK_LEFT))
        peer_lost(bulk, number, &err);
    if (peer
        && (event == PL_LINK_JOINED || event == PL_LINK_WRITABLE
            || event == PL_LINK_CLEAR))
        pump(bulk, number, peer);
    if (bulk->spec.on_event)
        bulk->spec.on_event(bulk->spec.user, number, event, text);
}

pl_blob_t *pl_bulk_take(pl_bulk_t *bulk, int number, uint64_t transfer)
{
    bulk_peer_t *peer = peer_of(bulk, number);
    transfer_t **at = peer ? &peer->come : NULL;
    while (at && *at && (*at)->number != transfer)
        at = &(*at)->next;
    if (!at || !*at)
        return NULL;
    transfer_t *t = *at;
    pl_blob_t *blob = pl_object_ref(t->blob);
    *at = t->next;
    peer->held -= blob->size;
    transfer_free(t);
    return blob;
}

static void peers_release(bulk_peer_t *peers, int count)
{
    for (int k = 0; peers && k < count; k++) {
        bulk_peer_t *peer = &peers[k];
        if (peer->in)
            transfer_free(peer->in);
        for (answer_t *a; (a = peer->answers);) {
            peer->answers = a->next;
            pl_free(a);
        }
        for (transfer_t *t; (t = peer->out);) {
            peer->out = t->next;
            transfer_free(t);
        }
        for (transfer_t *t; (t = peer->come);) {
            peer->come = t->next;
            transfer_free(t);
        }
    }
    pl_free(peers);
}

int pl_bulk_renew(pl_bulk_t *bulk, uint32_t incarnation, int world_size, pl_error_t *err)
{
    pl_error_t over;
    bulk_peer_t *peers = world_size > 0
                             ? pl_alloc_array((size_t)world_size, sizeof *peers)
                             : NULL;
    if (world_size > 0 && !peers)
        return pl_no_memory(err);
    int code = pl_link_renew(bulk->link, incarnation, world_size, err);
    if (code != PL_OK) {
        pl_free(peers);
        return code;
    }
    pl_fail(&over, PL_EPEER, "its incarnation has ended");
    for (int k = 0; k < bulk->peer_count; k++)
        peer_lost(bulk, k, &over);
    peers_release(bulk->peers, bulk->peer_count);
    bulk->peers = peers;
    bulk->peer_count = world_size;
    return PL_OK;
}

/* ---- opening ---- */

static pl_bulk_t *bulk_new(const pl_bulk_spec_t *spec, bool is_host, pl_error_t *err)
{
    int peers = is_host && spec->link.world_size > 0 ? spec->link.world_size : 1;
    pl_bulk_t *bulk = pl_alloc(sizeof *bulk);
    if (bulk) {
        bulk->spec = *spec;
        bulk->is_host = is_host;
        bulk->spec.max = spec->max ? spec->max : MAX;
        bulk->spec.link.message_max = PIECE + sizeof(bulk_head_t);
        bulk->spec.link.unread_max = UNDER_WAY;
        bulk->spec.link.on_message = message_came;
        bulk->spec.link.on_event = event_came;
        bulk->spec.link.user = bulk;
        bulk->peer_count = peers;
        bulk->peers = pl_alloc_array((size_t)peers, sizeof *bulk->peers);
        if (bulk->peers)
            return bulk;
        pl_free(bulk);
    }
    pl_no_memory(err);
    return NULL;
}

pl_bulk_t *pl_bulk_listen(const pl_bulk_spec_t *spec, pl_sockets_t *loop, pl_error_t *err)
{
    pl_bulk_t *bulk = bulk_new(spec, true, err);
    if (!bulk)
        return NULL;
    bulk->link = pl_link_listen(&bulk->spec.link, loop, err);
    if (bulk->link)
        return bulk;
    pl_bulk_free(bulk);
    return NULL;
}

pl_bulk_t *pl_bulk_connect(const pl_bulk_spec_t *spec, pl_sockets_t *loop,
                           pl_error_t *err)
{
    pl_bulk_t *bulk = bulk_new(spec, false, err);
    if (!bulk)
        return NULL;
    bulk->link = pl_link_connect(&bulk->spec.link, loop, err);
    if (bulk->link)
        return bulk;
    pl_bulk_free(bulk);
    return NULL;
}

void pl_bulk_free(pl_bulk_t *bulk)
{
    if (!bulk)
        return;
    pl_link_free(bulk->link);
    peers_release(bulk->peers, bulk->peer_count);
    pl_free(bulk);
}

pl_link_t *pl_bulk_link(pl_bulk_t *bulk)
{
    return bulk->link;
}
