/* port_holder.h - ports of this machine: which may be listened at, and which process
 * does */
#ifndef PL_TRANSPORT_PORT_HOLDER_H
#define PL_TRANSPORT_PORT_HOLDER_H

#include "paceline.h"

/* Of "tcp://HOST:PORT"; 0: nobody who can be seen, such as another user's. */
int pl_port_holder(const char *endpoint);

/* The ports that sockets of this process may listen at where no port is named. */
typedef struct pl_ports {
    int first, last;                                        /* 0: the system chooses */
} pl_ports_t;

/* "20000-20100"; NULL or "": the system chooses.  PL_EINVAL: no such range. */
int pl_ports_set(const char *range, pl_error_t *err);
pl_ports_t pl_ports(void);
/* PL_EBUSY: none of them is free. */
int pl_ports_fail(const char *host, pl_error_t *err);

#endif
