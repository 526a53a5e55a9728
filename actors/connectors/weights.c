/* weights.c - weights in a safetensors file
 *
 * The metadata says which module they are of, and what the data knew, so that a file is
 * enough to predict with.  Files of others are read too, as far as they hold numbers that
 * fit. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/connectors/checkpoint_io.h"
#include "actors/connectors/run_weights.h"
#include "actors/connectors/writer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"
#include "formats/checksums.h"
#include "runtime/payload.h"
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
                          pl_weights_part_t part, uint64_t global_step,
                          pl_checksums_t *sums, pl_error_t *err)
{
    char step[24], epoch[16];
    snprintf(step, sizeof step, "%llu", (unsigned long long)global_step);
    snprintf(epoch, sizeof epoch, "%u", weights->epoch);
    const pl_metadata_t metadata[] = {
        {"format", "paceline"},
        {"global_step", step},
        {"epoch", epoch},
        {"module", weights->module ? weights->module : "{}"},
        {"facts", weights->data_info ? weights->data_info : "{}"},
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
        source[count] = (pl_safetensors_source_t){tensor_name(tensor), tensor->dtype,
                                                  tensor->shape, tensor->data};
        code = source[count].name ? PL_OK : pl_no_memory(err);
        count += code == PL_OK;
    }
    const pl_safetensors_content_t content = {source, count, metadata,
                                              sizeof metadata / sizeof *metadata, sums};
    if (code == PL_OK)
        code = pl_safetensors_write(path, &content, err);
    for (int k = 0; k < count; k++)
        pl_text_free((char *)source[k].name);
    pl_free(source);
    return code;
}

int pl_weights_write(const char *path, const pl_weights_t *weights, uint64_t global_step,
                     pl_error_t *err)
{
    return pl_weights_write_part(path, weights, PL_WEIGHTS_MODULE, global_step, NULL,
                                 err);
}

/* ---- Reading ---- */

static int tensor_read(pl_weights_t *weights, const pl_safetensors_t *file,
                       const pl_safetensors_tensor_t *tensor, pl_error_t *err)
{
    if (!tensor->loadable || !pl_is_float(tensor->dtype))
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: tensor \"%s\" is %s; weights are F32, F64, BF16 or F16",
                       file->name, tensor->name, tensor->type);
    if (strlen(tensor->name) >= sizeof weights->tensor->name)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: the name of tensor \"%.80s\" is too "
                       "long; %zu bytes are possible",
                       file->name, tensor->name, sizeof weights->tensor->name - 1);
    int code = pl_weights_add(weights, tensor->name, tensor->shape, tensor->dtype, NULL,
                              err);
    if (code != PL_OK)
        return code;
    return pl_safetensors_load(file, tensor, weights->tensor[weights->count - 1].data,
                               err);
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

/* What made them; files of others do not say. */
static uint64_t number_read(const pl_safetensors_t *file, const char *key)
{
    const char *text = pl_safetensors_metadata(file, key);
    return text ? strtoull(text, NULL, 10) : 0;
}

static int file_read(pl_weights_t *weights, const pl_safetensors_t *file, pl_error_t *err)
{
    int code = metadata_read(file, "module", &weights->module, err);
    if (code == PL_OK)
        code = metadata_read(file, "facts", &weights->data_info, err);
    weights->global_step = number_read(file, "global_step");
    weights->epoch = (uint32_t)number_read(file, "epoch");
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

/* Of a run directory; what is damaged is passed over while there is something else. */
static pl_weights_t *weights_of_run(const char *run_dir, pl_error_t *err)
{
    pl_run_weights_t all;
    pl_error_t first = {0}, why;
    pl_weights_t *weights = NULL;
    int code = pl_run_weights_list(run_dir, &all, err);
    for (int k = 0; code == PL_OK && k < all.count && !weights; k++) {
        weights = all.at[k].is_file ? weights_of_file(all.at[k].path, &why)
                                    : pl_checkpoint_weights(all.at[k].path, false, &why);
        if (!weights && first.code == PL_OK)
            first = why;
    }
    if (!weights && code == PL_OK)
        pl_fail(err, first.code, "%s", first.text);
    if (code == PL_OK)
        pl_run_weights_release(&all);
    return weights;
}

static bool is_checkpoint(const char *folder)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/" PL_CHECKPOINT_MANIFEST, folder);
    return length < (int)sizeof path && access(path, F_OK) == 0;
}

static pl_weights_t *weights_at(const char *path, pl_error_t *err)
{
    struct stat what;
    bool folder = stat(path, &what) == 0 && S_ISDIR(what.st_mode);
    if (!folder)
        return weights_of_file(path, err);
    return is_checkpoint(path) ? pl_checkpoint_weights(path, false, err)
                               : weights_of_run(path, err);
}

pl_weights_t *pl_weights_read(const char *path, pl_error_t *err)
{
    char *whole = pl_run_path(path);
    pl_weights_t *weights = whole ? weights_at(whole, err) : NULL;
    if (!whole)
        pl_no_memory(err);
    pl_text_free(whole);
    return weights;
}
