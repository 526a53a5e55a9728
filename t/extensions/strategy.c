/* strategy.c - strategies as users write them, against installed headers: single once
 * more, with a factor on the rate; and one that changes how training data is loaded */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- a strategy that changes the loader ---- */

typedef struct steered {
    plain_t plain;
    const char *loader;
    bool wraps;
} steered_t;

static const pl_option_t steered_options[] = {
    PL_FLOAT(steered_t, plain.factor, "1", "(0..", "on the learning rate"),
    PL_TEXT(steered_t, loader, "\"\"", NULL, "what it sets of the loader, JSON"),
    PL_BOOL(steered_t, wraps, "false", "draw backwards what the run's sampler draws"),
    PL_OPTIONS_END,
};

/* What the strategy sets in place of the run's sampler: one that turns its order. */
static char *wrapped_loader(const char *given, pl_error_t *err)
{
    pl_options_t *run = NULL;
    char *sampler = NULL, *text = malloc(strlen(given) + 100);
    if (!text) {
        pl_fail(err, PL_ENOMEM, "out of memory");
        return NULL;
    }
    sprintf(text, "{\"data\": %s}", given);
    run = pl_options_parse(text, "the loader of the run", err);
    if (run)
        sampler = pl_options_get(run, "data.sampler");
    if (run && (!sampler || !strcmp(sampler, "null")))
        pl_fail(err, PL_EINVAL, "there is no sampler to wrap: set \"data.sampler\"");
    else if (sampler)
        sprintf(text, "{\"sampler\": {\"name\": \"backwards\", \"of\": %s}}", sampler);
    pl_text_free(sampler);
    pl_options_free(run);
    if (err->code == PL_OK)
        return text;
    free(text);
    return NULL;
}

static int steered_process_dataloader(void *self, pl_call_t *call, const pl_body_t *body,
                                      pl_error_t *err)
{
    const steered_t *s = self;
    char *wrapped = s->wraps ? wrapped_loader(body->process_dataloader.loader, err)
                             : NULL;
    if (s->wraps && !wrapped)
        return err->code;
    const int code = pl_reply_process_dataloader(
        call, &(pl_process_dataloader_reply_t){.partitions = 1,
                                               .loader = wrapped ? wrapped : s->loader});
    free(wrapped);
    return code;
}

static const pl_handler_t steered_handlers[] = {
    PL_ON(start, plain_start),
    PL_ON(role, plain_role),
    PL_ON(process_dataloader, steered_process_dataloader),
    PL_ON(train_batch, plain_train_batch),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t steered_strategy = {
    .name = "steered",
    .help = "from a plug-in",
    .size = sizeof(steered_t),
    .options = steered_options,
    .role = "strategy",
    .level = PL_LEVEL_STRATEGY,
    .handlers = steered_handlers,
    .base = &pl_replica_strategy,
};

/* ---- a sampler around another ---- */

typedef struct backwards {
    pl_instances_t of;
    int64_t count;
} backwards_t;

static const pl_option_t backwards_options[] = {
    PL_PARTS(backwards_t, of, "sampler", "the sampler whose order is turned"),
    PL_OPTIONS_END,
};

static int backwards_open(void *self, const pl_sampler_data_t *data, int64_t *count,
                          pl_error_t *err)
{
    backwards_t *b = self;
    const pl_instance_t *of = &b->of.value[0];
    int code = ((const pl_sampler_ops_t *)of->ops)->open(of->self, data, count, err);
    b->count = *count;
    return code;
}

static int64_t backwards_at(const void *self, uint64_t epoch, int64_t place)
{
    const backwards_t *b = self;
    const pl_instance_t *of = &b->of.value[0];
    return ((const pl_sampler_ops_t *)of->ops)
        ->at(of->self, epoch, b->count - 1 - place);
}

static void backwards_close(void *self)
{
    const pl_instance_t *of = &((backwards_t *)self)->of.value[0];
    if (((const pl_sampler_ops_t *)of->ops)->close)
        ((const pl_sampler_ops_t *)of->ops)->close(of->self);
}

static const pl_sampler_ops_t backwards = {.name = "backwards",
                                           .help = "from a plug-in",
                                           .size = sizeof(backwards_t),
                                           .options = backwards_options,
                                           .open = backwards_open,
                                           .at = backwards_at,
                                           .close = backwards_close};

PL_PLUGIN({"strategy", &plain_strategy}, {"strategy", &steered_strategy},
          {"sampler", &backwards})
