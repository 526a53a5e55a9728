/* control.h - a socket at which others of this machine give commands to runs */
#ifndef PL_TELEMETRY_CONTROL_H
#define PL_TELEMETRY_CONTROL_H

#include "transport/socket.h"
#include "telemetry/commander.h"

typedef struct pl_control_desk pl_control_desk_t;

/* Listens; nothing is taken before pl_control_serve().  PL_EINVAL: beyond this machine;
 * PL_EBUSY: somebody listens there. */
pl_control_desk_t *pl_control_open(const char *endpoint, const pl_commander_t *commander,
                                   pl_error_t *err);
/* From now on, on the thread of that loop, which must be the commander's. */
int pl_control_serve(pl_control_desk_t *desk, pl_sockets_t *loop, pl_error_t *err);
/* Where it is, after "*" was replaced. */
const char *pl_control_endpoint(const pl_control_desk_t *desk);
/* On that thread; all requests have been answered.  NULL is fine. */
void pl_control_close(pl_control_desk_t *desk);

#endif
