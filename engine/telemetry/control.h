/* control.h - a socket for commands to runs, from other processes of this machine */
#ifndef PL_TELEMETRY_CONTROL_H
#define PL_TELEMETRY_CONTROL_H

#include "transport/socket.h"
#include "telemetry/commander.h"

typedef struct pl_control_server pl_control_server_t;

/* Binds; requests wait until pl_control_serve().  PL_EINVAL: the endpoint is reachable
 * from other machines; PL_EBUSY: it is in use. */
pl_control_server_t *pl_control_open(const char *endpoint,
                                     const pl_commander_t *commander, pl_error_t *err);
/* Serves requests on the thread of that loop, which must be the commander's. */
int pl_control_serve(pl_control_server_t *server, pl_sockets_t *loop, pl_error_t *err);
/* The endpoint, with "*" replaced. */
const char *pl_control_endpoint(const pl_control_server_t *server);
/* On that thread, after the answers to all requests.  NULL is allowed. */
void pl_control_close(pl_control_server_t *server);

#endif
