/* explain_parts.h - types of explain.c (the runs of a journal, how one ended and why) and
 * explain_times.c (where its time went, and what was open at a moment) */
#ifndef PL_TELEMETRY_EXPLAIN_PARTS_H
#define PL_TELEMETRY_EXPLAIN_PARTS_H

#include <jansson.h>

#include "telemetry/journal.h"
#include "telemetry/call_graph.h"

enum {
    FAULTS = 256,
    EVENTS_MAX = 200,
    COMMANDS_MAX = 200,
    PAUSES_MAX = 256,
    REASON_MAX = 512,
};

typedef struct journal_run {
    struct journal_run *before;                             /* the previous run */
    uint64_t number;                                        /* from 1 */
    int64_t began, ended, last;                             /* ns of the stream */
    uint64_t step;                                          /* optimizer steps done */
    bool has_ended, has_failed, was_stopped;
    char reason[REASON_MAX], error[REASON_MAX];
    json_t *plans;                                          /* of rank 0  [NULL] */
} journal_run_t;

/* A call that failed. */
typedef struct fault {
    uint64_t call, cause;
    uint32_t process_id, incarnation, message, from_kind, to_kind;  /* of the call */
    int rank;
    int64_t time;
    pl_error_t error;
} fault_t;

/* What is stored with an open call of the graph. */
typedef struct call_note {
    struct time_sum *actor, *wait;     /* of the callee; of calls of this kind  [NULL: not
                                          measured] */
    uint64_t over;                     /* the call that caused it
                                          [0: none] */
    uint32_t over_process;
    unsigned under;                                        /* open calls that it caused */
} call_note_t;

typedef struct pause {
    int64_t begin, end;                                     /* INT64_MAX: it lasts */
} pause_t;

typedef struct explain {
    pl_call_graph_t graph;
    pl_map_t received;                                /* newest time, by process_id + 1 */
    journal_run_t *newest, *chosen;
    uint64_t wanted, runs;                                 /* wanted  [0: the newest] */
    uint64_t begun;                                        /* so far in the second pass */
    uint64_t messages, missing, strange;
    json_t *unsure;                                    /* ranks whose last messages may be
                                                          missing */
    int64_t last;                                      /* ns of the stream */
    /* of the chosen run: */
    int64_t trouble;                                    /* its begin  [INT64_MAX: none] */
    uint32_t incarnation, trouble_incarnation;          /* of ranks; when it began */
    fault_t faults[FAULTS];
    int fault_count;
    json_t *events, *commands;                            /* of ranks; from the program */
    pause_t pauses[PAUSES_MAX];
    int pause_count;
    pl_map_t ranks;                                 /* pl_rank_times_t */
    pl_map_t actors, waits;                         /* explain_times.c */
    pl_map_t proxies;                               /* the actor that represents a rank of
                                                       another process, by rank + 1 */
} explain_t;

/* explain.c */
static inline call_note_t *explain_note(const explain_t *x, uint32_t process_id,
                                        uint64_t call)
{
    const pl_open_t *open = pl_call_graph_find(&x->graph, process_id, call);
    return open ? open->own : NULL;
}
static inline bool explain_is_of_chosen(const explain_t *x, const pl_open_t *open)
{
    return open->own && open->run == (x->chosen ? x->chosen->number : 0);
}
int64_t explain_received(const explain_t *x, uint32_t process_id);
/* Calls that stay open while an actor lives say nothing about time. */
bool explain_is_whole_life(uint32_t message);
json_t *explain_seconds(int64_t time);

/* explain_times.c: a call of the chosen run begins, ends, or is lost with its process,
 * whose newest message has that time. */
void explain_time_begins(explain_t *x, const pl_open_t *open,
                         const pl_tap_record_t *record);
void explain_time_ends(explain_t *x, const pl_open_t *open, const pl_tap_record_t *end);
void explain_time_lost(explain_t *x, const pl_open_t *open, int64_t time);
/* A pause of the run begins, ends. */
void explain_pause(explain_t *x, int64_t begin);
void explain_continue(explain_t *x, int64_t end);
void explain_forget_times(explain_t *x);
json_t *explain_times_json(explain_t *x);
/* The calls that are open in the graph at a moment. */
json_t *explain_open_json(const explain_t *x, int64_t moment);

#endif
