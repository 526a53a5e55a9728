/* alloc.h - memory through the program's hooks
 *
 * All of Paceline's own memory comes from here, so that a program can count it and a test
 * can make any allocation fail. */
#ifndef PL_BASE_ALLOC_H
#define PL_BASE_ALLOC_H

#include <stddef.h>

#include "paceline.h"

/* Zeroed memory, or NULL.  Any thread. */
PL_API void *pl_alloc(size_t bytes);
PL_API void *pl_alloc_array(size_t count, size_t size);     /* NULL too when the product
                                                               overflows */
/* A large zeroed block, whose pages cost time only when they are touched.  *data in it is
 * aligned to 64 bytes or, from 2 MiB on, to a huge page, which is requested.  The result,
 * not *data, is freed.  NULL: *data is unchanged. */
void *pl_alloc_large(size_t bytes, void **data);
/* As realloc(); new bytes are not zeroed.  NULL: the old memory is unchanged. */
void *pl_resize(void *memory, size_t bytes);
PL_API void pl_free(void *memory);
char *pl_strdup(const char *text);

/* Makes space for one more element of `size` bytes in an array: doubles *capacity if
 * count has reached it. */
PL_API int pl_grow(void **array, int count, int *capacity, size_t size);
#define PL_GROW(array, count, capacity) \
    pl_grow((void **)&(array), count, &(capacity), sizeof *(array))

#endif
