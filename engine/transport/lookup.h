/* lookup.h - the address of an endpoint's host, from a name server that may not answer */
#ifndef PL_TRANSPORT_LOOKUP_H
#define PL_TRANSPORT_LOOKUP_H

#include <netdb.h>

#include "paceline.h"

typedef struct pl_lookup pl_lookup_t;

/* Whether the host of an endpoint is a name. */
bool pl_lookup_is_needed(const char *endpoint);

/* Looks up the host of tcp://HOST:PORT on a thread of its own.  NULL: the endpoint has no
 * host, or there is no thread. */
pl_lookup_t *pl_lookup_start(const char *endpoint, pl_error_t *err);
/* Whether it has ended, waiting until then of pl_now(). */
bool pl_lookup_wait(pl_lookup_t *lookup, int64_t until);
/* What was found, the lookup's own.  PL_ENOTFOUND: the host is not known; PL_ETIMEOUT:
 * the look-up has not ended. */
int pl_lookup_result(pl_lookup_t *lookup, const struct addrinfo **found, pl_error_t *err);
/* The endpoint with the number of its host; errors are the same. */
int pl_lookup_endpoint(pl_lookup_t *lookup, char *endpoint, size_t capacity,
                       pl_error_t *err);
/* Frees it, at once or when it ends; NULL does nothing. */
void pl_lookup_leave(pl_lookup_t *lookup);

#endif
