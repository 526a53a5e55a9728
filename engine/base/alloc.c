/* alloc.c - memory through the program's hooks */
#include "base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/utf8.h"
#include "paceline.h"

#define CACHE_LINE ((size_t)64)
#define HUGE_PAGE ((size_t)2 << 20)

static void *(*hook_allocate)(size_t) = malloc;
static void *(*hook_resize)(void *, size_t) = realloc;
static void (*hook_release)(void *) = free;

void pl_memory_hooks(void *(*allocate)(size_t), void *(*resize)(void *, size_t),
                     void (*release)(void *))
{
    hook_allocate = allocate ? allocate : malloc;
    hook_resize = resize ? resize : realloc;
    hook_release = release ? release : free;
}

void *pl_alloc(size_t bytes)
{
    void *memory = hook_allocate(bytes ? bytes : 1);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void *pl_alloc_array(size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : pl_alloc(bytes);
}

/* calloc() knows which memory is new to the process, and so zero.  Huge pages are
 * requested before the memory is touched; the system may refuse them. */
void *pl_alloc_large(size_t bytes, void **data)
{
    const size_t align = bytes < HUGE_PAGE ? CACHE_LINE : HUGE_PAGE;
    if (bytes > SIZE_MAX - align)
        return NULL;
    char *memory = hook_allocate == malloc ? calloc(1, bytes + align)
                                           : pl_alloc(bytes + align);
    if (!memory)
        return NULL;
    char *aligned = memory + (align - (uintptr_t)memory % align) % align;
    if (align == HUGE_PAGE)
        madvise(aligned, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    *data = aligned;
    return memory;
}

void *pl_resize(void *memory, size_t bytes)
{
    return hook_resize(memory, bytes ? bytes : 1);
}

void pl_free(void *memory)
{
    if (memory)
        hook_release(memory);
}

char *pl_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = pl_alloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

int pl_grow(void **array, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return PL_OK;
    if (*capacity > INT32_MAX / 2)
        return PL_ENOMEM;
    int wanted = *capacity ? 2 * *capacity : 8;
    void *larger = (size_t)wanted > SIZE_MAX / size
                       ? NULL
                       : pl_resize(*array, (size_t)wanted * size);
    if (!larger)
        return PL_ENOMEM;
    *array = larger;
    *capacity = wanted;
    return PL_OK;
}

char *pl_text(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = pl_text_print(NULL, 0, format, args);
    char *text = length < 0 ? NULL : pl_alloc((size_t)length + 1);
    if (text)
        pl_text_print(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

void pl_text_free(char *text)
{
    pl_free(text);
}
