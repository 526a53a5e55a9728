/* counted.h - counted objects: what messages hand over within a process */
#ifndef PL_BASE_COUNTED_H
#define PL_BASE_COUNTED_H

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first member of an object that is shared by counting. */
typedef struct pl_object {
    int references;                                   /* atomic; 1 when made */
    void (*release)(struct pl_object *object);        /* any thread; frees it, or hands it
                                                         back to its pool  [pl_free()] */
} pl_object_t;

PL_API void pl_object_init(pl_object_t *object, void (*release)(pl_object_t *object));
PL_API void *pl_object_ref(void *object);                /* NULL stays NULL; any thread */
PL_API void pl_object_unref(void *object);               /* NULL is fine; any thread */
/* The caller has the last reference, and sees what other threads did: it may be used
 * again. */
PL_API bool pl_object_is_ours(const void *object);

#ifdef __cplusplus
}
#endif

#endif
