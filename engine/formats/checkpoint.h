/* checkpoint.h - a checkpoint on disk: a directory that appears complete or not at all
 *
 * It contains model.safetensors, optimizer.safetensors and manifest.json, which lists the
 * others with their sizes and a CRC-32C of each block, and ends with one of itself; see
 * doc/checkpoints.md. It is written under another name, each file synced, the manifest
 * last; then it is renamed and its parent synced. Reading checks every byte. */
#ifndef PL_FORMATS_CHECKPOINT_H
#define PL_FORMATS_CHECKPOINT_H

#include <jansson.h>

#include "formats/durable.h"

#define PL_CHECKPOINT_MODEL "model.safetensors"
#define PL_CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define PL_CHECKPOINT_MANIFEST "manifest.json"
#define PL_CHECKPOINT_FORMAT "paceline checkpoint 1"

/* A checkpoint while it is written: begin, files, commit or abandon; after a commit
 * finish or roll back. */
typedef struct pl_checkpoint {
    char *path, *temporary;           /* of the folder; until the commit */
    bool replaced;                    /* `temporary` is the old checkpoint of that path */
} pl_checkpoint_t;

/* Creates the folder of a checkpoint for `path`, and the folder around it. PL_EIO,
 * PL_ENOMEM; after a failure there is nothing to abandon. */
int pl_checkpoint_begin(pl_checkpoint_t *checkpoint, const char *path, pl_error_t *err);

/* The path of a file in it, to be freed by pl_free(); NULL with PL_ENOMEM. */
char *pl_checkpoint_file(const pl_checkpoint_t *checkpoint, const char *name,
                         pl_error_t *err);

/* Writes the manifest and renames the folder into place durably. After an error the new
 * checkpoint is abandoned and an old one of that path is unchanged. */
int pl_checkpoint_commit(pl_checkpoint_t *checkpoint, json_t *manifest, pl_error_t *err);
void pl_checkpoint_abandon(pl_checkpoint_t *checkpoint);
/* After the check of a committed checkpoint: removes the old one, or removes the new one
 * and restores the old one. */
void pl_checkpoint_finish(pl_checkpoint_t *checkpoint);
void pl_checkpoint_rollback(pl_checkpoint_t *checkpoint);

/* Adds a file that was written to "files" of the manifest. */
int pl_checkpoint_add_file(json_t *manifest, const char *name, const pl_checksums_t *sums,
                           pl_error_t *err);

/* The manifest of a checkpoint, whole and of this format; PL_EFORMAT, PL_ENOTFOUND,
 * PL_EIO name the file. */
json_t *pl_checkpoint_manifest(const char *path, pl_error_t *err);

/* Reads a file into `into` [the size of pl_checkpoint_measure()] and checks its blocks
 * against the manifest  [NULL: only checks]. */
int pl_checkpoint_read(const char *path, const json_t *manifest, const char *name,
                       void *into, pl_error_t *err);
/* The bytes of a file, checked against the manifest before memory is allocated for them.
 * PL_EFORMAT, PL_ENOTFOUND, PL_EIO name the file. */
int pl_checkpoint_measure(const char *path, const json_t *manifest, const char *name,
                          size_t *size, pl_error_t *err);

/* Reads and checks all files, from the disk where the system allows it. */
int pl_checkpoint_verify(const char *path, pl_error_t *err);

/* Removes a checkpoint; a missing one is not an error. */
int pl_checkpoint_remove(const char *path, pl_error_t *err);

/* Removes the rests of killed writers from a folder of checkpoints. No writer may be
 * active there. */
void pl_checkpoint_clean(const char *folder);

#endif
