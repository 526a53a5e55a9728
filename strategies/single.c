/* single.c - one rank on one device: the replica does everything else */
#include "base/error.h"
#include "strategies/replica/replica.h"
#include "strategies/strategies.h"

static int single_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)call, (void)body;
    if (pl_is_nobody(pl_peer(self, "accelerator")))
        return pl_fail(err, PL_EINVAL, "the strategy was given no accelerator");
    pl_actor_ready(self);
    return PL_OK;
}

static int single_role(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)self, (void)body, (void)err;
    return pl_reply_role(call, &(pl_role_reply_t){.does_io = true});
}

static int single_process_dataloader(void *self, pl_call_t *call, const pl_body_t *body,
                                     pl_error_t *err)
{
    (void)self, (void)body, (void)err;
    return pl_reply_process_dataloader(call,
                                       &(pl_process_dataloader_reply_t){.partition = 0,
                                                                        .partitions = 1});
}

static const pl_handler_t single_handlers[] = {
    PL_ON(start, single_start),
    PL_ON(role, single_role),
    PL_ON(process_dataloader, single_process_dataloader),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_single_strategy = {
    .name = "single",
    .help = "one rank on one device",
    .size = sizeof(pl_replica_t),
    .role = "strategy",
    .devices_max = 1,
    .level = PL_LEVEL_STRATEGY,
    .handlers = single_handlers,
    .global_batch_semantics = true,
    .base = &pl_replica_strategy,
};
