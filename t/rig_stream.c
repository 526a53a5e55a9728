/* rig_stream.c - a viewer that misses nothing: every message of an engine, kept */
#include "rig_stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/monitor.h"
#include "transport/socket.h"
#include "tap.h"

#define LINE_MAX 16384
#define QUIET_MS 300                              /* after which nothing more will come */

struct rig_stream {
    pl_socket_t *in;
    pthread_t thread;
    bool ended;                                /* atomic: the runtime has published all */
    json_t *lines;
};

static void *stream_read(void *user)
{
    rig_stream_t *stream = user;
    static __thread char line[LINE_MAX];
    for (;;) {
        bool ended = __atomic_load_n(&stream->ended, __ATOMIC_ACQUIRE);
        int64_t size = pl_socket_receive(stream->in, line, sizeof line, QUIET_MS, NULL);
        if (size <= 0 && ended)
            return NULL;
        if (size > 0)
            json_array_append_new(stream->lines, json_loadb(line, (size_t)size, 0, NULL));
    }
}

static bool stream_open(rig_stream_t *stream, pl_runtime_t *runtime, pl_error_t *err)
{
    if (!pl_context_acquire(err))                    /* so that it outlives the runtime */
        return false;
    if (pl_monitor_start(runtime, "tcp://127.0.0.1:*", true, err) != PL_OK)
        return false;
    pl_socket_spec_t spec = {.type = PL_SOCKET_SUB,
                             .endpoint = pl_monitor_endpoint(runtime)};
    stream->in = pl_socket_open(&spec, NULL, NULL, NULL, err);
    if (!stream->in || pl_socket_subscribe(stream->in, "", true, err) != PL_OK)
        return false;
    return eventually(pl_monitor_watchers(runtime) > 0)
           && pthread_create(&stream->thread, NULL, stream_read, stream) == 0;
}

rig_stream_t *rig_stream_new(pl_runtime_t *runtime)
{
    pl_error_t err = {0};
    rig_stream_t *stream = calloc(1, sizeof *stream);
    stream->lines = json_array();
    if (stream_open(stream, runtime, &err))
        return stream;
    tap_diag("%s", err.text);
    pl_socket_close(stream->in);
    json_decref(stream->lines);
    free(stream);
    return NULL;
}

json_t *rig_stream_take(rig_stream_t **stream_p)
{
    rig_stream_t *stream = *stream_p;
    *stream_p = NULL;
    __atomic_store_n(&stream->ended, true, __ATOMIC_RELEASE);
    pthread_join(stream->thread, NULL);
    pl_socket_close(stream->in);
    pl_context_release();
    json_t *lines = stream->lines;
    free(stream);
    return lines;
}
