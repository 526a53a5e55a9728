/* safetensors.h - named tensors in one file
 *
 * Eight bytes: the length of the header; the header, a JSON object of names with type,
 * shape and place; the data, without holes
 * (https://github.com/huggingface/safetensors). A file is never trusted: every place
 * is checked against its neighbours and the size of the file before anything is read.
 * Data is read on request, so that a file of many gigabytes costs no memory of its
 * own. */
#ifndef PL_FORMATS_SAFETENSORS_H
#define PL_FORMATS_SAFETENSORS_H

#include "paceline.h"

/* Bytes: the longest header, as in the reference; the length before the header. */
#define PL_SAFETENSORS_HEADER ((size_t)100 << 20)
#define PL_SAFETENSORS_PREFIX 8

typedef struct pl_safetensors_tensor {
    char *name;                                   /* "h.0.attn.weight" */
    char type[8];                                 /* as in the file: "F32", "BF16" */
    bool loadable;                                /* dtype is set: F32, F64, I32, I64, U8,
                                                     BF16, F16 */
    pl_dtype_t dtype;
    pl_shape_t shape;
    uint64_t offset, size;                              /* bytes, from the file's start */
} pl_safetensors_tensor_t;

/* One entry of the file's __metadata__. */
typedef struct pl_metadata {
    const char *key, *value;                                /* UTF-8 */
} pl_metadata_t;

/* An open file. */
typedef struct pl_safetensors {
    pl_safetensors_tensor_t *tensor;                    /* in the order of their places */
    int count;
    pl_metadata_t *metadata;                                /* sorted by key */
    int metadata_count;
    char *name;                                            /* of the file, for messages */
    int fd;                                                /* -1: in memory */
    const uint8_t *memory;
} pl_safetensors_t;

/* Opens a file and checks all of its header.  PL_ENOTFOUND, PL_EIO, PL_EFORMAT with file
 * and offset. */
int pl_safetensors_open(const char *path, pl_safetensors_t *file, pl_error_t *err);

/* The same for a file in memory, which must stay; errors name `name`. */
int pl_safetensors_read(const void *data, size_t size, const char *name,
                        pl_safetensors_t *file, pl_error_t *err);

void pl_safetensors_close(pl_safetensors_t *file);

/* The text under that key, or NULL. */
const char *pl_safetensors_metadata(const pl_safetensors_t *file, const char *key);

/* Copies a tensor to out [its shape], of its dtype, halves as float32.
 * PL_EUNSUPPORTED: not loadable; PL_EIO: the file was truncated since it was opened.
 * Several threads may load from one file at once. */
int pl_safetensors_load(const pl_safetensors_t *file,
                        const pl_safetensors_tensor_t *tensor, void *out,
                        pl_error_t *err);

/* A tensor to be written. */
typedef struct pl_safetensors_source {
    const char *name;
    pl_dtype_t dtype;
    pl_shape_t shape;
    const void *data;                            /* [shape] of dtype; of halves float32 */
} pl_safetensors_source_t;

typedef struct pl_safetensors_content {
    const pl_safetensors_source_t *tensor;            /* [count], written in this order */
    int count;
    const pl_metadata_t *metadata;                          /* [metadata_count]  [none] */
    int metadata_count;
    struct pl_checksums *sums;                             /* of the file  [not wanted] */
} pl_safetensors_content_t;

/* Writes a file durably: at `path` is the old file or the whole new one.  PL_EINVAL names
 * a tensor whose name is there twice or no UTF-8; PL_EIO as in durable.h. */
int pl_safetensors_write(const char *path, const pl_safetensors_content_t *content,
                         pl_error_t *err);

/* Between the .c files: fills tensors and metadata of *file, whose name is set; offsets
 * are as in the header, from the start of the data. After a failure the caller releases
 * what *file contains. */
int pl_safetensors_parse(pl_safetensors_t *file, const char *header, size_t size,
                         pl_error_t *err);

#endif
