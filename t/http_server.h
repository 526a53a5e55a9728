/* http_server.h - a small HTTP server on a loopback port, with given answers */
#ifndef T_HTTP_SERVER_H
#define T_HTTP_SERVER_H

#include <stdbool.h>

typedef enum http_mood {
    HTTP_NORMAL,                             /* as MLflow does */
    HTTP_BROKEN,                             /* status 500 */
    HTTP_MUTE,                               /* never answers */
    HTTP_DYING,                              /* closes the connection within the answer */
    HTTP_ODD,                                /* answers what is no JSON */
} http_mood_t;

/* Starts it on a port of the system's choice; its address, "http://127.0.0.1:40123". */
const char *http_start(http_mood_t mood);
/* Closes the port and forgets nothing; may be started again. */
void http_stop(void);
/* The requests so far, each as "POST /path body\n", oldest first; until the next
 * start. */
const char *http_requests(void);
/* What the newest of them said in its header Authorization; "": nothing. */
const char *http_authorization(void);

#endif
