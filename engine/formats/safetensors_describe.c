/* safetensors_describe.c - what a file of weights says of itself, for programs
 *
 * JSON, as everything that a program is told by name: it may show it or pick from it. */
#include <jansson.h>

#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "formats/safetensors.h"

/* {"dtype": "F32", "shape": [2, 3], "offset": 80, "bytes": 24} */
static json_t *tensor_of(const pl_safetensors_tensor_t *tensor)
{
    return json_pack("{s:s, s:o, s:I, s:I}", "dtype", tensor->type, "shape",
                     pl_json_integers(tensor->shape.dim, tensor->shape.rank), "offset",
                     (json_int_t)tensor->offset, "bytes", (json_int_t)tensor->size);
}

static json_t *tensors_of(const pl_safetensors_t *file)
{
    json_t *tensors = json_object();
    for (int k = 0; k < file->count; k++)
        tensors = pl_json_with(tensors, file->tensor[k].name,
                               tensor_of(&file->tensor[k]));
    return tensors;
}

static json_t *metadata_of(const pl_safetensors_t *file)
{
    json_t *metadata = json_object();
    for (int k = 0; k < file->metadata_count; k++)
        metadata = pl_json_with(metadata, file->metadata[k].key,
                                json_string(file->metadata[k].value));
    return metadata;
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
