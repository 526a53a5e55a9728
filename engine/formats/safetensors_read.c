/* safetensors_read.c - reads named tensors from one file
 *
 * Data is fetched with pread(). If another process truncates the file, a short read is an
 * error, while access to a mapped file would kill the process. */
#include "formats/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"
#include "base/json_path.h"
#include "base/json_text.h"

static int by_place(const void *a, const void *b)
{
    const pl_safetensors_tensor_t *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const pl_metadata_t *)a)->key, ((const pl_metadata_t *)b)->key);
}

static int check_tensor_names(const pl_safetensors_t *file, pl_error_t *err)
{
    const char **name = pl_alloc_array((size_t)file->count, sizeof *name);
    int code = name ? PL_OK : pl_no_memory(err);
    for (int i = 0; name && i < file->count; i++)
        name[i] = file->tensor[i].name;
    if (name && file->count > 0)
        qsort(name, (size_t)file->count, sizeof *name, by_text);
    for (int i = 1; code == PL_OK && i < file->count; i++)
        if (!strcmp(name[i - 1], name[i]))
            code = pl_fail(err, PL_EFORMAT, "%s: tensor '%.64s' appears twice",
                           file->name, name[i]);
    pl_free(name);
    return code;
}

/* Checks that the tensors fill [start, size) exactly, and makes their offsets count from
 * the start of the file. */
static int check_places(pl_safetensors_t *file, uint64_t start, uint64_t size,
                        pl_error_t *err)
{
    uint64_t end = 0;
    if (file->count > 0)
        qsort(file->tensor, (size_t)file->count, sizeof *file->tensor, by_place);
    for (int i = 0; i < file->count; i++) {
        pl_safetensors_tensor_t *tensor = &file->tensor[i];
        if (tensor->offset != end)
            return pl_fail(
                err, PL_EFORMAT,
                "%s: tensor '%.64s' begins at byte %llu, %s byte %llu, where the one "
                "before it ends",
                file->name, tensor->name, (unsigned long long)(start + tensor->offset),
                tensor->offset < end ? "before" : "after",
                (unsigned long long)(start + end));
        end += tensor->size;
        if (end > size - start)
            return pl_fail(
                err, PL_EFORMAT,
                "%s: truncated at byte %llu, in tensor '%.64s', which ends at %llu",
                file->name, (unsigned long long)size, tensor->name,
                (unsigned long long)(start + end));
        tensor->offset += start;
    }
    if (end < size - start)
        return pl_fail(err, PL_EFORMAT,
                       "%s: byte %llu: the rest of the file belongs to no tensor",
                       file->name, (unsigned long long)(start + end));
    return PL_OK;
}

/* Reads bytes of the file from `offset` on. */
static int fetch(const pl_safetensors_t *file, uint64_t offset, void *out, size_t size,
                 pl_error_t *err)
{
    char *rest = out;
    if (file->fd < 0) {
        if (size > 0)
            memcpy(out, file->memory + offset, size);
        return PL_OK;
    }
    while (size > 0) {
        ssize_t n = pread(file->fd, rest, size < (1u << 30) ? size : 1u << 30,
                          (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pl_fail(err, PL_EIO, "%s: byte %llu: %m", file->name,
                           (unsigned long long)offset);
        if (n == 0)
            return pl_fail(err, PL_EIO, "%s: truncated at byte %llu since it was opened",
                           file->name, (unsigned long long)offset);
        rest += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return PL_OK;
}

static int read_header(pl_safetensors_t *file, uint64_t size, pl_error_t *err)
{
    uint64_t length;
    if (size < PL_SAFETENSORS_PREFIX)
        return pl_fail(err, PL_EFORMAT,
                       "%s: not a safetensors file: it has only %llu bytes", file->name,
                       (unsigned long long)size);
    int code = fetch(file, 0, &length, sizeof length, err);
    if (code)
        return code;
    length = le64toh(length);
    if (length > PL_SAFETENSORS_HEADER)
        return pl_fail(err, PL_EFORMAT,
                       "%s: not a safetensors file: its header would have %llu bytes, "
                       "and the longest has %zu",
                       file->name, (unsigned long long)length, PL_SAFETENSORS_HEADER);
    if (length > size - PL_SAFETENSORS_PREFIX)
        return pl_fail(err, PL_EFORMAT,
                       "%s: truncated at byte %llu, in the header, which ends at %llu",
                       file->name, (unsigned long long)size,
                       (unsigned long long)length + PL_SAFETENSORS_PREFIX);
    char *header = pl_alloc(length);
    if (!header)
        return pl_no_memory(err);
    code = fetch(file, PL_SAFETENSORS_PREFIX, header, length, err);
    if (!code)
        code = pl_safetensors_parse(file, header, length, err);
    pl_free(header);
    if (!code)
        code = check_places(file, length + PL_SAFETENSORS_PREFIX, size, err);
    if (!code)
        code = check_tensor_names(file, err);
    if (file->metadata_count > 0)
        qsort(file->metadata, (size_t)file->metadata_count, sizeof *file->metadata,
              by_key);
    for (int i = 1; !code && i < file->metadata_count; i++)
        if (!strcmp(file->metadata[i - 1].key, file->metadata[i].key))
            code = pl_fail(err, PL_EFORMAT, "%s: __metadata__ has '%.64s' twice",
                           file->name, file->metadata[i].key);
    return code;
}

static int open_file(const char *path, pl_safetensors_t *file, uint64_t *size,
                     pl_error_t *err)
{
    struct stat status;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s: %m", path);
    if (fstat(file->fd, &status))
        return pl_fail(err, PL_EIO, "%s: %m", path);
    if (!S_ISREG(status.st_mode))
        return pl_fail(err, PL_EINVAL, "%s is not a regular file", path);
    *size = (uint64_t)status.st_size;
    return PL_OK;
}

/* Opens a path, or memory if there are data. */
static int open_either(const char *name, const void *data, uint64_t size,
                       pl_safetensors_t *file, pl_error_t *err)
{
    pl_safetensors_t made = {.name = pl_strdup(name), .memory = data, .fd = -1};
    int code = made.name ? PL_OK : pl_no_memory(err);
    if (!code && !data)
        code = open_file(name, &made, &size, err);
    if (!code)
        code = read_header(&made, size, err);
    if (code)
        pl_safetensors_close(&made);
    else
        *file = made;
    return code;
}

int pl_safetensors_open(const char *path, pl_safetensors_t *file, pl_error_t *err)
{
    return open_either(path, NULL, 0, file, err);
}

int pl_safetensors_read(const void *data, size_t size, const char *name,
                        pl_safetensors_t *file, pl_error_t *err)
{
    return open_either(name, data ? data : "", size, file, err);
}

void pl_safetensors_close(pl_safetensors_t *file)
{
    for (int i = 0; i < file->count; i++)
        pl_free(file->tensor[i].name);
    for (int i = 0; i < file->metadata_count; i++) {
        pl_free((char *)file->metadata[i].key);
        pl_free((char *)file->metadata[i].value);
    }
    if (file->fd >= 0)
        close(file->fd);
    pl_free(file->tensor);
    pl_free(file->metadata);
    pl_free(file->name);
    *file = (pl_safetensors_t){.fd = -1};
}

const char *pl_safetensors_metadata(const pl_safetensors_t *file, const char *key)
{
    pl_metadata_t wanted = {.key = key};
    if (file->metadata_count == 0)
        return NULL;
    const pl_metadata_t *found = bsearch(&wanted, file->metadata,
                                         (size_t)file->metadata_count,
                                         sizeof *file->metadata, by_key);
    return found ? found->value : NULL;
}

int pl_safetensors_load(const pl_safetensors_t *file,
                        const pl_safetensors_tensor_t *tensor, void *out, pl_error_t *err)
{
    if (!tensor->loadable)
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "%s: tensor '%.64s' at byte %llu is %s, which cannot be loaded: convert it "
            "to F32",
            file->name, tensor->name, (unsigned long long)tensor->offset, tensor->type);
    if (tensor->dtype != PL_BF16 && tensor->dtype != PL_F16)
        return fetch(file, tensor->offset, out, (size_t)tensor->size, err);
    /* Halves are read into the second half of `out`; they become floats from the first
     * one on. */
    const size_t count = (size_t)tensor->size / sizeof(uint16_t);
    char *from = (char *)out + tensor->size;
    int code = fetch(file, tensor->offset, from, (size_t)tensor->size, err);
    for (size_t i = 0; i < count && code == PL_OK; i++) {
        uint16_t bits;
        memcpy(&bits, from + i * sizeof bits, sizeof bits);
        ((float *)out)[i] = tensor->dtype == PL_BF16 ? pl_bf16_float(bits)
                                                     : pl_f16_float(bits);
    }
    return code;
}

char *pl_weights_describe(const char *path, pl_error_t *err)
{
    pl_safetensors_t file;
    if (pl_require(path, "a path", err) != PL_OK
        || pl_safetensors_open(path, &file, err) != PL_OK)
        return NULL;
    json_t *tensors = json_object(), *metadata = json_object();
    for (int k = 0; k < file.count; k++) {
        const pl_safetensors_tensor_t *tensor = &file.tensor[k];
        json_t *entry = json_pack("{s:s, s:o, s:I, s:I}", "dtype", tensor->type, "shape",
                                  pl_json_integers(tensor->shape.dim, tensor->shape.rank),
                                  "offset", (json_int_t)tensor->offset, "bytes",
                                  (json_int_t)tensor->size);
        tensors = pl_json_with(tensors, tensor->name, entry);
    }
    for (int k = 0; k < file.metadata_count; k++)
        metadata = pl_json_with(metadata, file.metadata[k].key,
                                json_string(file.metadata[k].value));
    json_t *content = json_pack("{s:o, s:o}", "tensors", tensors, "metadata", metadata);
    pl_safetensors_close(&file);
    char *text = content ? pl_json_write(content, PL_JSON_COMPACT) : NULL;
    json_decref(content);
    if (!text)
        pl_no_memory(err);
    return text;
}
