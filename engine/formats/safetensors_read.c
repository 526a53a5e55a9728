/* safetensors_read.c - named tensors in one file: reading
 *
 * Data is fetched with pread(): a mapped file that somebody cuts would kill the process,
 * a short read is an error. */
#include "formats/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"
#include "formats/safetensors_header.h"

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

static int check_metadata(pl_safetensors_t *file, pl_error_t *err)
{
    if (file->metadata_count > 0)
        qsort(file->metadata, (size_t)file->metadata_count, sizeof *file->metadata,
              by_key);
    for (int i = 1; i < file->metadata_count; i++)
        if (!strcmp(file->metadata[i - 1].key, file->metadata[i].key))
            return pl_fail(err, PL_EFORMAT, "%s: __metadata__ has '%.64s' twice",
                           file->name, file->metadata[i].key);
    return PL_OK;
}

/* Together the tensors fill [start, size) exactly; makes their offsets count from the
 * file's start. */
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

/* Bytes of the file from offset on. */
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
    return code ? code : check_metadata(file, err);
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

/* Opens from a path, or from memory when `data` is there. */
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

/* They are read into the second half of where they go, and grow from the first on. */
static int load_halves(const pl_safetensors_t *file,
                       const pl_safetensors_tensor_t *tensor, float *out, pl_error_t *err)
{
    const size_t count = (size_t)tensor->size / sizeof(uint16_t);
    const char *from = (const char *)out + tensor->size;
    int code = fetch(file, tensor->offset, (char *)out + tensor->size,
                     (size_t)tensor->size, err);
    for (size_t i = 0; i < count && code == PL_OK; i++) {
        uint16_t bits;
        memcpy(&bits, from + i * sizeof bits, sizeof bits);
        out[i] = tensor->dtype == PL_BF16 ? pl_bf16_float(bits) : pl_f16_float(bits);
    }
    return code;
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
    if (tensor->dtype == PL_BF16 || tensor->dtype == PL_F16)
        return load_halves(file, tensor, out, err);
    return fetch(file, tensor->offset, out, (size_t)tensor->size, err);
}
