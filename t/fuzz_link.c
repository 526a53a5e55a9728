/* fuzz_link.c - any frames, in any order, at both ends of a link
 *
 * An input is a sequence of frames: a byte of flags, one for the connection, one for the
 * length, and so many bytes.  Most frames are given the magic, version, size and checksum
 * that they need to be looked at further; otherwise hardly one would be. */
#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "transport/link_parts.h"

enum { AS_IT_IS = 1, TO_RANK = 2, ORDER = 4, RANKS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int received;

static void on_message(void *user, int peer, pl_frame_t *message)
{
    (void)user;
    if (peer < PL_LINK_HOST || peer >= RANKS
        || (uintptr_t)pl_frame_bytes(message).data % 8 != 0)
        abort();
    received++;
}

static void on_event(void *user, int peer, pl_link_event_t event, const char *text)
{
    (void)user;
    if ((peer < PL_LINK_HOST || peer >= RANKS) && event != PL_LINK_REFUSED)
        abort();
    received += strlen(text) > 0;
}

static pl_link_t *end_open(bool is_host)
{
    static pl_sockets_t loop;
    if (!loop.base)
        loop.base = event_base_new();
    pl_link_spec_t spec = {.endpoint = "tcp://127.0.0.1:1",
                           .run = 7,
                           .incarnation = 2,
                           .world_size = RANKS,
                           .on_message = on_message,
                           .on_event = on_event};
    pl_link_t *link = link_make(&spec, &loop, is_host, NULL);
    if (link)
        link->sender = 5;
    return link;
}

static void frame_mend(unsigned char *bytes, size_t size)
{
    link_head_t head;
    if (size < sizeof head)
        return;
    memcpy(&head, bytes, sizeof head);
    memcpy(head.magic, "PLLINK", sizeof head.magic);
    head.version = PL_LINK_VERSION;
    head.size = (uint32_t)(size - sizeof head);
    head.sum = pl_crc32c(pl_crc32c(0, &head, offsetof(link_head_t, sum)),
                         bytes + sizeof head, head.size);
    memcpy(bytes, &head, sizeof head);
}

/* What the program does in between. */
static void order(pl_link_t *host, pl_link_t *rank, uint8_t what)
{
    switch (what % 5) {
    case 0: pl_link_send(host, what / 5 % 4, (pl_bytes_t){"abc", 3}, NULL); return;
    case 1: pl_link_dismiss(host, what / 5 % 4 - 1, "go"); return;
    case 2: pl_link_died(host, what / 5 % 4); return;
    case 3: pl_link_renew(host, what / 5, 1 + what / 5 % RANKS, NULL); return;
    default: pl_link_send(rank, PL_LINK_HOST, (pl_bytes_t){"abc", 3}, NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_link_t *host = end_open(true), *rank = end_open(false);
    while (host && rank && size >= 3) {
        uint8_t flags = data[0], identity = data[1];
        size_t length = data[2] < size - 3 ? data[2] : size - 3;
        unsigned char bytes[256];
        pl_frame_t frame;
        memcpy(bytes, data + 3, length);
        data += 3 + length;
        size -= 3 + length;
        if (flags & ORDER) {
            order(host, rank, identity);
            continue;
        }
        if (!(flags & AS_IT_IS))
            frame_mend(bytes, length);
        if (pl_frame_join(&frame, (pl_bytes_t){0}, (pl_bytes_t){bytes, length}, NULL))
            break;
        if (flags & TO_RANK)
            rank_frame(rank, identity, &frame);
        else
            host_frame(host, identity, &frame);
        pl_frame_release(&frame);
    }
    pl_link_free(rank);
    pl_link_free(host);
    return 0;
}
