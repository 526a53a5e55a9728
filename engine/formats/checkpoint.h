/* checkpoint.h - a checkpoint on disk: a directory that is there whole or not at all
 *
 * model.safetensors, optimizer.safetensors and manifest.json, which names the others with
 * their sizes and a CRC-32C of each block, and ends with one of itself; see
 * doc/checkpoints.md.  Written under another name, each file synced, the manifest last,
 * then renamed and the parent synced.  What is read is checked to the last byte. */
#ifndef PL_FORMATS_CHECKPOINT_H
#define PL_FORMATS_CHECKPOINT_H

#include <jansson.h>

#include "formats/durable.h"

#define PL_CHECKPOINT_MODEL "model.safetensors"
#define PL_CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define PL_CHECKPOINT_MANIFEST "manifest.json"
#define PL_CHECKPOINT_FORMAT "paceline checkpoint 1"

/* Of what a checkpoint is written to: begin, files, commit or abandon; settle or take
 * back what was committed. */
typedef struct pl_checkpoint {
    char *path, *temporary;      /* of the folder; until then */
    bool replaced;               /* another had the path, and lies in the other one now */
} pl_checkpoint_t;

/* Makes the folder that is to be at `path`, and the one around it.  PL_EIO, PL_ENOMEM;
 * after a failure there is nothing to abandon. */
int pl_checkpoint_begin(pl_checkpoint_t *checkpoint, const char *path, pl_error_t *err);

/* The path of a file in it, to be freed by pl_free(); NULL with PL_ENOMEM. */
char *pl_checkpoint_file(const pl_checkpoint_t *checkpoint, const char *name,
                         pl_error_t *err);

/* Writes the manifest, with the files' sums added, and puts all in its place durably;
 * after an error it is abandoned, and what was there under that name is there. */
int pl_checkpoint_commit(pl_checkpoint_t *checkpoint, json_t *manifest, pl_error_t *err);
void pl_checkpoint_abandon(pl_checkpoint_t *checkpoint);
/* Once it is known to be good what it has replaced is removed; or it is itself, and the
 * other has its place again. */
void pl_checkpoint_finish(pl_checkpoint_t *checkpoint);
void pl_checkpoint_rollback(pl_checkpoint_t *checkpoint);

/* Notes a file that was written in the manifest's "files". */
int pl_checkpoint_add_file(json_t *manifest, const char *name, const pl_checksums_t *sums,
                           pl_error_t *err);

/* The manifest of a checkpoint, whole and of this format; PL_EFORMAT, PL_ENOTFOUND,
 * PL_EIO name the file. */
json_t *pl_checkpoint_manifest(const char *path, pl_error_t *err);

/* Reads a file of it into memory and holds it against the manifest; block by block into
 * `into` [size that pl_checkpoint_measure() says], or, when that is NULL, only to
 * look. */
int pl_checkpoint_read(const char *path, const json_t *manifest, const char *name,
                       void *into, pl_error_t *err);
/* The bytes of a file, which are those that the manifest has for it: before anything is
 * allocated for them.  PL_EFORMAT, PL_ENOTFOUND, PL_EIO name the file. */
int pl_checkpoint_measure(const char *path, const json_t *manifest, const char *name,
                          size_t *size, pl_error_t *err);

/* Reads all of it back, from the disk as far as the system lets us. */
int pl_checkpoint_verify(const char *path, pl_error_t *err);

/* Removes a checkpoint; what is not there is fine. */
int pl_checkpoint_remove(const char *path, pl_error_t *err);

/* Removes what writers that were killed have left in a folder of checkpoints.  Nobody may
 * be writing there. */
void pl_checkpoint_clean(const char *folder);

#endif
