/* weights.c - weights in a safetensors file
 *
 * The metadata says which module they are of, and what the data knew, so that a file is
 * enough to predict with.  Files of others are read too, as far as they hold numbers that
 * fit. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/connectors/writer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/convert.h"
#include "formats/safetensors.h"
#include "formats/sums.h"
#include "runtime/cargo.h"
#include "tensor/graph.h"

/* ---- Writing ---- */

static pl_weights_part_t part_of(const pl_output_t *tensor)
{
    return tensor->region < PL_REGION_SLOT0 ? PL_WEIGHTS_MODULE : PL_WEIGHTS_OPTIMIZER;
}

/* "fc1.weight", or "slot1/fc1.weight" of the optimizer's; from pl_text(). */
static char *tensor_name(const pl_output_t *tensor)
{
    return part_of(tensor) == PL_WEIGHTS_MODULE
               ? pl_text("%s", tensor->name)
               : pl_text("slot%d/%s", (int)tensor->region - PL_REGION_SLOT0,
                         tensor->name);
}

int pl_weights_write_part(const char *path, const pl_weights_t *weights,
                          pl_weights_part_t part, pl_sums_t *sums, pl_error_t *err)
{
    const pl_metadata_t metadata[] = {
        {"format", "paceline"},
        {"module", weights->module ? weights->module : "{}"},
        {"facts", weights->facts ? weights->facts : "{}"},
    };
    int count = 0, code = PL_OK;
    pl_safetensors_source_t *source = pl_alloc_array((size_t)weights->count,
                                                     sizeof *source);
    if (!source)
        return pl_no_memory(err);
    for (int k = 0; k < weights->count && code == PL_OK; k++) {
        const pl_output_t *tensor = &weights->tensor[k];
        if (part_of(tensor) != part)
            continue;
        source[count] = (pl_safetensors_source_t){tensor_name(tensor), PL_F32,
                                                  tensor->shape, tensor->data};
        code = source[count].name ? PL_OK : pl_no_memory(err);
        count += code == PL_OK;
    }
    const pl_safetensors_content_t content = {source, count, metadata, 3, sums};
    if (code == PL_OK)
        code = pl_safetensors_write(path, &content, err);
    for (int k = 0; k < count; k++)
        pl_text_free((char *)source[k].name);
    pl_free(source);
    return code;
}

int pl_weights_write(const char *path, const pl_weights_t *weights, pl_error_t *err)
{
    return pl_weights_write_part(path, weights, PL_WEIGHTS_MODULE, NULL, err);
}

/* ---- Reading ---- */

static int load_wide(const pl_safetensors_t *file, const pl_safetensors_tensor_t *tensor,
                     pl_output_t *to, pl_error_t *err)
{
    double *wide = pl_alloc(tensor->size);
    if (!wide)
        return pl_no_memory(err);
    int code = pl_safetensors_load(file, tensor, wide, err);
    if (code == PL_OK)
        pl_convert(PL_F64, wide, PL_F32, to->data, tensor->size / sizeof *wide);
    pl_free(wide);
    return code;
}

static int tensor_read(pl_weights_t *weights, const pl_safetensors_t *file,
                       const pl_safetensors_tensor_t *tensor, pl_error_t *err)
{
    if (!tensor->loadable || (tensor->dtype != PL_F32 && tensor->dtype != PL_F64))
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: tensor \"%s\" is %s; weights are F32 "
                       "or F64",
                       file->name, tensor->name, tensor->type);
    if (strlen(tensor->name) >= sizeof weights->tensor->name)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: the name of tensor \"%.80s\" is too "
                       "long; %zu bytes are possible",
                       file->name, tensor->name, sizeof weights->tensor->name - 1);
    int code = pl_weights_add(weights, tensor->name, tensor->shape, NULL, err);
    if (code != PL_OK)
        return code;
    pl_output_t *to = &weights->tensor[weights->count - 1];
    if (tensor->dtype == PL_F64)
        return load_wide(file, tensor, to, err);
    return pl_safetensors_load(file, tensor, to->data, err);
}

/* A copy of a metadata text; nothing there is fine. */
static int metadata_read(const pl_safetensors_t *file, const char *key, char **text_p,
                         pl_error_t *err)
{
    const char *text = pl_safetensors_metadata(file, key);
    if (!text)
        return PL_OK;
    *text_p = pl_strdup(text);
    return *text_p ? PL_OK : pl_no_memory(err);
}

static int file_read(pl_weights_t *weights, const pl_safetensors_t *file, pl_error_t *err)
{
    int code = metadata_read(file, "module", &weights->module, err);
    if (code == PL_OK)
        code = metadata_read(file, "facts", &weights->facts, err);
    for (int k = 0; k < file->count && code == PL_OK; k++)
        code = tensor_read(weights, file, &file->tensor[k], err);
    return code;
}

static pl_weights_t *weights_of_file(const char *path, pl_error_t *err)
{
    pl_safetensors_t file;
    if (pl_safetensors_open(path, &file, err) != PL_OK)
        return NULL;
    pl_weights_t *weights = pl_weights_new(err);
    if (weights && file_read(weights, &file, err) != PL_OK) {
        pl_object_unref(weights);
        weights = NULL;
    }
    pl_safetensors_close(&file);
    return weights;
}

pl_weights_t *pl_weights_read(const char *path, pl_error_t *err)
{
    struct stat what;
    if (stat(path, &what) != 0 || !S_ISDIR(what.st_mode))
        return weights_of_file(path, err);
    char *inside = pl_text("%s/" PL_WEIGHTS_FILE, path);
    if (!inside) {
        pl_no_memory(err);
        return NULL;
    }
    pl_weights_t *weights = NULL;
    if (stat(inside, &what) != 0 && errno == ENOENT)
        pl_fail(err, PL_ENOTFOUND,
                "%s: there are no weights (" PL_WEIGHTS_FILE ") in "
                "this directory",
                path);
    else
        weights = weights_of_file(inside, err);
    pl_text_free(inside);
    return weights;
}
