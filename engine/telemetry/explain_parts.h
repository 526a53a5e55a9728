/* explain_parts.h - what explain.c (which runs there are, how one ended), explain_chain.c
 * (what made it fail), explain_times.c (where its time went) share */
#ifndef PL_TELEMETRY_EXPLAIN_PARTS_H
#define PL_TELEMETRY_EXPLAIN_PARTS_H

#include <jansson.h>

#include "telemetry/journal.h"
#include "telemetry/rank_times.h"
#include "telemetry/call_graph.h"

enum {
    FAULTS = 256,
    EVENTS_MAX = 200,
    COMMANDS_MAX = 200,
    PAUSES_MAX = 256,
    REASON_MAX = 512,
};

typedef struct run {
    struct run *before;                                     /* the one that began then */
    uint64_t number;                                        /* from 1 */
    int64_t began, ended, last;                             /* ns of the stream */
    uint64_t step;                                          /* optimizer steps done */
    bool has_ended, has_failed, was_stopped;
    char reason[REASON_MAX], error[REASON_MAX];
    json_t *plans;                                          /* of rank 0  [NULL] */
} run_t;

/* A call that failed. */
typedef struct fault {
    uint64_t call, cause;
    uint32_t process_id, incarnation, message, from_kind, to_kind;  /* of the call */
    int rank;
    int64_t time;
    pl_error_t error;
} fault_t;

/* What is kept of a call under way beside the scene. */
typedef struct call_note {
    run_t *run;                                             /* that it is for  [none] */
    struct sum *actor, *wait;                               /* of its callee, of its sort
                                                               [not told] */
    uint64_t over;                                          /* the call it was made for
                                                               [0: none] */
    uint32_t over_process;
    uint64_t step;                                          /* done when it ends  [0] */
    unsigned under;                                         /* calls made for it, open */
} call_note_t;

typedef struct pause {
    int64_t begin, end;                                     /* INT64_MAX: it lasts */
} pause_t;

typedef struct explain {
    pl_call_graph_t graph;
    pl_map_t notes;                                     /* call_note_t by call */
    pl_map_t received;                                  /* last time, by process_id + 1 */
    run_t *newest, *chosen;
    uint64_t wanted, runs, begun;                /* wanted  [0: the newest]; begun: so far
                                                    in the second pass */
    uint64_t messages, missing, strange;
    json_t *unsure;                               /* ranks whose last messages may miss */
    int64_t last;                                 /* ns of the stream */
    /* of the chosen run */
    int64_t trouble;                                      /* when it began  [INT64_MAX] */
    uint32_t incarnation, trouble_incarnation;            /* of ranks; when it began */
    fault_t faults[FAULTS];
    int fault_count;
    json_t *events, *commands;                              /* of ranks; from the host */
    pause_t pauses[PAUSES_MAX];
    int pause_count;
    pl_map_t ranks;                      /* of rank_times.h */
    pl_map_t actors, waits;              /* explain_times.c */
    pl_map_t stands_in;                  /* the actor for a rank elsewhere, by rank + 1 */
} explain_t;

/* explain.c */
call_note_t *explain_note(const explain_t *x, uint32_t process_id, uint64_t call);
int64_t explain_received(const explain_t *x, uint32_t process_id);
/* Of what is open as long as an actor is there: that it is tells nothing. */
bool explain_is_whole_life(uint32_t message);
json_t *explain_seconds(int64_t time);

/* explain_chain.c: a call has failed; from the error of the run to the one that came
 * first. */
void explain_fault(explain_t *x, const pl_open_t *open, const pl_tap_record_t *record,
                   const pl_error_t *error);
json_t *explain_chain(explain_t *x);

/* explain_times.c: a call of the chosen run begins, has ended, or was left by its
 * process, whose last word came at a time. */
void explain_time_begins(explain_t *x, const pl_open_t *open, call_note_t *note,
                         const pl_tap_record_t *record);
void explain_time_ends(explain_t *x, const pl_open_t *open, const call_note_t *note,
                       const pl_tap_record_t *end);
void explain_time_lost(explain_t *x, const pl_open_t *open, const call_note_t *note,
                       int64_t time);
/* The run is held up from then on, or until then. */
void explain_pause(explain_t *x, int64_t begin);
void explain_go_on(explain_t *x, int64_t end);
int64_t explain_paused(const explain_t *x, int64_t begin, int64_t end);
void explain_forget_times(explain_t *x);
json_t *explain_times_json(explain_t *x);
/* What is open in the scene, which stands at a moment. */
json_t *explain_open_json(const explain_t *x, int64_t moment);

#endif
