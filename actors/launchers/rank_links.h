/* rank_links.h - the links of a launcher with the processes of its ranks
 *
 * One link for calls and one for bulk, for all ranks, in a folder of their own or where
 * the ranks look for them; the proxy of a rank receives what comes from it.
 * Counted; all on the launcher's thread, and gone with its last reference. */
#ifndef PL_LAUNCHERS_RANK_LINKS_H
#define PL_LAUNCHERS_RANK_LINKS_H

#include "actors/launchers/bootstrap.h"
#include "actors/launchers/forwarding.h"
#include "runtime/runtime.h"

typedef struct pl_rank_links pl_rank_links_t;

/* What happens at one rank's end.  None may end the links. */
typedef struct pl_rank_end_ops {
    void (*on_message)(void *self, pl_frame_t *message);
    /* Of the link of calls; GONE and LEFT of bulk as well. */
    void (*on_event)(void *self, pl_link_event_t event, const char *text);
    /* Bulk data has arrived there, or, with an error, never will. */
    void (*on_sent)(void *self, uint64_t transfer, const pl_error_t *error);
} pl_rank_end_ops_t;

typedef struct pl_rank_links_spec {
    int count;                    /* ranks */
    int join_ms;                  /* for all to have joined */
    const char *endpoint;         /* where ranks that another program has
                                     started connect; this process is rank 0 then, and the
                                     others hold a lease  [a folder, for ranks that
                                     die with this process] */
    const pl_keys_t *keys;        /* [none] */
    const char *traits;           /* of rank 0  [none] */
    struct pl_worker_pool *pool;  /* whose processes the ranks are, and whose folder
                                     it is  [each is started for the run alone] */
    uint64_t run;
    bool takes_any;                         /* the others were not told which run it is */
    uint32_t incarnation;
} pl_rank_links_spec_t;

/* For the launcher itself, which must outlive them. */
pl_rank_links_t *pl_rank_links_new(void *launcher, const pl_rank_links_spec_t *spec,
                                   pl_error_t *err);

/* Hears at once of a rank that has joined before anybody stood in for it. */
void pl_rank_links_attach(pl_rank_links_t *links, int rank, const pl_rank_end_ops_t *ops,
                          void *self);
/* Unless another has taken its place. */
void pl_rank_links_detach(pl_rank_links_t *links, int rank, const void *self);
/* For what is sent over them to a rank. */
pl_outbox_t pl_rank_links_outbox(const pl_rank_links_t *links, int rank);

struct pl_worker_pool *pl_rank_links_worker_pool(
    const pl_rank_links_t *links);                          /* [none] */
pl_link_t *pl_rank_links_calls(const pl_rank_links_t *links);
pl_bulk_t *pl_rank_links_bulk(const pl_rank_links_t *links);
/* The rank has left or is gone on both: nothing comes any more. */
bool pl_rank_links_is_over(const pl_rank_links_t *links, int rank);
void pl_rank_links_died(pl_rank_links_t *links, int rank);
/* The rank has not joined yet; it will not, and its proxy receives that it is gone. */
bool pl_rank_links_is_awaited(const pl_rank_links_t *links, int rank);
void pl_rank_links_abort(pl_rank_links_t *links, int rank, const char *why);
/* A new incarnation, of no more ranks than they were made for, after all have ended. */
int pl_rank_links_renew(pl_rank_links_t *links, int count, pl_error_t *err);
uint32_t pl_rank_links_incarnation(const pl_rank_links_t *links);
/* Not all ranks of this incarnation have joined yet; all of one have, of this or one
 * before. */
bool pl_rank_links_are_awaited(const pl_rank_links_t *links);
bool pl_rank_links_were_all_there(const pl_rank_links_t *links);
/* Processes of ranks that are to end, and were started here, are not waited for any more:
 * until the next incarnation. */
void pl_rank_links_hurry(pl_rank_links_t *links);
bool pl_rank_links_are_hurried(const pl_rank_links_t *links);
/* The run's folder, which one of the ranks tells all others  ["": not yet]. */
void pl_rank_links_tell_run_dir(pl_rank_links_t *links, const char *path);
const char *pl_rank_links_run_dir(const pl_rank_links_t *links);
/* The writer of the output of the ranks' processes: a child of the launcher, older
 * than any that stands in for a rank, so that it ends behind them  [none, if the
 * processes belong to another program]. */
pl_address_t pl_rank_links_log_writer(const pl_rank_links_t *links);

/* What a rank is to be told so that it brings its messages to the stream, with a clock of
 * its own or this process's; false: there is no stream here. */
bool pl_rank_links_stream(pl_rank_links_t *links, bool has_clock, pl_bring_stream_t *msg);

/* Reports to the stream that the process of a rank has died. */
void pl_rank_links_stream_lost(const pl_rank_links_t *links, int rank);

/* Where that rank finds its launcher, as a variable of the environment. */
void pl_rank_links_bootstrap(const pl_rank_links_t *links, int rank,
                             char text[PL_BOOTSTRAP_TEXT]);

/* Time limits of links with ranks that another program has started. */
pl_link_times_t pl_rank_links_lease(int join_ms);

#endif
