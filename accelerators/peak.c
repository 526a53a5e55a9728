/* peak.c - how fast a device multiplies matrices: what a run's speed is a share of
 *
 * Measured, because what a processor's name promises depends on its clock, its
 * neighbours and the library.  Products of square float32 matrices, larger and larger
 * until they take some milliseconds: the best of all counts.  A device whose replays end
 * later is asked once, for a small one. */
#include "accelerators/peak.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

enum { SMALLEST = 128, LARGEST = 1024, PRODUCTS = 2, ROUNDS = 3 };
static const int64_t LONG_ENOUGH = 10 * PL_MILLISECOND;

typedef struct peak {
    pl_replay_t replay;                                    /* first: done() is given it */
    const pl_accelerator_ops_t *ops;
    void *device;
    pl_plan_t *plan;
    int64_t size, began, taken;          /* of the newest replay, ns */
    double flops;                        /* the best so far */
    bool ended, late;                    /* the newest has; it is not waited for inside */
    pl_error_t failure;
    void (*then)(void *user, double flops, const pl_error_t *err);
    void *user;
} peak_t;

static pl_graph_t *products(int64_t size, pl_error_t *err)
{
    pl_graph_t *g = pl_graph_new(NULL, PL_PREDICT, NULL, 0, 1, err);
    if (!g)
        return NULL;
    pl_node_t x = pl_region_view(g, PL_REGION_PARAMS, 0, PL_SHAPE(size, size)), y = x;
    for (int k = 0; k < PRODUCTS; k++)
        y = pl_matmul(g, y, x, false, false);
    pl_output(g, "y", y);
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
    int code = p->ops->region(p->device, PL_REGION_PARAMS, PL_F32,
                              (size_t)(p->size * p->size), err);
    pl_graph_t *g = code == PL_OK ? products(p->size, err) : NULL;
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

static void replayed(pl_replay_t *replay, const pl_error_t *err)
{
    peak_t *p = (peak_t *)replay;
    double size = (double)p->size;
    p->taken = pl_now() - p->began;
    double flops = PRODUCTS * 2 * size * size * size / ((double)p->taken * 1e-9 + 1e-9);
    p->ended = true;
    if (err)
        p->failure = *err;
    else if (flops > p->flops)
        p->flops = flops;
    if (p->late)
        peak_end(p);
}

/* False: it ends later, and the rest with it. */
static bool rounds_run(peak_t *p, pl_error_t *err)
{
    for (int k = 0; k < ROUNDS && p->failure.code == PL_OK; k++) {
        p->replay = (pl_replay_t){.done = replayed};
        p->ended = false;
        p->began = pl_now();
        if (p->ops->replay(p->device, p->plan, &p->replay, err) != PL_OK) {
            p->failure = *err;
            return true;
        }
        if (!p->ended) {
            p->late = true;
            return false;
        }
    }
    return true;
}

int pl_device_peak(const pl_accelerator_ops_t *ops, void *device,
                   void (*then)(void *user, double flops, const pl_error_t *err),
                   void *user, pl_error_t *err)
{
    pl_error_t why = {0};
    peak_t *p = pl_alloc(sizeof *p);
    if (!p)
        return pl_no_memory(err);
    p->ops = ops, p->device = device, p->then = then, p->user = user;
    for (p->size = SMALLEST; p->size <= LARGEST; p->size *= 2) {
        plan_drop(p);
        if (plan_make(p, &why) != PL_OK)
            p->failure = why;
        else if (!rounds_run(p, &why))
            return PL_OK;
        if (p->failure.code != PL_OK || p->taken > LONG_ENOUGH)
            break;
    }
    peak_end(p);
    return PL_OK;
}
