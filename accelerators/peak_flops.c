/* peak_flops.c - how fast a device multiplies matrices: what a run's speed is a share of
 *
 * Measured, because what a processor's name promises depends on its clock, its
 * neighbours and the library.  Products of square matrices in the run's number format,
 * larger and larger until they take some milliseconds: the best of all counts.  A device
 * whose replays end later begins the next one when one has ended. */
#include "accelerators/peak_flops.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

enum { SMALLEST = 128, LARGEST = 8192, PRODUCTS = 2, ROUNDS = 3 };
static const int64_t LONG_ENOUGH = 10 * PL_MILLISECOND, TOO_LONG = PL_SECOND;

typedef struct peak {
    pl_replay_t replay;                                    /* first: done() is given it */
    const pl_accelerator_ops_t *ops;
    void *device;
    pl_plan_t *plan;
    pl_dtype_t dtype;
    int64_t size, began, taken;           /* of the newest replay, ns */
    int rounds;                           /* of that size */
    double flops;                         /* the best so far */
    bool inside, ended;                   /* replay() is called; and the replay is over */
    pl_error_t failure;
    void (*then)(void *user, double flops, const pl_error_t *err);
    void *user;
} peak_t;

static pl_graph_t *products(int64_t size, pl_dtype_t dtype, pl_error_t *err)
{
    pl_graph_t *g = pl_graph_new(NULL, PL_PREDICT, NULL, 0, 1, err);
    if (!g)
        return NULL;
    pl_node_t x = pl_region_view(g, PL_REGION_PARAMS, 0, PL_SHAPE(size, size)), y = x;
    for (int k = 0; k < PRODUCTS; k++)
        y = pl_matmul(g, y, x, false, false);
    pl_output(g, "y", y);
    for (int32_t v = 0; v < g->value_count; v++)
        g->value[v].dtype = dtype;
    if (pl_graph_check(g, err) == PL_OK)
        return g;
    pl_graph_free(g);
    return NULL;
}

static void plan_drop(peak_t *p)
{
    if (p->plan)
        p->ops->discard(p->device, p->plan);
    p->plan = NULL;
}

static int plan_make(peak_t *p, pl_error_t *err)
{
    int code = p->ops->region(p->device, PL_REGION_PARAMS, p->dtype,
                              (size_t)(p->size * p->size), err);
    pl_graph_t *g = code == PL_OK ? products(p->size, p->dtype, err) : NULL;
    if (g)
        code = p->ops->compile(p->device, g, &p->plan, err);
    pl_graph_free(g);
    return g ? code : err->code;
}

static void peak_end(peak_t *p)
{
    plan_drop(p);
    p->then(p->user, p->flops, p->failure.code == PL_OK ? NULL : &p->failure);
    pl_free(p);
}

static void peak_go_on(peak_t *p);

static void replayed(pl_replay_t *replay, const pl_error_t *err)
{
    peak_t *p = (peak_t *)replay;
    const double size = (double)p->size;
    p->taken = pl_now() - p->began;
    const double flops = PRODUCTS * 2 * size * size * size
                         / ((double)p->taken * 1e-9 + 1e-9);
    p->ended = true;
    p->rounds++;
    if (err)
        p->failure = *err;
    else if (flops > p->flops)
        p->flops = flops;
    if (!p->inside)
        peak_go_on(p);
}

/* False: it ends later, and goes on from there. */
static bool round_run(peak_t *p)
{
    pl_error_t why = {0};
    p->replay = (pl_replay_t){.done = replayed};
    p->ended = false;
    p->inside = true;
    p->began = pl_now();
    if (p->ops->replay(p->device, p->plan, &p->replay, &why) != PL_OK) {
        p->failure = why;
        p->ended = true;
    }
    p->inside = false;
    return p->ended;
}

static bool is_enough(const peak_t *p)
{
    const bool is_last = p->size == LARGEST || p->taken > LONG_ENOUGH;
    return p->failure.code != PL_OK || (is_last && p->rounds >= ROUNDS)
           || (p->rounds && p->taken > TOO_LONG);
}

/* Rounds of one size, and of the next. */
static void peak_go_on(peak_t *p)
{
    while (!is_enough(p)) {
        pl_error_t why = {0};
        if (p->rounds >= ROUNDS || !p->plan) {
            p->size = p->plan ? 2 * p->size : SMALLEST;
            p->rounds = 0;
            plan_drop(p);
            const int code = plan_make(p, &why);
            if (code != PL_OK && !(code == PL_ENOMEM && p->flops > 0))
                p->failure = why;
            if (code != PL_OK)
                break;
        }
        if (!round_run(p))
            return;
    }
    peak_end(p);
}

int pl_device_measure_peak_flops(const pl_accelerator_ops_t *ops, void *device,
                                 pl_dtype_t dtype,
                                 void (*then)(void *user, double flops,
                                              const pl_error_t *err),
                                 void *user, pl_error_t *err)
{
    peak_t *p = pl_alloc(sizeof *p);
    if (!p)
        return pl_no_memory(err);
    p->ops = ops, p->device = device, p->dtype = dtype, p->then = then, p->user = user;
    peak_go_on(p);
    return PL_OK;
}
