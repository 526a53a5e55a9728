/* metered.c - a user-defined collective: shm, with a count of its operations
 *
 *   "trainer": {"devices": 2, "strategy": {"name": "ddp",
 *               "collective": {"name": "metered", "file": "moved.txt"}}}
 *
 * A collective moves and reduces bytes among ranks.  Its functions begin an operation and
 * return.  The caller then waits for done(), and calls advance() when the descriptor is
 * readable (strategies/collectives/collective.h).  This collective forwards all calls to
 * shm, the collective for processes and threads of one machine, and counts them. */
#include <stdio.h>
#include <stdlib.h>
#include <strategies/collectives/collective.h>

typedef struct metered {
    const char *file;                                       /* option */
    void *shm;
    int rank;
    unsigned long long operations, elements;
} metered_t;

static const pl_option_t metered_options[] = {
    PL_TEXT(metered_t, file, "\"\"", NULL,
            "file for the counts of rank 0, written at the end"),
    PL_OPTIONS_END,
};

/* Found before any is opened. */
static const pl_collective_ops_t *shm;

static int metered_open(void *self, const pl_collective_context_t *context,
                        char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    metered_t *metered = self;
    shm = pl_component_find("collective", "shm", err);
    if (!shm)
        return PL_ENOTFOUND;
    metered->shm = calloc(1, shm->size);             /* options at 0: it sleeps at once */
    if (!metered->shm)
        return pl_fail(err, PL_ENOMEM, "out of memory");
    return shm->open(metered->shm, context, address, descriptor, err);
}

static int metered_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    metered_t *metered = self;
    metered->rank = req->world->rank;
    return shm->join(metered->shm, req, err);
}

static void count(metered_t *metered, const pl_coll_request_t *req)
{
    metered->operations++;
    metered->elements += req->desc.count;
}

/* All the others are alike. */
#define METERED(op) \
    static int metered_##op(void *self, pl_coll_request_t *req, pl_error_t *err) \
    { \
        count(self, req); \
        return shm->op(((metered_t *)self)->shm, req, err); \
    }
METERED(all_reduce)
METERED(reduce_scatter)
METERED(all_gather)
METERED(broadcast)
METERED(barrier)

static int metered_alloc_buffer(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    return shm->alloc_buffer(((metered_t *)self)->shm, req, err);
}

static void metered_advance(void *self)
{
    shm->advance(((metered_t *)self)->shm);
}

static void metered_abort(void *self, const pl_error_t *why)
{
    shm->abort(((metered_t *)self)->shm, why);
}

/* Also after a failed open. */
static void metered_close(void *self)
{
    metered_t *metered = self;
    FILE *file = *metered->file && !metered->rank ? fopen(metered->file, "w") : NULL;
    if (file) {
        fprintf(file, "%llu operations, %llu elements\n", metered->operations,
                metered->elements);
        fclose(file);
    }
    if (metered->shm)
        shm->close(metered->shm);
    free(metered->shm);
}

static const pl_collective_ops_t metered = {
    .name = "metered",
    .help = "shm, counting what it moves",
    .size = sizeof(metered_t),
    .options = metered_options,
    .open = metered_open,
    .join = metered_join,
    .alloc_buffer = metered_alloc_buffer,
    .all_reduce = metered_all_reduce,
    .reduce_scatter = metered_reduce_scatter,
    .all_gather = metered_all_gather,
    .broadcast = metered_broadcast,
    .barrier = metered_barrier,
    .advance = metered_advance,
    .abort = metered_abort,
    .close = metered_close,
};

PL_PLUGIN({"collective", &metered})
