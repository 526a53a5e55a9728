/* safetensors_describe.c - what a file of weights says of itself, for programs
 *
 * JSON, as everything that a program is told by name: it may show it or pick from it. */
#include <jansson.h>

#include "base/error.h"
#include "base/json_text.h"
#include "formats/safetensors.h"

static json_t *shape_of(const pl_shape_t *shape)
{
    json_t *list = json_array();
    int rc = list ? 0 : -1;
    for (int axis = 0; rc == 0 && axis < shape->rank; axis++)
        rc = json_array_append_new(list, json_integer(shape->dim[axis]));
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

/* {"dtype": "F32", "shape": [2, 3], "offset": 80, "bytes": 24} */
static json_t *tensor_of(const pl_safetensors_tensor_t *tensor)
{
    return json_pack("{s:s, s:o, s:I, s:I}", "dtype", tensor->type, "shape",
                     shape_of(&tensor->shape), "offset", (json_int_t)tensor->offset,
                     "bytes", (json_int_t)tensor->size);
}

static json_t *tensors_of(const pl_safetensors_t *file)
{
    json_t *tensors = json_object();
    int rc = tensors ? 0 : -1;
    for (int k = 0; rc == 0 && k < file->count; k++)
        rc = json_object_set_new(tensors, file->tensor[k].name,
                                 tensor_of(&file->tensor[k]));
    if (rc == 0)
        return tensors;
    json_decref(tensors);
    return NULL;
}

static json_t *metadata_of(const pl_safetensors_t *file)
{
    json_t *metadata = json_object();
    int rc = metadata ? 0 : -1;
    for (int k = 0; rc == 0 && k < file->metadata_count; k++)
        rc = json_object_set_new(metadata, file->metadata[k].key,
                                 json_string(file->metadata[k].value));
    if (rc == 0)
        return metadata;
    json_decref(metadata);
    return NULL;
}

char *pl_weights_describe(const char *path, pl_error_t *err)
{
    pl_safetensors_t file;
    if (pl_require(path, "a path", err) != PL_OK
        || pl_safetensors_open(path, &file, err) != PL_OK)
        return NULL;
    json_t *said = json_pack("{s:o, s:o}", "tensors", tensors_of(&file), "metadata",
                             metadata_of(&file));
    pl_safetensors_close(&file);
    char *text = said ? pl_json_write(said, PL_JSON_COMPACT) : NULL;
    json_decref(said);
    if (!text)
        pl_no_memory(err);
    return text;
}
