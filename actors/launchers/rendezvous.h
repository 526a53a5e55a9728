/* rendezvous.h - the place where processes that somebody else has started meet */
#ifndef PL_LAUNCHERS_RENDEZVOUS_H
#define PL_LAUNCHERS_RENDEZVOUS_H

#include "paceline.h"

/* "tcp://HOST:PORT", "HOST:PORT" or "ipc://FILE" as all ranks are told it, with
 * "localhost" as a number.  PL_EINVAL: it is none. */
int pl_rendezvous_read(const char *text, char *endpoint, size_t room, pl_error_t *err);
/* Whether it is one that only this machine reaches. */
bool pl_rendezvous_is_near(const char *endpoint);

/* Where rank zero listens: for calls, and for bulk and the stream at any port.  A host's
 * name may stand for an address that only the host itself can reach, so all its addresses
 * are taken then. */
int pl_rendezvous_places(const char *endpoint, char *calls, char *bulk, char *stream,
                         size_t room, pl_error_t *err);
/* Where the others find what listens at `place` there. */
void pl_rendezvous_find(const char *endpoint, const char *place, char *at, size_t room);

/* Another place on the same host, at a port that was free just now; for rank zero's. */
int pl_rendezvous_beside(const char *endpoint, char *at, size_t room, pl_error_t *err);

/* Looks up the host of an endpoint, on a thread of its own: a name server may not answer.
 * NULL: the endpoint has no host, or there is no thread. */
typedef struct pl_lookup pl_lookup_t;
pl_lookup_t *pl_lookup_start(const char *endpoint, pl_error_t *err);
/* Whether it has ended, waiting until then of pl_now(). */
bool pl_lookup_wait(pl_lookup_t *lookup, int64_t until);
/* This machine's address as whoever it meets there reaches it, a number.  PL_EINVAL: the
 * host is not known; PL_ETIMEOUT: the look-up has not ended. */
#define PL_RENDEZVOUS_HOST 64
int pl_lookup_own_host(pl_lookup_t *lookup, bool listens, char host[PL_RENDEZVOUS_HOST],
                       pl_error_t *err);
/* Frees it, at once or when it ends; NULL does nothing. */
void pl_lookup_leave(pl_lookup_t *lookup);

#endif
