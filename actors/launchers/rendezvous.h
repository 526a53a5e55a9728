/* rendezvous.h - the address where processes that another program has started connect */
#ifndef PL_LAUNCHERS_RENDEZVOUS_H
#define PL_LAUNCHERS_RENDEZVOUS_H

#include "transport/lookup.h"

/* "tcp://HOST:PORT", "HOST:PORT" or "ipc://FILE" as all ranks have it, with
 * "localhost" as a number.  PL_EINVAL: it is none. */
int pl_rendezvous_read(const char *text, char *endpoint, size_t capacity,
                       pl_error_t *err);
/* Whether it is one that only this machine reaches. */
bool pl_rendezvous_is_near(const char *endpoint);

/* Where rank zero listens: for calls, and for bulk and the stream at any port.  A host's
 * name may stand for an address that only the host itself can reach, so all its addresses
 * are taken then. */
int pl_rendezvous_places(const char *endpoint, char *calls, char *bulk, char *stream,
                         size_t capacity, pl_error_t *err);
/* Where the others find what listens at `place` there. */
void pl_rendezvous_find(const char *endpoint, const char *place, char *at,
                        size_t capacity);

/* Another place on the same host, at a port that was free just now; for rank zero's. */
int pl_rendezvous_beside(const char *endpoint, char *at, size_t capacity,
                         pl_error_t *err);

/* This machine's address, a number, at which the other ranks reach it; for rank zero,
 * which listens, one that other machines reach.  Errors as pl_lookup_result() gives
 * them. */
#define PL_RENDEZVOUS_HOST 64
int pl_rendezvous_own_host(pl_lookup_t *lookup, bool listens,
                           char host[PL_RENDEZVOUS_HOST], pl_error_t *err);

#endif
