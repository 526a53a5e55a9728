/* weights.h - what a .safetensors file says of itself, without its data */
#ifndef CLI_WEIGHTS_H
#define CLI_WEIGHTS_H

#include <jansson.h>
#include <paceline.h>

typedef struct cli_weights {
    json_t *header;                                         /* tensors by name, in the file's order, and __metadata__ */
    int64_t file_bytes;
} cli_weights_t;

/* Reads and checks the header; the error names the file.  Free with cli_weights_release(). */
int cli_weights_open(cli_weights_t *weights, const char *path, pl_error_t *err);
void cli_weights_release(cli_weights_t *weights);

/* Bytes and elements of the tensor with that entry. */
int64_t cli_tensor_bytes(const json_t *tensor);
int64_t cli_tensor_elements(const json_t *tensor);

#endif
