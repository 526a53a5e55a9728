/* alloc.h - memory through the host's hooks
 *
 * All of Paceline's own memory comes from here, so that a host can count it and a test
 * can make any request fail. */
#ifndef PL_BASE_ALLOC_H
#define PL_BASE_ALLOC_H

#include <stddef.h>

#include "paceline.h"

/* Zeroed memory, or NULL.  Any thread. */
PL_API void *pl_alloc(size_t bytes);
PL_API void *pl_alloc_array(size_t count, size_t size);     /* NULL too when the product
                                                               overflows */
/* Zeroed memory for much, which costs time when it is touched and not before: *data in it
 * lies at a multiple of 64 bytes or, from 2 MiB on, of a huge page, which the system is
 * asked for.  To be freed itself; NULL: *data is as it was. */
void *pl_alloc_large(size_t bytes, void **data);
/* As realloc(); what grows is not zeroed.  NULL leaves the old memory as it was. */
void *pl_resize(void *memory, size_t bytes);
PL_API void pl_free(void *memory);
char *pl_strdup(const char *text);

/* Makes room for one more element of `size` bytes in an array: doubles *capacity when
 * count has reached it. */
PL_API int pl_grow(void **array, int count, int *capacity, size_t size);
#define PL_GROW(array, count, capacity) \
    pl_grow((void **)&(array), count, &(capacity), sizeof *(array))

#endif
