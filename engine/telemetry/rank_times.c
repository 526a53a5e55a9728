/* rank_times.c - where the time of each rank's steps goes
 *
 * A device does one thing after the other.  Between two of them it stands still: for data
 * when a batch was being fetched then, for other ranks when a collective was under way,
 * else for the engine.  While the run is paused nothing is waited for.
 *
 * A step is what trains: a validation lies between two of them.  What is computed for it,
 * and the time around that, is counted by itself. */
#include "telemetry/rank_times.h"

#include "base/alloc.h"

enum { RANK_MAX = 1 << 20 };

static uint64_t key_of(int rank)
{
    return (uint64_t)rank + 2;
}

int pl_rank_times_rank(uint64_t key)
{
    return (int)(key - 2);
}

static pl_rank_times_t *times_for(pl_map_t *ranks, int rank)
{
    pl_rank_times_t *times = pl_map_get(ranks, key_of(rank));
    if (times || !(times = pl_alloc(sizeof *times)))
        return times;
    if (pl_map_put(ranks, key_of(rank), times) == PL_OK)
        return times;
    pl_free(times);
    return NULL;
}

/* How much of [begin, end) the newest spans cover; they do not overlap. */
static int64_t covered(const pl_time_span_t *spans, unsigned count, int64_t begin,
                       int64_t end)
{
    int64_t sum = 0;
    for (unsigned k = 0; k < count && k < PL_RANK_SPANS; k++) {
        const int64_t from = spans[k].begin > begin ? spans[k].begin : begin,
                      to = spans[k].end < end ? spans[k].end : end;
        sum += to > from ? to - from : 0;
    }
    return sum;
}

static void waited(const pl_rank_times_t *t, pl_work_times_t *work, int64_t begin,
                   int64_t end)
{
    if (end <= begin)
        return;
    int64_t rest = end - begin;
    int64_t data = covered(t->data, t->data_count, begin, end),
            collective = covered(t->collective, t->collective_count, begin, end);
    collective = collective < rest ? collective : rest;
    work->stage[PL_STEP_COLLECTIVE] += collective;
    rest -= collective;
    data = data < rest ? data : rest;
    work->stage[PL_STEP_DATA] += data;
    work->engine += rest - data;
}

/* Pauses come one after the other. */
static void stood_still(const pl_rank_times_t *t, pl_work_times_t *work, int64_t begin,
                        int64_t end)
{
    unsigned k = t->pause_count > PL_RANK_SPANS ? t->pause_count - PL_RANK_SPANS : 0;
    for (; k < t->pause_count && begin < end; k++) {
        const pl_time_span_t *p = &t->pause[k % PL_RANK_SPANS];
        if (p->end <= begin || p->begin >= end)
            continue;
        const int64_t from = p->begin > begin ? p->begin : begin,
                      to = p->end < end ? p->end : end;
        waited(t, work, begin, from);
        work->paused += to - from;
        begin = to;
    }
    waited(t, work, begin, end);
}

void pl_rank_times_pause(pl_map_t *ranks, int64_t begin, int64_t end)
{
    for (size_t k = 0; k < ranks->capacity; k++) {
        pl_rank_times_t *t = ranks->key[k] ? ranks->value[k] : NULL;
        if (t)
            t->pause[t->pause_count++ % PL_RANK_SPANS] = (pl_time_span_t){.begin = begin,
                                                                          .end = end};
    }
}

void pl_rank_times_again(pl_map_t *ranks)
{
    for (size_t k = 0; k < ranks->capacity; k++)
        if (ranks->key[k])
            ((pl_rank_times_t *)ranks->value[k])->busy_until[PL_TRACK_COMPUTE] = 0;
}

/* So many spans, the first of which begins when the one before was over. */
static void computed(pl_rank_times_t *t, const pl_time_span_t *spans, int count,
                     int64_t before, bool evaluates)
{
    pl_work_times_t *work = evaluates ? &t->evaluation : &t->steps;
    if (before)
        stood_still(t, t->evaluated ? &t->evaluation : work, before, spans[0].begin);
    t->evaluated = evaluates;
    for (int k = 0; k < count; k++)
        work->stage[spans[k].stage] += spans[k].end - spans[k].begin;
}

void pl_rank_times_take(pl_map_t *ranks, const pl_open_t *open,
                        const pl_tap_record_t *end)
{
    pl_time_span_t spans[PL_CALL_SPANS];
    const int rank = end->stamp.rank;
    pl_rank_times_t *t = rank >= 0 ? times_for(ranks, rank) : NULL;
    if (!t)
        return;
    const int64_t before = t->busy_until[PL_TRACK_COMPUTE];
    const int count = pl_step_spans(open, end, t->busy_until, spans);
    t->evaluated |= open->message == PL_MESSAGE_evaluate;
    if (!count)
        return;
    switch (spans[0].track) {
    case PL_TRACK_DATA: t->data[t->data_count++ % PL_RANK_SPANS] = spans[0]; break;
    case PL_TRACK_COLLECTIVE:
        t->collective[t->collective_count++ % PL_RANK_SPANS] = spans[0];
        t->all_reduce += spans[0].end - spans[0].begin;
        break;
    default: computed(t, spans, count, before, open->what == PL_REPLAY_FORWARD);
    }
}

static json_t *seconds(int64_t time)
{
    return json_real((double)time * 1e-9);
}

static json_t *work_json(const pl_work_times_t *work)
{
    json_t *json = json_object();
    for (int stage = 0; stage < PL_STEP_STAGES; stage++)
        json_object_set_new(json, pl_step_stage_names[stage],
                            seconds(work->stage[stage]));
    json_object_set_new(json, "engine", seconds(work->engine));
    json_object_set_new(json, "paused", seconds(work->paused));
    return json;
}

static json_t *rank_json(int rank, const pl_rank_times_t *t)
{
    json_t *json = work_json(&t->steps);
    json_object_set_new(json, "rank", json_integer(rank));
    json_object_set_new(json, "in_collectives", seconds(t->all_reduce));
    json_object_set_new(json, "evaluation", work_json(&t->evaluation));
    return json;
}

json_t *pl_rank_times_json(const pl_map_t *ranks)
{
    json_t *list = json_array();
    int left = (int)ranks->count;
    for (int rank = 0; left > 0 && rank < RANK_MAX; rank++) {
        const pl_rank_times_t *t = pl_map_get(ranks, key_of(rank));
        if (!t)
            continue;
        left--;
        json_array_append_new(list, rank_json(rank, t));
    }
    return list;
}

void pl_rank_times_forget(pl_map_t *ranks)
{
    uint64_t key;
    while (pl_map_any(ranks, &key))
        pl_free(pl_map_take(ranks, key));
    pl_map_release(ranks);
}
