/* bulk.c - weights and other bulk between processes, on links of their own
 *
 * A transfer is its size, then pieces, then the checksum of all bytes.  The link carries
 * these messages once and in order, and limits how many bytes are in flight.  This file
 * limits the receiver's memory and checks what a sender claims. */
#include "transport/bulk.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "transport/socket.h"

enum { PIECE = 512 << 10, IN_FLIGHT = 8 << 20, TRIES = 100 };
static const size_t MAX = (size_t)4 << 30;

typedef enum bulk_kind {
    BULK_BEGIN,                                         /* number: bytes of all */
    BULK_PIECE,                                         /* number: offset; bytes follow */
    BULK_END,                                           /* number: CRC-32C of all */
    BULK_WHOLE,                                         /* answer: it is complete */
    BULK_TORN,                                          /* answer: it is not; number: the
                                                           code without its sign; text:
                                                           the reason */
} bulk_kind_t;

typedef struct bulk_head {
    uint64_t kind, transfer, number;
} bulk_head_t;

/* A transfer: an outgoing one until it has arrived, an incoming one until it is taken. */
typedef struct transfer {
    struct transfer *next;
    uint64_t number;
    pl_blob_t *blob;                                        /* counted */
    size_t done;                                            /* bytes sent, or received */
    uint32_t sum;                                           /* CRC-32C of those */
    bool has_begun, has_ended;                              /* BEGIN, END are sent */
} transfer_t;

/* An answer to the sender of a transfer, until the link accepts it. */
typedef struct bulk_answer {
    struct bulk_answer *next;
    bulk_head_t head;
    char why[PL_ERROR_TEXT];
} bulk_answer_t;

typedef struct bulk_peer {
    bulk_answer_t *answers;                            /* oldest first, as out and come */
    transfer_t *out, *come;
    transfer_t *in;                                         /* arriving now  [none] */
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

/* A lack of memory that passes does not stop a message: the other side waits for it, and
 * no later event may cause another try. */
static int post(pl_bulk_t *bulk, int number, bulk_head_t head, pl_bytes_t bytes)
{
    const size_t size = sizeof head + bytes.size;
    int code = PL_ENOMEM;
    for (int tries = 0; tries < TRIES && code == PL_ENOMEM; tries++) {
        unsigned char *message = pl_resize(NULL, size);
        if (!message)
            continue;
        memcpy(message, &head, sizeof head);
        if (bytes.size)
            memcpy(message + sizeof head, bytes.data, bytes.size);
        code = pl_link_send(bulk->link, number, (pl_bytes_t){message, size}, NULL);
        pl_free(message);
    }
    return code;
}

/* Sends until the link refuses more; WRITABLE and CLEAR continue. */
static void pump(pl_bulk_t *bulk, int number, bulk_peer_t *peer)
{
    for (bulk_answer_t *a; (a = peer->answers);) {
        if (post(bulk, number, a->head, (pl_bytes_t){a->why, strlen(a->why)}) != PL_OK)
            return;
        peer->answers = a->next;
        pl_free(a);
    }
    for (transfer_t *t = peer->out; t; t = t->next) {
        const bulk_head_t begin = {BULK_BEGIN, t->number, t->blob->size};
        if (!t->has_begun && post(bulk, number, begin, (pl_bytes_t){0}) != PL_OK)
            return;
        t->has_begun = true;
        while (t->done < t->blob->size) {
            const size_t left = t->blob->size - t->done;
            const bulk_head_t head = {BULK_PIECE, t->number, t->done};
            const pl_bytes_t piece = {t->blob->data + t->done,
                                      left < PIECE ? left : PIECE};
            if (post(bulk, number, head, piece) != PL_OK)
                return;
            t->sum = pl_crc32c(t->sum, piece.data, piece.size);
            t->done += piece.size;
        }
        const bulk_head_t end = {BULK_END, t->number, t->sum};
        if (!t->has_ended && post(bulk, number, end, (pl_bytes_t){0}) != PL_OK)
            return;
        t->has_ended = true;
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

/* A lack of memory that passes does not stop it, as in post(). */
static void peer_answer(pl_bulk_t *bulk, int number, bulk_peer_t *peer, uint64_t transfer,
                        const pl_error_t *error)
{
    bulk_answer_t *a = NULL, **at = &peer->answers;
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

/* ---- receiving ---- */

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

/* The rest of the transfer is ignored. */
static void in_torn(pl_bulk_t *bulk, int number, bulk_peer_t *peer,
                    const pl_error_t *error)
{
    peer_answer(bulk, number, peer, peer->last_in, error);
    in_lost(bulk, number, peer, error);
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
    const size_t capacity = bulk->spec.max - peer->held;
    if (head->number > capacity) {
        pl_fail(&err, PL_EBUSY,
                "transfer %" PRIu64 " has %" PRIu64 " bytes; the limit is %zu",
                head->transfer, head->number, capacity);
        in_torn(bulk, number, peer, &err);
        return;
    }
    transfer_t *t = pl_alloc(sizeof *t);
    pl_blob_t *blob = t ? pl_blob_new((size_t)head->number, NULL) : NULL;
    if (!blob) {
        pl_free(t);
        pl_no_memory(&err);
        in_torn(bulk, number, peer, &err);
        return;
    }
    *t = (transfer_t){.number = head->transfer, .blob = blob};
    peer->in = t;
    peer->held += blob->size;
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

/* Answers arrive in the order of the transfers. */
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
        for (bulk_answer_t *a; (a = peer->answers);) {
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

pl_bulk_t *pl_bulk_open(const pl_bulk_spec_t *spec, bool is_host, pl_sockets_t *loop,
                        pl_error_t *err)
{
    int peers = is_host && spec->link.world_size > 0 ? spec->link.world_size : 1;
    pl_bulk_t *bulk = pl_alloc(sizeof *bulk);
    if (!bulk) {
        pl_no_memory(err);
        return NULL;
    }
    bulk->spec = *spec;
    bulk->is_host = is_host;
    bulk->spec.max = spec->max ? spec->max : MAX;
    bulk->spec.link.message_max = PIECE + sizeof(bulk_head_t);
    bulk->spec.link.unread_max = IN_FLIGHT;
    bulk->spec.link.on_message = message_came;
    bulk->spec.link.on_event = event_came;
    bulk->spec.link.user = bulk;
    bulk->peer_count = peers;
    bulk->peers = pl_alloc_array((size_t)peers, sizeof *bulk->peers);
    if (!bulk->peers)
        pl_no_memory(err);
    else if (is_host)
        bulk->link = pl_link_listen(&bulk->spec.link, loop, err);
    else
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
