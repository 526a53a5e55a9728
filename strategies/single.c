/* single.c - one rank, one device: nothing to agree with anybody about
 *
 * All that it does is a replica's work. */
#include "base/error.h"
#include "strategies/replica.h"
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

static int single_setup(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    return pl_replica_setup(self, call, &body->setup, err);
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
                                       &(pl_process_dataloader_reply_t){.part = 0,
                                                                        .parts = 1});
}

static int single_figure_names(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    return pl_replica_figure_names(self, call, &body->figure_names, err);
}

static int single_train_batch(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    return pl_replica_train(self, call, &body->train_batch, err);
}

static int single_observe_figures(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    return pl_replica_observe_figures(self, call, &body->observe_figures, err);
}

static int single_evaluate_batch(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    return pl_replica_evaluate(self, call, &body->evaluate_batch, err);
}

static int single_export_weights(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    return pl_replica_export(self, call, body->export_weights.whole, err);
}

static int single_prepare_export(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    (void)body;
    return pl_replica_prepare_export(self, call, err);
}

static int single_import_weights(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    return pl_replica_import(self, call, &body->import_weights, err);
}

static int single_take_layout(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    return pl_replica_take_layout(self, call, (pl_layout_t *)body->take_layout.layout,
                                  err);
}

static int single_freeze(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    return pl_replica_freeze(self, call, &body->freeze, err);
}

static int single_settle(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    (void)self, (void)body, (void)err;
    return pl_reply_settle(call, &(pl_settle_reply_t){0});
}

static void single_release(void *self)
{
    pl_replica_release(self);
}

static const pl_handler_t single_handlers[] = {
    PL_ON(start, single_start),
    PL_ON(setup, single_setup),
    PL_ON(role, single_role),
    PL_ON(process_dataloader, single_process_dataloader),
    PL_ON(figure_names, single_figure_names),
    PL_ON(train_batch, single_train_batch),
    PL_ON(observe_figures, single_observe_figures),
    PL_ON(evaluate_batch, single_evaluate_batch),
    PL_ON(export_weights, single_export_weights),
    PL_ON(prepare_export, single_prepare_export),
    PL_ON(import_weights, single_import_weights),
    PL_ON(freeze, single_freeze),
    PL_ON(take_layout, single_take_layout),
    PL_ON(settle, single_settle),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_single_strategy = {
    .name = "single",
    .help = "one rank on one device",
    .size = sizeof(pl_replica_t),
    .role = "strategy",
    .devices_most = 1,
    .level = PL_LEVEL_STRATEGY,
    .handlers = single_handlers,
    .release = single_release,
};
