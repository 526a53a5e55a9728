/* strategy.c - a strategy as users write one, against installed headers: single once
 * more, with a factor on the rate */
#include <strategies/replica/replica.h>

typedef struct plain {
    pl_replica_t replica;                                   /* first: see replica.h */
    double factor;
} plain_t;

static const pl_option_t plain_options[] = {
    PL_FLOAT(plain_t, factor, "1", "(0..", "on the learning rate"),
    PL_OPTIONS_END,
};

static int plain_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

static int plain_role(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)self, (void)body, (void)err;
    return pl_reply_role(call, &(pl_role_reply_t){.does_io = true});
}

static int plain_process_dataloader(void *self, pl_call_t *call, const pl_body_t *body,
                                    pl_error_t *err)
{
    (void)self, (void)body, (void)err;
    return pl_reply_process_dataloader(call,
                                       &(pl_process_dataloader_reply_t){.partition = 0,
                                                                        .partitions = 1});
}

static int plain_train_batch(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    pl_body_t slower = *body;
    slower.train_batch.lr_factor *= ((const plain_t *)self)->factor;
    return pl_replica_train(self, call, &slower, err);
}

static const pl_handler_t plain_handlers[] = {
    PL_ON(start, plain_start),
    PL_ON(role, plain_role),
    PL_ON(process_dataloader, plain_process_dataloader),
    PL_ON(train_batch, plain_train_batch),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t plain_strategy = {
    .name = "plain",
    .help = "from a plug-in",
    .size = sizeof(plain_t),
    .options = plain_options,
    .role = "strategy",
    .level = PL_LEVEL_STRATEGY,
    .handlers = plain_handlers,
    .base = &pl_replica_strategy,
};

PL_PLUGIN({"strategy", &plain_strategy})
