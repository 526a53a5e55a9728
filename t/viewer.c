/* viewer.c - a client of the stream of the rig's runtime, with ZeroMQ and jansson only */
#include "viewer.h"

#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "actor_rig.h"
#include "runtime/monitor.h"
#include "tap.h"

void viewer_open(viewer_t *v, const char *topic)
{
    int max = 10, patience = 20000,
        six = strchr(pl_monitor_endpoint(rig.runtime), '[') != NULL;
    *v = (viewer_t){.context = zmq_ctx_new()};
    v->sub = zmq_socket(v->context, ZMQ_SUB);
    zmq_setsockopt(v->sub, ZMQ_RCVHWM, &max, sizeof max);
    zmq_setsockopt(v->sub, ZMQ_RCVTIMEO, &patience, sizeof patience);
    zmq_setsockopt(v->sub, ZMQ_IPV6, &six, sizeof six);
    zmq_setsockopt(v->sub, ZMQ_SUBSCRIBE, topic, strlen(topic));
    zmq_connect(v->sub, pl_monitor_endpoint(rig.runtime));
    ok(eventually(pl_monitor_watchers(rig.runtime) > 0), "the hub knows the viewer");
}

bool viewer_read(viewer_t *v, int flags)
{
    int more;
    size_t size = sizeof more;
    int length = zmq_recv(v->sub, v->topic, sizeof v->topic - 1, flags);
    if (length < 0 || zmq_getsockopt(v->sub, ZMQ_RCVMORE, &more, &size) || !more)
        return false;
    v->topic[length] = '\0';
    length = zmq_recv(v->sub, v->text, sizeof v->text - 1, 0);
    if (length < 0 || zmq_getsockopt(v->sub, ZMQ_RCVMORE, &more, &size) || more)
        return false;
    v->text[length] = '\0';
    json_decref(v->line);
    v->line = json_loads(v->text, JSON_REJECT_DUPLICATES, NULL);
    return v->line != NULL;
}

void viewer_close(viewer_t *v)
{
    json_decref(v->line);
    zmq_close(v->sub);
    zmq_ctx_term(v->context);
}

const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

int64_t number_of(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_integer(value) ? json_integer_value(value) : -99;
}

bool is_kind(const json_t *line, const char *kind)
{
    return !strcmp(text_of(line, "kind"), kind);
}

void act_last(void)
{
    pl_address_t bee;
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    pl_call_stop(rig.queen, bee, &(pl_stop_t){.reason = "enough"}, rig_how, NULL);
    rig_wait(1);
}

bool is_last(const json_t *line)
{
    return !strcmp(text_of(line, "name"), "stop") && is_kind(line, "error");
}

void stream_open(bool lossless)
{
    char endpoint[256];
    pl_error_t err = {0};
    rig_open();
    snprintf(endpoint, sizeof endpoint, "ipc://%s/stream", tap_folder());
    if (pl_monitor_start(rig.runtime, endpoint, lossless, &err))
        tap_diag("%s", err.text);
}
