/* wire.h - reads the bytes of a frame without trusting them, for the codec and the stream
 *
 * Numbers and addresses are encoded as they are in memory; texts and bytes follow their
 * length.  A text ends with a zero.  Bytes start at a multiple of 8 from the start of the
 * frame, so floats among them can be read in place. */
#ifndef PL_RUNTIME_WIRE_H
#define PL_RUNTIME_WIRE_H

#include <string.h>

#include "runtime/message.h"

typedef struct pl_reader {
    const unsigned char *start, *at, *end;
    bool is_foreign;                          /* of another process: peers are malformed,
                                                 and an object is the number of its
                                                 transfer */
    uint64_t *transfer;                       /* receives that number  [malformed, too] */
    bool is_record;                           /* kept bytes: objects are NULL */
} pl_reader_t;

static inline pl_reader_t pl_reader(pl_bytes_t frame)
{
    const unsigned char *start = frame.data;
    return (pl_reader_t){.start = start, .at = start, .end = start + frame.size};
}

/* The number of padding bytes before bytes that would start at `offset`. */
static inline size_t pl_padding(size_t offset)
{
    return -offset % 8;
}

/* All of these return false, and take nothing, when the frame ends too soon. */
static inline bool pl_read_skip(pl_reader_t *r, size_t size,
                                const unsigned char **skipped)
{
    if (size > (size_t)(r->end - r->at))
        return false;
    *skipped = r->at;
    r->at += size;
    return true;
}

static inline bool pl_read(pl_reader_t *r, void *data, size_t size)
{
    const unsigned char *from;
    if (!pl_read_skip(r, size, &from))
        return false;
    memcpy(data, from, size);
    return true;
}

static inline bool pl_read_length(pl_reader_t *r, size_t *length)
{
    uint32_t l;
    if (!pl_read(r, &l, sizeof l))
        return false;
    *length = l;
    return true;
}

static inline bool pl_read_data(pl_reader_t *r, pl_bytes_t *bytes)
{
    const unsigned char *at;
    size_t length;
    if (!pl_read_length(r, &length)
        || !pl_read_skip(r, pl_padding((size_t)(r->at - r->start)), &at)
        || !pl_read_skip(r, length, &at))
        return false;
    *bytes = (pl_bytes_t){at, length};
    return true;
}

/* A message of a field of type MESSAGES: its head, and a reader of its fields. */
static inline bool pl_read_message(pl_reader_t *r, pl_message_head_t *head,
                                   pl_reader_t *fields)
{
    const unsigned char *at;
    if (!pl_read(r, head, sizeof *head) || !pl_message_info(head->message)
        || (head->kind != PL_KIND_CALL && head->kind != PL_KIND_REPLY)
        || !pl_read_skip(r, head->size, &at))
        return false;
    *fields = pl_reader((pl_bytes_t){at, head->size});
    fields->is_foreign = true;
    return pl_read_skip(r, pl_padding(head->size), &at);
}

static inline bool pl_read_text(pl_reader_t *r, const char **text)
{
    const unsigned char *at;
    size_t length;
    if (!pl_read_length(r, &length) || !length || !pl_read_skip(r, length, &at)
        || memchr(at, 0, length) != at + length - 1)
        return false;
    *text = (const char *)at;
    return true;
}

static inline bool pl_read_peers(pl_reader_t *r, pl_peers_t *peers)
{
    if (!pl_read(r, peers, sizeof *peers) || peers->count > PL_PEERS_MAX
        || (peers->count && r->is_foreign))
        return false;
    for (uint32_t k = 0; k < peers->count; k++)
        if (!memchr(peers->peer[k].role, 0, sizeof peers->peer[k].role))
            return false;
    return true;
}

#endif
