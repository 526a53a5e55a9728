/* bulk.h - weights and other bulk between processes, on links of their own
 *
 * One large message starves the heartbeats of a connection and delays every control
 * message behind it.  So bulk data uses a second link, in messages of at most 1 MiB, and
 * a few megabytes at most are in flight.  The control message that belongs to a transfer
 * names it by its number.  A transfer arrives complete, with the checksum that its sender
 * computed, or it does not arrive. */
#ifndef PL_TRANSPORT_BULK_H
#define PL_TRANSPORT_BULK_H

#include "base/counted.h"
#include "transport/link.h"

typedef struct pl_bulk pl_bulk_t;

/* Counted bytes, which do not change after they were handed over. */
typedef struct pl_blob {
    pl_object_t object;
    size_t size;
    unsigned char *data;                                    /* aligned to 16 */
} pl_blob_t;

pl_blob_t *pl_blob_new(size_t size, pl_error_t *err);       /* zeroed */

typedef struct pl_bulk_spec {
    pl_link_spec_t link;                   /* its functions and sizes are set here */
    size_t max;                            /* bytes of all transfers of a peer that arrive
                                              or wait to be taken  [4 GiB] */
    /* None of these may free the bulk.  A transfer has arrived: pl_bulk_take() gives it.
     * [nothing is called] */
    void (*on_come)(void *user, int peer, uint64_t transfer);
    /* An incoming transfer is damaged, or its peer is gone: it will not arrive.  [nothing
     * is called] */
    void (*on_lost)(void *user, int peer, uint64_t transfer, const pl_error_t *error);
    /* The other side has a complete outgoing transfer; or, with an error, it will never
     * have it.  [nothing is called] */
    void (*on_sent)(void *user, int peer, uint64_t transfer, const pl_error_t *error);
    /* The events of the link below.  [nothing is called] */
    void (*on_event)(void *user, int peer, pl_link_event_t event, const char *text);
    void *user;
} pl_bulk_spec_t;

/* One of the two ends, as pl_link_listen() of the host and pl_link_connect(). */
pl_bulk_t *pl_bulk_open(const pl_bulk_spec_t *spec, bool is_host, struct pl_sockets *loop,
                        pl_error_t *err);
void pl_bulk_free(pl_bulk_t *bulk);

/* The link below: its endpoint, state, deaths, end. */
pl_link_t *pl_bulk_link(pl_bulk_t *bulk);

/* A listening end: pl_link_renew(); transfers of the last incarnation that are in flight
 * are reported as lost. */
int pl_bulk_renew(pl_bulk_t *bulk, uint32_t incarnation, int world_size, pl_error_t *err);

/* Sends a blob, which is kept until it has arrived; -> the transfer's number, from 1, for
 * this peer in this direction; 0 with an error.  Until the peer has joined, it waits. */
uint64_t pl_bulk_send(pl_bulk_t *bulk, int peer, pl_blob_t *blob, pl_error_t *err);

/* Hands over a transfer that has arrived; NULL: it has not arrived, or was taken. */
pl_blob_t *pl_bulk_take(pl_bulk_t *bulk, int peer, uint64_t transfer);

#endif
