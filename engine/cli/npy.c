/* npy.c - an array in a NumPy file, format 1.0: numpy.lib.format */
#include "cli/npy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PREAMBLE = 10, ALIGN = 64 };                         /* bytes */

/* The header, padded so that the data are aligned; its length. */
static int header_text(char *text, size_t capacity, pl_dtype_t dtype,
                       const pl_shape_t *shape)
{
    int at = snprintf(text, capacity,
                      "{'descr': '%s', 'fortran_order': False, 'shape': (",
                      dtype == PL_F32 ? "<f4" : "<i8");
    for (int axis = 0; axis < shape->rank; axis++)
        at += snprintf(text + at, capacity - (size_t)at, "%lld,%s",
                       (long long)shape->dim[axis], axis + 1 < shape->rank ? " " : "");
    at += snprintf(text + at, capacity - (size_t)at, "), }");
    while ((PREAMBLE + at + 1) % ALIGN)
        text[at++] = ' ';
    text[at++] = '\n';
    return at;
}

int cli_npy_write(const char *path, pl_dtype_t dtype, pl_shape_t shape, const void *data,
                  pl_error_t *err)
{
    char header[512];
    int length = header_text(header, sizeof header - ALIGN, dtype, &shape);
    const unsigned char preamble[PREAMBLE] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, length & 0xff, (length >> 8) & 0xff};
    size_t bytes = dtype == PL_F32 ? sizeof(float) : sizeof(int64_t);
    for (int axis = 0; axis < shape.rank; axis++)
        bytes *= (size_t)shape.dim[axis];
    FILE *file = fopen(path, "wbe");
    if (!file)
        return pl_fail(err, PL_EIO, "cannot write %s: %s", path, strerror(errno));
    bool written = fwrite(preamble, 1, PREAMBLE, file) == PREAMBLE
                   && fwrite(header, 1, (size_t)length, file) == (size_t)length
                   && fwrite(data, 1, bytes, file) == bytes && fflush(file) == 0;
    int why = errno;
    written = fclose(file) == 0 && written;
    if (written)
        return PL_OK;
    unlink(path);
    return pl_fail(err, PL_EIO, "cannot write %s: %s", path, strerror(why ? why : EIO));
}
