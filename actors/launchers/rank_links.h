/* rank_links.h - the links of a launcher with the processes of its ranks
 *
 * One link for calls and one for bulk data, for all ranks, in a folder or at an address
 * that the ranks know; the proxy of a rank receives what comes from it.  Counted; on the
 * launcher's thread alone, and gone with the last reference. */
#ifndef PL_LAUNCHERS_RANK_LINKS_H
#define PL_LAUNCHERS_RANK_LINKS_H

#include "actors/launchers/bootstrap.h"
#include "actors/launchers/forwarding.h"
#include "runtime/runtime.h"

struct pl_ranks;
struct pl_worker_pool;

/* What receives the messages and events of one rank: its proxy.  None of these may free
 * the links. */
typedef struct pl_rank_receiver_ops {
    void (*on_message)(void *self, pl_frame_t *message);    /* [it is dropped] */
    /* Of the link for calls; GONE and LEFT of bulk as well. */
    void (*on_event)(void *self, pl_link_event_t event, const char *text);
} pl_rank_receiver_ops_t;

typedef struct pl_rank_receiver {
    const pl_rank_receiver_ops_t *ops;                      /* [no proxy] */
    void *self;
    pl_outbox_t *outbox;            /* of self */
    char early[128];                /* process that joined before its proxy  ["": none] */
    bool is_streamed;               /* a proxy's process has the address of the stream */
} pl_rank_receiver_t;

enum { PL_RANK_LINKS_ENDPOINT = 300 };

/* Fields are for reading, except is_hurried and was_killed. */
typedef struct pl_rank_links {
    pl_object_t object;
    pl_link_t *calls;
    pl_bulk_t *bulk;
    struct pl_worker_pool *pool;  /* whose processes the ranks are  [none] */
    pl_bootstrap_t bootstrap;     /* of any rank: run, incarnation */
    int count, joined;            /* ranks; those of this incarnation that have joined */
    bool were_all_there;          /* all ranks of one incarnation */
    bool was_killed;              /* a process of this incarnation, by SIGKILL, which the
                                     launcher did not send */
    bool is_hurried;              /* processes of ranks that are to end, and were started
                                     here, get no time for that, in this incarnation */
    char *run_dir;                /* which a rank has reported  [not yet] */
    pl_address_t log_writer;      /* writes the output of the processes: a child of the
                                     launcher, older than any proxy, so that it ends after
                                     them  [none: another program started them] */
    char folder[PL_SOCKET_FOLDER];
    int lock;                                              /* of the folder  [-1: none] */
    pl_keys_t keys;
    bool has_keys;
    char stream_path[PL_RANK_LINKS_ENDPOINT];         /* where messages for the stream can
                                                         arrive */
    char stream[PL_RANK_LINKS_ENDPOINT];              /* where they do  ["": nowhere] */
    bool is_stream_tried;
    pl_runtime_t *runtime;
    uint64_t launched;                           /* the call that all ranks are part of */
    pl_rank_receiver_t receiver[];               /* [count at the start] */
} pl_rank_links_t;

typedef struct pl_rank_links_spec {
    int count;                    /* ranks */
    int join_ms;                  /* until all must have joined */
    const char *endpoint;         /* where ranks that another program has started connect;
                                     this process is rank 0 then, and the others hold a
                                     lease  [a folder, for ranks that die with this
                                     process] */
    const pl_keys_t *keys;        /* [none] */
    const char *traits;           /* of rank 0  [none] */
    struct pl_worker_pool *pool;  /* whose processes the ranks are, and whose folder it
                                     is  [each process is started for this run] */
    uint64_t run;
    bool takes_any;                     /* the other ranks do not know the run's number */
    uint32_t incarnation;
} pl_rank_links_spec_t;

/* For the launcher, which must outlive them. */
pl_rank_links_t *pl_rank_links_new(void *launcher, const pl_rank_links_spec_t *spec,
                                   pl_error_t *err);

/* Fills in the outbox, which is flushed when the rank can receive.  JOINED follows at
 * once for a rank that joined before. */
void pl_rank_links_attach(pl_rank_links_t *links, int rank,
                          const pl_rank_receiver_ops_t *ops, void *self,
                          pl_outbox_t *outbox);
/* Unless another has attached itself since. */
void pl_rank_links_detach(pl_rank_links_t *links, int rank, const void *self);
/* The rank has left or is gone on both links: nothing arrives any more. */
bool pl_rank_links_is_over(const pl_rank_links_t *links, int rank);
/* A rank that has not joined will not: its proxy receives GONE. */
void pl_rank_links_abort(pl_rank_links_t *links, int rank, const char *why);
/* Begins a new incarnation, of no more ranks than at the start, after all have ended. */
int pl_rank_links_renew(pl_rank_links_t *links, int count, pl_error_t *err);
/* A rank has reported the run directory  ["": not]. */
void pl_rank_links_tell_run_dir(pl_rank_links_t *links, const char *path);
/* ["": not known yet] */
const char *pl_rank_links_run_dir(const pl_rank_links_t *links);

/* Where that rank finds its launcher, as a variable of the environment. */
void pl_rank_links_bootstrap(const pl_rank_links_t *links, int rank,
                             char text[PL_BOOTSTRAP_TEXT]);

/* ---- The result, for processes that requested the run by themselves ---- */

typedef struct pl_result_broadcast {
    struct pl_ranks *ranks;                                 /* the launcher */
    pl_blob_t *outcome;                                     /* packed  [failed] */
    pl_error_t error;
    bool is_begun;
    int first, count;
    struct pl_broadcast_peer *peer;                         /* [count], by rank */
} pl_result_broadcast_t;

/* When all ranks of a launcher have ended: sends the outcome, or the error, to each
 * process from rank `first` on that is connected, and answers the launcher's run when all
 * have it and have left, or are gone, or a limit has passed.  To be freed with the
 * launcher  [NULL: out of memory; the run is answered]. */
pl_result_broadcast_t *pl_result_broadcast(struct pl_ranks *ranks, int first);
void pl_result_broadcast_free(pl_result_broadcast_t *broadcast);

#endif
