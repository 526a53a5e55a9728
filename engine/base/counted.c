/* counted.c - counted objects */
#include "base/counted.h"

#include "base/alloc.h"

void pl_object_init(pl_object_t *object, void (*release)(pl_object_t *object))
{
    object->references = 1;
    object->release = release;
}

void *pl_object_ref(void *object)
{
    if (object)
        __atomic_add_fetch(&((pl_object_t *)object)->references, 1, __ATOMIC_RELAXED);
    return object;
}

void pl_object_unref(void *object)
{
    pl_object_t *o = object;
    if (!o || __atomic_sub_fetch(&o->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (o->release)
        o->release(o);
    else
        pl_free(o);
}

bool pl_object_is_ours(const void *object)
{
    const pl_object_t *o = object;
    return __atomic_load_n(&o->references, __ATOMIC_ACQUIRE) == 1;
}
