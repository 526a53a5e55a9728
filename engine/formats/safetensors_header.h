/* safetensors_header.h - the header's text, taken apart */
#ifndef PL_FORMATS_SAFETENSORS_HEADER_H
#define PL_FORMATS_SAFETENSORS_HEADER_H

#include "formats/safetensors.h"

#define PL_SAFETENSORS_PREFIX 8      /* bytes of the header's length, before the header */

/* Fills tensors and metadata of *file, whose name is set; offsets are as in the header,
 * from the data's start.  What was made stays in *file on failure too, for the caller to
 * release. */
int pl_safetensors_parse(pl_safetensors_t *file, const char *header, size_t size,
                         pl_error_t *err);

#endif
