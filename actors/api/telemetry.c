/* telemetry.c - telemetry and commands of an engine: its stream, a page, commands, a
 * journal, a trace */
#include "actors/api/host.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/monitor.h"
#include "telemetry/control.h"
#include "telemetry/journal.h"
#include "telemetry/taps.h"

static int may_open(const pl_engine_t *engine, const char *where, const char *what,
                    pl_error_t *err)
{
    const int code = pl_engine_is_open(engine, err);
    return code == PL_OK ? pl_require(where, what, err) : code;
}

int pl_engine_monitor(pl_engine_t *engine, const char *endpoint, pl_error_t *err)
{
    int code = may_open(engine, endpoint, "an endpoint", err);
    if (code == PL_OK)
        code = pl_monitor_start(&engine->runtime, endpoint, false, err);
    return code == PL_OK ? pl_run_view_publish(engine->view, &engine->runtime, err)
                         : code;
}

const char *pl_engine_monitor_endpoint(const pl_engine_t *engine)
{
    return engine ? pl_monitor_endpoint(&engine->runtime) : "";
}

int pl_engine_dashboard(pl_engine_t *engine, const char *address, pl_error_t *err)
{
    const int code = may_open(engine, address, "an address", err);
    if (code != PL_OK)
        return code;
    if (engine->dashboard)
        return pl_fail(err, PL_ESTATE, "the engine already has a dashboard");
    const pl_commander_t commander = pl_engine_commander(engine);
    pl_error_t why = {0};
    engine->dashboard = pl_dashboard_start(&engine->runtime, engine->reactor, &commander,
                                           engine->view, address, &why);
    return engine->dashboard ? PL_OK : pl_fail(err, why.code, "%s", why.text);
}

const char *pl_engine_dashboard_url(const pl_engine_t *engine)
{
    return engine && engine->dashboard ? pl_dashboard_url(engine->dashboard) : "";
}

static void control_serve(void *argument)
{
    pl_engine_t *engine = argument;
    pl_error_t err = {0};
    if (pl_control_serve(engine->control_server, &engine->reactor->loop, &err) != PL_OK)
        pl_log_line(PL_LOG_ERROR, -1, "", "commands are not accepted: %s", err.text);
}

int pl_engine_control(pl_engine_t *engine, const char *endpoint, pl_error_t *err)
{
    int code = may_open(engine, endpoint, "an endpoint", err);
    if (code != PL_OK)
        return code;
    if (engine->control_server)
        return pl_fail(err, PL_ESTATE, "commands are already accepted at %s",
                       pl_control_endpoint(engine->control_server));
    const pl_commander_t commander = pl_engine_commander(engine);
    pl_error_t why = {0};
    engine->control_server = pl_control_open(endpoint, &commander, &why);
    code = engine->control_server
               ? pl_reactor_post(engine->reactor, control_serve, engine, &why)
               : why.code;
    if (code == PL_OK)
        return PL_OK;
    pl_control_close(engine->control_server);
    engine->control_server = NULL;
    return pl_fail(err, code, "%s", why.text);
}

/* Once the engine closes it goes, on the control thread. */
const char *pl_engine_control_endpoint(const pl_engine_t *engine)
{
    const bool is_open = engine && !engine->is_closing && engine->control_server;
    return is_open ? pl_control_endpoint(engine->control_server) : "";
}

int pl_engine_journal(pl_engine_t *engine, const char *path, pl_error_t *err)
{
    const int code = may_open(engine, path, "a path", err);
    return code == PL_OK ? pl_journal_tap(&engine->runtime, path, err) : code;
}

int pl_engine_trace(pl_engine_t *engine, const char *path, pl_error_t *err)
{
    const int code = may_open(engine, path, "a path", err);
    return code == PL_OK ? pl_trace_tap(&engine->runtime, path, err) : code;
}

int pl_journal_show(pl_journal_t *journal, pl_engine_t *engine, pl_error_t *err)
{
    int code = pl_require(journal, "a journal", err);
    if (code == PL_OK)
        code = pl_engine_is_open(engine, err);
    return code == PL_OK ? pl_journal_show_at(journal, &engine->runtime, err) : code;
}
