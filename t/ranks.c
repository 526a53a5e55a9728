/* ranks.c - tests of actors/launchers/ranks.c and local.c: several ranks, one run
 *
 * Under a strategy whose ranks have nothing to do with each other: each trains a model of
 * its own on its part of the data. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "fake.h"
#include "rig.h"
#include "strategies/replica/replica.h"
#include "tap.h"

/* ---- The strategy ---- */

typedef struct apart {
    pl_replica_t replica;
    uint32_t ranks;
} apart_t;

static int apart_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)call, (void)err;
    ((apart_t *)self)->ranks = body->start.ranks;
    pl_actor_ready(self);
    return PL_OK;
}

static int apart_role(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)body, (void)err;
    return pl_reply_role(call, &(pl_role_reply_t){.does_io = pl_actor_rank(self) == 0});
}

static int apart_split(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)body, (void)err;
    return pl_reply_process_dataloader(
        call, &(pl_process_dataloader_reply_t){.partition = (uint32_t)pl_actor_rank(self),
                                               .partitions = ((apart_t *)self)->ranks});
}

static const pl_handler_t apart_handlers[] = {
    PL_ON(start, apart_start),
    PL_ON(role, apart_role),
    PL_ON(process_dataloader, apart_split),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t apart = {.name = "apart",
                                     .help = "each rank by itself",
                                     .size = sizeof(apart_t),
                                     .role = "strategy",
                                     .level = PL_LEVEL_STRATEGY,
                                     .handlers = apart_handlers,
                                     .base = &pl_replica_strategy};

/* All ranks but rank 1 report an address, and wait in vain to be connected. */
static int uneven_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)call, (void)err;
    ((apart_t *)self)->ranks = body->start.ranks;
    if (pl_actor_rank(self) == 1)
        pl_actor_ready(self);
    else
        pl_actor_ready_at(self, "here");
    return PL_OK;
}

static int uneven_role(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    return pl_actor_rank(self) == 1 ? apart_role(self, call, body, err) : PL_OK;
}

static const pl_handler_t uneven_handlers[] = {
    PL_ON(start, uneven_start),
    PL_ON(role, uneven_role),
    PL_ON(process_dataloader, apart_split),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t uneven = {.name = "uneven",
                                      .help = "a rank that does not wait for the others",
                                      .size = sizeof(apart_t),
                                      .role = "strategy",
                                      .level = PL_LEVEL_STRATEGY,
                                      .handlers = uneven_handlers,
                                      .base = &pl_replica_strategy};

#define THREE "\"devices\": 3, \"strategy\": \"apart\", \"max_epochs\": 2"
#define UNEVEN "\"devices\": 3, \"strategy\": \"uneven\""
#define DATA "\"batch_size\": 4, \"shuffle\": false"

/* ---- Tests ---- */

static int ranks_seen(json_t *stream)
{
    unsigned seen = 0;
    size_t k;
    json_t *message;
    json_array_foreach(stream, k, message) {
        const json_int_t rank = json_integer_value(json_object_get(message, "rank"));
        if (rank >= 0)
            seen |= 1u << rank;
    }
    json_decref(stream);
    return (int)seen;
}

static void the_result_is_rank_0s(void)
{
    rig_t *rig = rig_new(.trainer = THREE, .data = DATA, .samples = 24, .stream = true);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "three ranks run: %s", result->error.text);
    is_int(result->global_step, 4, "each takes 2 batches of its 8 samples in an epoch");
    ok(result->weight_count > 0 && result->run_dir, "with weights and a folder");
    is_int(rig_done(rig), 1, "one on_done");
    is_text(rig_fit(rig)->status, "ok", "a second fit works");
    rig_free(&rig);
    is_int(ranks_seen(rig_stream()), 7, "the stream has messages of ranks 0, 1 and 2");
}

static void a_rank_that_fails_ends_the_run_with_its_name(void)
{
    for (int record = 0; record < 3; record++) {
        rig_t *rig = rig_new(.trainer = THREE, .data = DATA, .samples = 24,
                             .torn = record + 1);
        const rig_result_t *result = rig_fit(rig);
        char where[32];
        snprintf(where, sizeof where, "rank %d ", record);
        is_text(result->status, "failed", "the run fails");
        like(result->error.text, "it is torn", "with the rank's error");
        like(result->error.where, where, "which is named");
        is_int(rig_done(rig), 1, "one on_done");
        rig_free(&rig);
    }
}

static void a_rank_that_is_stuck_is_named(void)
{
    int64_t began = pl_now();
    rig_t *rig = rig_new(.trainer = THREE ", \"step_timeout\": 0.5", .data = DATA,
                         .script = "replay 2 of forward_backward hangs", .samples = 24);
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "the run is stuck");
    like(result->error.where, "rank [012] ", "and says where");
    ok(pl_now() - began < 20 * PL_SECOND, "in bounded time");
    rig_free(&rig);
}

static void a_rank_that_ends_before_all_have_addresses_fails_the_run(void)
{
    rig_t *rig = rig_new(.trainer = UNEVEN ", \"max_epochs\": 2", .data = DATA,
                         .samples = 24);
    const int64_t began = pl_now();
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_EPROTOCOL", "%s", result->error.text);
    like(result->error.where, "^rank 1", "the rank is named");
    like(result->error.text, "ended its run before it reported an address", "and why");
    ok(pl_now() - began < 20 * PL_SECOND, "in bounded time");
    rig_free(&rig);
}

static void a_wait_for_an_address_has_a_limit(void)
{
    rig_t *rig = rig_new(.trainer = UNEVEN ", \"max_epochs\": -1, \"step_timeout\": 0.8",
                         .data = DATA, .samples = 24);
    const int64_t began = pl_now();
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_ETIMEOUT", "%s", result->error.text);
    like(result->error.where, "^rank 1", "the rank is named");
    like(result->error.text, "not reported an address .* for 1 s", "and the limit");
    ok(pl_now() - began < 20 * PL_SECOND, "in bounded time");
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t components[] = {{"strategy", &apart},
                                                   {"strategy", &uneven},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(the_result_is_rank_0s);
    run(a_rank_that_fails_ends_the_run_with_its_name);
    run(a_rank_that_is_stuck_is_named);
    run(a_rank_that_ends_before_all_have_addresses_fails_the_run);
    run(a_wait_for_an_address_has_a_limit);
    return tap_done();
}
