/* outbox.c - messages to the other end of a link, in order, also while it takes none */
#include "actors/launchers/outbox.h"

#include "base/alloc.h"
#include "base/error.h"

typedef struct pl_kept {
    struct pl_kept *next;
    pl_frame_t frame;
} kept_t;

static int frame_send(pl_outbox_t *box, const pl_frame_t *frame, pl_error_t *err)
{
    if (pl_link_state(box->link, box->peer) == PL_LINK_AWAITED)
        return pl_fail(err, PL_EBUSY, "the peer has not connected yet");
    return pl_link_send(box->link, box->peer, pl_frame_bytes(frame), err);
}

/* Consumes the frame. */
static int frame_keep(pl_outbox_t *box, pl_frame_t *frame, pl_error_t *err)
{
    kept_t *kept = pl_alloc(sizeof *kept), **at = &box->first;
    if (!kept) {
        pl_frame_release(frame);
        return pl_no_memory(err);
    }
    pl_frame_move(&kept->frame, frame);
    while (*at)
        at = &(*at)->next;
    *at = kept;
    return PL_OK;
}

int pl_outbox_post(pl_outbox_t *box, pl_kind_t kind, pl_message_t message, uint64_t call,
                   const void *fields, pl_error_t *err)
{
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .kind = (uint8_t)kind,
                             .message = (uint16_t)message,
                             .incarnation = box->incarnation,
                             .run = box->run,
                             .call = call,
                             .remaining = -1};
    pl_frame_t frame;
    int code = pl_frame_make(&frame, &e, fields, err);
    if (code != PL_OK)
        return code;
    code = box->first ? PL_EBUSY : frame_send(box, &frame, err);
    const bool may_lack = kind == PL_KIND_PROGRESS
                          && pl_link_state(box->link, box->peer) != PL_LINK_AWAITED;
    if (code == PL_EBUSY && !may_lack)
        return frame_keep(box, &frame, err);
    pl_frame_release(&frame);
    return code == PL_EBUSY ? PL_OK : code;
}

static void first_drop(pl_outbox_t *box)
{
    kept_t *kept = box->first;
    box->first = kept->next;
    pl_frame_release(&kept->frame);
    pl_free(kept);
}

void pl_outbox_flush(pl_outbox_t *box)
{
    while (box->first && frame_send(box, &box->first->frame, NULL) == PL_OK)
        first_drop(box);
}

void pl_outbox_release(pl_outbox_t *box)
{
    while (box->first)
        first_drop(box);
}
