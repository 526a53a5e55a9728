/* replica_actor.c - what a strategy that keeps the whole model on each rank is called for
 *
 * The base of those strategies: they start, tell their role and how the samples are dealt
 * out, and take over what they do in another way. */
#include "base/alloc.h"
#include "strategies/replica_parts.h"

static int replica_setup(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    return pl_replica_setup(self, call, &body->setup, err);
}

static int replica_metric_names(void *self, pl_call_t *call, const pl_body_t *body,
                                pl_error_t *err)
{
    char *names = pl_replica_names(self, body->metric_names.stage, err);
    if (!names)
        return PL_ENOMEM;
    int code = pl_reply_metric_names(call, &(pl_metric_names_reply_t){.names = names});
    pl_free(names);
    return code;
}

static int replica_train_batch(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    return pl_replica_train(self, call, &body->train_batch, err);
}

static int replica_observe_metrics(void *self, pl_call_t *call, const pl_body_t *body,
                                   pl_error_t *err)
{
    return pl_replica_observe_metrics(self, call, &body->observe_metrics, err);
}

static int replica_evaluate_batch(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    return pl_replica_evaluate(self, call, &body->evaluate_batch, err);
}

static int replica_export_weights(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    return pl_replica_export(self, call, body->export_weights.whole, err);
}

static int replica_prepare_export(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    (void)body;
    return pl_replica_prepare_export(self, call, err);
}

static int replica_import_weights(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    return pl_replica_import(self, call, &body->import_weights, err);
}

static int replica_take_layout(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    return pl_replica_take_layout(self, call, (pl_layout_t *)body->take_layout.layout,
                                  err);
}

static int replica_freeze(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    return pl_replica_freeze(self, call, &body->freeze, err);
}

static int replica_set_rate(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err)
{
    return pl_replica_set_rate(self, call, &body->set_rate, err);
}

static int replica_synchronize(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    (void)self, (void)body, (void)err;
    return pl_reply_synchronize(call, &(pl_synchronize_reply_t){0});
}

static void replica_release(void *self)
{
    pl_replica_release(self);
}

static const pl_handler_t replica_handlers[] = {
    PL_ON(setup, replica_setup),
    PL_ON(metric_names, replica_metric_names),
    PL_ON(train_batch, replica_train_batch),
    PL_ON(observe_metrics, replica_observe_metrics),
    PL_ON(evaluate_batch, replica_evaluate_batch),
    PL_ON(export_weights, replica_export_weights),
    PL_ON(prepare_export, replica_prepare_export),
    PL_ON(import_weights, replica_import_weights),
    PL_ON(take_layout, replica_take_layout),
    PL_ON(freeze, replica_freeze),
    PL_ON(set_rate, replica_set_rate),
    PL_ON(synchronize, replica_synchronize),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_replica_strategy = {
    .name = "replica",
    .help = "a whole copy of the module on one device",
    .size = sizeof(pl_replica_t),
    .role = "strategy",
    .level = PL_LEVEL_STRATEGY,
    .handlers = replica_handlers,
    .release = replica_release,
};
