/* weights.c - what a .safetensors file says of itself, without its data
 *
 * The format: 8 bytes with the length of a JSON object, little-endian; the object; the data, where each tensor has the
 * bytes from data_offsets[0] up to data_offsets[1]. */
#include "cli/weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/commands.h"

enum { LENGTH_BYTES = 8 };
#define HEADER_MOST (INT64_C(100) << 20)                    /* bytes; the format's own limit */

int64_t cli_tensor_bytes(const json_t *tensor)
{
    const json_t *offsets = json_object_get(tensor, "data_offsets");
    return json_integer_value(json_array_get(offsets, 1)) - json_integer_value(json_array_get(offsets, 0));
}

int64_t cli_tensor_elements(const json_t *tensor)
{
    size_t axis;
    json_t *size;
    int64_t elements = 1;
    json_array_foreach(json_object_get(tensor, "shape"), axis, size)
        if (__builtin_mul_overflow(elements, (int64_t)json_integer_value(size), &elements))
            return INT64_MAX;
    return elements;
}

static int check_tensors(const json_t *header, int64_t data_bytes, const char *path, pl_error_t *err)
{
    const char *name;
    json_t *tensor;
    json_object_foreach((json_t *)header, name, tensor) {
        const json_t *offsets = json_object_get(tensor, "data_offsets");
        int64_t from = json_integer_value(json_array_get(offsets, 0));
        int64_t to = json_integer_value(json_array_get(offsets, 1));
        if (!strcmp(name, "__metadata__"))
            continue;
        if (!json_is_string(json_object_get(tensor, "dtype")) || !json_is_array(json_object_get(tensor, "shape"))
            || json_array_size(offsets) != 2)
            return pl_fail(err, PL_EFORMAT, "%s: tensor \"%.80s\" has no dtype, shape and data_offsets", path, name);
        if (from < 0 || from > to || to > data_bytes)
            return pl_fail(err, PL_EFORMAT, "%s: tensor \"%.80s\" lies at bytes %lld to %lld of %lld: the file is "
                           "truncated or damaged", path, name, (long long)from, (long long)to, (long long)data_bytes);
    }
    return PL_OK;
}

/* The header's text and length, or NULL. */
static char *read_header(FILE *file, int64_t file_bytes, int64_t *length, const char *path, pl_error_t *err)
{
    unsigned char head[LENGTH_BYTES];
    *length = 0;
    if (fread(head, 1, sizeof head, file) == sizeof head)
        for (int k = LENGTH_BYTES - 1; k >= 0; k--)
            *length = (int64_t)((uint64_t)*length << 8 | head[k]);
    if (*length <= 0 || *length > HEADER_MOST || *length > file_bytes - LENGTH_BYTES) {
        pl_fail(err, PL_EFORMAT, "%s is no safetensors file, or a truncated one: its header does not fit into it", path);
        return NULL;
    }
    char *text = malloc((size_t)*length);
    if (text && fread(text, 1, (size_t)*length, file) == (size_t)*length)
        return text;
    pl_fail(err, text ? PL_EIO : PL_ENOMEM, "%s: %s", path, text ? "cannot read the header" : "out of memory");
    free(text);
    return NULL;
}

static int read_weights(cli_weights_t *weights, FILE *file, const char *path, pl_error_t *err)
{
    struct stat status;
    int64_t length;
    if (fstat(fileno(file), &status) != 0 || !S_ISREG(status.st_mode))
        return pl_fail(err, PL_EIO, "%s is not a file", path);
    weights->file_bytes = status.st_size;
    char *text = read_header(file, status.st_size, &length, path, err);
    if (!text)
        return PL_EFORMAT;
    weights->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    if (!json_is_object(weights->header))
        return pl_fail(err, PL_EFORMAT, "%s is no safetensors file: its header is no JSON object", path);
    return check_tensors(weights->header, status.st_size - LENGTH_BYTES - length, path, err);
}

int cli_weights_open(cli_weights_t *weights, const char *path, pl_error_t *err)
{
    *weights = (cli_weights_t){0};
    FILE *file = fopen(path, "rbe");
    if (!file)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "cannot read %s: %s", path, strerror(errno));
    int code = read_weights(weights, file, path, err);
    fclose(file);
    if (code != PL_OK)
        cli_weights_release(weights);
    return code;
}

void cli_weights_release(cli_weights_t *weights)
{
    json_decref(weights->header);
    weights->header = NULL;
}

json_t *cli_weights_facts(const char *run_dir)
{
    char path[4096];
    cli_weights_t weights;
    snprintf(path, sizeof path, "%s/model.safetensors", run_dir);
    if (cli_weights_open(&weights, path, NULL) != PL_OK)
        return NULL;
    const json_t *metadata = json_object_get(weights.header, "__metadata__");
    const char *facts = json_string_value(json_object_get(metadata, "facts"));
    json_t *parsed = json_loads(facts ? facts : "{}", JSON_REJECT_DUPLICATES, NULL);
    cli_weights_release(&weights);
    return parsed;
}
