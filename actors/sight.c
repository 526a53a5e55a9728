/* sight.c - what an engine shows beside the stream that it publishes */
#include "actors/host.h"
#include "sight/journal.h"
#include "sight/trace.h"

int pl_engine_journal(pl_engine_t *engine, const char *path, pl_error_t *err)
{
    return pl_journal_tap(pl_engine_runtime(engine), path, err);
}

int pl_engine_trace(pl_engine_t *engine, const char *path, pl_error_t *err)
{
    return pl_trace_tap(pl_engine_runtime(engine), path, err);
}

int pl_journal_show(pl_journal_t *journal, pl_engine_t *engine, pl_error_t *err)
{
    return pl_journal_show_at(journal, pl_engine_runtime(engine), err);
}
