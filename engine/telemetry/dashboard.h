/* dashboard.h - a page that shows the runs of an engine, and paths for metrics and health
 *
 * A server with its own thread, over HTTP at a loopback address, for clients that have
 * the token. */
#ifndef PL_TELEMETRY_DASHBOARD_H
#define PL_TELEMETRY_DASHBOARD_H

#include "runtime/reactor.h"
#include "telemetry/commander.h"
#include "telemetry/run_view.h"

typedef struct pl_dashboard pl_dashboard_t;

/* address: "[HOST:]PORT", HOST a loopback address [127.0.0.1], port 0: any.  control: the
 * engine's thread, whose pulse is health; it must be there until the stop.  commander:
 * carries out the commands of the page; copied.  view: what the page shows; it outlives
 * the dashboard.  PL_EINVAL: another address; PL_EBUSY: the address is in use. */
pl_dashboard_t *pl_dashboard_start(pl_runtime_t *runtime, pl_reactor_t *control,
                                   const pl_commander_t *commander, pl_run_view_t *view,
                                   const char *address, pl_error_t *err);
/* "http://127.0.0.1:8080/?token=…" */
const char *pl_dashboard_url(const pl_dashboard_t *dashboard);
/* The engine starts no further runs: /readyz says so.  Any thread. */
void pl_dashboard_closing(pl_dashboard_t *dashboard);

/* Stops the server, while the engine's thread exists; frees the rest after that thread
 * and the stream have ended.  NULL is allowed. */
void pl_dashboard_stop(pl_dashboard_t *dashboard);
void pl_dashboard_free(pl_dashboard_t *dashboard);

#endif
