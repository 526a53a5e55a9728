/* wires.c - the links of a launcher with the processes of its ranks */
#include "actors/launchers/wires.h"

#include <stdio.h>
#include <string.h>

#include "actors/launchers/crew.h"
#include "actors/launchers/folder.h"
#include "actors/launchers/rendezvous.h"
#include "actors/launchers/scribe.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/deaths.h"
#include "runtime/monitor.h"
#include "runtime/reactor.h"

enum {
    ENDPOINT = 300,
    ABOUT = 128,
};

typedef struct end {
    const pl_wire_ops_t *ops;                               /* [nobody stands in] */
    void *self;
    char early[ABOUT];            /* who has joined before anybody stood in  ["": none] */
} end_t;

struct pl_wires {
    pl_object_t object;
    char folder[PL_LINK_FOLDER];
    int lock;                                               /* of the folder; -1: none */
    pl_keys_t keys;
    bool has_keys;
    char stream_door[ENDPOINT];             /* where messages for the stream would come */
    char stream[ENDPOINT];                  /* where they do  ["": nowhere] */
    bool has_tried;                         /* to let them come */
    struct pl_crew *crew;                   /* whose it is  [NULL] */
    pl_runtime_t *runtime;
    uint64_t launched;                         /* the call that all of them are part of */
    pl_link_t *link;
    pl_bulk_t *bulk;
    pl_place_t place;                                       /* of any rank */
    char *run_dir;                                          /* [not told yet] */
    pl_address_t scribe;
    int count;
    int joined;                                             /* of this incarnation */
    bool were_there;                                        /* all of one */
    bool hurries;                                           /* see pl_wires_hurry() */
    end_t end[];
};

/* ---- what happens ---- */

static const end_t *end_of(const pl_wires_t *wires, int rank)
{
    bool there = rank >= 0 && rank < wires->count && wires->end[rank].ops;
    return there ? &wires->end[rank] : NULL;
}

static void message_came(void *user, int rank, pl_frame_t *message)
{
    const end_t *end = end_of(user, rank);
    if (end)
        end->ops->on_message(end->self, message);
}

/* The link for bulk is missed only of ranks that have joined by the other. */
static void missing_tell(pl_wires_t *wires, const pl_link_t *link, const char *text)
{
    for (int k = 0; k < wires->count; k++) {
        const end_t *end = end_of(wires, k);
        const bool has_called = pl_link_state(wires->link, k) != PL_LINK_AWAITED;
        if (end && has_called == (link != wires->link)
            && pl_link_state(link, k) == PL_LINK_AWAITED)
            end->ops->on_event(end->self, PL_LINK_MISSING, text);
    }
}

static void link_event(void *user, int rank, pl_link_event_t event, const char *text)
{
    pl_wires_t *wires = user;
    const end_t *end = end_of(wires, rank);
    wires->joined += event == PL_LINK_JOINED;
    wires->were_there |= wires->joined == wires->count;
    if (event == PL_LINK_GONE)
        pl_link_died(pl_bulk_link(wires->bulk), rank);
    if (event == PL_LINK_JOINED && !end)
        snprintf(wires->end[rank].early, ABOUT, "%s", text);
    if (event == PL_LINK_REFUSED) {
        pl_log_line(PL_LOG_WARNING, rank, "", "the connection of %s was refused: %s",
                    rank < 0 ? "an unknown peer" : "the rank's process", text);
    } else if (event == PL_LINK_MISSING) {
        missing_tell(wires, wires->link, text);
    } else if (end) {
        end->ops->on_event(end->self, event, text);
    }
}

static void bulk_event(void *user, int rank, pl_link_event_t event, const char *text)
{
    pl_wires_t *wires = user;
    const end_t *end = end_of(wires, rank);
    if (end && (event == PL_LINK_GONE || event == PL_LINK_LEFT))
        end->ops->on_event(end->self, event, text);
    if (event == PL_LINK_MISSING)
        missing_tell(wires, pl_bulk_link(wires->bulk), text);
}

static void bulk_sent(void *user, int rank, uint64_t transfer, const pl_error_t *error)
{
    const end_t *end = end_of(user, rank);
    (void)transfer;
    if (end)
        end->ops->on_sent(end->self, error);
}

void pl_wires_attach(pl_wires_t *wires, int rank, const pl_wire_ops_t *ops, void *self)
{
    char early[ABOUT];            /* who has joined before anybody stood in  ["": none] */
    memcpy(early, wires->end[rank].early, ABOUT);
    wires->end[rank] = (end_t){ops, self, ""};
    if (*early && pl_link_state(wires->link, rank) != PL_LINK_AWAITED)
        ops->on_event(self, PL_LINK_JOINED, early);
}

void pl_wires_detach(pl_wires_t *wires, int rank, const void *self)
{
    if (wires->end[rank].self == self)
        wires->end[rank] = (end_t){0};
}

pl_outbox_t pl_wires_outbox(const pl_wires_t *wires, int rank)
{
    return (pl_outbox_t){wires->link, rank, wires->place.run, wires->place.incarnation,
                         NULL};
}

struct pl_crew *pl_wires_crew(const pl_wires_t *wires)
{
    return wires->crew;
}

pl_link_t *pl_wires_link(const pl_wires_t *wires)
{
    return wires->link;
}

pl_bulk_t *pl_wires_bulk(const pl_wires_t *wires)
{
    return wires->bulk;
}

bool pl_wires_is_over(const pl_wires_t *wires, int rank)
{
    return pl_link_state(wires->link, rank) >= PL_LINK_HAS_LEFT
           && pl_link_state(pl_bulk_link(wires->bulk), rank) >= PL_LINK_HAS_LEFT;
}

bool pl_wires_is_awaited(const pl_wires_t *wires, int rank)
{
    return pl_link_state(wires->link, rank) == PL_LINK_AWAITED;
}

void pl_wires_give_up(pl_wires_t *wires, int rank, const char *why)
{
    const end_t *end = end_of(wires, rank);
    pl_link_dismiss(wires->link, rank, why);
    if (end)
        end->ops->on_event(end->self, PL_LINK_GONE, why);
}

void pl_wires_died(pl_wires_t *wires, int rank)
{
    pl_link_died(wires->link, rank);
    pl_link_died(pl_bulk_link(wires->bulk), rank);
}

int pl_wires_renew(pl_wires_t *wires, int count, pl_error_t *err)
{
    const uint32_t incarnation = wires->place.incarnation + 1;
    int code = pl_link_renew(wires->link, incarnation, count, err);
    if (code == PL_OK)
        code = pl_bulk_renew(wires->bulk, incarnation, count, err);
    if (code != PL_OK)
        return code;
    wires->place.incarnation = incarnation;
    wires->place.world_size = wires->count = count;
    wires->joined = 0;
    wires->hurries = false;
    return PL_OK;
}

uint32_t pl_wires_epoch(const pl_wires_t *wires)
{
    return wires->place.incarnation;
}

bool pl_wires_are_awaited(const pl_wires_t *wires)
{
    return wires->joined < wires->count;
}

void pl_wires_hurry(pl_wires_t *wires)
{
    wires->hurries = true;
}

bool pl_wires_are_hurried(const pl_wires_t *wires)
{
    return wires->hurries;
}

bool pl_wires_were_all_there(const pl_wires_t *wires)
{
    return wires->were_there;
}

void pl_wires_tell_run_dir(pl_wires_t *wires, const char *path)
{
    char *own = pl_strdup(path);
    if (!own)
        return;
    pl_free(wires->run_dir);
    wires->run_dir = own;
}

const char *pl_wires_run_dir(const pl_wires_t *wires)
{
    return wires->run_dir ? wires->run_dir : "";
}

pl_address_t pl_wires_scribe(const pl_wires_t *wires)
{
    return wires->scribe;
}

/* That may begin at any time. */
static void stream_open(pl_wires_t *wires)
{
    pl_error_t err = {0};
    if (wires->has_tried || !pl_monitor_gathers(wires->runtime))
        return;
    wires->has_tried = true;
    const pl_monitor_take_t how = {.endpoint = wires->stream_door,
                                   .keys = wires->has_keys ? &wires->keys : NULL,
                                   .under = wires->launched};
    if (pl_monitor_take(wires->runtime, &how, wires->stream, sizeof wires->stream, &err)
        == PL_OK)
        return;
    wires->stream[0] = '\0';
    pl_log_line(PL_LOG_WARNING, -1, "",
                "the stream has no messages of other processes: %s", err.text);
}

bool pl_wires_stream(pl_wires_t *wires, bool has_clock, pl_bring_stream_t *msg)
{
    const pl_runtime_t *runtime = wires->runtime;
    stream_open(wires);
    if (!wires->stream[0])
        return false;
    *msg = (pl_bring_stream_t){.endpoint = wires->stream,
                               .run = runtime->run,
                               .time = has_clock ? (uint64_t)(pl_now() - runtime->began)
                                                 : 0,
                               .watched = pl_monitor_watchers(runtime) > 0,
                               .lossless = pl_monitor_is_lossless(runtime)};
    return true;
}

void pl_wires_stream_lost(const pl_wires_t *wires, int rank)
{
    if (wires->stream[0])
        pl_monitor_lost(wires->runtime, wires->stream, rank);
}

void pl_wires_place(const pl_wires_t *wires, int rank, char text[PL_PLACE_TEXT])
{
    pl_place_t place = wires->place;
    place.rank = rank;
    snprintf(place.folder, sizeof place.folder, "%s", wires->folder);
    pl_place_write(&place, wires->crew ? PL_PLACE_IN_SCRIPT : PL_PLACE, text);
}

/* Who hears nothing for the lease ends itself, before anybody takes its place. */
pl_link_times_t pl_wires_lease(int join_ms)
{
    return (pl_link_times_t){.join = join_ms,
                             .lease = PL_LEASE_MS,
                             .rejoin = PL_LEASE_REJOIN_MS};
}

/* ---- life ---- */

static void wires_release(pl_object_t *object)
{
    pl_wires_t *wires = (pl_wires_t *)object;
    pl_bulk_free(wires->bulk);
    pl_link_free(wires->link);
    pl_free(wires->run_dir);
    if (wires->stream[0])
        pl_monitor_take_no_more(wires->runtime, wires->stream);
    if (!wires->crew)
        pl_folder_remove(wires->folder, wires->lock);
    pl_keys_forget(&wires->keys);
    pl_free(wires);
}

/* Ranks find the place for bulk by what they are told when they join. */
static int wires_open(pl_wires_t *wires, const pl_wires_spec_t *w, const char *calls,
                      const char *bulk, void *launcher, pl_error_t *err)
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
                           .user = wires};
    if (w->endpoint)
        spec.times = pl_wires_lease(w->join_ms);
    spec.times.join += PL_LINK_REJOIN_MS;            /* one may join at the last moment */
    wires->joined = spec.sits;
    wires->were_there = wires->joined == wires->count;
    const pl_bulk_spec_t with = {.link = spec,
                                 .most = SIZE_MAX / 2,  /* ranks are this program's own */
                                 .on_sent = bulk_sent,
                                 .on_event = bulk_event,
                                 .user = wires};
    wires->bulk = pl_bulk_listen(&with, pl_actor_loop(launcher), err);
    if (!wires->bulk
        || pl_link_endpoint(pl_bulk_link(wires->bulk), bound, sizeof bound, err) != PL_OK)
        return err->code;
    spec.endpoint = calls;
    spec.times.join = w->join_ms;
    spec.about = bound;
    spec.watches = w->endpoint != NULL;
    spec.traits = w->traits;
    spec.takes_any = w->takes_any;
    wires->link = pl_link_listen(&spec, pl_actor_loop(launcher), err);
    return wires->link ? PL_OK : err->code;
}

static int wires_open_folder(pl_wires_t *wires, const pl_wires_spec_t *w, void *launcher,
                             pl_error_t *err)
{
    char calls[PL_DOOR_TEXT], bulk[PL_DOOR_TEXT];
    const pl_start_t start = {.options = ""};
    if (!pl_spawn(launcher, &pl_scribe, PL_OWN_THREAD, &start, (pl_how_t){0},
                  &wires->scribe, err))
        return err->code;
    int code = PL_OK;
    if (w->crew)
        snprintf(wires->folder, sizeof wires->folder, "%s", pl_crew_folder(w->crew));
    else
        code = pl_folder_make(wires->folder, &wires->lock, err);
    pl_place_door(wires->folder, PL_DOOR_CALLS, calls);
    pl_place_door(wires->folder, PL_DOOR_BULK, bulk);
    pl_place_door(wires->folder, PL_DOOR_STREAM, wires->stream_door);
    return code == PL_OK ? wires_open(wires, w, calls, bulk, launcher, err) : code;
}

static int wires_open_at(pl_wires_t *wires, const pl_wires_spec_t *w, void *launcher,
                         pl_error_t *err)
{
    char calls[ENDPOINT], bulk[ENDPOINT];
    int code = pl_rendezvous_places(w->endpoint, calls, bulk, wires->stream_door,
                                    ENDPOINT, err);
    return code == PL_OK ? wires_open(wires, w, calls, bulk, launcher, err) : code;
}

pl_wires_t *pl_wires_new(void *launcher, const pl_wires_spec_t *spec, pl_error_t *err)
{
    const int count = spec->count;
    pl_wires_t *wires = pl_alloc(sizeof *wires + (size_t)count * sizeof *wires->end);
    if (!wires) {
        pl_no_memory(err);
        return NULL;
    }
    pl_object_init(&wires->object, wires_release);
    wires->count = count;
    wires->lock = -1;
    if ((wires->has_keys = spec->keys != NULL))
        wires->keys = *spec->keys;
    wires->crew = spec->crew;
    wires->launched = pl_actor_doing(launcher);
    pl_runtime_t *runtime = wires->runtime = pl_actor_runtime(launcher);
    wires->place = (pl_place_t){.world_size = count,
                                .run = spec->run,
                                .incarnation = spec->incarnation,
                                .began = runtime->began,
                                .log_level = pl_log_level(),
                                .grace_ms = runtime->grace_ms,
                                .past = spec->crew ? pl_crew_past(spec->crew) : 0};
    int code = spec->endpoint ? wires_open_at(wires, spec, launcher, err)
                              : wires_open_folder(wires, spec, launcher, err);
    if (code == PL_OK)
        return wires;
    pl_object_unref(wires);
    return NULL;
}
