/* symbols.c - the functions of a shared library that is opened when it is needed */
#include "base/symbols.h"

#include <dlfcn.h>
#include <string.h>

void *pl_symbols_open(const char *file, const pl_symbol_t *needed, size_t count)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    for (size_t k = 0; k < count && handle; k++) {
        void *found = dlsym(handle, needed[k].name);
        if (found) {
            memcpy(needed[k].place, &found, sizeof found);
        } else {
            dlclose(handle);
            handle = NULL;
        }
    }
    return handle;
}
