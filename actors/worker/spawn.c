/* spawn.c - the actors of a rank: which a run needs, and the addresses that they get */
#include "accelerators/actor.h"
#include "accelerators/auto_select.h"
#include "actors/connectors/checkpoint_io.h"
#include "actors/connectors/connectors.h"
#include "actors/connectors/writer.h"
#include "actors/loops/loops.h"
#include "actors/request.h"
#include "actors/worker/parts.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"

bool pl_worker_spawn(pl_worker_t *w, const pl_actor_ops_t *ops, pl_where_t where,
                     const pl_start_t *start, pl_address_t *at, pl_error_t *err)
{
    const pl_how_t how = {.on_answer = pl_worker_component_ended};
    return pl_spawn(w, ops, where, start, how, at, err) != 0;
}

int pl_worker_spawn_components(pl_worker_t *w, pl_error_t *err)
{
    const pl_actor_ops_t *strategy = pl_request_strategy(w->job, err);
    pl_start_t start = {.options = "",
                        .context = &w->job->object,
                        .ranks = w->ranks,
                        .local_rank = w->local_rank};
    pl_accelerator_probe(w->job, (int)w->local_rank);
    const char *device = pl_options_choice(w->job->options, "trainer.accelerator",
                                           pl_accelerator_auto(w->job->options));
    const pl_actor_ops_t *accelerator = pl_accelerator_actor(device, err);
    w->measures = pl_accelerator_measures(device);
    w->describes = pl_accelerator_describes(device);
    if (w->job->compiles && !pl_accelerator_keeps_kernels(device))
        return pl_fail(err, PL_EUNSUPPORTED,
                       "accelerator \"%s\" keeps no compiled kernels: there is nothing "
                       "to compile; for a card of another machine: paceline compile "
                       "--card sm_90",
                       device);
    const pl_how_t device_how = {.on_answer = pl_worker_component_reported,
                                 .context = &w->accelerator};
    if (!strategy || !accelerator
        || !pl_worker_spawn(w, &pl_io_writer, PL_OWN_THREAD, &start, &w->writer, err)
        || (w->job->stage == PL_TRAIN
            && !pl_worker_spawn(w, &pl_io_checkpoint, PL_OWN_THREAD, &start, &w->keeper,
                                err))
        || !pl_spawn(w, accelerator, PL_OWN_THREAD, &start, device_how, &w->accelerator,
                     err))
        return err->code;
    char *options = pl_request_options(w->job, "trainer.strategy", err);
    pl_start_t strategy_start = {.options = options,
                                 .context = &w->job->object,
                                 .ranks = w->ranks};
    pl_peers_add(&strategy_start.peers, "accelerator", w->accelerator);
    const pl_how_t how = {.on_answer = pl_worker_component_reported,
                          .context = &w->strategy};
    bool spawned = options
                   && pl_spawn(w, strategy, PL_SAME_THREAD, &strategy_start, how,
                               &w->strategy, err);
    pl_free(options);
    return spawned ? PL_OK : err->code;
}

bool pl_worker_spawn_savers(pl_worker_t *w, pl_error_t *err)
{
    char *options = pl_run_options_text(w->run_dir, w->content, err);
    pl_start_t start = {.options = options, .context = &w->job->object};
    pl_peers_add(&start.peers, "writer", w->writer);
    pl_peers_add(&start.peers, "keeper", w->keeper);
    bool spawned = options
                   && pl_worker_spawn(w, &pl_logger_connector, PL_SAME_THREAD, &start,
                                      &w->logger, err)
                   && (w->job->stage != PL_TRAIN
                       || pl_worker_spawn(w, &pl_checkpoint_connector, PL_SAME_THREAD,
                                          &start, &w->checkpoint, err));
    pl_text_free(options);
    return spawned;
}

static void peer_add(pl_start_t *start, const char *role, pl_address_t at)
{
    if (!pl_is_nobody(at))
        pl_peers_add(&start->peers, role, at);
}

bool pl_worker_spawn_loops(pl_worker_t *w, pl_error_t *err)
{
    pl_start_t start = {.options = "", .context = &w->job->object};
    pl_address_t evaluate, epoch;
    const pl_tuning_t *tuning = &w->job->tuning;
    const pl_actor_ops_t *loop = &pl_fit_loop;
    peer_add(&start, "data", w->data);
    pl_peers_add(&start.peers, "strategy", w->strategy);
    if (w->job->prompt) {
        start.options = w->weights->data_info;
        return pl_worker_spawn(w, &pl_generate_loop, PL_SAME_THREAD, &start, &w->loop,
                               err);
    }
    if (!pl_is_nobody(w->hooks.coordinator))
        pl_peers_add(&start.peers, "coordinator", w->strategy);
    if (tuning->num_training)
        return pl_worker_spawn(w, tuning->batch_size ? &pl_batch_size_finder : &pl_tuner,
                               PL_SAME_THREAD, &start, &w->loop, err);
    peer_add(&start, "callback", w->callback);
    peer_add(&start, "logger", w->logger);
    if (w->job->manual_signature) {
        peer_add(&start, "checkpoint", w->checkpoint);
        loop = &pl_manual_loop;
    } else if (w->job->stage == PL_PREDICT) {
        loop = &pl_predict_loop;
    } else {
        if (w->validates || w->job->stage != PL_TRAIN) {
            if (!pl_worker_spawn(w, &pl_evaluate_loop, PL_SAME_THREAD, &start, &evaluate,
                                 err))
                return false;
            pl_peers_add(&start.peers, "evaluate", evaluate);
        }
        if (w->job->stage != PL_TRAIN) {
            start.options = w->made;
            loop = &pl_measure_loop;
        } else {
            if (!pl_worker_spawn(w, &pl_epoch_loop, PL_SAME_THREAD, &start, &epoch, err))
                return false;
            pl_peers_add(&start.peers, "epoch", epoch);
            peer_add(&start, "checkpoint", w->checkpoint);
        }
    }
    return pl_worker_spawn(w, loop, PL_SAME_THREAD, &start, &w->loop, err);
}
