/* check.c - verifies that a plan reads what was written for it
 *
 * Every argument of a kernel has the number of its value and its bytes.  The check
 * follows the kernels in their order and records, for each byte of the arena, the last
 * value written there and its kernel: a kernel that reads a value must find all of it.
 * Kernels run one after another, so only copies to the host can race: no later kernel
 * may change the elements of a copy in progress. */
#include "accelerators/gpu/plan.h"

#include "base/alloc.h"
#include "base/error.h"

/* Bytes [from, to) of the arena. */
typedef struct arena_range {
    size_t from, to;
    int value;                                              /* + 1 */
    int kernel;
} arena_range_t;

typedef struct checking {
    const pl_plan_t *plan;
    arena_range_t *range;                             /* [ranges] apart from each other */
    int ranges, capacity;
} checking_t;

static const char *name_of(const checking_t *c, int kernel)
{
    return c->plan->kernel[kernel].name;
}

static int range_add(checking_t *c, const arena_range_t *range, pl_error_t *err)
{
    if (range->from >= range->to)
        return PL_OK;
    if (PL_GROW(c->range, c->ranges, c->capacity) != PL_OK)
        return pl_no_memory(err);
    c->range[c->ranges++] = *range;
    return PL_OK;
}

/* Replaces all values of that range. */
static int write_range(checking_t *c, const arena_range_t *fresh, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < c->ranges && code == PL_OK; k++) {
        const arena_range_t old = c->range[k];
        if (old.to <= fresh->from || fresh->to <= old.from)
            continue;
        arena_range_t rest = old;
        rest.from = fresh->to;
        c->range[k].to = old.from < fresh->from ? fresh->from : old.from;
        code = range_add(c, &rest, err);
    }
    int kept = 0;
    for (int k = 0; k < c->ranges; k++)
        if (c->range[k].from < c->range[k].to)
            c->range[kept++] = c->range[k];
    c->ranges = kept;
    return code == PL_OK ? range_add(c, fresh, err) : code;
}

static int read_range(const checking_t *c, const arena_range_t *needed, pl_error_t *err)
{
    size_t found = 0;
    for (int k = 0; k < c->ranges; k++) {
        const arena_range_t *r = &c->range[k];
        const size_t from = r->from > needed->from ? r->from : needed->from,
                     to = r->to < needed->to ? r->to : needed->to;
        if (from >= to)
            continue;
        if (r->value != needed->value)
            return pl_fail(err, PL_EBUG,
                           "kernel %s reads value %d at byte %zu of the arena, where %s "
                           "has written value %d",
                           name_of(c, needed->kernel), needed->value - 1, from,
                           name_of(c, r->kernel), r->value - 1);
        found += to - from;
    }
    if (found == needed->to - needed->from)
        return PL_OK;
    return pl_fail(err, PL_EBUG,
                   "kernel %s reads value %d at byte %zu of the arena, of which %zu of "
                   "%zu bytes are written",
                   name_of(c, needed->kernel), needed->value - 1, needed->from, found,
                   needed->to - needed->from);
}

static int made_by(const gpu_buffer_t *buffer)
{
    return !buffer->writes ? 0 : buffer->made ? buffer->made : buffer->value;
}

/* Several kernels may make a value: no kernel reads it before the last of them. */
static int check_makers(const checking_t *c, int value, int kernel, pl_error_t *err)
{
    for (int later = kernel + 1; later < c->plan->kernels; later++)
        for (int k = 0; k < c->plan->kernel[later].launch[0].count; k++) {
            const gpu_buffer_t *buffer = &c->plan->kernel[later].buffer[k];
            if (buffer->at == GPU_IN_ARENA && made_by(buffer) == value)
                return pl_fail(err, PL_EBUG,
                               "kernel %s reads value %d, to which %s adds later",
                               name_of(c, kernel), value - 1, name_of(c, later));
        }
    return PL_OK;
}

static int check_kernel(checking_t *c, int kernel, pl_error_t *err)
{
    const gpu_kernel_t *of = &c->plan->kernel[kernel];
    int code = PL_OK;
    for (int writes = 0; writes < 2; writes++)
        for (int k = 0; k < of->launch[0].count && code == PL_OK; k++) {
            const gpu_buffer_t *buffer = &of->buffer[k];
            if (buffer->at != GPU_IN_ARENA || !(writes ? buffer->writes : buffer->reads))
                continue;
            const arena_range_t range = {buffer->offset, buffer->offset + buffer->reach,
                                         writes ? made_by(buffer) : buffer->value,
                                         kernel};
            code = writes ? write_range(c, &range, err) : read_range(c, &range, err);
            if (code == PL_OK && !writes)
                code = check_makers(c, range.value, kernel, err);
        }
    return code;
}

/* Copies [from, to) of a piece to the host.  Kernels after the piece may run at the
 * same time, up to the next collective, which waits for the copies. */
static int check_host_copies(const checking_t *c, int from, int to, int piece,
                             pl_error_t *err)
{
    int last = piece;
    while (last < c->plan->pieces - 1 && !c->plan->piece[last].collective)
        last++;
    for (int kernel = c->plan->piece[piece].to; kernel < c->plan->piece[last].to;
         kernel++)
        for (int k = 0; k < c->plan->kernel[kernel].launch[0].count; k++) {
            const gpu_buffer_t *buffer = &c->plan->kernel[kernel].buffer[k];
            for (int i = from; i < to; i++) {
                const gpu_host_copy_t *p = &c->plan->out[i];
                const size_t width = buffer->reach / (buffer->count ? buffer->count : 1);
                if (buffer->at == GPU_IN_REGION && buffer->index == p->region
                    && buffer->writes && buffer->offset < (p->from + p->count) * width
                    && p->from * width < buffer->offset + buffer->reach)
                    return pl_fail(err, PL_EBUG,
                                   "kernel %s changes region %d while it is copied to "
                                   "the host",
                                   name_of(c, kernel), p->region);
            }
        }
    return PL_OK;
}

int gpu_check(const pl_plan_t *plan, pl_error_t *err)
{
    checking_t c = {.plan = plan};
    int code = PL_OK;
    for (int k = 0; k < plan->kernels && code == PL_OK; k++)
        code = check_kernel(&c, k, err);
    for (int k = 0; k < plan->pieces && code == PL_OK; k++)
        code = check_host_copies(&c, k ? plan->piece[k - 1].host_copies : 0,
                                 plan->piece[k].host_copies, k, err);
    for (int k = 0; k < plan->outputs && code == PL_OK; k++) {
        const gpu_buffer_t *buffer = &plan->output[k].buffer;
        const arena_range_t range = {buffer->offset, buffer->offset + buffer->reach,
                                     buffer->value, plan->kernels - 1};
        if (buffer->at == GPU_IN_ARENA)
            code = read_range(&c, &range, err);
    }
    pl_free(c.range);
    return code;
}
