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
typedef struct client {
    pl_control_server_t *server;
    bool delimits;                                          /* with an empty part */
    size_t size;
    char identity[CLIENT];                                  /* [size] */
} client_t;

struct pl_control_server {
    pl_commander_t commander;
    pl_socket_t *socket;
    char endpoint[300];
    client_t client;                                     /* of the request that arrives */
    int parts;                                           /* of it, so far */
    bool is_wrong;
    int open;                                               /* requests */
};

/* ---- replies ---- */

/* A client that has left, or does not read, gets no reply. */
static void reply_send(const client_t *client, const char *text, size_t size)
{
    pl_bytes_t parts[3] = {{client->identity, client->size}};
    int count = 1;
    if (client->delimits)
        parts[count++] = (pl_bytes_t){"", 0};
    parts[count++] = (pl_bytes_t){text, size};
    pl_socket_send_parts(client->server->socket, parts, count, NULL);
}

static void replied(const char *reply, size_t size, void *user)
{
    client_t *client = user;
    client->server->open--;
    reply_send(client, reply, size);
    pl_free(client);
}

static void refuse(const client_t *client, const char *code, const char *text)
{
    char *reply = pl_text("{\"error\":{\"code\":\"%s\",\"text\":\"%s\"}}", code, text);
    if (reply)
        reply_send(client, reply, strlen(reply));
    pl_text_free(reply);
}

/* ---- requests ---- */

static void request_came(pl_control_server_t *server, pl_bytes_t text)
{
    pl_error_t err = {0};
    char why[80];
    if (text.size > PL_REQUEST_MAX) {
        snprintf(why, sizeof why, "the request has %zu bytes; at most %d are allowed",
                 text.size, PL_REQUEST_MAX);
        refuse(&server->client, pl_code_name(PL_EINVAL), why);
        return;
    }
    if (server->open == OPEN_MAX) {
        refuse(&server->client, "PL_EBUSY",
               "too many requests wait for a reply: try again later");
        return;
    }
    client_t *client = pl_alloc(sizeof *client);
    if (!client)
        return;
    *client = server->client;
    server->open++;
    if (server->commander.post(server->commander.self, text.data, text.size, replied,
                               client, &err)
        == PL_OK)
        return;
    server->open--;
    pl_free(client);
    refuse(&server->client, pl_code_name(err.code), "the request was refused");
}

static void part_came(void *user, uint32_t more, pl_frame_t *frame)
{
    pl_control_server_t *server = user;
    client_t *client = &server->client;
    const pl_bytes_t part = frame ? pl_frame_bytes(frame) : (pl_bytes_t){0};
    if (server->parts++ == 0) {
        *client = (client_t){.server = server, .size = part.size};
        server->is_wrong = part.size > sizeof client->identity || !more;
        if (!server->is_wrong)
            memcpy(client->identity, part.data, part.size);
    } else if (more) {
        server->is_wrong |= part.size > 0 || client->delimits;
        client->delimits = true;
    } else if (!server->is_wrong) {
        request_came(server, part);
    }
    if (!more)
        server->parts = 0;
}

/* ---- life ---- */

pl_control_server_t *pl_control_open(const char *endpoint,
                                     const pl_commander_t *commander, pl_error_t *err)
{
    const pl_socket_spec_t spec = {.type = PL_SOCKET_DESK,
                                   .endpoint = endpoint,
                                   .bind = true,
                                   .high_water_mark = UNREAD_MAX,
                                   .linger_ms = LINGER_MS,
                                   .message_max = REPORTED_MAX};
    pl_error_t own = {0};
    pl_control_server_t *server = pl_alloc(sizeof *server);
    if (!server) {
        pl_no_memory(err);
        return NULL;
    }
    server->commander = *commander;
    if (pl_endpoint_is_public("control", endpoint, &own) == PL_OK
        && (server->socket = pl_socket_open(&spec, NULL, NULL, NULL, &own))
        && pl_socket_endpoint(server->socket, server->endpoint, sizeof server->endpoint,
                              &own)
               == PL_OK)
        return server;
    pl_fail(err, own.code, "%s", own.text);
    pl_control_close(server);
    return NULL;
}

int pl_control_serve(pl_control_server_t *server, pl_sockets_t *loop, pl_error_t *err)
{
    return pl_socket_attach(server->socket, loop, part_came, server, err);
}

const char *pl_control_endpoint(const pl_control_server_t *server)
{
    return server->endpoint;
}

void pl_control_close(pl_control_server_t *server)
{
    if (server)
        pl_socket_close(server->socket);
    pl_free(server);
}
