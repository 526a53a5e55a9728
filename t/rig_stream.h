/* rig_stream.h - a viewer that misses nothing: every message of an engine, kept */
#ifndef T_RIG_STREAM_H
#define T_RIG_STREAM_H

#include <jansson.h>

#include "runtime/reactor.h"

typedef struct rig_stream rig_stream_t;

/* Publishes the runtime's messages, none dropped, and reads them on a thread of its own.
 * NULL is diagnosed. */
rig_stream_t *rig_stream_new(pl_runtime_t *runtime);
/* After the runtime has ended: all that was read, a list of objects; *stream_p is
 * freed. */
json_t *rig_stream_take(rig_stream_t **stream_p);

#endif
