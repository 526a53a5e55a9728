/* endpoint_client.h - a connection to an engine of another process: its stream, or
 * where it takes commands
 *
 * A client of its own, as one in any language would be: it knows the endpoint and the
 * frames, nothing else. */
#ifndef CLI_ENDPOINT_CLIENT_H
#define CLI_ENDPOINT_CLIENT_H

#include <paceline.h>

typedef enum cli_endpoint_kind { CLI_STREAM, CLI_COMMANDS } cli_endpoint_kind_t;

typedef struct cli_endpoint_client {
    void *context, *socket, *events;          /* events: of the connection */
    void *frame;                              /* zmq_msg_t; the newest */
    bool connected, parted;                   /* it was once; it is not any more */
    bool reached;                             /* somebody is there, who may not greet */
    bool refused;                             /* somebody is there who speaks otherwise */
    bool was_silent;                          /* whoever was there last */
} cli_endpoint_client_t;

/* All zero before.  What nobody could ever be at is an error; that nobody is there yet is
 * none.  cli_disconnect() frees what was opened, also after an error. */
int cli_connect(cli_endpoint_client_t *c, cli_endpoint_kind_t kind, const char *endpoint,
                pl_error_t *err);
void cli_disconnect(cli_endpoint_client_t *c);

/* Of a stream: messages whose topic begins so; "": all. */
int cli_subscribe(cli_endpoint_client_t *c, const char *topic, pl_error_t *err);
/* Of commands: a request; false: it cannot be sent now. */
bool cli_send(cli_endpoint_client_t *c, const char *text);

/* For so long, or until something has come, there or to be read from a descriptor [-1],
 * or a signal has. */
void cli_wait(cli_endpoint_client_t *c, int other, double seconds);
/* The last frame of the next message that is there, with its length, until this is called
 * again; NULL: there is none. */
const char *cli_receive(cli_endpoint_client_t *c, size_t *length);

#endif
