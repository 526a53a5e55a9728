/* viewer.h - a client of the stream of the rig's runtime, with ZeroMQ and jansson only */
#ifndef T_VIEWER_H
#define T_VIEWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct viewer {
    void *context, *sub;
    char topic[256];
    char text[16384];
    json_t *line;                                           /* the newest */
} viewer_t;

/* Waits until the hub knows of it. */
void viewer_open(viewer_t *v, const char *topic);
/* The next line; flags of zmq_recv(). */
bool viewer_read(viewer_t *v, int flags);
void viewer_close(viewer_t *v);

/* Of a line. */
const char *text_of(const json_t *line, const char *key);
int64_t number_of(const json_t *line, const char *key);
bool is_kind(const json_t *line, const char *kind);

/* The last lines of a run: one call that no actor makes, and its end. */
void act_last(void);
bool is_last(const json_t *line);

/* A stream at "stream" in the folder of the test, of a new rig. */
void stream_open(bool lossless);

#endif
