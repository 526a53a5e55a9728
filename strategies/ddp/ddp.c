/* ddp.c - data parallel: every rank holds the whole model
 *
 * Ranks differ only in their samples, so one sum of the gradients for each optimizer
 * step keeps them equal. replica.c and the files it calls do the work of one rank,
 * ddp/sync_points.c synchronizes the ranks, and the collective moves the bytes. */
#include <stdatomic.h>
#include <string.h>

#include "accelerators/actor.h"
#include "accelerators/auto_select.h"
#include "base/alloc.h"
#include "base/bind.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/registry.h"
#include "base/run.h"
#include "strategies/collectives/actor.h"
#include "strategies/ddp/ddp.h"
#include "strategies/strategies.h"

/* ---- the start, and the ranks synchronize ---- */

/* The collectives for memory of devices that "auto" considers. */
static const char *const preferred[] = {"nccl"};

/* The collective that "auto" selects for a run's accelerator: one that moves its memory,
 * if this machine has what that needs; else "best", and a log line says once what is
 * missing. */
static const char *collective_automatic(const pl_options_t *o)
{
    const char *name = pl_options_choice(o, "trainer.accelerator",
                                         pl_accelerator_auto(o));
    const pl_accelerator_ops_t *accelerator = pl_component_offered("accelerator", name);
    const char *device = accelerator ? accelerator->memory_kind : NULL;
    for (size_t k = 0; device && k < sizeof preferred / sizeof *preferred; k++) {
        const pl_collective_ops_t *ops = pl_component_offered("collective", preferred[k]);
        pl_error_t why = {0};
        if (!ops || !ops->available || !ops->device || strcmp(ops->device, device) != 0)
            continue;
        if (ops->available(&why) == PL_OK)
            return preferred[k];
        static atomic_bool reported;
        if (!atomic_exchange(&reported, true))
            pl_log_line(PL_LOG_WARNING, -1, "",
                        "ranks reduce memory of %s through the host, which is slow: %s",
                        device, why.text);
    }
    return "best";
}

static void collective_reported(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_PROGRESS && *answer->body->start_progress.address)
        pl_actor_ready_at(self, answer->body->start_progress.address);
    else if (answer->kind == PL_ANSWER_ERROR)
        pl_actor_end(self, answer->error);
}

int pl_ddp_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call;
    pl_ddp_t *ddp = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    const pl_collective_context_t context = {.host = job->host, .key = job->key};
    pl_instance_t instance = {0};
    ddp->last = &ddp->first;
    ddp->join_ms = pl_milliseconds(job->trainer->step_timeout);
    if (!ddp->replica.sync_hooks)
        ddp->replica.sync_hooks = &pl_ddp_sync_hooks;
    if (pl_is_nobody(pl_peer(self, "accelerator")))
        return pl_fail(err, PL_EINVAL, "the strategy was given no accelerator");
    int code = pl_instance_of_choice(&instance, "collective", &ddp->collective,
                                     collective_automatic(job->options), err);
    if (code != PL_OK)
        return code;
    const pl_collective_ops_t *moves = instance.ops;
    const char *name = moves->name;
    if (moves->own_order && moves->own_order(instance.self))
        ddp->replica.order = name;
    ddp->device_kind = moves->device;
    /* The collective is for memory of devices, and it cannot move the memory of this
     * accelerator. */
    const char *accelerator = pl_options_choice(job->options, "trainer.accelerator",
                                                pl_accelerator_auto(job->options)),
               *kind = pl_accelerator_traits(accelerator).memory_kind;
    if (pl_actor_rank(ddp) == 0 && moves->device
        && (!kind || strcmp(kind, moves->device) != 0))
        pl_log_line(PL_LOG_WARNING, 0, "",
                    "the collective %s moves memory of %s alone: with the accelerator "
                    "%s its \"host\" moves all data, as without it",
                    moves->name, moves->device, accelerator);
    pl_collective_component_t *component = pl_collective_component_new(&instance,
                                                                       &context, err);
    const pl_actor_ops_t *ops = component ? pl_collective_actor(name, err) : NULL;
    const pl_start_t start = {.options = "",
                              .context = component ? &component->object : NULL};
    const pl_how_t how = {.on_answer = collective_reported};
    bool spawned = ops
                   && pl_spawn(self, ops, PL_OWN_THREAD, &start, how,
                               &ddp->collective_actor, err);
    pl_object_unref(component);
    return spawned ? PL_OK : err->code;
}

/* Rank zero writes, and asks the callbacks. */
static void role_reply(pl_ddp_t *ddp)
{
    pl_call_t *call = ddp->asked;
    ddp->asked = NULL;
    if (call)
        pl_reply_role(call, &(pl_role_reply_t){.does_io = ddp->replica.rank == 0,
                                               .agrees = true});
}

static void join_fail(pl_ddp_t *ddp, const pl_error_t *error)
{
    if (ddp->joining)
        pl_call_fail(ddp->joining, error);
    ddp->joining = NULL;
}

static void texts_allocated(void *self, const pl_answer_t *answer)
{
    pl_ddp_t *ddp = self;
    if (answer->kind == PL_ANSWER_ERROR)
        join_fail(ddp, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    ddp->decided = pl_object_ref(answer->body->alloc_buffer_reply.memory);
    ddp->joined = true;
    pl_reply_join(ddp->joining, &(pl_join_reply_t){0});
    ddp->joining = NULL;
    role_reply(ddp);
}

static void joined(void *self, const pl_answer_t *answer)
{
    pl_ddp_t *ddp = self;
    pl_error_t err = {0};
    const pl_alloc_buffer_t msg = {.bytes = PL_DDP_DECIDED};
    const pl_how_t how = {.on_answer = texts_allocated};
    if (answer->kind == PL_ANSWER_ERROR)
        join_fail(ddp, answer->error);
    if (answer->kind == PL_ANSWER_REPLY
        && !pl_call_alloc_buffer(ddp, ddp->collective_actor, &msg, how, &err))
        join_fail(ddp, &err);
}

static int ddp_join(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_ddp_t *ddp = self;
    ddp->replica.rank = body->join.rank;
    ddp->replica.ranks = body->join.world_size;
    const pl_how_t how = {.on_answer = joined, .total_ms = ddp->join_ms};
    if (!pl_call_join(ddp, ddp->collective_actor, &body->join, how, err))
        return err->code;
    ddp->joining = call;
    return PL_OK;
}

static int ddp_role(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)body, (void)err;
    pl_ddp_t *ddp = self;
    ddp->asked = call;
    if (ddp->joined)
        role_reply(ddp);
    return PL_OK;
}

/* Predictions return in the order of the samples, each of them once. */
static int ddp_process_dataloader(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    (void)err;
    const pl_ddp_t *ddp = self;
    const bool split = ddp->replace_sampler
                       || body->process_dataloader.stage == PL_PREDICT;
    return pl_reply_process_dataloader(
        call,
        &(pl_process_dataloader_reply_t){.partition = split ? ddp->replica.rank : 0,
                                         .partitions = split ? ddp->replica.ranks : 1,
                                         .even = ddp->drop_last});
}

/* ---- decisions ---- */

static int ddp_decide(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_ddp_t *ddp = self;
    if (ddp->replica.failure.code != PL_OK) {
        *err = ddp->replica.failure;
        return err->code;
    }
    if (body->decide.announced)
        ddp->announced = false;
    pl_replica_waits(&ddp->replica);
    return pl_ddp_decide(ddp, call, &body->decide, false, err);
}

static int ddp_metric_names(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err)
{
    pl_ddp_t *ddp = self;
    char *names = pl_replica_names(&ddp->replica, body->metric_names.stage, err);
    pl_messages_t messages = {0};
    int code = names ? pl_messages_add(&messages, PL_MESSAGE_metric_names, true,
                                       &(pl_metric_names_reply_t){.names = names}, err)
                     : PL_ENOMEM;
    const pl_decide_t msg = {.messages = pl_messages_bytes(&messages)};
    if (code == PL_OK)
        code = pl_ddp_decide(ddp, call, &msg, true, err);
    pl_messages_release(&messages);
    pl_free(names);
    return code;
}

static int ddp_request_sync(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err)
{
    (void)body, (void)err;
    pl_ddp_t *ddp = self;
    ddp->announced = ddp->replica.rank == 0;
    return pl_reply_request_sync(call, &(pl_request_sync_reply_t){0});
}

/* ---- the table ---- */

static void ddp_release(void *self)
{
    pl_ddp_t *ddp = self;
    pl_ddp_sync_points_release(ddp);
    pl_ddp_device_release(ddp);
    pl_object_unref(ddp->decided);
    pl_object_unref(ddp->exchanged);
    pl_object_unref(ddp->control);
}

static const pl_option_t ddp_options[] = {
    PL_DDP_BUCKETS,
    PL_DDP_OPTIONS,
    PL_OPTIONS_END,
};

static const pl_handler_t ddp_handlers[] = {
    PL_ON(start, pl_ddp_start),
    PL_ON(join, ddp_join),
    PL_ON(role, ddp_role),
    PL_ON(process_dataloader, ddp_process_dataloader),
    PL_ON(decide, ddp_decide),
    PL_ON(metric_names, ddp_metric_names),
    PL_ON(exchange, pl_ddp_exchange),
    PL_ON(request_sync, ddp_request_sync),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_ddp_strategy = {
    .name = "ddp",
    .help = "data parallel: each rank has the whole model and a part of every batch",
    .size = sizeof(pl_ddp_t),
    .options = ddp_options,
    .role = "strategy",
    .level = PL_LEVEL_STRATEGY,
    .handlers = ddp_handlers,
    .global_batch_semantics = true,
    .base = &pl_replica_strategy,
    .release = ddp_release,
};
