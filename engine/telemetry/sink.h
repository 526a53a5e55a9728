/* sink.h - a file that a tap writes without waiting for the disk
 *
 * Pieces gather in large buffers, which a thread of the file writes.  When the disk is
 * too slow, pieces are dropped; when it is full, the file ends after the last whole
 * piece. Training continues. */
#ifndef PL_TELEMETRY_SINK_H
#define PL_TELEMETRY_SINK_H

#include "runtime/runtime.h"

typedef struct pl_sink pl_sink_t;

typedef struct pl_sink_kind {
    const char *name;                                     /* for messages: "journal" */
    const char *begin;                                    /* first bytes of such a file */
    /* How many of the first bytes that were put belong to whole pieces.  Writer's
     * thread. */
    size_t (*whole)(const char *bytes, size_t size);
} pl_sink_kind_t;

/* Makes a file at path and locks it.  An existing file of its kind is renamed to
 * path.old, an empty one is used.  PL_EINVAL: another file is there; PL_EBUSY: another
 * process writes it; PL_EIO. */
pl_sink_t *pl_sink_new(pl_runtime_t *runtime, const char *path,
                       const pl_sink_kind_t *kind, pl_error_t *err);

/* One thread calls these; false: the piece was dropped as a whole. */
bool pl_sink_put(pl_sink_t *sink, const void *data, size_t size);
/* Starts to write what was put. */
void pl_sink_push(pl_sink_t *sink);
/* Only the end of the file follows: from now on pl_sink_put() waits for the disk. */
void pl_sink_last(pl_sink_t *sink);
/* Writes the rest and frees the sink. */
void pl_sink_close(pl_sink_t *sink);

#endif
