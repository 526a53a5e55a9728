/* sink.h - a file that a tap writes without waiting for the disk
 *
 * What is put gathers in large buffers, and a thread of the file's own writes them.  When
 * the disk does not keep up or is full, pieces are dropped and training goes on. */
#ifndef PL_SIGHT_SINK_H
#define PL_SIGHT_SINK_H

#include "runtime/runtime.h"

typedef struct pl_sink pl_sink_t;

/* A new file at path; one that is there is called path.old from then on.  what: it, for
 * messages: "journal".  PL_EIO, PL_EINVAL (no plain file is there). */
pl_sink_t *pl_sink_new(pl_runtime_t *runtime, const char *path, const char *what,
                       pl_error_t *err);

/* Any but pl_sink_close(): one thread.  False: it was dropped, whole. */
bool pl_sink_put(pl_sink_t *sink, const void *data, size_t size);
/* What was put goes to the file soon. */
void pl_sink_push(pl_sink_t *sink);
/* Nothing more comes but an ending: what is put from now on waits for the disk. */
void pl_sink_last(pl_sink_t *sink);
/* Writes what is left, and frees it. */
void pl_sink_close(pl_sink_t *sink);

#endif
