/* control.c - a socket for commands to runs, from other processes of this machine
 *
 * A request comes from a REQ or DEALER socket of any language: the identity of the
 * client, perhaps an empty part, and one JSON object.  The reply returns in the same
 * way.  Replies of one client may come in another order, as a save takes longer than a
 * list; "id" identifies them.  Other messages are dropped.  The number of open
 * requests is bounded, and so is their length: a request that is too long gets an
 * error; for one above REPORTED_MAX ZeroMQ closes the connection. */
#include "telemetry/control.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "transport/endpoint.h"

enum {
    CLIENT = 256,
    OPEN_MAX = 64,
    UNREAD_MAX = 64,
    LINGER_MS = 500,
    REPORTED_MAX = 64 << 10,                   /* bytes of a request that gets an error */
};

/* The client of a request: the parts before the reply. */
typedef struct asker {
    pl_control_desk_t *desk;
    bool delimits;                                          /* with an empty part */
    size_t size;
    char client[CLIENT];                                    /* [size] */
} asker_t;

struct pl_control_desk {
    pl_commander_t commander;
    pl_socket_t *socket;
    char endpoint[300];
    asker_t asker;                                       /* of the request that arrives */
    int parts;                                           /* of it, so far */
    bool is_wrong;
    int open;                                               /* requests */
};

/* ---- replies ---- */

/* A client that has left, or does not read, gets no reply. */
static void reply_send(const asker_t *asker, const char *text, size_t size)
{
    pl_bytes_t parts[3] = {{asker->client, asker->size}};
    int count = 1;
    if (asker->delimits)
        parts[count++] = (pl_bytes_t){"", 0};
    parts[count++] = (pl_bytes_t){text, size};
    pl_socket_send_parts(asker->desk->socket, parts, count, NULL);
}

static void replied(const char *reply, size_t size, void *user)
{
    asker_t *asker = user;
    asker->desk->open--;
    reply_send(asker, reply, size);
    pl_free(asker);
}

static void refuse(const asker_t *asker, const char *code, const char *text)
{
    char *reply = pl_text("{\"error\":{\"code\":\"%s\",\"text\":\"%s\"}}", code, text);
    if (reply)
        reply_send(asker, reply, strlen(reply));
    pl_text_free(reply);
}

/* ---- requests ---- */

static void request_came(pl_control_desk_t *desk, pl_bytes_t text)
{
    pl_error_t err = {0};
    char why[80];
    if (text.size > PL_REQUEST_MAX) {
        snprintf(why, sizeof why, "the request has %zu bytes; at most %d are allowed",
                 text.size, PL_REQUEST_MAX);
        refuse(&desk->asker, pl_code_name(PL_EINVAL), why);
        return;
    }
    if (desk->open == OPEN_MAX) {
        refuse(&desk->asker, "PL_EBUSY",
               "too many requests wait for a reply: try again later");
        return;
    }
    asker_t *asker = pl_alloc(sizeof *asker);
    if (!asker)
        return;
    *asker = desk->asker;
    desk->open++;
    if (desk->commander.post(desk->commander.self, text.data, text.size, replied, asker,
                             &err)
        == PL_OK)
        return;
    desk->open--;
    pl_free(asker);
    refuse(&desk->asker, pl_code_name(err.code), "the request was refused");
}

static void part_came(void *user, uint32_t more, pl_frame_t *frame)
{
    pl_control_desk_t *desk = user;
    asker_t *asker = &desk->asker;
    const pl_bytes_t part = frame ? pl_frame_bytes(frame) : (pl_bytes_t){0};
    if (desk->parts++ == 0) {
        *asker = (asker_t){.desk = desk, .size = part.size};
        desk->is_wrong = part.size > sizeof asker->client || !more;
        if (!desk->is_wrong)
            memcpy(asker->client, part.data, part.size);
    } else if (more) {
        desk->is_wrong |= part.size > 0 || asker->delimits;
        asker->delimits = true;
    } else if (!desk->is_wrong) {
        request_came(desk, part);
    }
    if (!more)
        desk->parts = 0;
}

/* ---- life ---- */

pl_control_desk_t *pl_control_open(const char *endpoint, const pl_commander_t *commander,
                                   pl_error_t *err)
{
    const pl_socket_spec_t spec = {.type = PL_SOCKET_DESK,
                                   .endpoint = endpoint,
                                   .bind = true,
                                   .high_water_mark = UNREAD_MAX,
                                   .linger_ms = LINGER_MS,
                                   .message_max = REPORTED_MAX};
    pl_error_t own = {0};
    pl_control_desk_t *desk = pl_alloc(sizeof *desk);
    if (!desk) {
        pl_no_memory(err);
        return NULL;
    }
    desk->commander = *commander;
    if (pl_endpoint_is_public("control", endpoint, &own) == PL_OK
        && (desk->socket = pl_socket_open(&spec, NULL, NULL, NULL, &own))
        && pl_socket_endpoint(desk->socket, desk->endpoint, sizeof desk->endpoint, &own)
               == PL_OK)
        return desk;
    pl_fail(err, own.code, "%s", own.text);
    pl_control_close(desk);
    return NULL;
}

int pl_control_serve(pl_control_desk_t *desk, pl_sockets_t *loop, pl_error_t *err)
{
    return pl_socket_attach(desk->socket, loop, part_came, desk, err);
}

const char *pl_control_endpoint(const pl_control_desk_t *desk)
{
    return desk->endpoint;
}

void pl_control_close(pl_control_desk_t *desk)
{
    if (desk)
        pl_socket_close(desk->socket);
    pl_free(desk);
}
