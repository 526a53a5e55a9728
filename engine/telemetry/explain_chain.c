/* explain_chain.c - what made a run fail: from its error back to the one that came first
 *
 * Within a process a call knows the one that it was made for.  Between processes nothing
 * in the stream ties the two together, so there the likeliest is taken and is said to be
 * no more than that. */
#include <string.h>

#include "telemetry/explain_parts.h"

void explain_fault(explain_t *x, const pl_open_t *open, const pl_tap_record_t *record,
                   const pl_error_t *error)
{
    if (x->fault_count == FAULTS) {
        memmove(x->faults + FAULTS / 2, x->faults + FAULTS / 2 + 1,
                (FAULTS / 2 - 1) * sizeof *x->faults);      /* the first ones are kept */
        x->fault_count--;
    }
    x->faults[x->fault_count++] = (fault_t){.call = record->envelope.call,
                                            .cause = open ? open->cause : 0,
                                            .process_id = record->process_id,
                                            .incarnation = record->envelope.incarnation,
                                            .message = record->envelope.message,
                                            .rank = record->stamp.rank,
                                            .time = record->stamp.time,
                                            .from_kind = record->envelope.to_kind,
                                            .to_kind = record->envelope.from_kind,
                                            .error = *error};
}

/* The call that one failed for: one that was made while that was handled and failed
 * before; rather one whose words the error has, else the newest that nobody cancelled. */
static const fault_t *fault_under(const explain_t *x, const fault_t *fault)
{
    const fault_t *newest = NULL;
    for (int k = x->fault_count - 1; k >= 0; k--) {
        const fault_t *other = &x->faults[k];
        if (other == fault || other->process_id != fault->process_id
            || other->incarnation != fault->incarnation || other->cause != fault->call
            || other->time > fault->time)
            continue;
        if (strstr(fault->error.text, other->error.text))
            return other;
        if (!newest && other->error.code != PL_ECANCELLED)
            newest = other;
    }
    return newest;
}

/* Of the newest ranks the first that failed so; rather one whose words the error has. */
static bool is_likelier(const fault_t *fault, const fault_t *other, const fault_t *than)
{
    if (!than || other->incarnation != than->incarnation)
        return !than || other->incarnation > than->incarnation;
    return strstr(fault->error.text, other->error.text)
           && !strstr(fault->error.text, than->error.text);
}

/* Calls to ranks in other processes go over links that the stream does not show. */
static const fault_t *fault_elsewhere(const explain_t *x, const fault_t *fault)
{
    const fault_t *best = NULL;
    for (int k = 0; k < x->fault_count && !fault->process_id; k++) {
        const fault_t *other = &x->faults[k];
        if (other->process_id && other->error.code == fault->error.code
            && other->time <= fault->time
            && pl_kind_level(other->to_kind) < PL_LEVEL_LAUNCHER
            && is_likelier(fault, other, best))
            best = other;
    }
    return best;
}

static json_t *fault_json(const fault_t *f, bool is_certain)
{
    return json_pack("{s:o, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:b}", "time",
                     explain_seconds(f->time), "rank", f->rank, "actor",
                     pl_kind_name(f->to_kind), "asked_by", pl_kind_name(f->from_kind),
                     "call", pl_message_info(f->message)->name, "code",
                     pl_code_name(f->error.code), "where", f->error.where, "text",
                     f->error.text, "certain", is_certain);
}

static const fault_t *fault_of_run(const explain_t *x)
{
    for (int k = x->fault_count - 1; k >= 0; k--)
        if (!x->faults[k].process_id && x->faults[k].message == PL_MESSAGE_run
            && pl_kind_level(x->faults[k].to_kind) == PL_LEVEL_TRAINER)
            return &x->faults[k];
    return NULL;
}

json_t *explain_chain(explain_t *x)
{
    json_t *chain = json_array();
    const fault_t *fault = x->chosen && x->chosen->has_failed ? fault_of_run(x) : NULL;
    bool is_certain = true;
    for (int steps = 0; fault && steps < FAULTS; steps++) {
        json_array_append_new(chain, fault_json(fault, is_certain));
        if (x->trouble == INT64_MAX || fault->time < x->trouble)
            x->trouble = fault->time;
        const fault_t *under = fault_under(x, fault);
        is_certain = under != NULL;
        fault = under ? under : fault_elsewhere(x, fault);
    }
    return chain;
}
