/* memory_plan.c - tests of engine/tensor/memory_plan.c: plans must not change what is
 * computed */
#include "tensor/memory_plan.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "operator_cases.h"
#include "accelerators/reference/reference.h"
#include "tap.h"
#include "training_cases.h"

/* What an accelerator with loops over elements would answer. */
static bool elementwise_in_place(const pl_graph_t *g, int op, int32_t input, void *user)
{
    (void)user;
    const pl_op_t *o = &g->op[op];
    const pl_op_kind_t kind = pl_operators[o->code].kind;
    return kind == PL_KIND_element
           && pl_same_shape(g->value[input].shape, g->value[o->output[0]].shape);
}

static const pl_memory_plan_rules_t in_place = {.in_place = elementwise_in_place};

/* ---- The plan computes the same ---- */

typedef struct memory {
    double *region[PL_REGIONS];
    size_t size[PL_REGIONS];
} memory_t;

static memory_t memory_copy(const operator_run_t *run)
{
    memory_t m;
    memcpy(m.size, run->size, sizeof m.size);
    for (int r = 0; r < PL_REGIONS; r++) {
        m.region[r] = run->region[r] ? pl_alloc_array(m.size[r], sizeof(double)) : NULL;
        if (m.region[r])
            memcpy(m.region[r], run->region[r], m.size[r] * sizeof(double));
    }
    return m;
}

static void memory_release(memory_t *m)
{
    for (int r = 0; r < PL_REGIONS; r++)
        pl_free(m->region[r]);
}

static bool memory_same(const memory_t *a, const memory_t *b)
{
    for (int r = 0; r < PL_REGIONS; r++)
        if (a->region[r]
            && memcmp(a->region[r], b->region[r], a->size[r] * sizeof(double)))
            return false;
    return true;
}

static void replay_both(const operator_run_t *run, const pl_memory_plan_t *plan)
{
    const pl_fetch_t *fetch = &run->graph->fetch[run->graph->fetch_count - 1];
    const size_t n = (size_t)pl_elements(run->graph->value[fetch->value].shape);
    double *y[2];
    memory_t m[2];
    for (int i = 0; i < 2; i++) {
        y[i] = pl_alloc_array(n, sizeof(double));
        m[i] = memory_copy(run);
        pl_reference_replay_t replay = {.input = {run->index},
                                        .output = {y[i]},
                                        .seed = 5};
        memcpy(replay.region, m[i].region, sizeof replay.region);
        pl_reference_replay_planned(run->graph, i ? plan : NULL, &replay, NULL);
    }
    ok(!memcmp(y[0], y[1], n * sizeof(double)) && memory_same(&m[0], &m[1]),
       "%s: the same numbers as without a plan", run->of->name);
    for (int i = 0; i < 2; i++) {
        memory_release(&m[i]);
        pl_free(y[i]);
    }
}

static void plans_do_not_change_any_operators_results(void)
{
    for (int i = 0; i < operator_case_count; i++) {
        operator_run_t run;
        pl_memory_plan_t plan;
        if (operator_run_init(&run, &operator_cases[i], NULL) != PL_OK)
            continue;
        if (ok(pl_memory_plan_build(&plan, run.graph, &in_place, NULL) == PL_OK,
               "%s can be planned", run.of->name)) {
            replay_both(&run, &plan);
            pl_memory_plan_release(&plan);
        }
        operator_run_release(&run);
    }
}

/* ---- Whole models ---- */

static size_t value_bytes(const pl_graph_t *g, int32_t v)
{
    return ((size_t)pl_elements(g->value[v].shape) * pl_dtype_size(g->value[v].dtype)
            + 63)
           / 64 * 64;
}

/* Pairs of values that live at the same time in the same bytes without one having
 * taken over from the other. */
static int collisions(const pl_graph_t *g, const pl_memory_plan_t *plan)
{
    int count = 0;
    for (int32_t a = 0; a < g->value_count; a++)
        for (int32_t b = 0; b < a; b++) {
            const pl_allocation_t *x = &plan->allocation[a], *y = &plan->allocation[b];
            if (x->kind != PL_ALLOCATION_ARENA || y->kind != PL_ALLOCATION_ARENA)
                continue;
            const bool bytes = x->offset < y->offset + (int64_t)value_bytes(g, b)
                               && y->offset < x->offset + (int64_t)value_bytes(g, a);
            const bool time = x->first_use <= y->last_use && y->first_use <= x->last_use;
            const bool handed_on = x->root == y->root
                                   && (x->first_use == y->last_use
                                       || y->first_use == x->last_use);
            const bool same = x->root == y->root && x->first_use == y->first_use
                              && x->last_use == y->last_use;
            count += bytes && time && !handed_on && !same;
        }
    return count;
}

static size_t sum_of_all(const pl_graph_t *g)
{
    size_t bytes = 0;
    for (int32_t v = 0; v < g->value_count; v++)
        if (g->value[v].source == PL_FROM_OP && g->value[v].op >= 0)
            bytes += value_bytes(g, v);
    return bytes;
}

static void check_model(const training_case_t *c)
{
    training_t t;
    pl_memory_plan_t plan;
    if (!ok(training_init(&t, c, NULL) == PL_OK, "%s can be described", c->name))
        return;
    ok(pl_memory_plan_build(&plan, t.step, &in_place, NULL) == PL_OK, "%s can be planned",
       c->name);
    is_int(collisions(t.step, &plan), 0, "%s: no two values are in each other's way",
           c->name);
    const size_t all = sum_of_all(t.step);
    ok(plan.arena < all * 2 / 3, "%s: %zu bytes instead of %zu", c->name, plan.arena,
       all);
    int assigns = 0, done = 0;
    for (int i = 0; i < t.step->op_count; i++) {
        const pl_op_t *op = &t.step->op[i];
        assigns += op->code == PL_OP_assign;
        done += plan.done[i];
    }
    ok(done >= assigns - 1, "%s: %d of %d assigns are done by the maker of the value",
       c->name, done, assigns);
    pl_memory_plan_release(&plan);
    training_release(&t);
}

static void models_fit_into_less_than_the_sum_of_their_values(void)
{
    for (int i = 0; i < training_case_count; i++)
        check_model(&training_cases[i]);
}

static void an_optimizer_step_may_work_in_place(void)
{
    training_t t;
    pl_memory_plan_t plan;
    double *region[2][PL_REGIONS];
    int left = 0;
    training_init(&t, &training_cases[1], NULL);
    const size_t n = (size_t)t.model->params + 2;
    pl_memory_plan_build(&plan, t.update, &in_place, NULL);
    for (int i = 0; i < 2; i++) {
        pl_reference_replay_t replay = {.scalar = {0.1, 1, 1}};
        for (int r = 0; r < PL_REGIONS; r++) {
            region[i][r] = pl_alloc_array(n, sizeof(double));
            for (size_t k = 0; k < n; k++)
                region[i][r][k] = 1 + sin((double)k + r);
        }
        memcpy(replay.region, region[i], sizeof replay.region);
        pl_reference_replay_planned(t.update, i ? &plan : NULL, &replay, NULL);
    }
    bool equal = true;
    for (int r = 0; r < PL_REGIONS; r++)
        equal = equal && !memcmp(region[0][r], region[1][r], n * sizeof(double));
    for (int i = 0; i < t.update->op_count; i++)
        left += t.update->op[i].code == PL_OP_assign && !plan.done[i];
    ok(equal, "parameters and slots are the same with a plan and without");
    is_int(left, 0, "and no assign is left to do");
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < PL_REGIONS; r++)
            pl_free(region[i][r]);
    pl_memory_plan_release(&plan);
    training_release(&t);
}

/* ---- Rules of the accelerator ---- */

static pl_graph_t *chain(pl_model_t *model, pl_node_t node[4])
{
    pl_graph_t *g = pl_graph_new(model, PL_PREDICT, NULL, 0, 1, NULL);
    node[0] = pl_param(g, "a", PL_SHAPE(100), pl_zeros());
    for (int i = 1; i < 4; i++)
        node[i] = pl_exp(g, node[i - 1]);
    pl_output(g, "y", node[3]);
    return g;
}

static void values_inside_a_fused_step_need_no_memory(void)
{
    pl_model_t *model = pl_model_new(NULL);
    pl_node_t node[4];
    pl_graph_t *g = chain(model, node);
    const int time[] = {0, 0, 0};
    const bool inside[] = {false, true, true, false};
    pl_memory_plan_t plan;
    pl_memory_plan_build(&plan, g,
                         &(pl_memory_plan_rules_t){.time = time, .inside = inside}, NULL);
    ok(plan.allocation[node[1].id].kind == PL_ALLOCATION_NONE,
       "the first has no allocation");
    ok(plan.allocation[node[0].id].kind == PL_ALLOCATION_EXTERNAL,
       "the parameter is where it always was");
    ok(plan.allocation[node[3].id].kind == PL_ALLOCATION_ARENA,
       "the result is in the arena");
    is_int(plan.arena, 448, "which holds nothing else");
    pl_memory_plan_release(&plan);
    pl_graph_free(g);
    pl_model_free(model);
}

static void a_chain_in_place_needs_one_value(void)
{
    pl_model_t *model = pl_model_new(NULL);
    pl_node_t node[4];
    pl_graph_t *g = chain(model, node);
    pl_memory_plan_t plan;
    pl_memory_plan_build(&plan, g, NULL, NULL);
    is_int(plan.arena, 2 * 448, "two without working in place");
    pl_memory_plan_release(&plan);
    pl_memory_plan_build(&plan, g, &in_place, NULL);
    is_int(plan.arena, 448, "one with it");
    is_int(plan.allocation[node[3].id].root, node[1].id, "which is the first one's");
    pl_memory_plan_release(&plan);
    pl_graph_free(g);
    pl_model_free(model);
}

/* ---- When a value must not move to its target ---- */

typedef enum reason {
    NONE,
    GUARD_BETWEEN,
    OLD_VALUE_READ,
    OVERWRITTEN_LATER,
    ADDED,
    REGION_IS_INPUT
} reason_t;

/* y = exp(a); b becomes y; unless there is a reason against it, y is computed in b. */
static bool moves(reason_t reason)
{
    pl_model_t *model = pl_model_new(NULL);
    pl_graph_t *g = pl_graph_new(model, PL_PREDICT, NULL, 0, 1, NULL);
    pl_node_t a = pl_param(g, "a", PL_SHAPE(4, 5), pl_zeros()),
              b = pl_param(g, "b", PL_SHAPE(20), pl_zeros());
    pl_node_t sum = pl_sum(g, a, NULL, 0, false);
    pl_node_t y = pl_reshape(
        g, pl_exp(g, reason == REGION_IS_INPUT ? pl_reshape(g, b, PL_SHAPE(4, 5)) : a),
        PL_SHAPE(20));
    if (reason == GUARD_BETWEEN)
        pl_emit(g, PL_OP_guard, &sum, 1, NULL, NULL);
    if (reason == OLD_VALUE_READ)
        pl_output(g, "old", pl_neg(g, b));
    pl_emit(g, PL_OP_assign, (pl_node_t[]){b, y}, 2,
            &(pl_attr_t){.accumulate = reason == ADDED}, NULL);
    if (reason == OVERWRITTEN_LATER) {
        pl_assign(g, b, pl_neg(g, b));
        pl_output(g, "y", y);
    }
    pl_graph_prune(g);
    pl_memory_plan_t plan;
    pl_memory_plan_build(&plan, g, NULL, NULL);
    bool moved = plan.allocation[y.id].kind == PL_ALLOCATION_TARGET;
    if (moved)
        ok(plan.allocation[y.id].region == PL_REGION_PARAMS
               && plan.allocation[y.id].offset == 32,
           "it is where the target is");
    pl_memory_plan_release(&plan);
    pl_graph_free(g);
    pl_model_free(model);
    return moved;
}

static void a_value_moves_to_its_target_unless_another_reads_it(void)
{
    ok(moves(NONE), "what is made to be assigned is made there");
    ok(!moves(GUARD_BETWEEN), "not past a guard");
    ok(!moves(OLD_VALUE_READ), "not while the old value is read");
    ok(!moves(OVERWRITTEN_LATER), "not when something else is assigned while it is read");
    ok(!moves(ADDED), "not when it is added");
    ok(!moves(REGION_IS_INPUT),
       "not when it is made from the old value, unless that works in place");
}

int main(void)
{
    run(plans_do_not_change_any_operators_results);
    run(models_fit_into_less_than_the_sum_of_their_values);
    run(an_optimizer_step_may_work_in_place);
    run(values_inside_a_fused_step_need_no_memory);
    run(a_chain_in_place_needs_one_value);
    run(a_value_moves_to_its_target_unless_another_reads_it);
    return tap_done();
}
