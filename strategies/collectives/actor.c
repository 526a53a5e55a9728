/* actor.c - the collective actor: moves bytes among ranks, on a thread of its own,
 * driven by messages
 *
 * It turns messages into operations of the table (collective.h), queues operations
 * that have to wait, and replies when they end. A rank whose operation fails, or
 * whose caller cancels, aborts the operation on all ranks: no rank waits for one that
 * does not come. */
#include "strategies/collectives/actor.h"

#include <string.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"

/* A call, from its arrival to its end. */
typedef struct collective_call {
    pl_coll_request_t req;                                  /* first: done() gets it */
    struct collective *owner;
    pl_call_t *call;
    struct collective_call *next;
    unsigned char arrived[];                                /* [world size] */
} collective_call_t;

/* Operations in order. Operations on a device's memory do not wait for operations on
 * the host's. */
typedef struct queue {
    collective_call_t *first,
        **last;                 /* `first` is under way, if the queue has one under way */
    bool under_way, starting;
} queue_t;

typedef struct collective {
    pl_collective_component_t *component;                   /* counted */
    const pl_collective_ops_t *ops;
    bool opened;
    pl_world_t world;                                       /* size 0: not joined */
    char *addresses;                                        /* what world points into */
    queue_t host, device;
    /* An error that began on this rank: the actor ends with it  [code 0] */
    pl_error_t failure;
} collective_t;

/* ---- its part ---- */

static void component_release(pl_object_t *object)
{
    pl_collective_component_t *component = (pl_collective_component_t *)object;
    pl_instance_release(&component->component);
    pl_text_free((char *)(uintptr_t)component->context.host);
    if (component->context.key)
        explicit_bzero((unsigned char *)(uintptr_t)component->context.key, PL_KEY_BYTES);
    pl_free((unsigned char *)(uintptr_t)component->context.key);
    pl_free(component);
}

pl_collective_component_t *pl_collective_component_new(
    pl_instance_t *instance, const pl_collective_context_t *context, pl_error_t *err)
{
    pl_collective_component_t *component = pl_alloc(sizeof *component);
    if (!component) {
        pl_instance_release(instance);
        pl_no_memory(err);
        return NULL;
    }
    pl_object_init(&component->object, component_release);
    component->component = *instance;
    *instance = (pl_instance_t){0};
    if (!context)
        return component;
    unsigned char *key = context->key ? pl_alloc(PL_KEY_BYTES) : NULL;
    component->context.host = context->host ? pl_strdup(context->host) : NULL;
    component->context.key = key;
    if (key)
        memcpy(key, context->key, PL_KEY_BYTES);
    if (!context->host == !component->context.host && !context->key == !key)
        return component;
    pl_object_unref(component);
    pl_no_memory(err);
    return NULL;
}

/* ---- the queue ---- */

static queue_t *queue_of(collective_t *c, const collective_call_t *entry)
{
    return entry->req.desc.is_device ? &c->device : &c->host;
}

static collective_call_t *entry_take(queue_t *q)
{
    collective_call_t *entry = q->first;
    q->first = entry->next;
    if (!q->first)
        q->last = &q->first;
    return entry;
}

static void entry_free(collective_call_t *entry)
{
    if (entry->req.desc.op == PL_COLL_OP_alloc_buffer)
        pl_object_unref(entry->req.memory);
    pl_object_unref(entry->req.fence);
    pl_free(entry);
}

static void entry_end(collective_call_t *entry, const pl_error_t *err)
{
    pl_error_t reported;
    pl_fence_t *fence = entry->req.fence;
    if (err) {
        reported = *err;
        pl_error_prefix(&reported, "%s", pl_coll_op_name(entry->req.desc.op));
        pl_call_fail(entry->call, &reported);
        entry_free(entry);
        return;
    }
    switch (entry->req.desc.op) {
    case PL_COLL_OP_alloc_buffer:
        pl_reply_alloc_buffer(entry->call, &(pl_alloc_buffer_reply_t){
                                               .memory = &entry->req.memory->object});
        break;
#define PLAIN(op) \
    case PL_COLL_OP_##op: \
        pl_reply_##op(entry->call, &(pl_##op##_reply_t){0}); \
        break;
#define ENQUEUED(op) \
    case PL_COLL_OP_##op: \
        pl_reply_##op(entry->call, \
                      &(pl_##op##_reply_t){.fence = fence ? &fence->object : NULL}); \
        break;
        PLAIN(join)
        PLAIN(register_buffer)
        PLAIN(barrier)
        ENQUEUED(all_reduce)
        ENQUEUED(reduce_scatter)
        ENQUEUED(all_gather)
        ENQUEUED(all_to_all)
        ENQUEUED(broadcast)
        ENQUEUED(send)
#undef PLAIN
#undef ENQUEUED
    default: break;
    }
    entry_free(entry);
}

static void queue_advance(collective_t *c, queue_t *q);

/* Keeps an error of this rank as the reason of its end: another rank may report the
 * failure first, and this rank may be stopped before its own error arrives. */
static void failure_keep(collective_t *c, const pl_error_t *why)
{
    if (c->failure.code == PL_OK && why->code != PL_EPEER && why->code != PL_EPROTOCOL
        && why->code != PL_ECANCELLED)
        c->failure = *why;
}

/* A failure on this rank aborts the operation on all ranks. */
static void request_failed(collective_t *c, queue_t *q, const pl_error_t *why)
{
    const pl_error_t reported = *why;
    failure_keep(c, &reported);
    entry_end(entry_take(q), &reported);
    c->ops->abort(c->component->component.self, &reported);
}

static void request_done(pl_coll_request_t *req, const pl_error_t *err)
{
    collective_t *c = ((collective_call_t *)req)->owner;
    queue_t *q = queue_of(c, (collective_call_t *)req);
    q->under_way = false;
    if (err)
        request_failed(c, q, err);
    else
        entry_end(entry_take(q), NULL);
    queue_advance(c, q);
}

static void queue_advance(collective_t *c, queue_t *q)
{
    int (*const slots[])(void *, pl_coll_request_t *, pl_error_t *) = {
#define PL_X(name) c->ops->name,
        PL_COLL_OPS(PL_X)
#undef PL_X
    };
    if (q->starting)
        return;
    q->starting = true;
    while (q->first && !q->under_way) {
        pl_error_t err = {0};
        pl_coll_request_t *req = &q->first->req;
        q->under_way = true;
        if (!slots[req->desc.op])
            pl_fail(&err, PL_EUNSUPPORTED, "the collective \"%s\" does not support %s",
                    c->ops->name, pl_coll_op_name(req->desc.op));
        else
            req->desc.memory = req->memory ? req->memory->number : 0;
        if (err.code == PL_OK
            && slots[req->desc.op](c->component->component.self, req, &err) == PL_OK)
            continue;
        q->under_way = false;
        request_failed(c, q, &err);
    }
    q->starting = false;
}

/* `memory` and `after` belong to the call's message, which stays until the call ends. */
static int enqueue(collective_t *c, pl_call_t *call, const pl_coll_desc_t *desc,
                   pl_object_t *memory, pl_object_t *after, pl_error_t *err)
{
    if (!c->world.size)
        return pl_fail(err, PL_ESTATE, "%s was requested before join",
                       pl_coll_op_name(desc->op));
    collective_call_t *entry = pl_alloc(sizeof *entry + (size_t)c->world.size);
    if (!entry) {                          /* other ranks would wait for this operation */
        pl_no_memory(err);
        failure_keep(c, err);
        c->ops->abort(c->component->component.self, err);
        return PL_ENOMEM;
    }
    entry->req = (pl_coll_request_t){.desc = *desc,
                                     .world = &c->world,
                                     .memory = (pl_reg_buffer_t *)memory,
                                     .after = (pl_fence_t *)after,
                                     .arrived = entry->arrived,
                                     .done = request_done};
    entry->req.desc.is_device = memory && entry->req.memory->device;
    entry->owner = c;
    entry->call = call;
    queue_t *q = queue_of(c, entry);
    *q->last = entry;
    q->last = &entry->next;
    queue_advance(c, q);
    return PL_OK;
}

/* ---- its life ---- */

/* Work on a device may fail when no operation on it is under way any more. */
static void collective_advance(void *self)
{
    collective_t *c = self;
    pl_error_t err = {0};
    c->ops->advance(c->component->component.self);
    if (!c->ops->device || !c->ops->alive || c->device.under_way || !c->world.size
        || c->ops->alive(c->component->component.self, &err) == PL_OK)
        return;
    c->ops->abort(c->component->component.self, &err);
    pl_actor_end(self, &err);
}

static int on_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call;
    collective_t *c = self;
    char address[PL_ADDRESS_TEXT] = "";
    int descriptor = -1;
    c->host.last = &c->host.first;
    c->device.last = &c->device.first;
    c->component = pl_object_ref(body->start.context);
    c->ops = c->component->component.ops;
    c->opened = true;                             /* close() also after a failed open() */
    int code = c->ops->open(c->component->component.self, &c->component->context, address,
                            &descriptor, err);
    if (code == PL_OK)
        code = pl_watch(self, descriptor, collective_advance, err);
    if (code == PL_OK)
        pl_actor_ready_at(self, address);
    return code;
}

static int on_join(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    collective_t *c = self;
    const pl_join_t *msg = &body->join;
    if (c->world.size)
        return pl_fail(err, PL_ESTATE, "the ranks have joined already");
    if (!msg->world_size || msg->world_size > PL_RANKS_MAX
        || msg->rank >= msg->world_size)
        return pl_fail(err, PL_EINVAL, "rank %u of %u: at most %d ranks are possible",
                       msg->rank, msg->world_size, PL_RANKS_MAX);
    const char **address = pl_alloc_array(msg->world_size, sizeof *address);
    pl_text_free(c->addresses);
    pl_free((char **)(uintptr_t)c->world.address);
    c->addresses = pl_strdup(msg->addresses);
    c->world = (pl_world_t){.address = address};
    if (!address || !c->addresses)
        return pl_no_memory(err);
    uint32_t count = 0;
    char *rest = c->addresses;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line; count++)
        if (count < msg->world_size)
            address[count] = line;
    if (count != msg->world_size)
        return pl_fail(err, PL_EINVAL, "%u addresses for %u ranks", count,
                       msg->world_size);
    c->world.rank = (int)msg->rank, c->world.size = (int)msg->world_size;
    return enqueue(c, call, &(pl_coll_desc_t){.op = PL_COLL_OP_join}, NULL, NULL, err);
}

static void on_cancel(void *self, pl_call_t *call)
{
    collective_t *c = self;
    const queue_t *const queues[] = {&c->host, &c->device}, *stuck = NULL;
    char text[PL_ARRIVED_TEXT];
    pl_error_t why;
    if (pl_is_life(self, call)) {
        if (c->host.under_way || c->device.under_way)
            c->ops->abort(c->component->component.self,
                          &(pl_error_t){.code = PL_ECANCELLED,
                                        .text = "the collective is ending"});
        pl_actor_end(self, c->failure.code == PL_OK ? NULL : &c->failure);
        return;
    }
    for (int k = 0; k < 2; k++)
        for (const collective_call_t *entry = queues[k]->first; entry;
             entry = entry->next)
            if (entry->call == call)
                stuck = queues[k];
    if (!stuck)
        return;
    /* No caller waits for this operation any more, so none can wait for what follows
     * it. */
    if (pl_is_late(call))
        pl_fail(&why, PL_ETIMEOUT, "the time limit has passed: %s",
                pl_arrived_text(stuck->first->arrived, c->world.size, text));
    else
        pl_fail(&why, PL_ECANCELLED, "the caller has ended");
    c->ops->abort(c->component->component.self, &why);
}

static void collective_release(void *self)
{
    collective_t *c = self;
    if (c->opened)
        c->ops->close(c->component->component.self);
    while (c->host.first)                            /* the runtime answers their calls */
        entry_free(entry_take(&c->host));
    while (c->device.first)
        entry_free(entry_take(&c->device));
    pl_object_unref(c->component);
    pl_text_free(c->addresses);
    pl_free((char **)(uintptr_t)c->world.address);
}

/* ---- calls ---- */

static int on_alloc_buffer(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    const pl_coll_desc_t desc = {.op = PL_COLL_OP_alloc_buffer,
                                 .count = body->alloc_buffer.bytes};
    return enqueue(self, call, &desc, NULL, NULL, err);
}

static int on_register_buffer(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    const pl_reg_buffer_t *memory = (const pl_reg_buffer_t *)body->register_buffer.memory;
    const pl_coll_desc_t desc = {.op = PL_COLL_OP_register_buffer,
                                 .count = memory ? memory->bytes : 0};
    return enqueue(self, call, &desc, body->register_buffer.memory, NULL, err);
}

static int on_compile_sums(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    collective_t *c = self;
    const pl_reg_buffer_t *memory = (const pl_reg_buffer_t *)body->compile_sums.memory;
    const int code = c->ops->compile_sums
                         ? c->ops->compile_sums(c->component->component.self,
                                                memory->device,
                                                (pl_dtype_t)body->compile_sums.dtype, err)
                         : PL_OK;
    return code == PL_OK ? pl_reply_compile_sums(call, &(pl_compile_sums_reply_t){0})
                         : code;
}

/* Operations on elements; the arguments are what only some of them have. */
#define ON_ELEMENTS(name, ...) \
    static int on_##name(void *self, pl_call_t *call, const pl_body_t *body, \
                         pl_error_t *err) \
    { \
        const pl_##name##_t *msg = &body->name; \
        const pl_coll_desc_t desc = {.op = PL_COLL_OP_##name, \
                                     .dtype = msg->dtype, \
                                     .offset = msg->offset, \
                                     .count = msg->count, \
                                     __VA_ARGS__}; \
        return enqueue(self, call, &desc, msg->memory, msg->after, err); \
    }

ON_ELEMENTS(all_reduce, .reduction = msg->reduction)
ON_ELEMENTS(reduce_scatter, .reduction = msg->reduction, .step = msg->step)
ON_ELEMENTS(all_gather, .step = msg->step)
ON_ELEMENTS(all_to_all, .step = 0)
ON_ELEMENTS(broadcast, .root = msg->root)
ON_ELEMENTS(send, .root = msg->root, .to = msg->to)

static int on_barrier(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)body;
    return enqueue(self, call, &(pl_coll_desc_t){.op = PL_COLL_OP_barrier}, NULL, NULL,
                   err);
}

static int on_abort(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)err;
    collective_t *c = self;
    pl_error_t why;
    pl_fail(&why, PL_ECANCELLED, "%s", body->abort.reason);
    c->ops->abort(c->component->component.self, &why);
    return pl_reply_abort(call, &(pl_abort_reply_t){0});
}

static const pl_handler_t collective_handlers[] = {
    PL_ON(start, on_start),
    PL_ON(join, on_join),
    PL_ON(alloc_buffer, on_alloc_buffer),
    PL_ON(register_buffer, on_register_buffer),
    PL_ON(compile_sums, on_compile_sums),
    PL_ON(all_reduce, on_all_reduce),
    PL_ON(reduce_scatter, on_reduce_scatter),
    PL_ON(all_gather, on_all_gather),
    PL_ON(all_to_all, on_all_to_all),
    PL_ON(broadcast, on_broadcast),
    PL_ON(send, on_send),
    PL_ON(barrier, on_barrier),
    PL_ON(abort, on_abort),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t collective_actor = {
    .help = "moves and reduces bytes among ranks",
    .size = sizeof(collective_t),
    .role = "collective",
    .level = PL_LEVEL_COLLECTIVE,
    .handlers = collective_handlers,
    .credit = 1024,
    .on_cancel = on_cancel,
    .release = collective_release,
};

const pl_actor_ops_t *pl_collective_actor(const char *name, pl_error_t *err)
{
    const pl_component_t *component = pl_component_find("collective", name, err);
    return component ? pl_actor_kind(&collective_actor, component->name, err) : NULL;
}
