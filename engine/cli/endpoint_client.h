/* endpoint_client.h - a connection to the engine of another process: to its stream, or to
 * the socket where it takes commands
 *
 * A client like one in any other language: it knows the endpoint and the frames, nothing
 * else. */
#ifndef CLI_ENDPOINT_CLIENT_H
#define CLI_ENDPOINT_CLIENT_H

#include <jansson.h>
#include <paceline.h>

typedef enum cli_endpoint_kind { CLI_STREAM, CLI_COMMANDS } cli_endpoint_kind_t;

typedef struct cli_endpoint_client {
    void *context, *socket, *events;         /* events: of the connection */
    void *frame;                             /* zmq_msg_t; the newest */
    bool connected, parted;                  /* it was once; it no longer is */
    bool reached;                            /* a process is there, which may not greet */
    bool refused;                            /* a process of another protocol is there */
    bool was_silent;                         /* the last process there did not greet */
} cli_endpoint_client_t;

/* *c starts as zeros. A malformed endpoint is an error; a run that is not up yet is not.
 * cli_disconnect() frees everything, also after an error. */
int cli_connect(cli_endpoint_client_t *c, cli_endpoint_kind_t kind, const char *endpoint,
                pl_error_t *err);
void cli_disconnect(cli_endpoint_client_t *c);

/* Of a stream: receives messages whose topic begins with `topic`; "": all. */
int cli_subscribe(cli_endpoint_client_t *c, const char *topic, pl_error_t *err);
/* Of commands: sends a request; false: it cannot be sent now. */
bool cli_send(cli_endpoint_client_t *c, const char *text);

/* Waits for a message, for input at the descriptor `other` [-1: none], or for a signal,
 * `seconds` at most. */
void cli_wait(cli_endpoint_client_t *c, int other, double seconds);
/* The last frame of the next message, valid until the next call; NULL: no message is
 * there. */
const char *cli_receive(cli_endpoint_client_t *c, size_t *length);

/* Writes the meaning of a reply to a command as a line without its end. Returns whether
 * the command was carried out. */
bool cli_reply_words(const json_t *reply, char *text, size_t capacity);

#endif
