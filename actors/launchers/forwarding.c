/* forwarding.c - calls and answers between a launcher and the process of a rank, or
 * between two nodes of paceline launch
 *
 * One table has the messages that travel, the direction of each kind, and the object of a
 * message.  Every other message of another process is refused. */
#include "actors/launchers/forwarding.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/error.h"

typedef enum object_kind { NO_OBJECT, A_JOB, AN_OUTCOME } object_kind_t;

enum {
    CALL = 1 << PL_KIND_CALL,
    PROGRESS = 1 << PL_KIND_PROGRESS,
    CANCEL = 1 << PL_KIND_CANCEL,
    REPLY = 1 << PL_KIND_REPLY,
    END = REPLY | 1 << PL_KIND_ERROR,
};

/* A launcher that did not start the ranks answers the run that their processes request:
 * progress, then the end of the whole run. */
static const struct {
    pl_message_t message;
    int to_rank, to_launcher;                  /* kinds; of nodes: to others, to node 0 */
    object_kind_t in_call, in_reply;
    bool is_of_node;
} travels[] = {
    {PL_MESSAGE_run, CALL | PROGRESS | END, PROGRESS | END, A_JOB, AN_OUTCOME},
    {PL_MESSAGE_join, CALL, END, NO_OBJECT, NO_OBJECT},
    {PL_MESSAGE_control, CALL, END, NO_OBJECT, NO_OBJECT},
    {PL_MESSAGE_stop, CALL, END, NO_OBJECT, NO_OBJECT},
    {PL_MESSAGE_start, CANCEL, END, NO_OBJECT, NO_OBJECT},  /* of the worker itself */
    {PL_MESSAGE_bring_stream, CALL, 0, NO_OBJECT, NO_OBJECT},
    {PL_MESSAGE_follow_log, 0, PROGRESS, NO_OBJECT, NO_OBJECT},
    {PL_MESSAGE_begin_ranks, CALL, PROGRESS | REPLY, .is_of_node = true},
    {PL_MESSAGE_report_finished_rank, CALL, CALL, .is_of_node = true},
    {PL_MESSAGE_signal_ranks, CALL, 0, .is_of_node = true},
    {PL_MESSAGE_end_node, CALL, 0, .is_of_node = true},
};
enum { TRAVELS = sizeof travels / sizeof *travels };

static object_kind_t object_of(const pl_envelope_t *e)
{
    for (int k = 0; k < TRAVELS; k++)
        if (travels[k].message == e->message)
            return e->kind == PL_KIND_CALL    ? travels[k].in_call
                   : e->kind == PL_KIND_REPLY ? travels[k].in_reply
                                              : NO_OBJECT;
    return NO_OBJECT;
}

/* ---- Posting ---- */

typedef struct pl_kept_frame {
    struct pl_kept_frame *next;
    uint64_t transfer;                               /* of its object  [0: has arrived] */
    pl_frame_t frame;
} kept_frame_t;

static int frame_send(pl_outbox_t *box, const pl_frame_t *frame, pl_error_t *err)
{
    if (pl_link_state(box->link, box->peer) == PL_LINK_AWAITED)
        return pl_fail(err, PL_EBUSY, "the peer has not connected yet");
    return pl_link_send(box->link, box->peer, pl_frame_bytes(frame), err);
}

int pl_outbox_post_packed(pl_outbox_t *box, pl_kind_t kind, pl_message_t message,
                          uint64_t call, const void *fields, pl_blob_t *object,
                          pl_error_t *err)
{
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .kind = (uint8_t)kind,
                             .message = (uint16_t)message,
                             .incarnation = box->incarnation,
                             .run = box->run,
                             .call = call,
                             .remaining = -1};
    const bool overtakes = !call && kind != PL_KIND_REPLY && kind != PL_KIND_ERROR;
    kept_frame_t *kept, **at = &box->first;
    pl_frame_t frame;
    uint64_t transfer = 0;
    if (object && !(transfer = pl_bulk_send(box->bulk, box->peer, object, err)))
        return err->code;
    int code = pl_frame_make_foreign(&frame, &e, fields, transfer, err);
    if (code != PL_OK)
        return code;
    code = transfer || (box->first && !overtakes) ? PL_EBUSY
                                                  : frame_send(box, &frame, err);
    const bool may_lack = kind == PL_KIND_PROGRESS
                          && pl_link_state(box->link, box->peer) != PL_LINK_AWAITED;
    if (code != PL_EBUSY || may_lack) {
        pl_frame_release(&frame);
        return code == PL_EBUSY ? PL_OK : code;
    }
    kept = pl_alloc(sizeof *kept);
    if (!kept) {
        pl_frame_release(&frame);
        return pl_no_memory(err);
    }
    kept->transfer = transfer;
    pl_frame_move(&kept->frame, &frame);
    while (*at)
        at = &(*at)->next;
    *at = kept;
    return PL_OK;
}

int pl_outbox_post(pl_outbox_t *box, pl_kind_t kind, pl_message_t message, uint64_t call,
                   const void *fields, pl_error_t *err)
{
    const pl_envelope_t e = {.kind = (uint8_t)kind, .message = (uint16_t)message};
    const object_kind_t object = object_of(&e);
    pl_error_t own = {0};
    if (object == NO_OBJECT)
        return pl_outbox_post_packed(box, kind, message, call, fields, NULL, err);
    const void *unpacked = *pl_message_object(&e, (void *)fields);
    pl_blob_t *blob = object == A_JOB ? pl_job_pack(unpacked, &own)
                                      : pl_outcome_pack(unpacked, &own);
    if (blob)
        pl_outbox_post_packed(box, kind, message, call, fields, blob, &own);
    pl_object_unref(blob);
    return own.code == PL_OK ? PL_OK : pl_fail(err, own.code, "%s", own.text);
}

/* A reply that lacks its object is an error.  Without its object a call is dropped: its
 * rank is gone, which the links report. */
void pl_outbox_sent(pl_outbox_t *box, uint64_t transfer, const pl_error_t *error)
{
    kept_frame_t **at = &box->first, *kept;
    while (*at && (*at)->transfer != transfer)
        at = &(*at)->next;
    kept = *at;
    if (!kept)
        return;
    kept->transfer = 0;
    if (error) {
        pl_envelope_t e = pl_frame_envelope(&kept->frame);
        pl_frame_release(&kept->frame);
        const bool is_reply = e.kind == PL_KIND_REPLY;
        e.kind = PL_KIND_ERROR;
        if (!is_reply
            || pl_frame_make_foreign(&kept->frame, &e, error, 0, NULL) != PL_OK) {
            *at = kept->next;
            pl_free(kept);
        }
    }
    pl_outbox_flush(box);
}

static void first_drop(pl_outbox_t *box)
{
    kept_frame_t *kept = box->first;
    box->first = kept->next;
    pl_frame_release(&kept->frame);
    pl_free(kept);
}

void pl_outbox_flush(pl_outbox_t *box)
{
    while (box->first && !box->first->transfer
           && frame_send(box, &box->first->frame, NULL) == PL_OK)
        first_drop(box);
}

void pl_outbox_release(pl_outbox_t *box)
{
    while (box->first)
        first_drop(box);
}

/* ---- Receiving ---- */

int pl_incoming_read(pl_incoming_t *m, const pl_outbox_t *box, pl_bytes_t frame,
                     pl_error_t *err)
{
    uint64_t transfer;
    int kinds = 0;
    m->object = NULL;
    m->error = (pl_error_t){0};
    int code = pl_envelope_read(frame, &m->envelope, err);
    if (code == PL_OK)
        code = pl_frame_decode_foreign(frame, &m->body, &m->error, &transfer, err);
    if (code != PL_OK)
        return code;
    for (int k = 0; k < TRAVELS; k++)
        if (travels[k].message == m->envelope.message
            && travels[k].is_of_node == box->is_of_node)
            kinds = box->peer == PL_LINK_HOST ? travels[k].to_rank
                                              : travels[k].to_launcher;
    if (!(kinds >> m->envelope.kind & 1))
        return pl_fail(err, PL_EPROTOCOL, "a %s does not accept %s of %s",
                       box->peer == PL_LINK_HOST ? "rank" : "launcher",
                       pl_message_kinds[m->envelope.kind],
                       pl_message_info(m->envelope.message)->name);
    const object_kind_t kind = object_of(&m->envelope);
    if (kind == NO_OBJECT)
        return PL_OK;
    pl_blob_t *blob = transfer && box->bulk ? pl_bulk_take(box->bulk, box->peer, transfer)
                                            : NULL;
    if (!blob)
        pl_fail(&m->error, PL_EPROTOCOL, "%s came without its %s (transfer %" PRIu64 ")",
                pl_message_info(m->envelope.message)->name,
                kind == A_JOB ? "job" : "outcome", transfer);
    else if (kind == A_JOB)
        m->object = (pl_object_t *)pl_job_unpack(blob, &m->error);
    else
        m->object = (pl_object_t *)pl_outcome_unpack(blob, &m->error);
    pl_object_unref(blob);
    *pl_message_object(&m->envelope, &m->body) = m->object;
    return PL_OK;
}

void pl_incoming_release(pl_incoming_t *m)
{
    pl_object_unref(m->object);
}
