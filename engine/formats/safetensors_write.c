/* safetensors_write.c - writes named tensors to one file */
#include "formats/safetensors.h"

#include <endian.h>
#include <jansson.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "formats/array.h"
#include "formats/durable.h"

#define ALIGNMENT 64                         /* of the data, by spaces after the header */

static const char *const type_names[] = {
    [PL_F32] = "F32", [PL_F64] = "F64",   [PL_I32] = "I32", [PL_I64] = "I64",
    [PL_U8] = "U8",   [PL_BF16] = "BF16", [PL_F16] = "F16",
};

static bool is_utf8(const char *text)
{
    return pl_utf8_ok(text, strlen(text));
}

static int add_tensors(json_t *header, const char *path,
                       const pl_safetensors_content_t *content, pl_error_t *err)
{
    size_t begin = 0, bytes;
    for (int i = 0; i < content->count; i++) {
        const pl_safetensors_source_t *tensor = &content->tensor[i];
        int64_t elements;
        if (!pl_array_size(tensor->dtype, &tensor->shape, &elements, &bytes)
            || bytes > INT64_MAX - begin)
            return pl_fail(err, PL_EINVAL, "%s: tensor '%.64s' has an impossible shape",
                           path, tensor->name);
        if (!strcmp(tensor->name, "__metadata__"))
            return pl_fail(err, PL_EINVAL, "%s: a tensor cannot be named __metadata__",
                           path);
        if (json_object_get(header, tensor->name))
            return pl_fail(err, PL_EINVAL, "%s: tensor '%.64s' appears twice", path,
                           tensor->name);
        if (!is_utf8(tensor->name))
            return pl_fail(err, PL_EINVAL, "%s: the name of tensor %d is not UTF-8", path,
                           i);
        json_t *entry =
            json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_names[tensor->dtype], "shape",
                      pl_json_integers(tensor->shape.dim, tensor->shape.rank),
                      "data_offsets", (json_int_t)begin, (json_int_t)(begin + bytes));
        if (json_object_set_new(header, tensor->name, entry))
            return pl_no_memory(err);
        begin += bytes;
    }
    return PL_OK;
}

static int add_metadata(json_t *header, const char *path,
                        const pl_safetensors_content_t *content, pl_error_t *err)
{
    json_t *map = content->metadata_count > 0 ? json_object() : NULL;
    for (int i = 0; i < content->metadata_count; i++) {
        const pl_metadata_t *entry = &content->metadata[i];
        int code = PL_OK;
        if (!is_utf8(entry->key) || !is_utf8(entry->value))
            code = pl_fail(err, PL_EINVAL, "%s: metadata %d is not UTF-8", path, i);
        else if (json_object_get(map, entry->key))
            code = pl_fail(err, PL_EINVAL, "%s: metadata '%.64s' appears twice", path,
                           entry->key);
        else if (json_object_set_new(map, entry->key, json_string(entry->value)))
            code = pl_no_memory(err);
        if (code) {
            json_decref(map);
            return code;
        }
    }
    if (map && json_object_set_new(header, "__metadata__", map))
        return pl_no_memory(err);
    return PL_OK;
}

static int write_header(pl_durable_t *file, const json_t *header, pl_error_t *err)
{
    char spaces[ALIGNMENT];
    char *text = pl_json_write(header, PL_JSON_COMPACT);
    if (!text)
        return pl_no_memory(err);
    uint64_t prefix;
    const size_t length = strlen(text), last = (sizeof prefix + length) % ALIGNMENT,
                 padding = last ? ALIGNMENT - last : 0;
    int code = PL_OK;
    prefix = htole64(length + padding);
    memset(spaces, ' ', sizeof spaces);
    if (length + padding > PL_SAFETENSORS_HEADER)
        code = pl_fail(err, PL_EINVAL,
                       "%s: the header would have %zu bytes; the longest is %zu",
                       file->path, length, PL_SAFETENSORS_HEADER);
    if (!code)
        code = pl_durable_write(file, &prefix, sizeof prefix, err);
    if (!code)
        code = pl_durable_write(file, text, length, err);
    if (!code)
        code = pl_durable_write(file, spaces, padding, err);
    pl_text_free(text);
    return code;
}

static int write_tensor(pl_durable_t *file, const pl_safetensors_source_t *tensor,
                        pl_error_t *err)
{
    int64_t elements;
    size_t bytes;
    pl_array_size(tensor->dtype, &tensor->shape, &elements, &bytes);
    if (tensor->dtype == PL_BF16 || tensor->dtype == PL_F16) {
        /* float32 becomes halves, a block at a time. */
        const float *data = tensor->data;
        uint16_t block[4096];
        int code = PL_OK;
        for (int64_t from = 0; from < elements && !code; from += 4096) {
            const int64_t n = elements - from < 4096 ? elements - from : 4096;
            for (int64_t i = 0; i < n; i++)
                block[i] = tensor->dtype == PL_BF16 ? pl_bf16_bits(data[from + i])
                                                    : pl_f16_bits(data[from + i]);
            code = pl_durable_write(file, block, (size_t)n * sizeof *block, err);
        }
        return code;
    }
    return pl_durable_write(file, tensor->data, bytes, err);
}

static int write_file(const char *path, const json_t *header,
                      const pl_safetensors_content_t *content, pl_error_t *err)
{
    pl_durable_t file;
    uint64_t all = 0;
    int code = pl_durable_open(&file, path, err);
    if (code)
        return code;
    for (int i = 0; i < content->count; i++) {
        int64_t elements;
        size_t bytes;
        pl_array_size(content->tensor[i].dtype, &content->tensor[i].shape, &elements,
                      &bytes);
        all += bytes;
    }
    file.sums = content->sums;
    pl_durable_expect(&file, all);
    code = write_header(&file, header, err);
    for (int i = 0; i < content->count && !code; i++)
        code = write_tensor(&file, &content->tensor[i], err);
    if (!code)
        return pl_durable_commit(&file, err);
    pl_durable_abandon(&file);
    return code;
}

int pl_safetensors_write(const char *path, const pl_safetensors_content_t *content,
                         pl_error_t *err)
{
    json_t *header = json_object();
    int code = header ? add_metadata(header, path, content, err) : pl_no_memory(err);
    if (!code)
        code = add_tensors(header, path, content, err);
    if (!code)
        code = write_file(path, header, content, err);
    json_decref(header);
    return code;
}
