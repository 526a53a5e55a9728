/* logger_positions.c - how far loggers have come, for checkpoints
 *
 * Each is asked to sync what came before the question, and says its place then; what
 * comes meanwhile waits behind.  One that is slow is not waited for: its newest place
 * counts, and how much of the run lies behind it is told beside that. */
#include <string.h>

#include "actors/connectors/logger_parts.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"

/* A logger that was at work for so long is not waited for, either. */
enum { POSITIONS_MS = 1000 };

void sink_keep_position(sink_t *sink, const char *position)
{
    const char *known = sink->position ? sink->position : "";
    char *copy = position && strcmp(position, known) ? pl_strdup(position) : NULL;
    if (!copy)
        return;                                             /* the older one holds */
    pl_free(sink->position);
    sink->position = copy;
    sink->at = sink->written;
}

static json_t *positions_of(const logger_t *logger)
{
    json_t *all = json_array();
    for (int k = 0; k < logger->count && all; k++) {
        const sink_t *sink = &logger->sink[k];
        json_t *one = json_pack("{s:s, s:s, s:I}", "name", ops_of(sink)->name, "position",
                                sink->kept ? sink->kept : "", "behind",
                                (json_int_t)sink->lacking);
        if (json_array_append_new(all, one) != 0) {
            json_decref(all);
            all = NULL;
        }
    }
    return all ? json_pack("{s:I, s:o}", "global_step", (json_int_t)logger->global_step,
                           "loggers", all)
               : NULL;
}

static void positions_tell(logger_t *logger)
{
    pl_call_t *call = logger->asking;
    pl_error_t err;
    json_t *all = positions_of(logger);
    char *text = all ? pl_json_write(all, PL_JSON_COMPACT) : NULL;
    logger->asking = NULL;
    pl_no_memory(&err);
    if (text)
        pl_reply_get_state(call, &(pl_get_state_reply_t){.state = text});
    else
        pl_call_fail(call, &err);
    pl_text_free(text);
    json_decref(all);
}

static void positions_look(logger_t *logger)
{
    bool awaited = false;
    for (int k = 0; k < logger->count; k++)
        awaited = awaited || logger->sink[k].awaited;
    if (!awaited && logger->asking)
        positions_tell(logger);
}

/* The newest that is known; nobody waits for another one. */
static void sink_position_take(sink_t *sink)
{
    pl_free(sink->kept);
    sink->kept = sink->position ? pl_strdup(sink->position) : NULL;
    sink->lacking = sink->asked_at > sink->at ? sink->asked_at - sink->at : 0;
    sink->awaited = false;
}

void sink_tell(logger_t *logger, sink_t *sink)
{
    if (sink->awaited)
        sink_position_take(sink);
    sink->asked = false;
    sink->waiting = sink->behind;
    sink->behind = NULL;
    positions_look(logger);
}

/* A run that goes on from there lacks what the slow ones have not written by its end. */
static void out_of_time(void *self)
{
    logger_t *logger = self;
    for (int k = 0; k < logger->count; k++)
        if (logger->sink[k].awaited)
            sink_position_take(&logger->sink[k]);
    positions_look(logger);
}

static bool is_slow(const sink_t *sink)
{
    const int64_t now = sink->under_way ? pl_now() - sink->since : 0;
    return sink->asked || now >= POSITIONS_MS * PL_MILLISECOND
           || sink->took >= POSITIONS_MS * PL_MILLISECOND;
}

/* What was written before is synced only now, when a checkpoint is to speak of it. */
int logger_on_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    logger_t *logger = self;
    (void)body;
    if (logger->asking || logger->ending)
        return pl_fail(err, PL_EBUSY,
                       "the loggers already report their state, or are ending");
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (!sink->waiting && !(sink->waiting = pl_records_new(err)))
            return PL_ENOMEM;
    }
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        sink->asked_at = sink->resumed + sink->taken - sink->lost;
        sink_position_take(sink);
        if (!is_slow(sink))
            sink->asked = sink->awaited = true;
    }
    logger->asking = call;
    for (int k = 0; k < logger->count; k++)
        sink_go_on(logger, &logger->sink[k]);
    positions_look(logger);
    if (logger->asking && pl_after(logger, POSITIONS_MS, out_of_time, NULL) != PL_OK)
        out_of_time(logger);
    return PL_OK;
}

static const json_t *state_of(const logger_t *logger, int k, const json_t *all)
{
    const char *name = ops_of(&logger->sink[k])->name;
    int before = 0;
    size_t at;
    json_t *one;
    for (int i = 0; i < k; i++)
        before += !strcmp(ops_of(&logger->sink[i])->name, name);
    json_array_foreach(all, at, one) {
        const char *of = json_string_value(json_object_get(one, "name"));
        if (of && !strcmp(of, name) && before-- == 0)
            return one;
    }
    return NULL;
}

/* Before the first metrics. */
int logger_on_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    logger_t *logger = self;
    const char *text = body->set_state.state;
    json_t *kept = *text ? pl_json_read(text, strlen(text), "the loggers' state", err)
                         : NULL;
    if (*text && !kept)
        return err->code;
    logger->global_step =
        (uint64_t)json_integer_value(json_object_get(kept, "global_step"));
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        const json_t *state = state_of(logger, k, json_object_get(kept, "loggers"));
        sink_keep_position(sink, json_string_value(json_object_get(state, "position")));
        sink->is_resume = state != NULL;
        sink->written = sink->resumed =
            (uint64_t)json_integer_value(json_object_get(state, "behind"));
    }
    logger->resumed_step = logger->global_step;
    json_decref(kept);
    return pl_reply_set_state(call, &(pl_set_state_reply_t){0});
}
