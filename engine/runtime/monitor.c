/* monitor.c - the stream: every message, offered once and without waiting, to who watches
 *
 * Publishing is paid by the caller of send, so rank threads never publish: they push one copy of each frame to a hub
 * with a thread of its own, which makes text of it.  What the hub cannot take is dropped; `seq` shows the gap. */
#include "runtime/monitor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

enum { BACKLOG = 20000, LINGER_MS = 1000, LINE_MOST = 8192 };

/* What stands before a frame on its way to the hub. */
typedef struct record {
    uint64_t seq;
    int64_t time;                                           /* ns since the runtime began */
    int32_t rank;
    int32_t unused;
} record_t;

struct pl_monitor {
    pl_reactor_t *reactor;                                  /* the hub's thread */
    pl_socket_t *in, *out;                                  /* PULL, XPUB */
    char in_endpoint[48], out_endpoint[256];
    bool lossless;
    int watchers;                                           /* atomic: subscriptions */
    char line[LINE_MOST];
};

static void hub_publish(void *user, uint32_t identity, void *zmq_message);
static void hub_subscription(void *user, uint32_t identity, void *zmq_message);

/* Beyond this machine nothing may listen without encryption and an allow-list. */
static int endpoint_check(const char *endpoint, pl_error_t *err)
{
    if (!strncmp(endpoint, "ipc://", 6) || !strncmp(endpoint, "tcp://127.", 10) || !strncmp(endpoint, "tcp://[::1]:", 12))
        return PL_OK;
    return pl_fail(err, PL_EINVAL, "monitor endpoint \"%s\": ipc://FILE or tcp://127.0.0.1:PORT (\"*\" for any port)",
                   endpoint);
}

static int hub_open(pl_monitor_t *m, const char *endpoint, pl_error_t *err)
{
    int most = m->lossless ? 0 : BACKLOG;
    snprintf(m->in_endpoint, sizeof m->in_endpoint, "inproc://paceline-hub-%d-%u", (int)getpid(), m->reactor->thread);
    pl_socket_spec_t in = {.type = PL_SOCKET_PULL, .endpoint = m->in_endpoint, .bind = true, .high_water_mark = most};
    pl_socket_spec_t out = {.type = PL_SOCKET_XPUB, .endpoint = endpoint, .bind = true, .high_water_mark = most,
                            .linger_ms = LINGER_MS};
    if (!(m->in = pl_socket_open(&in, m->reactor->base, hub_publish, m, err))
        || !(m->out = pl_socket_open(&out, m->reactor->base, hub_subscription, m, err)))
        return PL_EIO;
    return pl_socket_endpoint(m->out, m->out_endpoint, sizeof m->out_endpoint, err);
}

static void hub_free(pl_monitor_t *m)
{
    pl_socket_close(m->in);
    pl_socket_close(m->out);
    m->in = m->out = NULL;
}

static void hub_close(void *user)
{
    pl_monitor_t *m = user;
    pl_socket_drain(m->in);
    hub_free(m);
    pl_reactor_leave(m->reactor);
}

int pl_monitor_start(pl_runtime_t *runtime, const char *endpoint, bool lossless, pl_error_t *err)
{
    if (runtime->monitor)
        return pl_fail(err, PL_ESTATE, "the stream is published already, at %s", runtime->monitor->out_endpoint);
    int code = endpoint_check(endpoint, err);
    if (code != PL_OK)
        return code;
    pl_monitor_t *m = pl_alloc(sizeof *m);
    if (!m)
        return pl_no_memory(err);
    m->lossless = lossless;
    m->reactor = pl_reactor_new(runtime, -1, err);
    if (m->reactor && hub_open(m, endpoint, err) == PL_OK && pl_reactor_start(m->reactor, "monitor", err) == PL_OK) {
        __atomic_store_n(&runtime->monitor, m, __ATOMIC_RELEASE);
        return PL_OK;
    }
    hub_free(m);
    pl_reactor_free(m->reactor);
    pl_free(m);
    return PL_EIO;
}

const char *pl_monitor_endpoint(const pl_runtime_t *runtime)
{
    return runtime->monitor ? runtime->monitor->out_endpoint : "";
}

int pl_monitor_watchers(const pl_runtime_t *runtime)
{
    return runtime->monitor ? __atomic_load_n(&runtime->monitor->watchers, __ATOMIC_ACQUIRE) : 0;
}

void pl_monitor_stop(pl_runtime_t *runtime)
{
    pl_monitor_t *m = runtime->monitor;
    if (!m)
        return;
    pl_reactor_post(m->reactor, hub_close, m, NULL);
    pl_reactor_stop(m->reactor);
    hub_free(m);
    runtime->monitor = NULL;
    pl_free(m);
}

/* ---- the rank's side ---- */

void pl_monitor_offer(pl_reactor_t *reactor, const pl_frame_t *frame)
{
    pl_monitor_t *m = __atomic_load_n(&reactor->runtime->monitor, __ATOMIC_ACQUIRE);
    if (!m || (!m->lossless && __atomic_load_n(&m->watchers, __ATOMIC_RELAXED) == 0))
        return;
    if (!reactor->to_monitor) {
        pl_socket_spec_t push = {.type = PL_SOCKET_PUSH, .endpoint = m->in_endpoint,
                                 .high_water_mark = m->lossless ? 0 : BACKLOG};
        reactor->to_monitor = pl_socket_open(&push, NULL, NULL, NULL, NULL);
    }
    record_t record = {.seq = __atomic_fetch_add(&reactor->seq->next, 1, __ATOMIC_RELAXED),
                       .time = pl_now() - reactor->runtime->began, .rank = reactor->rank};
    if (reactor->to_monitor)
        pl_socket_send_bytes(reactor->to_monitor, (pl_bytes_t){&record, sizeof record}, pl_frame_bytes(frame), NULL);
}

/* ---- the hub's side ---- */

static void hub_subscription(void *user, uint32_t identity, void *zmq_message)
{
    (void)identity;
    pl_monitor_t *m = user;
    pl_bytes_t bytes = pl_message_bytes(zmq_message);
    if (bytes.size)
        __atomic_add_fetch(&m->watchers, *(const char *)bytes.data ? 1 : -1, __ATOMIC_ACQ_REL);
}

static void hub_publish(void *user, uint32_t identity, void *zmq_message)
{
    (void)identity;
    pl_monitor_t *m = user;
    pl_bytes_t bytes = pl_message_bytes(zmq_message);
    record_t record;
    pl_envelope_t e;
    if (!m->out || bytes.size < sizeof record + sizeof e)
        return;
    memcpy(&record, bytes.data, sizeof record);
    memcpy(&e, (const char *)bytes.data + sizeof record, sizeof e);
    pl_bytes_t frame = {(const char *)bytes.data + sizeof record, bytes.size - sizeof record};
    size_t length = pl_message_json(frame, record.seq, (double)record.time / 1e9, record.rank, m->line, sizeof m->line);
    const pl_message_info_t *info = pl_message_info(e.message);
    char topic[128];
    int topic_length = snprintf(topic, sizeof topic, "%d.%s.%s", record.rank, pl_kind_name(e.to_kind),
                                info ? info->name : "?");
    if (length)
        pl_socket_send_bytes(m->out, (pl_bytes_t){topic, (size_t)topic_length}, (pl_bytes_t){m->line, length}, NULL);
}
