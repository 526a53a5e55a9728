/* fuzz_collective.c - a rank of a collective, and the places of two others that an input
 * speaks for */
#include "fuzz_collective.h"

#include <string.h>
#include <unistd.h>

bool peers_open(peers_t *p, const char *collective)
{
    static bool begun;
    if (!begun)
        pl_init(NULL, NULL, NULL, NULL);
    begun = true;
    *p = (peers_t){.listener = {-1, -1, -1}, .connection = {-1, -1, -1}};
    if (member_open(&p->own, collective, NULL) != PL_OK)
        return false;
    strcpy(p->text[0], p->own.address);
    return true;
}

bool peers_join(peers_t *p)
{
    for (int rank = 0; rank < RANKS; rank++)
        p->address[rank] = p->text[rank];
    p->world.size = RANKS;
    p->world.address = p->address;
    p->req = (pl_coll_request_t){.desc = {.op = PL_COLL_OP_join}, .world = &p->world};
    return member_begin(&p->own, &p->req) == PL_OK;
}

void peers_disconnect(peers_t *p, int rank)
{
    if (p->connection[rank] >= 0)
        close(p->connection[rank]);
    p->connection[rank] = -1;
}

void peers_close(peers_t *p)
{
    member_close(&p->own);
    if (p->req.desc.op == PL_COLL_OP_alloc_buffer)
        pl_object_unref(p->req.memory);
    pl_object_unref(p->buffer);
    for (int rank = 0; rank < RANKS; rank++) {
        if (p->listener[rank] >= 0)
            close(p->listener[rank]);
        peers_disconnect(p, rank);
    }
}

void peers_begin(peers_t *p, const order_t *order, uint32_t memory)
{
    uint32_t count = 0;
    if (!p->own.done)
        return;
    memcpy(&count, order->bytes, order->size < sizeof count ? order->size : sizeof count);
    p->req = (pl_coll_request_t){.desc = {.op = order->argument % PL_COLL_OP_COUNT,
                                          .root = order->argument % RANKS,
                                          .count = count % (memory / 4 + 2)},
                                 .world = &p->world,
                                 .memory = p->buffer};
    if (p->req.desc.op == PL_COLL_OP_alloc_buffer) {
        p->req.memory = NULL;
        p->req.desc.count = p->buffer ? count % 4096 : memory;
    } else if (p->buffer) {
        p->req.desc.memory = p->buffer->number;
    }
    p->number += member_begin(&p->own, &p->req) == PL_OK;
}

void peers_help(peers_t *p)
{
    for (int k = 0; k < 3; k++)
        member_help(&p->own);
    if (p->own.done && p->req.desc.op == PL_COLL_OP_alloc_buffer && p->req.memory) {
        pl_object_unref(p->buffer);
        p->buffer = p->req.memory;
        p->req.memory = NULL;
    }
}

void peers_abort(peers_t *p)
{
    p->own.ops->abort(p->own.component.self,
                      &(pl_error_t){PL_ECANCELLED, "", "aborted by the input"});
}

void orders_obey(const uint8_t *data, size_t size,
                 void (*obey)(void *user, const order_t *order), void *user)
{
    for (size_t at = 0; at + 3 <= size;) {
        const size_t left = size - at - 3,
                     length = data[at + 2] < left ? data[at + 2] : left;
        obey(user, &(order_t){data[at], data[at + 1], data + at + 3, length});
        at += 3 + length;
    }
}
