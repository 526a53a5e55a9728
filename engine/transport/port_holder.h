/* port_holder.h - ports of this machine: the allowed range, and the process at a port */
#ifndef PL_TRANSPORT_PORT_HOLDER_H
#define PL_TRANSPORT_PORT_HOLDER_H

#include "paceline.h"

/* The process that listens at "tcp://HOST:PORT"; 0: unknown, such as another user's. */
int pl_port_holder(const char *endpoint);

/* The ports for sockets of this process that name no port. */
typedef struct pl_ports {
    int first, last;                                        /* 0: the system chooses */
} pl_ports_t;

/* "20000-20100"; NULL or "": the system chooses.  PL_EINVAL: not a range. */
int pl_ports_set(const char *range, pl_error_t *err);
pl_ports_t pl_ports(void);
/* PL_EBUSY: no port of the range is free. */
int pl_ports_fail(const char *host, pl_error_t *err);

#endif
