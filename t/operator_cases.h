/* operator_cases.h - small graphs, several for each operator, for every test that
 * compares implementations
 *
 * A case is made ready by operator_run_init(): a model with the parameters "a", "b",
 * "c", a graph, and values by formula that float32 holds exactly.  Unless the case is
 * forward only, the graph is a training step: its loss is the sum of y times fixed
 * numbers (state "dy"), and the gradients end in PL_REGION_GRADS.  y is its output
 * fetch. */
#ifndef T_OPERATOR_CASES_H
#define T_OPERATOR_CASES_H

#include "tensor/graph.h"
#include "tensor/model.h"

typedef struct operator_case operator_case_t;
struct operator_case {
    const char *name;                                       /* "matmul, a transposed" */
    pl_node_t (*build)(pl_graph_t *g, const operator_case_t *c);  /* -> y */
    int params;
    pl_shape_t shape[3];            /* of the parameters "a", "b", "c" */
    double low, high;               /* their values lie in here; both 0: (-1, 1) */
    pl_shape_t index;               /* of the int64 field "i", batch axis included
                                       [none] */
    bool narrow;                    /* the field is int32 */
    bool fractions;                 /* the field is float64, with 1/4 more */
    int64_t classes;                /* the field's values are in [0, classes) */
    int64_t ignore;                 /* some of them are this instead  [0: none] */
    int64_t arg[4];                 /* for build: axes, sizes, flags */
    pl_windows_t windows;           /* of convolutions and pools */
    int64_t groups;                 /* of convolutions  [1] */
    double p;                       /* for build: a factor, epsilon or probability */
    bool ties;                      /* values are multiples of 1/2: not for differences */
    bool forward_only;              /* no gradient is asked for */
    bool accumulate;                /* gradients are added to what is there */
    pl_stage_t stage;
    const pl_precision_ops_t *precision;                    /* [32-true] */
};

extern const operator_case_t operator_cases[];
extern const int operator_case_count;

typedef struct operator_run {
    const operator_case_t *of;
    pl_model_t *model;
    pl_graph_t *graph;
    double *region[PL_REGIONS];      /* start values; NULL where the graph has none */
    size_t size[PL_REGIONS];         /* elements of each region */
    void *index;                     /* the field "i", input 0; NULL when there is none */
    uint64_t seed, step, micro_batch;  /* to replay with */
} operator_run_t;

int operator_run_init(operator_run_t *run, const operator_case_t *of, pl_error_t *err);
void operator_run_release(operator_run_t *run);

#endif
