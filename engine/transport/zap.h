/* zap.h - which peers are admitted where keys are required (ZAP)
 *
 * ZeroMQ asks an authenticator in the same process about each connection (ZAP, RFC 27);
 * without one it would take any key.  There is one for the process, on a thread of its
 * own, as long as there is somebody to answer for. */
#ifndef PL_TRANSPORT_ZAP_H
#define PL_TRANSPORT_ZAP_H

#include "transport/keys.h"

#define PL_ZAP_DOMAIN 32

/* From now on who connects in the domain, a name that is given, must have the client key
 * of these; to be called before the socket of that domain is bound. */
int pl_zap_open(const pl_keys_t *keys, char domain[PL_ZAP_DOMAIN], pl_error_t *err);
/* After it was closed. */
void pl_zap_close(const char *domain);

#endif
