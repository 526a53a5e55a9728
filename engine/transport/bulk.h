/* bulk.h - weights and other bulk between processes, on links of their own
 *
 * One large message starves what keeps a connection alive, and a control message behind
 * it waits.  So bulk goes over a second link, in messages of at most 1 MiB, of which some
 * megabytes at most are under way; the control message that goes with it names the
 * transfer by its number.  A transfer comes whole, with the checksum its sender had, or
 * it does not come. */
#ifndef PL_TRANSPORT_BULK_H
#define PL_TRANSPORT_BULK_H

#include "base/counted.h"
#include "transport/link.h"

typedef struct pl_bulk pl_bulk_t;

/* Bytes that are shared by counting and not changed once handed over. */
typedef struct pl_blob {
    pl_object_t object;
    size_t size;
    unsigned char *data;                                    /* aligned to 16 */
} pl_blob_t;

pl_blob_t *pl_blob_new(size_t size, pl_error_t *err);       /* zeroed */

typedef struct pl_bulk_spec {
    pl_link_spec_t link;                 /* its functions and sizes are set here */
    size_t max;                          /* bytes of all transfers that are coming or wait
                                            to be taken, of a peer  [4 GiB] */
    /* None of these may free it.  One has come whole: pl_bulk_take() gives it.  [nobody
     * asks] */
    void (*on_come)(void *user, int peer, uint64_t transfer);
    /* One that was coming is torn, or its peer is gone: it will not come.
     * [nobody asks] */
    void (*on_lost)(void *user, int peer, uint64_t transfer, const pl_error_t *error);
    /* The other side has all of one that was sent, and found it whole; or, with an error,
     * it never will.  [nobody asks] */
    void (*on_sent)(void *user, int peer, uint64_t transfer, const pl_error_t *error);
    /* The events of the link below.  [nobody asks] */
    void (*on_event)(void *user, int peer, pl_link_event_t event, const char *text);
    void *user;
} pl_bulk_spec_t;

/* The two ends, as pl_link_listen() and pl_link_connect(). */
pl_bulk_t *pl_bulk_listen(const pl_bulk_spec_t *spec, struct pl_sockets *loop,
                          pl_error_t *err);
pl_bulk_t *pl_bulk_connect(const pl_bulk_spec_t *spec, struct pl_sockets *loop,
                           pl_error_t *err);
void pl_bulk_free(pl_bulk_t *bulk);

/* The link below: its endpoint, state, deaths, end. */
pl_link_t *pl_bulk_link(pl_bulk_t *bulk);

/* A listening end: pl_link_renew(), and nothing of the last incarnation comes any more;
 * what was under way is told as lost. */
int pl_bulk_renew(pl_bulk_t *bulk, uint32_t incarnation, int world_size, pl_error_t *err);

/* Sends a blob, which is kept until it is there; -> the transfer's number, from 1, of
 * this peer in this direction; 0 with an error.  Before the peer has joined it waits. */
uint64_t pl_bulk_send(pl_bulk_t *bulk, int peer, pl_blob_t *blob, pl_error_t *err);

/* A transfer that has come, handed over; NULL: it has not, or was taken. */
pl_blob_t *pl_bulk_take(pl_bulk_t *bulk, int peer, uint64_t transfer);

#endif
