/* peak_flops.c - measures how fast a device multiplies matrices, as the base of a run's
 * utilization
 *
 * The speed is measured because it depends on the processor's clock, the load of the
 * machine and the library.  Square matrices in the run's number format are multiplied,
 * with growing sizes until a product takes some milliseconds; the best result counts.  If
 * replays of a device end later, each begins when the one before has ended. */
#include "accelerators/actor_internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

enum { SMALLEST = 128, LARGEST = 8192, PRODUCTS = 2, ROUNDS = 3 };
static const int64_t LONG_ENOUGH = 10 * PL_MILLISECOND, TOO_LONG = PL_SECOND;

typedef struct peak {
    pl_replay_t replay;                                /* first: done() casts to peak_t */
    const pl_accelerator_ops_t *ops;
    void *device;
    pl_plan_t *plan;
    pl_dtype_t dtype;
    int64_t size, began, taken;                /* of the newest replay; rows, ns, ns */
    int rounds;                                /* replays of that size */
    double flops;                              /* the best so far */
    bool inside, ended;                        /* inside replay(); the replay has ended */
    pl_error_t failure;
    void (*then)(void *user, double flops, const pl_error_t *err);
    void *user;
} peak_t;

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
    pl_graph_t *g = code == PL_OK ? pl_graph_new(NULL, PL_PREDICT, NULL, 0, 1, err)
                                  : NULL;
    if (!g)
        return err->code;
    pl_node_t x = pl_region_view(g, PL_REGION_PARAMS, 0, PL_SHAPE(p->size, p->size)),
              y = x;
    for (int k = 0; k < PRODUCTS; k++)
        y = pl_matmul(g, y, x, false, false);
    pl_output(g, "y", y);
    for (int32_t v = 0; v < g->value_count; v++)
        g->value[v].dtype = p->dtype;
    code = pl_graph_check(g, err);
    if (code == PL_OK)
        code = p->ops->compile(p->device, g, &p->plan, err);
    pl_graph_free(g);
    return code;
}

static void peak_continue(peak_t *p);

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
        peak_continue(p);
}

/* Replays rounds of each size until one ends later, in done(), or the measurement is
 * complete. */
static void peak_continue(peak_t *p)
{
    while (p->failure.code == PL_OK) {
        const bool is_last = p->size == LARGEST || p->taken > LONG_ENOUGH;
        pl_error_t why = {0};
        if ((is_last && p->rounds >= ROUNDS) || (p->rounds && p->taken > TOO_LONG))
            break;
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
        p->replay = (pl_replay_t){.done = replayed};
        p->ended = false;
        p->inside = true;
        p->began = pl_now();
        if (p->ops->replay(p->device, p->plan, &p->replay, &why) != PL_OK) {
            p->failure = why;
            p->ended = true;
        }
        p->inside = false;
        if (!p->ended)
            return;
    }
    plan_drop(p);
    p->then(p->user, p->flops, p->failure.code == PL_OK ? NULL : &p->failure);
    pl_free(p);
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
    peak_continue(p);
    return PL_OK;
}
