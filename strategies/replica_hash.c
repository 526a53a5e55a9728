/* replica_hash.c - a number for all that a replica trains with, in checkpoints, and in
 * which order it adds
 *
 * Options say what a run is to compute, graphs what it does: a module that was changed,
 * or data of other shapes, are seen here alone.  Only what every step of a training
 * computes counts: not plans that merely look, nor those that a callback has made, nor
 * what a strategy does where ranks meet, which goes by how many there are. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "runtime/actor.h"
#include "strategies/replica_parts.h"

void pl_replica_hash_plan(pl_replica_plan_t *plan, const pl_graph_t *graph)
{
    plan->hash = pl_graph_hash(0, graph);
}

/* Whichever order they were made in: batches of new sizes come later. */
static void hash_text(const pl_replica_t *r, char text[9])
{
    uint32_t hash = 0;
    for (int k = 0; k < r->plan_count; k++) {
        const pl_replica_plan_t *plan = &r->plan[k];
        if (plan->stage == PL_TRAIN && plan->kind != PL_PLAN_RESTORE
            && plan->kind != PL_PLAN_OWN && !plan->accumulate)
            hash += plan->hash;
    }
    snprintf(text, 9, "%08x", hash);
}

int pl_replica_keep_plans(const pl_replica_t *r, json_t *into, pl_error_t *err)
{
    char text[9];
    const char *by = pl_actor_name((void *)r);
    hash_text(r, text);
    bool is_kept = json_object_set_new(into, "plans", json_string(text)) == 0
                   && json_object_set_new(into, "ranks", json_integer(r->ranks)) == 0
                   && json_object_set_new(into, "by", json_string(by)) == 0
                   && (!r->order
                       || json_object_set_new(into, "order", json_string(r->order)) == 0);
    return is_kept ? PL_OK : pl_no_memory(err);
}

static void compare_order(pl_replica_t *r, const json_t *from)
{
    const char *then = json_string_value(json_object_get(from, "order"));
    const char *now = r->order ? r->order : "tree";
    if (!then)
        then = "tree";
    if (strcmp(then, now))
        pl_log_line(
            PL_LOG_WARNING, pl_actor_rank(r), pl_actor_name(r),
            "when the checkpoint was saved, \"%s\" determined the order of sums over "
            "ranks, and now \"%s\" does: the run continues, but not to the same bits",
            then, now);
}

/* With as many samples in a step each has batches of another size, which is told; another
 * strategy has other plans for the same. */
static bool had_others(const pl_replica_t *r, const json_t *from)
{
    const json_int_t ranks = json_integer_value(json_object_get(from, "ranks"));
    const char *by = json_string_value(json_object_get(from, "by"));
    return (ranks && ranks != (json_int_t)r->ranks)
           || (by && strcmp(by, pl_actor_name((void *)r)) != 0);
}

void pl_replica_compare_plans(pl_replica_t *r, const json_t *from)
{
    char now[9];
    const char *then = json_string_value(json_object_get(from, "plans"));
    if (r->rank > 0)                              /* all have the same: the first tells */
        return;
    hash_text(r, now);
    compare_order(r, from);
    if (then && strcmp(then, now) && !had_others(r, from))
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(r), pl_actor_name(r),
                    "a step computes something else than when the checkpoint was saved "
                    "(plans %s, now %s): the module, the shapes of the data or Paceline "
                    "have changed; the run continues, but not to the same bits",
                    then, now);
}
