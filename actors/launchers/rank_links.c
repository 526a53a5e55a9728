/* rank_links.c - the links of a launcher with the processes of its ranks */
#include "actors/launchers/rank_links.h"

#include <stdio.h>
#include <string.h>

#include "actors/launchers/worker_pool.h"
#include "actors/launchers/bootstrap.h"
#include "actors/launchers/rendezvous.h"
#include "actors/launchers/rank_log.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/timeouts.h"
#include "runtime/monitor.h"
#include "runtime/reactor.h"

enum {
    ENDPOINT = 300,
    ABOUT = 128,
};

typedef struct end {
    const pl_rank_end_ops_t *ops;                           /* [no proxy] */
    void *self;
    char early[ABOUT];              /* process that joined before its proxy  ["": none] */
} end_t;

struct pl_rank_links {
    pl_object_t object;
    char folder[PL_SOCKET_FOLDER];
    int lock;                                               /* of the folder; -1: none */
    pl_keys_t keys;
    bool has_keys;
    char stream_path[ENDPOINT];             /* where messages for the stream would come */
    char stream[ENDPOINT];                  /* where they do  ["": nowhere] */
    bool has_tried;                         /* to let them come */
    struct pl_worker_pool *pool;            /* whose it is  [NULL] */
    pl_runtime_t *runtime;
    uint64_t launched;                         /* the call that all of them are part of */
    pl_link_t *link;
    pl_bulk_t *bulk;
    pl_bootstrap_t bootstrap;                               /* of any rank */
    char *run_dir;                                          /* [not told yet] */
    pl_address_t log_writer;
    int count;
    int joined;                                            /* of this incarnation */
    bool were_there;                                       /* all of one */
    bool hurries;                                          /* see pl_rank_links_hurry() */
    end_t end[];
};

/* ---- what happens ---- */

static const end_t *end_of(const pl_rank_links_t *links, int rank)
{
    bool there = rank >= 0 && rank < links->count && links->end[rank].ops;
    return there ? &links->end[rank] : NULL;
}

static void message_came(void *user, int rank, pl_frame_t *message)
{
    const end_t *end = end_of(user, rank);
    if (end)
        end->ops->on_message(end->self, message);
}

/* The link for bulk is missed only of ranks that have joined by the other. */
static void missing_tell(pl_rank_links_t *links, const pl_link_t *link, const char *text)
{
    for (int k = 0; k < links->count; k++) {
        const end_t *end = end_of(links, k);
        const bool has_called = pl_link_state(links->link, k) != PL_LINK_AWAITED;
        if (end && has_called == (link != links->link)
            && pl_link_state(link, k) == PL_LINK_AWAITED)
            end->ops->on_event(end->self, PL_LINK_MISSING, text);
    }
}

static void link_event(void *user, int rank, pl_link_event_t event, const char *text)
{
    pl_rank_links_t *links = user;
    const end_t *end = end_of(links, rank);
    links->joined += event == PL_LINK_JOINED;
    links->were_there |= links->joined == links->count;
    if (event == PL_LINK_GONE)
        pl_link_died(pl_bulk_link(links->bulk), rank);
    if (event == PL_LINK_JOINED && !end)
        snprintf(links->end[rank].early, ABOUT, "%s", text);
    if (event == PL_LINK_REFUSED) {
        pl_log_line(PL_LOG_WARNING, rank, "", "the connection of %s was refused: %s",
                    rank < 0 ? "an unknown peer" : "the rank's process", text);
    } else if (event == PL_LINK_MISSING) {
        missing_tell(links, links->link, text);
    } else if (end) {
        end->ops->on_event(end->self, event, text);
    }
}

static void bulk_event(void *user, int rank, pl_link_event_t event, const char *text)
{
    pl_rank_links_t *links = user;
    const end_t *end = end_of(links, rank);
    if (end && (event == PL_LINK_GONE || event == PL_LINK_LEFT))
        end->ops->on_event(end->self, event, text);
    if (event == PL_LINK_MISSING)
        missing_tell(links, pl_bulk_link(links->bulk), text);
}

static void bulk_sent(void *user, int rank, uint64_t transfer, const pl_error_t *error)
{
    const end_t *end = end_of(user, rank);
    if (end)
        end->ops->on_sent(end->self, transfer, error);
}

void pl_rank_links_attach(pl_rank_links_t *links, int rank, const pl_rank_end_ops_t *ops,
                          void *self)
{
    char early[ABOUT];              /* process that joined before its proxy  ["": none] */
    memcpy(early, links->end[rank].early, ABOUT);
    links->end[rank] = (end_t){ops, self, ""};
    if (*early && pl_link_state(links->link, rank) != PL_LINK_AWAITED)
        ops->on_event(self, PL_LINK_JOINED, early);
}

void pl_rank_links_detach(pl_rank_links_t *links, int rank, const void *self)
{
    if (links->end[rank].self == self)
        links->end[rank] = (end_t){0};
}

pl_outbox_t pl_rank_links_outbox(const pl_rank_links_t *links, int rank)
{
    return (pl_outbox_t){.link = links->link,
                         .peer = rank,
                         .run = links->bootstrap.run,
                         .incarnation = links->bootstrap.incarnation,
                         .bulk = links->bulk};
}

struct pl_worker_pool *pl_rank_links_worker_pool(const pl_rank_links_t *links)
{
    return links->pool;
}

pl_link_t *pl_rank_links_calls(const pl_rank_links_t *links)
{
    return links->link;
}

pl_bulk_t *pl_rank_links_bulk(const pl_rank_links_t *links)
{
    return links->bulk;
}

bool pl_rank_links_is_over(const pl_rank_links_t *links, int rank)
{
    return pl_link_state(links->link, rank) >= PL_LINK_HAS_LEFT
           && pl_link_state(pl_bulk_link(links->bulk), rank) >= PL_LINK_HAS_LEFT;
}

bool pl_rank_links_is_awaited(const pl_rank_links_t *links, int rank)
{
    return pl_link_state(links->link, rank) == PL_LINK_AWAITED;
}

void pl_rank_links_abort(pl_rank_links_t *links, int rank, const char *why)
{
    const end_t *end = end_of(links, rank);
    pl_link_dismiss(links->link, rank, why);
    if (end)
        end->ops->on_event(end->self, PL_LINK_GONE, why);
}

void pl_rank_links_died(pl_rank_links_t *links, int rank)
{
    pl_link_died(links->link, rank);
    pl_link_died(pl_bulk_link(links->bulk), rank);
}

int pl_rank_links_renew(pl_rank_links_t *links, int count, pl_error_t *err)
{
    const uint32_t incarnation = links->bootstrap.incarnation + 1;
    int code = pl_link_renew(links->link, incarnation, count, err);
    if (code == PL_OK)
        code = pl_bulk_renew(links->bulk, incarnation, count, err);
    if (code != PL_OK)
        return code;
    links->bootstrap.incarnation = incarnation;
    links->bootstrap.world_size = links->count = count;
    links->joined = 0;
    links->hurries = false;
    return PL_OK;
}

uint32_t pl_rank_links_incarnation(const pl_rank_links_t *links)
{
    return links->bootstrap.incarnation;
}

bool pl_rank_links_are_awaited(const pl_rank_links_t *links)
{
    return links->joined < links->count;
}

void pl_rank_links_hurry(pl_rank_links_t *links)
{
    links->hurries = true;
}

bool pl_rank_links_are_hurried(const pl_rank_links_t *links)
{
    return links->hurries;
}

bool pl_rank_links_were_all_there(const pl_rank_links_t *links)
{
    return links->were_there;
}

void pl_rank_links_tell_run_dir(pl_rank_links_t *links, const char *path)
{
    char *own = pl_strdup(path);
    if (!own)
        return;
    pl_free(links->run_dir);
    links->run_dir = own;
}

const char *pl_rank_links_run_dir(const pl_rank_links_t *links)
{
    return links->run_dir ? links->run_dir : "";
}

pl_address_t pl_rank_links_log_writer(const pl_rank_links_t *links)
{
    return links->log_writer;
}

/* That may begin at any time. */
static void stream_open(pl_rank_links_t *links)
{
    pl_error_t err = {0};
    if (links->has_tried || !pl_monitor_gathers(links->runtime))
        return;
    links->has_tried = true;
    const pl_monitor_take_t how = {.endpoint = links->stream_path,
                                   .keys = links->has_keys ? &links->keys : NULL,
                                   .under = links->launched};
    if (pl_monitor_take(links->runtime, &how, links->stream, sizeof links->stream, &err)
        == PL_OK)
        return;
    links->stream[0] = '\0';
    pl_log_line(PL_LOG_WARNING, -1, "",
                "the stream has no messages of other processes: %s", err.text);
}

bool pl_rank_links_stream(pl_rank_links_t *links, bool has_clock, pl_bring_stream_t *msg)
{
    const pl_runtime_t *runtime = links->runtime;
    stream_open(links);
    if (!links->stream[0])
        return false;
    *msg = (pl_bring_stream_t){.endpoint = links->stream,
                               .run = runtime->run,
                               .time = has_clock ? (uint64_t)(pl_now() - runtime->began)
                                                 : 0,
                               .watched = pl_monitor_watchers(runtime) > 0,
                               .lossless = pl_monitor_is_lossless(runtime)};
    return true;
}

void pl_rank_links_stream_lost(const pl_rank_links_t *links, int rank)
{
    if (links->stream[0])
        pl_monitor_lost(links->runtime, links->stream, rank);
}

void pl_rank_links_bootstrap(const pl_rank_links_t *links, int rank,
                             char text[PL_BOOTSTRAP_TEXT])
{
    pl_bootstrap_t bootstrap = links->bootstrap;
    bootstrap.rank = rank;
    snprintf(bootstrap.folder, sizeof bootstrap.folder, "%s", links->folder);
    pl_bootstrap_write(&bootstrap, links->pool ? PL_BOOTSTRAP_IN_SCRIPT : PL_BOOTSTRAP,
                       text);
}

/* A rank that receives nothing for the lease ends itself, before another takes its
 * place. */
pl_link_times_t pl_rank_links_lease(int join_ms)
{
    return (pl_link_times_t){.join = join_ms, .has_lease = true};
}

/* ---- life ---- */

static void rank_links_release(pl_object_t *object)
{
    pl_rank_links_t *links = (pl_rank_links_t *)object;
    pl_bulk_free(links->bulk);
    pl_link_free(links->link);
    pl_free(links->run_dir);
    if (links->stream[0])
        pl_monitor_take_no_more(links->runtime, links->stream);
    if (!links->pool)
        pl_folder_remove(links->folder, links->lock);
    pl_keys_forget(&links->keys);
    pl_free(links);
}

/* Ranks receive the address for bulk when they join. */
static int rank_links_open(pl_rank_links_t *links, const pl_rank_links_spec_t *w,
                           const char *calls, const char *bulk, void *launcher,
                           pl_error_t *err)
{
    char bound[ENDPOINT];
    pl_link_spec_t spec = {.endpoint = bulk,
                           .keys = w->keys,
                           .run = w->run,
                           .incarnation = w->incarnation,
                           .world_size = w->count,
                           .sits = w->endpoint != NULL,
                           .times = {.join = w->join_ms},
                           .on_message = message_came,
                           .on_event = link_event,
                           .user = links};
    if (w->endpoint)
        spec.times = pl_rank_links_lease(w->join_ms);
    spec.times.join += PL_REJOIN_MS;                 /* one may join at the last moment */
    links->joined = spec.sits;
    links->were_there = links->joined == links->count;
    const pl_bulk_spec_t with = {.link = spec,
                                 .max = SIZE_MAX / 2,   /* ranks are this program's own */
                                 .on_sent = bulk_sent,
                                 .on_event = bulk_event,
                                 .user = links};
    links->bulk = pl_bulk_listen(&with, pl_actor_loop(launcher), err);
    if (!links->bulk
        || pl_link_endpoint(pl_bulk_link(links->bulk), bound, sizeof bound, err) != PL_OK)
        return err->code;
    spec.endpoint = calls;
    spec.times.join = w->join_ms;
    spec.about = bound;
    spec.watches = w->endpoint != NULL;
    spec.traits = w->traits;
    spec.takes_any = w->takes_any;
    links->link = pl_link_listen(&spec, pl_actor_loop(launcher), err);
    return links->link ? PL_OK : err->code;
}

static int rank_links_open_folder(pl_rank_links_t *links, const pl_rank_links_spec_t *w,
                                  void *launcher, pl_error_t *err)
{
    char calls[PL_FOLDER_PATH], bulk[PL_FOLDER_PATH];
    const pl_start_t start = {.options = ""};
    if (!pl_spawn(launcher, &pl_log_writer, PL_OWN_THREAD, &start, (pl_how_t){0},
                  &links->log_writer, err))
        return err->code;
    int code = PL_OK;
    if (w->pool)
        snprintf(links->folder, sizeof links->folder, "%s",
                 pl_worker_pool_folder(w->pool));
    else
        code = pl_folder_make(links->folder, &links->lock, err);
    pl_folder_path(links->folder, PL_FOLDER_CALLS, calls);
    pl_folder_path(links->folder, PL_FOLDER_BULK, bulk);
    pl_folder_path(links->folder, PL_FOLDER_STREAM, links->stream_path);
    return code == PL_OK ? rank_links_open(links, w, calls, bulk, launcher, err) : code;
}

static int rank_links_open_at(pl_rank_links_t *links, const pl_rank_links_spec_t *w,
                              void *launcher, pl_error_t *err)
{
    char calls[ENDPOINT], bulk[ENDPOINT];
    int code = pl_rendezvous_places(w->endpoint, calls, bulk, links->stream_path,
                                    ENDPOINT, err);
    return code == PL_OK ? rank_links_open(links, w, calls, bulk, launcher, err) : code;
}

pl_rank_links_t *pl_rank_links_new(void *launcher, const pl_rank_links_spec_t *spec,
                                   pl_error_t *err)
{
    const int count = spec->count;
    pl_rank_links_t *links = pl_alloc(sizeof *links + (size_t)count * sizeof *links->end);
    if (!links) {
        pl_no_memory(err);
        return NULL;
    }
    pl_object_init(&links->object, rank_links_release);
    links->count = count;
    links->lock = -1;
    if ((links->has_keys = spec->keys != NULL))
        links->keys = *spec->keys;
    links->pool = spec->pool;
    links->launched = pl_actor_doing(launcher);
    pl_runtime_t *runtime = links->runtime = pl_actor_runtime(launcher);
    links->bootstrap =
        (pl_bootstrap_t){.world_size = count,
                         .run = spec->run,
                         .incarnation = spec->incarnation,
                         .began = runtime->began,
                         .log_level = pl_log_level(),
                         .grace_ms = runtime->grace_ms,
                         .past_runs = spec->pool ? pl_worker_pool_past_runs(spec->pool)
                                                 : 0};
    int code = spec->endpoint ? rank_links_open_at(links, spec, launcher, err)
                              : rank_links_open_folder(links, spec, launcher, err);
    if (code == PL_OK)
        return links;
    pl_object_unref(links);
    return NULL;
}
