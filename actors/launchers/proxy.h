/* proxy.h - the worker of a rank that runs in another process */
#ifndef PL_LAUNCHERS_PROXY_H
#define PL_LAUNCHERS_PROXY_H

#include "actors/launchers/rank_links.h"
#include "actors/launchers/ranks.h"
#include "runtime/actor.h"

/* Takes `run`, `join` and `stop` as a worker does, and its `start` ends when the process
 * has.  Option "rank"; the context of its start is the launcher's pl_rank_links_t. */
extern const pl_actor_ops_t pl_proxy;

/* Starts it, as `start` of pl_ranks_ops_t does; foreign: another program has started the
 * process. */
uint64_t pl_proxy_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_rank_links_t *links,
                        bool is_foreign, pl_how_t life, pl_error_t *err);

#endif
