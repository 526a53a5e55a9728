/* symbols.h - the functions of a shared library that is opened when it is needed */
#ifndef PL_BASE_SYMBOLS_H
#define PL_BASE_SYMBOLS_H

#include <stddef.h>

typedef struct pl_symbol {
    const char *name;
    void *place;                     /* of a pointer to the function, or variable */
} pl_symbol_t;

/* Opens a library, without what it has for others, and fills the places.  -> a handle for
 * dlclose(); NULL: it is not there, or lacks one of them. */
void *pl_symbols_open(const char *file, const pl_symbol_t *needed, size_t count);

#endif
