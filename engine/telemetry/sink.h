/* sink.h - a file that a tap writes without waiting for the disk
 *
 * What is put gathers in large buffers, and a thread of the file's own writes them.  When
 * the disk does not keep up, pieces are dropped; when it is full, the file ends behind
 * the last piece that is whole.  Training goes on. */
#ifndef PL_TELEMETRY_SINK_H
#define PL_TELEMETRY_SINK_H

#include "runtime/runtime.h"

typedef struct pl_sink pl_sink_t;

typedef struct pl_sink_kind {
    const char *name;                                       /* for messages: "journal" */
    const char *begin;                                      /* of each file of its kind */
    /* Of the first bytes of what was put, how many are of pieces that are whole.
     * Writer's thread. */
    size_t (*whole)(const char *bytes, size_t size);
} pl_sink_kind_t;

/* A new file at path, locked while it is written; one of its kind that is there is called
 * path.old from then on, an empty one is taken.  PL_EINVAL: something else is there;
 * PL_EBUSY: somebody writes it; PL_EIO. */
pl_sink_t *pl_sink_new(pl_runtime_t *runtime, const char *path,
                       const pl_sink_kind_t *kind, pl_error_t *err);

/* Any but pl_sink_close(): one thread.  False: it was dropped, whole. */
bool pl_sink_put(pl_sink_t *sink, const void *data, size_t size);
/* What was put goes to the file soon. */
void pl_sink_push(pl_sink_t *sink);
/* Nothing more comes but an ending: what is put from now on waits for the disk. */
void pl_sink_last(pl_sink_t *sink);
/* Writes what is left, and frees it. */
void pl_sink_close(pl_sink_t *sink);

#endif
