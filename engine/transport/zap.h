/* zap.h - which peers are admitted where keys are required (ZAP)
 *
 * ZeroMQ asks an authenticator in the same process about each connection (ZAP, RFC 27);
 * without one it would take any key.  There is one for the process, on a thread of its
 * own, while a domain is open. */
#ifndef PL_TRANSPORT_ZAP_H
#define PL_TRANSPORT_ZAP_H

#include "transport/keys.h"

#define PL_ZAP_DOMAIN 32

/* Opens a domain and returns its name: peers that connect in it must have the client key
 * of these keys.  Called before the socket of that domain is bound. */
int pl_zap_open(const pl_keys_t *keys, char domain[PL_ZAP_DOMAIN], pl_error_t *err);
/* Called after that socket was closed. */
void pl_zap_close(const char *domain);

#endif
